"""Regression in the span of kernels: closed form, its scales by the marginal likelihood.

    f(x) = sum_j k(x, x_j) c_j / max(1, V(x)),      c = (K + tau W^-1)^-1 y

    k(x, x') = s_0 <x, x'> + s_1 (1 + r + r^2/3) e^-r + s_2 e^-q
    r = |v * (x - x')|_2  (smooth),   q = |w * (x - x')|_1  (rough)

The smooth part, a Matern kernel of order 2 with a width for each feature, carries what a flow
carries too; the rough one follows steps, thresholds and rows that are nearly the same, as
forests of trees do. The logarithms of s, v, w and tau minimise

    1/2 tr(y^T C^-1 y) + d_Y/2 log det C + 0.005 |p - p_0|^2,      C = K + tau W^-1,

on a sample of the rows. W holds the weights of the rows; a row of weight 2 is the row twice.

Far from the rows the sum is a polynomial where the smooth part has small weights v. So it is taken
back to 0, the mean of standardised responses, where its own variance is above theirs:

    V(x) = k(x, x) - k(x, S) (k(S, S) + tau)^-1 k(S, x)

S are rows, the anchors, chosen one by one where V is largest, until it is small at all rows or
there are 500.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.optimize import minimize

from finemorphs._typing import Array, Tensor

__all__ = ["MOST_ANCHORS", "KernelRegression", "Scales", "likely_scales", "regress"]

MOST_ANCHORS = 500
_BOUND, _NOISE_BOUND = 9.0, 14.0  # of the logarithms
_PULL = 0.01
_JITTER = 1e-7  # of the noise
_KNOWN = 0.3  # so small is V at the rows
_ROWS_AT_ONCE = 2048
_MAX_EVALUATIONS = 60


@dataclass(frozen=True)
class Scales:
    """The scales of the kernel.

    ``parts`` are s_0, s_1, s_2; ``smooth`` and ``rough`` the weights v and w of the features;
    ``noise`` is tau.
    """

    parts: Array
    smooth: Array
    rough: Array
    noise: float

    @classmethod
    def start(cls, d: int) -> Scales:
        """Where the search begins: standardised features that matter alike."""
        return cls(
            np.array([0.1, 0.5, 0.5]), np.full(d, d**-0.5), np.full(d, 0.3 * d**-0.5), np.exp(-3.0)
        )

    @classmethod
    def of_logarithms(cls, p: Array) -> Scales:
        """From the vector that is searched."""
        values = np.exp(p)
        d = (len(p) - 4) // 2
        return cls(values[:3], values[3 : 3 + d], values[3 + d : -1], float(values[-1]))

    @property
    def logarithms(self) -> Array:
        """The vector that is searched."""
        values = np.concatenate([self.parts, self.smooth, self.rough, [self.noise]])
        return np.asarray(np.log(values))


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
        squares = torch.as_tensor(s.smooth**2).to(self.points)
        rates = torch.as_tensor(s.rough).to(self.points)
        results = []
        for rows in self._chunks(x):
            kernel, r, rough = self._kernel(rows)
            values = kernel @ self.coefficients
            doubt, white = self._doubt(rows, kernel)
            pull = white @ self.whitener
            slope = s.parts[1] * (1 + r) / 3 * torch.exp(-r)
            gradient = []
            for j in range(rows.shape[1]):
                delta = rows[:, j, None] - self.points[None, :, j]
                terms = s.parts[0] * self.points[None, :, j] - slope * squares[j] * delta
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


def likely_scales(
    x: Array,
    y: Array,
    weights: Array,
    rng: np.random.Generator,
    device: torch.device,
    max_rows: int = 1000,
) -> Scales:
    """The scales of largest likelihood for standardised rows x (n, d) and y (n, d_Y).

    Parameters
    ----------
    x, y, weights : ndarray
    rng : Generator
        Draws the sample of ``max_rows`` where there are more.
    device : torch.device
    max_rows : int, default=1000
        The cost grows with its cube.
    """
    if len(x) > max_rows:
        sample = np.sort(rng.choice(len(x), max_rows, replace=False))
        x, y, weights = x[sample], y[sample], weights[sample]
    rows, responses, w = (
        torch.as_tensor(a, dtype=torch.float64, device=device) for a in (x, y, weights)
    )
    start = Scales.start(x.shape[1]).logarithms
    result = minimize(
        _negative_likelihood,
        start,
        args=(rows, responses, w, start),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-_BOUND, _BOUND)] * (len(start) - 1) + [(-_NOISE_BOUND, 0.0)],
        options={"maxfun": _MAX_EVALUATIONS, "maxcor": 20},
    )
    return Scales.of_logarithms(result.x)


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
    smooth = torch.as_tensor(scales.smooth).to(a)
    rough = torch.as_tensor(scales.rough).to(a)
    r = torch.cdist(a * smooth, b * smooth, compute_mode="donot_use_mm_for_euclid_dist")
    q = torch.cdist(a * rough, b * rough, p=1)
    s0, s1, s2 = scales.parts
    return s0 * (a @ b.T), s1 * (1 + r + r * r / 3) * torch.exp(-r), r, s2 * torch.exp(-q)


def _negative_likelihood(
    p: Array, x: Tensor, y: Tensor, weights: Tensor, start: Array
) -> tuple[float, Array]:
    """The objective of the module docstring and its gradient in the logarithms p."""
    scales = Scales.of_logarithms(p)
    linear, smooth, r, rough = _parts(scales, x, x)
    noise = (scales.noise + _JITTER) / weights
    covariance = linear + smooth + rough
    covariance.diagonal().add_(noise)
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if failed:
        return 1e25, np.zeros_like(p)
    alpha = torch.cholesky_solve(y, factor)
    n_responses = y.shape[1]
    value = 0.5 * (y * alpha).sum() + n_responses * factor.diagonal().log().sum()
    weight = (0.5 * (n_responses * torch.cholesky_inverse(factor) - alpha @ alpha.T)).contiguous()
    by_part = [weight.ravel().dot(part.ravel()) for part in (linear, smooth, rough)]
    by_noise = scales.noise * (weight.diagonal() / weights).sum()
    # d smooth / d log v_j = -s_1 (1 + r)/3 e^-r v_j^2 (x_j - x'_j)^2, summed as a quadratic form
    slope = weight * (scales.parts[1] * (1 + r) / 3 * torch.exp(-r))
    forms = 2 * ((slope.sum(1)[:, None] * x.square()).sum(0) - (x * (slope @ x)).sum(0))
    by_smooth = -torch.as_tensor(scales.smooth**2).to(x) * forms
    # d rough / d log w_j = -w_j |x_j - x'_j| rough
    steep, gaps = weight.mul_(rough).ravel(), torch.empty_like(rough)
    by_rough = [
        -scale * steep.dot(torch.sub(column[:, None], column, out=gaps).abs_().ravel())
        for column, scale in zip(x.T, scales.rough, strict=True)
    ]
    gradient = torch.stack([*by_part, *by_smooth, *by_rough, by_noise]).cpu().numpy()
    pull = p - start
    return float(value) + 0.5 * _PULL * float(pull @ pull), gradient + _PULL * pull
