"""Pictures of the flows: where the rows go, how far, and what happens to the volume around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_array, check_consistent_length

from finemorphs._typing import Array, ArrayLike
from finemorphs.plots import _measures
from finemorphs.plots._axes import new_axes
from finemorphs.plots._projection import (
    RESPONSE_AXIS,
    pad_columns,
    principal_axes,
    response_axes,
)
from finemorphs.plots.reshaping import plot_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_displacement", "plot_flow", "plot_trajectories", "plot_volume"]

_LABELS = ("xlabel", "ylabel", "zlabel")


def plot_flow(
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    module: str | None = None,
    n_panels: int = 6,
    response_axis: bool = False,
    cmap: str = "viridis",
) -> Array:
    """The rows at several times of a D module, one panel each.

    Parameters
    ----------
    estimator : FineMorphsRegressor or FineMorphsClassifier
        Fitted.
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        The colours.
    module : str, optional
        Such as "D2"; the first D module by default.
    n_panels : int, default=6
        Moments, evenly spread from time 0 to 1.
    response_axis : bool, default=False
        As in :func:`plot_panels`.
    cmap : str, default="viridis"

    Returns
    -------
    ndarray of matplotlib axes
        One for each panel.
    """
    name, path = _path(estimator, X, module)
    places = np.unique(np.linspace(0, len(path) - 1, n_panels).round().astype(int))
    titles = [f"{name}, t = {place / (len(path) - 1):.2g}" for place in places]
    return plot_panels(
        [path[place] for place in places],
        y,
        titles=titles,
        response_axis=response_axis,
        cmap=cmap,
    )


def plot_trajectories(
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    module: str | None = None,
    n_components: int = 2,
    response_axis: bool = False,
    ax: Axes | None = None,
    cmap: str = "viridis",
) -> Axes:
    """The way of each row through a D module, as a line that ends in a dot.

    Parameters
    ----------
    estimator : FineMorphsRegressor or FineMorphsClassifier
        Fitted.
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        The colours.
    module : str, optional
        Such as "D2"; the first D module by default.
    n_components : {2, 3}, default=2
        Principal axes of all states that are drawn.
    response_axis : bool, default=False
        The last of them is the direction in which the response is linear in the last states.
    ax : matplotlib axes, optional
        With ``projection="3d"`` for three components.
    cmap : str, default="viridis"

    Returns
    -------
    matplotlib axes
    """
    if n_components not in (2, 3):
        raise ValueError(f"n_components={n_components!r} cannot be drawn; give 2 or 3.")
    name, path = _path(estimator, X, module)
    y = check_array(y, ensure_2d=False, dtype=float).ravel()
    check_consistent_length(y, path[0])
    points, labels = _project(path, y, n_components, response_axis)
    ax = ax or new_axes(projection="3d" if n_components == 3 else None)
    colouring: dict[str, Any] = {"c": y, "cmap": cmap, "s": 10, "linewidths": 0, "zorder": 3}
    ends = ax.scatter(*points[-1].T, **colouring)
    colours = ends.get_cmap()(ends.norm(y))
    for row in range(points.shape[1]):
        ax.plot(*points[:, row].T, color=colours[row], linewidth=0.8, alpha=0.5)
    ax.set(title=f"trajectories through {name}", **dict(zip(_LABELS, labels, strict=False)))
    room: dict[str, Any] = {}
    if n_components == 3:
        ax.locator_params(nbins=4)
        ax.yaxis.labelpad = 8
        room = {"pad": 0.15}  # for the name of the third axis
    ax.figure.colorbar(ends, ax=ax, label="response", **room)
    return ax


def plot_displacement(estimator: Any, X: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """How far each D module moves the rows: quartiles, and whiskers from 5 to 95 of 100 rows.

    Parameters
    ----------
    estimator : FineMorphsRegressor or FineMorphsClassifier
        Fitted.
    X : array-like of shape (n_samples, n_features)
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes
    """
    ax = _boxes(ax, _measures.displacements(estimator, X))
    ax.set(title="displacement", ylabel="|z(1) - z(0)|, standardised units")
    ax.set_ylim(bottom=0)
    return ax


def plot_volume(estimator: Any, X: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Local change of volume by each D module: log-determinants of its Jacobian at the rows.

    Above 0 a module spreads the surroundings of a row out, below 0 it draws them together. Boxes
    are quartiles, whiskers go from 5 to 95 of 100 rows.

    Parameters
    ----------
    estimator : FineMorphsRegressor or FineMorphsClassifier
        Fitted.
    X : array-like of shape (n_samples, n_features)
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes
    """
    ax = _boxes(ax, _measures.volumes(estimator, X))
    ax.axhline(0, color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    ax.set(title="local change of volume", ylabel="log |det Jacobian|")
    return ax


def _project(
    path: Array, y: Array, n_components: int, response_axis: bool
) -> tuple[Array, list[str]]:
    """The states in a few axes, and what the axes are called."""
    stack = path.reshape(-1, path.shape[2])
    labels = [f"PC {i}" for i in range(1, n_components + 1)]
    if response_axis:
        turned = response_axes(stack, y, fitted=path[-1])
        points = turned[:, [*range(n_components - 1), 2]]
        labels[-1] = RESPONSE_AXIS
    else:
        points = pad_columns(principal_axes(stack), n_components)
    return points.reshape(*path.shape[:2], n_components), labels


def _boxes(ax: Axes | None, columns: dict[str, Array]) -> Axes:
    if not columns:
        raise ValueError("the sequence has no D module to draw; use a sequence such as 'ADA'.")
    ax = ax or new_axes()
    ax.boxplot(
        list(columns.values()),
        tick_labels=list(columns),
        whis=(5, 95),
        showfliers=False,
        medianprops={"color": "C0"},
    )
    return ax


def _path(estimator: Any, X: ArrayLike, module: str | None) -> tuple[str, Array]:
    """Name of a D module, and the states (T + 1, n, d) of the rows at its times."""
    found = _measures.paths(estimator, X)
    name = next(iter(found), None) if module is None else module
    if name is None or name not in found:
        known = ", ".join(map(repr, found)) or "none"
        raise ValueError(
            f"module={module!r} is no D module of {estimator.sequence_!r}; it has {known}."
        )
    return name, found[name]
