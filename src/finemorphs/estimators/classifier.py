"""The scikit-learn classifier: the same sequences with the logistic loss."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from finemorphs._typing import Array, ArrayLike
from finemorphs.estimators._base import BaseFineMorphs
from finemorphs.estimators._data import TrainingRows
from finemorphs.losses import Logistic, Loss
from finemorphs.training import Callback

__all__ = ["FineMorphsClassifier"]


class FineMorphsClassifier(ClassifierMixin, BaseFineMorphs):
    """Classification by a sequence of affine and diffeomorphic maps.

    The sequence has one output f_c for each class, and the probabilities are softmax(f). In
    the objective, minus the log-likelihood takes the place of the squared error:

        energy + affine + (1 / sigma^2) sum_k w_k ( log sum_c exp f_c(x_k) - f_(y_k)(x_k) )

    Parameters
    ----------
    noise : float, default=1.0
        Sigma. It is fixed: there are no rounds. 1 makes the objective minus the logarithm of
        a posterior; smaller values fit the training rows more closely.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, which multiply ``sample_weight``; "balanced" gives all classes
        the same weight in sum. (A dict is not kept in a model file.)
    tol : float, default=1e-6
        Relative decrease of the objective over an iteration that ends training; 0 never does.

    Other Parameters
    ----------------
    sequence, dims, dummy_dims, output_dims, kernel, kernel_order, kernel_width, n_steps, ridge, \
inner_affine, subset_size, subset_method, optimizer, max_iter, memory, batch_size, \
engine, device, dtype, max_time, max_memory, warm_start, checkpoint, \
resume, callbacks, random_state, verbose
        As in :class:`FineMorphsRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, in the order of the columns of :meth:`predict_proba`.
    sequence_, noise_, objective_, distance_, stationarity_, n_iter_, n_evaluations_, history_, \
converged_, status_, model_, n_features_in_, feature_names_in_
        As in :class:`FineMorphsRegressor`; the column ``rmse`` of ``history_`` is the root of
        the mean loss.

    Examples
    --------
    >>> from finemorphs import FineMorphsClassifier
    >>> from finemorphs.datasets import make_rings
    >>> X, y = make_rings(200, random_state=0)
    >>> inside = y > y.mean()
    >>> FineMorphsClassifier(random_state=0).fit(X, inside).score(X, inside) > 0.95
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
        noise: float = 1.0,
        subset_size: int | None = None,
        subset_method: str = "kmeans++",
        optimizer: str = "natural-lbfgs",
        max_iter: int = 2000,
        tol: float = 1e-6,
        memory: int = 25,
        batch_size: int | None = None,
        engine: str = "auto",
        device: str = "auto",
        dtype: str = "float32",
        max_time: float | None = None,
        max_memory: int | str | None = None,
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        resume: bool = False,
        callbacks: Sequence[Callback] | None = None,
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
        verbose: int = 0,
        class_weight: Mapping[Any, float] | str | None = None,
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
        self.batch_size = batch_size
        self.engine = engine
        self.device = device
        self.dtype = dtype
        self.max_time = max_time
        self.max_memory = max_memory
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.resume = resume
        self.callbacks = callbacks
        self.random_state = random_state
        self.verbose = verbose
        self.class_weight = class_weight

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> FineMorphsClassifier:
        """Train on a table.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels: numbers, strings or booleans.
        sample_weight : array-like of shape (n_samples,), optional
            A weight of 2 is the row twice, a weight of 0 the row left out. So weights that add up
            to 1 make a table of one row: give them a mean of 1.

        Returns
        -------
        self
        """
        if isinstance(self.noise, str):
            raise ValueError(
                f"noise={self.noise!r} is estimated from responses, which a classifier has not; "
                "give a positive number."
            )
        X, y, weights = self._check_data(X, y, sample_weight)
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y holds one class, {classes[0]!r}; a classifier needs rows of two or more."
            )
        self._warn_of_a_long_fit(X, len(classes))
        weights = weights * compute_sample_weight(self.class_weight, y)
        self._fit(X, np.eye(len(classes))[labels], weights, standardise_responses=False)
        self.classes_ = classes
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """Outputs of the sequence.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or with two classes (n_samples,)
            The outputs f; with two classes f_1 - f_0, the log-odds of the second class.
        """
        outputs = self._outputs(X)
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities of the classes, softmax(f), of shape (n_samples, n_classes)."""
        probabilities: Array = softmax(self._outputs(X), axis=1)
        return probabilities

    def predict(self, X: ArrayLike) -> Array:
        """The most probable class of each row, of shape (n_samples,)."""
        outputs = self._outputs(X)
        labels: Array = self.classes_[outputs.argmax(1)]
        return labels

    def _outputs(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        X, engine, device = self._ready(X)
        return self.model_.predict(X, engine, device)

    def _loss_function(self) -> Loss:
        return Logistic()

    def _noise_level(
        self, rows: TrainingRows, rng: np.random.Generator
    ) -> tuple[float, float | None]:
        return float(self.noise), None
