"""L-BFGS with weak Wolfe steps: the loop around :mod:`finemorphs.optim.history`.

x <- x - t H g(x),   t by the weak Wolfe conditions,   history dropped when a search fails
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch

from finemorphs._typing import Tensor
from finemorphs.optim.history import History
from finemorphs.optim.line_search import weak_wolfe
from finemorphs.optim.result import Evaluation, Iteration, Past, Result

__all__ = ["minimize"]

E = TypeVar("E", bound=Evaluation)


def minimize(
    function: Callable[[Tensor], E],
    start: Tensor,
    *,
    history: History,
    max_iter: int = 2000,
    max_evaluations: int | None = None,
    relative_tolerance: float = 0.0,
    absolute_tolerance: float = 0.0,
    smoothing: float = 0.0,
    lower_bound: float = -math.inf,
    callback: Callable[[Iteration[E]], str | None] | None = None,
    past: Past | None = None,
) -> Result[E]:
    """Minimise a function of one flat tensor.

    Parameters
    ----------
    function : callable
        Gives an :class:`Evaluation` at a point.
    start : Tensor
    history : History
        Pairs to begin with, usually none; holds those of the end afterwards.
    max_iter : int
    max_evaluations : int, optional
        Looked at before each iteration.
    relative_tolerance, absolute_tolerance : float
        The end is reached when the decrease over one iteration is under
        ``max(absolute_tolerance, relative_tolerance * |f|)``; both 0: never.
    smoothing : float
        The decrease that is judged is ``smoothing`` times that of the iteration before (|f| at
        the start) plus ``1 - smoothing`` times the last one, so that one short step among long
        ones does not end it.
    lower_bound : float
        Of the function. A parabola with the slope of a step falls to its bottom within
        ``2 (f - lower_bound) / |slope|``, so that no longer step is tried first.
    callback : callable, optional
        Called at each iteration; a sentence it returns ends the minimisation with that status.
    past : Past, optional
        Of a minimisation that goes on from ``start`` with the history it had there.

    Returns
    -------
    Result
        Where it ended; values that are not finite are never accepted.
    """
    past = past or Past()
    point, current, n_evaluations = start, function(start), max(past.n_evaluations, 1)
    iteration, decrease = past.n_iterations, past.decrease
    if past.slopes is not None:
        history.recall(current, past.slopes)
    if not math.isfinite(current.value):
        return _result(point, current, 0, 1, "The function is not finite at the start.", False)
    while True:
        tolerance = max(absolute_tolerance, relative_tolerance * abs(current.value))
        if tolerance > 0 and decrease < tolerance:
            status = "The decrease over one iteration fell under the tolerance."
            return _result(point, current, iteration, n_evaluations, status, True)
        if max_evaluations is not None and n_evaluations >= max_evaluations:
            status = f"The limit of {max_evaluations} evaluations was reached."
            return _result(point, current, iteration, n_evaluations, status, False)
        if iteration >= max_iter:
            status = f"The limit of {max_iter} iterations was reached."
            return _result(point, current, iteration, n_evaluations, status, False)
        direction = history.direction(current)
        slope = float(torch.dot(current.gradient, direction))
        if not slope < 0 and len(history):
            history.clear()
            direction = history.direction(current)
            slope = float(torch.dot(current.gradient, direction))
        if not slope < 0:
            status = "The gradient vanished." if slope == 0 else "The direction does not descend."
            return _result(point, current, iteration, n_evaluations, status, slope == 0)
        reach = 2 * (current.value - lower_bound) / -slope
        first = min(1.0, reach) if reach > 0 else 1.0
        step, candidate, accepted, spent = weak_wolfe(function, point, current, direction, first)
        n_evaluations += spent
        if accepted is None:
            if len(history):
                history.clear()
                iteration += 1
                continue
            status = "No step along the steepest descent lowers the value any further."
            return _result(point, current, iteration, n_evaluations, status, True)
        history.add(candidate - point, current, accepted)
        last = current.value - accepted.value
        before = abs(current.value) if math.isinf(decrease) else decrease
        decrease = smoothing * before + (1 - smoothing) * last
        point, current = candidate, accepted
        iteration += 1
        stop = None
        if callback is not None:
            stop = callback(
                Iteration(iteration, n_evaluations, point, current, step, last, decrease)
            )
        if stop is not None:
            return _result(point, current, iteration, n_evaluations, stop, False)


def _result(
    point: Tensor, current: E, iterations: int, evaluations: int, status: str, converged: bool
) -> Result[E]:
    norm = float(current.gradient.norm())
    return Result(point, current, norm, iterations, evaluations, status, converged)
