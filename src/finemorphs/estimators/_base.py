"""What the regressor and the classifier share: training, states, files.

A subclass stores its parameters, checks its data, and says what its loss and its noise level
are; the rest is here.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from finemorphs import storage
from finemorphs._typing import Array, ArrayLike
from finemorphs.distributed import Group, joined
from finemorphs.engines import Engine, choose_engine
from finemorphs.estimators._blocks import Blocks
from finemorphs.estimators._data import TrainingRows, prepare
from finemorphs.estimators._duration import warn_of_a_long_fit
from finemorphs.estimators._export import FORMATS, Signature
from finemorphs.estimators._inside import Inside
from finemorphs.estimators._members import Member
from finemorphs.estimators._memory import Fit, block_size, budget, check_memory
from finemorphs.estimators._model import Model
from finemorphs.estimators._numbers import check_range, refuse_masked, refuse_words
from finemorphs.estimators._parameters import check_parameters, generator
from finemorphs.estimators._program import record
from finemorphs.estimators._resume import open_checkpoint
from finemorphs.estimators._state import VERSION, describe
from finemorphs.estimators._stream import prepare_stream
from finemorphs.estimators._units import SquaredErrors
from finemorphs.losses import Loss
from finemorphs.modules import Diffeo
from finemorphs.objective import Objective
from finemorphs.resources import parse_size
from finemorphs.sequence import ModuleSequence
from finemorphs.streams import Stream
from finemorphs.training import Checkpoint, Progress, Settings, Training, as_table, train

__all__ = ["BaseFineMorphs"]

_MIN_ROWS = 5
_OF_SOME_FITS = ("conformity_scores_", "noise_path_", "notes_", "residual_", "selection_")


class BaseFineMorphs(Inside, ClassNamePrefixFeaturesOutMixin, BaseEstimator):
    """A sequence of modules with scikit-learn's interface, whatever its loss."""

    # Of a fit that is several trainings, this one among them.
    _shared_checkpoint: Checkpoint | None = None

    # --- what a subclass says -------------------------------------------------------------

    @abstractmethod
    def _loss_function(self) -> Loss:
        """The loss of the endpoint cost."""

    @abstractmethod
    def _noise_level(
        self, rows: TrainingRows, rng: np.random.Generator
    ) -> tuple[float, float | None]:
        """Sigma at the start, and the mean loss that ends its rounds (None: one round)."""

    def _warps(self) -> tuple[str, str]:
        """The kinds of warp of the inputs and of the responses."""
        return "none", "none"

    # --- training -------------------------------------------------------------------------

    def _fit(
        self, X: Array, responses: Array, weights: Array, standardise_responses: bool = True
    ) -> None:
        """Train on checked data: X (n, d_X), responses (n, d_Y), weights (n,)."""

        def read(rng: np.random.Generator, group: Group) -> TrainingRows:
            return prepare(
                X,
                responses,
                weights,
                self.subset_size,
                self.subset_method,
                rng=rng,
                standardise_responses=standardise_responses,
                warps=self._warps(),
            )

        self._train(read, {"X": X, "y": responses, "sample_weight": weights})

    def _fit_stream(self, stream: Stream) -> None:
        """Train on the rows of a stream."""
        check_parameters(self.get_params(deep=False))
        self._forget()

        def read(rng: np.random.Generator, group: Group) -> TrainingRows:
            return prepare_stream(stream, self.subset_size, self.subset_method, rng, group)

        self._train(read, {"stream": stream})
        self.n_features_in_ = stream.n_features
        if stream.feature_names is not None:
            self.feature_names_in_ = np.array(stream.feature_names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _train(
        self,
        read: Callable[[np.random.Generator, Group], TrainingRows],
        data: dict[str, Array | Stream],
    ) -> None:
        """Train on the rows that ``read`` gives, together with the other ranks if there are any.

        ``data`` is what they come from, by name, to know a checkpoint by.
        """
        engine, device = choose_engine(self.engine, self.device)
        with (
            joined(device) as group,
            engine.session(),
            Progress(self.verbose if group.rank == 0 else 0) as progress,
        ):
            checkpoint, rng = self._shared_checkpoint, generator(self.random_state)
            if checkpoint is None:
                checkpoint, rng = open_checkpoint(self, data, rng, group)
            rng_subset, rng_start, rng_noise = rng.spawn(3)
            rows = read(rng_subset, group)
            if group.size > 1 and rows.n_controls == len(rows.x):
                raise ValueError(
                    f"{group.size} processes share the rows that are not control points, but "
                    f"subset_size={self.subset_size!r} leaves none; give a smaller one."
                )
            sequence = self._build_sequence(rows.x.shape[1], rows.y.shape[1], rows.n_controls)
            self._check_memory(sequence, rows, engine, device)
            settings = group.share(self._settings(rows, rng_noise))
            start = self._start_values(sequence, rng_start)
            theta = torch.as_tensor(start, dtype=self._torch_dtype, device=device)
            objective = self._build_objective(sequence, engine, device, rows, rng_start, group)
            subset = rows.n_controls < len(rows.x)
            if any(
                engine.needs_compilation(m.kernel, m.dim, theta.dtype, subset=subset)
                for m in sequence.diffeos
            ):
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
        """Checked parameters; table, responses and weights of the rows that have a weight."""
        check_parameters(self.get_params(deep=False))
        refuse_masked(X=X, y=y, sample_weight=sample_weight)
        try:
            X, y = validate_data(
                self, X, y, dtype=np.float64, ensure_min_samples=_MIN_ROWS, **options
            )
        except (TypeError, ValueError) as error:
            refuse_words(X, error)
            raise
        check_range("X", X)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if self.subset_size is not None and self.subset_size > len(X):
            raise ValueError(
                f"subset_size={self.subset_size} is more than the {len(X)} rows of X; give at "
                f"most {len(X)}, or None for all."
            )
        self._forget()
        kept = weights > 0
        if 0 < kept.sum() < _MIN_ROWS:
            raise ValueError(
                f"sample_weight leaves {kept.sum()} rows with a weight, and a fit takes at least "
                f"{_MIN_ROWS}; give more rows a weight."
            )
        return (X, y, weights) if kept.all() else (X[kept], y[kept], weights[kept])

    def _forget(self) -> None:
        """Drop what only some fits leave behind: it would speak of the last model."""
        for name in _OF_SOME_FITS:
            if hasattr(self, name):
                delattr(self, name)

    def _warn_of_a_long_fit(self, X: Array, n_outputs: int) -> None:
        """Say so before a fit without a time limit that takes long on a CPU."""
        _, device = choose_engine(self.engine, self.device)
        if self.max_time is None and device.type == "cpu":
            n_controls = self.subset_size or len(X)
            sequence = self._build_sequence(X.shape[1], n_outputs, n_controls)
            warn_of_a_long_fit(sequence, len(X), n_controls, self.max_iter)

    def _build_sequence(self, n_inputs: int, n_outputs: int, n_controls: int) -> ModuleSequence:
        return ModuleSequence.build(
            self.sequence,
            n_inputs + self.dummy_dims,
            n_outputs + self.output_dims,
            n_controls,
            dims=self.dims,
            kernel=self.kernel,
            kernel_order=self.kernel_order,
            kernel_width=self.kernel_width,
            n_steps=self.n_steps,
            ridge=self.ridge,
            inner_affine=self.inner_affine,
        )

    def _check_memory(
        self, sequence: ModuleSequence, rows: TrainingRows, engine: Engine, device: torch.device
    ) -> None:
        """Refuse, before it starts, a fit that will not find the memory it needs."""
        itemsize = self._torch_dtype.itemsize
        fit = Fit(
            sequence,
            len(rows.x),
            rows.n_controls,
            rows.x.shape[1] + rows.y.shape[1],
            self.batch_size
            or block_size(sequence, itemsize, budget(self.max_memory, device), device),
            self.memory,
            itemsize,
            natural=self.optimizer == "natural-lbfgs",
            dense=engine.name == "reference",
            search=isinstance(self.noise, str),
            at_once=engine.side_by_side(),
        )
        check_memory(fit, self.max_memory, device)

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
        group: Group,
    ) -> Objective:
        """G over the control points and, in blocks, this rank's share of the other rows."""
        dtype = self._torch_dtype
        memory = group.least(budget(self.max_memory, device))
        size = self.batch_size or block_size(sequence, dtype.itemsize, memory, device)
        blocks = Blocks(self.dummy_dims, size, memory, dtype, device, group)
        controls = blocks.controls(rows, rng, tied=self.noise != "paper")
        return Objective(
            sequence,
            engine,
            controls.inputs,
            controls.targets,
            controls.weights,
            self._loss_function(),
            others=blocks.others(rows),
            group=group,
            measure=None if rows.y_scaling.warp is None else SquaredErrors(rows.y_scaling, device),
        )

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
            max_memory=self.max_memory and parse_size("max_memory", self.max_memory),
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
        self.members_ = (Member(sequence.notation, 1.0, self.model_),)
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

    def export(self, path: str | os.PathLike[str], format: str = "onnx") -> None:
        """Write the prediction function for serving without this library.

        Parameters
        ----------
        path : path-like
        format : {"onnx", "torch"}, default="onnx"
            "onnx" for any ONNX runtime (needs ``finemorphs[export]``), "torch" for
            ``torch.export.load(path).module()``.

        Notes
        -----
        The input ``X`` and the output are in single precision, and the number of rows is free.
        The output is what ``predict`` gives, or ``predict_proba`` for a classifier; the labels
        of the classes and the names of the features are in the file's metadata.
        """
        check_is_fitted(self)
        if format not in FORMATS:
            raise ValueError(f"format={format!r} is not known; use 'onnx' or 'torch'.")
        classes = getattr(self, "classes_", None)
        names = getattr(self, "feature_names_in_", None)
        flat = getattr(self, "_n_response_axes", 2) == 1
        signature = Signature(
            n_features=self.n_features_in_,
            output="y" if classes is None else "probabilities",
            columns=() if flat else (len(self.model_.y_scaling.mean),),
            metadata={
                "features": None if names is None else [str(name) for name in names],
                "classes": None if classes is None else classes.tolist(),
            },
        )
        tape = record(self.members_, flat, probabilities=classes is not None)
        FORMATS[format](path, tape, signature)
