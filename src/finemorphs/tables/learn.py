"""Looking at the columns of a training table: what becomes of each, and what to tell of it."""

from __future__ import annotations

import numpy as np

from finemorphs.exceptions import TableError
from finemorphs.tables.columns import (
    NumberColumn,
    TextColumn,
    finite,
    median,
    missing_message,
    value,
)
from finemorphs.tables.table import Table, as_number, is_missing

__all__ = ["MISSING", "Learner"]

MISSING = ("median", "error")  # what is done about missing values
_MAX_VALUES = 20


class Learner:
    """Looks at one column after the other and notes what it decides."""

    def __init__(self, table: Table, missing: str) -> None:
        if missing not in MISSING:
            raise ValueError(f"missing={missing!r} is not known; choose 'median' or 'error'.")
        self.table, self.missing = table, missing
        self.notices: list[str] = []

    def learn(self, name: str) -> NumberColumn | TextColumn | None:
        """What a column becomes; None where it says nothing."""
        if self.table.columns[name].numbers() is None:
            return self._text(name)
        values = finite(self.table, name)
        missing = np.isnan(values)
        present = values[~missing]
        if not len(present) or present.min() == present.max():
            why = "one value only" if len(present) else "no values"
            self.notices.append(f"left out: {name!r} ({why})")
            return None
        middle = median(present)
        if missing.any():
            if self.missing == "error":
                raise TableError(missing_message(self.table, name, missing))
            self.notices.append(
                f"column {name!r}: {int(missing.sum())} missing, taken as the median {middle:g}"
            )
        return NumberColumn(name, middle)

    def _text(self, name: str) -> TextColumn | None:
        cells = self.table.columns[name].text()
        values = sorted(set(map(value, cells)))
        if len(values) > _MAX_VALUES:
            raise TableError(_text_message(self.table, name, cells, values))
        if len(values) == 1:
            self.notices.append(f"left out: {name!r} (one value only)")
            return None
        if "" in values and self.missing == "error":
            absent = np.array([is_missing(cell) for cell in cells])
            raise TableError(missing_message(self.table, name, absent))
        self.notices.append(f"column {name!r}: text, one column for each of {len(values)} values")
        return TextColumn(name, tuple(values))


def _text_message(table: Table, name: str, cells: list[str], values: list[str]) -> str:
    bad = [cell for cell in cells if as_number(cell) is None]
    if len(bad) * 2 < len(cells):
        row, cell = table.first_bad(name)
        return (
            f"{table.source}: column {name!r} is numbers but for {len(bad)} cells, the first "
            f"{cell[:40]!r} in row {row}; correct or empty them, or leave it out: --drop {name!r}."
        )
    return (
        f"{table.source}: column {name!r} is text with {len(values)} different values (such as "
        f"{values[-1][:40]!r}), and {_MAX_VALUES} can be used; leave it out: --drop {name!r}."
    )
