"""Tables before training: the order of their rows, and rows that are equal."""

from __future__ import annotations

import numpy as np
import pytest

from finemorphs.estimators._data import merge


@pytest.mark.parametrize("n_values", [1, 2, 5, 1000])
@pytest.mark.parametrize("shape", [(1, 1), (40, 1), (300, 4)])
def test_equal_rows_are_merged_in_lexicographic_order(shape, n_values):
    rng = np.random.default_rng(n_values)
    rows = rng.integers(-n_values, n_values, shape).astype(float)
    y, weights = (
        rng.integers(0, 2, (len(rows), 1)).astype(float),
        rng.integers(0, 3, len(rows)) + 0.0,
    )
    weights[0] = 1.0
    table, responses, merged = merge(rows, y, weights)
    expected: dict[tuple[float, ...], float] = {}
    for row, weight in zip(np.c_[rows, y].tolist(), weights, strict=True):
        if weight > 0:
            expected[tuple(row)] = expected.get(tuple(row), 0.0) + weight
    assert [tuple(row) for row in np.c_[table, responses].tolist()] == sorted(expected)
    assert merged.tolist() == [expected[row] for row in sorted(expected)]


def test_zeros_of_either_sign_are_equal():
    table, _, weights = merge(np.array([[0.0], [-0.0]]), np.ones((2, 1)), np.ones(2))
    assert table.tolist() == [[0.0]]
    assert weights.tolist() == [2.0]
