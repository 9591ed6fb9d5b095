"""The noise level by rows held out: ``noise="cv"``, and "auto" where there are many rows.

Fits along a path of noise levels (:mod:`._path`) with half the time steps, or a third where there
are several flows, are judged on rows held out. The model that is kept takes the second half of the
best path with all rows, from the affine modules that were found on it: they are what training is
slow to find. With the level go the kernel's order, the ridge and the widths: where an affine module
that feeds a flow may grow, it spreads the rows apart until each is fitted by itself, at any level
of noise. The last module only scales what the flows have reached, so that the ridge may be strong
on the others alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.model_selection import train_test_split

from finemorphs._typing import Array
from finemorphs.engines import choose_engine
from finemorphs.estimators._path import (
    Clock,
    EndedError,
    Point,
    Step,
    Trial,
    mean_error,
    search,
    stop_reason,
    walk,
)
from finemorphs.notation import parse
from finemorphs.training import INTERRUPTED, Progress, join

if TYPE_CHECKING:
    from finemorphs.estimators._model import Model
    from finemorphs.estimators.regressor import FineMorphsRegressor

__all__ = ["MANY", "PATH", "choose_noise"]

MANY = 5_000  # rows, from which on noise="auto" holds some of them out
PATH = (1.4, 1.0, 0.7, 0.5, 0.35)  # multiples of the estimated noise level
_ROUGH = 1  # the order of the kernel that is tried beside the default
_WEAK, _STRONG = 0.25, 4.0  # ridges that are tried beside the default
_WIDE = 4.0  # times the widths that a word stands for
_NEAR = 1.03  # times the least mean squared error: a strong ridge is tried with such a kernel too
_MOST = 300  # iterations of a level
_WORSE = 1.05  # times the least error of a path: the levels behind are not tried
_SHORT = 2  # steps; a longer path is not walked whole with all rows
_HELD_OUT = 0.2  # share of the rows
_WORTH = 0.99  # times the least mean squared error: what is chosen later has to lower it so far
_NO_PATH = np.empty((0, 7))


def choose_noise(
    estimator: FineMorphsRegressor,
    X: Array,
    y: Array,
    weights: Array,
    rng: np.random.Generator,
    progress: Progress,
) -> tuple[FineMorphsRegressor, Array]:
    """A twin trained on all rows to the best kernel, ridge and level, and what was tried.

    The rows of the table are the steps of all paths, its columns those of :func:`_row`. Where the
    search is ended from outside, the twin is the best one that it had reached, without the rows
    held out and with fewer time steps, and the table is empty. So they are where the last fit is
    ended so early that it is worse on these rows, though it has seen them.
    """
    tried = _NoiseSearch(estimator, (X, y, weights), rng, progress)
    try:
        tried.try_all()
    except EndedError as ended:
        return ended.fit, _NO_PATH
    best, options, path = tried.chosen.best, tried.chosen.options, tried.chosen.path()
    table, start = tried.table(), None
    tried.trials.clear()  # the models of all steps, before the largest training begins
    if len(path) > _SHORT:
        path, start = path[len(path) // 2 :], best.fit.model_.at_rest()
    progress.step("the best of them, with all rows")
    fit = _walk_whole(tried.twin(options), tried.data, path, start)
    reason = INTERRUPTED if fit is None else stop_reason(fit)
    if fit is None or (reason and tried.error(fit) > best.error):
        return EndedError(best.fit, reason).fit, _NO_PATH
    return fit, table


class _NoiseSearch:
    """Paths of an estimator with fewer time steps, judged on a fifth of the rows."""

    def __init__(
        self,
        estimator: FineMorphsRegressor,
        data: tuple[Array, Array, Array],
        rng: np.random.Generator,
        progress: Progress,
    ) -> None:
        self.data = data
        self.trials: list[Trial] = []
        self._estimator, self._progress = estimator, progress
        self._clock = Clock(estimator.max_time)
        n, seed = len(data[0]), int(rng.integers(2**31))
        self._fold = train_test_split(np.arange(n), test_size=_HELD_OUT, random_state=seed)

    def twin(self, options: dict[str, Any]) -> FineMorphsRegressor:
        """The estimator with these options in place of its own, for the time that is left."""
        return self._estimator._twin(**options, max_time=self._clock.left())

    def try_all(self) -> None:
        """All paths that may be worth it; an :class:`EndedError` where one is ended from outside.

        A rough kernel is tried beside the default one. Where the error falls to the end of a path,
        it goes on with a weak ridge; else a strong one is tried, with the better kernel, or with
        both if they are near. Then one that is strong in front of the flows alone, with the best
        kernel; where the widths are a word ("decreasing"), which gives their shape, they are wide
        with it, and it is tried only if a strong ridge is best. What the user has given stays.
        """
        try:
            self._try_all()
        except KeyboardInterrupt:  # between two trainings
            if not self.trials:
                raise
            raise EndedError(self.chosen.best.fit, INTERRUPTED) from None

    def _try_all(self) -> None:
        estimator = self._estimator
        ridge_is_free = estimator._is_default("ridge")
        weak = _WEAK if ridge_is_free else None
        self._attempt(weak)
        if estimator.kernel == "matern" and estimator._is_default("kernel_order"):
            self._attempt(weak, kernel_order=_ROUGH)
        if not ridge_is_free:
            return
        near = _NEAR * min(trial.best.error for trial in self.trials)
        for trial in tuple(self.trials):
            if trial.best.error <= near and trial.best.step.multiple > PATH[-1]:
                self._attempt(**trial.options, ridge=_STRONG)
        self._try_before_flows()

    def _try_before_flows(self) -> None:
        """A strong ridge in front of the flows alone, with the best kernel.

        Widths that are a word are wide with it; that pays only where a strong ridge is best.
        """
        best, ridge = self.chosen, _before_flows(self._estimator.sequence, _STRONG)
        if isinstance(self._estimator.kernel_width, str):
            if "ridge" in best.options:
                widths = [_WIDE * d.kernel.width for d in best.best.fit.model_.sequence.diffeos]
                self._attempt(**best.options | {"ridge": ridge or _STRONG, "kernel_width": widths})
        elif ridge is not None and best.best.step.multiple > PATH[-1]:
            self._attempt(**best.options | {"ridge": ridge})

    def _attempt(self, weak_ridge: float | None = None, **options: Any) -> None:
        cheap = self.twin(options | {"n_steps": _fewer(self._estimator)})
        self._progress.step(f"{_words(cheap, options)}, judged by rows held out")
        points = search(
            cheap, self.data, self._fold, PATH, most=_MOST, worse=_WORSE, weak_ridge=weak_ridge
        )
        trial = Trial(options, points)
        self.trials.append(trial)
        if trial.stopped:
            raise EndedError(self.chosen.best.fit, trial.stopped)
        self._progress.say(
            f"{_words(trial.best.fit, options)}, {trial.best.step.multiple:g} times the estimated "
            f"noise level: {trial.best.error**0.5:.4g} standard deviations held out."
        )

    @property
    def chosen(self) -> Trial:
        """The last trial that was worth more than the best one before it."""
        best = self.trials[0]
        for trial in self.trials[1:]:
            if trial.best.error < _WORTH * best.best.error:
                best = trial
        return best

    def table(self) -> Array:
        """The points of all trials, a row each."""
        return np.array([_row(trial, point) for trial in self.trials for point in trial.points])

    def error(self, fit: FineMorphsRegressor) -> float:
        """The mean squared error of a fit on the rows that were held out."""
        test = self._fold[1]
        X, y, weights = (array[test] for array in self.data)
        engine, device = choose_engine(fit.engine, fit.device)
        return mean_error(fit.model_.predict(X, engine, device), y, weights)


def _walk_whole(
    estimator: FineMorphsRegressor,
    data: tuple[Array, Array, Array],
    path: list[Step],
    start: Model | None,
) -> FineMorphsRegressor | None:
    """The last fit of a path, with the history of all its steps; None if there was no first one."""
    fit, evaluations, histories = None, 0, list[dict[str, Array]]()
    try:
        for _, fit in walk(estimator, *data, path, start):
            evaluations += fit.n_evaluations_
            histories.append(fit.history_)
            if stop_reason(fit):
                break
    except KeyboardInterrupt:  # between two trainings
        if fit is not None:
            fit.status_, fit.converged_ = INTERRUPTED, False
    if fit is not None:
        fit.n_evaluations_, fit.history_ = evaluations, join(histories)
        fit.n_iter_ = len(fit.history_["iteration"])
    return fit


def _before_flows(sequence: str, strength: float) -> list[float] | None:
    """A ridge for each A module: strong where a flow is behind it, the default 1 elsewhere.

    None if a flow is behind all of them, or behind none.
    """
    letters = parse(sequence)
    feeds = [i < letters.rfind("D") for i, letter in enumerate(letters) if letter == "A"]
    if all(feeds) or not any(feeds):
        return None
    return [strength if feeds_one else 1.0 for feeds_one in feeds]


def _fewer(estimator: FineMorphsRegressor) -> int | list[int]:
    """Half the time steps, rounded up; a third, rounded, of each where there are several flows."""
    n_steps, several = estimator.n_steps, parse(estimator.sequence).count("D") > 1
    fewer = [max(1, round(n / 3)) if several else -(-int(n) // 2) for n in np.atleast_1d(n_steps)]
    return fewer if np.ndim(n_steps) else fewer[0]


def _words(fit: FineMorphsRegressor, options: dict[str, Any]) -> str:
    """What a path tries, for the screen."""
    order = f" of order {fit.kernel_order}" if fit.kernel == "matern" else ""
    wide = "wide " if "kernel_width" in options else ""
    return f"{wide}{fit.kernel} kernel{order}, ridge {fit.ridge}"


def _row(trial: Trial, point: Point) -> list[float]:
    """Order, first ridge, multiple, error held out, evaluations, times the widths, last ridge."""
    fit, multiple = point.fit, point.step.multiple
    first, last = np.atleast_1d(fit.ridge)[[0, -1]]
    widths = _WIDE if "kernel_width" in trial.options else 1.0
    return [fit.kernel_order, first, multiple, point.error, fit.n_evaluations_, widths, last]
