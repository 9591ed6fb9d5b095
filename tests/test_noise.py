"""The noise estimate against plain loops, its formulas, and what weights mean."""

from __future__ import annotations

import math

import numpy as np
import pytest
from _oracles import local_variance as naive
from _oracles import one_thread  # noqa: F401
from hypothesis import given, settings
from hypothesis import strategies as st

from finemorphs.training import estimate_noise, noise
from finemorphs.training.noise import local_variance


def data(n=30, d=2, d_y=1, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    y = np.sin(x @ rng.standard_normal((d, d_y))) + 0.3 * rng.standard_normal((n, d_y))
    return x, y


def estimated(x, y, weights=None, seed=0):
    weights = np.ones(len(x)) if weights is None else np.asarray(weights, float)
    return local_variance(x, y, weights, np.random.default_rng(seed))


@pytest.mark.parametrize("d_y", [1, 2])
@pytest.mark.parametrize(("n", "d"), [(2, 1), (3, 2), (9, 1), (10, 1), (11, 3), (40, 1), (40, 3)])
def test_agrees_with_plain_loops(n, d, d_y):
    x, y = data(n, d, d_y)
    np.testing.assert_allclose(estimated(x, y), naive(x, y).numpy(), rtol=1e-9)


@settings(max_examples=15)
@given(st.lists(st.floats(1.0, 4.0), min_size=12, max_size=12), st.integers(0, 100))
def test_agrees_with_plain_loops_with_weights(weights, seed):
    x, y = data(12, 2, 2, seed)
    np.testing.assert_allclose(
        estimated(x, y, weights), naive(x, y, weights).numpy(), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("weight", [0.75, 0.4])
def test_agrees_with_plain_loops_with_weights_under_one(weight):
    """The k nearest rows are those that fill k places: more rows where they weigh less."""
    x, y = data(60, 2)
    weights = np.full(60, weight)
    np.testing.assert_allclose(
        estimated(x, y, weights), naive(x, y, weights).numpy(), rtol=1e-9, atol=1e-12
    )


@settings(max_examples=25)
@given(st.lists(st.integers(1, 4), min_size=14, max_size=14), st.integers(0, 100))
def test_an_integer_weight_is_the_row_that_often(weights, seed):
    x, y = data(14, 2, 2, seed)
    rows = np.repeat(np.arange(14), weights)
    np.testing.assert_allclose(
        estimated(x, y, weights), estimated(x[rows], y[rows]), rtol=1e-9, atol=1e-12
    )
    one, other = (
        estimate_noise(*arguments, np.full(2, 3.0), np.random.default_rng(0))
        for arguments in ((x, y, np.array(weights, float)), (x[rows], y[rows], np.ones(len(rows))))
    )
    assert one.sigma == pytest.approx(other.sigma, rel=1e-9)
    assert one.target == pytest.approx(other.target, rel=1e-9)


def test_the_order_of_the_rows_does_not_matter():
    x, y = data(40)
    order = np.random.default_rng(1).permutation(40)
    np.testing.assert_allclose(estimated(x, y), estimated(x[order], y[order]))


def test_responses_are_estimated_one_by_one():
    x, y = data(40, d_y=3)
    alone = [estimated(x, y[:, [j]])[0] for j in range(3)]
    np.testing.assert_allclose(estimated(x, y), alone)


def test_formulas_of_sigma_and_target():
    """sigma^2 = sqrt(N) max(sum(s2)/2, 0.01), target = sum(max(s2, 1e-4) sd^2)/2."""
    x, y = data(50, d_y=2)
    scale, weights = np.array([2.0, 5.0]), np.full(50, 1.5)
    s2 = estimated(x, y, weights)
    level = estimate_noise(x, y, weights, scale, np.random.default_rng(0))
    assert s2.sum() / 2 > 0.01
    assert level.sigma**2 == pytest.approx(math.sqrt(75) * s2.sum() / 2)
    assert level.target == pytest.approx((s2 * scale**2).sum() / 2)


def test_both_have_a_floor():
    x, y = data(50)
    level = estimate_noise(x, 0 * y, np.ones(50), np.ones(1), np.random.default_rng(0))
    assert level.sigma**2 == pytest.approx(math.sqrt(50) * 0.01)
    assert level.target == pytest.approx(1e-4 / 2)


def test_the_target_follows_the_units_of_y_but_for_the_paper_s_floor():
    x, y = data(50)
    weights, rng = np.ones(50), np.random.default_rng(0)
    targets = [estimate_noise(x, y, weights, np.array([s]), rng).target for s in (1.0, 1e-6)]
    assert targets[1] == pytest.approx(1e-12 * targets[0])
    level = estimate_noise(x, y, weights, np.array([1e-6]), rng, target_floor=0.01)
    assert level.target == 0.01


@pytest.mark.parametrize("constant", [0.0, 7.5])
def test_a_constant_response_has_no_noise(constant):
    x, _ = data(30)
    assert estimated(x, np.full((30, 1), constant)) == 0


def test_a_steep_linear_response_has_little():
    """Residuals of the local ridge regression, not differences of the responses."""
    x, _ = data(200)
    y = x @ np.array([[3.0], [-2.0]])
    differences = np.mean((y[1:] - y[:-1]) ** 2)
    assert estimated(x, y)[0] < 0.02 * differences


def test_pure_noise_is_found():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2000, 2)), rng.standard_normal((2000, 1))
    assert 0.8 < estimated(x, y)[0] < 2.2


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_tiny_tables(n):
    x, y = data(n)
    level = estimate_noise(x, y, np.ones(n), np.ones(1), np.random.default_rng(0))
    assert level.sigma > 0
    assert level.target > 0
    assert math.isfinite(level.sigma + level.target)


def test_one_row_has_no_neighbour():
    assert estimated(*data(1)).tolist() == [0.0]


def test_rows_with_the_same_x_are_each_others_neighbours():
    """Half the squared difference of two such rows is their variance; the residual is all of it."""
    x = np.repeat(np.arange(6.0)[:, None] * 100, 2, axis=0)
    y = np.tile([[1.0], [-1.0]], (6, 1))
    assert estimated(x, y)[0] == pytest.approx(4.0)


@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_rows_in_one_place_are_each_others_neighbours_alike(weight):
    """Not the nearest in the order of the table, nor the copies of the row itself alone."""
    y = np.random.default_rng(0).integers(0, 3, 30).astype(float)
    every = np.repeat(y, int(weight))
    gaps = (every[:, None] - every[None]) ** 2
    expected = gaps.sum() / (len(every) * (len(every) - 1))
    found = estimated(np.zeros((30, 1)), y[:, None], np.full(30, weight))
    assert found[0] == pytest.approx(expected, rel=1e-12)


def test_columns_of_few_values_have_the_variance_within_them():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (4000, 2)).astype(float)
    y = x @ [[1.0], [3.0]] + 0.5 * rng.standard_normal((4000, 1))
    assert estimated(x, y)[0] / 2 == pytest.approx(0.25, rel=0.1)


def test_a_column_that_does_not_vary_is_harmless():
    x, y = data(30)
    wide = np.concatenate([x, np.zeros((30, 1))], axis=1)
    assert np.isfinite(estimated(wide, y)).all()


def test_chunks_do_not_matter(monkeypatch):
    x, y = data(40)
    whole = estimated(x, y)
    monkeypatch.setattr(noise, "_CHUNK_NUMBERS", 150)
    np.testing.assert_allclose(estimated(x, y), whole)


def test_large_tables_are_sampled(monkeypatch):
    x, y = data(60)
    whole = estimated(x, y)
    monkeypatch.setattr(noise, "_ALL_ROWS", 60)
    assert estimated(x, y, seed=1) == estimated(x, y, seed=2) == whole
    monkeypatch.setattr(noise, "_ALL_ROWS", 59)
    monkeypatch.setattr(noise, "_SAMPLE", 20)
    first, again, other = (estimated(x, y, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first != whole
    monkeypatch.setattr(noise, "_SAMPLE", 60)
    np.testing.assert_allclose(estimated(x, y), whole)


@pytest.mark.parametrize("weighted", [False, True])
def test_more_columns_than_neighbours(weighted):
    """The smaller of two systems is solved, with the same answer; memory is not d^2 a row."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((30, 40)), rng.standard_normal((30, 2))
    weights = rng.integers(1, 4, 30).astype(float) if weighted else np.ones(30)
    expected = naive(x, y, weights)
    found = local_variance(x, y, weights, rng)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
