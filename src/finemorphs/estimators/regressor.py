"""The scikit-learn regressor: checks, prepares, trains, predicts."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import torch
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.utils import Tags
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from finemorphs import storage
from finemorphs._typing import Array, ArrayLike, Tensor
from finemorphs.engines import Engine, choose_engine
from finemorphs.estimators._data import TrainingRows, pad, prepare
from finemorphs.estimators._model import Model
from finemorphs.estimators._parameters import check_parameters, generator
from finemorphs.estimators._state import VERSION, describe
from finemorphs.objective import Objective
from finemorphs.sequence import ModuleSequence
from finemorphs.training import (
    Callback,
    Progress,
    Settings,
    Training,
    as_table,
    estimate_noise,
    train,
)

__all__ = ["FineMorphsRegressor"]

_MIN_ROWS = 5
_PAPER_FLOOR = 0.01  # least mean squared error that the paper's rounds ask for, in any units


class FineMorphsRegressor(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, RegressorMixin, BaseEstimator
):
    """Regression by a sequence of affine and diffeomorphic maps, trained as optimal control.

    The rows are standardised, padded with dummy columns, carried through the modules of the
    sequence, cut to the responses and put back in their units.

    Parameters
    ----------
    sequence : str, default="ADA"
        The modules: "A" affine, "D" diffeomorphic, with repetitions as in "AD^4A", "AD4A",
        "(AD)^3A" or "AD2A2".
    dims : int, list of int or None, default=None
        Inner dimensions d_1 .. d_m; None carries the input's.
    dummy_dims : int, default=1
        Number s of columns added to the input, to give the flow room.
    output_dims : int, default=0
        Number r of columns dropped from the output.
    kernel : {"matern", "gaussian"}, default="matern"
    kernel_order : {1, 2, 3, 4}, default=3
        Smoothness of the Matern kernel.
    kernel_width : float, list of float, "decreasing" or "increasing", default=0.5
        One width, one for each D module, or q/(m + 1) falling or rising.
    n_steps : int or list of int, default=10
        Euler steps of the flow, for all D modules or one for each.
    ridge : float or list of float, default=1.0
        Weight of the cost of the matrices, for all A modules or one for each.
    inner_affine : {"ridge", "identity"}, default="ridge"
        Whether inner square A modules are pulled to 0 or to the identity.
    noise : "auto", "paper" or float, default="auto"
        The noise level sigma of the standardised responses; "auto" estimates it from the data
        and lowers it by rounds until the training error meets the estimate. "paper" is the
        same, but never asks for a mean squared error under 0.01 in the units of y.
    subset_size : int or None, default=None
        Number of control points; None takes every row. Cost grows as rows times control points.
    subset_method : {"kmeans++", "random"}, default="kmeans++"
    optimizer : {"natural-lbfgs", "lbfgs"}, default="natural-lbfgs"
        L-BFGS in the metric of the vector fields, or plain, as in the paper.
    max_iter : int, default=2000
        Iterations a round.
    tol : float, default=1e-6
        Relative decrease of the objective that ends a round; 0 never does.
    memory : int, default=25
        Pairs that L-BFGS keeps.
    engine : {"auto", "cpu", "cuda", "keops", "reference"}, default="auto"
        What computes the sums over pairs; "auto" takes "cuda" where there is a CUDA device.
    device : str, default="auto"
        "cpu", "cuda", "cuda:1", ..
    dtype : {"float32", "float64"}, default="float32"
        Precision of training.
    max_time : float or None, default=None
        Seconds after which training ends with what it has.
    warm_start : bool, default=False
        Begin the next ``fit`` where the last one ended, module by module where shapes agree.
    callbacks : list of callable or None, default=None
        Called with a :class:`~finemorphs.training.Record` at each iteration; True ends training.
    random_state : int, RandomState, Generator or None, default=None
    verbose : int, default=0
        1 shows progress, 2 every iteration.

    Attributes
    ----------
    sequence_ : str
        The sequence in canonical form.
    noise_ : float
        The noise level at the end of training.
    objective_ : float
        The objective at the end of training.
    n_iter_, n_evaluations_ : int
        Iterations, and evaluations of objective and gradient.
    history_ : dict of ndarray
        One entry an iteration: round, iteration, evaluations, sigma, objective, energy, affine,
        endpoint, rmse, seconds.
    converged_ : bool
    status_ : str
        Why training ended, as a sentence.
    model_ : Model
        The numbers behind the predictions.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only where X has column names.

    Examples
    --------
    >>> from finemorphs import FineMorphsRegressor
    >>> from finemorphs.datasets import make_rings
    >>> X, y = make_rings(200, random_state=0)
    >>> FineMorphsRegressor(random_state=0).fit(X, y).score(X, y) > 0.99
    True
    """

    def __init__(
        self,
        sequence: str = "ADA",
        *,
        dims: int | Sequence[int] | None = None,
        dummy_dims: int = 1,
        output_dims: int = 0,
        kernel: str = "matern",
        kernel_order: int = 3,
        kernel_width: float | Sequence[float] | str = 0.5,
        n_steps: int | Sequence[int] = 10,
        ridge: float | Sequence[float] = 1.0,
        inner_affine: str = "ridge",
        noise: str | float = "auto",
        subset_size: int | None = None,
        subset_method: str = "kmeans++",
        optimizer: str = "natural-lbfgs",
        max_iter: int = 2000,
        tol: float = 1e-6,
        memory: int = 25,
        engine: str = "auto",
        device: str = "auto",
        dtype: str = "float32",
        max_time: float | None = None,
        warm_start: bool = False,
        callbacks: Sequence[Callback] | None = None,
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
        verbose: int = 0,
    ) -> None:
        self.sequence = sequence
        self.dims = dims
        self.dummy_dims = dummy_dims
        self.output_dims = output_dims
        self.kernel = kernel
        self.kernel_order = kernel_order
        self.kernel_width = kernel_width
        self.n_steps = n_steps
        self.ridge = ridge
        self.inner_affine = inner_affine
        self.noise = noise
        self.subset_size = subset_size
        self.subset_method = subset_method
        self.optimizer = optimizer
        self.max_iter = max_iter
        self.tol = tol
        self.memory = memory
        self.engine = engine
        self.device = device
        self.dtype = dtype
        self.max_time = max_time
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.random_state = random_state
        self.verbose = verbose

    # --- training -------------------------------------------------------------------------

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> FineMorphsRegressor:
        """Train on a table.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_responses)
        sample_weight : array-like of shape (n_samples,), optional
            A weight of 2 is the row twice, a weight of 0 the row left out.

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False))
        engine, device = choose_engine(self.engine, self.device)
        X, y, weights = self._check_data(X, y, sample_weight)
        rng_subset, rng_start, rng_noise = generator(self.random_state).spawn(3)
        rows = prepare(
            X, y.reshape(len(y), -1), weights, self.subset_size, self.subset_method, rng_subset
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
            training = train(objective, theta, settings, [progress, *(self.callbacks or ())])
            self._keep(sequence, engine, objective, rows, training)
        self._n_response_axes = y.ndim
        return self

    def _check_data(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Array, Array, Array]:
        X, y = validate_data(
            self,
            X,
            y,
            dtype=np.float64,
            y_numeric=True,
            multi_output=True,
            ensure_min_samples=_MIN_ROWS,
        )
        y = np.asarray(y, dtype=np.float64)
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
        return Objective(sequence, engine, tensor(inputs), tensor(rows.y), weights)

    def _settings(self, rows: TrainingRows, rng: np.random.Generator) -> Settings:
        sigma, target = self.noise, None
        if isinstance(sigma, str):
            floor = _PAPER_FLOOR if sigma == "paper" else 0.0
            level = estimate_noise(rows.x, rows.y, rows.weights, rows.y_scaling.scale, rng, floor)
            sigma, target = level.sigma, level.target
            if self.warm_start and hasattr(self, "noise_"):
                sigma = min(sigma, self.noise_)
        return Settings(
            sigma=float(sigma),
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
        controls = objective.inputs[: rows.n_controls]
        centers = sequence.centers(engine, training.theta, controls)
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

    def predict(self, X: ArrayLike) -> Array:
        """Responses for the rows of a table.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_responses), as y was in ``fit``
        """
        X, engine, device = self._ready(X)
        responses = self.model_.predict(X, engine, device)
        return responses[:, 0] if self._n_response_axes == 1 else responses

    def transform(self, X: ArrayLike) -> Array:
        """States that leave the last D module, of shape (n_samples, d)."""
        X, engine, device = self._ready(X)
        if not self.model_.sequence.diffeos:
            raise ValueError(
                f"the sequence {self.sequence_!r} has no D module whose states could be given; "
                "use a sequence such as 'ADA'."
            )
        return self.model_.transform(X, engine, device)

    def trajectory(self, X: ArrayLike) -> list[tuple[str, float, Array]]:
        """Every state on the way: a list of (name of the module, time, array (n_samples, d)).

        The first entry is ("X", 0.0, the standardised, padded rows). An A module has one entry,
        at time 1; a D module one for each of the times 0, 1/T, .., 1.
        """
        X, engine, device = self._ready(X)
        return self.model_.trajectory(X, engine, device)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that :func:`finemorphs.load` reads; no pickle."""
        check_is_fitted(self)
        storage.write(path, *describe(self), VERSION)

    def _ready(self, X: ArrayLike) -> tuple[Array, Engine, torch.device]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return X, *choose_engine(self.engine, self.device)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
