"""Columns that a model takes: of numbers and of text, and how their cells become numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from finemorphs._typing import Array
from finemorphs.exceptions import TableError
from finemorphs.tables.table import Table, is_missing

__all__ = ["NumberColumn", "TextColumn", "finite", "median", "missing_message", "one_hot", "value"]


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, and the median of its training rows."""

    name: str
    median: float

    @property
    def features(self) -> list[str]:
        """Names of what the model sees of it."""
        return [self.name]


@dataclass(frozen=True)
class TextColumn:
    """A column of text, and the values it had in the training rows."""

    name: str
    values: tuple[str, ...]

    @property
    def features(self) -> list[str]:
        """Names of what the model sees of it."""
        return [f"{self.name}={value}" for value in self.values]


def finite(table: Table, name: str) -> Array:
    """A column as numbers, NaN where one is missing; refused if one is text or infinite."""
    values = table.columns[name].numbers()
    if values is None:
        row, cell = table.first_bad(name)
        raise TableError(
            f"{table.source}: column {name!r} has {cell[:40]!r} in row {row}, where a number is "
            "needed; correct the cell, or leave it empty."
        )
    if np.isinf(values).any():
        row = table.first_row + int(np.flatnonzero(np.isinf(values))[0])
        raise TableError(
            f"{table.source}: column {name!r} has an infinite number in row {row}; correct it."
        )
    return values


def median(values: Array, otherwise: float = float("nan")) -> float:
    """The median of what is there, halved before it is added: huge values do not overflow."""
    values = values[~np.isnan(values)]
    if not len(values):
        return otherwise
    middle = np.sort(values)[[(len(values) - 1) // 2, len(values) // 2]]
    return float((middle / 2).sum()) if middle[0] != middle[1] else float(middle[0])


def value(cell: str) -> str:
    """A cell of text without the blanks around it; "" for a missing one."""
    return "" if is_missing(cell) else cell.strip()


def one_hot(column: TextColumn, cells: list[str], counts: Counter[tuple[str, str]]) -> Array:
    """A column of 0 and 1 for each value; rows of other values get 0 everywhere."""
    places = {value_: i for i, value_ in enumerate(column.values)}
    table = np.zeros((len(cells), len(places)))
    for row, cell in enumerate(cells):
        if (place := places.get(value(cell))) is not None:
            table[row, place] = 1.0
    if unknown := int((table.sum(axis=1) == 0).sum()):
        counts[column.name, "that training did not have, taken as none of its values"] += unknown
    return table


def missing_message(table: Table, name: str, missing: Array) -> str:
    """That a column has missing values, how many, and what to do."""
    row = table.first_row + int(np.flatnonzero(missing)[0])
    return (
        f"{table.source}: column {name!r} has {int(missing.sum())} missing values, the first in "
        f"row {row}; fill them, or use --missing median."
    )
