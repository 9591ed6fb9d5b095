"""Warps of columns: increasing, undone exactly, with the slope they say, kept as numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from finemorphs import FineMorphsRegressor, load
from finemorphs.estimators._data import Scaling
from finemorphs.estimators._warps import WARPS, fit_warp, restore_warp, warp_kind
from finemorphs.exceptions import ModelFileError, NotInvertibleError

KINDS = sorted(WARPS)


def columns(n: int = 300, seed: int = 0) -> np.ndarray:
    """Skewed, of four values, constant, heavy on both sides, skewed to the left."""
    rng = np.random.default_rng(seed)
    return np.stack(
        [
            1e3 * rng.lognormal(size=n),
            rng.integers(0, 4, n),
            np.ones(n),
            rng.standard_normal(n) ** 3,
            -rng.lognormal(size=n),
        ],
        axis=1,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_undo_is_the_inverse(kind):
    table = columns()
    warp = fit_warp(kind, table, np.ones(len(table)))
    np.testing.assert_allclose(warp.undo(warp.apply(table)), table, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_increasing_and_finite_also_beyond_the_data(kind, seed):
    table = columns(50, seed)
    warp = fit_warp(kind, table, np.ones(50))
    low, high = table.min(0) - 1, table.max(0) + 1
    line = low + np.linspace(0, 1, 200)[:, None] * (high - low)
    warped = warp.apply(line)
    assert (np.diff(warped, axis=0) > 0).all()
    assert np.isfinite(warp.undo(warp.limit(10 * warped))).all()


@pytest.mark.parametrize("kind", KINDS)
def test_undo_is_the_inverse_also_beyond_the_data(kind):
    table = columns()
    warp = fit_warp(kind, table, np.ones(len(table)))
    beyond = table + 2 * np.sign(table - np.median(table, axis=0)) * np.ptp(table, axis=0)
    np.testing.assert_allclose(warp.undo(warp.apply(beyond)), beyond, rtol=1e-7)


def test_a_power_is_not_undone_at_values_that_it_does_not_take():
    table = columns()[:, :1]
    warp = fit_warp("power", table, np.ones(len(table)))
    assert warp.exponent < 0
    with pytest.raises(NotInvertibleError, match=r"column 0 cannot be undone at .*; give values"):
        warp.undo(-1.01 / warp.exponent[None])


@pytest.mark.parametrize("rows", [300, 100_000])
@pytest.mark.parametrize("weighted", [False, True])
def test_responses_reach_their_range_in_training_and_half_of_it_more(rows, weighted):
    """However heavy the tail is, and however light the row at its end."""
    y = np.exp(4 * np.random.default_rng(0).standard_normal((rows, 1)))
    weights = np.where(weighted & (y[:, 0] == y.max()), 1e-6, 1.0)
    scaling = Scaling.of(y, weights, "power")
    np.testing.assert_allclose(scaling.responses(scaling.apply(y)), y, rtol=1e-7, atol=1e-9)
    low, high = scaling.responses(np.array([[-1e99], [1e99]]))[:, 0]
    np.testing.assert_allclose(high, y.max() + 0.5 * np.ptp(y), rtol=1e-7)
    np.testing.assert_allclose(low, y.min() - 0.5 * np.ptp(y), rtol=1e-7)
    assert (scaling.response_slope(np.array([[-1e99], [1e99]])) == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_slope_is_the_derivative(kind):
    table = columns()
    warp = fit_warp(kind, table, np.ones(len(table)))
    between = np.sort(table, axis=0)
    between = 0.5 * (between[1:] + between[:-1]) + 1e-5 * table.std(0)
    step = 1e-7 * np.maximum(table.std(0), 1e-3)
    numeric = (warp.apply(between + step) - warp.apply(between - step)) / (2 * step)
    right = np.isclose(numeric, warp.slope(between), rtol=1e-4)
    assert right.mean() > 0.98  # the rest straddles a knot


def test_normal_scores_are_normal():
    table = columns(2000)[:, [0, 3, 4]]
    scores = fit_warp("quantile", table, np.ones(2000)).apply(table)
    np.testing.assert_allclose(scores.mean(0), 0, atol=0.02)
    np.testing.assert_allclose(scores.std(0), 1, atol=0.03)


def test_a_column_of_few_values_has_as_many_knots_and_no_jumps():
    table = np.random.default_rng(0).choice([2.3, 2.7, 3.1], 500)[:, None]
    warp = fit_warp("quantile", table, np.ones(500))
    assert np.diff(warp.knots).min() > 1e-3
    near = warp.apply(table + 1e-6) - warp.apply(table - 1e-6)
    assert np.abs(near).max() < 1e-3


def test_a_power_makes_a_lognormal_column_symmetric():
    table = columns(2000)[:, :1]
    warped = fit_warp("power", table, np.ones(2000)).apply(table)
    skew = [((c - c.mean()) ** 3).mean() / c.std() ** 3 for c in (table, warped)]
    assert abs(skew[1]) < 0.1 * skew[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_of_two_is_the_row_twice(kind):
    table = columns(40)
    weighted = fit_warp(kind, table, np.r_[np.full(20, 2.0), np.ones(20)])
    repeated = fit_warp(kind, np.r_[table[:20].repeat(2, 0), table[20:]], np.ones(60))
    np.testing.assert_allclose(weighted.apply(table), repeated.apply(table), atol=1e-9)


@pytest.mark.parametrize("kind", [*KINDS, "none"])
def test_a_scaling_with_a_warp_is_undone_and_knows_its_slope(kind):
    table = columns()[:, [0, 3]]
    scaling = Scaling.of(table, np.ones(len(table)), kind)
    assert warp_kind(scaling.warp) == kind
    x = scaling.apply(table)
    np.testing.assert_allclose(x.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(x.std(0), 1)
    np.testing.assert_allclose(scaling.undo(x), table, rtol=1e-9, atol=1e-12)
    assert (scaling.slope(table) > 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_of_a_file_give_the_same_warp(kind):
    table = columns()
    warp = fit_warp(kind, table, np.ones(len(table)))
    again = restore_warp(kind, warp.arrays(), table.shape[1])
    np.testing.assert_array_equal(again.apply(table), warp.apply(table))


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_do_not_fit_are_refused(kind):
    warp = fit_warp(kind, columns(), np.ones(300))
    with pytest.raises(ModelFileError, match="4 columns"):
        restore_warp(kind, warp.arrays(), 4)
    name, array = next(iter(warp.arrays().items()))
    with pytest.raises(ModelFileError, match="not finite"):
        restore_warp(kind, warp.arrays() | {name: np.full_like(array, np.nan)}, 5)
    with pytest.raises(ModelFileError, match="belong"):
        restore_warp(kind, {}, 5)
    with pytest.raises(ModelFileError, match="unknown kind"):
        restore_warp("spline", warp.arrays(), 5)


def test_limits_at_which_a_power_cannot_be_undone_are_refused():
    warp = fit_warp("power", columns(), np.ones(300))
    with pytest.raises(ModelFileError, match="cannot be undone at its limits"):
        restore_warp("power", warp.arrays() | {"high": np.full(5, 1e3)}, 5)


@pytest.fixture(scope="module")
def skewed():
    rng = np.random.default_rng(0)
    x = rng.lognormal(sigma=1.5, size=(80, 2))
    return x, np.exp(np.log(x[:, 0]) + np.sin(np.log(x[:, 1])))


@pytest.mark.parametrize("kind", KINDS)
def test_a_warped_fit_speaks_the_units_of_the_data(kind, skewed, tmp_path):
    x, y = skewed
    model = FineMorphsRegressor(
        input_warp=kind, response_warp=kind, n_steps=3, max_iter=40, random_state=0
    ).fit(x, y)
    plain = FineMorphsRegressor(n_steps=3, max_iter=40, random_state=0).fit(x, y)
    assert np.median(np.abs(model.predict(x) - y)) < np.median(np.abs(plain.predict(x) - y))
    np.testing.assert_allclose(
        model.inverse_transform(model.transform(x), preimage="least-norm"), x, rtol=1e-3
    )
    between = 1.003 * x[:5]  # not at the knots
    step = 1e-6 * between
    for j in range(2):
        shift = step * np.eye(2)[j]
        change = model.predict(between + shift) - model.predict(between - shift)
        slopes = model.jacobian(between)[:, j]
        np.testing.assert_allclose(slopes, change / (2 * step[:, j]), rtol=1e-3, atol=1e-6)
    model.save(tmp_path / "m.fm")
    np.testing.assert_array_equal(load(tmp_path / "m.fm").predict(x), model.predict(x))


@pytest.fixture(scope="module")
def rare():
    """A model of a response that is 1 for few of the rows, with a power of it."""
    x = np.random.default_rng(0).standard_normal((80, 2))
    y = (x[:, 0] > 1.2).astype(float)
    options = {"response_warp": "power", "n_steps": 3, "max_iter": 40, "random_state": 0}
    return x, y, FineMorphsRegressor(**options).fit(x, y)


def test_predictions_stay_near_the_range_of_the_responses(rare, tmp_path):
    x, y, model = rare
    far = 5 * np.concatenate([x, -x])
    predicted = model.predict(far)
    assert predicted.min() >= -0.5
    assert predicted.max() == pytest.approx(1.5)
    assert np.sqrt(np.mean((model.predict(x) - y) ** 2)) < 0.2
    model.save(tmp_path / "m.fm")
    np.testing.assert_array_equal(load(tmp_path / "m.fm").predict(far), predicted)


def test_the_jacobian_is_0_where_predictions_are_limited(rare):
    x, _, model = rare
    far = 5 * np.concatenate([x, -x])
    slopes = model.jacobian(far)
    assert (np.abs(slopes).max(1) == 0).any()
    for j, e in enumerate(np.eye(2)):
        numeric = (model.predict(far + 1e-6 * e) - model.predict(far - 1e-6 * e)) / 2e-6
        np.testing.assert_allclose(slopes[:, j], numeric, rtol=1e-3, atol=1e-6)


def test_an_exported_program_has_the_limits(rare, tmp_path):
    x, _, model = rare
    far = (5 * np.concatenate([x, -x])).astype(np.float32)
    model.export(tmp_path / "m.pt2", format="torch")
    program = torch.export.load(tmp_path / "m.pt2").module()
    np.testing.assert_allclose(
        program(torch.from_numpy(far)), model.predict(far.astype(float)), atol=1e-5
    )


@pytest.mark.parametrize("subset_size", [None, 30])
@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_training_error_is_in_the_units_of_the_responses(kind, loss, subset_size, skewed):
    x, y = skewed
    weights = np.random.default_rng(1).integers(1, 4, len(x)).astype(float)
    model = FineMorphsRegressor(
        response_warp=kind,
        loss=loss,
        subset_size=subset_size,
        batch_size=7,
        n_steps=3,
        max_iter=10,
        dummy_dims=0,
        dtype="float64",
        random_state=0,
    ).fit(x, np.stack([y, x[:, 1]], 1), weights)
    errors = ((model.predict(x) - np.stack([y, x[:, 1]], 1)) ** 2).sum(1)
    expected = np.sqrt(np.average(errors, weights=weights))
    assert model.history_["rmse"][-1] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_end_by_the_error_behind_the_warp(kind, skewed):
    """So that a fit of warped responses is a fit of them as they are behind the warp."""
    x, y = skewed
    options = {"n_steps": 3, "max_iter": 30, "random_state": 0, "dtype": "float64"}
    warped = FineMorphsRegressor(response_warp=kind, **options).fit(x, y)
    z = fit_warp(kind, y[:, None], np.ones(len(y))).apply(y[:, None])[:, 0]
    plain = FineMorphsRegressor(**options).fit(x, z)
    np.testing.assert_array_equal(warped.history_["round"], plain.history_["round"])
    assert warped.noise_ == pytest.approx(plain.noise_)
    assert warped.history_["rmse"][-1] != pytest.approx(plain.history_["rmse"][-1])
