"""Pictures of a fit: its predictions, its training, its matrices, what it depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_array

from finemorphs._typing import Array, ArrayLike
from finemorphs.plots import _measures
from finemorphs.plots._axes import new_axes, pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_convergence", "plot_predictions", "plot_sensitivity", "plot_singular_values"]

_PARTS = {
    "objective": "objective",
    "energy": "energy of the flows",
    "affine": "cost of the matrices",
    "endpoint": "error",
}


def plot_predictions(
    estimator: Any, X: ArrayLike, y: ArrayLike, *, axes: tuple[Axes, Axes] | None = None
) -> Array:
    """Predicted against observed values, and the residuals against the predictions.

    Parameters
    ----------
    estimator : FineMorphsRegressor
        Fitted.
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,) or (n_samples, n_responses)
        Responses are told apart by colour.
    axes : pair of matplotlib axes, optional

    Returns
    -------
    ndarray of two matplotlib axes
    """
    observed = check_array(y, ensure_2d=False, dtype=float)
    observed = observed.reshape(len(observed), -1)
    predicted = np.asarray(estimator.predict(X)).reshape(observed.shape)
    if axes is None:
        axes = pyplot().subplots(1, 2, figsize=(10, 4.4), layout="constrained")[1]
    left, right = axes
    ends = min(observed.min(), predicted.min()), max(observed.max(), predicted.max())
    left.plot(ends, ends, color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    right.axhline(0, color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    for o, p in zip(observed.T, predicted.T, strict=True):
        left.scatter(o, p, s=9, alpha=0.5, linewidths=0)
        right.scatter(p, o - p, s=9, alpha=0.5, linewidths=0)
    left.set(xlabel="observed", ylabel="predicted")
    right.set(xlabel="predicted", ylabel="observed - predicted")
    return np.array([left, right])


def plot_convergence(estimator: Any, *, ax: Axes | None = None) -> Axes:
    """The objective and its three parts over the iterations of training.

    Thin lines mark the rounds in which the noise level was lowered.

    Parameters
    ----------
    estimator : FineMorphsRegressor or FineMorphsClassifier
        Fitted.
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes
    """
    ax = ax or new_axes()
    history = estimator.history_
    for name, label in _PARTS.items():
        ax.plot(history["iteration"], history[name], label=label, linewidth=1.5)
    for place in history["iteration"][1:][np.diff(history["round"]) > 0]:
        ax.axvline(place, color="0.8", linewidth=0.8, zorder=0)
    ax.set(xlabel="iteration", ylabel="cost", yscale="log")
    ax.legend(frameon=False)
    return ax


def plot_singular_values(estimator: Any, *, ax: Axes | None = None) -> Axes:
    """The singular values of the matrix of each A module, falling.

    Parameters
    ----------
    estimator : FineMorphsRegressor or FineMorphsClassifier
        Fitted.
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes
    """
    columns = _measures.singular_values(estimator)
    if not columns:
        raise ValueError("the sequence has no A module to draw; use a sequence such as 'ADA'.")
    ax = ax or new_axes()
    for name, values in columns.items():
        ax.plot(np.arange(1, len(values) + 1), values, marker="o", markersize=4, label=name)
    ax.set(xlabel="number", ylabel="singular value", yscale="log")
    ax.locator_params("x", integer=True)
    ax.legend(frameon=False)
    return ax


def plot_sensitivity(
    estimator: Any, X: ArrayLike, *, n_features: int = 20, ax: Axes | None = None
) -> Axes:
    """The effect of each input on the prediction, from the exact derivatives.

    The effect is the root mean square of the derivative times the standard deviation of the
    input over that of the prediction; of several responses the mean is taken.

    Parameters
    ----------
    estimator : FineMorphsRegressor or FineMorphsClassifier
        Fitted.
    X : array-like of shape (n_samples, n_features)
    n_features : int, default=20
        How many are drawn, those of the largest effect.
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes
    """
    names, effects = _measures.effects(estimator, X)
    names, effects = names[:n_features], effects[:n_features]
    ax = ax or new_axes()
    places = np.arange(len(names))
    ax.barh(places, effects)
    ax.set_yticks(places, names, parse_math=False)
    ax.invert_yaxis()
    ax.set(xlabel="effect on the prediction")
    return ax
