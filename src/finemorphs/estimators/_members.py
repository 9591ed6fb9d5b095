"""What a fitted estimator predicts with: one model, or several with weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from finemorphs._typing import Array
from finemorphs.engines import Engine
from finemorphs.estimators._data import Scaling, in_units
from finemorphs.estimators._model import Model
from finemorphs.kernel_regression import KernelRegression

__all__ = ["KernelModel", "Member", "average", "mean_and_spread"]


@dataclass(frozen=True, repr=False)
class KernelModel:
    """Kernel regression with the scalings around it, in the units of the data."""

    regression: KernelRegression
    x_scaling: Scaling
    y_scaling: Scaling

    def __repr__(self) -> str:
        n_rows, n_features = self.regression.points.shape
        return f"KernelModel({n_rows} rows of {n_features} features)"

    def predict(self, table: Array, engine: Engine, device: torch.device) -> Array:
        """Responses (n, d_Y) in their own units."""
        return self.y_scaling.responses(self.regression.predict(self.x_scaling.apply(table)))

    def jacobian(self, table: Array) -> Array:
        """Derivatives (n, d_Y, d_X) of the responses by the inputs, in their own units."""
        x = self.x_scaling.apply(table)
        response_slope = self.y_scaling.response_slope(self.regression.predict(x))
        return in_units(self.regression.jacobian(x), self.x_scaling.slope(table), response_slope)

    @property
    def n_numbers(self) -> int:
        """How many numbers the model holds."""
        return self.regression.points.numel() + self.regression.coefficients.numel()

    @property
    def n_pairs(self) -> int:
        """Kernel evaluations that the prediction of a row takes."""
        return len(self.regression.points)


@dataclass(frozen=True)
class Member:
    """A model of an ensemble, with its name and its weight; the weights add up to 1."""

    name: str
    weight: float
    model: Model | KernelModel


def average(members: Sequence[Member], of: Callable[[Model | KernelModel], Array]) -> Array:
    """The weighted mean over the members of an array that each of them gives."""
    return sum(
        (member.weight * of(member.model) for member in members[1:]),
        start=members[0].weight * of(members[0].model),
    )


def mean_and_spread(
    members: Sequence[Member], of: Callable[[Model | KernelModel], Array]
) -> tuple[Array, Array]:
    """The weighted mean and standard deviation over the members of such an array."""
    values = np.stack([of(member.model) for member in members])
    weights = np.array([member.weight for member in members])
    mean = np.tensordot(weights, values, axes=1)
    return mean, np.sqrt(np.tensordot(weights, (values - mean) ** 2, axes=1))
