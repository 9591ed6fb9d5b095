"""Losses: what the endpoint cost (1 / sigma^2) sum_k w_k loss(f(x_k), y_k) is made of.

    squared    |f - y|^2
    huber      sum_j h(f_j - y_j),  h(e) = e^2 where |e| <= delta, else 2 delta |e| - delta^2
    logistic   log sum_c exp(f_c) - f_y    (y one-hot), the multinomial log-likelihood

A loss is called once an evaluation and gives values and derivatives together. A loss of your
own is a subclass of :class:`Loss`; it may use every PyTorch operation that does not look at
values on the host (no ``item()``, no ``if`` on a tensor), so that a GPU can record it:

>>> import torch
>>> from finemorphs.losses import Loss
>>> class LogCosh(Loss):
...     curvature = 1.0
...     def __call__(self, outputs, targets):
...         errors = outputs - targets
...         return torch.log(torch.cosh(errors)), torch.tanh(errors)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch

from finemorphs._typing import Tensor

__all__ = ["NAMED", "Huber", "Logistic", "Loss", "Squared"]


class Loss(ABC):
    """A loss of outputs f (n, d_Y) at targets y (n, d_Y), both standardised, row by row.

    Attributes
    ----------
    curvature : float
        Second derivative of the loss by an output near its minimum, in size. The optimiser
        measures steps of the affine modules with it; it changes the way, not the result.
    """

    curvature: ClassVar[float] = 2.0

    @abstractmethod
    def __call__(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Values and derivatives.

        Parameters
        ----------
        outputs, targets : Tensor of shape (n, d_Y)

        Returns
        -------
        values : Tensor of shape (n, d_Y)
            The loss of a row is the sum of its entries, the share of each response.
        derivatives : Tensor of shape (n, d_Y)
            Of the loss of a row by each of its outputs.
        """


class Squared(Loss):
    """The squared error ``|f - y|^2``."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Squared errors, one for each response."""
        errors = outputs - targets
        return errors * errors, 2 * errors


class Huber(Loss):
    """Squared up to ``delta`` standard deviations of the response, and straight beyond.

    Parameters
    ----------
    delta : float, default=0.5
        Errors above it pull with the same force whatever their size.
    """

    def __init__(self, delta: float = 0.5) -> None:
        if not delta > 0:
            raise ValueError(f"delta={delta!r} is not usable; give a positive number.")
        self.delta = delta

    def __call__(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Values h(f - y), one for each response: with c the error cut to delta, c (2 e - c)."""
        errors = outputs - targets
        cut = errors.clamp(-self.delta, self.delta)
        return cut * (2 * errors - cut), 2 * cut

    def __repr__(self) -> str:
        return f"Huber(delta={self.delta!r})"


class Logistic(Loss):
    """Minus the log-likelihood of the class under softmax(f); targets are one-hot."""

    curvature = 0.5

    def __call__(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Minus the log of the probability at the row's class; probabilities minus targets."""
        logs = torch.log_softmax(outputs, dim=1)
        return -targets * logs, logs.exp() - targets


# What a regressor takes by its name.
NAMED: dict[str, type[Loss]] = {"squared": Squared, "huber": Huber}
