"""Fits that take long warn of it before they start."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

from finemorphs import FineMorphsClassifier, FineMorphsRegressor
from finemorphs.estimators import _duration

RNG = np.random.default_rng(0)
X, Y = RNG.uniform(-1, 1, (400, 3)), RNG.standard_normal(400)
QUICK = {"noise": 1.0, "callbacks": [lambda record: True], "random_state": 0}


@pytest.fixture
def slow(monkeypatch):
    """Half an hour of 0.05 seconds, and 50 control points that are few."""
    monkeypatch.setattr(_duration, "_LONG", 0.05)
    monkeypatch.setattr(_duration, "_FEW_CONTROLS", 50)


@pytest.mark.parametrize("kind", [FineMorphsRegressor, FineMorphsClassifier])
def test_a_long_fit_warns_and_says_what_is_shorter(kind, slow):
    with pytest.warns(UserWarning, match=r"400 rows, 400 of them .*subset_size=50 \(about") as seen:
        kind(**QUICK).fit(X, Y > 0)
    whole, subset = map(float, re.findall(r"about (\S+) s", str(seen[0].message)))
    assert subset == pytest.approx(whole / 8, rel=0.1)


def test_with_few_control_points_it_proposes_fewer_steps(slow, monkeypatch):
    monkeypatch.setattr(_duration, "_LONG", 0.01)
    with pytest.warns(UserWarning, match=r"50 of them .* give n_steps=5, a GPU"):
        FineMorphsRegressor(**QUICK, subset_size=50).fit(X, Y)


@pytest.mark.parametrize("options", [{"max_time": 60}, {"max_iter": 2}, {"sequence": "A"}])
def test_a_fit_that_is_bounded_does_not_warn(options, slow):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FineMorphsRegressor(**QUICK | options).fit(X, Y)


def test_a_fit_that_chooses_its_noise_warns_once(slow):
    """It is several fits, each of few iterations."""
    with pytest.warns(UserWarning, match="400 rows") as seen:
        FineMorphsRegressor(noise="cv", callbacks=QUICK["callbacks"]).fit(X, Y)
    assert len(seen) == 1
