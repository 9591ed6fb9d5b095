"""The figures of the paper: what the first D module does to a training split, and Rings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from finemorphs._typing import Array
from finemorphs.benchmarks.cells import Cell, check_writable
from finemorphs.benchmarks.checks import as_stored
from finemorphs.benchmarks.models import FINEMORPHS
from finemorphs.benchmarks.runner import fit_model, new_model, run
from finemorphs.benchmarks.settings import Settings
from finemorphs.datasets import make_rings
from finemorphs.estimators import FineMorphsRegressor
from finemorphs.persistence import load
from finemorphs.plots import plot_panels, plot_reshaping

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "draw_figure", "panel_states"]

FIGURES = ("rings", "kin8nm", "concrete", "energy")
_TIMES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
# Parameters that make no other model, or that a file does not keep.
_FREE = {"engine", "device", "max_memory", "verbose", "callbacks", "checkpoint", "resume"}


def draw_figure(
    dataset: str,
    settings: Settings,
    *,
    model: str = "ADA",
    gap: bool = False,
    split: int = 0,
    console: Console | None = None,
) -> list[Path]:
    """Draw one figure, as PNG and SVG in ``figures/`` of the results; the files.

    Beside the paper's principal components there is one with the axis of the response.

    A model that the grid kept (``--save-models``) is used, if it and its result are of the
    settings and the data at hand; where there is none, the cell is run and its model kept.
    """
    if model not in FINEMORPHS:
        raise ValueError(f"figures show FineMorphs models, and {model!r} is none; use 'ADA'.")
    folder = Path(settings.out, "figures")
    check_writable(folder)
    cell = Cell(model, dataset, gap, split)
    *_, place, slug, _ = cell.path(settings.out).parts
    if dataset == "rings":
        figures = {"rings" if model == "ADA" else f"rings-{slug}": _draw_rings(settings, model)}
    else:
        plain, turned = _draw_split(cell, settings, console)
        name = f"{place}-{slug}-{split}"
        figures = {name: plain, f"{name}-response": turned}
    paths = []
    for name, figure in figures.items():
        for suffix in ("png", "svg"):
            paths.append(folder / f"{name}.{suffix}")
            figure.savefig(paths[-1], dpi=150)
    return paths


def _draw_split(cell: Cell, settings: Settings, console: Console | None) -> list[Figure]:
    X, y, X_test, y_test = settings.load(cell.dataset, cell.gap).split(cell.split)
    (result,) = run([cell], replace(settings, save_models=True), console=console)
    if result["status"] == "failed":
        raise ValueError(
            f"the fit of {cell} failed, which leaves nothing to draw ({result['error']}); try "
            "other options or another seed."
        )
    path = cell.model_path(settings.out)
    model = load(path)
    wanted = new_model(cell.model, cell.dataset, X.shape[1], settings, cell.split)
    _check_parameters(path, model.get_params(), wanted.get_params())
    error = float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)))
    _check_error(path, error, result["rmse"])
    name, panels = panel_states(model, X)
    titles = [f"t = {time:.2g}" for time, _ in panels]
    figures = [
        plot_panels([x for _, x in panels], y, titles=titles, response_axis=turn)[0].figure
        for turn in (False, True)
    ]
    for figure in figures:
        figure.suptitle(
            f"{cell.dataset}{', gap' * cell.gap}, training rows of split {cell.split} through "
            f"{name} of {cell.model} (test RMSE {error:.3g})"
        )
    return figures


def _check_parameters(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    wanted = as_stored({name: value for name, value in wanted.items() if name not in _FREE})
    other = [name for name, value in wanted.items() if found[name] != value]
    if other:
        made, asked = ({name: some[name] for name in other} for some in (found, wanted))
        raise ValueError(
            f"the model {path} was made with {made}, not {asked}; give another folder with --out."
        )


def _check_error(path: Path, found: float, wanted: float) -> None:
    """Another device or engine rounds otherwise; another model is further away."""
    if not np.isclose(found, wanted, rtol=0.01):
        raise ValueError(
            f"the model {path} has a test RMSE of {found:.4g}, but {wanted:.4g} is that of its "
            "result; remove the model, and it is fitted again."
        )


def _draw_rings(settings: Settings, name: str) -> Figure:
    X, y = make_rings(1200, random_state=settings.seed)
    model = fit_model(name, "rings", X[:400], y[:400], settings)
    X, y = X[400:], y[400:]
    figure = plot_reshaping(X, y, model.transform(X))[0].get_figure(root=True)
    assert figure is not None
    error = float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
    figure.suptitle(f"rings, {name} with one dummy dimension: test points, RMSE {error:.3g}")
    return figure


def panel_states(model: FineMorphsRegressor, X: Array) -> tuple[str, list[tuple[float, Array]]]:
    """Name of the first D module, and its times nearest to 0, 0.2, .. , 1 with their states."""
    walk = model.trajectory(X)
    name = next(name for name, _, _ in walk if name.startswith("D"))
    path = [(time, states) for module, time, states in walk if module == name]
    times = np.array([time for time, _ in path])
    nearest = {int(np.argmin(abs(times - t))) for t in _TIMES}
    return name, [path[i] for i in sorted(nearest)]
