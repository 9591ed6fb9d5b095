"""What the optimiser asks of a function, and what it gives back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from finemorphs._typing import Tensor, Vector

__all__ = ["Evaluation", "Iteration", "Past", "Result"]


class Evaluation(Protocol):
    """A function at a point: value, gradient and, where there is a metric, its parts."""

    @property
    def value(self) -> float:
        """The value, possibly not finite."""

    @property
    def gradient(self) -> Tensor:
        """The gradient, flat."""

    @property
    def natural(self) -> Tensor | None:
        """The metric's image of the gradient, carried linearly; None without a metric."""

    def complete(self, vector: Vector, natural: Tensor) -> Tensor:
        """The metric at this point applied to ``vector``, given its carried image."""


E = TypeVar("E", bound=Evaluation)


@dataclass(frozen=True)
class Iteration(Generic[E]):
    """One accepted step, as a callback sees it; ``judged`` is the smoothed decrease."""

    number: int
    n_evaluations: int
    point: Tensor
    evaluation: E
    step: float
    decrease: float
    judged: float


@dataclass(frozen=True)
class Past:
    """What was before, where a minimisation goes on.

    Iterations, evaluations, the smoothed decrease, and the slopes of the history at the point. The
    evaluation there is made again and counted once.
    """

    n_iterations: int = 0
    n_evaluations: int = 0
    decrease: float = math.inf
    slopes: Tensor | None = None


@dataclass(frozen=True)
class Result(Generic[E]):
    """Where a minimisation ended.

    Attributes
    ----------
    point : Tensor
        The last point that was accepted; the best one, up to the rounding of the values.
    evaluation : Evaluation
        The function there.
    gradient_norm : float
        Euclidean norm of the gradient there.
    n_iterations, n_evaluations : int
    status : str
        Why it ended, as a sentence.
    converged : bool
        Whether the decrease fell under the tolerance.
    """

    point: Tensor
    evaluation: E
    gradient_norm: float
    n_iterations: int
    n_evaluations: int
    status: str
    converged: bool

    @property
    def value(self) -> float:
        """The value there."""
        return self.evaluation.value
