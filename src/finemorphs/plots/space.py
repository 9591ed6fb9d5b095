"""The rows on their way through the whole model, in space, to turn and to play; by plotly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_array, check_consistent_length

from finemorphs._typing import ArrayLike
from finemorphs.plots._frames import frames_of
from finemorphs.plots._projection import RESPONSE_AXIS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["plot_space"]


def plot_space(
    estimator: Any, X: ArrayLike, y: ArrayLike, *, cmap: str = "Viridis", label: str = "response"
) -> Figure:
    """The rows in three dimensions through every module, with a slider and a play button.

    Upwards is the direction in which the response is linear behind the modules of a space,
    across are the two principal axes of the rest.

    Parameters
    ----------
    estimator : FineMorphsRegressor or FineMorphsClassifier
        Fitted.
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        The colours, and the upward direction.
    cmap : str, default="Viridis"
        A colour scale of plotly.
    label : str, default="response"
        What the colour bar is called.

    Returns
    -------
    plotly.graph_objects.Figure
        ``figure.show()`` opens it, ``figure.write_html(path)`` saves it.
    """
    graph = _graph_objects()
    y = check_array(y, ensure_2d=False, dtype=float).ravel()
    moments = frames_of(estimator.trajectory(X), y)
    check_consistent_length(y, moments[0].points)
    marker = {"size": 3, "color": y, "colorscale": cmap, "colorbar": {"title": {"text": label}}}
    titles = [m.name if m.name[0] in "XA" else f"{m.name} {m.time:.2g}" for m in moments]
    frames = [
        graph.Frame(
            name=str(i),
            data=[graph.Scatter3d(**_places(m.points))],
        )
        for i, m in enumerate(moments)
    ]
    figure = graph.Figure(
        data=[graph.Scatter3d(**_places(moments[0].points), mode="markers", marker=marker)],
        frames=frames,
    )
    ticks = {"showticklabels": False, "range": [-1.6, 1.6]}
    figure.update_layout(
        scene={
            "xaxis": {**ticks, "title": {"text": "axis 1"}},
            "yaxis": {**ticks, "title": {"text": "axis 2"}},
            "zaxis": {**ticks, "title": {"text": RESPONSE_AXIS}},
            "aspectmode": "cube",
        },
        margin={"l": 0, "r": 0, "t": 30, "b": 0},
        updatemenus=[_play_button()],
        sliders=[
            {
                "steps": [
                    {"label": title, "method": "animate", "args": [[str(i)], _at_once()]}
                    for i, title in enumerate(titles)
                ]
            }
        ],
    )
    return figure


def _places(points: Any) -> dict[str, Any]:
    return dict(zip("xyz", np.round(points, 4).T, strict=True))


def _play_button() -> dict[str, Any]:
    smooth = {"frame": {"duration": 150}, "transition": {"duration": 150}, "fromcurrent": True}
    play = {"label": "Play", "method": "animate", "args": [None, smooth]}
    return {"type": "buttons", "buttons": [play], "x": 0, "y": 0}


def _at_once() -> dict[str, Any]:
    return {"frame": {"duration": 0}, "transition": {"duration": 0}, "mode": "immediate"}


def _graph_objects() -> Any:
    try:
        import plotly.graph_objects as graph
    except ImportError as error:
        raise ImportError(
            "plot_space needs plotly, which is not installed; pip install finemorphs[plots]."
        ) from error
    return graph
