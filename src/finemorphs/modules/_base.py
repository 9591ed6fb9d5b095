"""What a module of a sequence is: a map with parameters, a cost, and the exact gradient of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from finemorphs._typing import Array, Tensor
from finemorphs.engines import Engine

__all__ = ["Backward", "Forward", "Module"]


@dataclass(frozen=True)
class Forward:
    """Output (n, d_out), cost (a float64 scalar) and what the backward pass will want again."""

    output: Tensor
    cost: Tensor
    cache: Any


@dataclass(frozen=True)
class Backward:
    """Costates at the input (n, d_in), flat gradient of the parameters, its natural twin.

    ``natural`` is None where the metric of the module is applied later, at the point where a
    direction is taken (affine modules), or was not asked for.
    """

    costates: Tensor
    gradient: Tensor
    natural: Tensor | None


class Module(Protocol):
    """One step of a sequence: its place, its dimensions, its flat parameters."""

    @property
    def name(self) -> str:
        """The module's letter and place, "A0" or "D1"."""

    @property
    def d_in(self) -> int:
        """Dimension of the states that enter."""

    @property
    def d_out(self) -> int:
        """Dimension of the states that leave."""

    @property
    def n_parameters(self) -> int:
        """Length of the flat parameter vector."""

    @property
    def n_sums(self) -> int:
        """Length of the flat sums that rows which do not steer add up to."""

    def start(self, rng: np.random.Generator) -> Array:
        """Start values of the parameters, flat."""

    def forward(self, engine: Engine, theta: Tensor, x: Tensor) -> Forward:
        """Map the rows that steer, the control points, (n, d_in)."""

    def backward(
        self,
        engine: Engine,
        theta: Tensor,
        cache: Any,
        costates: Tensor,
        natural: bool,
        into: tuple[Tensor, Tensor | None] | None = None,
        sums: Tensor | None = None,
    ) -> Backward:
        """Pull costates at the output back to the input; the cost's gradient is included.

        ``into`` are flat tensors for the gradient and its natural twin, made where not given;
        ``sums`` is what the other rows have added up to, where there are any.
        """
