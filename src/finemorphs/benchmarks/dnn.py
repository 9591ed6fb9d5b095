"""The densely connected networks that the paper compares with (Section 11, Table 2).

    h_0 = x,   h_i = relu(h_(i-1) W_i + b_i),   output = h_L W_(L+1) + b_(L+1)

trained as TensorFlow does by default: Glorot uniform weights, zero biases, mean squared
error, Adam at 0.001 with epsilon 1e-7, batches of 32 rows drawn anew each epoch, the last
one smaller; 400 epochs; standardised data.

A step on 32 rows is so short that the bookkeeping of automatic differentiation and of an
optimiser over many tensors would take most of the time. All parameters are one vector, so
is the gradient, and the backward pass is written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from finemorphs._typing import Array, ArrayLike, Tensor

__all__ = ["DNNRegressor", "Network"]

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-7


class Network:
    """Dense layers with ReLU between them; value and gradient of the mean squared error.

    Parameters
    ----------
    sizes : sequence of int
        Columns of the input, of each hidden layer, of the output.
    generator : torch.Generator
        Draws the weights.
    device : str
    """

    def __init__(self, sizes: Sequence[int], generator: torch.Generator, device: str) -> None:
        shapes = list(pairwise(sizes))
        n = sum(n_in * n_out + n_out for n_in, n_out in shapes)
        self.parameters = torch.zeros(n, device=device)
        self.gradient = torch.zeros(n, device=device)
        self._layers = _views(self.parameters, shapes)
        self._slopes = _views(self.gradient, shapes)
        for weights, _ in self._layers:
            bound = (6 / sum(weights.shape)) ** 0.5
            start = torch.empty(weights.shape).uniform_(-bound, bound, generator=generator)
            weights.copy_(start)

    def states(self, x: Tensor) -> list[Tensor]:
        """Input, hidden layers, output."""
        states = [x]
        for weights, biases in self._layers[:-1]:
            states.append(torch.addmm(biases, states[-1], weights).relu_())
        weights, biases = self._layers[-1]
        return [*states, torch.addmm(biases, states[-1], weights)]

    def differentiate(self, x: Tensor, y: Tensor) -> None:
        """Write the gradient of the mean squared error into ``gradient``."""
        states = self.states(x)
        slope = (states[-1] - y).mul_(2 / y.numel())
        for i in reversed(range(len(self._layers))):
            torch.mm(states[i].t(), slope, out=self._slopes[i][0])
            torch.sum(slope, 0, out=self._slopes[i][1])
            if i:
                slope = (slope @ self._layers[i][0].t()).mul_(states[i] > 0)


def _views(vector: Tensor, shapes: list[tuple[int, int]]) -> list[tuple[Tensor, Tensor]]:
    views, at = [], 0
    for n_in, n_out in shapes:
        weights = vector[at : at + n_in * n_out].view(n_in, n_out)
        at += n_in * n_out
        views.append((weights, vector[at : at + n_out]))
        at += n_out
    return views


class DNNRegressor(RegressorMixin, BaseEstimator):
    """The paper's DNN-x baseline.

    Parameters
    ----------
    hidden_layers : sequence of int, default=(64,)
        Sizes of the hidden layers.
    epochs : int, default=400
    batch_size : int, default=32
    learning_rate : float, default=0.001
    device : str, default="cpu"
        Small networks are faster on the CPU.
    random_state : int, default=0
    """

    def __init__(
        self,
        hidden_layers: Sequence[int] = (64,),
        *,
        epochs: int = 400,
        batch_size: int = 32,
        learning_rate: float = 0.001,
        device: str = "cpu",
        random_state: int = 0,
    ) -> None:
        self.hidden_layers = hidden_layers
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.device = device
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> DNNRegressor:
        """Train on a table."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        self._x_scaling, self._y_scaling = _scaling(X), _scaling(y[:, None])
        x, target = self._tensor(X, self._x_scaling), self._tensor(y[:, None], self._y_scaling)
        generator = torch.Generator().manual_seed(self.random_state)
        sizes = (X.shape[1], *self.hidden_layers, 1)
        self.network_ = Network(sizes, generator, self.device)
        with _one_thread(), torch.inference_mode():
            self._train(x, target, generator)
        return self

    def _train(self, x: Tensor, y: Tensor, generator: torch.Generator) -> None:
        network = self.network_
        first, second = torch.zeros_like(network.gradient), torch.zeros_like(network.gradient)
        root = torch.empty_like(second)
        step = 0
        for _ in range(self.epochs):
            order = torch.randperm(len(x), generator=generator).to(x.device)
            batches = zip(x[order].split(self.batch_size), y[order].split(self.batch_size))  # noqa: B905
            for rows, responses in batches:
                network.differentiate(rows, responses)
                step += 1
                # Adam, with epsilon where TensorFlow has it: beside the uncorrected root.
                rate = self.learning_rate * (1 - _BETA2**step) ** 0.5 / (1 - _BETA1**step)
                first.lerp_(network.gradient, 1 - _BETA1)
                second.mul_(_BETA2).addcmul_(network.gradient, network.gradient, value=1 - _BETA2)
                torch.sqrt(second, out=root)
                network.parameters.addcdiv_(first, root.add_(_EPSILON), value=-rate)

    def predict(self, X: ArrayLike) -> Array:
        """Responses for the rows of a table."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        with torch.inference_mode():
            outputs = self.network_.states(self._tensor(X, self._x_scaling))[-1]
        mean, scale = self._y_scaling
        responses: Array = (outputs.cpu().numpy().astype(np.float64) * scale + mean)[:, 0]
        return responses

    def _tensor(self, table: Array, scaling: tuple[Array, Array]) -> Tensor:
        mean, scale = scaling
        return torch.as_tensor((table - mean) / scale, dtype=torch.float32, device=self.device)


def _scaling(table: Array) -> tuple[Array, Array]:
    scale = table.std(axis=0)
    return table.mean(axis=0), np.where(np.ptp(table, axis=0) > 0, scale, 1.0)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Threads only get into each other's way on batches this small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
