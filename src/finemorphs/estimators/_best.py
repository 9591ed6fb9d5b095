"""``preset="best"``: members of different kinds, weighted by what they predict out of fold.

Two kinds are tried, and each is judged on rows that it was not trained on:

    flows     a sequence of modules along a path of noise levels (:mod:`._selection`), one fit a
              fold; all folds are kept and averaged
    kernels   kernel regression (:mod:`finemorphs.kernel_regression`) with the inputs as they are
              and with their normal scores; refitted to all rows

The warp of the response is the one with which kernel regression does better. The weights
minimise the squared error of the mean out of fold; they are not negative and add up to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.optimize import nnls
from sklearn.model_selection import KFold, ShuffleSplit

from finemorphs._typing import Array
from finemorphs.engines import choose_engine
from finemorphs.estimators._data import prepare
from finemorphs.estimators._members import KernelModel, Member
from finemorphs.estimators._parameters import generator
from finemorphs.estimators._selection import Clock, mean_error, stop_reason, walk
from finemorphs.kernel_regression import Scales, likely_scales, regress
from finemorphs.training import Progress

if TYPE_CHECKING:
    from finemorphs.estimators.regressor import FineMorphsRegressor

__all__ = ["fit_best"]

FLOW: dict[str, Any] = {"sequence": "AD^4A", "kernel_width": "decreasing", "n_steps": 5}
_PATH = (2.8, 1.4, 1.0, 0.7)
_FOLDS, _FOLD_ROWS = 5, 5000
_LARGE_FOLDS, _LARGE_HELD_OUT = 2, 0.1  # beyond _FOLD_ROWS
_FULL_FLOW_ROWS = 3000  # on the CPU; beyond, a subset of control points
_SUBSET = 1000
_KERNEL_ROWS = 8000  # on the CPU; beyond, a sample of the rows
_SCALES_ROWS = {"cpu": 1000, "cuda": 2500}
_KERNEL_MATRICES = 8  # held at once, which bounds the rows on a GPU
_LEAST_WEIGHT = 0.02
_INPUT_WARPS = ("none", "quantile")
_RESPONSE_WARPS = ("none", "power")


@dataclass(frozen=True)
class Candidate:
    """A kind of model, what it predicts out of fold (NaN where no fold holds a row out)."""

    name: str
    out_of_fold: Array
    members: tuple[Member, ...]


class _Task:
    """The data of a fit and its folds, with the devices at hand."""

    def __init__(self, estimator: FineMorphsRegressor, X: Array, y: Array, weights: Array) -> None:
        self.estimator = estimator
        self.rng = generator(estimator.random_state)
        rows = prepare(X, y, weights, None, "random", self.rng)  # merged, in a fixed order
        self.X, self.y = rows.x_scaling.undo(rows.x), rows.y_scaling.undo(rows.y)
        self.weights = rows.weights
        self.engine, self.device = choose_engine(estimator.engine, estimator.device)
        seed = int(self.rng.integers(2**31))
        folds = (
            KFold(min(_FOLDS, len(self.X)), shuffle=True, random_state=seed)
            if len(self.X) <= _FOLD_ROWS
            else ShuffleSplit(_LARGE_FOLDS, test_size=_LARGE_HELD_OUT, random_state=seed)
        )
        self.splits = list(folds.split(self.X))
        self.input_warps = _kinds(estimator.input_warp, _INPUT_WARPS)
        self.response_warps = _kinds(estimator.response_warp, _RESPONSE_WARPS)
        self.clock = Clock(estimator.max_time)

    def flow_options(self) -> dict[str, Any]:
        """What a flow is where the user has not said otherwise."""
        options = {k: v for k, v in FLOW.items() if self.estimator._is_default(k)}
        many = self.device.type == "cpu" and len(self.X) > _FULL_FLOW_ROWS
        if many and self.estimator.subset_size is None:
            options["subset_size"] = _SUBSET
        return options

    def error(self, prediction: Array) -> float:
        """Of predictions out of fold, over the rows that have one."""
        known = ~np.isnan(prediction).any(1)
        return mean_error(prediction[known], self.y[known], self.weights[known])


def _kinds(given: str, tried: tuple[str, ...]) -> tuple[str, ...]:
    """The warps to try: the one that was given, if one was."""
    return tried if given in ("none", "auto") else (given,)


def fit_best(estimator: FineMorphsRegressor, X: Array, y: Array, weights: Array) -> None:
    """Fit all candidates, weigh them, and leave the result in the estimator."""
    task = _Task(estimator, X, y, weights)
    with Progress(estimator.verbose) as progress:
        response_warp, kernels = _kernels(task, progress)
        flow, first, stopped = _flows(task, response_warp, progress)
    candidates = [*kernels, flow]
    shares = _weigh(task, candidates)
    members = tuple(
        Member(member.name, float(share * member.weight), member.model)
        for candidate, share in zip(candidates, shares, strict=True)
        for member in candidate.members
        if share > 0
    )
    estimator._adopt(first)
    estimator.members_ = members
    estimator.selection_ = _summary(task, candidates, shares, members)
    if stopped:
        estimator.status_, estimator.converged_ = stopped, False


# --- kernels ----------------------------------------------------------------------------------


def _kernels(task: _Task, progress: Progress) -> tuple[str, list[Candidate]]:
    """The response's warp and the candidates with it, one for each warp of the inputs."""
    trials: dict[str, list[Candidate]] = {}
    for response_warp in task.response_warps:
        trials[response_warp] = []
        for input_warp in task.input_warps:
            candidate = _kernel(task, input_warp, response_warp)
            trials[response_warp].append(candidate)
            error = task.error(candidate.out_of_fold) ** 0.5
            progress.say(f"{candidate.name}: {error:.4g} standard deviations held out.")
    errors = {
        warp: task.error(np.mean([c.out_of_fold for c in trial], axis=0))
        for warp, trial in trials.items()
    }
    best = min(errors, key=errors.__getitem__)
    return best, trials[best]


def _kernel(task: _Task, input_warp: str, response_warp: str) -> Candidate:
    """Kernel regression with these warps; its scales are chosen once, on all rows."""
    every = np.arange(len(task.X))
    rows = prepare(
        task.X, task.y, task.weights, None, "random", task.rng, True, (input_warp, response_warp)
    )
    sample = _SCALES_ROWS[task.device.type]
    scales = likely_scales(rows.x, rows.y, rows.weights, task.rng, task.device, sample)
    out_of_fold = np.full(task.y.shape, np.nan)
    for train, test in task.splits:
        model = _kernel_model(task, scales, train, input_warp, response_warp)
        out_of_fold[test] = model.predict(task.X[test], task.engine, task.device)
    model = _kernel_model(task, scales, every, input_warp, response_warp)
    name = f"kernels (inputs {input_warp}, response {response_warp})"
    return Candidate(name, out_of_fold, (Member(name, 1.0, model),))


def _kernel_model(
    task: _Task, scales: Scales, chosen: Array, input_warp: str, response_warp: str
) -> KernelModel:
    limit = _KERNEL_ROWS
    if task.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(task.device)
        limit = int((free / 8 / _KERNEL_MATRICES) ** 0.5)
    if len(chosen) > limit:
        chosen = np.sort(task.rng.choice(chosen, limit, replace=False))
    rows = prepare(
        task.X[chosen],
        task.y[chosen],
        task.weights[chosen],
        None,
        "random",
        task.rng,
        True,
        (input_warp, response_warp),
    )
    regression = regress(scales, rows.x, rows.y, rows.weights, task.device)
    return KernelModel(regression, rows.x_scaling, rows.y_scaling)


# --- flows ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Walk:
    """The fits of a fold along the path, what each predicts for the rows held out, and how well."""

    fold: int
    fits: list[FineMorphsRegressor]
    predictions: list[Array]
    errors: list[float]

    @property
    def stopped(self) -> str:
        """Why the path was left early, if it was."""
        return stop_reason(self.fits[-1])


def _flows(
    task: _Task, response_warp: str, progress: Progress
) -> tuple[Candidate, FineMorphsRegressor, str]:
    """A fit for each fold at the best level, the first of them, and why they ended early."""
    walks = _walks(task, task.flow_options() | {"response_warp": response_warp}, progress)
    n_levels = min(len(w.fits) for w in walks)
    out_of_fold = np.full((n_levels, *task.y.shape), np.nan)
    for w in walks:
        for level in range(n_levels):
            out_of_fold[level, task.splits[w.fold][1]] = w.predictions[level]
    level = int(np.argmin([task.error(o) for o in out_of_fold]))
    fits = [w.fits[level] for w in walks]
    warps = f"inputs {fits[0].input_warp}, response {response_warp}"
    name = f"{fits[0].sequence_} ({warps}, {_PATH[level]} sigma)"
    members = tuple(
        Member(f"{name}, fold {w.fold + 1}", 1 / len(fits), fit.model_)
        for w, fit in zip(walks, fits, strict=True)
    )
    return Candidate(name, out_of_fold[level], members), fits[0], walks[-1].stopped


def _walks(task: _Task, options: dict[str, Any], progress: Progress) -> list[_Walk]:
    """All folds, with the warp of the inputs that does better in the first."""
    trials: dict[str, _Walk] = {}
    for warp in task.input_warps:
        trials[warp] = _walk_fold(task, options | {"input_warp": warp}, 0, progress)
        if trials[warp].stopped:
            break
    best = min(trials, key=lambda warp: min(trials[warp].errors))
    walks = [trials[best]]
    options = options | {"input_warp": best}
    for fold in range(1, len(task.splits)):
        if any(w.stopped for w in trials.values()) or walks[-1].stopped:
            break
        walks.append(_walk_fold(task, options, fold, progress))
    return walks


def _walk_fold(task: _Task, options: dict[str, Any], fold: int, progress: Progress) -> _Walk:
    train, test = task.splits[fold]
    flow = task.estimator._twin(**options, max_time=task.clock.left())
    result = _Walk(fold, [], [], [])
    for fit in walk(flow, task.X[train], task.y[train], task.weights[train], _PATH):
        prediction = fit.model_.predict(task.X[test], task.engine, task.device)
        result.fits.append(fit)
        result.predictions.append(prediction)
        result.errors.append(mean_error(prediction, task.y[test], task.weights[test]))
        if result.stopped:
            break
    progress.say(
        f"{result.fits[0].sequence_}, inputs {options['input_warp']}, fold {fold + 1} of "
        f"{len(task.splits)}: {min(result.errors) ** 0.5:.4g} standard deviations held out."
    )
    return result


# --- weights ----------------------------------------------------------------------------------


def _weigh(task: _Task, candidates: list[Candidate]) -> Array:
    """Weights of the candidates; those that hardly count are left out."""
    predictions = np.stack([c.out_of_fold for c in candidates])
    known = ~np.isnan(predictions).any((0, 2))
    scale = np.sqrt(task.weights[known])[:, None] / np.maximum(task.y.std(0), 1e-300)
    y = (task.y[known] * scale).ravel()
    columns = (predictions[:, known] * scale).reshape(len(candidates), -1).T
    kept = np.ones(len(candidates), dtype=bool)
    shares = np.zeros(len(candidates))
    for _ in range(2):
        shares[:] = 0
        shares[kept] = _simplex_least_squares(columns[:, kept], y)
        kept = shares >= _LEAST_WEIGHT
    return shares


def _simplex_least_squares(columns: Array, y: Array) -> Array:
    """The weights w >= 0 with sum 1 that bring columns w nearest to y."""
    # Differences from y: |columns w - y| = |(columns - y) w| when the weights add up to 1.
    gaps = columns - y[:, None]
    total = 1e4 * max(float(np.abs(gaps).max()), 1e-300) * len(y) ** 0.5
    rows = np.vstack([gaps, np.full((1, gaps.shape[1]), total)])
    weights: Array = nnls(rows, np.r_[np.zeros(len(y)), total])[0]
    return np.asarray(weights / weights.sum())


def _summary(
    task: _Task, candidates: list[Candidate], shares: Array, members: tuple[Member, ...]
) -> dict[str, Any]:
    """What was chosen and why, what it costs to predict and to keep."""
    known = [c.out_of_fold for c, share in zip(candidates, shares, strict=True) if share > 0]
    mean = sum(
        (s * o for s, o in zip(shares[shares > 0][1:], known[1:], strict=True)),
        start=shares[shares > 0][0] * known[0],
    )
    return {
        "candidates": [
            {"name": c.name, "rmse": _rmse(task, c.out_of_fold), "weight": float(share)}
            for c, share in zip(candidates, shares, strict=True)
        ],
        "rmse": _rmse(task, mean),
        "folds": len(task.splits),
        "numbers": sum(member.model.n_numbers for member in members),
        "pairs": sum(member.model.n_pairs for member in members),
        "seconds": task.clock.seconds(),
    }


def _rmse(task: _Task, prediction: Array) -> list[float]:
    """Root mean squared error of each response in its units, over the rows held out."""
    known = ~np.isnan(prediction).any(1)
    share = task.weights[known] / task.weights[known].sum()
    errors = (share[:, None] * (prediction[known] - task.y[known]) ** 2).sum(0)
    return [float(e) for e in np.sqrt(errors)]
