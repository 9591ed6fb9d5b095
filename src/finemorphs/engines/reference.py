"""The specification of the pair sums: dense PyTorch, any dtype, differentiable by autograd."""

from __future__ import annotations

import torch

from finemorphs._typing import Tensor
from finemorphs.engines._base import Engine
from finemorphs.kernels import Kernel

__all__ = ["ReferenceEngine"]


class ReferenceEngine(Engine):
    """The sums of :mod:`finemorphs.engines._base` with n x n_S arrays, as they are written."""

    name = "reference"

    def product(self, kernel: Kernel, x: Tensor, y: Tensor, a: Tensor) -> Tensor:
        return kernel.value(_scaled_distances(kernel, x, y)) @ a

    def adjoint(
        self, kernel: Kernel, x: Tensor, y: Tensor, p: Tensor, q: Tensor, a: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        u = _scaled_distances(kernel, x, y)
        weights = kernel.slope(u) * (p @ a.T) / kernel.width**2
        force = weights.sum(1, keepdim=True) * x - weights @ y
        reaction = weights.sum(0)[:, None] * y - weights.T @ x
        return force, reaction, kernel.value(u).T @ q

    def self_adjoint(
        self, kernel: Kernel, x: Tensor, p: Tensor, a: Tensor
    ) -> tuple[Tensor, Tensor]:
        force, reaction, pullback = self.adjoint(kernel, x, x, p + a, p + 2 * a, a)
        return force + reaction, pullback


def _scaled_distances(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    """u = |x_k - y_l| / h from differences, with derivative 0 where two points coincide."""
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist") / kernel.width
