"""The direction of L-BFGS from the last pairs, with an optional metric.

Nocedal and Wright, Section 7.2.

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

so that the long vectors are touched by four matrix-vector products (five without a metric)
and no Python loop: S g of one iteration gives S y of the next, and of g - Y^T alpha only the
part is made that ``complete`` asks for.
"""

from __future__ import annotations

import torch

from finemorphs._typing import Tensor
from finemorphs.optim.result import Evaluation

__all__ = ["History"]


class History:
    """The last ``memory`` pairs (s, y) and, with a metric, the natural differences z.

    Parameters
    ----------
    memory : int
        How many pairs are kept.
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.steps: Tensor | None = None
        self.differences: Tensor | None = None
        self.naturals: Tensor | None = None
        self._upper: Tensor | None = None  # s_i . y_j where y_j is not older than s_i
        self._order: list[int] = []  # rows from the oldest pair to the newest
        # S g at the evaluation it was last needed for: also gives S y of the next pair.
        self._slopes: tuple[Evaluation, Tensor] | None = None
        self.n_changes = 0  # counted when a change begins

    def __len__(self) -> int:
        return len(self._order)

    def clear(self) -> None:
        """Forget every pair."""
        self.n_changes += 1
        self._order = []
        self._slopes = None

    def state(self) -> dict[str, Tensor]:
        """All pairs as named tensors, views to be copied or written before the next change."""
        used = len(self._order)
        if self.steps is None or self.differences is None or self._upper is None or not used:
            return {}
        tensors = {
            "order": torch.tensor(self._order),
            "steps": self.steps[:used],
            "differences": self.differences[:used],
            "products": self._upper[:used, :used],
        }
        return tensors if self.naturals is None else tensors | {"naturals": self.naturals[:used]}

    def restore(self, state: dict[str, Tensor], like: Tensor) -> None:
        """Take a state; ``like`` is a point, of the device and the precision of the pairs."""
        self.clear()
        if not state:
            return
        steps, differences, upper = self._storage(like, "naturals" in state)
        used = len(state["order"])
        steps[:used] = state["steps"]
        differences[:used] = state["differences"]
        upper[:used, :used] = state["products"]
        if self.naturals is not None:
            self.naturals[:used] = state["naturals"]
        self._order = state["order"].tolist()

    def slopes(self, current: Evaluation) -> Tensor | None:
        """S g at the current evaluation where it is known; to the bit what :meth:`recall` takes."""
        known = self._slopes
        return known[1] if known is not None and known[0] is current else None

    def recall(self, current: Evaluation, slopes: Tensor) -> None:
        """Take S g at the current evaluation as known."""
        self._slopes = (current, slopes.to(current.gradient.device))

    def add(self, step: Tensor, old: Evaluation, new: Evaluation) -> bool:
        """Keep a pair if its curvature s . y is positive; say whether it was kept."""
        difference = new.gradient - old.gradient
        curvature = torch.dot(step, difference)
        floor = torch.finfo(step.dtype).eps * step.norm() * difference.norm()
        if self.memory == 0 or not bool(curvature > floor):
            return False
        self.n_changes += 1
        steps, differences, upper = self._storage(step, new.natural is not None)
        before = self._step_slopes(old)
        self._slopes = None
        after = self._step_slopes(new)
        row = self._order.pop(0) if len(self._order) == self.memory else len(self._order)
        self._order.append(row)
        used = len(self._order)
        upper[: len(after), row] = after - before
        upper[row, row] = curvature
        steps[row] = step
        differences[row] = difference
        if self.naturals is not None and new.natural is not None and old.natural is not None:
            torch.sub(new.natural, old.natural, out=self.naturals[row])
        slopes = after.new_empty(used)
        slopes[: len(after)] = after
        slopes[row] = torch.dot(step, new.gradient)
        self._slopes = (new, slopes)
        return True

    def direction(self, current: Evaluation) -> Tensor:
        """-H g at the current evaluation."""
        natural = current.natural
        if not self._order:
            if natural is None:
                size = float(current.gradient.norm())
                return current.gradient * (-1.0 / max(size, 1e-30))
            return -current.complete(current.gradient, natural)
        steps, differences, products = self._storage(current.gradient, natural is not None)
        used, newest = len(self._order), self._order[-1]
        order = torch.tensor(self._order, device=steps.device)
        s, y = steps[:used], differences[:used]
        upper = products[order][:, order].triu()

        alpha = _solve(upper, self._step_slopes(current)[order], upper=True)
        back = torch.empty_like(alpha).index_copy_(0, order, alpha).to(s.dtype)
        rest = _Combination(current.gradient, y, back)
        if natural is None:
            image, result = y[newest], rest[:]
        else:
            assert self.naturals is not None
            z = self.naturals[:used]
            image = current.complete(y[newest], z[newest])
            result = current.complete(rest, torch.addmv(natural, z.T, back, alpha=-1))
        gamma = upper[-1, -1] / torch.dot(y[newest], image)
        result *= gamma.to(result.dtype)

        right = upper.diagonal() * alpha - (y @ result).double()[order]
        c = _solve(upper.T, right, upper=False)
        forth = torch.empty_like(c).index_copy_(0, order, c).to(s.dtype)
        return torch.addmv(result, s.T, forth).neg_()

    def _step_slopes(self, evaluation: Evaluation) -> Tensor:
        """S g, one number for each pair, in the order of the rows."""
        if self._slopes is None or self._slopes[0] is not evaluation:
            steps = self._storage(evaluation.gradient, evaluation.natural is not None)[0]
            slopes = steps[: len(self._order)] @ evaluation.gradient
            self._slopes = (evaluation, slopes.double())
        return self._slopes[1]

    def _storage(self, like: Tensor, with_metric: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Steps, differences and their products, made when they are first needed."""
        if self.steps is None or self.differences is None or self._upper is None:
            self.steps = like.new_empty(self.memory, len(like))
            self.differences = torch.empty_like(self.steps)
            self.naturals = torch.empty_like(self.steps) if with_metric else None
            self._upper = like.new_zeros(self.memory, self.memory, dtype=torch.float64)
        return self.steps, self.differences, self._upper


class _Combination:
    """gradient - sum_i coefficient_i row_i, of which only the parts that are asked for are made."""

    def __init__(self, gradient: Tensor, rows: Tensor, coefficients: Tensor) -> None:
        self._gradient, self._rows, self._coefficients = gradient, rows, coefficients

    def __getitem__(self, place: slice) -> Tensor:
        rows = self._rows[:, place].T
        return torch.addmv(self._gradient[place], rows, self._coefficients, alpha=-1)


def _solve(matrix: Tensor, right: Tensor, upper: bool) -> Tensor:
    solution: Tensor = torch.linalg.solve_triangular(matrix, right[:, None], upper=upper)
    return solution[:, 0]
