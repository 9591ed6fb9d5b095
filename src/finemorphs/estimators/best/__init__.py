"""``preset="best"``: members of different kinds, weighted by what they predict out of fold.

Two kinds are tried, and each is judged on rows that it was not trained on:

    flows     sequences of modules along a path of noise levels (:mod:`.._path`), one fit a
              fold, as long as they have a weight; all folds are kept and averaged
    kernels   kernel regression (:mod:`finemorphs.kernel_regression`) with the inputs as they are
              and with their normal scores, also of mixed features or of one width; refitted to
              all rows

The warp of the response is the one with which kernel regression does better. The weights
minimise the squared error of the mean out of fold; they are not negative and add up to 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from finemorphs._typing import Array
from finemorphs.estimators._members import Member
from finemorphs.estimators.best._flows import fit_flows
from finemorphs.estimators.best._kernels import fit_kernels
from finemorphs.estimators.best._task import Candidate, Task
from finemorphs.estimators.best._weights import weigh
from finemorphs.training import INTERRUPTED, Progress

if TYPE_CHECKING:
    from finemorphs.estimators.regressor import FineMorphsRegressor

__all__ = ["fit_best"]


def fit_best(estimator: FineMorphsRegressor, X: Array, y: Array, weights: Array) -> None:
    """Fit all candidates, weigh them, and leave the result in the estimator."""
    task = Task(estimator, X, y, weights)
    with Progress(estimator.verbose) as progress:
        response_warp, kernels = fit_kernels(task, progress)
        if task.clock.is_over():  # a whole fit, by other kernels, may have flows of another warp
            estimator._shared_checkpoint = None
        flows = fit_flows(task, response_warp, kernels, progress)
        candidates = [*kernels, *flows.candidates]
        progress.step("kernels with a weight, fitted to all rows")
        members, shares = _members(task, candidates, weigh(task, candidates))
    estimator._adopt(flows.first)
    estimator.members_ = members
    estimator.selection_ = _summary(task, candidates, shares, members, flows.left)
    stopped = INTERRUPTED if task.interrupted else flows.stopped
    n = sum(len(estimator.selection_[kind]) for kind in ("candidates", "rejected"))
    estimator.status_ = stopped or f"Chosen from {n} candidates by what they predict out of fold."
    estimator.converged_ = not stopped


def _members(
    task: Task, candidates: list[Candidate], weights: Array
) -> tuple[tuple[Member, ...], Array]:
    """Those of all candidates with a weight, and the weights.

    If the user interrupts they are those of the first ones, and the other weights are 0.
    """
    made: dict[int, tuple[Member, ...]] = {}
    for k in np.flatnonzero(weights):
        try:
            made[int(k)] = candidates[k].members()
        except KeyboardInterrupt:
            if not made:
                raise
            task.interrupt()
            break
    shares = np.zeros(len(candidates))
    shares[list(made)] = weights[list(made)] / weights[list(made)].sum()
    members = tuple(
        Member(member.name, float(shares[k] * member.weight), member.model)
        for k, parts in made.items()
        for member in parts
    )
    return members, shares


def _summary(
    task: Task,
    candidates: list[Candidate],
    shares: Array,
    members: tuple[Member, ...],
    left: list[Candidate],
) -> dict[str, Any]:
    """What was chosen and why, what it costs to predict and to keep.

    The error of a candidate is that over the folds it was fitted in; one that was left has fewer.
    That of the mean is over the folds that all its parts were fitted in.
    """

    def judged(candidate: Candidate) -> dict[str, Any]:
        prediction = candidate.out_of_fold
        errors, folds = task.rmse(prediction), task.n_folds(prediction)
        return {"name": candidate.name, "rmse": errors, "folds": folds}

    used = shares > 0
    parts = [c.out_of_fold for c, u in zip(candidates, used, strict=True) if u]
    mean = np.tensordot(shares[used], np.stack(parts), axes=1)
    return {
        "candidates": [
            judged(c) | {"weight": float(share)}
            for c, share in zip([*candidates, *left], [*shares, *np.zeros(len(left))], strict=True)
        ],
        "rejected": [judged(candidate) for candidate in task.rejected],
        "rmse": task.rmse(mean),
        "folds": len(task.splits),
        "folds_of_mean": task.n_folds(mean),
        "numbers": sum(member.model.n_numbers for member in members),
        "pairs": sum(member.model.n_pairs for member in members),
        "seconds": task.clock.seconds(),
    }
