"""A modules: x -> M x + b with cost lambda |M - C|^2 (paper, Sections 2, 3 and 12).

C is 0 (ridge) or, for inner square modules when asked, the identity.

    dG/dM = 2 lambda (M - C) + P^T x        dG/db = sum_k P_k        P <- P M

with costates P = dG/d(output). The metric of a module at a point is the matrix

    B = 2 lambda I' + curvature sum_k w_k xi_k xi_k^T,    xi = (x, 1),   I' without the entry of b,

and the natural gradient is dG/d[M b] B^-1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from finemorphs._typing import Array, Tensor
from finemorphs.engines import Engine
from finemorphs.exceptions import NotInvertibleError
from finemorphs.modules._base import Backward, Forward

__all__ = ["Affine"]

# Relative to the mean of the diagonal: keeps B invertible with lambda = 0 and collinear columns.
_JITTER = 1e-10
_ROWS_AT_ONCE = {"cpu": 2**13, "cuda": 2**17}  # in double precision
_SINGULAR = 1e-7  # least singular value, relative to the largest, that counts as a dimension


@dataclass(frozen=True)
class Affine:
    """x -> M x + b from d_in to d_out dimensions.

    Parameters
    ----------
    name : str
    d_in, d_out : int
    ridge : float
        Weight lambda of the cost.
    towards_identity : bool
        Whether the cost and the start are centred at the identity (square modules only).
    """

    name: str
    d_in: int
    d_out: int
    ridge: float = 1.0
    towards_identity: bool = False

    @property
    def n_parameters(self) -> int:
        """The entries of [M b]."""
        return self.d_out * (self.d_in + 1)

    @property
    def n_sums(self) -> int:
        """The gradient of other rows."""
        return self.n_parameters

    def views(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The matrix M (d_out, d_in) and the offset b (d_out) in the flat parameters."""
        table = theta.view(self.d_out, self.d_in + 1)
        return table[:, :-1], table[:, -1]

    def start(self, rng: np.random.Generator) -> Array:
        """Entries of M from N(0, 1/d_in), or I + diag(w) with w from N(0, 0.01^2); b = 0."""
        table = np.zeros((self.d_out, self.d_in + 1))
        if self.towards_identity:
            table[:, :-1] = np.diag(1.0 + 0.01 * rng.standard_normal(self.d_in))
        else:
            table[:, :-1] = rng.standard_normal((self.d_out, self.d_in)) / np.sqrt(self.d_in)
        return table.ravel()

    def apply(self, theta: Tensor, x: Tensor) -> Tensor:
        """M x + b for every row."""
        matrix, offset = self.views(theta)
        return torch.addmm(offset, x, matrix.T)

    def forward(self, engine: Engine, theta: Tensor, x: Tensor) -> Forward:
        """Map the rows and price the matrix."""
        cost = self.ridge * self._excess(theta).square().sum(dtype=torch.float64)
        return Forward(self.apply(theta, x), cost, x)

    def backward(
        self,
        engine: Engine,
        theta: Tensor,
        cache: Tensor,
        costates: Tensor,
        natural: bool,
        into: tuple[Tensor, Tensor | None] | None = None,
        sums: Tensor | None = None,
    ) -> Backward:
        """Pull costates back through M; the metric is applied later, by :meth:`solve`."""
        flat = torch.empty_like(theta) if into is None else into[0]
        gradient = flat.view(self.d_out, self.d_in + 1)
        gradient[:, :-1] = costates.T @ cache + 2 * self.ridge * self._excess(theta)
        gradient[:, -1] = costates.sum(0)
        if sums is not None:
            flat += sums
        if into is not None and into[1] is not None:
            into[1].copy_(flat)
        return Backward(costates @ self.views(theta)[0], flat, None)

    def pull_back(self, theta: Tensor, x: Tensor, costates: Tensor, sums: Tensor) -> Tensor:
        """Pull the costates of other rows back through M; adds to the sums."""
        table = sums.view(self.d_out, self.d_in + 1)
        table[:, :-1] += costates.T @ x
        table[:, -1] += costates.sum(0)
        return costates @ self.views(theta)[0]

    def gram(self, x: Tensor, weights: Tensor | None) -> Tensor:
        """The matrix sum_k w_k xi_k xi_k^T, (d_in + 1, d_in + 1), in double precision."""
        matrix = x.new_zeros(self.d_in + 1, self.d_in + 1, dtype=torch.float64)
        at_once = _ROWS_AT_ONCE[x.device.type]
        for begin in range(0, len(x), at_once):
            rows = slice(begin, begin + at_once)
            xi = torch.nn.functional.pad(x[rows].double(), (0, 1), value=1.0)
            weighted = xi if weights is None else xi * weights[rows, None]
            matrix += weighted.T @ xi
        return matrix

    def metric(self, gram: Tensor, curvature: Tensor) -> Tensor:
        """The matrix B of the module docstring."""
        matrix = gram * curvature
        diagonal = matrix.diagonal()
        diagonal[:-1] += 2 * self.ridge
        diagonal += _JITTER * diagonal.mean()
        return matrix

    def solve(self, factor: Tensor, gradient: Tensor) -> Tensor:
        """The flat vector gradient B^-1, given the Cholesky factor of B."""
        table = gradient.view(self.d_out, self.d_in + 1).double()
        return torch.cholesky_solve(table.T, factor).T.to(gradient.dtype).reshape(-1)

    def inverse(
        self, theta: Tensor, z: Tensor, n_free: int | None = None, least_norm: bool = False
    ) -> Tensor:
        """The rows x (n, d_in) with M x + b = z, or nearest to it where M gains dimensions.

        ``n_free`` is the number of leading entries of x that are not known to be 0. Where M
        loses some of them, ``least_norm`` gives the shortest x of many.
        """
        matrix, offset = self.views(theta)
        free = matrix[:, : self.d_in if n_free is None else n_free]
        values = torch.linalg.svdvals(free)
        rank = int((values > _SINGULAR * values.max()).sum())
        if rank < free.shape[1] and not least_norm:
            raise NotInvertibleError(
                f"{self.name} cannot be inverted: of the {free.shape[1]} directions of its inputs "
                f"its matrix keeps {rank} (singular values up to {_SINGULAR:g} of the largest are "
                "0); ask for the shortest of the preimages with preimage='least-norm'."
            )
        x = (z - offset) @ torch.linalg.pinv(free, rtol=_SINGULAR).T
        return torch.nn.functional.pad(x, (0, self.d_in - free.shape[1]))

    def _excess(self, theta: Tensor) -> Tensor:
        """M - C."""
        matrix = self.views(theta)[0]
        if not self.towards_identity:
            return matrix
        return matrix - torch.eye(self.d_in, dtype=matrix.dtype, device=matrix.device)
