"""Prediction as a program of ten operations, for serving without this library.

        z <- (x - mean) / scale, padded; a warp before it
    A:  z <- z M^T + b
    D:  z <- z + K(z, z_S) (dt a)     for every step, with |z - z_S|^2 = |z|^2 - 2 z.z_S + |z_S|^2
        y <- z, cut, times scale, plus mean; a warp undone behind it
        the weighted mean over the members; a softmax for a classifier

It is written down once, as a :class:`Tape`, which :mod:`._export` reads out to PyTorch and to
ONNX. Rows come and responses leave in single precision; in between it is double, since the sums
of a flow cancel: with single precision alone, AD4A models are off by up to 1e-3 of the response's
spread.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from finemorphs._typing import Array, Tensor
from finemorphs.estimators._data import Scaling
from finemorphs.estimators._members import KernelModel, Member
from finemorphs.estimators._model import Model
from finemorphs.estimators._program_warps import undo_warp, warp
from finemorphs.estimators._tape import Tape, Value
from finemorphs.kernel_regression import Scales
from finemorphs.kernels import Kernel
from finemorphs.modules import Affine, Diffeo

__all__ = ["record", "record_responses"]


def record(members: Sequence[Member], flat: bool, probabilities: bool) -> Tape:
    """The program that takes rows "X" (n, d_X); its last operation gives responses (n, d_Y).

    With ``flat`` the only response is of shape (n); with ``probabilities`` a softmax is taken.
    """
    tape = Tape()
    table = tape.add("Double", Value(tape, "X"))
    first, *others = (_model(member.model, table) * member.weight for member in members)
    result = sum(others, start=first)
    if flat:
        result = result @ np.ones(1)
    tape.add("Single", tape.add("Softmax", result) if probabilities else result)
    return tape


def record_responses(scaling: Scaling) -> Tape:
    """The program that takes standardised responses "X" (n, d_Y) to their own units, in double."""
    tape = Tape()
    _leave(scaling, tape.add("Double", Value(tape, "X")))
    return tape


def _model(model: Model | KernelModel, table: Value) -> Value:
    """Responses (n, d_Y) of a member in their own units."""
    if isinstance(model, KernelModel):
        return _leave(model.y_scaling, _kernel_regression(model, _enter(model.x_scaling, table)))
    sequence = model.sequence
    n_inputs, n_responses = len(model.x_scaling.mean), len(model.y_scaling.mean)
    z = _enter(model.x_scaling, table) @ np.eye(n_inputs, sequence.d_in)
    centers = iter(model.centers)
    for module, part in zip(sequence.modules, sequence.split(model.theta.double()), strict=True):
        if isinstance(module, Diffeo):
            z = _flow(module, part, next(centers).double().numpy(), z)
        elif isinstance(module, Affine):
            matrix, offset = (view.numpy() for view in module.views(part))
            z = z @ matrix.T + offset
    return _leave(model.y_scaling, z @ np.eye(sequence.d_out, n_responses))


def _enter(scaling: Scaling, table: Value) -> Value:
    warped = table if scaling.warp is None else warp(scaling.warp, table)
    return (warped + -scaling.mean) * (1 / scaling.scale)


def _leave(scaling: Scaling, z: Value) -> Value:
    warped = z * scaling.scale + scaling.mean
    return warped if scaling.warp is None else undo_warp(scaling.warp, warped)


def _flow(module: Diffeo, theta: Tensor, centers: Array, z: Value) -> Value:
    """The Euler steps of a D module."""
    controls = module.controls(theta).numpy() / module.n_steps
    for center, control in zip(centers, controls, strict=True):
        squares = _squared_distances(z, center) * module.kernel.width**-2
        z = z + _kernel(module.kernel, squares) @ control
    return z


def _squared_distances(z: Value, points: Array) -> Value:
    """|z - z_S|^2 from inner products: kernels are smooth in it."""
    squares = (z * z) @ np.ones((points.shape[1], 1)) + (points**2).sum(1)
    result: Value = (squares + z @ (-2 * points.T)).relu()
    return result


def _kernel(kernel: Kernel, squares: Value) -> Value:
    """The values of the kernel kappa(u), given u^2."""
    if kernel.is_gaussian:
        return (squares * -0.5).exp()
    u = squares.sqrt()
    *others, last = kernel.value_coefficients
    polynomial = u * last + others.pop()
    for c in reversed(others):
        polynomial = u * polynomial + c
    return polynomial * (-u).exp()


def _kernel_regression(model: KernelModel, x: Value) -> Value:
    """sum_j k(x, x_j) c_j / max(1, V(x)), V as in :mod:`finemorphs.kernel_regression`."""
    regression, scales = model.regression, model.regression.scales
    points: Array = regression.points.cpu().double().numpy()
    coefficients: Array = regression.coefficients.cpu().double().numpy()
    values: Value = _regression_kernel(scales, x, points) @ coefficients
    if not len(regression.anchors):
        return values
    anchors = points[regression.anchors.cpu().numpy()]
    white = _regression_kernel(scales, x, anchors) @ regression.whitener.cpu().numpy().T
    linear, *others = (float(part) for part in (*scales.parts, scales.sharp[0]))
    own = (x * x) @ np.full((points.shape[1], 1), linear) + sum(others)
    variance = own + (white * white) @ np.full((len(anchors), 1), -1.0)
    doubt = (variance + -1.0).relu() + 1.0
    return values * (-doubt.log()).exp()


def _regression_kernel(scales: Scales, x: Value, points: Array) -> Value:
    """k(x, x_j) of :mod:`finemorphs.kernel_regression` for all points."""
    linear, smooth, rough = (float(part) for part in scales.parts)
    r = _squared_distances(x @ scales.metric.T, points @ scales.metric.T).sqrt()
    kernel = (x @ points.T) * linear + ((r * (1 / 3) + 1.0) * r + 1.0) * (-r).exp() * smooth
    sharp, rate = (float(number) for number in scales.sharp)
    if sharp > 0:
        kernel = kernel + (r * -rate).exp() * sharp
    one = np.eye(points.shape[1])
    deltas = (
        x @ (scale * one[:, j : j + 1]) + -scale * points[:, j]
        for j, scale in enumerate(scales.rough)
    )
    first, *others = (delta.relu() + (-delta).relu() for delta in deltas)
    q: Value = sum(others, start=first)
    return kernel + (-q).exp() * rough
