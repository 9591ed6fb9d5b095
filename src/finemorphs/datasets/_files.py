"""Reading the text files of the public layout; what is wrong is said with file and line."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from finemorphs._typing import Array

__all__ = ["AbsentFileError", "DamagedFileError", "read_columns", "read_splits", "read_table"]


class DamagedFileError(Exception):
    """A file is not what it should be; the loader adds where to get it."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(problem)
        self.path = path


class AbsentFileError(DamagedFileError):
    """A file of a folder is missing."""


def read_table(path: Path, delimiter: str | None = None) -> Array:
    """The numbers of a text file, one row a line; blank lines and spaces at the end are fine."""
    if not path.is_file():
        raise AbsentFileError(path, f"{path} is missing")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an empty file gets an error below
            table = np.loadtxt(path, delimiter=delimiter, comments=None, ndmin=2)
    except ValueError as error:
        raise _explain(path, delimiter) from error
    if not table.size:
        raise DamagedFileError(path, f"{path} holds no numbers")
    bad = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(bad):
        raise _at_row(path, bad[0], "a value is not finite")
    return table


def read_columns(folder: Path, n_columns: int) -> tuple[Array, int]:
    """Columns of the predictors and of the response: index_features.txt, index_target.txt."""
    paths = [folder / f"index_{part}.txt" for part in ("features", "target")]
    features, targets = (_read_indices(path, n_columns, "columns") for path in paths)
    if len(targets) > 1:
        raise DamagedFileError(
            paths[1], f"{paths[1]} names {len(targets)} columns, not the one of the response"
        )
    if targets[0] in features:
        text = f"column {targets[0]} is in {paths[0].name} as well as here"
        raise _at_row(paths[1], 0, text)
    return features, int(targets[0])


def read_splits(folder: Path, n_rows: int, n_public: int) -> tuple[tuple[Array, Array], ...]:
    """Training and test rows of ``index_train_0.txt``, .. , as many splits as there are.

    No row may be in both parts of a split, and none outside of the table. How many rows the
    public table has is said where that may be why.
    """
    numbers = {
        int(path.stem.rpartition("_")[2])
        for part in ("train", "test")
        for path in folder.glob(f"index_{part}_*.txt")
        if path.stem.rpartition("_")[2].isdecimal()
    }
    if not numbers:
        path = folder / "index_train_0.txt"
        raise AbsentFileError(path, f"{path} is missing, and there is no other split")
    hint = "" if n_rows == n_public else f"; the public table has {n_public}: look at data.txt"
    return tuple(_read_split(folder, k, n_rows, hint) for k in range(max(numbers) + 1))


def _read_split(folder: Path, k: int, n_rows: int, hint: str) -> tuple[Array, Array]:
    paths = [folder / f"index_{part}_{k}.txt" for part in ("train", "test")]
    train, test = (_read_indices(path, n_rows, "rows", hint) for path in paths)
    twice = np.flatnonzero(np.isin(test, train))
    if len(twice):
        raise _at_row(
            paths[1], twice[0], f"row {test[twice[0]]} is in {paths[0].name} as well as here"
        )
    return train, test


def _read_indices(path: Path, size: int, what: str, hint: str = "") -> Array:
    """Whole numbers from 0 to size - 1, on one line or many, none twice."""
    table = read_table(path)
    values = table.ravel()
    bad = np.flatnonzero((values != np.floor(values)) | (values < 0) | (values >= size))
    if len(bad):
        text = f"index {values[bad[0]]:g} is not one of the {size} {what} (0 to {size - 1}){hint}"
        raise _at_row(path, bad[0] // table.shape[1], text)
    _, first = np.unique(values, return_index=True)
    if len(first) < len(values):
        again = np.setdiff1d(np.arange(len(values)), first)[0]
        raise _at_row(path, again // table.shape[1], f"index {values[again]:g} comes a second time")
    indices: Array = values.astype(np.intp)
    return indices


def _at_row(path: Path, row: int, problem: str) -> DamagedFileError:
    number = [number for number, _ in _lines(path)][row]
    return _at_line(path, number, problem)


def _at_line(path: Path, number: int, problem: str) -> DamagedFileError:
    return DamagedFileError(path, f"{path}, line {number}: {problem}")


def _explain(path: Path, delimiter: str | None) -> DamagedFileError:
    """The first line that cannot be part of a table, for the message."""
    width = None
    for number, line in _lines(path):
        values = line.split(delimiter)
        for value in values:
            try:
                float(value)
            except ValueError:
                return _at_line(path, number, f"{value.strip()[:40]!r} is not a number")
        if width is not None and len(values) != width:
            text = f"{len(values)} values, but {width} in the lines before"
            return _at_line(path, number, text)
        width = len(values)
    return DamagedFileError(path, f"{path} cannot be read as a table of numbers")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line
