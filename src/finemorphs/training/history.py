"""The record of a training, one row an iteration, and the callbacks that see it grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TypeAlias

import numpy as np

from finemorphs._typing import Array

__all__ = ["Callback", "Record", "as_table", "join"]

_COUNTED = ("round", "iteration", "evaluations", "seconds")


@dataclass(frozen=True)
class Record:
    """One iteration of training.

    Attributes
    ----------
    round : int
        Which round of the noise level, from 1.
    iteration : int
        Iterations since the start of training, all rounds counted.
    evaluations : int
        Evaluations of objective and gradient since the start of training.
    sigma : float
        The noise level of the round.
    objective, energy, affine, endpoint : float
        G and its three parts.
    rmse : float
        Root of the mean loss over the training rows, in the units of y: with the squared loss
        the root mean squared error, as with any loss where the responses are warped.
    seconds : float
        Time since the start of training.
    """

    round: int
    iteration: int
    evaluations: int
    sigma: float
    objective: float
    energy: float
    affine: float
    endpoint: float
    rmse: float
    seconds: float


Callback: TypeAlias = Callable[[Record], object]


def as_table(records: list[Record]) -> dict[str, Array]:
    """Columns by name, as a data frame takes them."""
    rows = [asdict(record) for record in records]
    return {f.name: np.array([row[f.name] for row in rows]) for f in fields(Record)}


def join(tables: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """Tables of trainings one after the other as one; each counts on from where the last ended."""
    joined = {}
    for name in tables[0]:
        columns = [table[name] for table in tables]
        joined[name] = np.concatenate(_count_on(columns) if name in _COUNTED else columns)
    return joined


def _count_on(columns: list[Array]) -> list[Array]:
    last = np.cumsum([0, *(column[-1] if len(column) else 0 for column in columns)])
    return [column + start for column, start in zip(columns, last[:-1], strict=True)]
