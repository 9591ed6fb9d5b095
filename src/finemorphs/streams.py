"""Tables that are read in blocks of rows, as often as training asks: they need not fit in memory.

A stream has a number of rows that is known beforehand, and gives any range of them in their
order. ``ArrayStream`` reads arrays and memory maps, ``ParquetStream`` one Parquet file or
many (``finemorphs[parquet]``).
"""

from __future__ import annotations

import copy
import glob
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import numpy as np

from finemorphs._typing import Array
from finemorphs.exceptions import TableError
from finemorphs.tables.parquet import require_pyarrow

__all__ = ["ArrayStream", "ParquetStream", "Stream"]


class Stream(ABC):
    """Rows of predictors and responses, read in blocks.

    Attributes
    ----------
    n_rows : int
    n_features, n_responses : int
    feature_names : list of str or None
    one_response : bool
        Whether predictions have one axis, as y had.
    """

    n_rows: int
    n_features: int
    n_responses: int
    feature_names: list[str] | None = None
    one_response: bool

    @abstractmethod
    def read(self, begin: int, end: int, size: int) -> Iterator[tuple[Array, Array]]:
        """X (n, d_X) and y (n, d_Y) of the rows begin .. end - 1, ``size`` at a time."""

    def head(self, n_rows: int) -> Self:
        """The same stream with its first rows only."""
        stream = copy.copy(self)
        stream.n_rows = n_rows
        return stream

    def fingerprint(self) -> str:
        """Shape, names and SHA-256 of the first thousand rows: to know the stream by."""
        shape = f"{self.n_rows} x {self.n_features} + {self.n_responses}"
        digest = hashlib.sha256(repr(self.feature_names).encode())
        for x, y in self.read(0, min(1000, self.n_rows), 1000):
            digest.update(np.ascontiguousarray(x).data)
            digest.update(np.ascontiguousarray(y).data)
        return f"{shape}, sha256 {digest.hexdigest()[:16]}"

    def name_of(self, column: int) -> str:
        """What to call a column in a message, predictors before responses."""
        if column >= self.n_features:
            return f"column {column - self.n_features} of y"
        return f"column {column} of X"


class ArrayStream(Stream):
    """Arrays or memory maps of numbers; blocks are read from them when they are needed.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
    y : array of shape (n_rows,) or (n_rows, n_responses)
    """

    def __init__(self, X: Array, y: Array) -> None:
        if X.ndim != 2 or y.ndim not in (1, 2) or len(X) != len(y):
            raise TableError(
                f"X has shape {X.shape} and y shape {y.shape}, which do not go together; give "
                "(n, d) and (n,) or (n, k)."
            )
        self._x, self._y = X, y
        self.n_rows, self.n_features = X.shape
        self.one_response = y.ndim == 1
        self.n_responses = 1 if self.one_response else y.shape[1]

    def read(self, begin: int, end: int, size: int) -> Iterator[tuple[Array, Array]]:
        """Slices as float64."""
        for first in range(begin, end, size):
            rows = slice(first, min(first + size, end))
            x = np.asarray(self._x[rows], dtype=np.float64)
            y = np.asarray(self._y[rows], dtype=np.float64)
            yield x, y.reshape(len(y), -1)


class ParquetStream(Stream):
    """The rows of Parquet files, all columns numbers.

    Parameters
    ----------
    path : path-like, or sequence of them
        Files, and folders (every ``*.parquet`` in them) and patterns such as ``data/*.parquet``,
        whose files come in the order of their names.
    target : str or sequence of str
        The columns to predict.
    drop : sequence of str
        Columns to leave out.

    Examples
    --------
    >>> stream = ParquetStream("data/*.parquet", target="year")  # doctest: +SKIP
    >>> FineMorphsRegressor(subset_size=1000).fit(stream)  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        target: str | Sequence[str],
        drop: Sequence[str] = (),
    ) -> None:
        self._parquet = require_pyarrow("pyarrow.parquet")
        self.paths = _files([path] if isinstance(path, (str, os.PathLike)) else list(path))
        self.one_response = isinstance(target, str)
        self.target_names = [target] if isinstance(target, str) else list(target)
        schema, counts = self._schema_and_counts()
        _check_columns(self.paths[0], schema, self.target_names, drop)
        left_out = {*self.target_names, *drop}
        self.feature_names = [name for name in schema.names if name not in left_out]
        self.n_features, self.n_responses = len(self.feature_names), len(self.target_names)
        self._starts = [0, *accumulate(counts)]
        self.n_rows = self._starts[-1]
        if not self.n_rows or not self.n_features:
            raise TableError(
                f"{self.paths[0]} and the {len(self.paths) - 1} files behind it have {self.n_rows} "
                f"rows and {self.n_features} columns to predict from; give a table with some."
            )

    def read(self, begin: int, end: int, size: int) -> Iterator[tuple[Array, Array]]:
        """Batches of the files, cut and joined to blocks of the size asked for."""
        blocks = _Blocks(size)
        for path, first, behind in zip(
            self.paths, self._starts[:-1], self._starts[1:], strict=True
        ):
            if begin < behind and first < end:
                inside = max(begin - first, 0), min(end, behind) - first
                for table in self._read_file(path, *inside, size):
                    yield from map(self._split, blocks.add(table))
        yield from map(self._split, blocks.rest())

    def name_of(self, column: int) -> str:
        """Its name in the files."""
        assert self.feature_names is not None
        return f"column {[*self.feature_names, *self.target_names][column]!r}"

    def _split(self, table: Array) -> tuple[Array, Array]:
        return table[:, : self.n_features], table[:, self.n_features :]

    def _read_file(self, path: Path, begin: int, end: int, size: int) -> Iterator[Array]:
        """Some rows of one file, out of the row groups that hold them."""
        assert self.feature_names is not None
        names = [*self.feature_names, *self.target_names]
        with _reading(path), self._parquet.ParquetFile(path) as file:
            groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            starts = [0, *accumulate(groups)]
            needed = [i for i in range(len(groups)) if starts[i] < end and begin < starts[i + 1]]
            place = starts[needed[0]] if needed else 0
            for batch in file.iter_batches(size, row_groups=needed, columns=names):
                rows = slice(max(begin - place, 0), min(end - place, len(batch)))
                place += len(batch)
                if rows.start < rows.stop:
                    yield _numbers(batch.slice(rows.start, rows.stop - rows.start), names)

    def _schema_and_counts(self) -> tuple[Any, list[int]]:
        """The schema of the first file, to which the others agree, and the rows of each."""
        schema, counts = None, []
        for path in self.paths:
            with _reading(path), self._parquet.ParquetFile(path) as file:
                counts.append(file.metadata.num_rows)
                names = set(file.schema_arrow.names)
                if schema is None:
                    schema = file.schema_arrow
                elif names != set(schema.names):
                    other = sorted(names ^ set(schema.names))
                    raise TableError(
                        f"{path} and {self.paths[0]} do not have the same columns ({other[0]!r} "
                        "is in one of them only); give files of one table."
                    )
        return schema, counts


class _Blocks:
    """Arrays of rows, joined and cut to blocks of one size."""

    def __init__(self, size: int) -> None:
        self._size, self._parts, self._n = size, list[Array](), 0

    def add(self, table: Array) -> Iterator[Array]:
        """The blocks that are whole with these rows."""
        self._parts.append(table)
        self._n += len(table)
        if self._n >= self._size:
            table = np.concatenate(self._parts) if len(self._parts) > 1 else table
            whole = self._n - self._n % self._size
            self._parts, self._n = [table[whole:]], self._n - whole
            for first in range(0, whole, self._size):
                yield table[first : first + self._size]

    def rest(self) -> Iterator[Array]:
        """The last, shorter block."""
        if self._n:
            yield np.concatenate(self._parts)


class _reading:  # noqa: N801
    """Errors of pyarrow with the name of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if isinstance(error, (require_pyarrow("pyarrow").ArrowException, OSError)):
            raise TableError(
                f"{self._path} cannot be read as Parquet ({str(error).splitlines()[0]}); check "
                "that it was copied whole."
            ) from error


def _files(paths: list[str | os.PathLike[str]]) -> list[Path]:
    """Every file that paths, folders and patterns stand for."""
    found: list[Path] = []
    for path in paths:
        text = os.fspath(path)
        if os.path.isdir(text):
            files = sorted(Path(text).rglob("*.parquet"))
        elif glob.has_magic(text) and not os.path.exists(text):
            files = sorted(map(Path, glob.glob(text, recursive=True)))
        else:
            files = [Path(text)] if os.path.exists(text) else []
        if not files:
            raise TableError(f"there is no Parquet file at {text!r}; check the path.")
        found += files
    return found


def _check_columns(path: Path, schema: Any, targets: list[str], drop: Sequence[str]) -> None:
    types = require_pyarrow("pyarrow").types
    for name in [*targets, *drop]:
        if name not in schema.names:
            raise TableError(
                f"{path} has no column {name!r}; its columns are {', '.join(schema.names[:20])}."
            )
    for name in schema.names:
        kind = schema.field(name).type
        is_number = (
            types.is_integer(kind)
            or types.is_floating(kind)
            or types.is_boolean(kind)
            or types.is_decimal(kind)
        )
        if not is_number and name not in drop:
            raise TableError(
                f"column {name!r} of {path} holds {kind}, and a stream takes numbers only; leave "
                f"it out with drop=[{name!r}], or turn it into numbers first."
            )


def _numbers(batch: Any, names: list[str]) -> Array:
    """The columns (n, d) as float64, NaN where a cell is missing."""
    types = require_pyarrow("pyarrow").types
    table = np.empty((len(batch), len(names)))
    for j, name in enumerate(names):
        column = batch.column(name)
        if types.is_boolean(column.type):
            column = column.cast("int8")
        table[:, j] = column.cast("float64", safe=False).to_numpy(zero_copy_only=False)
    return table
