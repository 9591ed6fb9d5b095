"""What is done to the columns of a table before a model sees them, learnt once, kept with it.

number    as it is; a missing one becomes the median of the training rows
text      a column of 0 and 1 for each of its values, 20 at most ("colour=red")

Columns that say nothing (one value only, or none) are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from finemorphs._typing import Array
from finemorphs.exceptions import ModelFileError, TableError
from finemorphs.tables.table import Table, as_number, is_missing

__all__ = ["MISSING", "NumberColumn", "Recipe", "TextColumn"]

MISSING = ("median", "error")  # what is done about missing values
_MAX_VALUES = 20


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


@dataclass(frozen=True)
class Recipe:
    """From the columns of a table to the numbers that a model takes.

    Parameters
    ----------
    targets : tuple of str
        The columns that are predicted.
    columns : tuple of NumberColumn or TextColumn
        The columns that predict, in the model's order.
    missing : {"median", "error"}
    classes : bool
        Whether the one target is text, whose values are classes.
    """

    targets: tuple[str, ...]
    columns: tuple[NumberColumn | TextColumn, ...]
    missing: str = "median"
    classes: bool = False

    @classmethod
    def learn(
        cls,
        table: Table,
        targets: Sequence[str],
        drop: Sequence[str] = (),
        missing: str = "median",
    ) -> tuple[Recipe, list[str]]:
        """The recipe for a training table, and sentences about what was done.

        Parameters
        ----------
        table : Table
        targets : sequence of str
        drop : sequence of str
            Columns to leave out.
        missing : {"median", "error"}
            Whether missing numbers become medians or are refused.
        """
        table.require([*targets, *drop])
        learner = _Learner(table, missing)
        skipped = {*targets, *drop, *table.unnamed}
        learnt = [learner.learn(name) for name in table.columns if name not in skipped]
        columns = tuple(column for column in learnt if column is not None)
        if not columns:
            raise TableError(
                f"{table.source} has no column left to predict from; drop fewer columns."
            )
        unnamed = [name for name in table.unnamed if name not in (*targets, *drop)]
        if unnamed:
            learner.notices.append(f"left out: {_listed(unnamed)} (no name in the header)")
        if drop:
            learner.notices.append(f"left out: {_listed(list(drop))} (as asked)")
        classes = len(targets) == 1 and table[targets[0]].numbers() is None
        return cls(tuple(targets), columns, missing, classes), learner.notices

    def with_medians(self, table: Table, rows: Array) -> Recipe:
        """The same, with the medians of some rows only, by their places from 0."""
        columns = tuple(
            replace(column, median=_median(_finite(table, column.name)[rows], column.median))
            if isinstance(column, NumberColumn)
            else column
            for column in self.columns
        )
        return replace(self, columns=columns)

    @property
    def features(self) -> list[str]:
        """Names of the numbers that a model sees, in their order."""
        return [feature for column in self.columns for feature in column.features]

    def apply(self, table: Table, remarks: Counter[tuple[str, str]] | None = None) -> Array:
        """The numbers (n, d_X) that a model takes, from the columns of a table in any order.

        Parameters
        ----------
        table : Table
        remarks : Counter, optional
            Gets the number of cells, by column and words, that were missing or not known.
        """
        table.require([column.name for column in self.columns])
        counts: Counter[tuple[str, str]] = Counter() if remarks is None else remarks
        parts = [
            _one_hot(column, table.columns[column.name].text(), counts)
            if isinstance(column, TextColumn)
            else self._filled(column, table, counts)
            for column in self.columns
        ]
        return np.column_stack(parts)

    def responses(self, table: Table) -> tuple[Array, Array]:
        """The targets, numbers (n, d_Y) or classes (n,), and which rows have all of them."""
        table.require(list(self.targets))
        if self.classes:
            labels = np.array([_value(cell) for cell in table[self.targets[0]].text()])
            return labels, labels != ""
        values = np.column_stack([_finite(table, name) for name in self.targets])
        return values, ~np.isnan(values).any(axis=1)

    def to_json(self) -> dict[str, Any]:
        """What JSON can hold of the recipe."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Recipe:
        """The recipe behind what :meth:`to_json` gave."""
        try:
            columns = tuple(_restore(column) for column in data["columns"])
            targets, missing = tuple(map(str, data["targets"])), str(data["missing"])
            classes = bool(data["classes"])
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(
                f"the model file's description of its columns cannot be read ({error!r}); "
                "fit the model again."
            ) from error
        return cls(targets, columns, missing, classes)

    def _filled(
        self, column: NumberColumn, table: Table, counts: Counter[tuple[str, str]]
    ) -> Array:
        values = _finite(table, column.name)
        missing = np.isnan(values)
        if missing.any():
            if self.missing == "error":
                raise TableError(_missing_message(table, column.name, missing))
            values = np.where(missing, column.median, values)
            words = f"missing, taken as the median {column.median:g}"
            counts[column.name, words] += int(missing.sum())
        return values


class _Learner:
    """Looks at one column after the other and notes what it decides."""

    def __init__(self, table: Table, missing: str) -> None:
        if missing not in MISSING:
            raise ValueError(f"missing={missing!r} is not known; choose 'median' or 'error'.")
        self.table, self.missing = table, missing
        self.notices: list[str] = []

    def learn(self, name: str) -> NumberColumn | TextColumn | None:
        if self.table.columns[name].numbers() is None:
            return self._text(name)
        values = _finite(self.table, name)
        missing = np.isnan(values)
        present = values[~missing]
        if not len(present) or present.min() == present.max():
            why = "one value only" if len(present) else "no values"
            self.notices.append(f"left out: {name!r} ({why})")
            return None
        median = _median(present)
        if missing.any():
            if self.missing == "error":
                raise TableError(_missing_message(self.table, name, missing))
            self.notices.append(
                f"column {name!r}: {int(missing.sum())} missing, taken as the median {median:g}"
            )
        return NumberColumn(name, median)

    def _text(self, name: str) -> TextColumn | None:
        cells = self.table.columns[name].text()
        values = sorted(set(map(_value, cells)))
        if len(values) > _MAX_VALUES:
            raise TableError(_text_message(self.table, name, cells, values))
        if len(values) == 1:
            self.notices.append(f"left out: {name!r} (one value only)")
            return None
        if "" in values and self.missing == "error":
            absent = np.array([is_missing(cell) for cell in cells])
            raise TableError(_missing_message(self.table, name, absent))
        self.notices.append(f"column {name!r}: text, one column for each of {len(values)} values")
        return TextColumn(name, tuple(values))


def _finite(table: Table, name: str) -> Array:
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


def _median(values: Array, otherwise: float = float("nan")) -> float:
    """The median of what is there, halved before it is added: huge values do not overflow."""
    values = values[~np.isnan(values)]
    if not len(values):
        return otherwise
    middle = np.sort(values)[[(len(values) - 1) // 2, len(values) // 2]]
    return float((middle / 2).sum()) if middle[0] != middle[1] else float(middle[0])


def _value(cell: str) -> str:
    return "" if is_missing(cell) else cell.strip()


def _one_hot(column: TextColumn, cells: list[str], counts: Counter[tuple[str, str]]) -> Array:
    places = {value: i for i, value in enumerate(column.values)}
    table = np.zeros((len(cells), len(places)))
    for row, cell in enumerate(cells):
        if (place := places.get(_value(cell))) is not None:
            table[row, place] = 1.0
    if unknown := int((table.sum(axis=1) == 0).sum()):
        counts[column.name, "that training did not have, taken as none of its values"] += unknown
    return table


def _restore(column: Any) -> NumberColumn | TextColumn:
    if "values" in column:
        return TextColumn(str(column["name"]), tuple(map(str, column["values"])))
    return NumberColumn(str(column["name"]), float(column["median"]))


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name[:40]) for name in names[:8]) + (", .." if len(names) > 8 else "")


def _missing_message(table: Table, name: str, missing: Array) -> str:
    row = table.first_row + int(np.flatnonzero(missing)[0])
    return (
        f"{table.source}: column {name!r} has {int(missing.sum())} missing values, the first in "
        f"row {row}; fill them, or use --missing median."
    )


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
