"""Prediction intervals: their coverage, their files, what they refuse."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

import finemorphs
from finemorphs import FineMorphsRegressor
from finemorphs.engines import choose_engine
from finemorphs.estimators import best


def draw(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise that is skewed, and larger on the right."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) + (0.1 + 0.1 * (X[:, 1] + 2)) * rng.exponential(1, n)


TRAIN, CALIBRATION, TEST = draw(80, 0), draw(200, 1), draw(4000, 2)
MODEL = FineMorphsRegressor(random_state=0, n_steps=5).fit(*TRAIN).calibrate(*CALIBRATION)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_coverage_is_as_promised(confidence: float) -> None:
    """Given the calibration, coverage is Beta(k, n + 1 - k), k = ceil((n + 1) confidence).

    Over 40 calibrations of 60 rows (and the test rows, far more of them), the mean is within
    binomial bounds of its mean k / (n + 1), which is not below the confidence.
    """
    n, n_trials = (60, 40) if confidence < 0.95 else (120, 20)
    X, y = draw(n * n_trials, 3)
    hits = 0
    model = copy.copy(MODEL)
    for i in range(n_trials):
        rows = slice(i * n, (i + 1) * n)
        interval = model.calibrate(X[rows], y[rows]).predict_interval(
            TEST[0][i::n_trials], confidence
        )
        low, high = interval.T
        observed = TEST[1][i::n_trials]
        hits += int(((low <= observed) & (observed <= high)).sum())
    expected = np.ceil((n + 1) * confidence) / (n + 1)
    assert expected >= confidence
    # Rows that share a calibration are not independent: as many trials as rows of calibration.
    bounds = binom.ppf([1e-4, 1 - 1e-4], n * n_trials, expected) / (n * n_trials)
    assert bounds[0] <= hits / len(TEST[0]) <= bounds[1]


def test_half_width_is_the_right_order_statistic() -> None:
    errors = np.sort(np.abs(CALIBRATION[1] - MODEL.predict(CALIBRATION[0])))
    low, high = MODEL.predict_interval(TEST[0][:5], 0.9).T
    np.testing.assert_allclose((high - low) / 2, errors[int(np.ceil(201 * 0.9)) - 1])
    np.testing.assert_allclose((high + low) / 2, MODEL.predict(TEST[0][:5]))


def test_several_responses_have_intervals_of_their_own() -> None:
    X, y = TRAIN
    model = FineMorphsRegressor(random_state=0, n_steps=2, max_iter=20)
    model.fit(X, np.stack([y, 100 * y], 1))
    with pytest.raises(ValueError, match=r"y of shape \(200,\) cannot be compared"):
        model.calibrate(*CALIBRATION)
    model.calibrate(CALIBRATION[0], np.stack([CALIBRATION[1], 100 * CALIBRATION[1]], 1))
    intervals = model.predict_interval(X)
    assert intervals.shape == (80, 2, 2)
    widths = np.ptp(intervals, axis=2)
    assert (widths[:, 1] > 10 * widths[:, 0]).all()


def test_a_file_keeps_the_calibration(tmp_path: Path) -> None:
    MODEL.save(tmp_path / "model")
    again = finemorphs.load(tmp_path / "model")
    np.testing.assert_array_equal(
        again.predict_interval(TEST[0][:20]), MODEL.predict_interval(TEST[0][:20])
    )


def test_a_new_fit_forgets_the_calibration() -> None:
    model = FineMorphsRegressor("A").fit(*TRAIN).calibrate(*CALIBRATION).fit(*TRAIN)
    with pytest.raises(ValueError, match=r"was not calibrated, .*; call calibrate\(X, y\)"):
        model.predict_interval(TEST[0])


@pytest.mark.parametrize(
    ("confidence", "message"),
    [
        (1.0, "confidence=1.0 is not a probability between 0 and 1"),
        (90, "confidence=90 is not a probability"),
        (0.999, "confidence=0.999 needs 1000 rows of calibration, and there were 200"),
    ],
)
def test_a_confidence_that_cannot_be_had(confidence: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MODEL.predict_interval(TEST[0], confidence)


def test_the_least_number_of_rows() -> None:
    X, y = CALIBRATION
    model = FineMorphsRegressor("A").fit(*TRAIN)
    assert np.isfinite(model.calibrate(X[:4], y[:4]).predict_interval(X, 0.75)).all()
    with pytest.raises(ValueError, match=r"0.75 needs 4 rows of calibration, and there were 3"):
        model.calibrate(X[:3], y[:3]).predict_interval(X, 0.75)


def test_missing_responses_are_refused() -> None:
    with pytest.raises(ValueError, match="give finite responses"):
        MODEL.calibrate(CALIBRATION[0][:3], [1.0, np.nan, 2.0])


def test_without_mapie_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mapie.regression", None)
    with pytest.raises(ImportError, match=r"need the package mapie.*finemorphs\[intervals\]"):
        MODEL.predict_interval(TEST[0][:2])


# --- standard deviations of ensembles -----------------------------------------------------

ENSEMBLE = FineMorphsRegressor(n_members=4, random_state=0, n_steps=3, max_iter=40).fit(*TRAIN)


def test_std_is_the_spread_of_the_members_and_the_residual() -> None:
    X, y = TEST[0][:50], TRAIN[1]
    engine, device = choose_engine("cpu", "cpu")
    predictions = [member.model.predict(X, engine, device)[:, 0] for member in ENSEMBLE.members_]
    residual = np.sqrt(np.mean((y - ENSEMBLE.predict(TRAIN[0])) ** 2))
    mean, std = ENSEMBLE.predict(X, return_std=True)
    np.testing.assert_allclose(mean, ENSEMBLE.predict(X))
    np.testing.assert_allclose(std, np.hypot(np.std(predictions, axis=0), residual))


def test_std_is_larger_where_there_are_no_rows() -> None:
    _, near = ENSEMBLE.predict(TRAIN[0], return_std=True)
    _, far = ENSEMBLE.predict(TRAIN[0] * 10, return_std=True)
    excess = [np.mean(std**2 - ENSEMBLE.residual_**2) for std in (near, far)]
    assert excess[1] > 10 * excess[0]


def test_calibration_sets_the_scale_of_the_std(tmp_path: Path) -> None:
    model = copy.copy(ENSEMBLE).calibrate(*CALIBRATION)
    mean, std = model.predict(TEST[0], return_std=True)
    assert np.sqrt(np.mean(((TEST[1] - mean) / std) ** 2)) == pytest.approx(1, abs=0.2)
    model.save(tmp_path / "model")
    _, again = finemorphs.load(tmp_path / "model").predict(TEST[0], return_std=True)
    np.testing.assert_array_equal(again, std)


def test_std_of_several_responses() -> None:
    X, y = TRAIN
    model = FineMorphsRegressor(n_members=2, random_state=0, n_steps=2, max_iter=5)
    mean, std = model.fit(X, np.stack([y, 100 * y], 1)).predict(X, return_std=True)
    assert mean.shape == std.shape == (80, 2)
    assert (std[:, 1] > 10 * std[:, 0]).all()


def test_the_best_preset_takes_the_error_out_of_fold() -> None:
    model = FineMorphsRegressor(preset="best", random_state=0, n_steps=2).fit(*TRAIN)
    assert len(model.members_) > 1
    np.testing.assert_array_equal(model.residual_, model.selection_["rmse"])


def test_one_member_of_the_best_preset_has_the_error_out_of_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(best, "weigh", lambda task, candidates: np.eye(len(candidates))[0])
    model = FineMorphsRegressor(preset="best", random_state=0, n_steps=2).fit(*TRAIN)
    assert len(model.members_) == 1
    mean, std = model.predict(TEST[0], return_std=True)
    np.testing.assert_array_equal(mean, model.predict(TEST[0]))
    np.testing.assert_allclose(std, model.selection_["rmse"][0])
    residual = model.residual_
    for of_this_version in (True, False):
        if not of_this_version:
            del model.residual_
        model.save(tmp_path / "model")
        np.testing.assert_array_equal(finemorphs.load(tmp_path / "model").residual_, residual)
    model.residual_ = residual
    errors = model.calibrate(*CALIBRATION).conformity_scores_
    np.testing.assert_allclose(model.residual_, np.sqrt(np.mean(errors**2)))


def test_one_member_has_no_std() -> None:
    with pytest.raises(ValueError, match=r"needs several members .* fit with n_members=5.*preset"):
        MODEL.predict(TEST[0], return_std=True)
