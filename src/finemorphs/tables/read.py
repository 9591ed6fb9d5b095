"""Reading a table, whatever its format: by pieces, or whole with its numbers as numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from finemorphs._typing import Array
from finemorphs.tables.delimited import read_delimited
from finemorphs.tables.files import is_parquet
from finemorphs.tables.parquet import read_parquet
from finemorphs.tables.table import Cells, Column, Numbers, Table

__all__ = ["read_chunks", "read_table"]

_CELLS_AT_ONCE = 2**18


def read_chunks(
    path: str | os.PathLike[str], cells_at_once: int = _CELLS_AT_ONCE
) -> Iterator[Table]:
    """The rows of a file in pieces of about so many cells; memory does not grow with the file.

    Parameters
    ----------
    path : path-like
        Delimited text or Parquet, told apart by their first bytes; text may be compressed.
    cells_at_once : int, default=2**18

    Raises
    ------
    TableError
        If the file is not there, damaged, or not a table.
    """
    path = Path(path)
    read = read_parquet if is_parquet(path) else read_delimited
    yield from read(path, cells_at_once)


def read_table(path: str | os.PathLike[str], cells_at_once: int = _CELLS_AT_ONCE) -> Table:
    """A whole file; columns of numbers take eight bytes a cell.

    Parameters
    ----------
    path : path-like
    cells_at_once : int, default=2**18
        Cells held as text while numbers are made of them.
    """
    text: set[str] = set()
    while True:
        gathered = _Gathered(text)
        for chunk in read_chunks(path, cells_at_once):
            gathered.add(chunk)
        if not gathered.late:
            return gathered.table()
        text |= gathered.late  # read again, keeping the text of these from the first row


class _Gathered:
    """Pieces put together; ``late`` names columns whose first text came after numbers."""

    def __init__(self, text: set[str]) -> None:
        self._text = set(text)
        self._numbers: dict[str, list[Array]] = {}
        self._cells: dict[str, list[str]] = {}
        self._first: Table | None = None
        self.late: set[str] = set()

    def add(self, chunk: Table) -> None:
        for name, column in chunk.columns.items():
            values = None if name in self._text else column.numbers()
            if values is not None:
                self._numbers.setdefault(name, []).append(values)
                continue
            if name not in self._text:
                self._text.add(name)
                if self._first is not None:
                    self.late.add(name)
            self._cells.setdefault(name, []).extend(column.text())
        self._first = self._first or chunk

    def table(self) -> Table:
        first = self._first
        assert first is not None
        columns: dict[str, Column] = {
            name: Cells(self._cells[name])
            if name in self._text
            else Numbers(np.concatenate(self._numbers[name]))
            for name in first.columns
        }
        return Table(first.source, columns, 1, first.unnamed, first.notices)
