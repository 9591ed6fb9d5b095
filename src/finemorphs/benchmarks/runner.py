"""Running a grid of models, datasets and splits: what is done is kept, what fails is told."""

from __future__ import annotations

import platform
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from rich.console import Console

from finemorphs._typing import Array
from finemorphs._version import __version__
from finemorphs.benchmarks.cells import Cell, check_writable, read_result, write_result
from finemorphs.benchmarks.checks import as_stored, check_results, find_result
from finemorphs.benchmarks.models import check_options, make_model, max_rows, taken_options
from finemorphs.benchmarks.progress import GridProgress, expected_seconds
from finemorphs.benchmarks.settings import Settings
from finemorphs.estimators import FineMorphsRegressor
from finemorphs.exceptions import DistributedError

__all__ = ["fit_model", "has_twin", "new_model", "plan", "run", "run_cell"]

_PACKAGES = ("numpy", "torch", "scikit-learn", "xgboost", "lightgbm", "catboost", "xrfm")


def plan(
    models: Sequence[str],
    datasets: Sequence[str],
    settings: Settings,
    *,
    gap: bool = False,
    splits: Iterable[int] | None = None,
) -> list[Cell]:
    """The cells of a grid, split by split; models too slow for a dataset are left out."""
    wanted = None if splits is None else set(splits)
    cells = []
    for dataset in datasets:
        data = settings.load(dataset, gap)
        for k, (train, _) in enumerate(data.splits):
            if wanted is None or k in wanted:
                cells += [
                    Cell(model, data.name, gap, k)
                    for model in models
                    if len(train) <= max_rows(model)
                ]
    return cells


def run(
    cells: Sequence[Cell], settings: Settings, *, jobs: int = 1, console: Console | None = None
) -> list[dict[str, Any]]:
    """Run the cells that have no result yet, and return the results of all, in their order.

    A cell that comes twice is run and returned once. Results that are there have to be of the
    same options, seed and data. The cells are spread by joblib, in ``jobs`` processes or by the
    backend that is active: within ``joblib.parallel_config("dask")`` they go to the workers of a
    Dask cluster, which must see the folders of data and results.
    """
    if jobs == 0:
        raise ValueError(
            "jobs=0 leaves no process to run a fit; give 1 or more, or -1 for all cores."
        )
    cells = list(dict.fromkeys(cells))
    for model in dict.fromkeys(cell.model for cell in cells):
        check_options(model, settings.options)
    check_results(cells, settings)
    found = {cell: find_result(cell, settings) for cell in cells}
    kept = {cell: result["seconds"] for cell, result in found.items() if result is not None}
    rest = [cell for cell in cells if cell not in kept]
    if rest:
        check_writable(Path(settings.out, "cells"))
    costs = {cell: _expected_seconds(cell, settings) for cell in cells}
    n_jobs = joblib.effective_n_jobs(_n_jobs(jobs))
    with GridProgress(costs, kept, console, n_jobs) as progress:
        for result in _spread(rest, settings, jobs, progress):
            progress.advance(result)
    results = [read_result(cell.path(settings.out)) for cell in cells]
    return [result for result in results if result is not None]


def _expected_seconds(cell: Cell, settings: Settings) -> float:
    train, _ = settings.load(cell.dataset, cell.gap).splits[cell.split]
    return expected_seconds(cell.model, len(train))


def _n_jobs(jobs: int) -> int | None:
    return None if jobs == 1 else jobs  # None: what the active backend has


def _spread(
    cells: Sequence[Cell], settings: Settings, jobs: int, progress: GridProgress
) -> Iterator[dict[str, Any]]:
    n_jobs = _n_jobs(jobs)
    if not cells or joblib.effective_n_jobs(n_jobs) == 1:
        for cell in progress.name(cells, "starts"):
            yield run_cell(cell, settings)  # here: Ctrl-C ends it at once
        return
    backend, _ = get_active_backend()
    as_they_come = "generator_unordered" if backend.supports_return_generator else "list"
    parallel = joblib.Parallel(
        n_jobs=n_jobs, return_as=as_they_come, batch_size=1, pre_dispatch="n_jobs"
    )
    handed_out = progress.name(cells, "is handed out")
    try:
        yield from parallel(joblib.delayed(run_cell)(cell, settings) for cell in handed_out)
    except BrokenExecutor as error:
        raise DistributedError(
            "one of the processes that run the fits was killed, perhaps for want of memory; what "
            "was written is kept. Run the same again to go on, with fewer jobs if memory was short."
        ) from error


def run_cell(cell: Cell, settings: Settings) -> dict[str, Any]:
    """Fit, predict, write the result; an exception becomes a result of status "failed".

    A result that another run has written in the meantime is taken.
    """
    done = find_result(cell, settings)
    if done is not None:
        return done
    began = time.perf_counter()
    result: dict[str, Any] = {
        "model": cell.model,
        "dataset": cell.dataset,
        "gap": cell.gap,
        "split": cell.split,
        "seed": settings.seed + cell.split,
        "options": as_stored(taken_options(cell.model, settings.options)),
        "engine": settings.engine,
        "device": settings.device,
    }
    try:
        result |= _measure(cell, settings)
    except Exception as error:
        result |= {
            "status": "failed",
            "error": f"{type(error).__name__}: {error}",
            "traceback": traceback.format_exc(),
            "seconds": time.perf_counter() - began,
        }
    write_result(cell.path(settings.out), result | {"versions": _versions()})
    return result


def _measure(cell: Cell, settings: Settings) -> dict[str, Any]:
    X, y, X_test, y_test = settings.load(cell.dataset, cell.gap).split(cell.split)
    began = time.perf_counter()
    model = fit_model(cell.model, cell.dataset, X, y, settings, cell.split)
    seconds = time.perf_counter() - began
    squared = _squared_errors(model, X_test, y_test)
    if settings.save_models and isinstance(model, FineMorphsRegressor):
        path = cell.model_path(settings.out)
        path.parent.mkdir(parents=True, exist_ok=True)
        model.save(path)
    twins = has_twin(X, y, X_test, y_test)
    table, splits = settings.digests(cell.dataset, cell.gap)
    return {
        "table": table,
        "rows": splits[cell.split],
        "n_train": len(y),
        "n_test": len(y_test),
        "n_twins": int(twins.sum()),
        "rmse": float(np.sqrt(squared.mean())),
        "rmse_without_twins": None if twins.all() else float(np.sqrt(squared[~twins].mean())),
        "seconds": seconds,
        "n_evaluations": getattr(model, "n_evaluations_", None),
        "noise": getattr(model, "noise_", None),
        "objective": getattr(model, "objective_", None),
        "converged": getattr(model, "converged_", None),
        "status": getattr(model, "status_", "Fitted."),
    }


def _squared_errors(model: Any, X: Array, y: Array) -> Array:
    with np.errstate(over="ignore"):
        squared: Array = (model.predict(X) - y) ** 2
    n_bad = np.count_nonzero(~np.isfinite(squared))
    if n_bad:
        raise ValueError(
            f"{n_bad} of {len(y)} squared errors are not finite; try other options or another seed."
        )
    return squared


def fit_model(
    name: str, dataset: str, X: Array, y: Array, settings: Settings, split: int = 0
) -> Any:
    """A model of a row of a table, fitted with the options of the run."""
    model = new_model(name, dataset, X.shape[1], settings, split).fit(X, y)
    if getattr(model, "status_", "").startswith("Interrupted"):
        raise KeyboardInterrupt  # a fit that Ctrl-C cut short is no result
    return model


def new_model(name: str, dataset: str, n_features: int, settings: Settings, split: int = 0) -> Any:
    """A model of a row of a table with the options of the run, not fitted."""
    model = make_model(
        name,
        dataset,
        n_features,
        seed=settings.seed + split,
        engine=settings.engine,
        device=settings.device,
    )
    return model.set_params(**taken_options(name, settings.options))


def has_twin(X: Array, y: Array, X_test: Array, y_test: Array) -> Array:
    """Which test rows stand in the training rows too, response included, number for number."""
    known = {row.tobytes() for row in np.column_stack([X, y])}
    return np.array([row.tobytes() in known for row in np.column_stack([X_test, y_test])])


def _versions() -> dict[str, str]:
    found = {"finemorphs": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
