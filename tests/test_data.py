"""Tables before training: the order of rows, equal rows, columns that do not vary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finemorphs.estimators._data import Scaling, in_order, merge, pad


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


def test_rows_in_order_are_all_rows_with_a_weight():
    table, responses = (
        np.array([[2.0], [1.0], [2.0], [3.0]]),
        np.array([[1.0], [0.0], [1.0], [9.0]]),
    )
    x, y, weights = in_order(table, responses, np.array([1.0, 2.0, 3.0, 0.0]))
    assert np.c_[x, y, weights].tolist() == [[1, 0, 2], [2, 1, 1], [2, 1, 3]]


def test_tied_dummies_are_those_of_the_first_row_of_an_x():
    x = np.array([[1.0, 2.0], [0.0, 2.0], [1.0, 2.0], [1.0, 3.0]])
    free = pad(x, 2, np.random.default_rng(0))
    tied = pad(x, 2, np.random.default_rng(0), tied=True)
    np.testing.assert_array_equal(tied, free[[0, 1, 0, 3]])
    assert 0 < np.abs(free[0, 2:] - free[2, 2:]).max() < 0.1


@pytest.mark.parametrize("warp", ["none", "quantile", "power"])
@given(value=st.floats(-1e9, 1e9), n=st.integers(5, 1200), weighted=st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_column_that_does_not_vary_is_divided_by_1(warp, value, n, weighted):
    """Whatever its value: its mean and its normal score are rounded."""
    rng = np.random.default_rng(n)
    weights = rng.uniform(0.1, 3, n) if weighted else np.ones(n)
    table = np.c_[np.full(n, value), rng.standard_normal(n)]
    scaling = Scaling.of(table, weights, warp)
    assert scaling.scale[0] == 1
    later = np.array([[value, 0.0], [value + 2.0, 0.0]])
    near = 1e-6 * max(1.0, abs(value))
    np.testing.assert_allclose(scaling.apply(later)[:, 0], [0, 2], atol=near)


def test_a_column_that_hardly_varies_is_one_that_does():
    values = 1e6 + np.linspace(-1e-6, 1e-6, 100)
    scaling = Scaling.of(values[:, None], np.ones(100))
    assert scaling.scale[0] == pytest.approx(values.std(), rel=1e-3)
