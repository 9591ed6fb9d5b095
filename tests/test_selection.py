"""Choices inside the training data: noise level, warps, members, and the best preset."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.base import clone

from finemorphs import FineMorphsRegressor, load
from finemorphs.engines import choose_engine
from finemorphs.estimators import _base, _noise_choice, _path, _plans, _state
from finemorphs.estimators import best as best_preset
from finemorphs.estimators._members import KernelModel
from finemorphs.estimators._model_state import describe_model, restore_kernel
from finemorphs.estimators._noise_choice import PATH
from finemorphs.estimators._path import (
    Folds,
    Point,
    Step,
    Trial,
    judged_walk,
    mean_error,
    search,
    walk,
)
from finemorphs.estimators.best import _flows, _kernels, _task
from finemorphs.estimators.best._weights import simplex_least_squares, weigh
from finemorphs.exceptions import NotInvertibleError
from finemorphs.training import Progress

FAST = {"n_steps": 2, "max_iter": 15, "random_state": 0, "engine": "cpu"}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((90, 2))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] + 0.1 * rng.standard_normal(90)


@pytest.fixture(scope="module")
def oblique():
    """A response that bends between the columns."""
    x, _ = np.random.default_rng(0).standard_normal((2, 90, 3))
    return x, np.sin(2 * (x[:, 0] - x[:, 1] + x[:, 2]))


@pytest.fixture(scope="module")
def best(table):
    return FineMorphsRegressor(preset="best", **FAST).fit(*table)


@pytest.fixture(scope="module")
def mixed(oblique):
    return FineMorphsRegressor(preset="best", **FAST).fit(*oblique)


# --- noise ------------------------------------------------------------------------------------


def test_cv_walks_the_path_and_ends_at_its_best_level(table, tmp_path):
    model = FineMorphsRegressor(noise="cv", **FAST).fit(*table)
    assert "that predict rows held out best" in model.status_
    assert model.converged_
    orders, ridges, multiples, errors, evaluations, widths, last_ridges = model.noise_path_.T
    assert (widths == 1).all()
    assert (evaluations > 1).all()
    assert (evaluations < 3 * FAST["max_iter"]).all()
    trials = list(dict.fromkeys(zip(orders, ridges, last_ridges, strict=True)))
    assert {(3, 1, 1), (1, 1, 1)} < set(trials)
    kinds = [(0.25, 0.25), (1, 1), (4, 4), (4, 1)]
    assert set(trials) <= {(order, *kind) for order in (1, 3) for kind in kinds}
    for order, ridge, last in trials:
        walked = multiples[(orders == order) & (ridges == ridge) & (last_ridges == last)]
        np.testing.assert_array_equal(walked, PATH[: len(walked)] if ridge >= 1 else PATH[-1:])
    auto = FineMorphsRegressor(noise="auto", max_iter=1, n_steps=1, random_state=0).fit(*table)
    estimated = auto.history_["sigma"][0]
    sequence = model.model_.sequence
    (diffeo,), (first, last) = sequence.diffeos, sequence.affines
    kept = (orders == diffeo.kernel.order) & (ridges == first.ridge) & (last_ridges == last.ridge)
    assert errors[kept].min() <= errors.min() / _noise_choice._WORTH
    assert model.noise_ == pytest.approx(multiples[kept][np.argmin(errors[kept])] * estimated)
    model.save(tmp_path / "m.fm")
    np.testing.assert_array_equal(load(tmp_path / "m.fm").noise_path_, model.noise_path_)


@pytest.mark.parametrize(
    ("most", "options", "held_out"),
    [
        (90, {}, True),
        (91, {}, False),
        (90, {"noise": "paper"}, False),
        (90, {"noise": 1.0}, False),
        (90, {"subset_size": 20}, False),
        (90, {"warm_start": True}, False),
        (90, {"optimizer": "lbfgs"}, False),
        (90, {"max_iter": 15}, False),
        (90, {"tol": 1e-3}, False),
        (90, {"preset": "paper"}, False),
    ],
    ids=str,
)
def test_many_rows_hold_some_out(most, options, held_out, table, monkeypatch):
    """From so many on, what is left at its default is what "cv" is."""
    monkeypatch.setattr(_plans, "MANY", most)
    fast = {"n_steps": 1, "random_state": 0, "engine": "cpu"}
    model = FineMorphsRegressor(**fast, **options).fit(*table)
    assert hasattr(model, "noise_path_") == held_out
    if held_out:
        cv = FineMorphsRegressor(**fast, noise="cv").fit(*table)
        np.testing.assert_array_equal(model.predict(table[0]), cv.predict(table[0]))


def test_cv_says_what_each_path_has_come_to(table, capsys):
    model = FineMorphsRegressor(noise="cv", verbose=1, **FAST).fit(*table)
    orders, ridges, multiples, errors = model.noise_path_[:, :4].T
    last_ridges = model.noise_path_[:, 6]
    best = [k for k in range(len(errors)) if errors[k] == min(errors[orders == orders[k]])]
    lines = capsys.readouterr().out.splitlines()
    for k in best:
        ridge = ridges[k] if ridges[k] == last_ridges[k] else [ridges[k], last_ridges[k]]
        assert (
            f"matern kernel of order {orders[k]:.0f}, ridge {ridge}, {multiples[k]:g} times "
            f"the estimated noise level: {errors[k] ** 0.5:.4g} standard deviations held out."
        ) in lines


def test_warps_by_choice_say_what_each_has_come_to(table, capsys):
    options = {"input_warp": "auto", "response_warp": "power"}
    FineMorphsRegressor(**options, verbose=1, **FAST).fit(*table)
    lines = [line for line in capsys.readouterr().out.splitlines() if "held out" in line]
    assert [line.partition(":")[0] for line in lines] == [
        f"input_warp={kind}, response_warp=power" for kind in ("none", "quantile", "power")
    ]


def test_the_history_of_cv_counts_on(table):
    x = table[0]
    y = np.tanh(9 * x[:, 0]) + x[:, 1]  # the error falls along the path
    model = FineMorphsRegressor(noise="cv", **FAST).fit(x, y)
    history = model.history_
    assert history["round"][-1] > 1
    np.testing.assert_array_equal(history["iteration"], np.arange(1, model.n_iter_ + 1))
    assert (np.diff(history["evaluations"]) > 0).all()
    assert (np.diff(history["seconds"]) > 0).all()
    assert history["evaluations"][-1] <= model.n_evaluations_
    assert history["sigma"][-1] == model.noise_
    assert history["objective"][-1] == model.objective_
    last = history["round"] == history["round"][-1]
    assert (np.diff(history["objective"][last]) < 0).all()


@pytest.mark.parametrize(
    ("sequence", "n_steps", "fewer"),
    [
        ("ADA", 10, 5),
        ("ADA", np.int64(5), 3),
        ("ADA", 1, 1),
        ("ADA", [4], [2]),
        ("AD^4A", 10, 3),
        ("AD^4A", 5, 2),
        ("AD^2A", [10, 1], [3, 1]),
    ],
)
def test_the_search_takes_fewer_time_steps(sequence, n_steps, fewer):
    """Half of them, or a third of each where there are several flows."""
    assert _noise_choice._fewer(FineMorphsRegressor(sequence, n_steps=n_steps)) == fewer


@pytest.mark.parametrize(("short", "subset_size"), [(2, None), (2, 20), (20, None)])
def test_cv_takes_half_the_path_with_all_rows(short, subset_size, table, monkeypatch):
    """From the affine modules that the search found; a short path is walked whole."""
    taken = []

    def spy(estimator, X, y, weights, path, start):
        taken.append((len(X), path, start))
        return walk(estimator, X, y, weights, path, start)

    monkeypatch.setattr(_noise_choice, "walk", spy)
    monkeypatch.setattr(_noise_choice, "_SHORT", short)
    x = table[0]
    y = np.tanh(9 * x[:, 0]) + x[:, 1]  # the error falls along the path
    model = FineMorphsRegressor(noise="cv", subset_size=subset_size, **FAST).fit(x, y)
    ((n_rows, path, start),) = taken
    assert n_rows == len(x)
    assert model.model_.sequence.diffeos[0].n_steps == FAST["n_steps"]
    multiples, errors = model.noise_path_[:, 2:4].T
    assert path[-1].multiple in multiples[errors <= errors.min() / _noise_choice._WORTH]
    if short > 2:
        assert path[0].multiple == PATH[0]
        assert start is None
        return
    assert path[0].multiple < PATH[0]
    assert start.sequence.diffeos[0].n_steps == FAST["n_steps"] // 2
    for module, part in zip(start.sequence.modules, start.sequence.split(start.theta), strict=True):
        assert bool((part == 0).all()) == module.name.startswith("D")


@pytest.mark.parametrize(
    ("first", "end"),
    [(None, 6), (None, 5), (0, 5), (1, 5)],
    ids=["one ridge", "old", "older", "oldest"],
)
def test_a_path_of_an_older_file_has_what_was_given(first, end, table, tmp_path, monkeypatch):
    model = FineMorphsRegressor(noise="cv", kernel_order=2, **FAST).fit(*table)
    tensors, header = _state.describe(model)
    path = tensors.pop("noise_steps")
    if first is None:
        tensors["noise_steps"] = path[:, :end].contiguous()
    else:
        tensors["noise_path"] = path[:, first:end].contiguous()
        path[:, 4] = np.nan  # folds, where the evaluations are
    path[:, 6] = path[:, 1]
    monkeypatch.setattr(_base, "describe", lambda _: (tensors, header))
    model.save(tmp_path / "m.fm")
    np.testing.assert_array_equal(load(tmp_path / "m.fm").noise_path_, path.numpy())


@pytest.mark.parametrize(
    ("options", "orders", "ridges"),
    [
        ({"ridge": 0.5}, {1, 3}, [{0.5}]),
        ({"kernel_order": 2}, {2}, [{1, 4}, {1, 0.25}]),
        ({"ridge": [2.0, 4.0], "kernel_order": 4}, {4}, [{2}]),
        ({"kernel": "gaussian"}, {3}, [{1, 4}, {1, 0.25}]),
    ],
)
def test_cv_keeps_what_was_given(options, orders, ridges, table):
    model = FineMorphsRegressor(noise="cv", **options, **FAST).fit(*table)
    assert set(model.noise_path_[:, 0]) == orders
    assert set(model.noise_path_[:, 1]) in ridges


@pytest.mark.parametrize(("near", "orders"), [(np.inf, {1, 3}), (1.0, {3})])
def test_cv_tries_a_strong_ridge_with_kernels_near_the_best(near, orders, table, monkeypatch):
    monkeypatch.setattr(_noise_choice, "_NEAR", near)
    rng = np.random.default_rng(1)
    x, noisy = table[0], rng.standard_normal(len(table[0]))  # the error rises along the path
    path = FineMorphsRegressor(noise="cv", **FAST).fit(x, noisy).noise_path_
    assert set(path[path[:, 6] == 4, 0]) == orders
    assert 0.25 not in path[:, 1]


@pytest.mark.parametrize("widths", ["decreasing", [2 / 3, 1 / 3]], ids=["word", "numbers"])
def test_cv_tries_a_strong_ridge_in_front_of_the_flows(widths, table, monkeypatch):
    """With wide kernels beside a word, which gives the shape; it takes them if they are better."""
    # two levels each: order 3, order 1, a strong ridge with order 3, that in front of the flows
    left = iter([4.0, 5.0, 4.4, 5.0, 3.0, 4.0, 2.0, 3.0])
    monkeypatch.setattr(_path, "mean_error", lambda *_: next(left))
    x, y = table
    model = FineMorphsRegressor(noise="cv", sequence="AD2A", kernel_width=widths, **FAST).fit(x, y)
    factor = 4.0 if isinstance(widths, str) else 1.0
    tried = list(dict.fromkeys(map(tuple, model.noise_path_[:, [0, 1, 6, 5]])))
    assert tried == [(3, 1, 1, 1), (1, 1, 1, 1), (3, 4, 4, 1), (3, 4, 1, factor)]
    sequence = model.model_.sequence
    assert [module.ridge for module in sequence.affines] == [4.0, 1.0]
    got = [module.kernel.width for module in sequence.diffeos]
    np.testing.assert_allclose(got, factor * np.array([2 / 3, 1 / 3]))


@pytest.mark.parametrize(
    ("sequence", "ridges"),
    [
        ("ADA", [9, 1]),
        ("AD^4A", [9, 1]),
        ("(AD)^2A", [9, 9, 1]),
        ("DADA", [9, 1]),
        ("AD", None),
        ("DA", None),
        ("A", None),
        ("D", None),
    ],
)
def test_which_modules_are_in_front_of_a_flow(sequence, ridges):
    """A ridge on these alone is another one only where there are others."""
    assert _noise_choice._before_flows(sequence, 9.0) == ridges


def test_cv_goes_on_with_a_weak_ridge_where_the_error_falls_to_the_end(table):
    x = table[0]
    y = np.tanh(9 * x[:, 0]) + x[:, 1]
    model = FineMorphsRegressor(noise="cv", **FAST).fit(x, y)
    path = model.noise_path_
    assert 4 not in path[:, 1]
    np.testing.assert_array_equal(path[path[:, 1] == 0.25, 2], PATH[-1])
    assert path[np.argmin(path[:, 3]), 1] == 0.25
    assert {module.ridge for module in model.model_.sequence.affines} == {0.25}


def test_cv_follows_a_rough_response_with_a_rough_kernel():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (400, 1))
    y = np.abs((8 * x[:, 0]) % 2 - 1) + 0.01 * rng.standard_normal(400)
    model = FineMorphsRegressor(noise="cv", n_steps=5, random_state=0).fit(x, y)
    assert model.model_.sequence.diffeos[0].kernel.order == 1


def _searched(errors, table, monkeypatch, most=1000, rival=np.inf, weak=None, **options):
    """The steps of a search over four levels whose points have these errors, in their order."""
    x, y = table
    left = iter(errors)
    monkeypatch.setattr(_path, "mean_error", lambda *_: next(left))
    fold = np.arange(60), np.arange(60, 90)
    estimator = FineMorphsRegressor(**{**FAST, **options})
    data, multiples = (x, y[:, None], np.ones(len(x))), [2.0, 1.4, 1.0, 0.7]
    points = search(estimator, data, fold, multiples, most=most, rival=rival, weak_ridge=weak)
    assert [point.error for point in points] == errors
    assert all(point.prediction.shape == (30, 1) for point in points)
    assert [point.fit.ridge for point in points] == [point.step.ridge or 1 for point in points]
    return [tuple(point.step if weak else point.step[:2]) for point in points]


def test_a_path_is_left_where_it_leads_away(table, monkeypatch):
    steps = _searched([1.0, 0.9, 1.0], table, monkeypatch)
    assert steps == [(2.0, FAST["max_iter"]), (1.4, FAST["max_iter"]), (1.0, FAST["max_iter"])]


def test_a_level_is_gone_on_with_while_the_error_falls(table, monkeypatch):
    monkeypatch.setattr(_path, "_ITERATIONS", 2)
    monkeypatch.setattr(_path, "_TOLERANCE", 0.0)
    errors = [1.0, 0.9, 0.8, 0.799, 0.7, 0.71, 0.72]
    steps = _searched(errors, table, monkeypatch, max_iter=30, tol=0.0)
    # 0.8 is worth going on from 0.9, 0.799 is not; the first level has nothing to be judged by.
    assert steps == [(2.0, 2), (1.4, 2), (1.4, 4), (1.4, 8), (1.0, 2), (1.0, 4), (0.7, 2)]


@pytest.mark.parametrize(("most", "max_iter"), [(1000, 13), (13, 30)])
def test_a_level_takes_no_more_iterations_than_it_may(most, max_iter, table, monkeypatch):
    monkeypatch.setattr(_path, "_ITERATIONS", 2)
    monkeypatch.setattr(_path, "_TOLERANCE", 0.0)
    errors = [0.5**k for k in range(7)]
    steps = _searched(errors, table, monkeypatch, most, max_iter=max_iter, tol=0.0)
    for level in (1.4, 1.0, 0.7):
        assert [n for multiple, n in steps if multiple == level] == [2, 4]


def test_a_level_that_is_converged_is_left(table, monkeypatch):
    monkeypatch.setattr(_path, "_ITERATIONS", 2)
    monkeypatch.setattr(_path, "_TOLERANCE", 1.0)  # every fit is at its end at once
    steps = _searched([1.0, 0.5, 0.25, 0.12], table, monkeypatch, max_iter=30)
    assert [multiple for multiple, _ in steps] == [2.0, 1.4, 1.0, 0.7]


@pytest.mark.parametrize(
    ("rival", "errors"),
    [(0.8, [0.97]), (0.8, [0.95, 0.9, 0.85, 0.8]), (0.8, [0.95, 0.97])],
    ids=["behind at once", "near", "behind later"],
)
def test_a_path_far_behind_a_rival_is_left(rival, errors, table, monkeypatch):
    steps = _searched(errors, table, monkeypatch, rival=rival)
    assert [multiple for multiple, _ in steps] == [2.0, 1.4, 1.0, 0.7][: len(steps)]


@pytest.mark.parametrize(
    ("errors", "weak_steps"),
    [
        ([1.0, 0.99, 0.98, 0.97, 0.8, 0.79], 2),
        ([1.0, 0.99, 0.98, 0.97, 0.99], 1),
        ([1.0, 0.99, 0.96, 0.97], 0),
        ([1.0, 0.99, 1.1], 0),
    ],
    ids=["gains", "gains nothing", "best before the end", "left before the end"],
)
def test_a_path_that_is_best_at_its_end_goes_on_with_a_weak_ridge(
    errors, weak_steps, table, monkeypatch
):
    monkeypatch.setattr(_path, "_ITERATIONS", 2)
    monkeypatch.setattr(_path, "_TOLERANCE", 0.0)
    monkeypatch.setattr(_path, "_PAYS", 0.9)
    steps = _searched(errors, table, monkeypatch, most=6, weak=0.5, tol=0.0)
    levels = [(multiple, 2, None) for multiple in (2.0, 1.4, 1.0, 0.7)]
    weak = [(0.7, 2, 0.5), (0.7, 4, 0.5)][:weak_steps]
    assert steps == levels[: len(steps) - weak_steps] + weak


def test_a_trial_knows_the_path_to_its_best_point_and_behind():
    def path(*errors, behind):
        points = [Point(Step(k, 1), None, None, error) for k, error in enumerate(errors)]
        return [step.multiple for step in Trial({}, points).path(behind)]

    assert path(0.5, 0.4, 0.6, 0.7, behind=0) == [0, 1]
    assert path(0.5, 0.4, 0.6, 0.7, behind=1) == [0, 1, 2]
    assert path(0.5, 0.4, 0.3, behind=1) == [0, 1, 2]
    assert path(0.5, behind=1) == [0]


def test_steps_that_are_given_are_walked_to_the_end(table, monkeypatch):
    x, y = table
    errors = iter([1.0, 5.0, 9.0])
    monkeypatch.setattr(_path, "mean_error", lambda *_: next(errors))
    path = [Step(2.0, 3), Step(1.0, 2), Step(1.0, 4)]
    data, fold = (x, y[:, None], np.ones(len(x))), (np.arange(60), np.arange(60, 90))
    points = list(judged_walk(FineMorphsRegressor(**FAST), data, fold, path))
    assert [point.step for point in points] == path
    assert all(point.fit.n_iter_ <= point.step.iterations for point in points)


@pytest.mark.parametrize("options", [{"noise": "cv"}, {"n_members": 50}, {"input_warp": "auto"}])
def test_the_time_limit_is_one_of_the_whole_search(options, table):
    model = FineMorphsRegressor(**options, **FAST, max_time=1e-4).fit(*table)
    assert "time limit" in model.status_
    assert len(model.members_) < 50
    assert np.isfinite(model.predict(table[0])).all()


def test_each_level_begins_where_the_last_one_ended(table):
    x, y = table
    prototype = FineMorphsRegressor(**FAST)
    path = [Step(2.0, FAST["max_iter"]), Step(1.0, FAST["max_iter"])]
    fits = [fit for _, fit in walk(prototype, x, y[:, None], np.ones(len(x)), path)]
    alone = clone(prototype).set_params(noise=fits[1].noise_, tol=1e-4).fit(x, y)
    assert fits[1].history_["objective"][0] < alone.history_["objective"][0]


@pytest.mark.parametrize(("n", "held_out"), [(7, 1), (1001, 101), (60_000, 5000)])
def test_folds_hold_out_a_share_and_no_more_than_enough(n, held_out):
    folds = Folds(small=5, up_to=10, large=2, held_out=0.1).split(n, np.random.default_rng(0))
    assert len(folds) == (5 if n <= 10 else 2)
    for train, test in folds:
        assert sorted([*train, *test]) == list(range(n))
        assert len(test) in (held_out, held_out + (n <= 10))


def test_mean_error_is_one_for_the_mean_of_each_response(table):
    y = np.random.default_rng(0).standard_normal((50, 3)) * [1, 10, 100]
    weights = np.random.default_rng(1).uniform(1, 2, 50)
    mean = np.average(y, axis=0, weights=weights)
    assert mean_error(np.tile(mean, (50, 1)), y, weights) == pytest.approx(3)


@pytest.mark.parametrize("options", [{"noise": "cv"}, {"response_warp": "auto"}])
def test_a_row_of_weight_0_has_no_part_in_a_choice(options, table):
    x, y = table[0][:40], table[1][:40]
    weights = np.repeat([1.0, 0.0], [30, 10])
    fast = {**FAST, "max_iter": 3}
    left = FineMorphsRegressor(**options, **fast).fit(x, y, weights)
    out = FineMorphsRegressor(**options, **fast).fit(x[:30], y[:30])
    np.testing.assert_array_equal(left.predict(x), out.predict(x))


# --- warps ------------------------------------------------------------------------------------


def test_auto_takes_a_warp_where_it_pays_and_none_where_it_does_not(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.lognormal(sigma=2, size=(120, 1))
    curved = FineMorphsRegressor(input_warp="auto", **FAST).fit(x, np.sin(np.log(x[:, 0])))
    assert curved.input_warp_ in ("quantile", "power")
    curved.save(tmp_path / "m.fm")
    again = load(tmp_path / "m.fm")
    assert (again.input_warp_, again.response_warp_) == (curved.input_warp_, "none")
    x = rng.uniform(-1, 1, (120, 1))
    longer = {**FAST, "max_iter": 40}
    straight = FineMorphsRegressor(input_warp="auto", response_warp="auto", **longer)
    straight.fit(x, 2 * x[:, 0])
    assert straight.response_warp_ == "none"
    assert not hasattr(clone(straight), "response_warp_")


# --- members ----------------------------------------------------------------------------------


def test_members_are_averaged_and_kept(table, tmp_path):
    x, y = table
    model = FineMorphsRegressor(n_members=3, **FAST).fit(x, y)
    parts = [m.model.predict(x, *_engine(model))[:, 0] for m in model.members_]
    assert len({tuple(p) for p in parts}) == 3
    np.testing.assert_allclose(model.predict(x), np.mean(parts, axis=0))
    model.save(tmp_path / "m.fm")
    np.testing.assert_array_equal(load(tmp_path / "m.fm").predict(x), model.predict(x))


def _engine(model):
    from finemorphs.engines import choose_engine

    return choose_engine(model.engine, model.device)


# --- best -------------------------------------------------------------------------------------


def test_best_weighs_candidates_by_what_they_predict_out_of_fold(best, table):
    candidates = best.selection_["candidates"]
    weights = np.array([c["weight"] for c in candidates])
    assert weights.sum() == pytest.approx(1)
    assert best.selection_["rmse"][0] <= min(c["rmse"][0] for c in candidates) * 1.0001
    assert sum(m.weight for m in best.members_) == pytest.approx(1)
    x, _ = table
    new = np.random.default_rng(5).standard_normal((200, 2))
    truth = np.sin(2 * new[:, 0]) + new[:, 1]
    assert np.sqrt(np.mean((best.predict(new) - truth) ** 2)) < 0.25
    assert best.transform(x).shape == (90, 3)


@pytest.mark.parametrize(
    ("near", "hopeless", "share", "enough", "n_kinds", "n_walks"),
    [
        (np.inf, np.inf, 0.5, 1, 2, [4, 4]),
        (1.0, np.inf, 0.5, 1, 1, [4]),
        (np.inf, np.inf, 0.0, 1, 2, []),
        (np.inf, np.inf, 0.0, 30, 2, [1, 1]),
        (np.inf, 0.0, 0.5, 1, 1, []),
    ],
    ids=["all kinds", "the better", "without weight", "after two folds", "hopeless"],
)
def test_flows_are_fitted_in_all_folds_where_they_count(
    near, hopeless, share, enough, n_kinds, n_walks, table, monkeypatch
):
    in_other_folds = []

    def spy(estimator, data, fold, path):
        in_other_folds.append(estimator.sequence)
        return judged_walk(estimator, data, fold, path)

    monkeypatch.setattr(_flows, "_NEAR", near)
    monkeypatch.setattr(_flows, "_HOPELESS", hopeless)
    monkeypatch.setattr(_flows, "weigh", lambda task, candidates: np.array([1 - share, share]))
    monkeypatch.setattr(_flows, "_ENOUGH", enough)
    monkeypatch.setattr(_flows, "judged_walk", spy)
    model = FineMorphsRegressor(preset="best", random_state=0, max_iter=3).fit(*table)
    names = [c["name"].split(" (")[0] for c in model.selection_["candidates"]]
    kinds = [name for name in names if not name.startswith("kernels")]
    assert names.count("kernels") == 2
    assert len(kinds) == n_kinds
    assert [in_other_folds.count(kind) for kind in kinds if kind in in_other_folds] == n_walks
    n_kept = n_walks.count(4)
    n_kernels = len(names) - len(kinds)
    for candidate in model.selection_["candidates"][n_kernels + n_kept :]:
        assert candidate["weight"] == 0
        assert candidate["rmse"][0] > 0
    assert model.transform(table[0]).shape == (90, 3)


@pytest.mark.parametrize(("far", "n_levels"), [(0.0, {1}), (np.inf, {2, 3, 4, 5})])
def test_flows_far_behind_the_kernels_are_left(far, n_levels, table, monkeypatch):
    levels = []

    def spy(*args, **options):
        points = search(*args, **options)
        levels.append(len(points))
        return points

    monkeypatch.setattr(_flows, "_FAR", far)
    monkeypatch.setattr(_flows, "_HOPELESS", 0.0)
    monkeypatch.setattr(_flows, "search", spy)
    FineMorphsRegressor(preset="best", random_state=0, max_iter=3).fit(*table)
    assert len(levels) == 3
    assert {levels[0], levels[2]} <= n_levels


@pytest.mark.parametrize(
    ("device", "rows", "given", "subset"),
    [
        ("cpu", 3000, None, None),
        ("cpu", 3001, None, 1000),
        ("cpu", 3001, 50, None),
        ("cuda", 50_000, None, None),
        ("cuda", 50_001, None, 5000),
    ],
)
def test_flows_of_many_rows_have_fewer_control_points(device, rows, given, subset):
    """A subset that the user has given is left alone."""
    estimator = FineMorphsRegressor(preset="best", subset_size=given)
    task = SimpleNamespace(
        estimator=estimator, X=np.empty((rows, 1)), device=SimpleNamespace(type=device)
    )
    assert _flows._options(task, {"sequence": "ADA"}).get("subset_size") == subset


@pytest.mark.parametrize(
    ("rows", "given", "steps"), [(3000, {}, 5), (3001, {}, 3), (3001, {"n_steps": 7}, None)]
)
def test_flows_of_many_rows_have_fewer_time_steps(rows, given, steps):
    """Those that the user has given are left alone."""
    estimator = FineMorphsRegressor(preset="best", **given)
    task = SimpleNamespace(
        estimator=estimator, X=np.empty((rows, 1)), device=SimpleNamespace(type="cpu")
    )
    assert _flows._options(task, _flows.KINDS[0]).get("n_steps") == steps


@pytest.mark.parametrize(
    ("columns", "given", "dims"),
    [
        (32, {}, None),
        (33, {}, 24),
        (33, {"dims": 7}, None),
        (33, {"sequence": "DA"}, None),
    ],
)
def test_flows_of_wide_tables_are_in_fewer_dimensions(columns, given, dims):
    """What the user has given is left alone."""
    estimator = FineMorphsRegressor(preset="best", **given)
    task = SimpleNamespace(
        estimator=estimator, X=np.empty((9, columns)), device=SimpleNamespace(type="cpu")
    )
    assert _flows._options(task, _flows.KINDS[0]).get("dims") == dims


def test_a_wide_table_with_the_best_preset(tmp_path, monkeypatch):
    """Columns of 0 and 1 among them; the flow counts, so that all parts predict."""
    monkeypatch.setattr(_flows, "_HOPELESS", np.inf)
    monkeypatch.setattr(_flows, "weigh", lambda task, found: np.ones(len(found)))
    monkeypatch.setattr(best_preset, "weigh", lambda task, found: np.ones(len(found)))
    rng = np.random.default_rng(0)
    x = np.c_[rng.standard_normal((60, 10)), rng.random((60, 30)) > 0.6]
    y = x[:, 0] + x[:, 10] + 0.1 * rng.standard_normal(60)
    model = FineMorphsRegressor(preset="best", random_state=0, max_iter=2).fit(x, y)
    assert model.transform(x).shape == (60, 24)
    assert any("AD^4A" in member.name for member in model.members_)
    model.save(tmp_path / "wide.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "wide.safetensors").predict(x), model.predict(x))
    with pytest.raises(NotInvertibleError, match="A0"):
        model.inverse_transform(model.transform(x))


def test_flows_of_large_tables_are_trained_on_a_sample(table, monkeypatch):
    """The same rows for every kind, and the rows held out are those of the fold."""
    searched = []

    def search(estimator, data, fold, multiples, **options):
        searched.append(fold)
        return _path.search(estimator, data, fold, multiples, **options)

    monkeypatch.setattr(_flows, "search", search)
    monkeypatch.setattr(_task, "_FLOW_ROWS", {"cpu": 30})
    model = FineMorphsRegressor(preset="best", random_state=0, max_iter=3, engine="cpu").fit(*table)
    assert len(searched) == 3  # AD^4A with each warp of the inputs, ADA
    for train, test in searched:
        assert len(train) == len(set(train)) == 30
        assert len(test) == 18
        assert not set(train) & set(test)
        np.testing.assert_array_equal(train, searched[0][0])
    assert np.isfinite(model.predict(table[0])).all()


def test_best_has_only_the_sequence_that_was_given(table):
    model = FineMorphsRegressor(preset="best", sequence="DA", **FAST).fit(*table)
    names = {c["name"].split(" (")[0] for c in model.selection_["candidates"]}
    assert names <= {"kernels", "kernels of mixed features", "kernels of one width", "DA"}
    assert model.sequence_ == "DA"


def test_best_survives_a_file_with_all_its_members(best, table, tmp_path):
    x, _ = table
    best.save(tmp_path / "m.fm")
    again = load(tmp_path / "m.fm")
    np.testing.assert_array_equal(again.predict(x), best.predict(x))
    assert again.selection_ == best.selection_
    assert [m.name for m in again.members_] == [m.name for m in best.members_]


def test_kernels_of_an_older_file_have_no_anchors(best, table):
    """And are written again without them."""
    far = 50 * table[0]
    kernels = [m.model for m in best.members_ if isinstance(m.model, KernelModel)]
    assert kernels
    for model in kernels:
        tensors, description = describe_model(model)
        expected = model.predict(far, *choose_engine("cpu", "cpu"))
        again = restore_kernel(tensors, description, 2)
        np.testing.assert_array_equal(again.predict(far, *choose_engine("cpu", "cpu")), expected)
        anchors = tensors.pop("anchors")
        older = restore_kernel(tensors, description, 2)
        assert np.ptp(older.predict(far, *choose_engine("cpu", "cpu"))) > np.ptp(expected)
        assert "anchors" not in describe_model(older)[0]
        tensors["anchors"] = anchors + len(model.regression.points)
        with pytest.raises(ValueError, match="not among its"):
            restore_kernel(tensors, description, 2)
        tensors["anchors"] = torch.zeros(501, dtype=torch.int64)
        with pytest.raises(ValueError, match="anchors"):
            restore_kernel(tensors, description, 2)
        for name, shape in (("mixing", (2, 3)), ("sharp", (3,))):
            wrong = {**tensors, "anchors": anchors, name: torch.zeros(shape, dtype=torch.float64)}
            with pytest.raises(ValueError, match=name):
                restore_kernel(wrong, description, 2)
        wrong = {**tensors, "anchors": anchors, "sharp": torch.tensor([-1.0, 1.0]).double()}
        with pytest.raises(ValueError, match="negative"):
            restore_kernel(wrong, description, 2)


def test_jacobian_of_best_against_finite_differences(best):
    x = np.random.default_rng(3).standard_normal((6, 2))
    slopes = best.jacobian(x)
    for j, e in enumerate(np.eye(2)):
        numeric = (best.predict(x + 1e-6 * e) - best.predict(x - 1e-6 * e)) / 2e-6
        np.testing.assert_allclose(slopes[:, j], numeric, atol=1e-4)


def test_best_is_the_same_for_the_same_seed_and_any_order_of_rows(best, table):
    x, y = table
    order = np.random.default_rng(1).permutation(len(x))
    again = FineMorphsRegressor(preset="best", **FAST).fit(x[order], y[order])
    np.testing.assert_allclose(again.predict(x), best.predict(x), rtol=1e-6)


def test_best_has_several_responses(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 2))
    y = np.stack([x[:, 0], 100 * np.sin(x[:, 1])], axis=1)
    model = FineMorphsRegressor(preset="best", **FAST).fit(x, y)
    assert model.predict(x).shape == (40, 2)
    assert len(model.selection_["rmse"]) == 2
    assert model.jacobian(x).shape == (40, 2, 2)
    model.save(tmp_path / "m.fm")
    again = load(tmp_path / "m.fm")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    np.testing.assert_array_equal(again.jacobian(x), model.jacobian(x))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n_constant", [1, 2])
def test_best_predicts_a_response_that_does_not_vary(n_constant, table):
    x, y = table
    y = np.stack([np.full(len(x), 0.1)] * n_constant + [y], axis=1)[:, :2]
    model = FineMorphsRegressor(preset="best", **FAST).fit(x, y)
    np.testing.assert_allclose(model.predict(5 * x)[:, :n_constant], 0.1, rtol=1e-12)
    assert sum(m.weight for m in model.members_) == pytest.approx(1)


def test_members_are_shown_in_a_line(best):
    assert all(len(repr(member)) < 150 for member in best.members_)
    kernels = next(m.model for m in best.members_ if isinstance(m.model, KernelModel))
    assert repr(kernels) == "KernelModel(90 rows of 2 features)"
    n_parameters = len(best.model_.theta)
    assert repr(best.model_) == f"Model({best.sequence_}, {n_parameters} parameters)"


def test_best_keeps_warps_that_were_given(table):
    x, y = table
    model = FineMorphsRegressor(
        preset="best", input_warp="power", response_warp="quantile", **{**FAST, "max_iter": 3}
    ).fit(x[:40], y[:40])
    names = [candidate["name"] for candidate in model.selection_["candidates"]]
    assert all("inputs power, response quantile" in name for name in names)
    assert (model.input_warp_, model.response_warp_) == ("power", "quantile")


def test_best_says_that_it_has_chosen(best):
    n = len(best.selection_["candidates"]) + len(best.selection_["rejected"])
    assert best.status_ == f"Chosen from {n} candidates by what they predict out of fold."
    assert best.converged_


def test_best_says_in_how_many_folds_a_candidate_was_fitted(table, monkeypatch):
    monkeypatch.setattr(_flows, "_ENOUGH", 0)
    monkeypatch.setattr(_flows, "weigh", lambda task, candidates: np.zeros(len(candidates)))
    model = FineMorphsRegressor(preset="best", **FAST).fit(*table)
    folds = {c["name"]: c["folds"] for c in model.selection_["candidates"]}
    assert {n for name, n in folds.items() if "kernels" in name} == {model.selection_["folds"]}
    assert {n for name, n in folds.items() if "kernels" not in name} == {1}


@pytest.mark.parametrize("hopeless", [0.0, np.inf])
def test_best_tells_what_it_rejected(hopeless, table, monkeypatch):
    monkeypatch.setattr(_flows, "_HOPELESS", hopeless)
    model = FineMorphsRegressor(preset="best", **FAST).fit(*table)
    tried = [c["name"] for kind in ("candidates", "rejected") for c in model.selection_[kind]]
    assert sum(name.startswith("kernels (") for name in tried) == 4  # warps of inputs and response
    assert sum(name.startswith("AD^4A (") for name in tried) == 2
    assert sum(name.startswith("ADA (") for name in tried) == 1
    for candidate in model.selection_["rejected"]:
        assert candidate["folds"] == (5 if "kernels" in candidate["name"] else 1)
        assert candidate["rmse"][0] > 0


def test_best_ends_by_its_time_and_says_so(table):
    model = FineMorphsRegressor(preset="best", max_time=1e-3, **FAST).fit(*table)
    assert "time limit" in model.status_
    assert not model.converged_
    assert np.isfinite(model.predict(table[0])).all()
    names = [candidate["name"] for candidate in model.selection_["candidates"]]
    assert sum("kernels" in name for name in names) == 1


@pytest.fixture
def press_ctrl_c(monkeypatch):
    """A function: Ctrl-C is pressed when such a fit of kernel regression begins, by its number."""

    def press_in(number, counts=lambda task, chosen: True):
        fit_one, begun = _kernels._kernel_model, []

        def interrupted(task, scales, chosen, warps, most):
            if counts(task, chosen):
                begun.append(warps)
                if len(begun) == number:
                    raise KeyboardInterrupt
            return fit_one(task, scales, chosen, warps, most)

        monkeypatch.setattr(_kernels, "_kernel_model", interrupted)
        return begun

    return press_in


def test_ctrl_c_in_the_first_kernel_regression_leaves_nothing(table, press_ctrl_c):
    press_ctrl_c(1)
    with pytest.raises(KeyboardInterrupt):
        FineMorphsRegressor(preset="best", **FAST).fit(*table)


@pytest.mark.parametrize(("number", "n_left"), [(6, 1), (21, 2)], ids=["plain", "mixed"])
def test_ctrl_c_in_a_later_kernel_regression_leaves_a_model(number, n_left, oblique, press_ctrl_c):
    begun = press_ctrl_c(number)
    model = FineMorphsRegressor(preset="best", **FAST).fit(*oblique)
    assert len(begun) > number  # those with a weight are fitted to all rows
    assert model.status_ == "Interrupted by the user."
    assert not model.converged_
    assert np.isfinite(model.predict(oblique[0])).all()
    names = [c["name"] for c in model.selection_["candidates"] if "kernels" in c["name"]]
    assert len(names) == n_left


def test_an_interrupted_fit_knows_how_long_it_took(table, press_ctrl_c, monkeypatch):
    press_ctrl_c(6)
    monkeypatch.setattr(_path.time, "perf_counter", count(step=1.0).__next__)
    model = FineMorphsRegressor(preset="best", **FAST).fit(*table)
    before = _path.time.perf_counter()
    assert 0.9 * before < model.selection_["seconds"] < before


def test_flows_behind_unfinished_kernels_leave_no_checkpoint(table, press_ctrl_c, tmp_path):
    """A whole fit may give them another warp."""
    press_ctrl_c(6)
    path = tmp_path / "c"
    FineMorphsRegressor(preset="best", checkpoint=path, **FAST).fit(*table)
    assert not path.exists()


def test_ctrl_c_in_the_last_fits_leaves_the_members_that_are_there(
    table, press_ctrl_c, monkeypatch
):
    monkeypatch.setattr(
        best_preset, "weigh", lambda task, candidates: np.full(len(candidates), 0.1)
    )
    press_ctrl_c(2, lambda task, chosen: len(chosen) == len(task.X))
    model = FineMorphsRegressor(preset="best", **FAST).fit(*table)
    assert model.status_ == "Interrupted by the user."
    (member,) = model.members_
    assert member.weight == 1.0
    first, *others = (c["weight"] for c in model.selection_["candidates"])
    assert first == 1.0
    assert not any(others)
    assert np.isfinite(model.predict(table[0])).all()


def test_ctrl_c_in_the_first_of_the_last_fits_leaves_nothing(table, press_ctrl_c, monkeypatch):
    monkeypatch.setattr(
        best_preset, "weigh", lambda task, candidates: np.full(len(candidates), 0.1)
    )
    press_ctrl_c(1, lambda task, chosen: len(chosen) == len(task.X))
    with pytest.raises(KeyboardInterrupt):
        FineMorphsRegressor(preset="best", **FAST).fit(*table)


def test_what_has_no_weight_is_not_fitted_to_all_rows(table, press_ctrl_c):
    begun = press_ctrl_c(0, lambda task, chosen: len(chosen) == len(task.X))
    model = FineMorphsRegressor(preset="best", **FAST).fit(*table)
    assert len(begun) == sum(isinstance(m.model, KernelModel) for m in model.members_)


@pytest.fixture
def few_rows_a_factor(monkeypatch):
    """Kernel regressions of more than 60 rows need iterations; a sample has 30."""
    monkeypatch.setattr(_task, "_FACTOR_ROWS", {"cpu": 60})
    monkeypatch.setattr(_kernels, "_SAMPLE_ROWS", 30)


def kernel_members(model):
    return [m.model.regression for m in model.members_ if isinstance(m.model, KernelModel)]


def test_kernels_of_many_rows_are_found_by_iterations(best, table, few_rows_a_factor):
    model = FineMorphsRegressor(preset="best", **FAST).fit(*table)
    named, exact = (
        {c["name"]: c["rmse"] for c in m.selection_["candidates"] if "kernels" in c["name"]}
        for m in (model, best)
    )
    assert len(named) == 4  # those of the sample are gone
    assert len(kernel_members(model)[0].points) == len(table[0])
    for name in named.keys() & exact.keys():
        assert named[name] == pytest.approx(exact[name], rel=0.02)


def test_where_iterations_fail_kernels_have_fewer_rows(table, few_rows_a_factor, monkeypatch):
    monkeypatch.setattr(_kernels, "regress_many", lambda *data: None)
    model = FineMorphsRegressor(preset="best", **FAST).fit(*table)
    assert {len(regression.points) for regression in kernel_members(model)} == {60}


def test_large_kernels_are_not_fitted_again_when_time_is_over(
    table, few_rows_a_factor, press_ctrl_c
):
    begun = press_ctrl_c(0, lambda task, chosen: len(chosen) == len(task.X))
    model = FineMorphsRegressor(preset="best", max_time=1e-3, **FAST).fit(*table)
    assert not begun
    (regression,) = kernel_members(model)
    assert len(regression.points) == 30
    assert np.isfinite(model.predict(table[0])).all()


@pytest.mark.parametrize(("memory", "rows"), [("24 MB", (1000, 2190)), ("1 TB", (12_000, 50_000))])
def test_kernels_have_as_many_rows_as_find_memory(memory, rows, table):
    x, y = table
    estimator = FineMorphsRegressor(preset="best", max_memory=memory)
    task = _task.Task(estimator, x, y.reshape(len(x), -1), np.ones(len(x)))
    assert task.kernel_rows == pytest.approx(rows, abs=1)


def test_features_are_mixed_where_that_is_likely(mixed, best):
    for model, n in ((mixed, 2), (best, 0)):
        assert sum("mixed" in c["name"] for c in model.selection_["candidates"]) == n


@pytest.mark.parametrize(("most", "n"), [(90, 2), (89, 0)])
def test_one_width_is_tried_where_rows_are_few(most, n, table, monkeypatch):
    monkeypatch.setattr(_kernels, "_FEW_ROWS", most)
    x, y = table
    task = _task.Task(FineMorphsRegressor(preset="best", **FAST), x, y[:, None], np.ones(len(x)))
    _, candidates = _kernels.fit_kernels(task, Progress(0))
    assert sum("one width" in candidate.name for candidate in candidates) == n


def test_errors_of_scales_that_have_seen_the_rows_count_more(table):
    """By the number of the scales; a flow's error is that of rows it has not seen."""
    x, y = table
    task = _task.Task(FineMorphsRegressor(preset="best", **FAST), x, y[:, None], np.ones(len(x)))
    _, candidates = _kernels.fit_kernels(task, Progress(0))
    for candidate in candidates:
        k = {"kernels": 8, "kernels of one width": 6}[candidate.name.partition(" (")[0]]
        assert candidate.caution == pytest.approx(((90 + k / 2) / (90 - k / 2)) ** 0.5)
    up, down = (_task.Candidate("", task.y + s, tuple) for s in (1, -1))
    np.testing.assert_allclose(weigh(task, [up, down]), [0.5, 0.5])
    np.testing.assert_allclose(weigh(task, [up, replace(down, caution=3)]), [0.75, 0.25])


def test_scales_are_found_on_a_sample_of_many_rows(oblique, monkeypatch):
    taken = []

    def spy(of_arrays, x, y, weights, device):
        taken.append(x)
        return of_arrays(x, y, weights, device)

    monkeypatch.setattr(_kernels, "_SCALES_ROWS", {"cpu": 30})
    monkeypatch.setattr(_kernels, "_MIXING_ROWS", {"cpu": 40})
    monkeypatch.setattr(_kernels.Sample, "of_arrays", partial(spy, _kernels.Sample.of_arrays))
    FineMorphsRegressor(preset="best", **FAST).fit(*oblique)
    assert [len(x) for x in taken] == [30] * 4 + [40] * 2 + [30] * 2
    assert all(len(np.unique(x, axis=0)) == len(x) for x in taken)


def test_mixed_features_survive_a_file_and_have_their_derivative(mixed, oblique, tmp_path):
    x = oblique[0][:7]
    assert sum(member.weight for member in mixed.members_ if "mixed" in member.name) > 0.5
    mixed.save(tmp_path / "m.fm")
    again = load(tmp_path / "m.fm")
    np.testing.assert_array_equal(again.predict(x), mixed.predict(x))
    (member,) = (m for m in again.members_ if "mixed" in m.name and "none, response" in m.name)
    step = 1e-6
    for j, e in enumerate(np.eye(3)):
        up, down = (
            member.model.predict(x + s * step * e, *choose_engine("cpu", "cpu")) for s in (1, -1)
        )
        numeric = (up - down) / (2 * step)
        np.testing.assert_allclose(member.model.jacobian(x)[:, :, j], numeric, rtol=1e-4, atol=1e-5)


def test_weights_of_the_simplex():
    rng = np.random.default_rng(0)
    y = rng.standard_normal(200)
    columns = np.stack([y + 0.1 * rng.standard_normal(200), rng.standard_normal(200)], axis=1)
    weights = simplex_least_squares(columns, y)
    assert weights[0] > 0.95
    half = simplex_least_squares(np.stack([y + 1, y - 1], axis=1), y)
    np.testing.assert_allclose(half, 0.5, atol=1e-3)


def test_paper_is_the_paper_s_optimiser_and_noise(table):
    paper = FineMorphsRegressor(preset="paper", max_iter=10, random_state=0).fit(*table)
    same = FineMorphsRegressor(
        optimizer="lbfgs", noise="paper", tol=1e-15, max_iter=10, random_state=0
    ).fit(*table)
    assert paper.objective_ == same.objective_
    assert paper.optimizer == "natural-lbfgs"  # parameters stay as they were given


def test_a_new_fit_forgets_what_only_the_last_one_had(best, table):
    x, y = table
    model = clone(best).set_params(max_time=1e-3).fit(x, y).calibrate(x, y)
    assert {"selection_", "conformity_scores_"} <= vars(model).keys()
    model.set_params(preset=None, max_time=None).fit(x, y)
    assert not {"selection_", "residual_", "conformity_scores_", "noise_path_"} & vars(model).keys()
    with pytest.raises(ValueError, match="not calibrated"):
        model.predict_interval(x)


def test_choices_that_are_not_known(table):
    for wrong in ({"preset": "fast"}, {"input_warp": "log"}, {"noise": "low"}, {"n_members": 0}):
        (name,) = wrong
        with pytest.raises(ValueError, match=name):
            FineMorphsRegressor(**wrong).fit(*table)


# --- interrupts between two trainings ---------------------------------------------------------


@pytest.fixture
def end_in(monkeypatch):
    """A function: Ctrl-C is pressed in an iteration of a training of a search for the noise level.

    It gives the fit and the points of each path.
    """

    def fit(table, training, iteration, **options):
        begun, found = count(), []

        def press(record):
            if record.iteration == 1:
                press.training = next(begun)
            if (press.training, record.iteration) == (training, iteration):
                raise KeyboardInterrupt

        def spy(*arguments, **given):
            found.append(search(*arguments, **given))
            return found[-1]

        monkeypatch.setattr(_noise_choice, "search", spy)
        options = {**FAST, "noise": "cv", "callbacks": [press], **options}
        return FineMorphsRegressor(**options).fit(*table), found

    return fit


def test_an_ended_search_keeps_the_best_model_till_then(table, end_in):
    _, (first, *_) = end_in(table, -1, 1)
    model, found = end_in(table, len(first) + 1, 2)
    assert model.status_ == "Interrupted by the user."
    assert not model.converged_
    assert [len(points) for points in found] == [len(first), 2]
    best = min((p for points in found for p in points), key=lambda point: point.error)
    assert best in found[0]  # the level after the first of the second path has hardly begun
    assert model.model_ is best.fit.model_
    assert len(model.noise_path_) == 0


@pytest.mark.parametrize("early", [True, False])
def test_a_last_fit_that_is_ended_early_is_not_kept(early, table, end_in):
    whole, found = end_in(table, -1, 1)
    iteration = 1 if early else (whole.history_["round"] == 1).sum()
    model, found = end_in(table, sum(map(len, found)), iteration)
    assert model.status_ == "Interrupted by the user."
    best = min((p for points in found for p in points), key=lambda point: point.error)
    assert (model.model_ is best.fit.model_) == early
    assert len(model.noise_path_) == (0 if early else len(whole.noise_path_))


@pytest.fixture
def press_between(monkeypatch):
    """A function: Ctrl-C is pressed as such a training of a path is about to begin."""

    def press(number):
        fit_one, begun = FineMorphsRegressor._fit, []

        def interrupted(self, *data):
            begun.append(self)
            if len(begun) == number:
                raise KeyboardInterrupt
            return fit_one(self, *data)

        monkeypatch.setattr(FineMorphsRegressor, "_fit", interrupted)
        return begun

    return press


WARPS = {"input_warp": "auto", "response_warp": "auto"}


@pytest.mark.parametrize("options", [{"noise": "cv"}, WARPS], ids=["cv", "warps"])
def test_ctrl_c_before_the_first_training_leaves_nothing(options, table, press_between):
    press_between(1)
    with pytest.raises(KeyboardInterrupt):
        FineMorphsRegressor(**options, **FAST).fit(*table)


def n_trainings(options, table, press_between):
    begun = press_between(-1)
    FineMorphsRegressor(**options, **FAST).fit(*table)
    return len(begun)


@pytest.mark.parametrize("options", [{"noise": "cv"}, WARPS, {"preset": "best"}], ids=str)
def test_ctrl_c_between_two_trainings_keeps_a_model(options, table, press_between):
    several = n_trainings(options, table, press_between)
    last = several - (options is WARPS)  # the last one has all rows and begins afresh
    for number in {2, several // 2, last}:
        begun = press_between(number)
        model = FineMorphsRegressor(**options, **FAST).fit(*table)
        assert model.status_ == "Interrupted by the user."
        assert not model.converged_
        assert len(begun) <= number + ("preset" in options)
        assert np.isfinite(model.predict(table[0])).all()


def test_ctrl_c_in_a_training_ends_the_choice_of_warps(table):
    def interrupt(record):
        if record.iteration == 3:
            raise KeyboardInterrupt

    model = FineMorphsRegressor(**WARPS, callbacks=[interrupt], **FAST).fit(*table)
    assert model.status_ == "Interrupted by the user."
    assert model.n_iter_ == 3


# --- equal rows, columns that do not vary, options without effect -----------------------------


def coins(n=120, seed=0):
    """Columns of 0 and 1, and responses of 0 and 1 drawn with a probability for each row."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, (n, 3)).astype(float)
    return x, (rng.uniform(size=n) < 0.2 + 0.5 * x[:, 0]).astype(float)


def test_equal_draws_may_part_and_copies_may_not():
    x, y = coins()
    rows = _task._rows(x, y[:, None], np.ones(len(x)))
    assert len(rows[0]) == len(x)
    copies = np.random.default_rng(0).integers(0, 40, 120)  # of a table, drawn with replacement
    x = np.random.default_rng(1).standard_normal((40, 2))[copies]
    x, y, weights = _task._rows(x, x[:, :1] ** 2, np.ones(len(x)))
    assert len(x) == len(np.unique(copies))
    assert weights.sum() == 120


def test_errors_out_of_fold_are_those_of_new_draws():
    x, y = coins(400)
    model = FineMorphsRegressor(preset="best", **FAST).fit(x[:120], y[:120])
    error = np.sqrt(np.mean((model.predict(x[120:]) - y[120:]) ** 2))
    assert model.selection_["rmse"][0] == pytest.approx(error, rel=0.15)
    assert error < 1.03 * np.sqrt(np.mean((0.2 + 0.5 * x[120:, 0] - y[120:]) ** 2))


def test_a_table_of_one_row_many_times():
    model = FineMorphsRegressor(preset="best", **FAST).fit(np.ones((50, 2)), np.full(50, 3.0))
    np.testing.assert_allclose(model.predict(np.ones((2, 2))), 3.0)


def test_a_column_that_does_not_vary_is_nothing_to_the_kernels(table, tmp_path):
    x = np.c_[table[0], np.full(90, 2020.0)]
    model = FineMorphsRegressor(preset="best", **FAST).fit(x, table[1])
    later = x + np.array([0, 0, 4])
    for member in model.members_:
        if isinstance(member.model, KernelModel):
            one, other = (member.model.predict(rows, None, None) for rows in (x, later))
            np.testing.assert_array_equal(one, other)
            assert np.abs(member.model.jacobian(later)[..., 2]).max() < 1e-200
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(later), model.predict(later))


@pytest.mark.parametrize("options", [{"noise": 5.0}, {"n_members": 3}, {"loss": "huber"}], ids=str)
def test_the_best_preset_says_what_has_no_effect(options, table):
    with pytest.warns(UserWarning, match=f"{next(iter(options))}=.*preset='best'"):
        FineMorphsRegressor(preset="best", **options, max_time=1e-3, **FAST).fit(*table)


def test_the_mean_is_judged_on_the_folds_of_all_its_parts(best):
    task = SimpleNamespace(splits=[(None, np.arange(2)), (None, np.arange(2, 4))])
    half = np.array([[1.0], [1.0], [np.nan], [np.nan]])
    assert _task.Task.n_folds(task, half) == 1
    folds = {c["folds"] for c in best.selection_["candidates"] if c["weight"] > 0}
    assert best.selection_["folds_of_mean"] == min(folds)
