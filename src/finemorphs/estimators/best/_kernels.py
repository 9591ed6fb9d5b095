"""Candidates that are kernel regressions, one for each warp of the inputs."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import numpy as np

from finemorphs._typing import Array
from finemorphs.estimators._data import TrainingRows, prepare
from finemorphs.estimators._members import KernelModel, Member
from finemorphs.estimators.best._task import Candidate, Task
from finemorphs.kernel_regression import Scales, likely_scales, regress
from finemorphs.resources import available
from finemorphs.training import Progress

__all__ = ["fit_kernels"]

_KERNEL_ROWS = 8000  # beyond, a sample of the rows; on a GPU as many as find memory
_KERNEL_MATRICES = 8  # of pairs of rows, held at once
_SCALES_ROWS = {"cpu": 1500, "cuda": 2500}


def fit_kernels(task: Task, progress: Progress) -> tuple[str, list[Candidate]]:
    """The response's warp and the candidates with it, one for each warp of the inputs.

    There is always one; the others are left where time is over or the user interrupts.
    """
    trials: defaultdict[str, list[Candidate]] = defaultdict(list)
    for response_warp, input_warp in product(task.response_warps, task.input_warps):
        if trials and task.clock.is_over():
            break
        try:
            candidate = _kernel(task, input_warp, response_warp)
        except KeyboardInterrupt:
            if not trials:
                raise
            task.interrupt()
            break
        trials[response_warp].append(candidate)
        error = task.error(candidate.out_of_fold) ** 0.5
        progress.say(f"{candidate.name}: {error:.4g} standard deviations held out.")
    errors = {
        warp: task.error(np.mean([c.out_of_fold for c in trial], axis=0))
        for warp, trial in trials.items()
    }
    best = min(errors, key=errors.__getitem__)
    return best, trials[best]


def _kernel(task: Task, *warps: str) -> Candidate:
    """Kernel regression with warps of inputs and response; its scales are chosen on all rows."""
    every = np.arange(len(task.X))
    rows = _rows(task, every, warps)
    sample = _SCALES_ROWS[task.device.type]
    scales = likely_scales(rows.x, rows.y, rows.weights, task.rng, task.device, sample)
    out_of_fold = np.full(task.y.shape, np.nan)
    for train, test in task.splits:
        model = _kernel_model(task, scales, train, warps)
        out_of_fold[test] = model.predict(task.X[test], task.engine, task.device)
    model = _kernel_model(task, scales, every, warps)
    name = "kernels (inputs {}, response {})".format(*warps)
    return Candidate(name, out_of_fold, (Member(name, 1.0, model),))


def _kernel_model(task: Task, scales: Scales, chosen: Array, warps: tuple[str, ...]) -> KernelModel:
    """Fitted to the chosen rows, or to a sample of them where their matrix would not fit."""
    limit = _KERNEL_ROWS
    if task.device.type == "cuda":
        free = available(task.device) or 0
        limit = max(_KERNEL_ROWS, int((free / 8 / _KERNEL_MATRICES) ** 0.5))
    rows = _rows(task, task.sample(chosen, limit), warps)
    regression = regress(scales, rows.x, rows.y, rows.weights, task.device)
    return KernelModel(regression, rows.x_scaling, rows.y_scaling)


def _rows(task: Task, chosen: Array, warps: tuple[str, ...]) -> TrainingRows:
    """The chosen rows, warped and standardised."""
    data = task.X[chosen], task.y[chosen], task.weights[chosen]
    return prepare(*data, rng=task.rng, warps=(warps[0], warps[1]))
