"""Running a grid of models, datasets and splits: what is done is kept, what fails is told."""

from __future__ import annotations

import json
import os
import platform
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from rich.console import Console

from finemorphs._typing import Array
from finemorphs._version import __version__
from finemorphs.benchmarks.cells import Cell, read_result, write_result
from finemorphs.benchmarks.models import check_options, make_model, max_rows
from finemorphs.benchmarks.progress import GridProgress, expected_seconds
from finemorphs.datasets import UCIDataset, load_uci
from finemorphs.estimators import FineMorphsRegressor

__all__ = [
    "Settings",
    "as_stored",
    "fit_model",
    "has_twin",
    "new_model",
    "plan",
    "run",
    "run_cell",
]

_PACKAGES = ("numpy", "torch", "scikit-learn", "xgboost", "lightgbm", "catboost", "xrfm")


@dataclass(frozen=True)
class Settings:
    """What all cells of a run share.

    Attributes
    ----------
    out : path
        Folder of the results.
    data_dir : path or None
        See :func:`finemorphs.datasets.load_uci`.
    seed : int
        Split k has the seed ``seed + k``.
    engine, device : str
        See :func:`~finemorphs.benchmarks.make_model`.
    options : dict
        Parameters to set on every model that has them.
    save_models : bool
        Keep each fitted FineMorphs model beside its result.
    """

    out: str | os.PathLike[str]
    data_dir: str | os.PathLike[str] | None = None
    seed: int = 0
    engine: str = "auto"
    device: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)
    save_models: bool = False

    def load(self, dataset: str, gap: bool) -> UCIDataset:
        """A dataset, read once a process."""
        folder = None if self.data_dir is None else os.fspath(self.data_dir)
        return _load(dataset, gap, folder)


@lru_cache(maxsize=4)
def _load(dataset: str, gap: bool, data_dir: str | None) -> UCIDataset:
    return load_uci(dataset, gap=gap, data_dir=data_dir)


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
                    Cell(model, dataset, gap, k)
                    for model in models
                    if len(train) <= max_rows(model)
                ]
    return cells


def run(
    cells: Sequence[Cell], settings: Settings, *, jobs: int = 1, console: Console | None = None
) -> list[dict[str, Any]]:
    """Run the cells that have no result yet, and return the results of all, in their order.

    A cell that comes twice is run and returned once. The cells are spread by joblib, in ``jobs``
    processes or by the backend that is active: within ``joblib.parallel_config("dask")`` they go
    to the workers of a Dask cluster, which must see the folders of data and results.
    """
    if jobs == 0:
        raise ValueError(
            "jobs=0 leaves no process to run a fit; give 1 or more, or -1 for all cores."
        )
    cells = list(dict.fromkeys(cells))
    for model in dict.fromkeys(cell.model for cell in cells):
        check_options(model, settings.options)
    rest = [cell for cell in cells if not _is_done(cell, settings)]
    costs = {cell: _expected_seconds(cell, settings) for cell in rest}
    with GridProgress(costs, len(cells) - len(rest), console) as progress:
        for result in _spread(rest, settings, jobs):
            progress.advance(result)
    results = [read_result(cell.path(settings.out)) for cell in cells]
    return [result for result in results if result is not None]


def _expected_seconds(cell: Cell, settings: Settings) -> float:
    train, _ = settings.load(cell.dataset, cell.gap).splits[cell.split]
    return expected_seconds(cell.model, len(train))


def _is_done(cell: Cell, settings: Settings) -> bool:
    """Whether there is a result; failed ones are tried again."""
    result = read_result(cell.path(settings.out))
    if result is None or result["status"] == "failed":
        return False
    found = {"options": result["options"], "seed": result["seed"]}
    wanted = {"options": as_stored(settings.options), "seed": settings.seed + cell.split}
    for what, value in found.items():
        if value != wanted[what]:
            raise ValueError(
                f"the result of {cell} in {settings.out} was made with the {what} {value}, not "
                f"{wanted[what]}; give another folder with --out."
            )
    return True


def as_stored(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a file gives them back: tuples are lists."""
    stored: dict[str, Any] = json.loads(json.dumps(options))
    return stored


def _spread(cells: Sequence[Cell], settings: Settings, jobs: int) -> Iterator[dict[str, Any]]:
    n_jobs = None if jobs == 1 else jobs  # None: what the active backend has
    if not cells or joblib.effective_n_jobs(n_jobs) == 1:
        yield from (run_cell(cell, settings) for cell in cells)  # here: Ctrl-C ends it at once
        return
    backend, _ = get_active_backend()
    as_they_come = "generator_unordered" if backend.supports_return_generator else "list"
    parallel = joblib.Parallel(n_jobs=n_jobs, return_as=as_they_come, batch_size=1)
    yield from parallel(joblib.delayed(run_cell)(cell, settings) for cell in cells)


def run_cell(cell: Cell, settings: Settings) -> dict[str, Any]:
    """Fit, predict, write the result; an exception becomes a result of status "failed"."""
    began = time.perf_counter()
    result: dict[str, Any] = {
        "model": cell.model,
        "dataset": cell.dataset,
        "gap": cell.gap,
        "split": cell.split,
        "seed": settings.seed + cell.split,
        "options": settings.options,
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
    if settings.save_models and isinstance(model, FineMorphsRegressor):
        path = cell.path(settings.out).with_suffix(".safetensors")
        path.parent.mkdir(parents=True, exist_ok=True)
        model.save(path)
    squared = (model.predict(X_test) - y_test) ** 2
    twins = has_twin(X, y, X_test, y_test)
    return {
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
    known = model.get_params()
    return model.set_params(**{k: v for k, v in settings.options.items() if k in known})


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
