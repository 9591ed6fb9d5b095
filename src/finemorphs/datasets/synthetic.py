"""Datasets that are made, not downloaded."""

from __future__ import annotations

import math
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_scalar

from finemorphs._typing import Array

__all__ = ["make_rings", "make_tori"]

_DISC = math.pi  # two rings of high response around a disc and inside a rim of low response
_RING, _TUBE = 1.0, 0.35  # radii of a torus: of its core circle, and of the tube around it


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
    rng = _check(n_samples, noise, random_state)
    r = _DISC * np.sqrt(rng.random(n_samples))
    angle = 2 * math.pi * rng.random(n_samples)
    X = np.column_stack([r * np.cos(angle), r * np.sin(angle)])
    return X, -np.cos(4 * r) + noise * rng.standard_normal(n_samples)


def make_tori(
    n_samples: int = 500,
    *,
    noise: float = 0.0,
    random_state: int | np.random.Generator | None = None,
) -> tuple[Array, Array]:
    """Points of two tori in space, linked like two rings of a chain, and which torus each is on.

    The first torus lies flat around the origin, the second stands upright and passes through
    the hole of the first. Any diffeomorphism of space keeps them linked, so that no plane
    separates their images; with a fourth dimension one can be lifted out of the other.

    Parameters
    ----------
    n_samples : int, default=500
        Number of points, at least 1; the first torus gets the odd one.
    noise : float, default=0.0
        Standard deviation of the Gaussian noise on the points.
    random_state : int, numpy.random.Generator or None, default=None
        Seed or generator; an int gives the same points at each call.

    Returns
    -------
    X : ndarray of shape (n_samples, 3)
        The points, evenly spread over the surfaces, in random order.
    y : ndarray of int of shape (n_samples,)
        0 for the first torus, 1 for the second.

    Examples
    --------
    >>> from finemorphs.datasets import make_tori
    >>> X, y = make_tori(200, random_state=0)
    >>> X.shape, y.sum()
    ((200, 3), np.int64(100))
    """
    rng = _check(n_samples, noise, random_state)
    y = rng.permutation(np.arange(n_samples) % 2)
    around = 2 * math.pi * rng.random(n_samples)
    across = _tube_angles(n_samples, rng)
    r, z = _RING + _TUBE * np.cos(across), _TUBE * np.sin(across)
    flat = np.column_stack([r * np.cos(around), r * np.sin(around), z])
    upright = flat[:, [0, 2, 1]] + [_RING, 0.0, 0.0]
    X = np.where(y[:, None] == 0, flat, upright)
    return X + noise * rng.standard_normal(X.shape), y


def _tube_angles(n: int, rng: np.random.Generator) -> Array:
    """Angles around the tube with density proportional to R + r cos, the torus's area."""
    angles = np.empty(0)
    while len(angles) < n:
        tried = 2 * math.pi * rng.random(2 * n)
        kept = rng.random(2 * n) * (_RING + _TUBE) < _RING + _TUBE * np.cos(tried)
        angles = np.concatenate([angles, tried[kept]])
    return angles[:n]


def _check(
    n_samples: int, noise: float, random_state: int | np.random.Generator | None
) -> np.random.Generator:
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    check_scalar(noise, "noise", Real, min_val=0)
    if not math.isfinite(noise):
        raise ValueError(f"noise is {noise!r}; give a finite standard deviation.")
    return np.random.default_rng(random_state)
