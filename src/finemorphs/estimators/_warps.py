"""Monotone maps of columns before they are standardised, fitted by scikit-learn, kept as numbers.

    quantile   the normal score of a value's rank: piecewise linear between the quantiles, with
               the mean slope beyond them
    power      Yeo and Johnson's power of the standardised value, its exponent the most likely one

Both are strictly increasing, so that they can be undone; ``slope`` is their derivative. A power
undone may run away beyond the data: predicted responses are cut to their range in training, widened
by half of it to each side (``limit``). Normal scores are straight there, and are not cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Protocol

import numpy as np
from scipy.special import ndtri
from scipy.stats import yeojohnson
from sklearn.preprocessing import PowerTransformer, QuantileTransformer

from finemorphs._typing import Array
from finemorphs.exceptions import ModelFileError, NotInvertibleError

__all__ = [
    "WARPS",
    "PowerWarp",
    "QuantileWarp",
    "Warp",
    "fit_warp",
    "restore_warp",
    "warp_kind",
]

_KNOTS = 256
_SAME = 1e-9  # of a column's range: quantiles nearer than that are one
_MARGIN = 0.5  # of the range of the training responses: how far beyond it they may be predicted
_LARGEST_EXPONENT = 5.0
_FLATTEST = 1e-6  # least (1 + |x|)^e: where it is less, few digits are left to undo


class Warp(Protocol):
    """A strictly increasing map of each column of a table."""

    def apply(self, table: Array) -> Array:
        """From the units of the data."""

    def undo(self, table: Array) -> Array:
        """Back to the units of the data."""

    def limit(self, table: Array) -> Array:
        """Warped responses, cut to those that may be predicted."""

    def slope(self, table: Array) -> Array:
        """The derivative of :meth:`apply` at values in the units of the data."""

    def arrays(self) -> dict[str, Array]:
        """The numbers of a model file."""


@dataclass(frozen=True)
class QuantileWarp:
    """Knots and normal scores of all columns, one column behind the other.

    ``ends[j]`` is where column j ends in ``knots`` and ``scores``.
    """

    knots: Array
    scores: Array
    ends: Array

    @classmethod
    def fit(cls, table: Array) -> QuantileWarp:
        """The quantiles of each column; equal ones share the mean of their ranks."""
        n = len(table)
        quantiles = QuantileTransformer(
            n_quantiles=min(n, _KNOTS), subsample=None, output_distribution="normal"
        ).fit(table)
        lowest = 0.5 / n
        knots, scores = [], []
        for column in quantiles.quantiles_.T:
            place = _places(column)
            count = np.bincount(place)
            rank = np.bincount(place, quantiles.references_) / count
            knots.append(np.bincount(place, column) / count)
            scores.append(ndtri(np.clip(rank, lowest, 1 - lowest)))
        ends = np.cumsum([len(k) for k in knots])
        return cls(np.concatenate(knots), np.concatenate(scores), ends)

    def apply(self, table: Array) -> Array:
        """Normal scores."""
        return self._map(table, self.knots, self.scores)

    def undo(self, table: Array) -> Array:
        """Values with these scores."""
        return self._map(table, self.scores, self.knots)

    def limit(self, table: Array) -> Array:
        """All of them."""
        return table

    def slope(self, table: Array) -> Array:
        """Slope of the piece a value lies in."""
        result = np.empty_like(table)
        for j, (x, z) in enumerate(self._columns(self.knots, self.scores)):
            slopes = np.diff(z) / np.diff(x)
            outer = _mean_slope(x, z)
            pieces = np.concatenate([[outer], slopes, [outer]])
            result[:, j] = pieces[np.searchsorted(x, table[:, j])]
        return result

    def arrays(self) -> dict[str, Array]:
        """The numbers of a model file."""
        return {"knots": self.knots, "scores": self.scores, "ends": self.ends.astype(float)}

    def _columns(self, of: Array, to: Array) -> list[tuple[Array, Array]]:
        starts = [0, *self.ends[:-1]]
        return [(of[a:b], to[a:b]) for a, b in zip(starts, self.ends, strict=True)]

    def _map(self, table: Array, of: Array, to: Array) -> Array:
        result = np.empty_like(table)
        for j, (x, z) in enumerate(self._columns(of, to)):
            inside = np.clip(table[:, j], x[0], x[-1])
            beyond = (table[:, j] - inside) * _mean_slope(x, z)
            result[:, j] = np.interp(inside, x, z) + beyond
        return result


@dataclass(frozen=True)
class PowerWarp:
    """Yeo and Johnson's transform of (value - center) / spread, one exponent a column.

    ``low`` and ``high`` are the least and the largest warped response that may be predicted.
    """

    center: Array
    spread: Array
    exponent: Array
    low: Array
    high: Array

    @classmethod
    def fit(cls, sample: Array, table: Array) -> PowerWarp:
        """The exponent of largest likelihood for each column of a sample of a table."""
        varies = np.ptp(sample, axis=0) > 0
        center = np.where(varies, sample.mean(0), sample[0])
        spread = np.where(varies, sample.std(0), 1.0)
        standard = (sample - center) / spread
        exponent = PowerTransformer(standardize=False).fit(standard).lambdas_
        exponent = np.where(varies, exponent, 1.0)
        margin = _MARGIN * np.ptp(table, axis=0)
        ends = np.stack([table.min(0) - margin, table.max(0) + margin])
        warp = cls(center, spread, _undoable(exponent, (ends - center) / spread), *ends)
        low, high = warp.apply(ends)
        return replace(warp, low=low, high=high)

    def apply(self, table: Array) -> Array:
        """Powers of the standardised values."""
        standard = (table - self.center) / self.spread
        columns = [yeojohnson(c, e) for c, e in zip(standard.T, self.exponent, strict=True)]
        return np.stack(columns, axis=1) if columns else standard

    def undo(self, table: Array) -> Array:
        """Values with these powers; a power below 0, or above 2, does not take all of them."""
        if (beyond := _beyond(table, self.exponent)).any():
            row, column = np.argwhere(beyond)[0]
            raise NotInvertibleError(
                f"the power warp of column {column} cannot be undone at {table[row, column]:.6g}, "
                "a value that it nowhere takes; give values nearer to those of training rows, or "
                "fit with the warp 'quantile'."
            )
        columns = [_undo_power(c, e) for c, e in zip(table.T, self.exponent, strict=True)]
        return np.stack(columns, axis=1) * self.spread + self.center

    def limit(self, table: Array) -> Array:
        """Not below ``low``, not above ``high``."""
        return np.clip(table, self.low, self.high)

    def slope(self, table: Array) -> Array:
        """(1 + |x|)^(e - 1) for x >= 0, (1 + |x|)^(1 - e) for x < 0, by the spread."""
        standard = (table - self.center) / self.spread
        power = np.where(standard >= 0, self.exponent - 1, 1 - self.exponent)
        return (1 + np.abs(standard)) ** power / self.spread

    def arrays(self) -> dict[str, Array]:
        """The numbers of a model file."""
        return {
            "center": self.center,
            "spread": self.spread,
            "exponent": self.exponent,
            "low": self.low,
            "high": self.high,
        }


WARPS: dict[str, type[QuantileWarp] | type[PowerWarp]] = {
    "quantile": QuantileWarp,
    "power": PowerWarp,
}


def fit_warp(kind: str, table: Array, weights: Array) -> Warp | None:
    """The warp of the columns of a table, None for "none"; a weight of 2 is the row twice."""
    if kind == "none":
        return None
    sample = table
    if not (weights == weights[0]).all():
        shares = np.cumsum(weights) / weights.sum()
        n = max(len(table), int(min(weights.sum(), 10 * len(table))))
        sample = table[np.searchsorted(shares, (np.arange(n) + 0.5) / n)]
    return QuantileWarp.fit(sample) if kind == "quantile" else PowerWarp.fit(sample, table)


def warp_kind(warp: Warp | None) -> str:
    """The name of a warp's kind, "none" without one."""
    return next((kind for kind, known in WARPS.items() if isinstance(warp, known)), "none")


def restore_warp(kind: str, arrays: Mapping[str, Array], n_columns: int) -> Warp | None:
    """The warp behind the numbers of a model file, for so many columns."""
    if kind == "none":
        return None
    if kind not in WARPS:
        raise ModelFileError(f"the file holds a warp of the unknown kind {kind!r}.")
    names = {field.name for field in fields(WARPS[kind])}
    if set(arrays) != names:
        raise ModelFileError(
            f"the {kind} warp of the file holds {sorted(arrays)} where {sorted(names)} belong."
        )
    values = {name: np.asarray(a, dtype=np.float64) for name, a in arrays.items()}
    if not all(np.isfinite(a).all() for a in values.values()):
        raise ModelFileError(f"the {kind} warp of the file holds values that are not finite.")
    if kind == "quantile":
        _check_knots(values, n_columns)
        values["ends"] = values["ends"].astype(int)
    elif any(a.shape != (n_columns,) for a in values.values()):
        raise ModelFileError(f"the power warp of the file is not one of {n_columns} columns.")
    elif any(_beyond(values[name], values["exponent"]).any() for name in ("low", "high")):
        raise ModelFileError("the power warp of the file cannot be undone at its limits.")
    return WARPS[kind](**values)


def _check_knots(values: Mapping[str, Array], n_columns: int) -> None:
    knots, scores, ends = values["knots"], values["scores"], values["ends"]
    counts = np.diff(ends, prepend=0)
    right = (
        ends.shape == (n_columns,)
        and knots.ndim == 1
        and knots.shape == scores.shape
        and bool((counts >= 1).all())
        and ends[-1] == len(knots)
        and bool((ends == np.floor(ends)).all())
    )
    if not right:
        raise ModelFileError(f"the quantile warp of the file is not one of {n_columns} columns.")


def _places(increasing: Array) -> Array:
    """Numbers 0, 0, 1, .. of values, the same for those that only rounding tells apart."""
    gap = _SAME * max(increasing[-1] - increasing[0], np.abs(increasing[[0, -1]]).max())
    return np.concatenate([[0], np.cumsum(np.diff(increasing) > gap)])


def _mean_slope(x: Array, z: Array) -> float:
    """Of a column's map; 1 where the column does not vary."""
    return float((z[-1] - z[0]) / (x[-1] - x[0])) if len(x) > 1 else 1.0


def _undoable(exponent: Array, ends: Array) -> Array:
    """The exponents, none so extreme that the power is flat at the ends (low, high) of its use."""
    left, right = -np.log(_FLATTEST) / np.log1p(np.maximum(np.abs(ends), _FLATTEST))
    lowest = -np.minimum(_LARGEST_EXPONENT, right)
    return np.clip(exponent, lowest, np.minimum(_LARGEST_EXPONENT, 2 + left))


def _beyond(z: Array, exponent: Array) -> Array:
    """Which of the values z Yeo and Johnson's transform does not take."""
    up, down = exponent * np.maximum(z, 0), (2 - exponent) * np.maximum(-z, 0)
    beyond: Array = (up <= -1) | (down <= -1)
    return beyond


def _undo_power(z: Array, exponent: float) -> Array:
    """Yeo and Johnson's transform undone."""
    right, left = np.maximum(z, 0), np.maximum(-z, 0)
    up = np.expm1(right) if exponent == 0 else np.expm1(np.log1p(exponent * right) / exponent)
    rest = 2 - exponent
    down = np.expm1(left) if rest == 0 else np.expm1(np.log1p(rest * left) / rest)
    return np.where(z >= 0, up, -down)
