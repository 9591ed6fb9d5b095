"""The UCI tables of the paper with their standard and gap splits.

A data folder has the public layout::

    concrete/data/data.txt              the table, one row a line
    concrete/data/index_features.txt    its columns of predictors
    concrete/data/index_target.txt      its column of the response
    concrete/data/index_train_0.txt     rows of the first split, and so on
    concrete/data/index_test_0.txt
    concrete_gap/data/...               the same with gap splits
    airfoil/airfoil_self_noise.dat
    year/YearPredictionMSD.txt
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from finemorphs._typing import Array
from finemorphs.datasets._download import download as fetch
from finemorphs.datasets._files import (
    AbsentFileError,
    DamagedFileError,
    read_columns,
    read_splits,
    read_table,
)
from finemorphs.datasets._sources import SOURCES, Source, find_source
from finemorphs.exceptions import DatasetError, MissingDatasetError

__all__ = ["UCI_NAMES", "UCIDataset", "load_uci"]

UCI_NAMES = tuple(SOURCES)

_YEAR_TRAIN = 463_715  # the last 51,630 rows are the test set, so that no artist is in both


@dataclass(frozen=True, repr=False)
class UCIDataset:
    """A table and its splits into training and test rows.

    Attributes
    ----------
    name : str
        "concrete", "wine", ...
    gap : bool
        Whether the splits are gap splits.
    X : ndarray of shape (n_rows, n_features)
    y : ndarray of shape (n_rows,)
    features, target : ndarray of int, int
        The columns of the file that X and y are.
    splits : tuple of (ndarray of int, ndarray of int)
        Training and test rows of each split.
    shape : tuple of (int, int)
        Rows and columns of the file; a column may be neither a predictor nor the response.
    """

    name: str
    gap: bool
    X: Array
    y: Array
    features: Array
    target: int
    splits: tuple[tuple[Array, Array], ...]
    shape: tuple[int, int]

    def __repr__(self) -> str:
        rows, columns = self.X.shape
        kind = "gap splits" if self.gap else "splits"
        return f"<UCIDataset {self.name}: {rows} rows, {columns} features, {self.n_splits} {kind}>"

    @property
    def n_splits(self) -> int:
        """How many splits are at hand."""
        return len(self.splits)

    def split(self, k: int) -> tuple[Array, Array, Array, Array]:
        """X_train, y_train, X_test, y_test of split k, counted from 0."""
        if not 0 <= k < self.n_splits:
            raise DatasetError(
                f"{self.name!r} has no split {k}; give one from 0 to {self.n_splits - 1}."
            )
        train, test = self.splits[k]
        return self.X[train], self.y[train], self.X[test], self.y[test]


def load_uci(
    name: str,
    *,
    gap: bool = False,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = True,
) -> UCIDataset:
    """A UCI dataset of the paper, from a data folder or the network.

    Parameters
    ----------
    name : str
        One of ``UCI_NAMES``: "concrete", "energy", "kin8nm", "naval", "power", "protein",
        "wine", "yacht", "year", "airfoil". Longer names are understood ("Wine Red",
        "power-plant").
    gap : bool, default=False
        The gap splits, one for each predictor, whose test rows are the middle third along it,
        in place of the standard ones.
    data_dir : path, optional
        Folder in the public layout (see the module), "~" being the home of the user. Without
        it the folder that the environment variable ``FINEMORPHS_DATA`` names, else a cache
        folder of the user.
    download : bool, default=True
        Get a dataset whose table is not there, with pooch (``finemorphs[datasets]``). Where
        the table is, its folder is taken as it is.

    Returns
    -------
    UCIDataset

    Raises
    ------
    MissingDatasetError
        If the table is missing and cannot be had, or a file beside it is missing.
    DatasetError
        If the name is unknown, or a file is damaged; the error above is one of these.

    Examples
    --------
    >>> from finemorphs.datasets import load_uci
    >>> data = load_uci("concrete")  # doctest: +SKIP
    >>> X_train, y_train, X_test, y_test = data.split(0)  # doctest: +SKIP
    """
    source = find_source(name)
    if gap and not source.n_gap_splits:
        raise DatasetError(f"{source.name!r} has no gap splits; take the standard ones.")
    root = data_dir or os.environ.get("FINEMORPHS_DATA") or _cache_folder()
    path = _find_table(source, gap, Path(os.path.expanduser(root)))
    if not path.is_file():
        if not download:
            raise MissingDatasetError(
                f"{path} is missing, and download is False; allow it, or name a folder that "
                "holds the file with data_dir or FINEMORPHS_DATA."
            )
        fetch(source, gap, path.parent)
    try:
        if source.archive:
            return _read_archive(source, path)
        return _read_folder(source, gap, path.parent)
    except AbsentFileError as absence:
        address = source.address(absence.path.name, gap)
        raise MissingDatasetError(f"{absence}; get it from {address}.") from absence
    except DamagedFileError as damage:
        address = source.address(damage.path.name, gap)
        raise DatasetError(f"{damage}; get the file again from {address}.") from damage


def _cache_folder() -> Path:
    base = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "finemorphs"


def _find_table(source: Source, gap: bool, root: Path) -> Path:
    """Where the table is, or where it would be put."""
    file = Path(source.file) if source.archive else Path("data", "data.txt")
    paths = [root / (folder + "_gap" * gap) / file for folder in source.folders]
    return next((path for path in paths if path.is_file()), paths[0])


def _read_folder(source: Source, gap: bool, folder: Path) -> UCIDataset:
    table = read_table(folder / "data.txt")
    n_rows, n_columns = table.shape
    features, target = read_columns(folder, n_columns)
    splits = read_splits(folder, n_rows, source.n_rows)
    X, y = table[:, features], table[:, target]
    return UCIDataset(source.name, gap, X, y, features, target, splits, (n_rows, n_columns))


def _read_archive(source: Source, path: Path) -> UCIDataset:
    table = read_table(path, "," if source.name == "year" else None)
    if table.shape != (source.n_rows, source.n_columns):
        raise DamagedFileError(
            path,
            f"{path} has {table.shape[0]} rows of {table.shape[1]}, not {source.n_rows} of "
            f"{source.n_columns}",
        )
    target = 0 if source.name == "year" else source.n_columns - 1
    features = np.setdiff1d(np.arange(source.n_columns), [target])
    splits = _year_splits(source) if source.name == "year" else _airfoil_splits(source)
    X, y = table[:, features], table[:, target]
    return UCIDataset(source.name, False, X, y, features, target, splits, table.shape)


def _year_splits(source: Source) -> tuple[tuple[Array, Array], ...]:
    rows = np.arange(source.n_rows)
    return ((rows[:_YEAR_TRAIN], rows[_YEAR_TRAIN:]),)


def _airfoil_splits(source: Source) -> tuple[tuple[Array, Array], ...]:
    rows = np.arange(source.n_rows)
    return tuple(
        tuple(train_test_split(rows, train_size=0.9, shuffle=True, random_state=run + 1))
        for run in range(source.n_splits)
    )
