"""The data before, during and after the flow, as the paper shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_array, check_consistent_length

from finemorphs._typing import Array, ArrayLike
from finemorphs.plots._axes import pyplot
from finemorphs.plots._projection import (
    RESPONSE_AXIS,
    pad_columns,
    principal_axes,
    response_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure

__all__ = ["plot_panels", "plot_reshaping"]


def plot_reshaping(
    X: ArrayLike,
    y: ArrayLike,
    states: ArrayLike,
    *,
    axes: tuple[Axes, Axes] | None = None,
    cmap: str = "viridis",
    label: str = "response",
) -> tuple[Axes, Axes]:
    """The data before and after the diffeomorphism (paper, figure "Rings").

    On the left the predictors, on the right the states that leave the last D module, both
    coloured by the response. The states are turned so that upwards is the direction in
    which the response is linear (that of its least-squares fit on the states); across are
    the two principal axes of the rest, on one scale, upwards has a scale of its own.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Predictors. Of more than two features the two principal axes are drawn.
    y : array-like of shape (n_samples,)
        Responses, the colours.
    states : array-like of shape (n_samples, d)
        What ``estimator.transform(X)`` returns.
    axes : pair of matplotlib axes, optional
        A flat one for the left and one with ``projection="3d"`` for the right; a new
        figure is made without it.
    cmap : str, default="viridis"
        Colour map of the response.
    label : str, default="response"
        What the colour bar is called.

    Returns
    -------
    pair of matplotlib axes
        The left and the right one; ``axes[0].figure.savefig(path)`` saves the picture.
    """
    X, states = check_array(X, dtype=float), check_array(states, dtype=float)
    y = check_array(y, ensure_2d=False, dtype=float)
    if y.size != len(y):
        raise ValueError(f"y has shape {y.shape}; one colour a point needs one response column.")
    y = y.ravel()
    check_consistent_length(X, y, states)

    left, right = _new_axes() if axes is None else axes
    if right.name != "3d":
        raise ValueError(
            f"the second of axes has projection {right.name!r}; make it with projection='3d'."
        )
    colours: dict[str, Any] = {"c": y, "cmap": cmap, "s": 16, "linewidths": 0}
    points = _draw_plane(left, pad_columns(X if X.shape[1] <= 2 else principal_axes(X), 2), colours)
    _draw_space(right, response_axes(states, y), colours)

    figure = left.get_figure(root=True)
    assert figure is not None
    bar = figure.colorbar(points, ax=[left, right], label=label, shrink=0.7, aspect=25, pad=0.08)
    bar.outline.set_visible(False)
    return left, right


def plot_panels(
    states: Sequence[ArrayLike],
    y: ArrayLike,
    *,
    titles: Sequence[str] = (),
    response_axis: bool = False,
    n_columns: int = 3,
    cmap: str = "viridis",
    label: str = "response",
) -> Array:
    """The same rows at several moments, one panel each (paper, figures "Reshaped sequence").

    All panels share their axes and limits, so that what moves from one panel to the next has
    moved in the model. The axes are the first three principal axes of all states together.
    A flow may move points less far than they are spread, along none of these: then
    ``response_axis=True`` shows it.

    Parameters
    ----------
    states : sequence of array-like of shape (n_samples, d)
        The states of each panel.
    y : array-like of shape (n_samples,)
        Responses, the colours.
    titles : sequence of str, optional
        One for each panel.
    response_axis : bool, default=False
        Upwards is the direction in which the response is linear in the last states, in the
        units of the states; across are the first two principal axes of the rest.
    n_columns : int, default=3
        Panels side by side.
    cmap : str, default="viridis"
        Colour map of the response.
    label : str, default="response"
        What the colour bar is called.

    Returns
    -------
    ndarray of matplotlib axes
        One for each panel; ``axes[0].figure.savefig(path)`` saves the picture.
    """
    arrays = [check_array(array, dtype=float) for array in states]
    y = check_array(y, ensure_2d=False, dtype=float).ravel()
    check_consistent_length(y, *arrays)
    stack = np.concatenate(arrays)
    if response_axis:
        points, names = response_axes(stack, y, fitted=arrays[-1]), ("PC 1", "PC 2", RESPONSE_AXIS)
    else:
        points, names = pad_columns(principal_axes(stack), 3), ("PC 1", "PC 2", "PC 3")
    points = points.reshape(len(arrays), len(y), 3)
    plt = pyplot()
    n_rows = -(-len(arrays) // n_columns)
    figure: Figure
    figure, axes = plt.subplots(
        n_rows,
        n_columns,
        figsize=(4 * n_columns, 3.7 * n_rows),
        subplot_kw={"projection": "3d"},
        layout="constrained",
        squeeze=False,
    )
    size = float(np.clip(4000 / len(y), 1.5, 12))
    colours: dict[str, Any] = {"c": y, "cmap": cmap, "s": size, "linewidths": 0}
    low, high = points.min(axis=(0, 1)), points.max(axis=(0, 1))
    high = np.where(high > low, high, low + 1)
    limits = list(zip(low, high, strict=True))
    used, spare = axes.flat[: len(arrays)], axes.flat[len(arrays) :]
    for ax in spare:
        ax.remove()
    for i, ax in enumerate(used):
        drawn = ax.scatter(*points[i].T, depthshade=False, rasterized=True, **colours)
        ax.set_title(titles[i] if i < len(titles) else "", y=0.98)
        _share_axes(ax, limits, names)
    bar = figure.colorbar(drawn, ax=used, label=label, shrink=0.6, aspect=30, pad=0.03)
    bar.outline.set_visible(False)
    panels: Array = used
    return panels


def _share_axes(ax: Any, limits: list[tuple[float, float]], names: Sequence[str]) -> None:
    ax.set(xlim=limits[0], ylim=limits[1], zlim=limits[2])
    ax.set_box_aspect((1, 1, 0.85), zoom=0.95)
    ax.view_init(elev=16, azim=-60)
    ax.locator_params(nbins=3)
    ax.tick_params(labelsize="x-small", pad=-2)
    ax.tick_params(axis="z", pad=2)  # a minus sign keeps clear of the axis
    ax.set_xlabel(names[0], labelpad=-3)
    ax.set_ylabel(names[1], labelpad=-3)
    ax.zaxis.set_rotate_label(False)
    ax.set_zlabel(names[2], labelpad=1, rotation=90)
    for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
        axis.set_pane_color("white")


def _draw_plane(ax: Axes, plane: Array, colours: dict[str, Any]) -> PathCollection:
    points = ax.scatter(*plane.T, **colours)
    ax.set_title("before the diffeomorphism")
    ax.set_aspect("equal")
    ax.locator_params(nbins=5)
    ax.spines[["top", "right"]].set_visible(False)
    return points


def _draw_space(ax: Any, space: Array, colours: dict[str, Any]) -> None:
    ax.scatter(*space.T, depthshade=False, **colours)
    ax.set_title("after the diffeomorphism")
    ax.set_aspect("equalxy")
    width, depth, _ = ax.get_box_aspect()
    ax.set_box_aspect((width, depth, 0.75 * max(width, depth)), zoom=0.97)
    ax.view_init(elev=14, azim=-60)
    ax.locator_params(nbins=3)
    ax.tick_params(labelsize="small", pad=0)
    ax.tick_params(axis="z", pad=5)  # a minus sign keeps clear of the axis
    ax.set_xlabel("principal axis 1")
    ax.set_ylabel("principal axis 2")
    ax.set_zlabel(RESPONSE_AXIS, labelpad=8)
    for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
        axis.set_pane_color("white")


def _new_axes() -> tuple[Axes, Axes]:
    figure = pyplot().figure(figsize=(12, 5.2), layout="constrained")
    grid = figure.add_gridspec(1, 2, width_ratios=(1, 1.25))
    return figure.add_subplot(grid[0]), figure.add_subplot(grid[1], projection="3d")
