"""The warps of :mod:`._warps` as operations of a program.

quantile   piecewise linear, with the change c_i of its slope at the knot x_i:
           z_0 + s (x - x_0) + sum_i c_i relu(x - x_i)
power      with r = relu(x), l = relu(-x), e the exponent, h_e(r) = ((1 + r)^e - 1) / e:
           h_e(r) - h_(2-e)(l), and back g_e(r) - g_(2-e)(l), g_e(r) = (1 + e r)^(1/e) - 1
"""

from __future__ import annotations

import numpy as np

from finemorphs._typing import Array
from finemorphs.estimators._tape import Value
from finemorphs.estimators._warps import PowerWarp, QuantileWarp, Warp

__all__ = ["undo_warp", "warp"]

_ZERO = 1e-8  # exponents nearer to 0 are 0: what follows would cancel


def warp(of: Warp, table: Value) -> Value:
    """From the units of the data."""
    if isinstance(of, QuantileWarp):
        return _piecewise(table, *_pieces(of, of.knots, of.scores))
    assert isinstance(of, PowerWarp)
    x = (table + -of.center) * (1 / of.spread)
    return _power(x.relu(), of.exponent) + -_power((-x).relu(), 2 - of.exponent)


def undo_warp(of: Warp, table: Value) -> Value:
    """Back to the units of the data."""
    if isinstance(of, QuantileWarp):
        return _piecewise(table, *_pieces(of, of.scores, of.knots))
    assert isinstance(of, PowerWarp)
    above = (table + -of.low).relu() + of.low
    x = -(-above + of.high).relu() + of.high
    values = _root(x.relu(), of.exponent) + -_root((-x).relu(), 2 - of.exponent)
    return values * of.spread + of.center


def _pieces(of: QuantileWarp, x: Array, z: Array) -> tuple[Array, Array, Array, Array]:
    """Offset and outer slope of each column; the column and the change of slope of each knot."""
    starts = [0, *of.ends[:-1]]
    n_columns = len(starts)
    offset, outer = np.empty(n_columns), np.empty(n_columns)
    columns, changes = np.zeros((n_columns, len(x))), np.zeros((len(x), n_columns))
    for j, (a, b) in enumerate(zip(starts, of.ends, strict=True)):
        outer[j] = (z[b - 1] - z[a]) / (x[b - 1] - x[a]) if b - a > 1 else 1.0
        offset[j] = z[a] - outer[j] * x[a]
        slopes = np.diff(z[a:b]) / np.diff(x[a:b])
        columns[j, a:b] = 1
        changes[a:b, j] = np.diff(np.concatenate([[outer[j]], slopes, [outer[j]]]))
    return offset, outer, columns, np.concatenate([x[:, None], changes], axis=1)


def _piecewise(table: Value, offset: Array, outer: Array, columns: Array, knots: Array) -> Value:
    beyond = (table @ columns + -knots[:, 0]).relu()
    return table * outer + offset + beyond @ knots[:, 1:]


def _power(r: Value, exponent: Array) -> Value:
    """((1 + r)^e - 1) / e, and log(1 + r) for e = 0."""
    zero, inverse = _zero_and_inverse(exponent)
    logarithm = (r + 1.0).log()
    return ((logarithm * exponent).exp() + -1.0) * inverse + logarithm * zero


def _root(r: Value, exponent: Array) -> Value:
    """(1 + e r)^(1/e) - 1, and e^r - 1 for e = 0."""
    zero, inverse = _zero_and_inverse(exponent)
    return ((r * exponent + 1.0).log() * inverse + r * zero).exp() + -1.0


def _zero_and_inverse(exponent: Array) -> tuple[Array, Array]:
    zero = np.abs(exponent) < _ZERO
    return zero.astype(float), np.where(zero, 0.0, 1 / np.where(zero, 1.0, exponent))
