"""Prediction as a program of nine operations, for serving without this library.

        z <- (x - mean) / scale, padded
    A:  z <- z M^T + b
    D:  z <- z + K(z, z_S) (dt a)     for every step, with |z - z_S|^2 = |z|^2 - 2 z.z_S + |z_S|^2
        y <- z, cut, times scale, plus mean; a softmax for a classifier

It is written down once, as a :class:`Tape` of named operations, which :mod:`._export` reads out
to PyTorch and to ONNX. Rows come and responses leave in single precision; in between it is
double, since the sums of a flow cancel: with single precision alone, AD4A models are off by
up to 1e-3 of the response's spread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from finemorphs._typing import Array, Tensor
from finemorphs.estimators._model import Model
from finemorphs.kernels import Kernel
from finemorphs.modules import Affine, Diffeo

__all__ = ["Operation", "Tape", "Value", "record"]


@dataclass(frozen=True)
class Operation:
    """A step of a program: its kind, in ONNX's words, the names it takes and the one it gives."""

    kind: str
    inputs: tuple[str, ...]
    output: str


@dataclass(frozen=True)
class Value:
    """A number on a tape, by its name."""

    tape: Tape
    name: str

    def __matmul__(self, other: Value) -> Value:
        return self.tape.add("MatMul", self, other)

    def __add__(self, other: Value) -> Value:
        return self.tape.add("Add", self, other)

    def __mul__(self, other: Value) -> Value:
        return self.tape.add("Mul", self, other)


@dataclass
class Tape:
    """Operations in their order, and the arrays of the model by name."""

    operations: list[Operation] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def add(self, kind: str, *inputs: Value) -> Value:
        """One more operation."""
        name = f"{kind}_{len(self.operations)}"
        self.operations.append(Operation(kind, tuple(v.name for v in inputs), name))
        return Value(self, name)

    def constant(self, name: str, values: Array | float) -> Value:
        """An array of the model, in double precision."""
        self.constants[name] = np.array(values, dtype=np.float64, order="C")
        return Value(self, name)


def record(model: Model, flat: bool, probabilities: bool) -> Tape:
    """The program that takes rows "X" (n, d_X); its last operation gives responses (n, d_Y).

    With ``flat`` the only response is of shape (n); with ``probabilities`` a softmax is taken.
    """
    tape = Tape()
    z = _enter(tape, model, tape.add("Double", Value(tape, "X")))
    centers = iter(model.centers)
    sequence = model.sequence
    for module, part in zip(sequence.modules, sequence.split(model.theta.double()), strict=True):
        if isinstance(module, Diffeo):
            z = _flow(tape, module, part, next(centers).double().numpy(), z)
        elif isinstance(module, Affine):
            matrix, offset = (view.numpy() for view in module.views(part))
            z = z @ tape.constant(module.name, matrix.T)
            z = z + tape.constant(f"{module.name}_offset", offset)
    z = _leave(tape, model, z, flat)
    tape.add("Single", tape.add("Softmax", z) if probabilities else z)
    return tape


def _enter(tape: Tape, model: Model, table: Value) -> Value:
    """Standardise and pad."""
    scale = model.x_scaling.scale
    matrix = np.eye(len(scale), model.sequence.d_in) / scale[:, None]
    table = table + tape.constant("enter_offset", -model.x_scaling.mean)
    return table @ tape.constant("enter", matrix)


def _leave(tape: Tape, model: Model, z: Value, flat: bool) -> Value:
    """Cut, and back to the units of the responses."""
    mean, scale = model.y_scaling.mean, model.y_scaling.scale
    matrix = np.eye(model.sequence.d_out, len(scale)) * scale
    z = z @ tape.constant("leave", matrix[:, 0] if flat else matrix)
    return z + tape.constant("leave_offset", mean[0] if flat else mean)


def _flow(tape: Tape, module: Diffeo, theta: Tensor, centers: Array, z: Value) -> Value:
    """The Euler steps of a D module."""
    controls = module.controls(theta).numpy() / module.n_steps
    ones = tape.constant(f"{module.name}_ones", np.ones((module.dim, 1)))
    scale = tape.constant(f"{module.name}_scale", module.kernel.width**-2)
    for i, (center, control) in enumerate(zip(centers, controls, strict=True)):
        name = f"{module.name}_{i}"
        squares = (z * z) @ ones + tape.constant(f"{name}_squares", (center**2).sum(1))
        squares = (
            tape.add("Relu", squares + z @ tape.constant(f"{name}_centers", -2 * center.T)) * scale
        )
        values = _kernel(tape, module.kernel, name, squares)
        z = z + values @ tape.constant(f"{name}_controls", control)
    return z


def _kernel(tape: Tape, kernel: Kernel, name: str, squares: Value) -> Value:
    """The values of the kernel kappa(u), given u^2."""
    if kernel.is_gaussian:
        return tape.add("Exp", squares * tape.constant(f"{name}_half", -0.5))
    u = tape.add("Sqrt", squares)
    coefficients = [
        tape.constant(f"{name}_c{i}", c) for i, c in enumerate(kernel.value_coefficients)
    ]
    polynomial = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        polynomial = u * polynomial + c
    return polynomial * tape.add("Exp", u * tape.constant(f"{name}_minus", -1.0))
