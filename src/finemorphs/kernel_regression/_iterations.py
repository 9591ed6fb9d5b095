"""(K + tau W^-1) c = y for more rows than a Cholesky factor can be taken of.

Conjugate gradients with K in single precision, and, as a preconditioner, what it is near to:

    P = k(x, M) k(M, M)^-1 k(M, x) + B

M are rows spread over the others: the first term is what they tell about them. B is the rest of
K + tau W^-1 within blocks of rows near each other, and 0 between blocks: rows that are nearly the
same, which slow the iterations down most, lie in the same block. With the factors B = F F^T and
k(M, M) = L L^T, and C = L^-1 k(M, x),

    P^-1 = B^-1 - B^-1 C^T (I + C B^-1 C^T)^-1 C B^-1 .
"""

from __future__ import annotations

import torch

from finemorphs._typing import Tensor
from finemorphs.kernel_regression._scales import Scales

__all__ = ["iterate"]

_SPREAD = 1000  # rows in M
_BLOCK = 2000  # rows, at most
_JITTER = 1e-4  # of k(M, M)
_FLOOR = 2e-3  # added to the noise in B: above what single precision takes from K
_TOLERANCE = 1e-3  # of the residual, relative to y
_MOST = 200  # iterations


def iterate(
    scales: Scales, rows: Tensor, kernel: Tensor, noise: Tensor, y: Tensor
) -> Tensor | None:
    """c for the kernel (n, n) in single precision; noise is tau / w, (n,).

    None where the iterations do not get there: for single precision the matrix is singular.
    """
    try:
        precondition = _Preconditioner(kernel, noise, _blocks(_places(scales, rows)))
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        return None
    solution, residual = torch.zeros_like(y), y.clone()
    direction = correction = precondition(residual)
    slope = (residual * correction).sum(0)
    to_reach, tiny = _TOLERANCE * y.norm(dim=0), torch.finfo(y.dtype).tiny
    for _ in range(_MOST):
        if (residual.norm(dim=0) <= to_reach).all():
            return solution
        image = (kernel @ direction.to(kernel.dtype)).to(y.dtype) + noise[:, None] * direction
        curvature = (direction * image).sum(0)
        if not (curvature >= 0).all():
            return None
        step = slope / curvature.clamp(min=tiny)  # 0 of a response that is 0
        solution += step * direction
        residual -= step * image
        correction = precondition(residual)
        last, slope = slope, (residual * correction).sum(0)
        direction = correction + slope / last.clamp(min=tiny) * direction
    return None


class _Preconditioner:
    """P^-1."""

    def __init__(self, kernel: Tensor, noise: Tensor, blocks: list[Tensor]) -> None:
        order = torch.cat(blocks)
        spread = order[:: -(-len(order) // _SPREAD)]
        among = kernel[spread][:, spread].double()
        among.diagonal().add_(_JITTER)
        factor = torch.linalg.cholesky(among)
        told = torch.linalg.solve_triangular(factor, kernel[spread].double(), upper=False)
        inner = torch.eye(len(spread), dtype=told.dtype, device=told.device)
        self.blocks, self.told, self.factors = blocks, told, []
        for block in blocks:
            part = told[:, block]
            rest = kernel[block][:, block].double() - part.T @ part
            rest.diagonal().add_(noise[block] + _FLOOR)
            self.factors.append(torch.linalg.cholesky(rest))
            white = torch.linalg.solve_triangular(self.factors[-1], part.T, upper=False)
            inner += white.T @ white
        self.inner = torch.linalg.cholesky(inner)

    def __call__(self, v: Tensor) -> Tensor:
        v = self._within_blocks(v)
        among = torch.cholesky_solve(self.told @ v, self.inner)
        return v - self._within_blocks(self.told.T @ among)

    def _within_blocks(self, v: Tensor) -> Tensor:
        """B^-1 v."""
        result = torch.empty_like(v)
        for block, factor in zip(self.blocks, self.factors, strict=True):
            result[block] = torch.cholesky_solve(v[block], factor)
        return result


def _places(scales: Scales, rows: Tensor) -> Tensor:
    """Where the rows are for the parts of the kernel that fall off fast."""
    rough = torch.as_tensor(scales.rough).to(rows)
    sharp = torch.as_tensor(scales.sharp[1] * scales.metric.T).to(rows)
    return torch.cat([rows * rough, rows @ sharp], dim=1)


def _blocks(places: Tensor) -> list[Tensor]:
    """The rows halved where they are spread out most, until the parts are small."""
    parts = [torch.arange(len(places), device=places.device)]
    while len(parts[0]) > _BLOCK:
        halves = []
        for part in parts:
            column = int(places[part].var(0).argmax())
            ordered = part[places[part, column].argsort()]
            halves += [*ordered.tensor_split(2)]
        parts = halves
    return parts
