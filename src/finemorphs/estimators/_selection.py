"""Choices made inside the training data: noise, kernel and ridge, warps; and several starts.

``noise="cv"``, and "auto" where there are many rows: fits along a path of noise levels
(:mod:`._path`) with half the time steps are judged on rows held out. The model that is kept takes
the second half of the best path with all rows, from the affine modules that were found on it: they
are what training is slow to find. With the level go the kernel's order, the ridge and the widths:
where the first affine module may grow, it spreads the rows apart until each is fitted by itself, at
any level of noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.model_selection import train_test_split

from finemorphs._typing import Array
from finemorphs.estimators._members import Member
from finemorphs.estimators._path import (
    Clock,
    Folds,
    Point,
    Step,
    Trial,
    judged_walk,
    search,
    stop_reason,
    walk,
)
from finemorphs.training import INTERRUPTED, Progress, join

if TYPE_CHECKING:
    from finemorphs.estimators.regressor import FineMorphsRegressor

__all__ = ["MANY", "PATH", "EndedError", "choose_noise", "choose_warps", "fit_members"]

MANY = 5_000  # rows, from which on noise="auto" holds some of them out
PATH = (1.4, 1.0, 0.7, 0.5, 0.35)  # multiples of the estimated noise level
_ROUGH = 1  # the order of the kernel that is tried beside the default
_WEAK, _STRONG = 0.25, 4.0  # ridges that are tried beside the default
_WIDE = 4.0  # times the widths that a word stands for
_NEAR = 1.05  # times the least mean squared error: a strong ridge is tried with such a kernel too
_MOST = 300  # iterations of a level
_SHORT = 2  # steps; a longer path is not walked whole with all rows
_HELD_OUT = 0.2  # share of the rows
_QUICK_ITERATIONS, _QUICK_MULTIPLE = 40, 1.4  # of the fits that judge a warp
_WARP_FOLDS = Folds(small=3, up_to=2000, large=1, held_out=0.2)
_WORTH = 0.99  # what is chosen has to lower the mean squared error to this share,
_SLIGHT = 1e-4  # and a warp by more than this share of the variance
_NO_PATH = np.empty((0, 6))


class EndedError(Exception):
    """A search was ended from outside; ``fit`` is what it had reached."""

    def __init__(self, fit: FineMorphsRegressor) -> None:
        super().__init__(fit.status_)
        self.fit = fit


def _interrupted(fit: FineMorphsRegressor) -> FineMorphsRegressor:
    """The fit, which says that the user has ended it."""
    fit.status_ = INTERRUPTED
    return fit


def choose_noise(
    estimator: FineMorphsRegressor,
    X: Array,
    y: Array,
    weights: Array,
    rng: np.random.Generator,
    progress: Progress,
) -> tuple[FineMorphsRegressor, Array]:
    """A twin trained on all rows to the best kernel, ridge and level, and what was tried.

    A rough kernel is tried beside the default one. Where the error falls to the end of a path, it
    goes on with a weak ridge; else a strong one is tried, with the better kernel, or with both if
    they are near. If that is best, and the widths are a word ("decreasing"), which gives their
    shape, wide ones are tried with it. What the user has given stays. The rows of the table are
    the steps, its columns those of :func:`_row`.
    Where the search is ended from outside, the twin is what it had reached, without the rows held
    out and with half the time steps, and the table is empty.
    """
    clock = Clock(estimator.max_time)
    seed = int(rng.integers(2**31))
    train, test = train_test_split(np.arange(len(X)), test_size=_HELD_OUT, random_state=seed)
    ridge_is_free = estimator._is_default("ridge")

    def twin(options: dict[str, Any]) -> FineMorphsRegressor:
        return estimator._twin(**options, max_time=clock.left())

    def attempt(weak_ridge: float | None = None, **options: Any) -> Trial:
        data, fold = (X, y, weights), (train, test)
        cheap = twin(options | {"n_steps": _half(estimator.n_steps)})
        progress.step(f"{_words(cheap, options)}, judged by rows held out")
        points = search(cheap, data, fold, PATH, most=_MOST, weak_ridge=weak_ridge)
        trial = _whole(Trial(options, points))
        best = trial.best
        progress.say(
            f"{_words(best.fit, options)}, {best.step.multiple:g} times the estimated noise level: "
            f"{best.error**0.5:.4g} standard deviations held out."
        )
        return trial

    trials: list[Trial] = []
    try:
        weak = _WEAK if ridge_is_free else None
        trials.append(attempt(weak))
        if estimator.kernel == "matern" and estimator._is_default("kernel_order"):
            trials.append(attempt(weak, kernel_order=_ROUGH))
        if ridge_is_free:
            near = _NEAR * min(trial.best.error for trial in trials)
            trials += [
                attempt(**trial.options, ridge=_STRONG)
                for trial in trials
                if trial.best.error <= near and trial.best.step.multiple > PATH[-1]
            ]
        best = _chosen(trials)
        if isinstance(estimator.kernel_width, str) and "ridge" in best.options:
            widths = [_WIDE * d.kernel.width for d in best.best.fit.model_.sequence.diffeos]
            trials.append(attempt(**best.options, kernel_width=widths))
    except EndedError as ended:
        return ended.fit, _NO_PATH
    except KeyboardInterrupt:  # between two trainings
        if not trials:
            raise
        return _interrupted(_chosen(trials).best.fit), _NO_PATH
    chosen = _chosen(trials)
    table = np.array([_row(trial, point) for trial in trials for point in trial.points])
    options, path, fit, start = chosen.options, chosen.path(), chosen.best.fit, None
    if len(path) > _SHORT:
        path, start = path[len(path) // 2 :], fit.model_.at_rest()
    del trials, chosen  # the models of all steps, before the largest training begins
    progress.step("the best of them, with all rows")
    evaluations, histories = 0, list[dict[str, Array]]()
    try:
        for _, fit in walk(twin(options), X, y, weights, path, start):
            evaluations += fit.n_evaluations_
            histories.append(fit.history_)
            if stop_reason(fit):
                break
    except KeyboardInterrupt:  # between two trainings
        return _interrupted(fit), _NO_PATH
    fit.n_evaluations_, fit.history_ = evaluations, join(histories)
    fit.n_iter_ = len(fit.history_["iteration"])
    return fit, table


def _half(n_steps: int | Sequence[int]) -> int | list[int]:
    """Half as many time steps, rounded up."""
    halves = [-(-int(n) // 2) for n in np.atleast_1d(n_steps)]
    return halves if np.ndim(n_steps) else halves[0]


def _words(fit: FineMorphsRegressor, options: dict[str, Any]) -> str:
    """What a path tries, for the screen."""
    order = f" of order {fit.kernel_order}" if fit.kernel == "matern" else ""
    wide = "wide " if "kernel_width" in options else ""
    return f"{wide}{fit.kernel} kernel{order}, ridge {fit.ridge}"


def _row(trial: Trial, point: Point) -> list[float]:
    """Order, ridge, multiple, error on rows held out, evaluations, and times the given widths."""
    fit = point.fit
    ridge, widths = float(np.mean(fit.ridge)), _WIDE if "kernel_width" in trial.options else 1.0
    return [fit.kernel_order, ridge, point.step.multiple, point.error, fit.n_evaluations_, widths]


def _whole(trial: Trial) -> Trial:
    """The trial, unless it was ended from outside."""
    if trial.stopped:
        raise EndedError(trial.points[-1].fit)
    return trial


def _chosen(trials: list[Trial]) -> Trial:
    """The last trial that was worth more than the best one before it."""
    best = trials[0]
    for trial in trials[1:]:
        if trial.best.error < _WORTH * best.best.error:
            best = trial
    return best


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
    estimator: FineMorphsRegressor,
    X: Array,
    y: Array,
    weights: Array,
    rng: np.random.Generator,
    progress: Progress,
) -> dict[str, str]:
    """Warps in place of "auto", by short fits judged on rows held out; inputs first.

    An :class:`EndedError` where the choice is ended from outside.
    """
    clock = Clock(estimator.max_time)
    splits = _WARP_FOLDS.split(len(X), rng)
    step = Step(_QUICK_MULTIPLE, min(estimator.max_iter, _QUICK_ITERATIONS))
    last: list[FineMorphsRegressor] = []

    def error(warps: dict[str, str]) -> float:
        name = ", ".join(f"{name}={warp}" for name, warp in warps.items())
        progress.step(f"{name}, judged by rows held out")
        errors = []
        for fold in splits:
            quick = estimator._twin(**warps, max_time=clock.left())
            (point,) = judged_walk(quick, (X, y, weights), fold, [step])
            last[:] = [point.fit]
            if stop_reason(point.fit):
                raise EndedError(point.fit)
            errors.append(point.error)
        mean = float(np.mean(errors))
        progress.say(f"{name}: {mean**0.5:.4g} standard deviations held out.")
        return mean

    def errors_with(fixed: dict[str, str], name: str) -> dict[str, float]:
        try:
            return {kind: error(fixed | {name: kind}) for kind in ("none", "quantile", "power")}
        except KeyboardInterrupt:  # between two trainings
            if not last:
                raise
            raise EndedError(_interrupted(last[0])) from None

    chosen = {"input_warp": estimator.input_warp, "response_warp": estimator.response_warp}
    for name in chosen:
        if chosen[name] != "auto":
            continue
        errors = errors_with({k: "none" if v == "auto" else v for k, v in chosen.items()}, name)
        best = min(errors, key=errors.__getitem__)
        worth = errors[best] < min(_WORTH * errors["none"], errors["none"] - _SLIGHT)
        chosen[name] = best if worth else "none"
    return chosen
