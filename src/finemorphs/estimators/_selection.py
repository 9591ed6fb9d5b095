"""Choices made inside the training data: the noise level and the warps.

The noise level (``noise="cv"``) and how far a fit is converged are one question: at a level
that is too low a converged fit follows the noise. So models are trained along a falling path
of levels, each from where the last one ended and to a coarse tolerance, and judged at every
level on rows held out. The model that is kept walks the same path to the best level.

    sigma = multiple * sigma_0,   sigma_0 estimated as for "auto", multiples in ``PATH``

With it goes the ridge: where the first affine module may grow, it spreads the rows apart until
each is fitted by itself, at any level of noise.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from sklearn.model_selection import KFold, ShuffleSplit

from finemorphs._typing import Array
from finemorphs.engines import choose_engine
from finemorphs.estimators._data import prepare
from finemorphs.estimators._members import Member
from finemorphs.training import estimate_noise

if TYPE_CHECKING:
    from finemorphs.estimators.regressor import FineMorphsRegressor

__all__ = [
    "PATH",
    "Clock",
    "choose_noise",
    "choose_warps",
    "fit_members",
    "mean_error",
    "stop_reason",
    "walk",
]

PATH = (2.8, 2.0, 1.4, 1.0, 0.7, 0.5, 0.35)
_RIDGES = (1.0, 4.0)
_TOLERANCE, _ITERATIONS = 1e-4, 100  # of a level
_QUICK_ITERATIONS, _QUICK_MULTIPLE = 40, 1.4  # of the fits that judge a warp
_FOLDS, _FOLD_ROWS = 3, 2000
_HELD_OUT = 0.2
_WORTH = 0.99  # a warp has to lower the mean squared error to this share

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


def _folds(n: int, rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Training and held-out rows: folds of a small table, one fifth of a large one."""
    seed = int(rng.integers(2**31))
    if n <= _FOLD_ROWS:
        return list(KFold(_FOLDS, shuffle=True, random_state=seed).split(np.empty(n)))
    return list(ShuffleSplit(1, test_size=_HELD_OUT, random_state=seed).split(np.empty(n)))


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


def choose_noise(
    estimator: FineMorphsRegressor, X: Array, y: Array, weights: Array, rng: np.random.Generator
) -> tuple[FineMorphsRegressor, Array]:
    """A twin trained on all rows to the best ridge and level, and the table of what was tried.

    Its columns are the ridge, the multiple, and the error on rows held out. The ridge is tried
    at ``_RIDGES`` where it is left at its default. Where the search is ended from outside, the
    twin is what it had reached, on the rows of a fold, and the table is empty.
    """
    clock = Clock(estimator.max_time)
    engine, device = choose_engine(estimator.engine, estimator.device)
    ridges = _RIDGES if estimator._is_default("ridge") else (estimator.ridge,)
    errors = np.zeros((len(ridges), len(PATH)))
    folds = _folds(len(X), rng)
    for r, ridge in enumerate(ridges):
        for train, test in folds:
            tried = estimator._twin(ridge=ridge, max_time=clock.left())
            for i, twin in enumerate(walk(tried, X[train], y[train], weights[train], PATH)):
                if stop_reason(twin):
                    return twin, np.empty((0, 3))
                prediction = twin.model_.predict(X[test], engine, device)
                errors[r, i] += mean_error(prediction, y[test], weights[test]) / len(folds)
    best, level = np.unravel_index(np.argmin(errors), errors.shape)
    chosen = estimator._twin(ridge=ridges[best], max_time=clock.left())
    evaluations = 0
    for twin in walk(chosen, X, y, weights, PATH[: level + 1]):
        evaluations += twin.n_evaluations_
        if stop_reason(twin):
            break
    twin.n_evaluations_ = evaluations
    table = [
        (float(np.mean(ridge)), multiple, errors[r, i])
        for r, ridge in enumerate(ridges)
        for i, multiple in enumerate(PATH)
    ]
    return twin, np.array(table)


def fit_members(
    estimator: FineMorphsRegressor, X: Array, y: Array, weights: Array, rng: np.random.Generator
) -> None:
    """Fits of the same kind from different starts, averaged."""
    clock = Clock(estimator.max_time)
    alone = {"n_members": 1, "checkpoint": None, "resume": False}
    fits: list[FineMorphsRegressor] = []
    for child in rng.spawn(estimator.n_members):
        twin = estimator._twin(**alone, random_state=child, max_time=clock.left())
        twin._learn(X, y, weights)
        fits.append(twin)
        if stop_reason(twin):
            break
    estimator._adopt(fits[0])
    estimator.status_, estimator.converged_ = fits[-1].status_, all(f.converged_ for f in fits)
    estimator.members_ = tuple(
        Member(f"{fit.sequence_}, start {i}", 1 / len(fits), fit.model_)
        for i, fit in enumerate(fits, 1)
    )


def choose_warps(
    estimator: FineMorphsRegressor, X: Array, y: Array, weights: Array, rng: np.random.Generator
) -> dict[str, str]:
    """Warps in place of "auto", by short fits judged on rows held out; inputs first."""
    clock = Clock(estimator.max_time)
    folds = _folds(len(X), rng)
    engine, device = choose_engine(estimator.engine, estimator.device)
    n_iterations = min(estimator.max_iter, _QUICK_ITERATIONS)

    def error(**warps: str) -> float:
        quick = estimator._twin(**warps, max_iter=n_iterations, max_time=clock.left())
        total = 0.0
        for train, test in folds:
            (twin,) = walk(quick, X[train], y[train], weights[train], [_QUICK_MULTIPLE])
            prediction = twin.model_.predict(X[test], engine, device)
            total += mean_error(prediction, y[test], weights[test])
        return total

    chosen = {"input_warp": estimator.input_warp, "response_warp": estimator.response_warp}
    for name in chosen:
        if chosen[name] != "auto":
            continue
        fixed = {k: "none" if v == "auto" else v for k, v in chosen.items()}
        errors = {kind: error(**{**fixed, name: kind}) for kind in ("none", "quantile", "power")}
        best = min(errors, key=errors.__getitem__)
        chosen[name] = best if errors[best] < _WORTH * errors["none"] else "none"
    return chosen
