"""Type names shared by the whole package."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

__all__ = ["Array", "ArrayLike", "Tensor"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
ArrayLike: TypeAlias = Any  # what scikit-learn's check_array takes: arrays, lists, data frames
