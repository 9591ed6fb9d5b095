"""Regression in the span of kernels: closed form, its scales by the marginal likelihood.

    f(x) = sum_j k(x, x_j) c_j / max(1, V(x)),      c = (K + tau W^-1)^-1 y

    k(x, x') = s_0 <x, x'> + s_1 (1 + r + r^2/3) e^-r + s_2 e^-q
    r = |(I + E) (v * (x - x'))|_2  (smooth),   q = |w * (x - x')|_1  (rough)

The smooth part, a Matern kernel of order 2 with a width for each feature, carries what a flow
carries too; the rough one follows steps, thresholds and rows that are nearly the same, as
forests of trees do. The logarithms p of s, v, w and tau minimise

    1/2 tr(y^T C^-1 y) + d_Y/2 log det C + 0.005 |p - p_0|^2,      C = K + tau W^-1,

on a sample of the rows. W holds the weights of the rows; a row of weight 2 is the row twice.
E, which mixes the features, is 0, or it is searched too, with p_0 the scales without it, v fixed
there, and 2 d |E|^2 added; it is kept if that lowers the objective by d^2 or more, its size.

Far from the rows the sum is a polynomial where the smooth part has small weights v. So it is taken
back to 0, the mean of standardised responses, where its own variance is above theirs:

    V(x) = k(x, x) - k(x, S) (k(S, S) + tau)^-1 k(S, x)

S are rows, the anchors, chosen one by one where V is largest, until it is small at all rows or
there are 500.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize

from finemorphs._typing import Array, Tensor

__all__ = [
    "MOST_ANCHORS",
    "KernelRegression",
    "Sample",
    "Scales",
    "likely_scales",
    "mix_features",
    "regress",
]

MOST_ANCHORS = 500
_BOUND, _NOISE_BOUND = 9.0, 14.0  # of the logarithms
_PULL = 0.01
_MIXING_PULL = 4.0  # times d
_ROWS_A_NUMBER = 2  # of E, at least
_JITTER = 1e-7  # of the noise
_KNOWN = 0.3  # so small is V at the rows
_ROWS_AT_ONCE = 2048
_MAX_EVALUATIONS = 60


@dataclass(frozen=True)
class Scales:
    """The scales of the kernel.

    ``parts`` are s_0, s_1, s_2; ``smooth`` and ``rough`` the weights v and w of the features;
    ``noise`` is tau; ``mixing`` is E, (d, d).
    """

    parts: Array
    smooth: Array
    rough: Array
    noise: float
    mixing: Array

    @classmethod
    def start(cls, d: int) -> Scales:
        """Where the search begins: standardised features that matter alike."""
        parts, noise = np.array([0.1, 0.5, 0.5]), np.exp(-3.0)
        return cls(parts, np.full(d, d**-0.5), np.full(d, 0.3 * d**-0.5), noise, np.zeros((d, d)))

    @classmethod
    def of_logarithms(cls, p: Array, mixing: Array | None = None) -> Scales:
        """From the vector p."""
        values = np.exp(p)
        d = (len(p) - 4) // 2
        mixing = np.zeros((d, d)) if mixing is None else mixing
        return cls(values[:3], values[3 : 3 + d], values[3 + d : -1], float(values[-1]), mixing)

    @property
    def logarithms(self) -> Array:
        """The vector p."""
        values = np.concatenate([self.parts, self.smooth, self.rough, [self.noise]])
        return np.asarray(np.log(values))

    @property
    def metric(self) -> Array:
        """B = (I + E) diag(v), so that r = |B (x - x')|."""
        return np.asarray((np.eye(len(self.smooth)) + self.mixing) * self.smooth)


@dataclass(frozen=True)
class KernelRegression:
    """A fitted f.

    Attributes
    ----------
    scales : Scales
    points : Tensor
        The rows x_j, (n, d).
    coefficients : Tensor
        c, (n, d_Y).
    anchors : Tensor
        The places of S among the points; none in files that know no V.
    """

    scales: Scales
    points: Tensor
    coefficients: Tensor
    anchors: Tensor

    def predict(self, x: Array) -> Array:
        """f at the rows of x, (m, d_Y)."""
        results = []
        for rows in self._chunks(x):
            kernel = self._kernel(rows)[0]
            results.append(kernel @ self.coefficients / self._doubt(rows, kernel)[0])
        return torch.cat(results).cpu().numpy()

    def jacobian(self, x: Array) -> Array:
        """The derivative of f at the rows of x, (m, d_Y, d).

        That of the rough part is 0 at its kinks.
        """
        s = self.scales
        squares = torch.as_tensor(s.metric.T @ s.metric).to(self.points)  # r^2 is a form of it
        pulled = self.points @ squares
        rates = torch.as_tensor(s.rough).to(self.points)
        results = []
        for rows in self._chunks(x):
            kernel, r, rough = self._kernel(rows)
            values = kernel @ self.coefficients
            doubt, white = self._doubt(rows, kernel)
            pull = white @ self.whitener
            slope = s.parts[1] * (1 + r) / 3 * torch.exp(-r)
            pulls = rows @ squares
            gradient = []
            for j in range(rows.shape[1]):
                delta = rows[:, j, None] - self.points[None, :, j]
                terms = s.parts[0] * self.points[None, :, j]
                terms = terms - slope * (pulls[:, j, None] - pulled[None, :, j])
                terms = terms - rates[j] * torch.sign(delta) * rough
                change = 2 * s.parts[0] * rows[:, j] - 2 * (terms[:, self.anchors] * pull).sum(1)
                change = torch.where(doubt > 1, change[:, None], 0.0)
                # (u / D)' = (u' - u D' / D) / D
                gradient.append((terms @ self.coefficients - values / doubt * change) / doubt)
            results.append(torch.stack(gradient, dim=2))
        return torch.cat(results).cpu().numpy()

    @cached_property
    def whitener(self) -> Tensor:
        """R with R^T R = (k(S, S) + tau)^-1, lower triangular."""
        anchors = self.points[self.anchors]
        linear, smooth, _, rough = _parts(self.scales, anchors, anchors)
        kernel = linear + smooth + rough
        kernel.diagonal().add_(self.scales.noise + _JITTER)
        one = torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device)
        factor = torch.linalg.cholesky(kernel)
        inverse: Tensor = torch.linalg.solve_triangular(factor, one, upper=False)
        return inverse

    def _doubt(self, rows: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
        """max(1, V), (m, 1), and R k(S, x) of each row, (m, |S|)."""
        white = kernel[:, self.anchors] @ self.whitener.T
        if not len(self.anchors):
            return kernel.new_ones(len(rows), 1), white
        variance = _variance(self.scales, rows) - white.square().sum(1)
        return variance.clamp(min=1)[:, None], white

    def _chunks(self, x: Array) -> list[Tensor]:
        rows = torch.as_tensor(x).to(self.points)
        return list(rows.split(_ROWS_AT_ONCE)) if len(rows) else [rows]

    def _kernel(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The kernel (m, n), the smooth distance r, and the rough part."""
        linear, smooth, r, rough = _parts(self.scales, rows, self.points)
        return linear + smooth + rough, r, rough


class Sample(NamedTuple):
    """Standardised rows x (n, d) with responses y (n, d_Y) and weights, on a device."""

    x: Tensor
    y: Tensor
    weights: Tensor

    @classmethod
    def draw(
        cls,
        x: Array,
        y: Array,
        weights: Array,
        rng: np.random.Generator,
        device: torch.device,
        most: int,
    ) -> Sample:
        """All rows, or so many of them."""
        if len(x) > most:
            chosen = np.sort(rng.choice(len(x), most, replace=False))
            x, y, weights = x[chosen], y[chosen], weights[chosen]
        return cls(
            *(torch.as_tensor(a, dtype=torch.float64, device=device) for a in (x, y, weights))
        )


def likely_scales(sample: Sample) -> Scales:
    """The scales of largest likelihood, features not mixed; the cost grows with n^3."""
    start = Scales.start(sample.x.shape[1]).logarithms

    def objective(p: Array) -> tuple[float, Array]:
        scales = Scales.of_logarithms(p)
        value, slopes = _negative_likelihood(scales, sample)
        by_smooth = (scales.metric * slopes.metric).sum(0)
        return _pulled(
            value,
            np.concatenate([slopes.parts, by_smooth, slopes.rough, slopes.noise]),
            p - start,
            np.full(len(p), _PULL),
        )

    return Scales.of_logarithms(_search(objective, start))


def mix_features(scales: Scales, sample: Sample) -> Scales:
    """The same with the features of the smooth part mixed, if that is likely enough.

    They are left as they are where there are few rows for the numbers of E.
    """
    d = len(scales.smooth)
    if d == 1 or len(sample.x) < _ROWS_A_NUMBER * d * d:
        return scales
    v = scales.smooth
    logarithms = scales.logarithms
    start = np.concatenate([logarithms[:3], np.zeros(d * d), logarithms[3 + d :]])
    strengths = np.full(len(start), _PULL)
    strengths[3 : 3 + d * d] = _MIXING_PULL * d

    def at(p: Array) -> Scales:
        others = np.concatenate([p[:3], logarithms[3 : 3 + d], p[3 + d * d :]])
        return Scales.of_logarithms(others, p[3 : 3 + d * d].reshape(d, d))

    def objective(p: Array) -> tuple[float, Array]:
        value, slopes = _negative_likelihood(at(p), sample)
        by_mixing = (slopes.metric * v).ravel()
        gradient = np.concatenate([slopes.parts, by_mixing, slopes.rough, slopes.noise])
        return _pulled(value, gradient, p - start, strengths)

    found = _search(objective, start)
    gain = objective(start)[0] - objective(found)[0]
    return at(found) if gain >= d * d else scales


def _pulled(value: float, gradient: Array, way: Array, strengths: Array) -> tuple[float, Array]:
    """Value and gradient with a pull back along the way from the start."""
    return value + 0.5 * float(strengths @ way**2), gradient + strengths * way


def _search(objective: Callable[[Array], tuple[float, Array]], start: Array) -> Array:
    """Where the objective is least; the last number is the logarithm of tau."""
    result = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-_BOUND, _BOUND)] * (len(start) - 1) + [(-_NOISE_BOUND, 0.0)],
        options={"maxfun": _MAX_EVALUATIONS, "maxcor": 20},
    )
    return np.asarray(result.x)


def regress(
    scales: Scales, x: Array, y: Array, weights: Array, device: torch.device
) -> KernelRegression:
    """f for rows x (n, d), responses y (n, d_Y) and weights."""
    rows, responses, w = (
        torch.as_tensor(a, dtype=torch.float64, device=device) for a in (x, y, weights)
    )
    linear, smooth, _, rough = _parts(scales, rows, rows)
    covariance = linear.add_(smooth).add_(rough)
    anchors = _anchors(covariance, scales.noise + _JITTER)
    covariance.diagonal().add_((scales.noise + _JITTER) / w)
    factor = torch.linalg.cholesky(covariance)
    coefficients = torch.cholesky_solve(responses, factor)
    return KernelRegression(scales, rows, coefficients, anchors)


def _anchors(kernel: Tensor, noise: float) -> Tensor:
    """The places of S: a Cholesky factor of kernel + noise, a pivot at a time, the largest first.

    ``variance`` is V of the rows, given the anchors so far.
    """
    variance = kernel.diagonal().clone()
    factor = kernel.new_empty(min(MOST_ANCHORS, len(kernel)), len(kernel))
    anchors = []
    for k, row in enumerate(factor):
        pivot = int(variance.argmax())
        if k and variance[pivot] <= _KNOWN:
            break
        row[:] = kernel[pivot] - factor[:k, pivot] @ factor[:k]
        row /= (variance[pivot] + noise).sqrt()
        variance -= row.square()
        variance[pivot] = 0.0
        anchors.append(pivot)
    return torch.tensor(anchors, device=kernel.device)


def _variance(scales: Scales, rows: Tensor) -> Tensor:
    """k(x, x) of each row."""
    s0, s1, s2 = (float(part) for part in scales.parts)
    return s0 * rows.square().sum(1) + (s1 + s2)


def _parts(scales: Scales, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The three parts of the kernel between rows, and the smooth distance."""
    metric = torch.as_tensor(scales.metric).to(a)
    rough = torch.as_tensor(scales.rough).to(a)
    r = torch.cdist(a @ metric.T, b @ metric.T, compute_mode="donot_use_mm_for_euclid_dist")
    q = torch.cdist(a * rough, b * rough, p=1)
    s0, s1, s2 = scales.parts
    return s0 * (a @ b.T), s1 * (1 + r + r * r / 3) * torch.exp(-r), r, s2 * torch.exp(-q)


class _Slopes(NamedTuple):
    """Derivatives by the logarithms of s, w and tau, and by the entries of B."""

    parts: Array
    metric: Array
    rough: Array
    noise: Array


def _negative_likelihood(scales: Scales, sample: Sample) -> tuple[float, _Slopes]:
    """The objective of the module docstring without its pull, and its derivatives."""
    x, y, weights = sample
    linear, smooth, r, rough = _parts(scales, x, x)
    noise = (scales.noise + _JITTER) / weights
    covariance = linear + smooth + rough
    covariance.diagonal().add_(noise)
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if failed:
        d = len(scales.smooth)
        return 1e25, _Slopes(np.zeros(3), np.zeros((d, d)), np.zeros(d), np.zeros(1))
    alpha = torch.cholesky_solve(y, factor)
    n_responses = y.shape[1]
    value = 0.5 * (y * alpha).sum() + n_responses * factor.diagonal().log().sum()
    weight = (0.5 * (n_responses * torch.cholesky_inverse(factor) - alpha @ alpha.T)).contiguous()
    by_part = [weight.ravel().dot(part.ravel()) for part in (linear, smooth, rough)]
    by_noise = scales.noise * (weight.diagonal() / weights).sum()
    # d smooth / d B = -s_1 (1 + r)/3 e^-r B (x - x') (x - x')^T, summed as a quadratic form
    slope = weight * (scales.parts[1] * (1 + r) / 3 * torch.exp(-r))
    form = 2 * x.T @ (slope.sum(1)[:, None] * x - slope @ x)
    by_metric = -torch.as_tensor(scales.metric).to(x) @ form
    # d rough / d log w_j = -w_j |x_j - x'_j| rough
    steep, gaps = weight.mul_(rough).ravel(), torch.empty_like(rough)
    by_rough = [
        -scale * steep.dot(torch.sub(column[:, None], column, out=gaps).abs_().ravel())
        for column, scale in zip(x.T, scales.rough, strict=True)
    ]
    slopes = torch.stack(by_part), by_metric, torch.stack(by_rough), by_noise[None]
    return float(value), _Slopes(*(slope.cpu().numpy() for slope in slopes))
