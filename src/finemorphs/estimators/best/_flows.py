"""The candidates of flows: one fit a fold, each along a path of noise levels.

Two kinds are tried in the first fold, four diffeomorphisms and one with a strong ridge; the first
with each warp of the inputs, the second with the warp that did better. A kind that is near the
better one is fitted in the other folds too, to the level behind its best one, as long as it has a
weight beside the kernels and the kind before it on the rows held out so far, or these are few.
Where the better one is hopeless beside the kernels, none is, and a path that is far behind them is
left at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from finemorphs.estimators._members import Member
from finemorphs.estimators._path import Point, Trial, judged_walk, search
from finemorphs.estimators.best._task import Candidate, Task
from finemorphs.estimators.best._weights import weigh
from finemorphs.training import Progress

if TYPE_CHECKING:
    from finemorphs.estimators.regressor import FineMorphsRegressor

__all__ = ["Flows", "fit_flows"]

KINDS: tuple[dict[str, Any], ...] = (
    {"sequence": "AD^4A", "kernel_width": "decreasing", "n_steps": 5},
    {"sequence": "ADA", "ridge": 4.0, "n_steps": 5},
)
_MANY_ROWS, _OF_MANY_ROWS = 3000, {"AD^4A": {"n_steps": 3}}  # half the time, the same error
_PATH = (1.4, 1.0, 0.7, 0.5)
_NEAR, _HOPELESS = 1.1, 2.0  # mean squared errors, relative to the best flow's, to the kernels',
_FAR = 20.0  # and to the kernels' at a level of a path: the levels behind are hopeless
_ENOUGH = 200  # rows held out, to say that a flow has no weight
# The first A module takes more columns than this to so many dimensions, in which the flow is.
_MANY_COLUMNS, _DIMS = 32, 24
# Up to so many rows all are control points; beyond, a subset of them. In more dimensions than
# _FEW_DIMS both are fewer by their root, so that n^2 d, the cost of all pairs, is bounded.
_FULL_FLOW_ROWS = {"cpu": 3000, "cuda": 50_000}
_SUBSET = {"cpu": 1000, "cuda": 5000}
_FEW_DIMS = 16


@dataclass(frozen=True)
class Flows:
    """The candidates, those left in a fold, a fit that stands for all, and why they ended early.

    ``stopped`` is empty if they did not.
    """

    candidates: list[Candidate]
    left: list[Candidate]
    first: FineMorphsRegressor
    stopped: str


@dataclass(frozen=True)
class _Walk(Trial):
    """A trial, and its fold."""

    fold: int


def fit_flows(
    task: Task, response_warp: str, kernels: Sequence[Candidate], progress: Progress
) -> Flows:
    """Flows with this warp of the response that are worth a weight beside the kernels."""
    to_beat = min(task.error(kernel.out_of_fold, task.splits[0][1]) for kernel in kernels)
    trials = _trials(task, response_warp, to_beat, progress)
    best = min(trials, key=lambda walk: walk.best.error)
    stopped = trials[-1].stopped
    is_hopeless = best.best.error > _HOPELESS * to_beat

    def is_near(trial: _Walk) -> bool:
        alike = trial.options["input_warp"] == best.options["input_warp"]
        near = alike and trial.best.error <= _NEAR * best.best.error
        return trial is best or (near and not is_hopeless)

    task.rejected += [_candidate(task, [trial])[0] for trial in trials if not is_near(trial)]
    if is_hopeless:
        hopeless, fit = _candidate(task, [best])
        return Flows([], [hopeless], fit, stopped)
    near = sorted(filter(is_near, trials), key=lambda walk: walk.best.error)
    kept: list[Candidate] = []
    left: list[Candidate] = []
    first = best.best.fit
    for trial in near:
        walks, counts = [trial], True
        for fold in range(1, len(task.splits)):
            counts = _counts(task, walks, [*kernels, *kept])
            if stopped or not counts:
                break
            take = partial(judged_walk, path=trial.path(behind=1))
            walks.append(_walk(task, trial.options, fold, take, progress))
            stopped = walks[-1].stopped
        candidate, fit = _candidate(task, walks)
        if counts and not kept:
            first = fit
        (kept if counts else left).append(candidate)
    return Flows(kept, left, first, stopped)


def _trials(task: Task, response_warp: str, to_beat: float, progress: Progress) -> list[_Walk]:
    """Paths in the first fold: the first kind with each warp of the inputs, then the others.

    They are left where they are far from what is to beat.
    """
    trials: list[_Walk] = []

    def add(kind: dict[str, Any], input_warp: str, rival: float = math.inf) -> None:
        if trials and trials[-1].stopped:
            return
        warps = {"input_warp": input_warp, "response_warp": response_warp}
        options = _options(task, kind) | warps
        take = partial(search, multiples=_PATH, rival=min(rival, _FAR * to_beat))
        trials.append(_walk(task, options, 0, take, progress))

    for input_warp in task.input_warps:
        add(KINDS[0], input_warp, trials[0].points[0].error if trials else math.inf)
    better = min(trials, key=lambda walk: walk.best.error).options["input_warp"]
    if task.estimator._is_default("sequence"):
        for kind in KINDS[1:]:
            add(kind, better)
    return trials


def _walk(
    task: Task,
    options: dict[str, Any],
    fold: int,
    take: Callable[..., Iterable[Point]],
    progress: Progress,
) -> _Walk:
    """The path that ``take`` takes in a fold, given the estimator, the data and the rows."""

    def points() -> list[Point]:
        flow = task.estimator._twin(**options, max_time=task.clock.left())
        return list(take(flow, (task.X, task.y, task.weights), task.flow_splits[fold]))

    sequence = options.get("sequence", task.estimator.sequence)
    place = f"fold {fold + 1} of {len(task.splits)}"
    name = f"{sequence}, inputs {options['input_warp']}, {place}"
    progress.step(name)
    try:
        walk = _Walk(options, points(), fold)
    except KeyboardInterrupt:  # before the first training of the path: one iteration will do
        task.interrupt()
        walk = _Walk(options, points(), fold)
    progress.say(f"{name}: {walk.best.error**0.5:.4g} standard deviations held out.")
    return walk


def _counts(task: Task, walks: list[_Walk], others: list[Candidate]) -> bool:
    """Whether the fits so far have a weight beside the others, or too few rows to tell."""
    n_held_out = sum(len(task.splits[walk.fold][1]) for walk in walks)
    return n_held_out < _ENOUGH or weigh(task, [*others, _candidate(task, walks)[0]])[-1] > 0


def _candidate(task: Task, walks: list[_Walk]) -> tuple[Candidate, FineMorphsRegressor]:
    """The fits of all folds at the best point, and the first of them."""
    n_points = min(len(walk.points) for walk in walks)
    out_of_fold = np.full((n_points, *task.y.shape), np.nan)
    for walk in walks:
        for k in range(n_points):
            out_of_fold[k, task.splits[walk.fold][1]] = walk.points[k].prediction
    best = int(np.argmin([task.error(o) for o in out_of_fold]))
    fits = [walk.points[best].fit for walk in walks]
    warps = f"inputs {fits[0].input_warp}, response {fits[0].response_warp}"
    name = f"{fits[0].sequence_} ({warps}, {walks[0].points[best].step.multiple} sigma)"
    members = tuple(
        Member(f"{name}, fold {walk.fold + 1}", 1 / len(fits), fit.model_)
        for walk, fit in zip(walks, fits, strict=True)
    )
    return Candidate(name, out_of_fold[best], lambda: members), fits[0]


def _options(task: Task, kind: dict[str, Any]) -> dict[str, Any]:
    """What a flow is where the user has not said otherwise."""
    estimator, dims = task.estimator, task.X.shape[1]
    if len(task.X) > _MANY_ROWS:
        kind = kind | _OF_MANY_ROWS.get(kind["sequence"], {})
    if dims > _MANY_COLUMNS and all(map(estimator._is_default, ("sequence", "dims"))):
        dims = _DIMS
        kind = kind | {"dims": dims}
    options = {k: v for k, v in kind.items() if estimator._is_default(k)}
    device, share = task.device.type, min(1.0, (_FEW_DIMS / dims) ** 0.5)
    if len(task.X) > share * _FULL_FLOW_ROWS[device] and estimator.subset_size is None:
        options["subset_size"] = int(share * _SUBSET[device])
    return options
