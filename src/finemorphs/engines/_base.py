"""What an engine is: the sums over pairs of points that a flow and its adjoint are made of.

With points x (n of them), control points y (n_S), K_kl = kappa(|x_k - y_l| / h) and
G_kl = g(|x_k - y_l| / h) / h^2 (see :mod:`finemorphs.kernels`):

    product       (K a)_k    =  sum_l K_kl a_l
    adjoint       force_k    =  sum_l G_kl (x_k - y_l) (p_k . a_l)
                  reaction_l = -sum_k G_kl (x_k - y_l) (p_k . a_l)
                  pullback_l =  sum_k K_kl q_k
    self_adjoint  force_k    =  sum_l G_kl (x_k - x_l) (p_k . a_l + a_k . q_l)
                  pullback_k =  sum_l K_kl q_l                     with q = p + 2 a

``self_adjoint`` gives the derivatives of sum_k (p_k + a_k) . (K a)_k by x and a, where the
points are the control points: it is ``adjoint`` of p + a, p + 2 a and a, force and reaction
added. Both take every pair once: distance, exponential and polynomial are shared by the
sums. No engine but the reference holds an n x n_S array.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, TypeAlias

import torch

from finemorphs._typing import Item, Tensor
from finemorphs.kernels import Kernel

__all__ = ["Engine", "Passes"]

Passes: TypeAlias = Callable[..., tuple[Tensor, ...]]


class Engine(ABC):
    """Sums over pairs of points; the one place where the cost of a fit lies.

    All arguments are contiguous (rows, d) tensors of one dtype on one device.
    """

    name: ClassVar[str]

    @abstractmethod
    def product(self, kernel: Kernel, x: Tensor, y: Tensor, a: Tensor) -> Tensor:
        """K(x, y) a, of shape (n, d), for x (n, d), y and a (n_S, d)."""

    @abstractmethod
    def adjoint(
        self, kernel: Kernel, x: Tensor, y: Tensor, p: Tensor, q: Tensor, a: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Force (n, d), reaction (n_S, d) and pullback (n_S, d), for x, p, q (n, d)."""

    @abstractmethod
    def self_adjoint(
        self, kernel: Kernel, x: Tensor, p: Tensor, a: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Force and pullback, both (n, d), for x, p, a (n, d)."""

    def self_product(self, kernel: Kernel, x: Tensor, a: Tensor) -> Tensor:
        """K(x, x) a; an engine that gains from the pair's symmetry overrides it."""
        return self.product(kernel, x, x, a)

    def needs_compilation(
        self, kernel: Kernel, dim: int, dtype: torch.dtype, *, subset: bool
    ) -> bool:
        """Whether training has to compile first, with all rows or a subset as control points."""
        return False

    def session(self) -> AbstractContextManager[None]:
        """A context for a whole fit: threads are arranged, errors of the device explained."""
        return nullcontext()

    def side_by_side(self) -> int:
        """How many calls of :meth:`for_each` are under way at a time."""
        return 1

    def for_each(self, work: Callable[[Item], None], items: Iterable[Item]) -> None:
        """Call work(item) for each."""
        for item in items:
            work(item)

    def recorded(self, function: Passes) -> Passes:
        """The same function of tensors, in a form that is fast to call again and again."""
        return function
