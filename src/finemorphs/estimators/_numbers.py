"""Numbers that no fit could do right by, refused with what to do."""

from __future__ import annotations

from typing import Any

import numpy as np

from finemorphs._typing import Array

__all__ = ["check_range", "check_spread", "refuse_masked"]

# Beyond, a square is infinite or 0.
_LARGEST, _SMALLEST = 1e150, 1e-150


def refuse_masked(**tables: Any) -> None:
    """Masked cells hold some number or other, which NumPy would hand over without a word."""
    for name, table in tables.items():
        if np.ma.is_masked(table):
            count = int(np.ma.getmaskarray(table).sum())
            raise ValueError(
                f"{name} is a masked array with {count} masked values; fill them, or leave their "
                "rows out."
            )


def check_range(name: str, table: Array) -> None:
    """Refuse numbers that cannot be squared."""
    largest = np.abs(table).max(initial=0.0)
    if largest > _LARGEST:
        raise ValueError(
            f"{name} reaches {largest:.3g}, and its square is beyond double precision; give it in "
            "other units."
        )


def check_spread(name: str, scale: Array) -> None:
    """Refuse standard deviations that cannot be squared."""
    if scale.min() < _SMALLEST:
        raise ValueError(
            f"{name} has a standard deviation of {scale.min():.3g}, and its square is 0 in double "
            "precision; give it in other units."
        )
