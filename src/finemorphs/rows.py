"""Training rows as tensors, whole or in blocks."""

from __future__ import annotations

from dataclasses import dataclass

from finemorphs._typing import Tensor

__all__ = ["Rows", "share"]


@dataclass(frozen=True)
class Rows:
    """Inputs (n, d_0), targets (n, d_Y) and, unless all are 1, weights (n,)."""

    inputs: Tensor
    targets: Tensor
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, place: slice) -> Rows:
        weights = None if self.weights is None else self.weights[place]
        return Rows(self.inputs[place], self.targets[place], weights)

    def blocks(self, size: int | None = None) -> list[Rows]:
        """The rows in their order, ``size`` in a block, the last one shorter; None: one block."""
        size = size or max(1, len(self))
        return [self[begin : begin + size] for begin in range(0, len(self), size)]


def share(n_blocks: int, rank: int, size: int) -> tuple[int, int]:
    """First block of a rank out of ``size``, and the one behind its last."""
    return n_blocks * rank // size, n_blocks * (rank + 1) // size
