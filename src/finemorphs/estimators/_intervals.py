"""Uncertainty: standard deviations from ensembles, and conformal intervals through MAPIE.

The standard deviation of a row is the root of s(x)^2 + residual^2, with s(x) the spread of the
members' predictions, 0 for one member, and one residual level for all rows. It is a scale, not a
guarantee; the intervals of split conformal prediction have one.

With R_1 .. R_n the absolute errors on rows that training has not seen, the interval of a new row
is f(x) -+ the ceil((n + 1) confidence)-th smallest of them. If the new row and these are
exchangeable, it holds the response with probability ``confidence`` or more, whatever the model
and the distribution are; the probability is over both, and for each response on its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from finemorphs._typing import Array, ArrayLike
from finemorphs.engines import Engine, choose_engine
from finemorphs.estimators._members import Member, mean_and_spread

__all__ = ["Intervals"]


class Intervals:
    """Intervals for an estimator that predicts numbers.

    Attributes
    ----------
    conformity_scores_ : ndarray of shape (n_rows, n_responses)
        Absolute errors on the rows of :meth:`calibrate`.
    """

    conformity_scores_: Array
    residual_: Array
    engine: str
    device: str
    members_: tuple[Member, ...]
    selection_: dict[str, Any]
    _ready: Callable[[ArrayLike], tuple[Array, Engine, torch.device]]

    def calibrate(self, X: ArrayLike, y: ArrayLike) -> Any:
        """Measure the errors that :meth:`predict_interval` is made of.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows that ``fit`` has not seen; with rows of training the intervals are too narrow.
        y : array-like of shape (n_samples,) or (n_samples, n_responses)

        Returns
        -------
        self
        """
        check_is_fitted(self)
        predicted = self.predict(X)  # type: ignore[attr-defined]
        observed = np.asarray(y, dtype=np.float64)
        check_consistent_length(predicted, observed)
        if observed.shape != predicted.shape or not np.isfinite(observed).all():
            raise ValueError(
                f"y of shape {observed.shape} cannot be compared with predictions of shape "
                f"{predicted.shape}; give finite responses shaped as in fit."
            )
        self.conformity_scores_ = np.abs(observed - predicted).reshape(len(observed), -1)
        if hasattr(self, "residual_"):
            table, _, _ = self._ready(X)
            _, spread = self._mean_and_spread(table)
            excess = (self.conformity_scores_**2 - spread**2).mean(0)
            self.residual_ = np.sqrt(np.maximum(excess, 0.0))
        return self

    def predict_interval(self, X: ArrayLike, confidence: float = 0.9) -> Array:
        """Intervals that hold the response with the given probability or more.

        Needs ``finemorphs[intervals]`` and :meth:`calibrate` before.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        confidence : float, default=0.9

        Returns
        -------
        ndarray of shape (n_samples, 2) or (n_samples, n_responses, 2)
            Lower and upper ends, in the units of y.
        """
        check_is_fitted(self)
        scores = self._scores_for(confidence)
        predicted: Array = self.predict(X)  # type: ignore[attr-defined]
        columns = predicted.reshape(len(predicted), -1)
        ends = [_conformal(s, p, confidence) for s, p in zip(scores.T, columns.T, strict=True)]
        return np.stack(ends, 1).reshape(*predicted.shape, 2)

    def _mean_and_spread(self, X: Array) -> tuple[Array, Array]:
        """Mean and standard deviation over the members, (n, d_Y), of a checked table."""
        engine, device = choose_engine(self.engine, self.device)
        return mean_and_spread(self.members_, lambda model: model.predict(X, engine, device))

    def _check_residual(self) -> None:
        """Refuse standard deviations where there is nothing to take them from."""
        if not hasattr(self, "residual_"):
            raise ValueError(
                "return_std=True needs several members that can disagree, and there is one; fit "
                "with n_members=5, say, or with preset='best', or use predict_interval."
            )

    def _measure_residual(self, X: Array, y: Array, weights: Array) -> None:
        """The residual level after training on y (n, d_Y)."""
        if "rmse" in getattr(self, "selection_", {}):
            self.residual_ = np.array(self.selection_["rmse"])
        else:
            mean, _ = self._mean_and_spread(X)
            self.residual_ = np.sqrt(np.average((y - mean) ** 2, axis=0, weights=weights))

    def _scores_for(self, confidence: float) -> Array:
        """The conformity scores, where there are enough of them."""
        if not 0 < confidence < 1:
            raise ValueError(f"confidence={confidence!r} is not a probability between 0 and 1.")
        if not hasattr(self, "conformity_scores_"):
            raise ValueError(
                "the estimator was not calibrated, so that its errors on new rows are not known; "
                "call calibrate(X, y) with rows that were not in fit."
            )
        n = len(self.conformity_scores_)
        least = math.ceil(max(1 / confidence, 1 / (1 - confidence)))  # MAPIE's own
        if n < least:
            raise ValueError(
                f"confidence={confidence!r} needs {least} rows of calibration, and there were {n}; "
                "calibrate with more, or ask for less."
            )
        return self.conformity_scores_


class _Given(RegressorMixin, BaseEstimator):
    """A fitted regressor whose predictions are its inputs: ours were made before."""

    n_features_in_ = 1

    def fit(self, X: Array, y: Array) -> _Given:
        """Nothing to do."""
        return self

    def predict(self, X: Array) -> Array:
        """The only column."""
        return X[:, 0]


def _conformal(scores: Array, predicted: Array, confidence: float) -> Array:
    """Intervals (n, 2) around predictions (n), given the errors of calibration."""
    try:
        from mapie.regression import SplitConformalRegressor
    except ImportError as error:
        raise ImportError(
            "prediction intervals need the package mapie, which is not installed; "
            "pip install 'finemorphs[intervals]'."
        ) from error
    conformal = SplitConformalRegressor(_Given(), confidence_level=confidence, prefit=True)
    conformal.conformalize(np.zeros((len(scores), 1)), scores)
    _, intervals = conformal.predict_interval(predicted[:, None])
    result: Array = intervals[:, :, 0]
    return result
