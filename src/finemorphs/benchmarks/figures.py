"""The figures of the paper: what the first D module does to a training split, and Rings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from finemorphs._typing import Array
from finemorphs.benchmarks.cells import Cell
from finemorphs.benchmarks.models import FINEMORPHS
from finemorphs.benchmarks.runner import Settings, as_stored, fit_model, new_model
from finemorphs.datasets import make_rings
from finemorphs.estimators import FineMorphsRegressor
from finemorphs.persistence import load
from finemorphs.plots import plot_panels, plot_reshaping

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "draw_figure", "six_states"]

FIGURES = ("rings", "kin8nm", "concrete", "energy")
_TIMES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
# Parameters that make no other model, or that a file does not keep.
_FREE = {"engine", "device", "max_memory", "verbose", "callbacks", "checkpoint", "resume"}


def draw_figure(
    dataset: str, settings: Settings, *, model: str = "ADA", gap: bool = False, split: int = 0
) -> list[Path]:
    """Draw one figure, as PNG and SVG in ``figures/`` of the results; the files.

    Beside the paper's principal components there is one with the axis of the response.

    A model that the grid kept (``--save-models``) is used, if its parameters are those of the
    settings; where there is none, one is fitted and kept.
    """
    if model not in FINEMORPHS:
        raise ValueError(f"figures show FineMorphs models, and {model!r} is none; use 'ADA'.")
    if dataset == "rings":
        figures = {"rings": _draw_rings(settings, model)}
    else:
        cell = Cell(model, dataset, gap, split)
        name = "-".join(cell.path(settings.out).with_suffix("").parts[-3:])
        plain, turned = _draw_split(cell, settings)
        figures = {name: plain, f"{name}-response": turned}
    folder = Path(settings.out, "figures")
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures.items():
        for suffix in ("png", "svg"):
            paths.append(folder / f"{name}.{suffix}")
            figure.savefig(paths[-1], dpi=150)
    return paths


def _draw_split(cell: Cell, settings: Settings) -> list[Figure]:
    X, y, X_test, y_test = settings.load(cell.dataset, cell.gap).split(cell.split)
    path = cell.path(settings.out).with_suffix(".safetensors")
    if path.is_file():
        model = load(path)
        wanted = new_model(cell.model, cell.dataset, X.shape[1], settings, cell.split)
        _check_parameters(path, model.get_params(), wanted.get_params())
    else:
        model = fit_model(cell.model, cell.dataset, X, y, settings, cell.split)
        path.parent.mkdir(parents=True, exist_ok=True)
        model.save(path)
    name, states = six_states(model, X)
    titles = [f"t = {time:g}" for time in _TIMES]
    figures = [
        plot_panels(states, y, titles=titles, response_axis=turn)[0].figure
        for turn in (False, True)
    ]
    error = float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)))
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


def _draw_rings(settings: Settings, name: str) -> Figure:
    X, y = make_rings(1200, random_state=settings.seed)
    model = fit_model(name, "rings", X[:400], y[:400], settings)
    X, y = X[400:], y[400:]
    figure = plot_reshaping(X, y, model.transform(X))[0].get_figure(root=True)
    assert figure is not None
    error = float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
    figure.suptitle(f"rings, {name} with one dummy dimension: test points, RMSE {error:.3g}")
    return figure


def six_states(model: FineMorphsRegressor, X: Array) -> tuple[str, list[Array]]:
    """Name of the first D module, and its states at the times 0, 0.2, .. , 1."""
    walk = model.trajectory(X)
    name = next(name for name, _, _ in walk if name.startswith("D"))
    path = [(time, states) for module, time, states in walk if module == name]
    times = np.array([time for time, _ in path])
    return name, [path[int(np.argmin(abs(times - t)))][1] for t in _TIMES]
