"""Grids of fits through joblib, on a Dask cluster of threads."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

distributed = pytest.importorskip("distributed")


@pytest.mark.filterwarnings("ignore")  # of Dask's own libraries
def test_a_search_on_dask_finds_what_it_finds_here(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "examples"), *sys.path])
    import grid_dask
    import joblib

    local = {"processes": False, "n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.Client(**local) as client:
        found = grid_dask.search(client)
    monkeypatch.setattr(
        joblib, "parallel_backend", lambda *_, **__: joblib.parallel_config(n_jobs=1)
    )
    here = grid_dask.search(None)
    for name in ("mean_test_score", "std_test_score"):
        assert np.array_equal(found.cv_results_[name], here.cv_results_[name])
    assert found.best_params_ == here.best_params_
