"""Training rows as tensors, whole or in blocks."""

from __future__ import annotations

from dataclasses import dataclass

from finemorphs._typing import Tensor

__all__ = ["Rows"]


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

    def blocks(self, size: int | None) -> list[Rows]:
        """The rows in their order, ``size`` in a block, the last one shorter; None: one block."""
        size = size or max(1, len(self))
        return [self[begin : begin + size] for begin in range(0, len(self), size)]
