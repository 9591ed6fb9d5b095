"""The kernel and its scales.

    k(x, x') = s_0 <x, x'> + s_1 (1 + r + r^2/3) e^-r + s_2 e^-q + s_3 e^-gr
    r = |(I + E) (v * (x - x'))|_2,   q = |w * (x - x')|_1

The smooth part (s_1), a Matern kernel of order 2 with a width for each feature, carries what a
flow carries too; the rough one (s_2) follows steps, thresholds and rows that are nearly the same,
as forests of trees do. E mixes the features. With it there is a sharp part (s_3), as rough as the
rough one in the mixed features; else both are 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from finemorphs._typing import Array, Tensor

__all__ = [
    "JITTER",
    "Parts",
    "Scales",
    "bands",
    "kernel_matrix",
    "kernel_parts",
    "own_kernel",
    "radial_slope",
    "rows_at_once",
    "two_valued",
]

JITTER = 1e-7  # of the noise
_LEAST_RADIUS = 1e-6  # in the slope of the sharp part, which has a kink at 0
# Rows, and pairs of them, at once; those of a processor stay in its cache.
_MOST_AT_ONCE, _PAIRS_AT_ONCE = 2048, {"cpu": 2**18, "cuda": 2**24}


@dataclass(frozen=True)
class Scales:
    """The scales of the kernel.

    ``logarithms`` are those of s_0, s_1, s_2, the weights v and w of the features and tau, the
    vector p; ``mixing`` is E, (d, d); ``sharp`` are s_3 and g.
    """

    logarithms: Array
    mixing: Array
    sharp: Array

    @classmethod
    def start(cls, d: int) -> Scales:
        """Where the search begins: standardised features that matter alike."""
        smooth, rough = np.full(d, d**-0.5), np.full(d, 0.3 * d**-0.5)
        return cls.of_logarithms(np.log([0.1, 0.5, 0.5, *smooth, *rough, np.exp(-3.0)]))

    @classmethod
    def of_logarithms(
        cls, p: Array, mixing: Array | None = None, sharp: Array | None = None
    ) -> Scales:
        """From the vector p, which holds neither mixing nor the sharp part."""
        d = (len(p) - 4) // 2
        return cls(
            np.array(p),
            np.zeros((d, d)) if mixing is None else mixing,
            np.zeros(2) if sharp is None else sharp,
        )

    @cached_property
    def _values(self) -> Array:
        return np.asarray(np.exp(self.logarithms))

    @property
    def parts(self) -> Array:
        """s_0, s_1 and s_2."""
        return self._values[:3]

    @property
    def smooth(self) -> Array:
        """v, (d,)."""
        return self._values[3 : 3 + len(self.mixing)]

    @property
    def rough(self) -> Array:
        """w, (d,)."""
        return self._values[3 + len(self.mixing) : -1]

    @property
    def noise(self) -> float:
        """tau."""
        return float(self._values[-1])

    @property
    def metric(self) -> Array:
        """B = (I + E) diag(v), so that r = |B (x - x')|."""
        return np.asarray((np.eye(len(self.smooth)) + self.mixing) * self.smooth)


class Parts(NamedTuple):
    """The four parts of the kernel between rows, and the distance r; no ``sharp`` if s_3 is 0."""

    linear: Tensor
    smooth: Tensor
    rough: Tensor
    sharp: Tensor | None
    r: Tensor

    def total(self) -> Tensor:
        """k."""
        kernel = (self.linear + self.smooth).add_(self.rough)
        return kernel if self.sharp is None else kernel.add_(self.sharp)


def own_kernel(scales: Scales, rows: Tensor) -> Tensor:
    """k(x, x) of each row."""
    s0, s1, s2 = (float(part) for part in scales.parts)
    return s0 * rows.square().sum(1) + (s1 + s2 + float(scales.sharp[0]))


def kernel_parts(scales: Scales, a: Tensor, b: Tensor, gaps: Tensor | None = None) -> Parts:
    """The parts of the kernel between rows.

    With the ``gaps`` of columns of two values, of which a and b are rows in double precision,
    distances come from products of matrices where the kernel is smooth in their squares: faster
    where there are many columns.
    """
    metric = torch.as_tensor(scales.metric).to(a)
    rough = torch.as_tensor(scales.rough).to(a)
    s0, s1, s2 = scales.parts
    s3, rate = scales.sharp
    euclidean = _distances if gaps is None or s3 > 0 else _by_product
    r = euclidean(a @ metric.T, b @ metric.T)
    q = _city_blocks(rough, a, b, gaps)
    # In place where it can be: a fresh matrix takes longer than what is computed in it.
    return Parts(
        (a @ b.T).mul_(s0),
        (r * r).div_(3).add_(r).add_(1).mul_(r.neg().exp_()).mul_(s1),
        q.neg_().exp_().mul_(s2),
        (-rate * r).exp_().mul_(s3) if s3 > 0 else None,
        r,
    )


def _distances(a: Tensor, b: Tensor, p: int = 2) -> Tensor:
    """The norms |a_i - b_j|_p, p = 1 or 2, without cancellation."""
    if a.device.type == "cuda":
        return _by_columns(a, b, p)
    return torch.cdist(a, b, p=p, compute_mode="donot_use_mm_for_euclid_dist")


def _by_columns(a: Tensor, b: Tensor, p: int) -> Tensor:
    """The same for a GPU, where torch.cdist gives a block of threads to each pair of short rows."""
    total = a.new_zeros(len(a), len(b))
    for of_a, of_b in zip(a.T, b.T, strict=True):
        gaps = of_a[:, None] - of_b[None, :]
        total = total.add_(gaps.abs_()) if p == 1 else total.addcmul_(gaps, gaps)
    return total if p == 1 else total.sqrt_()


def two_valued(rows: Tensor) -> Tensor:
    """How far apart the values of each column of two values are, (d,); 0 for other columns."""
    low, high = rows.amin(0), rows.amax(0)
    return torch.where(((rows == low) | (rows == high)).all(0), high - low, 0.0)


def _city_blocks(rough: Tensor, a: Tensor, b: Tensor, gaps: Tensor | None) -> Tensor:
    """q; where gaps are given, that of a column of two values is w (x - x')^2 / gap."""
    if gaps is None:
        return _distances(a * rough, b * rough, 1)
    two, others = gaps > 0, gaps == 0
    q = _distances(a[:, others] * rough[others], b[:, others] * rough[others], 1)
    if two.any():
        root = (rough[two] / gaps[two]).sqrt()
        q += _by_product(a[:, two] * root, b[:, two] * root).square_()
    return q


def _by_product(a: Tensor, b: Tensor) -> Tensor:
    """The norms |a_i - b_j|_2 from products; in double precision their error is some 1e-8 |a_i|."""
    return torch.cdist(a, b, compute_mode="use_mm_for_euclid_dist")


def radial_slope(scales: Scales, parts: Parts) -> Tensor:
    """-h'(r) / r of the parts h that depend on r, so that dk/dx = -slope B^T B (x - x')."""
    slope = (1 + parts.r).mul_(parts.r.neg().exp_()).mul_(scales.parts[1] / 3)
    if parts.sharp is not None:
        slope += scales.sharp[1] * parts.sharp / parts.r.clamp(min=_LEAST_RADIUS)
    return slope


def kernel_matrix(scales: Scales, rows: Tensor, gaps: Tensor | None = None) -> Tensor:
    """K; see :func:`kernel_parts` for ``gaps``."""
    matrix = rows.new_empty(len(rows), len(rows))
    for band, rest in bands(rows):
        part = kernel_parts(scales, rows[band], rows[rest], gaps).total()
        matrix[band, rest] = part
        matrix[rest, band] = part.T
    return matrix


def bands(rows: Tensor) -> Iterator[tuple[slice, slice]]:
    """Some of the rows at a time, and these with all behind them: of other pairs each once."""
    size = rows_at_once(rows)
    for i in range(0, len(rows), size):
        yield slice(i, i + size), slice(i, None)


def rows_at_once(points: Tensor) -> int:
    """So many that their pairs with the points find a place beside each other."""
    pairs = _PAIRS_AT_ONCE[points.device.type]
    return max(1, min(_MOST_AT_ONCE, pairs // max(len(points), 1)))
