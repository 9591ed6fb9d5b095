"""From a user's table to training rows: merged, standardised, the control points first.

Rows that are equal in X and y are one row with their weights added: two control points in
one place steer the flow as one does, and a weight of 2 is the row twice by construction.
The merged rows stand in lexicographic order, so that the order of a table does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.cluster import kmeans_plusplus

from finemorphs._typing import Array
from finemorphs.estimators._numbers import check_spread
from finemorphs.estimators._warps import Warp, fit_warp
from finemorphs.sorting import find_equal, sort_rows

__all__ = [
    "Scaling",
    "TrainingRows",
    "choose",
    "in_order",
    "in_units",
    "is_spread",
    "merge",
    "pad",
    "prepare",
]

_DUMMY_NOISE = 0.01
_SEEDS_FROM = 50_000


@dataclass(frozen=True)
class Scaling:
    """Means and standard deviations of columns; a column that does not vary is divided by 1.

    Where there is a ``warp``, they are those of the warped columns.
    """

    mean: Array
    scale: Array
    warp: Warp | None = None

    @classmethod
    def of(cls, table: Array, weights: Array, warp: str = "none") -> Scaling:
        """Of the columns of a table, computed without overflow."""
        fitted = fit_warp(warp, table, weights)
        if fitted is not None:
            table = fitted.apply(table)
        share = (weights / weights.sum())[:, None]
        largest = np.abs(table).max(0)
        unit = np.where(largest > 0, largest, 1.0)
        mean = (share * (table / unit)).sum(0)
        deviation = table / unit - mean
        varies = is_spread(table.min(0), table.max(0))
        spread = np.where(varies, np.abs(deviation).max(0), 1.0)
        scale = spread * np.sqrt((share * (deviation / spread) ** 2).sum(0))
        return cls(mean * unit, np.where(varies, scale * unit, 1.0), fitted)

    def apply(self, table: Array) -> Array:
        """Warp and standardise."""
        warped = table if self.warp is None else self.warp.apply(table)
        return (warped - self.mean) / self.scale

    def undo(self, table: Array) -> Array:
        """Back to the units of the data."""
        warped = table * self.scale + self.mean
        return warped if self.warp is None else self.warp.undo(warped)

    def slope(self, table: Array) -> Array:
        """The derivative of :meth:`apply` at values in the units of the data."""
        slope = np.ones_like(table) if self.warp is None else self.warp.slope(table)
        return slope / self.scale

    def responses(self, z: Array) -> Array:
        """What standardised predictions are in the units of the data, where the warp is limited."""
        return self.undo(z) if self.warp is None else self.warp.undo(self._limit(z)[0])

    def response_slope(self, z: Array) -> Array:
        """The derivative of :meth:`responses`; 0 beyond the limits."""
        if self.warp is None:
            return np.broadcast_to(self.scale, z.shape)
        limited, inside = self._limit(z)
        return np.where(inside, self.scale / self.warp.slope(self.warp.undo(limited)), 0.0)

    def _limit(self, z: Array) -> tuple[Array, Array]:
        """Warped responses within the limits of the warp, and which were."""
        assert self.warp is not None
        warped = z * self.scale + self.mean
        limited = self.warp.limit(warped)
        return limited, limited == warped


def is_spread(least: Array, largest: Array) -> Array:
    """Whether columns vary between these values by more than rounding."""
    unit = np.maximum(np.abs(least), np.abs(largest))
    varies: Array = largest - least > 8 * np.finfo(float).eps * unit
    return varies


def in_units(jacobian: Array, x_slope: Array, response_slope: Array) -> Array:
    """Derivatives (n, d_Y, d_X) between standardised columns, in the units of the data."""
    return jacobian * x_slope[:, None, :] * response_slope[:, :, None]


@dataclass(frozen=True)
class TrainingRows:
    """Standardised rows x (n, d_X) and y (n, d_Y) with weights, the control points first."""

    x: Array
    y: Array
    weights: Array
    n_controls: int
    x_scaling: Scaling
    y_scaling: Scaling

    @property
    def uniform(self) -> bool:
        """Whether every row weighs 1."""
        return bool((self.weights == 1).all())

    @property
    def total(self) -> float:
        """Sum of the weights of all rows."""
        return float(self.weights.sum())


def prepare(
    table: Array,
    responses: Array,
    weights: Array,
    subset_size: int | None = None,
    subset_method: str = "random",
    *,
    rng: np.random.Generator,
    standardise_responses: bool = True,
    warps: tuple[str, str] = ("none", "none"),
) -> TrainingRows:
    """Merge, standardise and renumber the rows of a table (n, d_X) with responses (n, d_Y).

    ``warps`` are the kinds of warp of the table and of the responses.
    """
    table, responses, weights = merge(table, responses, weights)
    x_scaling = Scaling.of(table, weights, warps[0])
    n_responses = responses.shape[1]
    y_scaling = Scaling(np.zeros(n_responses), np.ones(n_responses))
    if standardise_responses:
        y_scaling = Scaling.of(responses, weights, warps[1])
        check_spread("y", y_scaling.scale)
    x, y = x_scaling.apply(table), y_scaling.apply(responses)
    n_controls = len(x)
    if subset_size is not None and subset_size < len(x):
        n_controls = subset_size
        chosen = choose(x, weights, subset_size, subset_method, rng)
        others = np.setdiff1d(np.arange(len(x)), chosen)
        order = np.concatenate([chosen, others])
        x, y, weights = x[order], y[order], weights[order]
    return TrainingRows(x, y, weights, n_controls, x_scaling, y_scaling)


def pad(
    x: Array, n_dummies: int, rng: np.random.Generator | None = None, tied: bool = False
) -> Array:
    """Append dummy columns: noise N(0, 0.01^2) for control points, which give an rng; else 0.

    With ``tied`` rows of one x have the same noise, so that training does not tell them apart by
    what is not there at prediction.
    """
    dummies = np.zeros((len(x), n_dummies))
    if rng is not None:
        dummies = _DUMMY_NOISE * rng.standard_normal((len(x), n_dummies))
    if tied:
        first, place = find_equal(x)
        dummies = dummies[first[place]]
    return np.concatenate([x, dummies], axis=1)


def merge(table: Array, responses: Array, weights: Array) -> tuple[Array, Array, Array]:
    """The rows that differ, in lexicographic order, with the weights of equal ones added."""
    rows, weights, new = _arrange(table, responses, weights)
    first = np.flatnonzero(new)
    table, responses = np.hsplit(rows[first], [table.shape[1]])
    return table, responses, np.add.reduceat(weights, first)


def in_order(table: Array, responses: Array, weights: Array) -> tuple[Array, Array, Array]:
    """The rows that have a weight, in lexicographic order."""
    rows, weights, _ = _arrange(table, responses, weights)
    table, responses = np.hsplit(rows, [table.shape[1]])
    return table, responses, weights


def _arrange(table: Array, responses: Array, weights: Array) -> tuple[Array, Array, Array]:
    """The rows that have a weight, in order, their weights, and which differ from the last."""
    kept = weights > 0
    rows = np.concatenate([table[kept], responses[kept]], axis=1) + 0.0  # -0.0 becomes 0.0
    order, new = sort_rows(rows)
    return rows[order], weights[kept][order], new


def choose(x: Array, weights: Array, size: int, method: str, rng: np.random.Generator) -> Array:
    """Indices of the control points, in increasing order.

    k-means++ seeds are those of a sample of 50,000 rows (at least twenty for each control
    point) where there are more.
    """
    sample = max(_SEEDS_FROM, 20 * size)
    if method == "random":
        chosen = rng.choice(len(x), size, replace=False)
    elif len(x) > sample:
        rows = np.sort(rng.choice(len(x), sample, replace=False))
        chosen = rows[choose(x[rows], weights[rows], size, method, rng)]
    else:
        _, chosen = kmeans_plusplus(
            x, size, sample_weight=weights, random_state=int(rng.integers(2**31))
        )
        chosen = np.unique(chosen)
        if len(chosen) < size:  # fewer distinct rows than seeds
            others = np.setdiff1d(np.arange(len(x)), chosen)
            chosen = np.concatenate([chosen, rng.choice(others, size - len(chosen), replace=False)])
    return np.sort(chosen)
