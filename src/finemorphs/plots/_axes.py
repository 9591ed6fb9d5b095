"""The drawing library, imported when the first picture is drawn."""

from __future__ import annotations

from typing import Any

__all__ = ["new_axes", "pyplot"]


def pyplot() -> Any:
    """``matplotlib.pyplot``, or an error that names the extra."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib, which is not installed; pip install finemorphs[plots]."
        ) from error
    return plt


def new_axes(projection: str | None = None) -> Any:
    """Axes of a new figure."""
    figure = pyplot().figure(layout="constrained")
    return figure.add_subplot(projection=projection)
