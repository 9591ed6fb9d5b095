"""The weights of the candidates: those of the best average of what they predict out of fold.

    min_w | sum_c w_c g_c (o_c - y) |^2,   w_c >= 0,   sum_c w_c = 1

with o_c what candidate c predicts and g_c its caution (``docs/mathematics.md``, section 10).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from finemorphs._typing import Array
from finemorphs.estimators.best._task import Candidate, Task

__all__ = ["simplex_least_squares", "weigh"]

_LEAST_WEIGHT = 0.02


def weigh(task: Task, candidates: Sequence[Candidate]) -> Array:
    """Weights over the rows that all candidates hold out; those that hardly count are 0."""
    predictions = np.stack([c.out_of_fold for c in candidates])
    known = ~np.isnan(predictions).any((0, 2))
    spread = np.where(np.ptp(task.y, axis=0) > 0, task.y.std(0), 1.0)
    scale = np.sqrt(task.weights[known])[:, None] / spread
    y = (task.y[known] * scale).ravel()
    columns = (predictions[:, known] * scale).reshape(len(candidates), -1).T
    columns = y[:, None] + (columns - y[:, None]) * [c.caution for c in candidates]
    kept = np.ones(len(candidates), dtype=bool)
    shares = np.zeros(len(candidates))
    for _ in range(2):
        shares[:] = 0
        shares[kept] = simplex_least_squares(columns[:, kept], y)
        kept = shares >= _LEAST_WEIGHT
    return shares


def simplex_least_squares(columns: Array, y: Array) -> Array:
    """The weights w >= 0 with sum 1 that bring columns w nearest to y."""
    # Differences from y: |columns w - y| = |(columns - y) w| when the weights add up to 1.
    gaps = columns - y[:, None]
    largest = float(np.abs(gaps).max())
    total = 1e4 * (largest if largest > 0 else 1.0) * len(y) ** 0.5
    rows = np.vstack([gaps, np.full((1, gaps.shape[1]), total)])
    weights: Array = nnls(rows, np.r_[np.zeros(len(y)), total])[0]
    return np.asarray(weights / weights.sum())
