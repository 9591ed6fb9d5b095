"""Choices made inside the training data: noise level and ridge, warps; and several starts.

``noise="cv"``: fits along a path of noise levels (:mod:`._path`) are judged on rows held out, and
the model that is kept walks the same path to the best level. With the level goes the ridge:
where the first affine module may grow, it spreads the rows apart until each is fitted by itself,
at any level of noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from finemorphs._typing import Array
from finemorphs.estimators._members import Member
from finemorphs.estimators._path import Clock, Folds, Level, judged_walk, stop_reason, walk

if TYPE_CHECKING:
    from finemorphs.estimators.regressor import FineMorphsRegressor

__all__ = ["PATH", "choose_noise", "choose_warps", "fit_members"]

PATH = (1.4, 1.0, 0.7, 0.5, 0.35)  # multiples of the estimated noise level
_WEAK, _STRONG = 0.25, 4.0  # ridges that are tried beside the default
_QUICK_ITERATIONS, _QUICK_MULTIPLE = 40, 1.4  # of the fits that judge a warp
_FOLDS = Folds(small=3, up_to=2000, large=1, held_out=0.2)
_WORTH = 0.99  # a ridge or a warp has to lower the mean squared error to this share,
_SLIGHT = 1e-4  # and a warp by more than this share of the variance


def choose_noise(
    estimator: FineMorphsRegressor, X: Array, y: Array, weights: Array, rng: np.random.Generator
) -> tuple[FineMorphsRegressor, Array]:
    """A twin trained on all rows to the best ridge and level, and the table of what was tried.

    Where the ridge is left at its default, a second one is tried in the first fold: a weak one
    if the error falls to the end of the path, else a strong one. The level is the best one over
    all folds. The columns of the table are the ridge, the multiple, the error on rows held out,
    and the number of folds that it is a mean of. Where the search is ended from outside, the
    twin is what it had reached, on the rows of a fold, and the table is empty.
    """
    clock = Clock(estimator.max_time)
    first, *more = _FOLDS.split(len(X), rng)
    ridges: list[Any] = [estimator.ridge]
    errors: list[Array] = []

    def levels(ridge: Any, fold: tuple[Array, Array], path: Sequence[float]) -> list[Level]:
        tried = estimator._twin(ridge=ridge, max_time=clock.left())
        return judged_walk(tried, (X, y, weights), fold, path, whole=fold is not first)

    while len(errors) < len(ridges):
        found = levels(ridges[-1], first, PATH)
        if stop_reason(found[-1].fit):
            return found[-1].fit, np.empty((0, 4))
        errors.append(np.array([level.error for level in found]))
        if estimator._is_default("ridge") and len(ridges) == 1:
            ridges.append(_WEAK if errors[0].argmin() == len(PATH) - 1 else _STRONG)
    best = min(range(len(ridges)), key=lambda r: errors[r].min() * (_WORTH if r == 0 else 1.0))
    for fold in more:
        found = levels(ridges[best], fold, PATH[: len(errors[best])])
        if stop_reason(found[-1].fit):
            return found[-1].fit, np.empty((0, 4))
        errors[best] += [level.error for level in found]
    errors[best] /= 1 + len(more)
    chosen = estimator._twin(ridge=ridges[best], max_time=clock.left())
    evaluations = 0
    for twin in walk(chosen, X, y, weights, PATH[: errors[best].argmin() + 1]):
        evaluations += twin.n_evaluations_
        if stop_reason(twin):
            break
    twin.n_evaluations_ = evaluations
    table = [
        (float(np.mean(ridges[r])), multiple, error, 1 + len(more) if r == best else 1)
        for r, column in enumerate(errors)
        for multiple, error in zip(PATH, column, strict=False)
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
    splits = _FOLDS.split(len(X), rng)
    n_iterations = min(estimator.max_iter, _QUICK_ITERATIONS)

    def error(**warps: str) -> float:
        quick = estimator._twin(**warps, max_iter=n_iterations, max_time=clock.left())
        walks = [
            judged_walk(quick, (X, y, weights), fold, [_QUICK_MULTIPLE], whole=True)
            for fold in splits
        ]
        return float(np.mean([level.error for (level,) in walks]))

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
