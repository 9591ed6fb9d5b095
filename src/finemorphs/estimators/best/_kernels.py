"""Candidates that are kernel regressions, one or two for each warp of the inputs.

One has a width for each feature, the other mixes the features too, where that is likely.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from finemorphs._typing import Array
from finemorphs.estimators._data import TrainingRows, prepare
from finemorphs.estimators._members import KernelModel, Member
from finemorphs.estimators.best._task import Candidate, Task
from finemorphs.kernel_regression import Sample, Scales, likely_scales, mix_features, regress
from finemorphs.resources import available
from finemorphs.training import Progress

__all__ = ["fit_kernels"]

_KERNEL_ROWS = 8000  # beyond, a sample of the rows; on a GPU as many as find memory
_KERNEL_MATRICES = 8  # of pairs of rows, held at once
_SCALES_ROWS = {"cpu": 1500, "cuda": 2500}
_MIXING_ROWS = {"cpu": 1500, "cuda": 5000}


@dataclass(frozen=True)
class _Trial:
    """Scales with warps of inputs and response, and what they predict."""

    warps: tuple[str, str]
    scales: Scales
    candidate: Candidate


def fit_kernels(task: Task, progress: Progress) -> tuple[str, list[Candidate]]:
    """The response's warp and the candidates with it.

    There is always one; the others are left where time is over or the user interrupts.
    """
    trials: list[_Trial] = []

    def attempt(fit: Callable[[], _Trial | None]) -> None:
        if trials and task.clock.is_over():
            return
        try:
            trial = fit()
        except KeyboardInterrupt:
            if not trials:
                raise
            task.interrupt()
            return
        if trial is None:
            return
        trials.append(trial)
        candidate = trial.candidate
        error = task.error(candidate.out_of_fold) ** 0.5
        progress.say(f"{candidate.name}: {error:.4g} standard deviations held out.")

    for response_warp, input_warp in product(task.response_warps, task.input_warps):
        attempt(partial(_plain, task, (input_warp, response_warp)))
    predictions = {
        warp: [t.candidate.out_of_fold for t in trials if t.warps[1] == warp]
        for warp in dict.fromkeys(trial.warps[1] for trial in trials)
    }
    best = min(predictions, key=lambda warp: task.error(np.mean(predictions[warp], axis=0)))
    for trial in [trial for trial in trials if trial.warps[1] == best]:
        attempt(partial(_mixed, task, trial))
    return best, [trial.candidate for trial in trials if trial.warps[1] == best]


def _plain(task: Task, warps: tuple[str, str]) -> _Trial:
    """Kernel regression with these warps; its scales are chosen on all rows."""
    scales = likely_scales(_sample(task, warps, _SCALES_ROWS))
    name = "kernels (inputs {}, response {})".format(*warps)
    return _Trial(warps, scales, _candidate(task, name, scales, warps))


def _mixed(task: Task, plain: _Trial) -> _Trial | None:
    """The same with features mixed, if they are."""
    warps = plain.warps
    scales = mix_features(plain.scales, _sample(task, warps, _MIXING_ROWS))
    if not scales.mixing.any():
        return None
    name = "kernels of mixed features (inputs {}, response {})".format(*warps)
    return _Trial(warps, scales, _candidate(task, name, scales, warps))


def _sample(task: Task, warps: tuple[str, str], most: dict[str, int]) -> Sample:
    """As many of all rows as a likelihood is taken of on the device."""
    every = np.arange(len(task.X))
    rows, chosen = _rows(task, every, warps), task.sample(every, most[task.device.type])
    return Sample.of_arrays(rows.x[chosen], rows.y[chosen], rows.weights[chosen], task.device)


def _candidate(task: Task, name: str, scales: Scales, warps: tuple[str, str]) -> Candidate:
    """What the scales predict out of fold; the member is fitted to all rows."""
    out_of_fold = np.full(task.y.shape, np.nan)
    for train, test in task.splits:
        model = _kernel_model(task, scales, train, warps)
        out_of_fold[test] = model.predict(task.X[test], task.engine, task.device)

    def members() -> tuple[Member, ...]:
        every = np.arange(len(task.X))
        return (Member(name, 1.0, _kernel_model(task, scales, every, warps)),)

    return Candidate(name, out_of_fold, members)


def _kernel_model(task: Task, scales: Scales, chosen: Array, warps: tuple[str, str]) -> KernelModel:
    """Fitted to the chosen rows, or to a sample of them where their matrix would not fit."""
    limit = _KERNEL_ROWS
    if task.device.type == "cuda":
        free = available(task.device) or 0
        limit = max(_KERNEL_ROWS, int((free / 8 / _KERNEL_MATRICES) ** 0.5))
    rows = _rows(task, task.sample(chosen, limit), warps)
    regression = regress(scales, rows.x, rows.y, rows.weights, task.device)
    return KernelModel(regression, rows.x_scaling, rows.y_scaling)


def _rows(task: Task, chosen: Array, warps: tuple[str, str]) -> TrainingRows:
    """The chosen rows, warped and standardised."""
    data = task.X[chosen], task.y[chosen], task.weights[chosen]
    return prepare(*data, rng=task.rng, warps=warps)
