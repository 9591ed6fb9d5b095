"""Choices made inside the training data: noise, kernel and ridge, warps; and several starts.

``noise="cv"``: fits along a path of noise levels (:mod:`._path`) are judged on rows held out, and
the model that is kept walks the same path to the best level. With the level go the kernel's order
and the ridge: where the first affine module may grow, it spreads the rows apart until each is
fitted by itself, at any level of noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from finemorphs._typing import Array
from finemorphs.estimators._members import Member
from finemorphs.estimators._path import (
    Clock,
    Folds,
    Step,
    Trial,
    judged_walk,
    search,
    stop_reason,
    walk,
)

if TYPE_CHECKING:
    from finemorphs.estimators.regressor import FineMorphsRegressor

__all__ = ["PATH", "choose_noise", "choose_warps", "fit_members"]

PATH = (1.4, 1.0, 0.7, 0.5, 0.35)  # multiples of the estimated noise level
_ROUGH = 1  # the order of the kernel that is tried beside the default
_WEAK, _STRONG = 0.25, 4.0  # ridges, of which one is tried beside the default
_NEAR = 1.05  # times the least mean squared error: another ridge is tried with such a kernel too
_MOST = 300  # iterations of a level
_QUICK_ITERATIONS, _QUICK_MULTIPLE = 40, 1.4  # of the fits that judge a warp
_FOLDS = Folds(small=5, up_to=2000, large=1, held_out=0.2)
_N_FOLDS = 2  # of these are used at most
_WARP_FOLDS = Folds(small=3, up_to=2000, large=1, held_out=0.2)
_WORTH = 0.99  # what is chosen has to lower the mean squared error to this share,
_SLIGHT = 1e-4  # and a warp by more than this share of the variance


class _EndedError(Exception):
    """The search was ended from outside; with the fit that it had reached."""


def choose_noise(
    estimator: FineMorphsRegressor, X: Array, y: Array, weights: Array, rng: np.random.Generator
) -> tuple[FineMorphsRegressor, Array]:
    """A twin trained on all rows to the best kernel, ridge and level, and what was tried.

    In the first fold a rough kernel is tried beside the default one, then another ridge with the
    better of them, or with both if they are near; what the user has given stays. The level is the
    best one over all folds. The rows of the table are the steps, its columns the kernel's order,
    the ridge, the multiple, the error on rows held out, and the number of folds that it is a mean
    of. Where the search is ended from outside, the twin is what it had reached, on the rows of a
    fold, and the table is empty.
    """
    clock = Clock(estimator.max_time)
    data = X, y, weights
    first, *more = _FOLDS.split(len(X), rng)[:_N_FOLDS]

    def twin(options: dict[str, Any]) -> FineMorphsRegressor:
        return estimator._twin(**options, max_time=clock.left())

    def attempt(options: dict[str, Any]) -> Trial:
        return _whole(Trial(options, search(twin(options), data, first, PATH, most=_MOST)))

    try:
        trials = [attempt({})]
        if estimator.kernel == "matern" and estimator._is_default("kernel_order"):
            trials.append(attempt({"kernel_order": _ROUGH}))
        if estimator._is_default("ridge"):
            near = _NEAR * min(trial.best.error for trial in trials)
            hopeful = [trial for trial in trials if trial.best.error <= near]
            trials += [attempt(trial.options | {"ridge": _other_ridge(trial)}) for trial in hopeful]
        chosen = _chosen(trials)
        path, folds = chosen.path, [chosen]
        for fold in more:
            points = list(judged_walk(twin(chosen.options), data, fold, path))
            folds.append(_whole(Trial(chosen.options, points)))
    except _EndedError as ended:
        return ended.args[0], np.empty((0, 5))
    judged = [[point.error for point in trial.points[: len(path)]] for trial in folds]
    errors = np.mean(judged, axis=0)
    evaluations = 0
    for _, fit in walk(twin(chosen.options), X, y, weights, path[: errors.argmin() + 1]):
        evaluations += fit.n_evaluations_
        if stop_reason(fit):
            break
    fit.n_evaluations_ = evaluations
    table = []
    for trial in trials:
        order = trial.options.get("kernel_order", estimator.kernel_order)
        ridge = float(np.mean(trial.options.get("ridge", estimator.ridge)))
        for k, point in enumerate(trial.points):
            in_all = trial is chosen and k < len(path)
            error, n_folds = (errors[k], len(folds)) if in_all else (point.error, 1)
            table.append((order, ridge, point.step.multiple, error, n_folds))
    return fit, np.array(table, dtype=float)


def _whole(trial: Trial) -> Trial:
    """The trial, unless it was ended from outside."""
    if trial.stopped:
        raise _EndedError(trial.points[-1].fit)
    return trial


def _chosen(trials: list[Trial]) -> Trial:
    """The last trial that was worth more than the best one before it."""
    best = trials[0]
    for trial in trials[1:]:
        if trial.best.error < _WORTH * best.best.error:
            best = trial
    return best


def _other_ridge(trial: Trial) -> float:
    """A weak one if the error falls to the end of the path, else a strong one."""
    return _WEAK if trial.best.step.multiple == PATH[-1] else _STRONG


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
    splits = _WARP_FOLDS.split(len(X), rng)
    step = Step(_QUICK_MULTIPLE, min(estimator.max_iter, _QUICK_ITERATIONS))

    def error(**warps: str) -> float:
        quick = estimator._twin(**warps, max_time=clock.left())
        walks = (judged_walk(quick, (X, y, weights), fold, [step]) for fold in splits)
        return float(np.mean([point.error for walk in walks for point in walk]))

    chosen = {"input_warp": estimator.input_warp, "response_warp": estimator.response_warp}
    for name in chosen:
        if chosen[name] != "auto":
            continue
        fixed = {k: "none" if v == "auto" else v for k, v in chosen.items()}
        errors = {kind: error(**{**fixed, name: kind}) for kind in ("none", "quantile", "power")}
        best = min(errors, key=errors.__getitem__)
        worth = errors[best] < min(_WORTH * errors["none"], errors["none"] - _SLIGHT)
        chosen[name] = best if worth else "none"
    return chosen
