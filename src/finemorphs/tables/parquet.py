"""Parquet by pieces, through pyarrow (``finemorphs[parquet]``), imported when used."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from finemorphs._typing import Array
from finemorphs.exceptions import TableError
from finemorphs.tables.table import Cells, Column, Table

__all__ = ["ArrowColumn", "read_parquet", "require_pyarrow"]


class ArrowColumn:
    """A column of a Parquet file that is not text."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def numbers(self) -> Array | None:
        """Integers, floats, decimals and booleans as float64, NaN for null; else None."""
        types = require_pyarrow("pyarrow").types
        kind = self.array.type
        if types.is_boolean(kind):
            array = self.array.cast("int8")
        elif types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
            array = self.array
        elif types.is_null(kind):
            return np.full(len(self.array), np.nan)
        else:
            return None
        values: Array = array.cast("float64", safe=False).to_numpy(zero_copy_only=False)
        return values

    def text(self) -> list[str]:
        """The cells as Python writes them; "" for null."""
        return ["" if value is None else str(value) for value in self.array.to_pylist()]


def require_pyarrow(module: str) -> Any:
    """A module of pyarrow, or an error that names the extra."""
    try:
        return import_module(module)
    except ImportError as error:
        raise TableError(
            "Parquet files need pyarrow, which is not installed; "
            "pip install 'finemorphs[parquet]', or use CSV."
        ) from error


def read_parquet(path: Path, cells_at_once: int) -> Iterator[Table]:
    """Tables of consecutive rows, about so many cells each."""
    pyarrow, parquet = require_pyarrow("pyarrow"), require_pyarrow("pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice or not names or not file.metadata.num_rows:
                what = f"two columns called {twice[0]!r}" if twice else "no rows or no columns"
                raise TableError(f"{path} has {what}; give a table with named columns and rows.")
            first_row = 1
            for batch in file.iter_batches(max(1, cells_at_once // len(names))):
                columns = {n: _column(pyarrow, batch.column(i)) for i, n in enumerate(names)}
                yield Table(str(path), columns, first_row)
                first_row += len(batch)
    except (pyarrow.ArrowException, OSError) as error:
        raise TableError(
            f"{path} cannot be read as Parquet ({str(error).splitlines()[0]}); check that it was "
            "copied whole."
        ) from error


def _column(pyarrow: Any, array: Any) -> Column:
    if pyarrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pyarrow.types.is_string(array.type) or pyarrow.types.is_large_string(array.type):
        return Cells(["" if cell is None else cell for cell in array.to_pylist()])
    return ArrowColumn(array)
