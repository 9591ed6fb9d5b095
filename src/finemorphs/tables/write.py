"""Writing tables by pieces: delimited text or Parquet, by the name of the file.

A text cell that a spreadsheet would take for a formula gets an apostrophe in front.
"""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import lzma
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, cast

from finemorphs._typing import Array
from finemorphs.exceptions import TableError
from finemorphs.tables.files import replacing
from finemorphs.tables.parquet import ArrowColumn, require_pyarrow
from finemorphs.tables.table import Table, as_number

__all__ = ["Writer", "harmless"]

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class _Sink(Protocol):
    def write(self, columns: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


class Writer:
    """A table under way to a file; a context manager. A failed block leaves no file.

    Parameters
    ----------
    path : path-like
        Its ending chooses the format: ``.csv``, ``.tsv`` (with ``.gz``, ``.bz2``, ``.xz``
        behind it, if wanted) or ``.parquet``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._make = _format(self._path)
        self._sink: _Sink | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Writer:
        self._aside = self._stack.enter_context(replacing(self._path))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sink is not None:
            self._sink.close()
        self._stack.__exit__(kind, error, trace)

    def write(self, table: Table, added: Mapping[str, Array]) -> None:
        """Append the rows of a table, with more columns behind its own."""
        taken = [name for name in added if name in table.columns]
        if taken:
            raise TableError(
                f"{table.source} already has a column {taken[0]!r}, which would be written; "
                "rename or delete it."
            )
        if self._sink is None:
            self._sink = self._make(self._aside)
        self._sink.write({**table.columns, **added})


def harmless(cell: str) -> str:
    """A cell of text as a spreadsheet shows it: never a formula."""
    if cell.lstrip(" ").startswith(_FORMULA) and as_number(cell) is None:
        return "'" + cell
    return cell


def _format(path: Path) -> Any:
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if suffixes and suffixes[-1] == ".parquet":
        require_pyarrow("pyarrow")
        return _Parquet
    opener = _OPENERS[suffixes.pop()] if suffixes and suffixes[-1] in _OPENERS else open
    delimiter = _DELIMITERS.get(suffixes[-1] if suffixes else "")
    if delimiter is None:
        raise TableError(
            f"the ending of {path.name!r} names no format that can be written; use .csv, .tsv, "
            ".csv.gz or .parquet."
        )
    return lambda aside: _Delimited(aside, opener, delimiter)


class _Delimited:
    def __init__(self, path: Path, opener: Any, delimiter: str) -> None:
        self._file = cast(IO[str], opener(path, "wt", encoding="utf-8", newline=""))
        self._delimiter = delimiter
        self._begun = False

    def write(self, columns: Mapping[str, Any]) -> None:
        header = [] if self._begun else [tuple(map(harmless, columns))]
        rows = header + list(zip(*map(_cells, columns.values()), strict=True))
        self._begun = True
        # The writer leaves a carriage return without quotes, and readers end the line there.
        odd = any("\r" in cell for row in rows for cell in row)
        csv.writer(
            self._file,
            delimiter=self._delimiter,
            lineterminator="\n",
            quoting=csv.QUOTE_ALL if odd else csv.QUOTE_MINIMAL,
        ).writerows(rows)

    def close(self) -> None:
        self._file.close()


def _cells(column: Any) -> list[str]:
    """Text of a column read from a file, or of an array of numbers or labels."""
    if hasattr(column, "text"):
        return [harmless(cell) for cell in column.text()]
    return [harmless(v) if isinstance(v, str) else repr(v) for v in column.tolist()]


class _Parquet:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def write(self, columns: Mapping[str, Any]) -> None:
        pyarrow, parquet = require_pyarrow("pyarrow"), require_pyarrow("pyarrow.parquet")
        batch = pyarrow.table({name: _arrow(column) for name, column in columns.items()})
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._path, batch.schema)
        self._writer.write_table(batch)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _arrow(column: Any) -> Any:
    if isinstance(column, ArrowColumn):
        return column.array
    return column.text() if hasattr(column, "text") else column
