"""Numbers that no fit could do right by, refused with what to do."""

from __future__ import annotations

from typing import Any

import numpy as np

from finemorphs._typing import Array

__all__ = ["check_range", "check_spread", "refuse_masked", "refuse_words"]

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


def refuse_words(table: Any, error: Exception) -> None:
    """Name the columns of a data frame that hold no numbers, if that is what the error is of."""
    words = [str(name) for name in getattr(table, "columns", ()) if _holds_words(table[name])]
    if words:
        names = ", ".join(map(repr, words))
        raise ValueError(
            f"X has columns that hold no numbers: {names} ({error}); make numbers of them, for "
            "instance with scikit-learn's OneHotEncoder in a ColumnTransformer."
        ) from error


def _holds_words(column: Any) -> bool:
    """Whether a column cannot be read as numbers; holes are another matter."""
    try:
        np.asarray(column.dropna() if hasattr(column, "dropna") else column, dtype=float)
    except (TypeError, ValueError):
        return True
    return bool(np.asarray(column).dtype.kind in "Mm")


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
