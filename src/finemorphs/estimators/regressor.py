"""The scikit-learn regressor: responses, their units, their noise level."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, overload

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from finemorphs._typing import Array, ArrayLike
from finemorphs.estimators._data import TrainingRows
from finemorphs.estimators._intervals import Intervals
from finemorphs.estimators._members import average
from finemorphs.estimators._numbers import check_range
from finemorphs.estimators._plans import Plans
from finemorphs.estimators._stream import SAMPLE
from finemorphs.estimators._warps import warp_kind
from finemorphs.losses import NAMED, Loss
from finemorphs.streams import ArrayStream, Stream
from finemorphs.training import Callback, estimate_noise

__all__ = ["FineMorphsRegressor"]

_PAPER_FLOOR = 0.01  # least mean squared error that the paper's rounds ask for, in any units


class FineMorphsRegressor(Intervals, RegressorMixin, Plans):
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
    noise : "auto", "cv", "paper" or float, default="auto"
        The noise level sigma of the standardised responses; "auto" estimates it from the data
        and lowers it by rounds until the training error meets the estimate; from 5000 rows on,
        where some can be spared to judge it, it is "cv", unless ``optimizer``, ``max_iter``,
        ``tol``, ``warm_start`` or ``subset_size`` is given. "paper" is the estimate at any number
        of rows, but never asks for a mean squared error under 0.01 in the units of y (of the warped
        y with ``response_warp``), and rows of one x differ in their dummy columns. "cv" goes
        down a path of levels, with a rough kernel and other ridges, on all A modules or on those
        in front of a flow, beside the given ones where these are left at their defaults, and wider
        kernels where the widths are a word; it takes what predicts rows held out best: kernel,
        ridge, level, and the iterations at it.
    subset_size : int or None, default=None
        Number of control points; None takes every row. Cost grows as rows times control points.
    subset_method : {"kmeans++", "random"}, default="kmeans++"
    optimizer : {"natural-lbfgs", "lbfgs"}, default="natural-lbfgs"
        L-BFGS in the metric of the vector fields, or plain, as in the paper.
    max_iter : int, default=2000
        Iterations a round.
    tol : float, default=3e-4
        Relative decrease of the objective over an iteration that ends a round; 0 never does. With
        ``optimizer="lbfgs"`` it is a hundredth of it. A level of ``noise="cv"`` ends at 3e-4 or
        before.
    memory : int, default=25
        Pairs that L-BFGS keeps.
    batch_size : int or None, default=None
        With a subset of control points: how many of the other rows are in work at a time. It
        changes memory, not the result; None chooses it by ``max_memory``.
    input_warp, response_warp : {"none", "quantile", "power", "auto"}, default="none"
        A monotone map of each column before it is standardised: normal scores of its ranks, or
        Yeo and Johnson's power; "auto" chooses inside the training data. With a power of the
        responses, predictions are limited to their range in training, widened by half of it to
        each side.
    preset : {"paper", "best"} or None, default=None
        Sets what is left at its default. "paper": the paper's optimiser and its noise rule.
        "best": flows and kernel regression averaged by what they predict out of fold; sequence,
        widths, steps, warps and noise level are chosen inside the training data.
    n_members : int, default=1
        Fits that differ in their start, averaged.
    engine : {"auto", "cpu", "cuda", "keops", "reference"}, default="auto"
        What computes the sums over pairs; "auto" takes "cuda" where there is a CUDA device.
    device : str, default="auto"
        "cpu", "cuda", "cuda:1", ..
    dtype : {"float32", "float64"}, default="float32"
        Precision of training.
    max_time : float or None, default=None
        Seconds after which training ends with what it has.
    max_memory : int, str or None, default=None
        Bytes that a fit may take, a number or text such as "4GB". A fit that would need more, or
        more than is free, is refused before it starts; one that takes more all the same ends
        with what it has. Blocks of rows are chosen by it, or by half of what is free.
    warm_start : bool, default=False
        Begin the next ``fit`` where the last one ended, module by module where shapes agree.
    checkpoint : path-like or None, default=None
        A file for the state of training: written at the first iteration, every minute and every
        round, whole or not at all. One fit, one file.
    resume : bool, default=False
        Go on from the checkpoint where there is one, to where a fit that was never stopped would
        have come. Refused if the data or the options differ; ``max_time``, ``engine``,
        ``device`` and what is only shown may.
    callbacks : list of callable or None, default=None
        Called with a :class:`~finemorphs.training.Record` at each iteration; True ends training.
    random_state : int, RandomState, Generator or None, default=None
    verbose : int, default=0
        1 shows progress, 2 every iteration.
    loss : {"squared", "huber"} or Loss, default="squared"
        Loss of the standardised responses. "huber" is straight beyond half a standard
        deviation, so that outliers pull less; :mod:`finemorphs.losses` says how to write one.

    Attributes
    ----------
    sequence_ : str
        The sequence in canonical form.
    input_warp_, response_warp_ : {"none", "quantile", "power"}
        The warps of ``model_``, chosen where they were "auto". With ``preset="best"`` other
        members may have others, which their names say.
    noise_ : float
        The noise level at the end of training.
    objective_ : float
        The objective at the end of training.
    distance_ : dict of float
        The deformation cost d_V(id, phi_q)^2 of each D module, by its name.
    stationarity_ : dict of float
        The norm of the gradient of the objective by the parameters of each module, by its name,
        where training ended; the maximum principle asks for 0.
    n_iter_, n_evaluations_ : int
        Iterations, and evaluations of objective and gradient.
    history_ : dict of ndarray
        One entry an iteration: round, iteration, evaluations, sigma, objective, energy, affine,
        endpoint, rmse (in the units of y), seconds.
    converged_ : bool
        Whether training came to its end, or the search where there was one.
    status_ : str
        Why training ended, as a sentence.
    model_ : Model
        The numbers behind the first flow, which ``transform`` and ``trajectory`` show.
    members_ : tuple of Member
        What ``predict`` averages: name, weight, model. One member but for ensembles.
    noise_path_ : ndarray of shape (n_rows, 7)
        Where rows held out chose the noise level, a row a step: the kernel's order, the ridge of
        the first A module, the multiple of the estimated sigma, the mean squared error on rows held
        out, as a share of the variance, the evaluations of objective and gradient, the multiple of
        the given widths, and the ridge of the last A module.
        A level that was gone on with has several rows.
    selection_ : dict
        With ``preset="best"``: candidates with their error out of fold, their weight and the folds
        that they were fitted in, fewer for flows that were left; those that were rejected before
        they were weighed; the error of the mean, the numbers that the model holds, and the kernel
        evaluations that the prediction of a row takes.
    residual_ : ndarray of shape (n_responses,)
        With several members, or ``preset="best"``: the error that is not their disagreement.
        After ``fit`` it is the root mean squared error on the training rows (with
        ``preset="best"``, out of fold), after :meth:`calibrate` what the errors there are above
        the spread of the members.
    conformity_scores_ : ndarray of shape (n_rows, n_responses)
        Absolute errors on the rows of :meth:`calibrate`, once that was called.
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
        tol: float = 3e-4,
        memory: int = 25,
        batch_size: int | None = None,
        input_warp: str = "none",
        response_warp: str = "none",
        preset: str | None = None,
        n_members: int = 1,
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
        loss: str | Loss = "squared",
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
        self.input_warp = input_warp
        self.response_warp = response_warp
        self.preset = preset
        self.n_members = n_members
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
        self.loss = loss

    def fit(
        self,
        X: ArrayLike | Stream,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> FineMorphsRegressor:
        """Train on a table.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a stream
            With ``subset_size``, a memory map of more than 100,000 rows, and a
            :class:`~finemorphs.streams.ParquetStream`, which knows its responses, are read in
            blocks of rows as training goes.
        y : array-like of shape (n_samples,) or (n_samples, n_responses)
        sample_weight : array-like of shape (n_samples,), optional
            A weight of 2 is the row twice, a weight of 0 the row left out. So weights that add up
            to 1 make a table of one row: give them a mean of 1.

        Returns
        -------
        self
        """
        for name in ("conformity_scores_", "residual_"):  # of another model
            self.__dict__.pop(name, None)
        # Smaller maps are arrays: joblib hands arrays to its workers as maps.
        may_stream = y is not None and sample_weight is None and self.subset_size is not None
        if may_stream and isinstance(X, np.memmap) and len(X) > SAMPLE:
            X = ArrayStream(X, np.asanyarray(y))
        if isinstance(X, Stream):
            if sample_weight is not None:
                raise ValueError(
                    "sample_weight is given with a stream of rows, which cannot be weighted; "
                    "leave it out, or give arrays in memory."
                )
            self._check_plain_fit()
            self._fit_stream(X)
            self._n_response_axes = 1 if X.one_response else 2
            return self
        X, y, weights = self._check_data(X, y, sample_weight, y_numeric=True, multi_output=True)
        y = np.asarray(y, dtype=np.float64)
        check_range("y", y)
        self._n_response_axes = y.ndim
        responses = y.reshape(len(y), -1)
        if self.preset != "best":
            self._warn_of_a_long_fit(X, responses.shape[1])
        self._learn(X, responses, weights)
        if len(self.members_) > 1 or hasattr(self, "selection_"):
            self._measure_residual(X, responses, weights)
        return self

    @property
    def input_warp_(self) -> str:
        """The kind of warp of the inputs."""
        return warp_kind(self.model_.x_scaling.warp)

    @property
    def response_warp_(self) -> str:
        """The kind of warp of the responses."""
        return warp_kind(self.model_.y_scaling.warp)

    def _warps(self) -> tuple[str, str]:
        return self.input_warp, self.response_warp

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> Array: ...

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[Array, Array]: ...

    def predict(self, X: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Responses for the rows of a table.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : bool, default=False
            Whether to give standard deviations too: the root of the variance over the members
            plus ``residual_`` squared. It needs several members, or ``preset="best"``; where
            that keeps one member, it is the error out of fold, the same for all rows.

        Returns
        -------
        responses : ndarray of shape (n_samples,) or (n_samples, n_responses)
            As y was in ``fit``.
        std : ndarray shaped like the responses
            Only with ``return_std``.
        """
        X, engine, device = self._ready(X)
        one = self._n_response_axes == 1
        if return_std:
            self._check_residual()
            mean, spread = self._mean_and_spread(X)
            std = np.sqrt(spread**2 + self.residual_**2)
            return (mean[:, 0], std[:, 0]) if one else (mean, std)
        responses = average(self.members_, lambda model: model.predict(X, engine, device))
        return responses[:, 0] if one else responses

    def _loss_function(self) -> Loss:
        return NAMED[self.loss]() if isinstance(self.loss, str) else self.loss

    def _noise_level(
        self, rows: TrainingRows, rng: np.random.Generator
    ) -> tuple[float, float | None]:
        if not isinstance(self.noise, str):
            return float(self.noise), None
        floor = _PAPER_FLOOR if self.noise == "paper" else 0.0
        level = estimate_noise(
            rows.x, rows.y, rows.weights, rows.y_scaling.scale, rng, floor, rows.total
        )
        sigma = level.sigma
        if self.warm_start and hasattr(self, "noise_"):
            sigma = min(sigma, self.noise_)
        return sigma, level.target

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
