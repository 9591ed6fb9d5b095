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
from finemorphs.tables.columns import (
    NumberColumn,
    TextColumn,
    finite,
    median,
    missing_message,
    one_hot,
    value,
)
from finemorphs.tables.learn import Learner
from finemorphs.tables.table import Table

__all__ = ["Recipe"]


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
        learner = Learner(table, missing)
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
            replace(column, median=median(finite(table, column.name)[rows], column.median))
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
            one_hot(column, table.columns[column.name].text(), counts)
            if isinstance(column, TextColumn)
            else self._filled(column, table, counts)
            for column in self.columns
        ]
        return np.column_stack(parts)

    def responses(self, table: Table) -> tuple[Array, Array]:
        """The targets, numbers (n, d_Y) or classes (n,), and which rows have all of them."""
        table.require(list(self.targets))
        if self.classes:
            labels = np.array([value(cell) for cell in table[self.targets[0]].text()])
            return labels, labels != ""
        values = np.column_stack([finite(table, name) for name in self.targets])
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
        values = finite(table, column.name)
        missing = np.isnan(values)
        if missing.any():
            if self.missing == "error":
                raise TableError(missing_message(table, column.name, missing))
            values = np.where(missing, column.median, values)
            words = f"missing, taken as the median {column.median:g}"
            counts[column.name, words] += int(missing.sum())
        return values


def _restore(column: Any) -> NumberColumn | TextColumn:
    if "values" in column:
        return TextColumn(str(column["name"]), tuple(map(str, column["values"])))
    return NumberColumn(str(column["name"]), float(column["median"]))


def _listed(names: list[str]) -> str:
    """The first names, for a message."""
    return ", ".join(repr(name[:40]) for name in names[:8]) + (", .." if len(names) > 8 else "")
