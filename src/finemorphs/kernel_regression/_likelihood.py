"""The scales of largest likelihood.

The logarithms p of s, v, w and tau minimise

    1/2 tr(y^T C^-1 y) + d_Y/2 log det C + R(p - p_0),      C = K + tau W^-1,
    R(u) = sum log(1 + u_j^2) over those of v and w  +  0.005 |u|^2 over the others

on a sample of the rows. W holds the weights of the rows, which divide their noise. The first sum is
a Cauchy distribution of the widths: with few rows they stay near each other, but for those that the
rows speak of. With one width for all features in each part, v and w are two numbers, and R is
0.005 |u|^2.
E, which mixes the features, is searched with the sharp part from the scales without them, which
are then p_0, with v fixed there and R(u) = 0.005 |u|^2 + 2 d |E|^2; they are kept if that lowers
the objective by one or more for each of their d^2 + 2 numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from finemorphs._typing import Array, Tensor
from finemorphs.kernel_regression._scales import (
    JITTER,
    Scales,
    bands,
    kernel_matrix,
    kernel_parts,
    radial_slope,
    two_valued,
)

__all__ = ["Sample", "likely_common_scales", "likely_scales", "mix_features"]

_BOUND, _NOISE_BOUND = 9.0, 14.0  # of the logarithms
_PULL = 0.01
_MIXING_PULL = 4.0  # times d
_ROWS_A_NUMBER = 2  # of E, at least
_SHARP = np.log([0.1, 0.5])  # s_3 and g, where their search begins
_MAX_EVALUATIONS = 60


class Sample(NamedTuple):
    """Standardised rows x (n, d) with responses y (n, d_Y) and weights, on a device.

    ``gaps`` (d,) are those of columns of two values, see :func:`two_valued`.
    """

    x: Tensor
    y: Tensor
    weights: Tensor
    gaps: Tensor

    @classmethod
    def of_arrays(cls, x: Array, y: Array, weights: Array, device: torch.device) -> Sample:
        """On the device, in double precision."""
        rows, responses, masses = (
            torch.as_tensor(a, dtype=torch.float64, device=device) for a in (x, y, weights)
        )
        return cls(rows, responses, masses, two_valued(rows))


def likely_scales(sample: Sample) -> Scales:
    """The scales of largest likelihood, features not mixed; the cost grows with n^3."""
    d = sample.x.shape[1]
    start, widths = Scales.start(d).logarithms, slice(3, 3 + 2 * d)
    strengths = np.full(len(start), _PULL)
    strengths[widths] = 0.0

    def objective(p: Array) -> tuple[float, Array]:
        scales = Scales.of_logarithms(p)
        value, slopes = _negative_likelihood(scales, sample)
        gradient, way = slopes.by_logarithms(scales), p - start
        spread = 1 + way[widths] ** 2
        gradient[widths] += 2 * way[widths] / spread
        return _pulled(value + float(np.log(spread).sum()), gradient, way, strengths)

    return Scales.of_logarithms(_search(objective, start)[0])


def likely_common_scales(sample: Sample) -> Scales:
    """The same with one width for all features in each part: few numbers, for few rows."""
    d = sample.x.shape[1]
    places = np.repeat(np.arange(6), [1, 1, 1, d, d, 1])  # of the logarithms among the numbers
    start = Scales.start(d).logarithms[[0, 1, 2, 3, 3 + d, -1]]
    strengths = np.full(len(start), _PULL)

    def objective(numbers: Array) -> tuple[float, Array]:
        scales = Scales.of_logarithms(numbers[places])
        value, slopes = _negative_likelihood(scales, sample)
        gradient = np.bincount(places, slopes.by_logarithms(scales))
        return _pulled(value, gradient, numbers - start, strengths)

    return Scales.of_logarithms(_search(objective, start)[0][places])


def mix_features(scales: Scales, sample: Sample) -> Scales:
    """The same with the features of the smooth part mixed, if that is likely enough.

    They are left as they are where there are few rows for the numbers of E.
    """
    d = len(scales.smooth)
    if d == 1 or len(sample.x) < _ROWS_A_NUMBER * d * d:
        return scales
    fixed = scales.logarithms
    # In the place of v stand E and the logarithms of s_3 and g.
    mixing, sharp = slice(3, 3 + d * d), slice(3 + d * d, 5 + d * d)
    start = np.concatenate([fixed[:3], np.zeros(d * d), _SHARP, fixed[3 + d :]])
    strengths = np.full(len(start), _PULL)
    strengths[mixing] = _MIXING_PULL * d

    def at(p: Array) -> Scales:
        logarithms = np.concatenate([p[:3], fixed[3 : 3 + d], p[sharp.stop :]])
        return Scales.of_logarithms(logarithms, p[mixing].reshape(d, d), np.exp(p[sharp]))

    def objective(p: Array) -> tuple[float, Array]:
        value, slopes = _negative_likelihood(at(p), sample)
        by_mixing = (slopes.metric * scales.smooth).ravel()
        gradient = [slopes.parts, by_mixing, slopes.sharp, slopes.rough, slopes.noise]
        return _pulled(value, np.concatenate(gradient), p - start, strengths)

    found, least = _search(objective, start)
    gain = _negative_likelihood(scales, sample)[0] - least
    n_numbers = sharp.stop - mixing.start
    return at(found) if gain >= n_numbers else scales


def _pulled(value: float, gradient: Array, way: Array, strengths: Array) -> tuple[float, Array]:
    """Value and gradient with a pull back along the way from the start."""
    return value + 0.5 * float(strengths @ way**2), gradient + strengths * way


def _search(objective: Callable[[Array], tuple[float, Array]], start: Array) -> tuple[Array, float]:
    """Where the objective is least, and its value; the last number is the logarithm of tau.

    The threads of scipy's BLAS wait for work by spinning, on the cores that the objective needs.
    """
    with threadpool_limits({"libscipy_openblas": 1}):
        result = minimize(
            objective,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[(-_BOUND, _BOUND)] * (len(start) - 1) + [(-_NOISE_BOUND, 0.0)],
            options={"maxfun": _MAX_EVALUATIONS, "maxcor": 20},
        )
    return np.asarray(result.x), float(result.fun)


class _Slopes(NamedTuple):
    """Derivatives by the logarithms of s, w, tau, s_3 and g, and by the entries of B."""

    parts: Array
    metric: Array
    rough: Array
    noise: Array
    sharp: Array

    def by_logarithms(self, scales: Scales) -> Array:
        """By the vector p of the scales, whose features are not mixed."""
        by_smooth = (scales.metric * self.metric).sum(0)
        return np.concatenate([self.parts, by_smooth, self.rough, self.noise])


def _negative_likelihood(scales: Scales, sample: Sample) -> tuple[float, _Slopes]:
    """The objective without its pull, and its derivatives.

    The parts of the kernel are computed again for these: that is faster than to store them.
    """
    x, y, weights, gaps = sample
    covariance = kernel_matrix(scales, x, gaps)
    covariance.diagonal().add_((scales.noise + JITTER) / weights)
    factor, failed = torch.linalg.cholesky_ex(covariance)
    d = len(scales.smooth)
    if failed:
        return 1e25, _Slopes(*(np.zeros(shape) for shape in (3, (d, d), d, 1, 2)))
    alpha = torch.cholesky_solve(y, factor)
    n_responses = y.shape[1]
    value = 0.5 * (y * alpha).sum() + n_responses * factor.diagonal().log().sum()
    # Twice d value / d C: the pairs of a band stand for those below the diagonal too.
    weight = torch.cholesky_inverse(factor).mT.mul_(n_responses).sub_(alpha @ alpha.T)
    by_noise = 0.5 * scales.noise * (weight.diagonal() / weights).sum()
    by_parts, by_sharp, by_distance = (x.new_zeros(size) for size in (3, 2, d))
    form = x.new_zeros(d, d)
    for band, rest in bands(x):
        pull, a, b = weight[band, rest], x[band], x[rest]
        pull[:, : len(a)] *= 0.5
        parts = kernel_parts(scales, a, b, gaps)
        for k, part in enumerate((parts.linear, parts.smooth, parts.rough)):
            by_parts[k] += _inner(pull, part)
        if parts.sharp is not None:
            by_sharp[0] += _inner(pull, parts.sharp)
            by_sharp[1] -= float(scales.sharp[1]) * _inner(pull, parts.sharp * parts.r)
        # dk / dB = -slope B (x - x') (x - x')^T, summed as a quadratic form
        slope = radial_slope(scales, parts).mul_(pull)
        across = a.T @ slope @ b
        form += (a.T * slope.sum(1)) @ a + (b.T * slope.sum(0)) @ b - across - across.T
        by_distance += _summed_distances(parts.rough.mul_(pull), a, b, gaps)
    by_rough = -torch.as_tensor(scales.rough).to(x) * by_distance  # -w_j |x_j - x'_j| rough
    by_metric = -torch.as_tensor(scales.metric).to(x) @ form
    slopes = by_parts, by_metric, by_rough, by_noise[None], by_sharp
    return float(value), _Slopes(*(slope.cpu().numpy() for slope in slopes))


def _summed_distances(factors: Tensor, a: Tensor, b: Tensor, gaps: Tensor) -> Tensor:
    """The sums of f_ik |a_ij - b_kj| over the pairs, for each column j.

    Of a column of two values they are those of f_ik (a_ij - b_kj)^2 / gap.
    """
    sums, two = torch.empty_like(gaps), gaps > 0
    c, d = a[:, two], b[:, two]
    squares = factors.sum(1) @ c.square() + factors.sum(0) @ d.square()
    sums[two] = (squares - 2 * (c * (factors @ d)).sum(0)) / gaps[two]
    for j in torch.nonzero(~two).ravel().tolist():
        sums[j] = _inner(factors, (a[:, j, None] - b[None, :, j]).abs_())
    return sums


def _inner(a: Tensor, b: Tensor) -> Tensor:
    """The sum of the products of the entries."""
    total: Tensor = torch.tensordot(a, b, dims=2)
    return total
