"""Pictures of a fitted model; they need matplotlib and plotly (``finemorphs[plots]``)."""

from __future__ import annotations

from finemorphs.plots.fit import (
    plot_convergence,
    plot_predictions,
    plot_sensitivity,
    plot_singular_values,
)
from finemorphs.plots.flow import plot_displacement, plot_flow, plot_trajectories, plot_volume
from finemorphs.plots.reshaping import plot_panels, plot_reshaping
from finemorphs.plots.space import plot_space

__all__ = [
    "plot_convergence",
    "plot_displacement",
    "plot_flow",
    "plot_panels",
    "plot_predictions",
    "plot_reshaping",
    "plot_sensitivity",
    "plot_singular_values",
    "plot_space",
    "plot_trajectories",
    "plot_volume",
]
