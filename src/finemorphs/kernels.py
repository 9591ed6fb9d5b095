"""Radial profiles of the reproducing kernels and their slopes (paper, Section 8).

A kernel is K(x, y) = kappa(|x - y| / h) I_d, and all that the flow and its adjoint ask of
it are two functions of u = |x - y| / h,

    value  kappa(u)             with kappa(0) = 1,
    slope  g(u) = kappa'(u) / u  so that  grad_1 K(x, y) = g(u) / h^2 (x - y).

A Matern kernel of order n is a polynomial of degree n times e^-u, and its slope one of
degree n - 1 times e^-u; the Gaussian is e^(-u^2/2). No other file knows a formula: the
engines take the coefficients from here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from finemorphs._typing import Tensor

__all__ = ["FAMILIES", "MATERN_ORDERS", "Kernel"]

FAMILIES = ("matern", "gaussian")

# order -> coefficients of 1, u, u^2, ... before e^-u, of kappa and of g
_MATERN: dict[int, tuple[tuple[float, ...], tuple[float, ...]]] = {
    1: ((1.0, 1.0), (-1.0,)),
    2: ((1.0, 1.0, 1 / 3), (-1 / 3, -1 / 3)),
    3: ((1.0, 1.0, 0.4, 1 / 15), (-3 / 15, -3 / 15, -1 / 15)),
    4: (
        (1.0, 1.0, 45 / 105, 10 / 105, 1 / 105),
        (-15 / 105, -15 / 105, -6 / 105, -1 / 105),
    ),
}
MATERN_ORDERS = tuple(_MATERN)

_FAR = 1e4  # where e^-u is 0 in any precision, and a power of u is still a number


@dataclass(frozen=True)
class Kernel:
    """A scalar radial kernel ``kappa(|x - y| / width)``.

    Parameters
    ----------
    family : {"matern", "gaussian"}
    order : {1, 2, 3, 4}
        Smoothness of a Matern kernel; 3 is the paper's. The Gaussian does not use it.
    width : float
        The width h > 0.
    """

    family: str = "matern"
    order: int = 3
    width: float = 0.5

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(
                f"kernel {self.family!r} is not known; choose one of {', '.join(FAMILIES)}."
            )
        if self.family == "matern" and self.order == 0:
            raise ValueError(
                "kernel_order=0 is the exponential kernel e^-u, which is not C^1 at 0: its flow "
                "has no derivative there and need not be a diffeomorphism; use order 1 to 4."
            )
        if self.family == "matern" and self.order not in _MATERN:
            raise ValueError(
                f"kernel_order={self.order!r} is not a Matern order; choose one of 1, 2, 3, 4."
            )
        if not (math.isfinite(self.width) and self.width > 0):
            raise ValueError(
                f"kernel_width={self.width!r} is not a width; give a positive, finite number."
            )

    @property
    def is_gaussian(self) -> bool:
        """Whether the decay is e^(-u^2/2) and not a polynomial times e^-u."""
        return self.family == "gaussian"

    @property
    def value_coefficients(self) -> tuple[float, ...]:
        """Coefficients of 1, u, u^2, ... in kappa, before the exponential."""
        return (1.0,) if self.is_gaussian else _MATERN[self.order][0]

    @property
    def slope_coefficients(self) -> tuple[float, ...]:
        """Coefficients of 1, u, u^2, ... in g(u) = kappa'(u)/u, before the exponential."""
        return (-1.0,) if self.is_gaussian else _MATERN[self.order][1]

    def value(self, u: Tensor) -> Tensor:
        """kappa(u)."""
        return _polynomial(self.value_coefficients, u) * self._decay(u)

    def slope(self, u: Tensor) -> Tensor:
        """g(u) = kappa'(u) / u."""
        return _polynomial(self.slope_coefficients, u) * self._decay(u)

    def _decay(self, u: Tensor) -> Tensor:
        return torch.exp(-0.5 * u * u) if self.is_gaussian else torch.exp(-u)

    def __str__(self) -> str:
        name = "Gaussian" if self.is_gaussian else f"Matern-{self.order}"
        return f"{name}, width {self.width:g}"


def _polynomial(coefficients: tuple[float, ...], u: Tensor) -> Tensor:
    u = u.clamp(max=_FAR)
    result = torch.full_like(u, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result * u + c
    return result
