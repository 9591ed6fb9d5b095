"""Which two or three axes of many are drawn; numbers only, no pictures."""

from __future__ import annotations

import numpy as np

from finemorphs._typing import Array

__all__ = ["RESPONSE_AXIS", "pad_columns", "principal_axes", "response_axes"]

# What the last of the response axes is called: a direction of the states, in their units.
RESPONSE_AXIS = "axis of the response"


def principal_axes(points: Array) -> Array:
    """The centred points in the orthonormal basis of their decreasing variances."""
    centred = points - points.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)  # of rising variances
    scores: Array = centred @ axes[:, ::-1]
    return scores


def response_axes(states: Array, y: Array, fitted: Array | None = None) -> Array:
    """The states turned: two principal axes of the rest, then the direction of the response.

    The direction is that of the least-squares fit of y on the fitted states, or on all.
    """
    fitted = states if fitted is None else fitted
    mean = fitted.mean(axis=0)
    centred = states - mean
    direction = np.linalg.lstsq(fitted - mean, y - y.mean(), rcond=None)[0]
    direction = direction / max(np.linalg.norm(direction), np.finfo(float).tiny)
    height = centred @ direction
    rest = principal_axes(centred - np.outer(height, direction))
    return np.column_stack([pad_columns(rest, 2), height])


def pad_columns(points: Array, n_columns: int) -> Array:
    """The first columns, with columns of zeros where there are too few."""
    missing = max(n_columns - points.shape[1], 0)
    return np.pad(points[:, :n_columns], ((0, 0), (0, missing)))
