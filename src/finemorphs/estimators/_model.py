"""A fitted sequence: all that prediction needs, in numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from finemorphs import geometry
from finemorphs._typing import Array, Tensor
from finemorphs.engines import Engine, choose_engine
from finemorphs.estimators._data import Scaling, in_units
from finemorphs.modules import Diffeo
from finemorphs.sequence import ModuleSequence

__all__ = ["Model"]

_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, repr=False)
class Model:
    """Parameters of a sequence, the paths of its control points, and the scalings around it.

    Attributes
    ----------
    sequence : ModuleSequence
    theta : Tensor
        Flat parameters, on the CPU.
    centers : tuple of Tensor
        For each D module the control points (T, N_S, d) at the start of each step.
    x_scaling, y_scaling : Scaling
    """

    sequence: ModuleSequence
    theta: Tensor
    centers: tuple[Tensor, ...]
    x_scaling: Scaling
    y_scaling: Scaling

    def __repr__(self) -> str:
        return f"Model({self.sequence.notation}, {self.theta.numel()} parameters)"

    @property
    def n_numbers(self) -> int:
        """How many numbers the model holds."""
        return self.theta.numel() + sum(c.numel() for c in self.centers)

    @property
    def n_pairs(self) -> int:
        """Kernel evaluations that the prediction of a row takes."""
        return sum(d.n_steps * d.n_controls for d in self.sequence.diffeos)

    def at_rest(self) -> Model:
        """The model with the same affine modules whose flows do not move: controls of zero."""
        parts = [
            torch.zeros_like(part) if isinstance(module, Diffeo) else part
            for module, part in zip(
                self.sequence.modules, self.sequence.split(self.theta), strict=True
            )
        ]
        return replace(self, theta=torch.cat(parts))

    def predict(self, table: Array, engine: Engine, device: torch.device) -> Array:
        """Responses (n, d_Y) in their own units."""
        return self.y_scaling.responses(self._outputs(table, engine, device))

    def transform(self, table: Array, engine: Engine, device: torch.device) -> Array:
        """States (n, d) that leave the last D module."""
        last = max(
            i for i, module in enumerate(self.sequence.modules) if isinstance(module, Diffeo)
        )
        return np.concatenate([_end(states[last]) for states in self._walk(table, engine, device)])

    def trajectory(
        self, table: Array, engine: Engine, device: torch.device
    ) -> list[tuple[str, float, Array]]:
        """Every state on the way: name of the module, time in it, array (n, d)."""
        padded = self._pad(table)
        chunks = list(self._walk(table, engine, device))
        result: list[tuple[str, float, Array]] = [("X", 0.0, padded)]
        for i, module in enumerate(self.sequence.modules):
            states = np.concatenate([chunk[i] for chunk in chunks], axis=-2)
            if isinstance(module, Diffeo):
                times = np.arange(module.n_steps + 1) / module.n_steps
                result += [(module.name, float(t), z) for t, z in zip(times, states, strict=True)]
            else:
                result.append((module.name, 1.0, states))
        return result

    def inverse_transform(self, states: Array, exact: bool, least_norm: bool) -> Array:
        """Inputs (n, d_X) in their own units of states that leave the last D module."""
        engine, theta, centers = self._double()
        n_inputs = len(self.x_scaling.mean)
        rows = [
            geometry.invert(
                self.sequence,
                engine,
                theta,
                centers,
                chunk,
                n_inputs,
                exact=exact,
                least_norm=least_norm,
            )
            for chunk in torch.tensor(states).split(_ROWS_AT_ONCE)
        ]
        return self.x_scaling.undo(torch.cat(rows).numpy())

    def jacobian(self, table: Array) -> Array:
        """Derivatives (n, d_Y, d_X) of the responses by the inputs, in their own units."""
        engine, theta, centers = self._double()
        n_inputs, n_responses = len(self.x_scaling.mean), len(self.y_scaling.mean)
        slopes = [
            geometry.jacobian(self.sequence, engine, theta, centers, chunk, n_responses)
            for chunk in torch.from_numpy(self._pad(table)).split(_ROWS_AT_ONCE)
        ]
        inner = torch.cat(slopes).numpy()[:, :, :n_inputs]
        response_slope = self.y_scaling.response_slope(self._outputs(table, engine, theta.device))
        return in_units(inner, self.x_scaling.slope(table), response_slope)

    def log_determinants(self, table: Array) -> Array:
        """log |det d phi_q| (n, m) of the D modules at the states of the rows."""
        engine, theta, centers = self._double()
        values = [
            geometry.log_determinants(self.sequence, engine, theta, centers, chunk)
            for chunk in torch.from_numpy(self._pad(table)).split(_ROWS_AT_ONCE)
        ]
        return torch.cat(values).numpy()

    def _double(self) -> tuple[Engine, Tensor, list[Tensor]]:
        """The CPU's engine, the parameters and the centers in double precision."""
        engine, _ = choose_engine("cpu", "cpu")
        return engine, self.theta.double(), [c.double() for c in self.centers]

    def _outputs(self, table: Array, engine: Engine, device: torch.device) -> Array:
        """Standardised responses (n, d_Y)."""
        outputs = [_end(states[-1]) for states in self._walk(table, engine, device)]
        return np.concatenate(outputs)[:, : len(self.y_scaling.mean)]

    def _walk(self, table: Array, engine: Engine, device: torch.device) -> Iterator[list[Array]]:
        """States behind each module, some rows at a time: memory does not grow with the table.

        Double precision on the CPU, so that a prediction does not depend on its neighbours in
        the table; that of training on a GPU, where double precision is slow.
        """
        dtype = torch.float64 if device.type == "cpu" else self.theta.dtype
        theta = self.theta.to(device, dtype)
        centers = [c.to(device, dtype) for c in self.centers]
        for begin in range(0, len(table), _ROWS_AT_ONCE):
            rows = self._pad(table[begin : begin + _ROWS_AT_ONCE])
            x = torch.as_tensor(rows, dtype=dtype, device=device)
            states = self.sequence.trajectory(engine, theta, centers, x)
            yield [z.cpu().double().numpy() for z in states]

    def _pad(self, table: Array) -> Array:
        x = self.x_scaling.apply(table)
        return np.concatenate([x, np.zeros((len(x), self.sequence.d_in - x.shape[1]))], axis=1)


def _end(states: Array) -> Array:
    """The state that leaves a module: the last in time of (T + 1, n, d), or (n, d) itself."""
    return states[-1] if states.ndim == 3 else states
