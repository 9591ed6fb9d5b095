"""Kernel regression in closed form, with doubt where its rows say nothing.

    f(x) = sum_j k(x, x_j) c_j / max(1, V(x)),      c = (K + tau W^-1)^-1 y

Far from the rows the sum is a polynomial where the smooth part has small weights v. So it is taken
back to 0, the mean of standardised responses, where its own variance is above theirs:

    V(x) = k(x, x) - k(x, S) (k(S, S) + tau)^-1 k(S, x)

S are rows, the anchors, chosen one by one where V is largest, until it is small at all rows or
there are 500.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from finemorphs._typing import Array, Tensor
from finemorphs.kernel_regression._iterations import iterate
from finemorphs.kernel_regression._scales import (
    JITTER,
    Scales,
    kernel_matrix,
    kernel_parts,
    own_kernel,
    radial_slope,
    rows_at_once,
)

__all__ = ["MOST_ANCHORS", "KernelRegression", "regress", "regress_many"]

MOST_ANCHORS = 500
_KNOWN = 0.3  # so small is V at the rows


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
            kernel = kernel_parts(self.scales, rows, self.points).total()
            results.append(kernel @ self.coefficients / self._doubt(rows, kernel)[0])
        return torch.cat(results).cpu().numpy()

    def jacobian(self, x: Array) -> Array:
        """The derivative of f at the rows of x, (m, d_Y, d).

        Those of the rough and the sharp part are 0 at their kinks.
        """
        s = self.scales
        squares = torch.as_tensor(s.metric.T @ s.metric).to(self.points)  # r^2 is a form of it
        pulled = self.points @ squares
        rates = torch.as_tensor(s.rough).to(self.points)
        results = []
        for rows in self._chunks(x):
            parts = kernel_parts(s, rows, self.points)
            kernel, rough, slope = parts.total(), parts.rough, radial_slope(s, parts)
            values = kernel @ self.coefficients
            doubt, white = self._doubt(rows, kernel)
            pull = white @ self.whitener
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
        kernel = kernel_parts(self.scales, anchors, anchors).total()
        kernel.diagonal().add_(self.scales.noise + JITTER)
        one = torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device)
        factor = torch.linalg.cholesky(kernel)
        inverse: Tensor = torch.linalg.solve_triangular(factor, one, upper=False)
        return inverse

    def _doubt(self, rows: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
        """max(1, V), (m, 1), and R k(S, x) of each row, (m, |S|)."""
        white = kernel[:, self.anchors] @ self.whitener.T
        if not len(self.anchors):
            return kernel.new_ones(len(rows), 1), white
        variance = own_kernel(self.scales, rows) - white.square().sum(1)
        return variance.clamp(min=1)[:, None], white

    def _chunks(self, x: Array) -> list[Tensor]:
        rows = torch.as_tensor(x).to(self.points)
        return list(rows.split(rows_at_once(self.points))) if len(rows) else [rows]


def regress(
    scales: Scales, x: Array, y: Array, weights: Array, device: torch.device
) -> KernelRegression:
    """f for rows x (n, d), responses y (n, d_Y) and weights, by a Cholesky factor."""
    rows, responses, noise = _on_device(scales, x, y, weights, device)
    covariance = kernel_matrix(scales, rows)
    anchors = _anchors(covariance, scales.noise + JITTER)
    covariance.diagonal().add_(noise)
    coefficients = torch.cholesky_solve(responses, torch.linalg.cholesky(covariance))
    return KernelRegression(scales, rows, _row_by_row(coefficients), anchors)


def regress_many(
    scales: Scales, x: Array, y: Array, weights: Array, device: torch.device
) -> KernelRegression | None:
    """The same by iterations, for many rows; None where they do not get there."""
    rows, responses, noise = _on_device(scales, x, y, weights, device)
    kernel = kernel_matrix(scales, rows.float())
    coefficients = iterate(scales, rows, kernel, noise, responses)
    if coefficients is None:
        return None
    return KernelRegression(scales, rows, coefficients, _anchors(kernel, scales.noise + JITTER))


def _on_device(
    scales: Scales, x: Array, y: Array, weights: Array, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, responses and the noise of each row, in double precision."""
    rows, responses, w = (
        _row_by_row(torch.as_tensor(a, dtype=torch.float64, device=device)) for a in (x, y, weights)
    )
    return rows, responses, (scales.noise + JITTER) / w


def _row_by_row(tensor: Tensor) -> Tensor:
    """In the layout that a file gives back, for products round by it; strides of one row too."""
    return tensor.clone(memory_format=torch.contiguous_format)


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
