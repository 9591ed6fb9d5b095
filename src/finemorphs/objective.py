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

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial

import torch

from finemorphs._typing import Tensor, Vector
from finemorphs.distributed import ALONE, Group
from finemorphs.engines import Engine
from finemorphs.losses import Loss, Squared
from finemorphs.modules import Affine, Forward
from finemorphs.rows import Rows
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
        Weighted sum over rows of the loss, the share of each response, standardised.
    mass : float
        Sum of the weights of all rows.
    measured : Tensor or None
        Weighted sum over rows of what the objective measures beside, if it does.
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
    mass: float
    measured: Tensor | None = None
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
    others : iterable of Rows, optional
        Further rows that are not control points, in blocks; they are run through once for each
        evaluation. ``inputs`` then holds the control points alone.
    group : Group, optional
        The processes that share the other rows; each has its own in ``others``.
    measure : callable, optional
        Takes outputs and targets as the loss does, and gives values (n, d_Y) that are summed
        beside it, for the record alone.
    """

    def __init__(
        self,
        sequence: ModuleSequence,
        engine: Engine,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor | None = None,
        loss: Loss | None = None,
        *,
        others: Iterable[Rows] | None = None,
        group: Group = ALONE,
        measure: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        self.sequence = sequence
        self.engine = engine
        self.loss = Squared() if loss is None else loss
        rows = Rows(inputs, targets, weights)
        n_controls = sequence.n_controls or len(rows)
        self.controls = rows[:n_controls]
        self._others = rows[n_controls:].blocks() if others is None else others
        self.group = group
        self._measure = measure
        self._alone = others is None and not self._others
        # With other rows the metric of the controls is solved for on the host's command.
        record = engine.recorded if self._alone else (lambda function: function)
        self._passes = record(partial(self._both_passes, natural=False))
        self._natural_passes = record(partial(self._both_passes, natural=True))

    def evaluate(self, theta: Tensor, sigma: float, natural: bool = True) -> Evaluation:
        """Value, gradient and, if asked for, the natural gradient at theta."""
        precision = torch.tensor(sigma**-2, dtype=torch.float64, device=theta.device)
        passes = self._natural_passes if natural else self._passes
        parts, sums, gradient, *extra = passes(theta, precision)
        energy, affine, endpoint, mass = parts.tolist()
        losses, measured = (sums, None) if self._measure is None else sums.chunk(2)
        return Evaluation(
            value=energy + affine + endpoint,
            gradient=gradient,
            natural=extra[0] if natural else None,
            energy=energy,
            affine=affine,
            endpoint=endpoint,
            losses=losses,
            mass=mass,
            measured=measured,
            affine_metrics=tuple(
                (place, module, metric)
                for (place, module), metric in zip(self._affine_places(), extra[1:], strict=natural)
            ),
        )

    def _both_passes(self, theta: Tensor, precision: Tensor, natural: bool) -> tuple[Tensor, ...]:
        """Forward and backward, tensors in and tensors out, with precision = 1 / sigma^2.

        The control points go forward; the other rows, block by block, go forward and back;
        with what they add up to the control points go back. Gives the parts of G with the
        mass, the losses and what is measured, the gradient and, with the natural gradient, that
        and the metric of each A module.
        """
        sequence, controls = self.sequence, self.controls
        steps = sequence.forward(self.engine, theta, controls.inputs)
        totals, costates = self._endpoint(controls, steps[-1].output, precision)
        sums = None
        if not self._alone:
            sums = _Sums(sequence, len(totals), theta.device)
            self._add_others(sums, theta, sequence.paths(steps), precision, natural)
            totals += sums.totals
        gradient, twin = sequence.backward(
            self.engine, theta, steps, costates, natural, None if sums is None else sums.modules
        )
        energy, affine = _costs(sequence, steps)
        mass, sums_of_rows = totals[0], totals[1:]
        losses = sums_of_rows[: controls.targets.shape[1]]
        parts = torch.stack([energy, affine, losses.sum() * precision, mass])
        if twin is None:
            return parts, sums_of_rows, gradient
        inputs = [controls.inputs, *(step.output for step in steps[:-1])]
        grams = self._grams(controls, inputs)
        if sums is not None:
            grams = [one + other for one, other in zip(grams, sums.grams, strict=True)]
        return parts, sums_of_rows, gradient, twin, *self._metrics(theta, grams, precision)

    def _add_others(
        self,
        sums: _Sums,
        theta: Tensor,
        centers: list[Tensor],
        precision: Tensor,
        natural: bool,
    ) -> None:
        """Take the rows that do not steer forward and back, block by block."""
        sequence, engine = self.sequence, self.engine
        for rows in self._others:
            states = sequence.trajectory(engine, theta, centers, rows.inputs)
            inputs = sequence.inputs(rows.inputs, states)
            output = states[-1][-1] if states[-1].ndim == 3 else states[-1]
            totals, costates = self._endpoint(rows, output, precision)
            sums.totals += totals
            if natural:
                for gram, share in zip(sums.grams, self._grams(rows, inputs), strict=True):
                    gram += share
            sequence.pull_back(engine, theta, centers, inputs, states, costates, sums.modules)
        self.group.sum(sums.flat, alike=theta)

    def _endpoint(self, rows: Rows, output: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
        """Mass, losses and what is measured of rows, in double precision; costates at the end."""
        n_responses = rows.targets.shape[1]
        values, derivatives = self.loss(output[:, :n_responses], rows.targets)
        if self._measure is not None:
            values = torch.cat([values, self._measure(output[:, :n_responses], rows.targets)], 1)
        mass = torch.full((1,), len(rows), dtype=torch.float64, device=output.device)
        if rows.weights is not None:
            values = values * rows.weights[:, None]
            derivatives = derivatives * rows.weights[:, None]
            mass = rows.weights.sum(0, keepdim=True, dtype=torch.float64)
        costates = torch.zeros_like(output)
        costates[:, :n_responses] = derivatives * precision.to(derivatives.dtype)
        return torch.cat([mass, values.sum(0, dtype=torch.float64)]), costates

    def _affine_places(self) -> list[tuple[slice, Affine]]:
        """Each A module and where its parameters stand."""
        return [
            (place, module)
            for place, module in zip(self.sequence.places, self.sequence.modules, strict=True)
            if isinstance(module, Affine)
        ]

    def _grams(self, rows: Rows, inputs: list[Tensor]) -> list[Tensor]:
        """The Gram matrix of what enters each A module, in their order."""
        return [
            module.gram(x, rows.weights)
            for module, x in zip(self.sequence.modules, inputs, strict=True)
            if isinstance(module, Affine)
        ]

    def _metrics(self, theta: Tensor, grams: list[Tensor], precision: Tensor) -> list[Tensor]:
        """The metric of each A module at theta, in their order."""
        metrics: list[Tensor] = []
        share = _SHARE * self.loss.curvature * precision
        curvature = _LAST * share
        for (place, module), gram in reversed(list(zip(self._affine_places(), grams, strict=True))):
            metrics.append(module.metric(gram, curvature))
            matrix = module.views(theta[place])[0]
            curvature = share * matrix.square().sum() / matrix.shape[1]
        return metrics[::-1]


class _Sums:
    """What rows that do not steer add up to, one flat vector in double precision with views.

    ``totals`` mass, losses and what is measured, ``modules`` the sums of all modules, ``grams``
    those of A modules.
    """

    def __init__(self, sequence: ModuleSequence, n_totals: int, device: torch.device) -> None:
        orders = [module.d_in + 1 for module in sequence.affines]
        sizes = [n_totals, sequence.n_sums, *(order**2 for order in orders)]
        self.flat = torch.zeros(sum(sizes), dtype=torch.float64, device=device)
        self.totals, self.modules, *grams = self.flat.split(sizes)
        self.grams = [gram.view(order, order) for gram, order in zip(grams, orders, strict=True)]


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
