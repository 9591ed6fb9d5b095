"""Fits along a path of noise levels, and how they are judged on rows held out.

The noise level and how far a fit is converged are one question: at a level that is too low a
converged fit follows the noise. So models are trained along a falling path of levels, each from
where the last one ended and to a coarse tolerance.

    sigma = multiple * sigma_0,   sigma_0 estimated as for "auto", multiples from the path
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.model_selection import KFold, ShuffleSplit

from finemorphs._typing import Array
from finemorphs.engines import choose_engine
from finemorphs.estimators._data import prepare
from finemorphs.training import estimate_noise

if TYPE_CHECKING:
    from finemorphs.estimators.regressor import FineMorphsRegressor

__all__ = ["Clock", "Folds", "Level", "judged_walk", "mean_error", "stop_reason", "walk"]

_TOLERANCE, _ITERATIONS = 1e-4, 100  # of a level
_WORSE = 1.1  # times the least mean squared error of a path: the levels behind are not tried

_ALONE = {"checkpoint": None, "resume": False, "verbose": 0, "n_members": 1, "preset": None}


class Clock:
    """How much of ``max_time`` is left; it begins when it is made."""

    def __init__(self, max_time: float | None) -> None:
        self.max_time = max_time
        self._began = time.perf_counter()

    def seconds(self) -> float:
        """Since the beginning."""
        return time.perf_counter() - self._began

    def left(self) -> float | None:
        """Seconds that a fit may take, None without a limit."""
        return None if self.max_time is None else max(self.max_time - self.seconds(), 1e-3)


class Folds(NamedTuple):
    """How rows are held out: ``small`` folds of up to ``up_to`` rows, else a share, drawn anew."""

    small: int
    up_to: int
    large: int
    held_out: float

    def split(self, n: int, rng: np.random.Generator) -> list[tuple[Array, Array]]:
        """Training and held-out rows of each fold of n rows."""
        seed = int(rng.integers(2**31))
        splitter = (
            KFold(min(self.small, n), shuffle=True, random_state=seed)
            if n <= self.up_to
            else ShuffleSplit(self.large, test_size=self.held_out, random_state=seed)
        )
        return list(splitter.split(np.empty(n)))


def mean_error(prediction: Array, y: Array, weights: Array) -> float:
    """Mean squared error, each response by its variance."""
    share = (weights / weights.sum())[:, None]
    variance = (share * (y - (share * y).sum(0)) ** 2).sum(0)
    errors = (share * (prediction - y) ** 2).sum(0)
    return float((errors / np.where(variance > 0, variance, 1.0)).sum())


def stop_reason(fitted: FineMorphsRegressor) -> str:
    """Why the fit was ended from outside: by the user, a callback, the clock; "" if it was not."""
    outside = ("Interrupted", "A callback", "The time limit", "The memory limit")
    return fitted.status_ if fitted.status_.startswith(outside) else ""


def walk(
    estimator: FineMorphsRegressor, X: Array, y: Array, weights: Array, path: Sequence[float]
) -> Iterator[FineMorphsRegressor]:
    """Fitted twins of an estimator at each level of a path, each from where the last one ended."""
    clock = Clock(estimator.max_time)
    rng = np.random.default_rng(0)
    rows = prepare(X, y, weights, rng=rng, warps=estimator._warps())
    level = estimate_noise(rows.x, rows.y, rows.weights, rows.y_scaling.scale, rng)
    last = None
    for multiple in path:
        twin = estimator._twin(
            **_ALONE,
            noise=multiple * level.sigma,
            warm_start=True,
            tol=max(estimator.tol, _TOLERANCE),
            max_iter=min(estimator.max_iter, _ITERATIONS),
            max_time=clock.left(),
        )
        if last is not None:
            twin.model_ = last.model_
        twin._fit(X, y, weights)
        yield twin
        last = twin


class Level(NamedTuple):
    """A fit of a path, what it predicts for the rows held out, and their mean squared error."""

    fit: FineMorphsRegressor
    prediction: Array
    error: float


def judged_walk(
    estimator: FineMorphsRegressor,
    data: tuple[Array, Array, Array],
    fold: tuple[Array, Array],
    path: Sequence[float],
    *,
    whole: bool,
) -> list[Level]:
    """The levels of a path in a fold, to where it leads away from the best one unless ``whole``."""
    engine, device = choose_engine(estimator.engine, estimator.device)
    (X, y, weights), (train, test) = data, fold
    levels: list[Level] = []
    for fit in walk(estimator, X[train], y[train], weights[train], path):
        prediction = fit.model_.predict(X[test], engine, device)
        levels.append(Level(fit, prediction, mean_error(prediction, y[test], weights[test])))
        away = levels[-1].error > _WORSE * min(level.error for level in levels)
        if stop_reason(fit) or (away and not whole):
            break
    return levels
