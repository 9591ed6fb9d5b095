"""What all candidates have in common: the data, the folds, the device, the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from finemorphs._typing import Array
from finemorphs.engines import choose_engine
from finemorphs.estimators._data import in_order, merge
from finemorphs.estimators._members import Member
from finemorphs.estimators._memory import budget
from finemorphs.estimators._parameters import generator
from finemorphs.estimators._path import Clock, Folds, mean_error

if TYPE_CHECKING:
    from finemorphs.estimators.regressor import FineMorphsRegressor

__all__ = ["Candidate", "Task"]

_FOLDS = Folds(small=5, up_to=5000, large=2, held_out=0.1)
_INPUT_WARPS = ("none", "quantile")
_RESPONSE_WARPS = ("none", "power")
# A flow is trained on so many rows at most, so that a large table takes minutes, not days.
_FLOW_ROWS = {"cpu": 20_000, "cuda": 500_000}
# Rows of a kernel regression, by a Cholesky factor and by iterations, and bytes a pair of them.
_FACTOR_ROWS, _FACTOR_BYTES = {"cpu": 12_000, "cuda": 200_000}, 24
_ITERATION_ROWS, _ITERATION_BYTES = {"cpu": 50_000, "cuda": 200_000}, 5
_LEAST_KERNEL_ROWS = 1000
_MOST, _ALIKE = 0.5, 0.95  # shares: of the rows, of the X that several rows share
_LEAST_ROWS = 10  # of a table whose equal rows are merged


@dataclass(frozen=True)
class Candidate:
    """A kind of model, what it predicts out of fold (NaN where no fold holds a row out).

    ``members`` makes its members, so that what has no weight need not be fitted to all rows.
    ``caution`` is what its errors are multiplied by when it is weighed, for numbers of it that
    were chosen with the rows held out.
    """

    name: str
    out_of_fold: Array
    members: Callable[[], tuple[Member, ...]]
    caution: float = 1.0


class KernelRows(NamedTuple):
    """So many rows, at most, has a regression by a Cholesky factor, and any one."""

    factor: int
    most: int


class Task:
    """The data of a fit and its folds, with the devices at hand."""

    def __init__(self, estimator: FineMorphsRegressor, X: Array, y: Array, weights: Array) -> None:
        self.estimator = estimator
        self.rng = generator(estimator.random_state)
        self.X, self.y, self.weights = _rows(X, y, weights)
        self.engine, self.device = choose_engine(estimator.engine, estimator.device)
        self.splits = _FOLDS.split(len(self.X), self.rng)
        self.input_warps = _kinds(estimator.input_warp, _INPUT_WARPS)
        self.response_warps = _kinds(estimator.response_warp, _RESPONSE_WARPS)
        self.clock = Clock(estimator.max_time)
        self.interrupted = False
        self.rejected: list[Candidate] = []  # tried, but not weighed

    @cached_property
    def flow_splits(self) -> list[tuple[Array, Array]]:
        """The folds, with as many training rows as a flow may have; the same for every flow."""
        most = _FLOW_ROWS[self.device.type]
        return [(self.sample(train, most), test) for train, test in self.splits]

    @cached_property
    def kernel_rows(self) -> KernelRows:
        """Of kernel regressions: what time and memory allow."""
        memory, device = budget(self.estimator.max_memory, self.device), self.device.type

        def within(most: int, n_bytes: int) -> int:
            return min(most, max(_LEAST_KERNEL_ROWS, int((memory / n_bytes) ** 0.5)))

        factor = within(_FACTOR_ROWS[device], _FACTOR_BYTES)
        return KernelRows(factor, max(factor, within(_ITERATION_ROWS[device], _ITERATION_BYTES)))

    @property
    def is_large(self) -> bool:
        """Whether there are more rows than a Cholesky factor is taken of."""
        return len(self.X) > self.kernel_rows.factor

    def interrupt(self) -> None:
        """End as soon as there is a model."""
        self.interrupted, self.clock.max_time = True, 0.0

    def sample(self, rows: Array, most: int) -> Array:
        """The rows, or so many of them drawn at random, in their order."""
        if len(rows) <= most:
            return rows
        return np.sort(self.rng.choice(rows, most, replace=False))

    def error(self, prediction: Array, rows: Array | slice = slice(None)) -> float:
        """Of predictions out of fold, over those of the rows that have one."""
        prediction, y, weights = prediction[rows], self.y[rows], self.weights[rows]
        known = ~np.isnan(prediction).any(1)
        return mean_error(prediction[known], y[known], weights[known])

    def rmse(self, prediction: Array) -> list[float]:
        """Root mean squared error of each response in its units, over the same rows."""
        known = ~np.isnan(prediction).any(1)
        errors = (prediction[known] - self.y[known]) ** 2
        return [float(e) for e in np.sqrt(np.average(errors, axis=0, weights=self.weights[known]))]

    def n_folds(self, prediction: Array) -> int:
        """Folds whose rows have a prediction."""
        return sum(not np.isnan(prediction[test]).any() for _, test in self.splits)


def _rows(X: Array, y: Array, weights: Array) -> tuple[Array, Array, Array]:
    """The rows in order. Copies are merged, so that no fold holds out what others have seen."""
    rows = in_order(X, y, weights)
    merged = merge(*rows)
    return rows if len(merged[0]) < _LEAST_ROWS or _are_draws(*rows[:2]) else merged


def _are_draws(X: Array, y: Array) -> bool:
    """Whether equal rows are draws that came out alike, not copies of one.

    They are where most of the rows, which are in order, share their X, and some of them not y.
    """
    new = np.concatenate([[True], (X[1:] != X[:-1]).any(1)])
    new_y = new | np.concatenate([[True], (y[1:] != y[:-1]).any(1)])
    place = np.cumsum(new) - 1
    size, n_responses = np.bincount(place), np.bincount(place[new_y])
    shared = size > 1
    if size[shared].sum() <= _MOST * len(X):
        return False
    return bool((n_responses[shared] == 1).mean() < _ALIKE)


def _kinds(given: str, tried: tuple[str, ...]) -> tuple[str, ...]:
    """The warps to try: the one that was given, if one was."""
    return tried if given in ("none", "auto") else (given,)
