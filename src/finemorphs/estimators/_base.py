"""What the regressor and the classifier share: training, states, files.

A subclass stores its parameters, checks its data, and says what its loss and its noise level
are; the rest is here.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from finemorphs import storage
from finemorphs._typing import Array, ArrayLike, Tensor
from finemorphs.engines import Engine, choose_engine
from finemorphs.estimators._data import TrainingRows, pad, prepare
from finemorphs.estimators._inside import Inside
from finemorphs.estimators._model import Model
from finemorphs.estimators._parameters import check_parameters, generator
from finemorphs.estimators._resume import open_checkpoint
from finemorphs.estimators._state import VERSION, describe
from finemorphs.losses import Loss
from finemorphs.modules import Diffeo
from finemorphs.objective import Objective
from finemorphs.sequence import ModuleSequence
from finemorphs.training import Progress, Settings, Training, as_table, train

__all__ = ["BaseFineMorphs"]

_MIN_ROWS = 5


class BaseFineMorphs(Inside, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A sequence of modules with scikit-learn's interface, whatever its loss."""

    # --- what a subclass says -------------------------------------------------------------

    @abstractmethod
    def _loss_function(self) -> Loss:
        """The loss of the endpoint cost."""

    @abstractmethod
    def _noise_level(
        self, rows: TrainingRows, rng: np.random.Generator
    ) -> tuple[float, float | None]:
        """Sigma at the start, and the mean loss that ends its rounds (None: one round)."""

    # --- training -------------------------------------------------------------------------

    def _fit(
        self, X: Array, responses: Array, weights: Array, standardise_responses: bool = True
    ) -> None:
        """Train on checked data: X (n, d_X), responses (n, d_Y), weights (n,)."""
        engine, device = choose_engine(self.engine, self.device)
        data = {"X": X, "y": responses, "sample_weight": weights}
        checkpoint, rng = open_checkpoint(self, data, generator(self.random_state))
        rng_subset, rng_start, rng_noise = rng.spawn(3)
        rows = prepare(
            X,
            responses,
            weights,
            self.subset_size,
            self.subset_method,
            rng_subset,
            standardise_responses,
        )
        sequence = self._build_sequence(rows)
        settings = self._settings(rows, rng_noise)
        start = self._start_values(sequence, rng_start)
        with engine.session(), Progress(self.verbose) as progress:
            theta = torch.as_tensor(start, dtype=self._torch_dtype, device=device)
            objective = self._build_objective(sequence, engine, device, rows, rng_start)
            diffeos = sequence.diffeos
            if any(engine.needs_compilation(m.kernel, m.dim, theta.dtype) for m in diffeos):
                progress.say(
                    f"Compiling the {engine.name} engine for this kernel and dimension; "
                    "it is kept on disk for the next time."
                )
            callbacks = [progress, *(self.callbacks or ())]
            training = train(objective, theta, settings, callbacks, checkpoint)
            self._keep(sequence, engine, objective, rows, training)

    def _check_data(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, **options: Any
    ) -> tuple[Array, Array, Array]:
        """Parameters, table, responses and weights as ``fit`` needs them."""
        check_parameters(self.get_params(deep=False))
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=_MIN_ROWS, **options)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if self.subset_size is not None and self.subset_size > len(X):
            raise ValueError(
                f"subset_size={self.subset_size} is more than the {len(X)} rows of X; give at "
                f"most {len(X)}, or None for all."
            )
        return X, y, weights

    def _build_sequence(self, rows: TrainingRows) -> ModuleSequence:
        return ModuleSequence.build(
            self.sequence,
            rows.x.shape[1] + self.dummy_dims,
            rows.y.shape[1] + self.output_dims,
            rows.n_controls,
            dims=self.dims,
            kernel=self.kernel,
            kernel_order=self.kernel_order,
            kernel_width=self.kernel_width,
            n_steps=self.n_steps,
            ridge=self.ridge,
            inner_affine=self.inner_affine,
        )

    def _start_values(self, sequence: ModuleSequence, rng: np.random.Generator) -> Array:
        """Fresh values, or those of the last fit for modules that are shaped alike."""
        parts = [module.start(rng) for module in sequence.modules]
        if self.warm_start and hasattr(self, "model_"):
            old = self.model_.sequence
            known = dict(
                zip((m.name for m in old.modules), old.split(self.model_.theta), strict=True)
            )
            for i, module in enumerate(sequence.modules):
                values = known.get(module.name)
                if values is not None and len(values) == len(parts[i]):
                    parts[i] = values.double().numpy()
        return np.concatenate(parts)

    def _build_objective(
        self,
        sequence: ModuleSequence,
        engine: Engine,
        device: torch.device,
        rows: TrainingRows,
        rng: np.random.Generator,
    ) -> Objective:
        def tensor(array: Array) -> Tensor:
            return torch.as_tensor(array, dtype=self._torch_dtype, device=device).contiguous()

        inputs = pad(rows.x, self.dummy_dims, rows.n_controls, rng)
        weights = None if rows.uniform else tensor(rows.weights)
        loss = self._loss_function()
        return Objective(sequence, engine, tensor(inputs), tensor(rows.y), weights, loss)

    def _settings(self, rows: TrainingRows, rng: np.random.Generator) -> Settings:
        sigma, target = self._noise_level(rows, rng)
        return Settings(
            sigma=sigma,
            target=target,
            natural=self.optimizer == "natural-lbfgs",
            max_iter=self.max_iter,
            tol=self.tol,
            memory=self.memory,
            response_scale=rows.y_scaling.scale,
            max_time=self.max_time,
        )

    def _keep(
        self,
        sequence: ModuleSequence,
        engine: Engine,
        objective: Objective,
        rows: TrainingRows,
        training: Training,
    ) -> None:
        steps = sequence.forward(engine, training.theta, objective.controls.inputs)
        centers = sequence.paths(steps)
        self.model_ = Model(
            sequence,
            training.theta.cpu(),
            tuple(c.cpu().clone() for c in centers),
            rows.x_scaling,
            rows.y_scaling,
        )
        self.sequence_ = sequence.notation
        self.noise_ = training.sigma
        self.objective_ = training.evaluation.value
        self.distance_ = {
            module.name: float(step.cost)
            for module, step in zip(sequence.modules, steps, strict=True)
            if isinstance(module, Diffeo)
        }
        self.stationarity_ = {
            module.name: float(part.norm())
            for module, part in zip(
                sequence.modules, sequence.split(training.evaluation.gradient), strict=True
            )
        }
        self.n_iter_ = len(training.records)
        self.n_evaluations_ = training.n_evaluations
        self.history_ = as_table(training.records)
        self.converged_ = training.converged
        self.status_ = training.status

    @property
    def _n_features_out(self) -> int:
        """Columns of :meth:`transform`, for scikit-learn's names of them."""
        return self.model_.sequence.diffeos[-1].dim

    @property
    def _torch_dtype(self) -> torch.dtype:
        return torch.float64 if self.dtype == "float64" else torch.float32

    # --- use ------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that :func:`finemorphs.load` reads; no pickle."""
        check_is_fitted(self)
        storage.write(path, *describe(self), VERSION)
