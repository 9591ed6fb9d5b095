"""What all cells of a run share, and the data they are of."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from finemorphs._typing import Array
from finemorphs.datasets import UCIDataset, load_uci

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """What all cells of a run share.

    Attributes
    ----------
    out : path
        Folder of the results.
    data_dir : path or None
        See :func:`finemorphs.datasets.load_uci`.
    seed : int
        Split k has the seed ``seed + k``.
    engine, device : str
        See :func:`~finemorphs.benchmarks.make_model`.
    options : dict
        Parameters to set on every model that has them.
    save_models : bool
        Keep each fitted FineMorphs model beside its result.
    """

    out: str | os.PathLike[str]
    data_dir: str | os.PathLike[str] | None = None
    seed: int = 0
    engine: str = "auto"
    device: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)
    save_models: bool = False

    def load(self, dataset: str, gap: bool) -> UCIDataset:
        """A dataset, read once a process."""
        return _load(dataset, gap, self._folder)

    def digests(self, dataset: str, gap: bool) -> tuple[str, tuple[str, ...]]:
        """Short hashes of the predictors and responses of a dataset, and of each split's rows."""
        return _digests(dataset, gap, self._folder)

    @property
    def _folder(self) -> str | None:
        return None if self.data_dir is None else os.fspath(self.data_dir)


@cache
def _load(dataset: str, gap: bool, data_dir: str | None) -> UCIDataset:
    return load_uci(dataset, gap=gap, data_dir=data_dir)


@cache
def _digests(dataset: str, gap: bool, data_dir: str | None) -> tuple[str, tuple[str, ...]]:
    data = _load(dataset, gap, data_dir)
    return _digest(data.X, data.y), tuple(_digest(*split) for split in data.splits)


def _digest(*arrays: Array) -> str:
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(str(array.shape).encode())
        whole.update(np.ascontiguousarray(array).data)
    return whole.hexdigest()[:16]
