"""The regressor as its users meet it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from finemorphs import FineMorphsRegressor
from finemorphs.exceptions import DimensionError, EngineError, SequenceError


def curve(n=80, d=2, seed=0):
    """A smooth, nonlinear response of d columns."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    return X, np.sin(3 * X[:, 0]) + X[:, -1] ** 2


def quick(**options):
    """A regressor that is trained a little only."""
    return FineMorphsRegressor(**{"max_iter": 15, "noise": 0.5, "random_state": 0, **options})


@pytest.fixture(scope="module")
def fitted():
    X, y = curve()
    return FineMorphsRegressor(random_state=0).fit(X, y)


# --- what it learns -----------------------------------------------------------------------


def test_learns_what_a_line_cannot(fitted):
    X, y = curve(400, seed=1)
    assert Ridge().fit(*curve()).score(X, y) < 0.9
    assert fitted.score(X, y) > 0.99


def draws(n=200, seed=0):
    """A column of 0 and 1, and responses 0 and 1 that are drawn with a probability for each."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, (n, 1)).astype(float)
    return x, (rng.uniform(size=n) < 0.3 + 0.4 * x[:, 0]).astype(float)


@pytest.mark.parametrize("seed", [0, 1])
def test_rows_of_one_x_are_not_told_apart(seed):
    """Training and prediction see the same function, and it is near the mean at each x."""
    x, y = draws()
    model = FineMorphsRegressor(n_steps=4, random_state=seed).fit(x, y)
    means = [y[x[:, 0] == value].mean() for value in (0, 1)]
    np.testing.assert_allclose(model.predict([[0.0], [1.0]]), means, atol=0.06)
    rmse = np.sqrt(np.mean((model.predict(x) - y) ** 2))
    assert model.history_["rmse"][-1] == pytest.approx(rmse, rel=1e-3)


def test_no_diffeomorphism_is_ridge_regression():
    X, y = curve(60, 3)
    sigma, ridge = 0.7, 2.0
    model = FineMorphsRegressor(
        "A", dummy_dims=0, ridge=ridge, noise=sigma, dtype="float64", tol=1e-14, random_state=0
    ).fit(X, y)
    Z = (X - X.mean(0)) / X.std(0)
    line = Ridge(alpha=ridge * sigma**2).fit(Z, (y - y.mean()) / y.std())
    np.testing.assert_allclose(model.predict(X), line.predict(Z) * y.std() + y.mean(), rtol=1e-5)


@pytest.mark.parametrize(
    ("sequence", "options"),
    [
        ("DA", {}),
        ("AD", {}),
        ("AD2A2", {"dims": [3, 3, 2]}),
        ("AD^4A", {"kernel_width": "decreasing", "n_steps": [4, 3, 2, 1]}),
        ("(AD)^3A", {"inner_affine": "identity", "ridge": [1.0, 0.5, 0.5, 2.0]}),
        ("ADA", {"kernel": "gaussian", "output_dims": 2, "dummy_dims": 2}),
        ("ADA", {"subset_size": 20, "subset_method": "random", "optimizer": "lbfgs"}),
        ("ADA", {"subset_size": 20, "dims": 5}),
    ],
)
def test_every_kind_of_sequence_lowers_the_objective(sequence, options):
    X, y = curve(60)
    model = quick(sequence=sequence, **options).fit(X, y)
    objective = model.history_["objective"]
    assert np.all(np.diff(objective) <= 1e-5 * np.abs(objective[:-1]))
    assert objective[-1] < 0.8 * objective[0]
    assert model.predict(X).shape == (60,)


def test_many_responses_are_learnt_together():
    X, y = curve(100)
    Y = np.column_stack([y, -2 * y + X[:, 0], X[:, 1]])
    model = FineMorphsRegressor(random_state=0).fit(X, Y)
    assert model.predict(X).shape == Y.shape
    assert model.score(X, Y) > 0.98
    assert quick().fit(X, y[:, None]).predict(X).shape == (100, 1)


def test_subset_training_uses_every_row_in_the_endpoint_cost():
    X, y = curve(300)
    model = FineMorphsRegressor(subset_size=40, random_state=0).fit(X, y)
    assert model.model_.sequence.n_parameters < 40 * 3 * 10 + 20
    assert model.score(X, y) > 0.99


def test_the_parts_of_the_objective_add_up(fitted):
    h = fitted.history_
    np.testing.assert_allclose(h["objective"], h["energy"] + h["affine"] + h["endpoint"])
    assert fitted.objective_ == h["objective"][-1]
    assert fitted.n_iter_ == len(h["objective"])
    X, y = curve()
    assert h["rmse"][-1] == pytest.approx(np.sqrt(np.mean((fitted.predict(X) - y) ** 2)), rel=0.05)


# --- weights, order, repetition -----------------------------------------------------------


def test_a_weight_of_two_is_the_row_twice():
    X, y = curve(40)
    weights = np.random.default_rng(0).integers(0, 4, 40)
    weighted = quick(noise="auto").fit(X, y, sample_weight=weights)
    repeated = quick(noise="auto").fit(np.repeat(X, weights, 0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-12)


def test_the_order_of_the_rows_does_not_matter():
    X, y = curve(40)
    order = np.random.default_rng(0).permutation(40)
    one, two = quick().fit(X, y), quick().fit(X[order], y[order])
    np.testing.assert_allclose(one.predict(X), two.predict(X), rtol=1e-10)


@pytest.mark.parametrize("seed", [3, np.random.RandomState(3), np.random.default_rng(3)])
def test_the_same_random_state_gives_the_same_model(seed):
    X, y = curve(40)
    before = np.random.get_state()[1].copy(), torch.random.get_rng_state()  # noqa: NPY002
    one = quick(random_state=clone_seed(seed), subset_size=20).fit(X, y).predict(X)
    two = quick(random_state=clone_seed(seed), subset_size=20).fit(X, y).predict(X)
    other = quick(random_state=4, subset_size=20).fit(X, y).predict(X)
    np.testing.assert_array_equal(one, two)
    assert np.abs(one - other).max() > 1e-6
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
    assert torch.equal(torch.random.get_rng_state(), before[1])


def clone_seed(seed):
    """A generator in the same state, so that two fits draw the same numbers."""
    if isinstance(seed, int):
        return seed
    return clone(quick(random_state=seed)).random_state


def test_warm_start_goes_on_where_the_last_fit_ended():
    X, y = curve()
    whole = quick(max_iter=200, tol=0).fit(X, y)
    warm = quick(max_iter=20, tol=0, warm_start=True).fit(X, y)
    first = warm.objective_
    for _ in range(4):
        warm.fit(X, y)
    assert warm.objective_ < first
    assert warm.objective_ < 1.05 * whole.objective_
    warm.fit(X[:50], y[:50])  # other control points: the affine modules are carried over
    assert np.isfinite(warm.predict(X)).all()


# --- scikit-learn's and other tools --------------------------------------------------------


def test_works_in_pipelines_searches_and_parallel_cross_validation():
    X, y = curve(60)
    pipeline = make_pipeline(MinMaxScaler(), quick())
    grid = {"finemorphsregressor__ridge": [0.5, 2.0]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, y)
    assert search.best_params_["finemorphsregressor__ridge"] in (0.5, 2.0)
    serial = cross_val_score(quick(), X, y, cv=3)
    parallel = cross_val_score(quick(), X, y, cv=3, n_jobs=2)
    np.testing.assert_allclose(serial, parallel, rtol=1e-6)


def test_data_frames_keep_their_column_names():
    X, y = curve(40)
    from_pandas = quick().fit(pd.DataFrame(X, columns=["speed", "angle"]), pd.Series(y))
    from_polars = quick().fit(pl.DataFrame({"speed": X[:, 0], "angle": X[:, 1]}), pl.Series(y))
    assert list(from_pandas.feature_names_in_) == ["speed", "angle"]
    assert list(from_polars.feature_names_in_) == ["speed", "angle"]
    frame = pd.DataFrame(X, columns=["speed", "angle"])
    np.testing.assert_array_equal(from_pandas.predict(frame), from_polars.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        from_pandas.predict(frame[["angle", "speed"]])


def test_transform_and_trajectory_agree_with_predict(fitted):
    X, _ = curve(30, seed=2)
    way = fitted.trajectory(X)
    assert [(name, time) for name, time, _ in way[:3]] == [("X", 0.0), ("A0", 1.0), ("D1", 0.0)]
    assert way[-1][0] == "A1"
    assert len(way) == 1 + 1 + 11 + 1
    np.testing.assert_array_equal(way[1][2], way[2][2])
    np.testing.assert_allclose(fitted.transform(X), way[-2][2])
    scaling = fitted.model_.y_scaling
    np.testing.assert_allclose(fitted.predict(X), way[-1][2][:, 0] * scaling.scale + scaling.mean)
    assert len(fitted.get_feature_names_out()) == fitted.transform(X).shape[1] == 3


def test_prediction_is_chunked_and_does_not_depend_on_the_chunks(fitted, monkeypatch):
    X, _ = curve(50, seed=3)
    whole = fitted.predict(X)
    monkeypatch.setattr("finemorphs.estimators._model._ROWS_AT_ONCE", 7)
    np.testing.assert_allclose(fitted.predict(X), whole, rtol=1e-12)


def test_callbacks_see_every_iteration_and_can_end_training():
    seen = []

    def stop_at_five(record):
        seen.append(record.iteration)
        return record.iteration == 5

    model = quick(callbacks=[stop_at_five]).fit(*curve(30))
    assert seen == [1, 2, 3, 4, 5]
    assert model.n_iter_ == 5
    assert not model.converged_
    assert "callback" in model.status_


def test_ctrl_c_leaves_the_best_model_so_far():
    def interrupt(record):
        if record.iteration == 4:
            raise KeyboardInterrupt

    model = quick(callbacks=[interrupt]).fit(*curve(30))
    assert model.n_iter_ == 4
    assert "Interrupted" in model.status_
    assert np.isfinite(model.predict(curve(30)[0])).all()


def test_too_few_rows_with_a_weight():
    with pytest.raises(ValueError, match=r"sample_weight leaves 3 rows .* at least 5"):
        quick().fit(*curve(30), sample_weight=np.r_[np.ones(3), np.zeros(27)])


@pytest.mark.parametrize(
    "words", [["u"] * 30, pd.Categorical(["u"] * 30), pd.to_datetime(["2020-01-01"] * 30)]
)
def test_columns_of_words_are_named(words):
    X, y = curve(30)
    frame = pd.DataFrame({"size": X[:, 0], "kind": words})
    with pytest.raises(ValueError, match=r"no numbers: 'kind' .* OneHotEncoder"):
        quick().fit(frame, y)


def test_a_hole_is_not_a_word():
    X, y = curve(30)
    frame = pd.DataFrame({"size": np.r_[np.nan, X[1:, 0]], "kind": [None, *["1"] * 29]})
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(frame, y)


def test_max_time_ends_training():
    model = quick(max_time=1e-9, max_iter=1000).fit(*curve(30))
    assert model.n_iter_ == 1
    assert "time limit" in model.status_


def test_tol_zero_never_ends_a_round():
    model = quick(tol=0, max_iter=40, noise=1.0).fit(*curve(30))
    assert model.n_iter_ == 40


# --- what it prints -----------------------------------------------------------------------


def test_verbose_zero_prints_nothing(capfd):
    quick().fit(*curve(30))
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_verbose_prints_plain_lines_where_there_is_no_terminal(capfd):
    quick(verbose=1).fit(*curve(30))
    lines = capfd.readouterr().out.splitlines()
    progress = [line for line in lines if line.startswith("round 1")]
    assert len(progress) >= 2
    for word in ("iteration", "objective", "energy", "affine", "endpoint", "RMSE", " s"):
        assert word in progress[-1]
    assert "\x1b" not in "".join(lines)


# --- mistakes people make -----------------------------------------------------------------

MISTAKES = [
    ({"sequence": "ABA"}, SequenceError, "cannot be read at 'B'"),
    ({"sequence": ""}, SequenceError, "empty"),
    ({"sequence": "(AD"}, SequenceError, "bracket"),
    ({"sequence": "D"}, DimensionError, "A1 is the identity"),
    ({"dims": [3, 3]}, DimensionError, "dims has 2 values"),
    ({"sequence": "DA", "dims": 7}, DimensionError, "A0 is the identity.*3 dimensions.*7"),
    ({"kernel": "laplace"}, ValueError, "kernel='laplace'"),
    ({"kernel_order": 0}, ValueError, "not C\\^1"),
    ({"kernel_order": 7}, ValueError, "kernel_order=7"),
    ({"kernel_width": -1.0}, ValueError, "kernel_width=-1.0"),
    ({"kernel_width": "falling"}, ValueError, "'increasing' or 'decreasing'"),
    ({"kernel_width": [0.5, 0.3]}, SequenceError, "2 values but the sequence 'ADA' has 1 D"),
    ({"n_steps": 0}, ValueError, "n_steps=0"),
    ({"ridge": -1}, ValueError, "ridge=-1"),
    ({"noise": 0.0}, ValueError, r"noise=0\.0"),
    ({"noise": "loud"}, ValueError, "noise='loud'"),
    ({"subset_size": 0}, ValueError, "subset_size=0"),
    ({"subset_size": 31}, ValueError, "more than the 30 rows"),
    ({"subset_method": "best"}, ValueError, "subset_method='best'"),
    ({"optimizer": "adam"}, ValueError, "optimizer='adam'"),
    ({"dtype": "float16"}, ValueError, "dtype='float16'"),
    ({"engine": "quantum"}, EngineError, "engine 'quantum'"),
    ({"device": "nowhere"}, EngineError, "'nowhere'"),
    ({"max_iter": 0}, ValueError, "max_iter=0"),
    ({"tol": -1.0}, ValueError, "tol=-1.0"),
    ({"dummy_dims": -1}, ValueError, "dummy_dims=-1"),
    ({"random_state": -1}, ValueError, "random_state=-1"),
    ({"callbacks": [3]}, ValueError, "callbacks"),
]


@pytest.mark.parametrize(("options", "error", "words"), MISTAKES, ids=[str(m[0]) for m in MISTAKES])
def test_wrong_options_are_refused_with_the_reason(options, error, words):
    with pytest.raises(error, match=words):
        quick(**options).fit(*curve(30))


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        (np.full((10, 2), np.nan), np.zeros(10), "NaN"),
        (np.full((10, 2), np.inf), np.zeros(10), "infinity"),
        (np.zeros((10, 2)), np.full(10, np.nan), "NaN"),
        (np.zeros((10, 2)), np.zeros(9), "inconsistent"),
        (np.zeros(10), np.zeros(10), "2D array"),
        (np.zeros((1, 2)), np.zeros(1), "1 sample"),
        (np.zeros((4, 2)), np.zeros(4), "minimum of 5"),
        (np.zeros((0, 2)), np.zeros(0), "0 sample"),
        (np.zeros((10, 0)), np.zeros(10), "0 feature"),
        ([["a", "b"]] * 10, np.zeros(10), "could not convert"),
    ],
)
def test_bad_tables_are_refused(X, y, words):
    with pytest.raises(ValueError, match=words):
        quick().fit(X, y)


def test_weights_that_cannot_be_are_refused():
    X, y = curve(30)
    with pytest.raises(ValueError, match="at least one non-zero"):
        quick().fit(X, y, sample_weight=np.zeros(30))
    with pytest.raises(ValueError, match="Negative values"):
        quick().fit(X, y, sample_weight=-np.ones(30))


def test_constant_columns_and_constant_responses_give_the_right_answer():
    X, y = curve(50)
    flat = np.column_stack([X, np.full(50, 1e9)])
    assert np.isfinite(quick().fit(flat, y).predict(flat)).all()
    constant = FineMorphsRegressor(random_state=0).fit(X, np.full(50, 7.25))
    np.testing.assert_allclose(constant.predict(X), 7.25, rtol=1e-6)
    nothing = FineMorphsRegressor(random_state=0).fit(np.ones((20, 3)), y[:20])
    np.testing.assert_allclose(
        nothing.predict(np.ones((2, 3))), y[:20].mean(), atol=0.1 * y[:20].std()
    )


def test_the_input_is_not_changed():
    X, y = curve(30)
    X0, y0, weights = X.copy(), y.copy(), np.ones(30)
    quick(subset_size=10).fit(X, y, sample_weight=weights).predict(X)
    np.testing.assert_array_equal(X, X0)
    np.testing.assert_array_equal(y, y0)
    np.testing.assert_array_equal(weights, 1)
