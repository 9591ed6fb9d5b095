"""Datasets that are made, not downloaded."""

from __future__ import annotations

import math
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_scalar

from finemorphs._typing import Array

__all__ = ["make_rings"]

_RADIUS = math.pi  # two rings of high response around a disc and inside a rim of low response


def make_rings(
    n_samples: int = 500,
    *,
    noise: float = 0.0,
    random_state: int | np.random.Generator | None = None,
) -> tuple[Array, Array]:
    """Points of a disc whose response makes concentric rings (paper, "Dummy Dimensions").

    The response at distance r from the centre is y = -cos(4 r) + noise, for points drawn
    evenly from the disc of radius pi. Two points of equal response may be far apart with
    other responses between them, so that no diffeomorphism of the plane makes y linear;
    one of the space with a third dimension added does.

    Parameters
    ----------
    n_samples : int, default=500
        Number of points, at least 1.
    noise : float, default=0.0
        Standard deviation of the Gaussian noise on the response.
    random_state : int, numpy.random.Generator or None, default=None
        Seed or generator; an int gives the same points at each call.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The points.
    y : ndarray of shape (n_samples,)
        Their responses.

    Examples
    --------
    >>> from finemorphs.datasets import make_rings
    >>> X, y = make_rings(200, random_state=0)
    >>> X.shape, y.shape
    ((200, 2), (200,))
    """
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    check_scalar(noise, "noise", Real, min_val=0)
    if not math.isfinite(noise):
        raise ValueError(f"noise is {noise!r}; give a finite standard deviation.")
    rng = np.random.default_rng(random_state)
    r = _RADIUS * np.sqrt(rng.random(n_samples))
    angle = 2 * math.pi * rng.random(n_samples)
    X = np.column_stack([r * np.cos(angle), r * np.sin(angle)])
    return X, -np.cos(4 * r) + noise * rng.standard_normal(n_samples)
