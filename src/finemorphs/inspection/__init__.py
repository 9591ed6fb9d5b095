"""Ways to look at a fitted model."""

from __future__ import annotations

from finemorphs.inspection.plots import plot_panels, plot_reshaping

__all__ = ["plot_panels", "plot_reshaping"]
