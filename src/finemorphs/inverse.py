"""The discrete flow from its end to its start, and how it changes volumes.

Notation as in :mod:`finemorphs.flow`: a step takes z to z' = z + dt v(z) with
v(z) = K(z, z_S) a(i). Its inverse is the fixed point of

    z <- z' - dt v(z)

which is found by iteration where dt v contracts, as it does unless a flow is violent for its
number of steps. Where it does not, Newton's method goes on:

    z <- z - (I + dt v'(z))^-1 ( z + dt v(z) - z' ),     v'(z) = sum_l G_l a_l (z - z_l)^T

The volume changes by the product of the det( I + dt v' ) of the steps.
"""

from __future__ import annotations

import torch

from finemorphs._typing import Tensor
from finemorphs.engines import Engine
from finemorphs.kernels import Kernel

__all__ = ["invert", "log_determinants", "reverse"]

_SETTLED = 1e-12  # a change or an error, relative to the largest coordinate
_ITERATIONS = 60  # of the fixed point, then of Newton's method


def invert(
    engine: Engine, kernel: Kernel, points: Tensor, centers: Tensor, controls: Tensor
) -> Tensor:
    """The points (n, d) that the flow takes to the given ones.

    Raises ``ArithmeticError`` where there are none to be found.
    """
    dt = 1.0 / len(controls)
    settled = _SETTLED * max(1.0, float(points.abs().max()))
    for center, control in zip(centers.flip(0), controls.flip(0), strict=True):
        end = points
        for _ in range(_ITERATIONS):
            before, points = points, end - dt * engine.product(kernel, points, center, control)
            moving = ~((points - before).abs().amax(1) <= settled)
            if not moving.any():
                break
        else:
            points[moving] = _newton(kernel, end[moving], center, control, dt, settled)
    return points


def reverse(
    engine: Engine, kernel: Kernel, points: Tensor, centers: Tensor, controls: Tensor
) -> Tensor:
    """The flow of -v by Euler steps: the inverse but for an error of O(dt)."""
    dt = 1.0 / len(controls)
    for center, control in zip(centers.flip(0), controls.flip(0), strict=True):
        points = points - dt * engine.product(kernel, points, center, control)
    return points


def log_determinants(
    kernel: Kernel, states: Tensor, centers: Tensor, controls: Tensor, rows_at_once: int
) -> Tensor:
    """log |det d phi| at the points (n) whose states (T + 1, n, d) are given, some at a time."""
    total = states.new_zeros(states.shape[1])
    dt = 1.0 / len(controls)
    for points, center, control in zip(states[:-1], centers, controls, strict=True):
        for rows in torch.arange(len(points)).split(rows_at_once):
            _, slopes = _step(kernel, points[rows], center, control, dt)
            total[rows] += torch.linalg.slogdet(slopes).logabsdet
    return total


def _newton(
    kernel: Kernel, end: Tensor, center: Tensor, control: Tensor, dt: float, settled: float
) -> Tensor:
    """Newton's method for a few points; a step that does not lower a point's error is halved."""
    points = end
    image, slopes = _step(kernel, points, center, control, dt)
    for _ in range(_ITERATIONS):
        error = image - end
        size = error.norm(dim=1, keepdim=True)
        if size.max() <= settled:
            return points
        move = torch.linalg.solve(slopes, error[:, :, None])[:, :, 0]
        share = torch.ones_like(size)
        for _ in range(_ITERATIONS):
            trial = points - share * move
            image, slopes = _step(kernel, trial, center, control, dt)
            worse = (image - end).norm(dim=1, keepdim=True) > size
            if not worse.any():
                break
            share = torch.where(worse, share / 2, share)
        points = trial
    raise ArithmeticError("a step of the flow has no preimage there that could be found")


def _step(
    kernel: Kernel, points: Tensor, centers: Tensor, control: Tensor, dt: float
) -> tuple[Tensor, Tensor]:
    """Where a step takes the points (n, d), and its derivative I + dt v' there (n, d, d)."""
    u = torch.cdist(points, centers) / kernel.width
    weights = kernel.slope(u) / kernel.width**2
    products = (control[:, :, None] * centers[:, None, :]).flatten(1)
    moments = (weights @ products).view(*points.shape, -1)
    slopes = (weights @ control)[:, :, None] * points[:, None, :] - moments
    one = torch.eye(points.shape[1], dtype=points.dtype, device=points.device)
    return points + dt * (kernel.value(u) @ control), one + dt * slopes
