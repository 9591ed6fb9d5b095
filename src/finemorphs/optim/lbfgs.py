"""L-BFGS with weak Wolfe steps and an optional metric (Nocedal and Wright, Section 7.2).

With s = x_new - x_old, y = g_new - g_old, rho = 1 / (s . y), the direction is -H g where

    first loop, newest to oldest:   alpha = rho s . q,   q <- q - alpha y        from q = g
    start:                          r = gamma H0 q,      gamma = s . y / (y . H0 y)
    second loop, oldest to newest:  beta = rho y . r,    r <- r + (alpha - beta) s

H0 is the identity, or a metric that is never formed: evaluations carry its image of their
gradient (``natural``), differences z of these are kept beside y, the first loop runs on
both, and ``complete`` of the current evaluation does what must be done at the current point.

The loops are run on coefficients. With U the upper triangle of the matrix s_i . y_j they are

    U alpha = S g                      r = gamma H0 (g - Y^T alpha)
    U^T c = diag(U) alpha - Y r        H g = r + S^T c

so that the long vectors are touched by a few matrix-vector products and no Python loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from finemorphs._typing import Tensor
from finemorphs.optim.line_search import weak_wolfe
from finemorphs.optim.result import Evaluation, Iteration, Result

__all__ = ["History", "minimize"]

E = TypeVar("E", bound=Evaluation)


@dataclass
class History:
    """The last ``memory`` pairs (s, y) and, with a metric, the natural differences z."""

    memory: int
    steps: Tensor = field(init=False)
    differences: Tensor = field(init=False)
    naturals: Tensor | None = field(init=False, default=None)
    products: Tensor = field(init=False)
    _order: list[int] = field(init=False, default_factory=list)

    def __len__(self) -> int:
        return len(self._order)

    def clear(self) -> None:
        """Forget every pair."""
        self._order = []

    def add(self, step: Tensor, old: Evaluation, new: Evaluation) -> bool:
        """Keep a pair if its curvature s . y is positive; say whether it was kept."""
        if self.memory == 0:
            return False
        if not hasattr(self, "steps"):
            self._allocate(step, new.natural is not None)
        difference = new.gradient - old.gradient
        curvature = torch.dot(step, difference)
        floor = torch.finfo(step.dtype).eps * step.norm() * difference.norm()
        if not bool(curvature > floor):
            return False
        row = self._order.pop(0) if len(self._order) == self.memory else len(self._order)
        self.steps[row] = step
        self.differences[row] = difference
        if self.naturals is not None and new.natural is not None and old.natural is not None:
            torch.sub(new.natural, old.natural, out=self.naturals[row])
        self._order.append(row)
        used = len(self._order)
        self.products[row, :used] = (self.differences[:used] @ step).double()
        self.products[:used, row] = (self.steps[:used] @ difference).double()
        return True

    def direction(self, current: Evaluation) -> Tensor:
        """-H g at the current evaluation."""
        natural = current.natural
        if not self._order:
            if natural is None:
                size = float(current.gradient.norm())
                return current.gradient * (-1.0 / max(size, 1e-30))
            return -current.complete(current.gradient, natural)
        used = len(self._order)
        order = torch.tensor(self._order, device=self.steps.device)
        s, y = self.steps[:used], self.differences[:used]
        upper = self.products[order][:, order].triu()

        alpha = _solve(upper, (s @ current.gradient).double()[order], upper=True)
        back = torch.empty_like(alpha).index_copy_(0, order, alpha).to(s.dtype)
        rest = torch.addmv(current.gradient, y.T, back, alpha=-1)
        newest = self._order[-1]
        if natural is None:
            gamma = upper[-1, -1] / torch.dot(y[newest], y[newest])
        else:
            assert self.naturals is not None
            z = self.naturals[:used]
            rest = current.complete(rest, torch.addmv(natural, z.T, back, alpha=-1))
            image = current.complete(y[newest], z[newest])
            gamma = upper[-1, -1] / torch.dot(y[newest], image)
        rest *= gamma.to(rest.dtype)

        c = _solve(upper.T, upper.diagonal() * alpha - (y @ rest).double()[order], upper=False)
        forth = torch.empty_like(c).index_copy_(0, order, c).to(s.dtype)
        return torch.addmv(rest, s.T, forth).neg_()

    def _allocate(self, like: Tensor, with_metric: bool) -> None:
        self.steps = like.new_empty(self.memory, len(like))
        self.differences = torch.empty_like(self.steps)
        self.naturals = torch.empty_like(self.steps) if with_metric else None
        self.products = like.new_empty(self.memory, self.memory, dtype=torch.float64)


def minimize(
    function: Callable[[Tensor], E],
    start: Tensor,
    *,
    history: History,
    max_iter: int = 2000,
    max_evaluations: int | None = None,
    relative_tolerance: float = 0.0,
    absolute_tolerance: float = 0.0,
    callback: Callable[[Iteration[E]], str | None] | None = None,
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
        Looked at after each iteration.
    relative_tolerance, absolute_tolerance : float
        The end is reached when the decrease over one iteration is under
        ``max(absolute_tolerance, relative_tolerance * |f|)``; both 0: never.
    callback : callable, optional
        Called at each iteration; a sentence it returns ends the minimisation with that status.

    Returns
    -------
    Result
        Where it ended; values that are not finite are never accepted.
    """
    point, current, n_evaluations = start.clone(), function(start), 1
    if not math.isfinite(current.value):
        return _result(point, current, 0, 1, "The function is not finite at the start.", False)
    for iteration in range(max_iter):
        direction = history.direction(current)
        slope = float(torch.dot(current.gradient, direction))
        if not slope < 0 and len(history):
            history.clear()
            direction = history.direction(current)
            slope = float(torch.dot(current.gradient, direction))
        if not slope < 0:
            status = "The gradient vanished." if slope == 0 else "The direction does not descend."
            return _result(point, current, iteration, n_evaluations, status, slope == 0)
        step, candidate, accepted, spent = weak_wolfe(function, point, current, direction)
        n_evaluations += spent
        if accepted is None:
            if len(history):
                history.clear()
                continue
            status = "No step along the steepest descent lowers the value any further."
            return _result(point, current, iteration, n_evaluations, status, True)
        history.add(candidate - point, current, accepted)
        decrease = current.value - accepted.value
        point, current = candidate, accepted
        stop = None
        if callback is not None:
            stop = callback(Iteration(iteration + 1, n_evaluations, point, current, step, decrease))
        if stop is not None:
            return _result(point, current, iteration + 1, n_evaluations, stop, False)
        tolerance = max(absolute_tolerance, relative_tolerance * abs(current.value))
        if tolerance > 0 and decrease < tolerance:
            status = "The decrease over one iteration fell under the tolerance."
            return _result(point, current, iteration + 1, n_evaluations, status, True)
        if max_evaluations is not None and n_evaluations >= max_evaluations:
            status = f"The limit of {max_evaluations} evaluations was reached."
            return _result(point, current, iteration + 1, n_evaluations, status, False)
    status = f"The limit of {max_iter} iterations was reached."
    return _result(point, current, max_iter, n_evaluations, status, False)


def _solve(matrix: Tensor, right: Tensor, upper: bool) -> Tensor:
    solution: Tensor = torch.linalg.solve_triangular(matrix, right[:, None], upper=upper)
    return solution[:, 0]


def _result(
    point: Tensor, current: E, iterations: int, evaluations: int, status: str, converged: bool
) -> Result[E]:
    norm = float(current.gradient.norm())
    return Result(point, current, norm, iterations, evaluations, status, converged)
