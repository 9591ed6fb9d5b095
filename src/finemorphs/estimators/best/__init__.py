"""``preset="best"``: members of different kinds, weighted by what they predict out of fold.

Two kinds are tried, and each is judged on rows that it was not trained on:

    flows     sequences of modules along a path of noise levels (:mod:`.._path`), one fit a
              fold; all folds are kept and averaged
    kernels   kernel regression (:mod:`finemorphs.kernel_regression`) with the inputs as they are
              and with their normal scores; refitted to all rows

The warp of the response is the one with which kernel regression does better. The weights
minimise the squared error of the mean out of fold; they are not negative and add up to 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import nnls

from finemorphs._typing import Array
from finemorphs.estimators._members import Member
from finemorphs.estimators.best._flows import fit_flows
from finemorphs.estimators.best._kernels import fit_kernels
from finemorphs.estimators.best._task import Candidate, Task
from finemorphs.training import INTERRUPTED, Progress

if TYPE_CHECKING:
    from finemorphs.estimators.regressor import FineMorphsRegressor

__all__ = ["fit_best"]

_LEAST_WEIGHT = 0.02


def fit_best(estimator: FineMorphsRegressor, X: Array, y: Array, weights: Array) -> None:
    """Fit all candidates, weigh them, and leave the result in the estimator."""
    task = Task(estimator, X, y, weights)
    with Progress(estimator.verbose) as progress:
        response_warp, kernels = fit_kernels(task, progress)
        held_out = task.splits[0][1]
        to_beat = min(task.error(kernel.out_of_fold, held_out) for kernel in kernels)
        flows = fit_flows(task, response_warp, to_beat, progress)
    candidates = [*kernels, *flows.candidates]
    shares = _weigh(task, candidates)
    members = tuple(
        Member(member.name, float(share * member.weight), member.model)
        for candidate, share in zip(candidates, shares, strict=True)
        for member in candidate.members
        if share > 0
    )
    estimator._adopt(flows.first)
    estimator.members_ = members
    estimator.selection_ = _summary(task, candidates, shares, members)
    stopped = INTERRUPTED if task.interrupted else flows.stopped
    if stopped:
        estimator.status_, estimator.converged_ = stopped, False


def _weigh(task: Task, candidates: list[Candidate]) -> Array:
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
    task: Task, candidates: list[Candidate], shares: Array, members: tuple[Member, ...]
) -> dict[str, Any]:
    """What was chosen and why, what it costs to predict and to keep."""
    used = shares > 0
    parts = [c.out_of_fold for c, u in zip(candidates, used, strict=True) if u]
    mean = np.tensordot(shares[used], np.stack(parts), axes=1)
    return {
        "candidates": [
            {"name": c.name, "rmse": task.rmse(c.out_of_fold), "weight": float(share)}
            for c, share in zip(candidates, shares, strict=True)
        ],
        "rmse": task.rmse(mean),
        "folds": len(task.splits),
        "numbers": sum(member.model.n_numbers for member in members),
        "pairs": sum(member.model.n_pairs for member in members),
        "seconds": task.clock.seconds(),
    }
