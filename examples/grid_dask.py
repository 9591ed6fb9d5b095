"""A grid of fits on a Dask cluster: splits and options go through joblib, which Dask carries.

    python examples/grid_dask.py                     # a cluster of threads in this process
    python examples/grid_dask.py tcp://scheduler:8786  # one that is running

Needs finemorphs[dask].
"""

from __future__ import annotations

import sys

import joblib
from dask.distributed import Client
from sklearn.model_selection import GridSearchCV

from finemorphs import FineMorphsRegressor
from finemorphs.datasets import make_rings


def search(client: Client) -> GridSearchCV:
    """Six fits of Rings, wherever the cluster has room."""
    X, y = make_rings(120, random_state=0)
    grid = {"kernel_width": [0.3, 1.0]}
    model = FineMorphsRegressor(n_steps=4, max_iter=30, random_state=0)
    with joblib.parallel_backend("dask", client=client):
        return GridSearchCV(model, grid, cv=3, scoring="r2").fit(X, y)


def main() -> None:
    address = sys.argv[1] if len(sys.argv) > 1 else None
    local = {"processes": False, "n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with Client(address) if address else Client(**local) as client:
        found = search(client)
        for options, score in zip(
            found.cv_results_["params"], found.cv_results_["mean_test_score"], strict=True
        ):
            print(options, f"R2 {score:.4f}")


if __name__ == "__main__":
    main()
