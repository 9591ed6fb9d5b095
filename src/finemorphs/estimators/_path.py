"""Fits along a path of noise levels, and how they are judged on rows held out.

The noise level and how far a fit is converged are one question: at a level that is too low a
converged fit follows the noise. So models are trained along a falling path of levels, each from
where the last one ended and to a coarse tolerance. Where rows held out judge the fits, a level
may be gone on with, twice as long each time, as long as their error falls.

    sigma = multiple * sigma_0,   sigma_0 estimated as for "auto", multiples from the path
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.model_selection import KFold, ShuffleSplit

from finemorphs._typing import Array
from finemorphs.engines import choose_engine
from finemorphs.estimators._data import prepare
from finemorphs.training import INTERRUPTED, estimate_noise

if TYPE_CHECKING:
    from finemorphs.estimators._model import Model
    from finemorphs.estimators.regressor import FineMorphsRegressor

__all__ = [
    "Clock",
    "EndedError",
    "Folds",
    "Point",
    "Step",
    "Trial",
    "judged_walk",
    "mean_error",
    "search",
    "stop_reason",
    "walk",
]

_TOLERANCE, _ITERATIONS = 3e-4, 100  # of a level
_PAYS = 0.99  # times the mean squared error of the step before: the level is gone on with
_WORSE = 1.1  # times the least one of a path: the levels behind are not tried
_BEHIND = 1.2  # times the error of a rival: a path is left
_ENOUGH = 5000  # rows held out of a large table

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

    def is_over(self) -> bool:
        """Whether no time is left."""
        return self.max_time is not None and self.seconds() >= self.max_time


class Folds(NamedTuple):
    """How rows are held out: ``small`` folds of up to ``up_to`` rows, else a share, drawn anew.

    The share is of ``_ENOUGH`` rows at most: so many tell errors apart, and others can train.
    """

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
            else ShuffleSplit(
                self.large, test_size=min(math.ceil(self.held_out * n), _ENOUGH), random_state=seed
            )
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


class EndedError(Exception):
    """A search was ended from outside; ``fit`` is the best one that it had reached."""

    def __init__(self, fit: FineMorphsRegressor, reason: str) -> None:
        super().__init__(reason)
        self.fit = fit
        fit.status_, fit.converged_ = reason, False


class Step(NamedTuple):
    """A part of a path: so many iterations at a multiple of the estimated noise level.

    ``ridge`` takes the place of the estimator's, if there is one.
    """

    multiple: float
    iterations: int
    ridge: float | None = None


def walk(
    estimator: FineMorphsRegressor,
    X: Array,
    y: Array,
    weights: Array,
    path: Iterable[Step],
    start: Model | None = None,
) -> Iterator[tuple[Step, FineMorphsRegressor]]:
    """Each step of a path with a fitted twin of the estimator, from where the last one ended.

    The first begins at ``start``, or afresh.
    """
    clock = Clock(estimator.max_time)
    rng = np.random.default_rng(0)
    rows = prepare(X, y, weights, rng=rng, warps=estimator._warps())
    level = estimate_noise(rows.x, rows.y, rows.weights, rows.y_scaling.scale, rng)
    last = start
    for step in path:
        twin = estimator._twin(
            **_ALONE,
            ridge=estimator.ridge if step.ridge is None else step.ridge,
            noise=step.multiple * level.sigma,
            warm_start=True,
            tol=max(estimator.tol, _TOLERANCE),
            max_iter=step.iterations,
            max_time=clock.left(),
        )
        if last is not None:
            twin.model_ = last
        twin._fit(X, y, weights)
        yield step, twin
        last = twin.model_


class Point(NamedTuple):
    """The fit after a step, what it predicts for rows held out, and their mean squared error."""

    step: Step
    fit: FineMorphsRegressor
    prediction: Array
    error: float


@dataclass(frozen=True)
class Trial:
    """Parameters in place of the estimator's, and the points of their path in a fold."""

    options: dict[str, Any]
    points: list[Point]

    @property
    def place(self) -> int:
        """Where on the path the error is least."""
        return min(range(len(self.points)), key=lambda k: self.points[k].error)

    @property
    def best(self) -> Point:
        """The point with the least error."""
        return self.points[self.place]

    def path(self, behind: int = 0) -> list[Step]:
        """Its steps, to the best one and so many behind it."""
        return [point.step for point in self.points[: self.place + 1 + behind]]

    @property
    def stopped(self) -> str:
        """Why the path was left early, if it was."""
        return stop_reason(self.points[-1].fit)


def judged_walk(
    estimator: FineMorphsRegressor,
    data: tuple[Array, Array, Array],
    fold: tuple[Array, Array],
    path: Iterable[Step],
) -> Iterator[Point]:
    """The points of a path in a fold, to where the training is ended from outside.

    An interrupt between two trainings ends it behind the point before, if there is one.
    """
    engine, device = choose_engine(estimator.engine, estimator.device)
    (X, y, weights), (train, test) = data, fold
    steps = walk(estimator, X[train], y[train], weights[train], path)
    last: Point | None = None
    while last is None or not stop_reason(last.fit):
        try:
            step, fit = next(steps)
            prediction = fit.model_.predict(X[test], engine, device)
        except StopIteration:
            return
        except KeyboardInterrupt:
            if last is None:
                raise
            last.fit.status_ = INTERRUPTED
            return
        last = Point(step, fit, prediction, mean_error(prediction, y[test], weights[test]))
        yield last


def search(
    estimator: FineMorphsRegressor,
    data: tuple[Array, Array, Array],
    fold: tuple[Array, Array],
    multiples: Sequence[float],
    most: int = _ITERATIONS,
    worse: float = _WORSE,
    rival: float = math.inf,
    weak_ridge: float | None = None,
) -> list[Point]:
    """The points of a path that is found on the way, to where it leads away from the best one.

    A level takes ``most`` iterations at most, and no more than the estimator's ``max_iter``. The
    path is left where its error is ``worse`` times its least one.
    ``rival`` is the error of another path at its first level; a path far behind it is left.
    ``weak_ridge``, if there is one, is what the path goes on with at its last level if that is
    the best one.
    """
    points: list[Point] = []
    steps = _steps(multiples, points, min(most, estimator.max_iter), weak_ridge)
    for point in judged_walk(estimator, data, fold, steps):
        points.append(point)
        if point.error > min(worse * min(p.error for p in points), _BEHIND * rival):
            break
    return points


def _steps(
    multiples: Sequence[float], points: list[Point], most: int, weak_ridge: float | None
) -> Iterator[Step]:
    """The levels, and the last one again with a weak ridge if it is the best."""
    for multiple in multiples:
        yield from _level(Step(multiple, most), points)
    best = min(points, key=lambda point: point.error)
    if weak_ridge is not None and best.step.multiple == multiples[-1]:
        yield from _level(Step(multiples[-1], most, weak_ridge), points)


def _level(step: Step, points: list[Point]) -> Iterator[Step]:
    """The iterations of a step in parts, each twice as long as the last, as long as they pay.

    They do if the error has fallen in the last part, and the fit was not at its end.
    """
    taken, length = 0, min(_ITERATIONS, step.iterations)
    while taken + length <= step.iterations:
        yield step._replace(iterations=length)
        taken, length = taken + length, 2 * length
        *before, last = points
        if not before or last.fit.converged_ or last.error > _PAYS * before[-1].error:
            break
