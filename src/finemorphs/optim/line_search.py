"""Weak Wolfe line search by bracketing and interpolation.

For phi(t) = f(x + t d) with slope phi'(0) < 0 a step t is taken when

    phi(t) <= phi(0) + c1 t phi'(0)      (decrease; else t is too long)
    phi'(t) >= c2 phi'(0)                (curvature; else t is too short)

with c1 = 1e-4, c2 = 0.9. The decrease is granted within the rounding of the values. A value
that is not finite is a step too long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch

from finemorphs._typing import Tensor
from finemorphs.optim.result import Evaluation

__all__ = ["weak_wolfe"]

E = TypeVar("E", bound=Evaluation)

_C1, _C2 = 1e-4, 0.9
_MAX_EVALUATIONS = 25
_MAX_GROWTH = 4.0


def weak_wolfe(
    function: Callable[[Tensor], E],
    point: Tensor,
    start: E,
    direction: Tensor,
    step: float = 1.0,
) -> tuple[float, Tensor, E | None, int]:
    """A step along the direction, the new point, the function there, and evaluations spent.

    The function is None where no step decreased it.
    """
    slope0 = _dot(start.gradient, direction)
    slack = 4 * torch.finfo(point.dtype).eps * abs(start.value)
    low, low_value, low_slope, high = 0.0, start.value, slope0, math.inf
    best: tuple[float, Tensor, E] | None = None
    for n in range(1, _MAX_EVALUATIONS + 1):
        candidate = torch.add(point, direction, alpha=step)
        current = function(candidate)
        value = current.value
        too_long = not -math.inf < value <= start.value + _C1 * step * slope0 + slack
        if too_long or not bool(torch.isfinite(current.gradient).all()):
            high = step
            step = _shorter(low, low_value, low_slope, high, value)
            continue
        if best is None or value < best[2].value:
            best = (step, candidate, current)
        slope = _dot(current.gradient, direction)
        if slope >= _C2 * slope0:
            return step, candidate, current, n
        longer = _longer(low, low_slope, step, slope, high)
        low, low_value, low_slope, step = step, value, slope, longer
    if best is None:
        return 0.0, point, None, _MAX_EVALUATIONS
    return *best, _MAX_EVALUATIONS


def _shorter(low: float, low_value: float, low_slope: float, high: float, value: float) -> float:
    """Minimum of the parabola through both ends and the lower slope, well inside the bracket."""
    width = high - low
    if not math.isfinite(value):
        return low + 0.1 * width
    curvature = value - low_value - low_slope * width
    fraction = -0.5 * low_slope * width / curvature if curvature > 0 else 0.5
    return low + min(max(fraction, 0.1), 0.5) * width


def _longer(low: float, low_slope: float, step: float, slope: float, high: float) -> float:
    """Where the secant of the slopes vanishes, not beyond the bracket or four times the step."""
    if math.isfinite(high):
        return 0.5 * (step + high)
    change = slope - low_slope
    secant = step - slope * (step - low) / change if change > 0 else math.inf
    return min(max(secant, 1.5 * step), _MAX_GROWTH * step)


def _dot(x: Tensor, y: Tensor) -> float:
    return float(torch.dot(x, y))
