"""Candidates that are kernel regressions, up to three for each warp of the inputs.

One has a width for each feature, one mixes the features too, where that is likely, and one has the
same width for all, where rows are few. Their scales are chosen with all rows, so that with k
numbers and n rows they predict too well out of fold. By Akaike's final prediction error, with half
the numbers since they are pulled to their start, their errors are multiplied by

    g = sqrt( (n + k/2) / (n - k/2) )

when the candidates are weighed.

Where there are more rows than a Cholesky factor is taken of, the warp of the response is chosen
with a sample of them. Then scales are found again, on more rows, and the regressions that are kept
are solved for by iterations, with as many rows as find memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from finemorphs._typing import Array
from finemorphs.estimators._data import TrainingRows, prepare
from finemorphs.estimators._members import KernelModel, Member
from finemorphs.estimators.best._task import Candidate, Task
from finemorphs.kernel_regression import (
    Sample,
    Scales,
    likely_common_scales,
    likely_scales,
    mix_features,
    regress,
    regress_many,
)
from finemorphs.training import Progress

__all__ = ["fit_kernels"]

_PLAIN, _MIXED, _COMMON = "kernels", "kernels of mixed features", "kernels of one width"
_FEW_ROWS = 3000  # up to which one width for all features is tried
_COMMON_NUMBERS = 6  # of its scales: three parts, two widths, the noise
_VAST = 1e300  # a scale in whose units every value is 0
_SAMPLE_ROWS = 8000  # of a regression in place of one that would need iterations
_SCALES_ROWS = {"cpu": 1500, "cuda": 2500}
_MIXING_ROWS = {"cpu": 1500, "cuda": 5000}
_MORE_SCALES_ROWS = {"cpu": 3000, "cuda": 3000}  # of large tables
_MORE_MIXING_ROWS = {"cpu": 3000, "cuda": 5000}


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

    def attempt(what: str, warps: tuple[str, str], fit: Callable[[], _Trial | None]) -> None:
        if trials and task.clock.is_over():
            return
        progress.step(_name(what, warps))
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

    few = min(_SAMPLE_ROWS, task.kernel_rows.factor) if task.is_large else len(task.X)
    for response_warp, input_warp in product(task.response_warps, task.input_warps):
        warps = input_warp, response_warp
        attempt(_PLAIN, warps, partial(_plain, task, warps, _SCALES_ROWS, few))
    predictions = {
        warp: [t.candidate.out_of_fold for t in trials if t.warps[1] == warp]
        for warp in dict.fromkeys(trial.warps[1] for trial in trials)
    }
    best = min(predictions, key=lambda warp: task.error(np.mean(predictions[warp], axis=0)))
    kept = {trial.warps: trial for trial in trials if trial.warps[1] == best}
    if task.is_large:
        for warps in kept:
            most = task.kernel_rows.most
            attempt(_PLAIN, warps, partial(_plain, task, warps, _MORE_SCALES_ROWS, most))
        kept |= {trial.warps: trial for trial in trials if trial.warps in kept}
    for trial in kept.values():
        of_rows = _MORE_MIXING_ROWS if task.is_large else _MIXING_ROWS
        attempt(_MIXED, trial.warps, partial(_mixed, task, trial, of_rows))
    if len(task.X) <= _FEW_ROWS and task.X.shape[1] > 1:
        for warps in kept:
            attempt(_COMMON, warps, partial(_common, task, warps))
    task.rejected += [trial.candidate for trial in trials if trial.warps not in kept]
    last = {trial.candidate.name: trial.candidate for trial in trials if trial.warps in kept}
    return best, [*last.values()]


def _plain(task: Task, warps: tuple[str, str], of_rows: dict[str, int], most: int) -> _Trial:
    """Kernel regression with these warps, its scales chosen on a sample, with so many rows."""
    scales = likely_scales(_sample(task, warps, of_rows))
    return _trial(task, _PLAIN, scales, warps, most, len(scales.logarithms))


def _mixed(task: Task, plain: _Trial, of_rows: dict[str, int]) -> _Trial | None:
    """The same with features mixed, if they are, and all rows."""
    scales = mix_features(plain.scales, _sample(task, plain.warps, of_rows))
    if not scales.mixing.any():
        return None
    n_numbers = len(scales.logarithms) + scales.mixing.size + len(scales.sharp)
    return _trial(task, _MIXED, scales, plain.warps, task.kernel_rows.most, n_numbers)


def _common(task: Task, warps: tuple[str, str]) -> _Trial:
    """The same with one width for all features."""
    scales = likely_common_scales(_sample(task, warps, _SCALES_ROWS))
    return _trial(task, _COMMON, scales, warps, task.kernel_rows.most, _COMMON_NUMBERS)


def _name(kind: str, warps: tuple[str, str]) -> str:
    return "{} (inputs {}, response {})".format(kind, *warps)


def _sample(task: Task, warps: tuple[str, str], most: dict[str, int]) -> Sample:
    """As many of all rows as a likelihood is taken of on the device, equal ones one by one."""
    every = np.arange(len(task.X))
    of_all, chosen = _rows(task, every, warps), task.sample(every, most[task.device.type])
    x, y = of_all.x_scaling.apply(task.X[chosen]), of_all.y_scaling.apply(task.y[chosen])
    return Sample.of_arrays(x, y, task.weights[chosen], task.device)


def _trial(
    task: Task, kind: str, scales: Scales, warps: tuple[str, str], most: int, n_numbers: int
) -> _Trial:
    """What scales of so many numbers predict out of fold; the member is fitted to all rows.

    Where that takes long and time is over, it is the one of the last fold.
    """
    name = _name(kind, warps)
    out_of_fold = np.full(task.y.shape, np.nan)
    for train, test in task.splits:
        model = _kernel_model(task, scales, train, warps, most)
        out_of_fold[test] = model.predict(task.X[test], task.engine, task.device)

    def members() -> tuple[Member, ...]:
        if task.is_large and task.clock.is_over():
            return (Member(name, 1.0, model),)
        every = np.arange(len(task.X))
        return (Member(name, 1.0, _kernel_model(task, scales, every, warps, most)),)

    return _Trial(warps, scales, Candidate(name, out_of_fold, members, _caution(task, n_numbers)))


def _caution(task: Task, n_numbers: int) -> float:
    """The factor g of the errors; no more than half as many numbers as rows are counted."""
    n = len(task.X)
    half = min(n_numbers, n / 2) / 2
    return float(((n + half) / (n - half)) ** 0.5)


def _kernel_model(
    task: Task, scales: Scales, chosen: Array, warps: tuple[str, str], most: int
) -> KernelModel:
    """Fitted to the chosen rows, or to a sample of so many; to fewer where iterations fail."""
    rows = _rows(task, task.sample(chosen, most), warps)
    data = scales, rows.x, rows.y, rows.weights, task.device
    factor = task.kernel_rows.factor
    regression = regress(*data) if len(rows.x) <= factor else regress_many(*data)
    if regression is None:
        return _kernel_model(task, scales, chosen, warps, factor)
    return KernelModel(regression, rows.x_scaling, rows.y_scaling)


def _rows(task: Task, chosen: Array, warps: tuple[str, str]) -> TrainingRows:
    """The chosen rows, warped and standardised.

    A column that does not vary among them is 0 at any row: nothing tells how wide its kernel is.
    """
    data = task.X[chosen], task.y[chosen], task.weights[chosen]
    rows = prepare(*data, rng=task.rng, warps=warps)
    still = (rows.x == rows.x[:1]).all(0)
    scaling = replace(rows.x_scaling, scale=np.where(still, _VAST, rows.x_scaling.scale))
    return replace(rows, x=np.where(still, 0.0, rows.x), x_scaling=scaling)
