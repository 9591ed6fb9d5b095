"""The objective of a sequence, its exact gradient and its natural gradient (paper, Section 3).

    G(theta) = sum_q d_V(id, phi_q)^2 + lambda sum_q |M_q - C_q|^2
               + (1 / sigma^2) sum_k w_k loss(pi_r(f(x_k)), y_k)

The loss is the paper's |f - y|^2, or another of :mod:`finemorphs.losses`. The three parts are
called energy, affine and endpoint. One forward and one backward pass give the value, the
gradient, and what the metric of the optimiser needs:

    controls:         K_SS^-1 dG/da / (2 dt)
    affine module q:  dG/d[M b] ( 2 lambda I' + (c / sigma^2) s_q sum_k w_k xi xi^T )^-1

with xi = (state, 1), s_m = 4 for the last A module and s_q = |M_(q+1)|^2 / d for the others.
The Gauss-Newton value of c, the curvature of the loss (2 for the squared error), makes the
affine modules crawl, since the controls follow every affine move and only the Schur complement
of the curvature is left; a hundredth of it stands for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import torch

from finemorphs._typing import Tensor, Vector
from finemorphs.engines import Engine
from finemorphs.losses import Loss, Squared
from finemorphs.modules import Affine, Forward
from finemorphs.sequence import ModuleSequence

__all__ = ["Evaluation", "Objective"]

_SHARE = 0.01  # c over the curvature of the loss
_LAST = 4.0  # s_m


@dataclass(frozen=True)
class Evaluation:
    """G at a point.

    Attributes
    ----------
    value : float
        G.
    gradient : Tensor
        dG/dtheta, flat.
    natural : Tensor or None
        The gradient with the metric of the controls applied, where asked for.
    energy, affine, endpoint : float
        The three parts of G.
    losses : Tensor
        Weighted sum over rows of the loss, one for each response (or one in all), standardised.
    affine_metrics : tuple
        For each A module its place in the gradient, itself, and its metric at this point.
    """

    value: float
    gradient: Tensor
    natural: Tensor | None
    energy: float
    affine: float
    endpoint: float
    losses: Tensor
    affine_metrics: tuple[tuple[slice, Affine, Tensor], ...] = ()

    def complete(self, vector: Vector, natural: Tensor) -> Tensor:
        """The metric at this point applied to a combination of gradients.

        ``natural`` is the same combination of natural gradients: right on the controls as it
        is; on the affine modules the metric of this point is solved for, which is all that
        ``vector`` is asked for.
        """
        result = natural.clone()
        for (place, module, _), factor in zip(self.affine_metrics, self._factors, strict=True):
            result[place] = module.solve(factor, vector[place])
        return result

    @cached_property
    def _factors(self) -> list[Tensor]:
        """Cholesky factors of the affine metrics."""
        return [torch.linalg.cholesky(metric) for _, _, metric in self.affine_metrics]


class Objective:
    """G for one training set.

    Parameters
    ----------
    sequence : ModuleSequence
    engine : Engine
    inputs : Tensor
        Standardised and padded rows (N, d_0), the control points first.
    targets : Tensor
        Standardised responses (N, d_Y).
    weights : Tensor or None
        A weight for each row.
    loss : Loss, optional
        The squared error where not given.
    """

    def __init__(
        self,
        sequence: ModuleSequence,
        engine: Engine,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor | None = None,
        loss: Loss | None = None,
    ) -> None:
        self.sequence = sequence
        self.engine = engine
        self.inputs = inputs
        self.targets = targets
        self.weights = weights
        self.loss = Squared() if loss is None else loss
        # With a subset the metric of the controls is solved for on the host's command.
        full = sequence.n_controls == len(inputs)
        record = engine.recorded if full else (lambda function: function)
        self._passes = record(partial(self._both_passes, natural=False))
        self._natural_passes = record(partial(self._both_passes, natural=True))

    def evaluate(self, theta: Tensor, sigma: float, natural: bool = True) -> Evaluation:
        """Value, gradient and, if asked for, the natural gradient at theta."""
        precision = torch.tensor(sigma**-2, dtype=torch.float64, device=theta.device)
        passes = self._natural_passes if natural else self._passes
        parts, losses, gradient, *extra = passes(theta, precision)
        energy, affine, endpoint = parts.tolist()
        return Evaluation(
            value=energy + affine + endpoint,
            gradient=gradient,
            natural=extra[0] if natural else None,
            energy=energy,
            affine=affine,
            endpoint=endpoint,
            losses=losses,
            affine_metrics=tuple(
                (place, module, metric)
                for (place, module), metric in zip(self._affine_places(), extra[1:], strict=natural)
            ),
        )

    def _both_passes(self, theta: Tensor, precision: Tensor, natural: bool) -> tuple[Tensor, ...]:
        """Forward and backward, tensors in and tensors out, with precision = 1 / sigma^2.

        Gives the parts of G, the losses, the gradient and, with the natural gradient,
        that and the metric of each A module.
        """
        n_responses = self.targets.shape[1]
        steps = self.sequence.forward(self.engine, theta, self.inputs)
        output = steps[-1].output
        values, derivatives = self.loss(output[:, :n_responses], self.targets)
        if self.weights is not None:
            values = values * self.weights[:, None]
            derivatives = derivatives * self.weights[:, None]
        losses = values.sum(0, dtype=torch.float64)
        costates = torch.zeros_like(output)
        costates[:, :n_responses] = derivatives * precision.to(derivatives.dtype)
        gradient, twin = self.sequence.backward(self.engine, theta, steps, costates, natural)
        energy, affine = _costs(self.sequence, steps)
        parts = torch.stack([energy, affine, losses.sum() * precision])
        if twin is None:
            return parts, losses, gradient
        return parts, losses, gradient, twin, *self._metrics(theta, steps, precision)

    def _affine_places(self) -> list[tuple[slice, Affine]]:
        """Each A module and where its parameters stand."""
        return [
            (place, module)
            for place, module in zip(self.sequence.places, self.sequence.modules, strict=True)
            if isinstance(module, Affine)
        ]

    def _metrics(self, theta: Tensor, steps: list[Forward], precision: Tensor) -> list[Tensor]:
        """The metric of each A module at theta, in their order."""
        states = [
            step.cache
            for module, step in zip(self.sequence.modules, steps, strict=True)
            if isinstance(module, Affine)
        ]
        metrics: list[Tensor] = []
        share = _SHARE * self.loss.curvature * precision
        curvature = _LAST * share
        for (place, module), x in reversed(list(zip(self._affine_places(), states, strict=True))):
            metrics.append(module.metric(x, self.weights, curvature))
            matrix = module.views(theta[place])[0]
            curvature = share * matrix.square().sum() / matrix.shape[1]
        return metrics[::-1]


def _costs(sequence: ModuleSequence, steps: list[Forward]) -> tuple[Tensor, Tensor]:
    """The energy of all D modules and the cost of all A modules."""
    zero = torch.zeros((), dtype=torch.float64, device=steps[0].cost.device)
    energy, affine = zero, zero
    for module, step in zip(sequence.modules, steps, strict=True):
        if isinstance(module, Affine):
            affine = affine + step.cost
        else:
            energy = energy + step.cost
    return energy, affine
