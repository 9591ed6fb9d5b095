"""The discrete flow of a D module, its energy and its exact adjoint (paper, Sections 6 to 9).

Notation: points z, of which the control points z_S steer, controls a(i) for the steps
i = 0..T-1 with dt = 1/T, kernel K(x, y) = kappa(|x - y| / h) I.

Forward:    v = K(z, z_S) a(i);    z <- z + dt v;    energy += dt sum(a(i) * v_S)

Backward, with the costates P = dG/dz (the paper's are p = -P), from the end to the start;
z and a are those of step i, P on the right is that of step i + 1, and G_kl stands for
g(|z_k - z_l| / h) / h^2:

    dG/da = dt ( K(z_S, z) P + 2 K(z_S, z_S) a )
    P_k  += dt   sum_{l in S} G_kl (z_k - z_l) (P_k . a_l)
    P_k  += dt [ sum_{j}      G_kj (z_k - z_j) (a_k . P_j)
             + 2 sum_{l in S} G_kl (z_k - z_l) (a_k . a_l) ]        for k in S

The control points know nothing of the other points on their way forward (``forward``), and
these, given the way of the control points, know nothing of each other (``transport``, and
``transport_back`` for their costates). What they do to the control points on the way back
are two sums over them at each step, their ``Load``:

    reaction_k = sum_{j not in S} G_kj (z_k - z_j) (a_k . P_j)        pullback = K(z_S, z) P

``backward`` adds them to what the control points do to each other. So the other points can
come in any number of blocks, from any number of places.

In words of the code: ``states`` z, ``controls`` a, ``centers`` z_S, ``costates`` P.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from finemorphs._typing import Tensor
from finemorphs.engines import Engine
from finemorphs.kernels import Kernel

__all__ = ["Adjoint", "Load", "Trajectory", "backward", "forward", "transport", "transport_back"]

# Added to the unit diagonal of K_SS before it is factorised: above what rounding takes from it.
_RIDGE = {torch.float32: 1e-3, torch.float64: 1e-4}
_MATRIX_NUMBERS = 2**22  # in matrices K_SS of several steps that a GPU factorises together
_ROWS = 128  # of K_SS that a processor fills in at a time


@dataclass(frozen=True)
class Trajectory:
    """The states of every step, (T + 1, N_S, d), and the energy of the flow, a scalar."""

    states: Tensor
    energy: Tensor


@dataclass(frozen=True)
class Load:
    """What other points do to the control points: sums (T, N_S, d) in double precision."""

    reaction: Tensor
    pullback: Tensor


@dataclass(frozen=True)
class Adjoint:
    """What the backward pass gives.

    ``costates`` dG/dz at the start (N_S, d), ``gradient`` dG/da (T, N_S, d), and ``natural``
    the gradient in the metric of the vector fields, K_SS^-1 dG/da / (2 dt), where asked for.
    """

    costates: Tensor
    gradient: Tensor
    natural: Tensor | None


def forward(engine: Engine, kernel: Kernel, points: Tensor, controls: Tensor) -> Trajectory:
    """Carry the control points (N_S, d) along the flow that they steer."""
    step = 1.0 / len(controls)
    states = points.new_empty(len(controls) + 1, *points.shape)
    states[0] = points
    energy = torch.zeros((), dtype=torch.float64, device=points.device)
    for i, control in enumerate(controls):
        velocity = engine.self_product(kernel, states[i], control)
        torch.add(states[i], velocity, alpha=step, out=states[i + 1])
        energy += step * (control * velocity).sum(dtype=torch.float64)
    return Trajectory(states, energy)


def backward(
    engine: Engine,
    kernel: Kernel,
    trajectory: Trajectory,
    controls: Tensor,
    costates: Tensor,
    natural: bool = False,
    into: tuple[Tensor, Tensor | None] | None = None,
    load: Load | None = None,
) -> Adjoint:
    """Carry the control points' costates back to the start of the flow, energy included.

    ``into`` are tensors shaped like the controls for the gradient and its natural twin; they
    are made where not given. ``load`` comes from the other points, where there are any.
    """
    step = 1.0 / len(controls)
    if into is None:
        into = torch.empty_like(controls), torch.empty_like(controls) if natural else None
    gradient, metric_gradient = into
    for i in reversed(range(len(controls))):
        states, control = trajectory.states[i], controls[i]
        if metric_gradient is not None and load is None:
            # K_SS^-1 cancels the factor of dG/da = 2 dt K_SS (a + P/2): no solve.
            torch.add(control, costates, alpha=0.5, out=metric_gradient[i])
        change, pullback = engine.self_adjoint(kernel, states, costates, control)
        if load is not None:
            change = (change + load.reaction[i]).to(costates.dtype)
            pullback = (pullback + load.pullback[i]).to(costates.dtype)
        torch.mul(pullback, step, out=gradient[i])
        costates = costates + step * change
        if metric_gradient is not None and load is not None:
            torch.mul(pullback, 0.5, out=metric_gradient[i])
    if metric_gradient is not None and load is not None:
        _solve(engine, kernel, trajectory.states, metric_gradient)
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


def transport_back(
    engine: Engine,
    kernel: Kernel,
    states: Tensor,
    centers: Tensor,
    controls: Tensor,
    costates: Tensor,
    load: Load,
) -> Tensor:
    """The costates of other points at the start of the flow; their sums are added to the load."""
    step = 1.0 / len(controls)
    for i in reversed(range(len(controls))):
        force, reaction, pullback = engine.adjoint(
            kernel, states[i], centers[i], costates, costates, controls[i]
        )
        load.reaction[i] += reaction
        load.pullback[i] += pullback
        costates = torch.add(costates, force, alpha=step)
    return costates


def _solve(engine: Engine, kernel: Kernel, centers: Tensor, right: Tensor) -> None:
    """(K_SS + ridge I)^-1 right of every step, in place, in the precision of the controls.

    It is a metric for the optimiser: single precision is enough, where the factor exists in it.
    """
    at_once = max(1, _MATRIX_NUMBERS // centers.shape[1] ** 2) if centers.is_cuda else 1

    def solve(steps: tuple[Tensor, Tensor]) -> None:
        part, z = steps
        z = (z - z.mean(1, keepdim=True)) / kernel.width
        for dtype in (right.dtype, torch.float64):
            matrices = _lower(kernel, z.to(dtype))
            matrices.diagonal(dim1=1, dim2=2).add_(_RIDGE[dtype])
            factors, failures = torch.linalg.cholesky_ex(
                matrices, check_errors=dtype == torch.float64
            )
            if not failures.any():
                break
        part.copy_(torch.cholesky_solve(part.to(dtype), factors))

    engine.for_each(solve, zip(right.split(at_once), centers[:-1].split(at_once), strict=True))


def _lower(kernel: Kernel, z: Tensor) -> Tensor:
    """kappa(|z_k - z_l|) for l <= k of each batch: all that a Cholesky factor asks for.

    On a processor some rows at a time, which stay in its cache.
    """
    matrices, n = z.new_zeros(*z.shape[:2], z.shape[1]), z.shape[1]
    rows = n if z.is_cuda else _ROWS
    for i in range(0, n, rows):
        part = slice(i, i + rows)
        matrices[:, part, : i + rows] = kernel.value(torch.cdist(z[:, part], z[:, : i + rows]))
    return matrices
