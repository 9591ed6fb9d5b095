"""Pictures of a fitted model; they need matplotlib (``finemorphs[plots]``)."""

from __future__ import annotations

from finemorphs.plots.reshaping import plot_panels, plot_reshaping

__all__ = ["plot_panels", "plot_reshaping"]
