"""Type names shared by the whole package."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from torch import Tensor

__all__ = ["Array", "ArrayLike", "Item", "Tensor", "Vector"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
ArrayLike: TypeAlias = Any  # what scikit-learn's check_array takes: arrays, lists, data frames
Item = TypeVar("Item")


class Vector(Protocol):
    """A flat tensor, or anything of which parts can be taken as of one."""

    def __getitem__(self, place: slice, /) -> Tensor:
        """The entries at a place."""
