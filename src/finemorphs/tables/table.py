"""Rows of a file in memory: named columns that are numbers, or text as it stood there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Protocol

import numpy as np

from finemorphs._typing import Array
from finemorphs.exceptions import TableError

__all__ = ["Cells", "Column", "Numbers", "Table", "as_number", "is_missing"]

_MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "?"})


class Column(Protocol):
    """One column; a cell may be missing."""

    def __len__(self) -> int:
        """Number of cells."""

    def numbers(self) -> Array | None:
        """The cells as float64, NaN where one is missing; None where one is no number."""

    def text(self) -> list[str]:
        """The cells as text; "" where one is missing in a file that can say so."""


class Cells:
    """Text as it stood in the file."""

    def __init__(self, cells: list[str]) -> None:
        self._cells = cells

    def __len__(self) -> int:
        return len(self._cells)

    def numbers(self) -> Array | None:
        """The cells as float64, or None."""
        try:
            values = np.array(list(map(float, self._cells)), dtype=np.float64)
        except ValueError:
            try:
                values = np.array([_number(cell) for cell in self._cells], dtype=np.float64)
            except ValueError:
                return None
        # float("1_000") is 1000, but such a cell is a code or a name.
        return None if "_" in "".join(self._cells) else values

    def text(self) -> list[str]:
        """The cells."""
        return self._cells


class Numbers:
    """Numbers, NaN where one is missing."""

    def __init__(self, values: Array) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def numbers(self) -> Array | None:
        """The numbers."""
        return self._values

    def text(self) -> list[str]:
        """The shortest text of each number."""
        return ["" if value != value else repr(value) for value in self._values.tolist()]


@dataclass(frozen=True)
class Table:
    """Consecutive rows of a file.

    Parameters
    ----------
    source : str
        Name of the file, for messages.
    columns : mapping of str to Column
        All of one length.
    first_row : int
        Number of the first row in the file, from 1, the header not counted.
    unnamed : tuple of str
        Names that were made up for columns without one.
    notices : tuple of str
        What the reader had to decide, as sentences.
    """

    source: str
    columns: Mapping[str, Column]
    first_row: int = 1
    unnamed: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __getitem__(self, name: str) -> Column:
        if name not in self.columns:
            raise TableError(self._absent([name]))
        return self.columns[name]

    def require(self, names: list[str]) -> None:
        """Refuse the table if it lacks one of these columns, naming all that it lacks."""
        absent = [name for name in names if name not in self.columns]
        if absent:
            raise TableError(self._absent(absent))

    def first_bad(self, name: str) -> tuple[int, str]:
        """Row number and text of the first cell of a column that is no number."""
        for row, cell in enumerate(self.columns[name].text(), self.first_row):
            if as_number(cell) is None:
                return row, cell
        raise AssertionError("every cell is a number")

    def _absent(self, names: list[str]) -> str:
        known = list(self.columns)
        what = ", ".join(map(repr, names[:10])) + (", .." if len(names) > 10 else "")
        small = {name.lower(): name for name in known}
        close = [get_close_matches(name.lower(), small, n=1) for name in names[:10]]
        hints = [small[match] for matches in close for match in matches]
        hint = f" Did you mean {', '.join(map(repr, hints))}?" if hints else ""
        shown = ", ".join(map(repr, known[:20])) + (", .." if len(known) > 20 else "")
        return (
            f"{self.source} has no column {what}.{hint} "
            f"{'Its columns are' if len(known) <= 20 else f'Its {len(known)} columns begin with'} "
            f"{shown}."
        )


def is_missing(cell: str) -> bool:
    """Whether a cell of text stands for a value that is not there."""
    return cell.strip().lower() in _MISSING


def as_number(cell: str) -> float | None:
    """The number in a cell, NaN for a missing one; None for other text."""
    try:
        return None if "_" in cell else _number(cell)
    except ValueError:
        return None


def _number(cell: str) -> float:
    return float("nan") if is_missing(cell) else float(cell)
