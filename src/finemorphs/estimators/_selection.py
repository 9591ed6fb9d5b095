"""Choices made inside the training data: noise level and ridge, warps; and several starts.

``noise="cv"``: fits along a path of noise levels (:mod:`._path`) are judged on rows held out, and
the model that is kept walks the same path to the best level. With the level goes the ridge:
where the first affine module may grow, it spreads the rows apart until each is fitted by itself,
at any level of noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from finemorphs._typing import Array
from finemorphs.estimators._members import Member
from finemorphs.estimators._path import Clock, Folds, Step, judged_walk, search, stop_reason, walk

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
    all folds. The rows of the table are the steps, its columns the ridge, the multiple, the error
    on rows held out, and the number of folds that it is a mean of. Where the search is ended from
    outside, the twin is what it had reached, on the rows of a fold, and the table is empty.
    """
    clock = Clock(estimator.max_time)
    data = X, y, weights
    first, *more = _FOLDS.split(len(X), rng)
    ridges: list[Any] = [estimator.ridge]
    paths: list[list[Step]] = []
    errors: list[Array] = []

    def twin(ridge: Any) -> FineMorphsRegressor:
        return estimator._twin(ridge=ridge, max_time=clock.left())

    while len(paths) < len(ridges):
        points = search(twin(ridges[-1]), data, first, PATH, most=estimator.max_iter)
        if stop_reason(points[-1].fit):
            return points[-1].fit, np.empty((0, 4))
        paths.append([point.step for point in points])
        errors.append(np.array([point.error for point in points]))
        if estimator._is_default("ridge") and len(ridges) == 1:
            lowest = paths[0][errors[0].argmin()].multiple == PATH[-1]
            ridges.append(_WEAK if lowest else _STRONG)
    best = min(range(len(ridges)), key=lambda r: errors[r].min() * (_WORTH if r == 0 else 1.0))
    for fold in more:
        points = list(judged_walk(twin(ridges[best]), data, fold, paths[best]))
        if stop_reason(points[-1].fit):
            return points[-1].fit, np.empty((0, 4))
        errors[best] += [point.error for point in points]
    errors[best] /= 1 + len(more)
    evaluations = 0
    to_the_best = paths[best][: errors[best].argmin() + 1]
    for _, fit in walk(twin(ridges[best]), X, y, weights, to_the_best):
        evaluations += fit.n_evaluations_
        if stop_reason(fit):
            break
    fit.n_evaluations_ = evaluations
    table = [
        (float(np.mean(ridges[r])), step.multiple, error, 1 + len(more) if r == best else 1)
        for r, path in enumerate(paths)
        for step, error in zip(path, errors[r], strict=True)
    ]
    return fit, np.array(table)


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
