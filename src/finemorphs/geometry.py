"""A sequence seen from inside: its inverse, its derivative, how it changes volumes.

All three are of the discrete map, Euler steps and all, not of the flow it approximates. They
are for rows that do not steer; ``centers`` are the paths of the control points in training.
"""

from __future__ import annotations

import torch

from finemorphs._typing import Tensor
from finemorphs.engines import Engine
from finemorphs.modules import Affine, Diffeo
from finemorphs.sequence import ModuleSequence

__all__ = ["invert", "jacobian", "log_determinants"]


def invert(
    sequence: ModuleSequence,
    engine: Engine,
    theta: Tensor,
    centers: list[Tensor],
    states: Tensor,
    n_free: int,
    *,
    exact: bool = True,
    least_norm: bool = False,
) -> Tensor:
    """The rows (n, n_free) whose states behind the last D module are given.

    ``n_free`` is the number of inputs before they are padded; what the dummy columns hold is
    left out. ``exact`` and ``least_norm`` are those of the modules.
    """
    known = reversed(centers)
    passed = list(zip(sequence.modules, sequence.split(theta), strict=True))
    last = max(i for i, module in enumerate(sequence.modules) if isinstance(module, Diffeo))
    for i, (module, part) in reversed(list(enumerate(passed[: last + 1]))):
        if isinstance(module, Diffeo):
            states = module.inverse(engine, part, next(known), states, exact)
        elif isinstance(module, Affine):
            states = module.inverse(part, states, n_free if i == 0 else None, least_norm)
    return states[:, :n_free]


def jacobian(
    sequence: ModuleSequence,
    engine: Engine,
    theta: Tensor,
    centers: list[Tensor],
    x: Tensor,
    n_outputs: int,
) -> Tensor:
    """The derivatives (n, n_outputs, d_0) of the first outputs by the padded inputs x (n, d_0).

    One pass of the adjoint for each output: its costates at the end are a unit vector, those
    at the start the row of the Jacobian.
    """
    states = sequence.trajectory(engine, theta, centers, x)
    inputs = sequence.inputs(x, states)
    unused = x.new_zeros(sequence.n_sums)
    rows = []
    for output in range(n_outputs):
        costates = x.new_zeros(len(x), sequence.d_out)
        costates[:, output] = 1
        rows.append(sequence.pull_back(engine, theta, centers, inputs, states, costates, unused))
    return torch.stack(rows, 1)


def log_determinants(
    sequence: ModuleSequence,
    engine: Engine,
    theta: Tensor,
    centers: list[Tensor],
    x: Tensor,
) -> Tensor:
    """log |det d phi_q| (n, m) of the D modules q = 1..m along the way of the rows x (n, d_0)."""
    states = sequence.trajectory(engine, theta, centers, x)
    passed = zip(sequence.modules, sequence.split(theta), states, strict=True)
    known = iter(centers)
    columns = [
        module.log_determinants(part, next(known), through)
        for module, part, through in passed
        if isinstance(module, Diffeo)
    ]
    return torch.stack(columns, 1) if columns else x.new_zeros(len(x), 0)
