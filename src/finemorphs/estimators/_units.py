"""The training error in the units of the responses, where a warp is between them and the loss."""

from __future__ import annotations

import torch

from finemorphs._typing import Tensor
from finemorphs.estimators._data import Scaling
from finemorphs.estimators._export import Program
from finemorphs.estimators._program import record_responses

__all__ = ["SquaredErrors"]

_ROWS_AT_ONCE = 8192  # a warp by quantiles takes a number for each of its knots


class SquaredErrors:
    """(r(f) - r(y))^2 of standardised outputs f and targets y, with r back to their own units.

    It runs on the device of training, as a part of the objective's passes.
    """

    def __init__(self, scaling: Scaling, device: torch.device) -> None:
        self._program = Program(record_responses(scaling)).to(device)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Values (n, d_Y) in double precision."""
        return (self._responses(outputs) - self._responses(targets)).square()

    def _responses(self, z: Tensor) -> Tensor:
        return torch.cat([self._program(part) for part in z.split(_ROWS_AT_ONCE)])
