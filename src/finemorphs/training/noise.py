"""The noise level sigma before training, from the data alone (paper, Section 11).

For each row i take its k = min(2 d_X + 1, N // 5) nearest rows, itself included, regress
y_j - y_i on x_j - x_i (ridge 0.01, no intercept), and keep the squared residual at the
nearest of the others. With s2 the mean over i, one value for each response,

    sigma^2 = sqrt(N) max( sum(s2) / 2, 0.01 )
    target  = sum( max(s2, 0.0001) sd_Y^2 ) / 2

x and y are standardised; the target is a mean squared error in the units of y, of the warped y
where it is, under which training stops to lower sigma. (The paper prints the mean over all k
residuals and its root; this is what its authors ran. Their target is max( sum(s2 sd_Y^2)/2, 0.01 ),
whatever the units of y are; ours has that floor only when asked for, so that a fit does not depend
on the units.)

A row of weight w counts as w equal rows: N is the sum of the weights, the k nearest rows
are those that fill k places, and the place behind the row itself is the nearest of the others.
Where that has the same x, and others too (columns of few values), the squared residual is the
mean over all of them, twice the variance of y there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.neighbors import NearestNeighbors

from finemorphs._typing import Array
from finemorphs.sorting import find_equal

__all__ = ["NoiseLevel", "estimate_noise", "local_variance"]

_RIDGE = 0.01
_FLOOR = 0.01
_TARGET_FLOOR = 1e-4  # a hundredth of the response's standard deviation
_ALL_ROWS = 50_000  # up to here every row is taken; beyond, a sample of them
_SAMPLE = 2_000
_CHUNK_NUMBERS = 2**24  # differences x_j - x_i held at once


@dataclass(frozen=True)
class NoiseLevel:
    """Where training begins: sigma, and the mean squared error (units of y) it has to reach."""

    sigma: float
    target: float


def estimate_noise(
    x: Array,
    y: Array,
    weights: Array,
    y_scale: Array,
    rng: np.random.Generator,
    target_floor: float = 0.0,
    total: float | None = None,
) -> NoiseLevel:
    """Sigma and the target of training for standardised rows x (n, d_X) and y (n, d_Y).

    Parameters
    ----------
    x, y : ndarray
        Standardised rows and responses.
    weights : ndarray of shape (n,)
    y_scale : ndarray of shape (d_Y,)
        Standard deviations of the responses.
    rng : Generator
        Draws the sample of rows where there are more than 50,000.
    target_floor : float, default=0.0
        Least target, in the squared units of y; the paper's is 0.01.
    total : float, optional
        Sum of the weights of all rows, where x and y are a sample of them.
    """
    s2 = local_variance(x, y, weights, rng)
    sigma2 = np.sqrt(weights.sum() if total is None else total) * max(s2.sum() / 2, _FLOOR)
    target = max((np.maximum(s2, _TARGET_FLOOR) * y_scale**2).sum() / 2, target_floor)
    return NoiseLevel(float(np.sqrt(sigma2)), float(target))


def local_variance(x: Array, y: Array, weights: Array, rng: np.random.Generator) -> Array:
    """s2 of the module docstring, one value for each response."""
    n, d = x.shape
    if n == 1:
        return np.zeros(y.shape[1])
    places = max(2, min(2 * d + 1, int(weights.sum()) // 5))
    rows = np.arange(n) if n <= _ALL_ROWS else np.sort(rng.choice(n, _SAMPLE, replace=False))
    # So many rows fill the places even if they are the lightest.
    enough = min(int(np.searchsorted(np.cumsum(np.sort(weights)), places)) + 1, n)
    search = NearestNeighbors(n_neighbors=enough).fit(x)
    errors, has_twin = _twin_errors(x, y, weights)
    twins, rows = rows[has_twin[rows]], rows[~has_twin[rows]]
    total, mass = weights[twins] @ errors[twins], weights[twins].sum()
    at_once = max(1, _CHUNK_NUMBERS // (enough * d))
    for chunk in np.array_split(rows, -(-len(rows) // at_once)) if len(rows) else ():
        neighbours = _neighbours(search, x, chunk)
        residuals, share = _nearest_residuals(x, y, weights, chunk, neighbours, places)
        importance = weights[chunk] * share
        total += (importance[:, None] * residuals).sum(0)
        mass += importance.sum()
    return total / mass if mass > 0 else total


def _twin_errors(x: Array, y: Array, weights: Array) -> tuple[Array, Array]:
    """Mean of (y_j - y_i)^2 over the other rows j of the same x, (n, d_Y), and if there are any.

    With their weight W and the mean m of y, itself included:

        ( sum_j w_j (y_j - m)^2 + W (y_i - m)^2 ) / (W - 1)
    """
    _, place = find_equal(x)
    mass = np.bincount(place, weights)[:, None]

    def sums(values: Array) -> Array:
        return np.stack([np.bincount(place, weights * column) for column in values.T], axis=1)

    gaps = (y - (sums(y) / mass)[place]) ** 2
    others = mass[place] - 1
    has_twin = others[:, 0] >= 1
    errors = (sums(gaps)[place] + mass[place] * gaps) / np.where(others > 0, others, 1.0)
    return errors, has_twin


def _neighbours(search: NearestNeighbors, x: Array, rows: Array) -> Array:
    """The nearest rows of each row, itself first even where others have the same x."""
    distance, index = search.kneighbors(x[rows])
    itself = index == rows[:, None]
    missing = ~itself.any(1)
    index[missing, -1] = rows[missing]
    itself[missing, -1] = True
    order = np.argsort(np.where(itself, -1.0, distance), axis=1, kind="stable")
    return np.take_along_axis(index, order, 1)


def _nearest_residuals(
    x: Array, y: Array, weights: Array, rows: Array, neighbours: Array, places: int
) -> tuple[Array, Array]:
    """Squared residual at the nearest other row, (n, d_Y), and how much of a place it filled."""
    dx = x[neighbours] - x[rows, None]
    dy = y[neighbours] - y[rows, None]
    w = weights[neighbours]
    end = np.cumsum(w, axis=1)
    taken = np.clip(places - (end - w), 0, w)  # of the k places
    second = np.clip(np.minimum(end, 2) - np.maximum(end - w, 1), 0, None)  # of the second place
    root = np.sqrt(taken)[:, :, None]
    residuals = (dy - dx @ _ridge_regression(dx * root, dy * root)) ** 2
    share = second.sum(1)
    mean = (second[:, :, None] * residuals).sum(1) / np.where(share > 0, share, 1.0)[:, None]
    return mean, share


def _ridge_regression(dx: Array, dy: Array) -> Array:
    """Slopes (n, d, d_Y) of n regressions with k rows each, by the smaller of two systems."""
    _, k, d = dx.shape
    turned = np.swapaxes(dx, 1, 2)
    slopes: Array
    if k < d:
        slopes = turned @ np.linalg.solve(dx @ turned + _RIDGE * np.eye(k), dy)
    else:
        slopes = np.linalg.solve(turned @ dx + _RIDGE * np.eye(d), turned @ dy)
    return slopes
