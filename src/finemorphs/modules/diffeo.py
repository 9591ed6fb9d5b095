"""D modules: the diffeomorphism at time 1 of a flow, with its energy as cost (paper, Section 7).

    cost = d_V(id, phi)^2, discretised:  dt sum_i sum(a(i) * K(z_S, z_S) a(i))

The mathematics is in :mod:`finemorphs.flow`; this file gives it parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from finemorphs import flow, inverse
from finemorphs._typing import Array, Tensor
from finemorphs.engines import Engine
from finemorphs.exceptions import NotInvertibleError
from finemorphs.kernels import Kernel
from finemorphs.modules._base import Backward, Forward

__all__ = ["Diffeo"]

_NUMBERS_AT_ONCE = 2**22  # pairs of rows and control points held in memory


@dataclass(frozen=True)
class Diffeo:
    """The flow of ``n_controls`` control points in ``dim`` dimensions.

    Parameters
    ----------
    name : str
    dim : int
    kernel : Kernel
    n_steps : int
        Number T of Euler steps.
    n_controls : int
        Number N_S of control points, the first rows of the training data.
    """

    name: str
    dim: int
    kernel: Kernel
    n_steps: int
    n_controls: int

    @property
    def d_in(self) -> int:
        """Dimension of the states that enter."""
        return self.dim

    @property
    def d_out(self) -> int:
        """Dimension of the states that leave, the same."""
        return self.dim

    @property
    def n_parameters(self) -> int:
        """T N_S d."""
        return self.n_steps * self.n_controls * self.dim

    @property
    def n_sums(self) -> int:
        """The reaction and the pullback of other rows, both shaped like the controls."""
        return 2 * self.n_parameters

    def controls(self, theta: Tensor) -> Tensor:
        """The controls a, (T, N_S, d), in the flat parameters."""
        return theta.view(self.n_steps, self.n_controls, self.dim)

    def start(self, rng: np.random.Generator) -> Array:
        """No motion: a = 0."""
        return np.zeros(self.n_parameters)

    def forward(self, engine: Engine, theta: Tensor, x: Tensor) -> Forward:
        """Flow the control points."""
        trajectory = flow.forward(engine, self.kernel, x, self.controls(theta))
        return Forward(trajectory.states[-1], trajectory.energy, trajectory)

    def backward(
        self,
        engine: Engine,
        theta: Tensor,
        cache: flow.Trajectory,
        costates: Tensor,
        natural: bool,
        into: tuple[Tensor, Tensor | None] | None = None,
        sums: Tensor | None = None,
    ) -> Backward:
        """Pull costates back through the flow."""
        if into is not None:
            gradient, twin = into
            into = self.controls(gradient), None if twin is None else self.controls(twin)
        adjoint = flow.backward(
            engine,
            self.kernel,
            cache,
            self.controls(theta),
            costates,
            natural,
            into,
            None if sums is None else self._load(sums),
        )
        flat = None if adjoint.natural is None else adjoint.natural.view(-1)
        return Backward(adjoint.costates, adjoint.gradient.view(-1), flat)

    def transport(self, engine: Engine, theta: Tensor, centers: Tensor, x: Tensor) -> Tensor:
        """The states (T + 1, n, d) of other rows, given the centers (T, N_S, d) of training."""
        return flow.transport(engine, self.kernel, x, centers, self.controls(theta))

    def transport_back(
        self,
        engine: Engine,
        theta: Tensor,
        centers: Tensor,
        states: Tensor,
        costates: Tensor,
        sums: Tensor,
    ) -> Tensor:
        """Pull the costates of other rows back through their states; adds to the sums."""
        return flow.transport_back(
            engine,
            self.kernel,
            states,
            centers,
            self.controls(theta),
            costates,
            self._load(sums),
        )

    def inverse(
        self, engine: Engine, theta: Tensor, centers: Tensor, z: Tensor, exact: bool = True
    ) -> Tensor:
        """The rows that enter where z leaves; not exact: by the flow run backwards."""
        solve = inverse.invert if exact else inverse.reverse
        try:
            return solve(engine, self.kernel, z, centers, self.controls(theta))
        except ArithmeticError as error:
            raise NotInvertibleError(
                f"{self.name} cannot be inverted at these states: {error}; fit with more than "
                f"{self.n_steps} steps, or ask for method='reverse'."
            ) from error

    def log_determinants(self, theta: Tensor, centers: Tensor, states: Tensor) -> Tensor:
        """log |det d phi| for rows (n) whose states (T + 1, n, d) are given."""
        at_once = max(1, _NUMBERS_AT_ONCE // max(self.n_controls, self.dim**2))
        return inverse.log_determinants(self.kernel, states, centers, self.controls(theta), at_once)

    def _load(self, sums: Tensor) -> flow.Load:
        """The sums of other rows by their names."""
        return flow.Load(*sums.view(2, self.n_steps, self.n_controls, self.dim))
