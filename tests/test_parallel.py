"""Fits in threads and processes: no deadlock, and the bits of a fit alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import _workers
import joblib
import numpy as np
import pytest
from sklearn.model_selection import cross_val_predict

from finemorphs import FineMorphsRegressor

PATIENCE = 300  # seconds; a deadlock fails the test, a slow machine does not


@pytest.fixture(scope="module")
def alone():
    return [_workers.fit(seed) for seed in range(4)]


def test_fits_in_threads(alone):
    barrier = threading.Barrier(2)

    def fit(seed):
        barrier.wait(PATIENCE)
        return _workers.fit(seed)

    pool = ThreadPoolExecutor(2)
    futures = [pool.submit(fit, seed) for seed in range(2)]
    for future, expected in zip(futures, alone, strict=False):
        np.testing.assert_array_equal(future.result(PATIENCE), expected)
    pool.shutdown()


def test_one_model_predicts_in_many_threads():
    X, y = _workers.data()
    model = FineMorphsRegressor(n_steps=3, max_iter=5, random_state=0).fit(X, y)
    tables = [_workers.data(seed, 30 + seed)[0] for seed in range(8)]
    expected = [model.predict(table) for table in tables]
    pool = ThreadPoolExecutor(8)
    futures = [pool.submit(model.predict, table) for table in tables * 5]
    for future, prediction in zip(futures, expected * 5, strict=True):
        np.testing.assert_array_equal(future.result(PATIENCE), prediction)
    pool.shutdown()


def test_four_fits_in_four_processes(alone):
    """Also: the same bits in every process."""
    jobs = joblib.Parallel(n_jobs=4, timeout=PATIENCE)(
        joblib.delayed(_workers.fit)(seed) for seed in range(4)
    )
    np.testing.assert_array_equal(jobs, alone)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fit_in_a_forked_child_after_one_in_the_parent():
    """In a process of its own: one that forks beside the threads of a test run is not asked for."""
    words = [sys.executable, "-W", "ignore", _workers.__file__]
    result = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert result.stdout.strip() == "the same", result.stderr


def test_n_jobs_changes_nothing():
    X, y = _workers.data(n=60)
    model = FineMorphsRegressor(n_steps=2, max_iter=5, random_state=0)
    one = cross_val_predict(model, X, y, cv=3, n_jobs=1)
    two = cross_val_predict(model, X, y, cv=3, n_jobs=2)
    np.testing.assert_array_equal(one, two)
