"""Warps chosen inside the training data, and several starts averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from finemorphs._typing import Array
from finemorphs.estimators._members import Member
from finemorphs.estimators._path import (
    Clock,
    EndedError,
    Folds,
    Point,
    Step,
    judged_walk,
    stop_reason,
)
from finemorphs.training import INTERRUPTED, Progress

if TYPE_CHECKING:
    from finemorphs.estimators.regressor import FineMorphsRegressor

__all__ = ["choose_warps", "fit_members"]

_QUICK_ITERATIONS, _QUICK_MULTIPLE = 40, 1.4  # of the fits that judge a warp
_FOLDS = Folds(small=3, up_to=2000, large=1, held_out=0.2)
# A warp has to lower the mean squared error to this share, and by more than this of the variance.
_WORTH, _SLIGHT = 0.99, 1e-4


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

    An :class:`EndedError` where the choice is ended from outside, with the best fit till then.
    """
    clock = Clock(estimator.max_time)
    splits = _FOLDS.split(len(X), rng)
    step = Step(_QUICK_MULTIPLE, min(estimator.max_iter, _QUICK_ITERATIONS))
    best: list[Point] = []  # the one with the least error till now

    def error(warps: dict[str, str]) -> float:
        name = ", ".join(f"{name}={warp}" for name, warp in warps.items())
        progress.step(f"{name}, judged by rows held out")
        errors = []
        for fold in splits:
            quick = estimator._twin(**warps, max_time=clock.left())
            (point,) = judged_walk(quick, (X, y, weights), fold, [step])
            best[:] = [min([*best, point], key=lambda candidate: candidate.error)]
            if reason := stop_reason(point.fit):
                raise EndedError(best[0].fit, reason)
            errors.append(point.error)
        mean = float(np.mean(errors))
        progress.say(f"{name}: {mean**0.5:.4g} standard deviations held out.")
        return mean

    def errors_with(fixed: dict[str, str], name: str) -> dict[str, float]:
        try:
            return {kind: error(fixed | {name: kind}) for kind in ("none", "quantile", "power")}
        except KeyboardInterrupt:  # between two trainings
            if not best:
                raise
            raise EndedError(best[0].fit, INTERRUPTED) from None

    chosen = {"input_warp": estimator.input_warp, "response_warp": estimator.response_warp}
    for name in chosen:
        if chosen[name] != "auto":
            continue
        errors = errors_with({k: "none" if v == "auto" else v for k, v in chosen.items()}, name)
        least = min(errors, key=errors.__getitem__)
        worth = errors[least] < min(_WORTH * errors["none"], errors["none"] - _SLIGHT)
        chosen[name] = least if worth else "none"
    return chosen
