"""The candidate of flows: one fit a fold, each along a path of noise levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from finemorphs.estimators._members import Member
from finemorphs.estimators._path import Level, judged_walk, stop_reason
from finemorphs.estimators.best._task import Candidate, Task
from finemorphs.training import Progress

if TYPE_CHECKING:
    from finemorphs.estimators.regressor import FineMorphsRegressor

__all__ = ["fit_flows"]

FLOW: dict[str, Any] = {"sequence": "AD^4A", "kernel_width": "decreasing", "n_steps": 5}
_PATH = (1.4, 1.0, 0.7, 0.5)
_FULL_FLOW_ROWS = 3000  # on the CPU; beyond, a subset of control points
_SUBSET = 1000


@dataclass(frozen=True)
class _Walk:
    """The levels of a path in a fold."""

    fold: int
    levels: list[Level]

    @property
    def error(self) -> float:
        """At the best level."""
        return min(level.error for level in self.levels)

    @property
    def stopped(self) -> str:
        """Why the path was left early, if it was."""
        return stop_reason(self.levels[-1].fit)


def fit_flows(
    task: Task, response_warp: str, progress: Progress
) -> tuple[Candidate, FineMorphsRegressor, str]:
    """A fit for each fold at the best level, the first of them, and why they ended early."""
    walks = _walks(task, _options(task) | {"response_warp": response_warp}, progress)
    n_levels = min(len(w.levels) for w in walks)
    out_of_fold = np.full((n_levels, *task.y.shape), np.nan)
    for w in walks:
        for level in range(n_levels):
            out_of_fold[level, task.splits[w.fold][1]] = w.levels[level].prediction
    level = int(np.argmin([task.error(o) for o in out_of_fold]))
    fits = [w.levels[level].fit for w in walks]
    warps = f"inputs {fits[0].input_warp}, response {response_warp}"
    name = f"{fits[0].sequence_} ({warps}, {_PATH[level]} sigma)"
    members = tuple(
        Member(f"{name}, fold {w.fold + 1}", 1 / len(fits), fit.model_)
        for w, fit in zip(walks, fits, strict=True)
    )
    return Candidate(name, out_of_fold[level], members), fits[0], walks[-1].stopped


def _walks(task: Task, options: dict[str, Any], progress: Progress) -> list[_Walk]:
    """All folds, with the warp of the inputs that does better in the first, as far as there."""
    trials: dict[str, _Walk] = {}
    for warp in task.input_warps:
        trials[warp] = _walk_fold(task, options | {"input_warp": warp}, 0, _PATH, progress)
        if trials[warp].stopped:
            break
    best = min(trials, key=lambda warp: trials[warp].error)
    walks = [trials[best]]
    options = options | {"input_warp": best}
    for fold in range(1, len(task.splits)):
        if any(w.stopped for w in trials.values()) or walks[-1].stopped:
            break
        walks.append(_walk_fold(task, options, fold, _PATH[: len(walks[0].levels)], progress))
    return walks


def _walk_fold(
    task: Task, options: dict[str, Any], fold: int, path: Sequence[float], progress: Progress
) -> _Walk:
    flow = task.estimator._twin(**options, max_time=task.clock.left())
    data = task.X, task.y, task.weights
    levels = judged_walk(flow, data, task.splits[fold], path, whole=fold > 0)
    result = _Walk(fold, levels)
    progress.say(
        f"{levels[0].fit.sequence_}, inputs {options['input_warp']}, fold {fold + 1} of "
        f"{len(task.splits)}: {result.error**0.5:.4g} standard deviations held out."
    )
    return result


def _options(task: Task) -> dict[str, Any]:
    """What a flow is where the user has not said otherwise."""
    options = {k: v for k, v in FLOW.items() if task.estimator._is_default(k)}
    many = task.device.type == "cpu" and len(task.X) > _FULL_FLOW_ROWS
    if many and task.estimator.subset_size is None:
        options["subset_size"] = _SUBSET
    return options
