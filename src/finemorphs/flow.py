"""The discrete flow of a D module, its energy and its exact adjoint (paper, Sections 6 to 9).

Notation: points z (N of them, the control points z_S first), controls a(i) for the steps
i = 0..T-1 with dt = 1/T, kernel K(x, y) = kappa(|x - y| / h) I.

Forward:    v = K(z, z_S) a(i);    z <- z + dt v;    energy += dt sum(a(i) * v_S)

Backward, with the costates P = dG/dz (the paper's are p = -P), from the end to the start;
z and a are those of step i, P on the right is that of step i + 1, and G_kl stands for
g(|z_k - z_l| / h) / h^2:

    dG/da = dt ( K(z_S, z) P + 2 K(z_S, z_S) a )
    P_k  += dt   sum_{l in S} G_kl (z_k - z_l) (P_k . a_l)
    P_k  += dt [ sum_{j}      G_kj (z_k - z_j) (a_k . P_j)
             + 2 sum_{l in S} G_kl (z_k - z_l) (a_k . a_l) ]        for k in S

With p = P + a and q = P + 2a on the control points (p = q = P elsewhere) these are the
pair sums force, reaction and pullback of :mod:`finemorphs.engines._base` (``self_adjoint``,
where all points are control points, takes P and a as they are): the energy's terms ride
along with the costates', and no pair is visited twice.

In words of the code: ``states`` z, ``controls`` a, ``centers`` z_S, ``costates`` P.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from finemorphs._typing import Tensor
from finemorphs.engines import Engine
from finemorphs.kernels import Kernel

__all__ = ["Adjoint", "Trajectory", "backward", "forward", "transport"]

# Added to the unit diagonal of K_SS before it is factorised.
_RIDGE = 1e-4


@dataclass(frozen=True)
class Trajectory:
    """The states of every step, (T + 1, N, d), and the energy of the flow, a scalar."""

    states: Tensor
    energy: Tensor


@dataclass(frozen=True)
class Adjoint:
    """What the backward pass gives.

    ``costates`` dG/dz at the start (N, d), ``gradient`` dG/da (T, N_S, d), and ``natural``
    the gradient in the metric of the vector fields, K_SS^-1 dG/da / (2 dt), where asked for.
    """

    costates: Tensor
    gradient: Tensor
    natural: Tensor | None


def forward(engine: Engine, kernel: Kernel, points: Tensor, controls: Tensor) -> Trajectory:
    """Carry the points along the flow; the first ``controls.shape[1]`` of them steer it."""
    n_steps, n_controls, _ = controls.shape
    step = 1.0 / n_steps
    states = points.new_empty(n_steps + 1, *points.shape)
    states[0] = points
    energy = torch.zeros((), dtype=torch.float64, device=points.device)
    for i, control in enumerate(controls):
        velocity = _velocity(engine, kernel, states[i], control)
        torch.add(states[i], velocity, alpha=step, out=states[i + 1])
        energy += step * (control * velocity[:n_controls]).sum(dtype=torch.float64)
    return Trajectory(states, energy)


def backward(
    engine: Engine,
    kernel: Kernel,
    trajectory: Trajectory,
    controls: Tensor,
    costates: Tensor,
    natural: bool = False,
    into: tuple[Tensor, Tensor | None] | None = None,
) -> Adjoint:
    """Carry the costates at the end of the flow back to its start, energy included.

    ``into`` are tensors shaped like the controls for the gradient and its natural twin; they
    are made where not given.
    """
    n_steps, n_controls, _ = controls.shape
    step = 1.0 / n_steps
    full = n_controls == costates.shape[0]
    if into is None:
        into = torch.empty_like(controls), torch.empty_like(controls) if natural else None
    gradient, metric_gradient = into
    for i in reversed(range(n_steps)):
        states, control = trajectory.states[i], controls[i]
        if metric_gradient is not None and full:
            # K_SS^-1 cancels the factor of dG/da = 2 dt K_SS (a + P/2): no solve.
            torch.add(control, costates, alpha=0.5, out=metric_gradient[i])
        change, pullback = _pull_back(engine, kernel, states, control, costates)
        torch.mul(pullback, step, out=gradient[i])
        costates = costates + step * change
        if metric_gradient is not None and not full:
            metric_gradient[i] = _solve(kernel, states[:n_controls], pullback / 2)
    return Adjoint(costates, gradient, metric_gradient)


def transport(
    engine: Engine, kernel: Kernel, points: Tensor, centers: Tensor, controls: Tensor
) -> Tensor:
    """The states (T + 1, n, d) of other points in the flow whose centers (T, N_S, d) are known."""
    states = points.new_empty(len(controls) + 1, *points.shape)
    states[0] = points
    for i, (center, control) in enumerate(zip(centers, controls, strict=True)):
        velocity = engine.product(kernel, states[i], center, control)
        torch.add(states[i], velocity, alpha=1.0 / len(controls), out=states[i + 1])
    return states


def _velocity(engine: Engine, kernel: Kernel, states: Tensor, control: Tensor) -> Tensor:
    if len(control) == len(states):
        return engine.self_product(kernel, states, control)
    return engine.product(kernel, states, states[: len(control)], control)


def _pull_back(
    engine: Engine, kernel: Kernel, states: Tensor, control: Tensor, costates: Tensor
) -> tuple[Tensor, Tensor]:
    """The change of the costates over one step and the pullback, both without the factor dt."""
    n_controls = len(control)
    if n_controls == len(states):
        return engine.self_adjoint(kernel, states, costates, control)
    p, q = costates.clone(), costates.clone()
    p[:n_controls] += control
    q[:n_controls] += 2 * control
    force, reaction, pullback = engine.adjoint(kernel, states, states[:n_controls], p, q, control)
    force[:n_controls] += reaction
    return force, pullback


def _solve(kernel: Kernel, centers: Tensor, right: Tensor) -> Tensor:
    """(K_SS + ridge I)^-1 right, in double precision."""
    centers = centers.double()
    matrix = kernel.value(torch.cdist(centers, centers) / kernel.width)
    matrix.diagonal().add_(_RIDGE)
    factor = torch.linalg.cholesky(matrix)
    return torch.cholesky_solve(right.double(), factor).to(right.dtype)
