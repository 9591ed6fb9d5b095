"""``report`` and ``plot``: pictures of a model at work on a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from finemorphs import plots
from finemorphs._typing import Array
from finemorphs.cli._models import load_model
from finemorphs.cli._screen import Screen
from finemorphs.exceptions import TableError
from finemorphs.plots._axes import pyplot
from finemorphs.report import is_mean, shown_words, write_report
from finemorphs.tables import Recipe, Table, read_table

__all__ = ["PLOTS", "known_rows", "plot_file", "report_file"]

PLOTS: dict[str, Callable[[Any, Array, Array], Any]] = {
    "flow": plots.plot_flow,
    "reshaping": lambda e, X, y: plots.plot_reshaping(X, y, e.transform(X)),
    "trajectories": plots.plot_trajectories,
    "space": plots.plot_space,
    "displacement": lambda e, X, y: plots.plot_displacement(e, X),
    "volume": lambda e, X, y: plots.plot_volume(e, X),
    "predictions": plots.plot_predictions,
    "sensitivity": lambda e, X, y: plots.plot_sensitivity(e, X),
    "convergence": lambda e, X, y: plots.plot_convergence(e),
    "singular-values": lambda e, X, y: plots.plot_singular_values(e),
}
_OF_ALL_MEMBERS = ("predictions", "sensitivity")  # the others show the flow that model_ holds
_MOST_ROWS = 2000  # in a picture


def report_file(model: Path, data: Path, out: Path, screen: Screen) -> None:
    """Write the page for the rows that have a target."""
    estimator, recipe = load_model(model)
    table = read_table(data)
    X, y, rows = known_rows(recipe, table, screen)
    cells = {column.name: [table[column.name].text()[i] for i in rows] for column in recipe.columns}
    write_report(
        out,
        estimator,
        X,
        y,
        targets=recipe.targets,
        source=data.name,
        cells=cells,
        row_numbers=rows + 1,
    )
    screen.say(f"wrote {out} ({out.stat().st_size / 1e6:.2g} MB); open it in a browser")


def plot_file(model: Path, data: Path, kind: str, out: Path, screen: Screen) -> None:
    """Draw one picture of a model, for the rows that have a target."""
    if kind not in PLOTS:
        raise ValueError(f"--kind {kind!r} is not known; choose one of {', '.join(PLOTS)}.")
    if (kind == "space") != (out.suffix == ".html"):
        raise ValueError(
            f"--out {out} does not fit --kind {kind}: 'space' is a page (.html), the others are "
            "pictures (.png, .svg, .pdf)."
        )
    estimator, recipe = load_model(model)
    X, y, rows = known_rows(recipe, read_table(data), screen)
    if len(rows) > _MOST_ROWS:
        chosen = np.sort(np.random.default_rng(0).choice(len(rows), _MOST_ROWS, replace=False))
        X, y = X[chosen], y[chosen]
        screen.notice(f"{_MOST_ROWS} of {len(rows)} rows are drawn")
    if is_mean(estimator) and kind not in _OF_ALL_MEMBERS:
        screen.notice(f"the picture shows one flow, {shown_words(estimator)}")
    if kind != "predictions":
        y = y[:, 0] if y.ndim == 2 else y
    if recipe.classes:
        if kind == "predictions":
            raise ValueError("--kind predictions needs a target of numbers; use evaluate.")
        y = np.searchsorted(estimator.classes_, y).astype(float)
    if kind == "space":
        PLOTS[kind](estimator, X, y).write_html(out)
    else:
        _save(PLOTS[kind], estimator, X, y, out)
    screen.say(f"wrote {out}")


def _save(draw: Callable[..., Any], estimator: Any, X: Array, y: Array, out: Path) -> None:
    pyplot().switch_backend("Agg")
    first = np.ravel(draw(estimator, X, y))[0]
    first.figure.savefig(out, dpi=150)
    pyplot().close(first.figure)


def known_rows(recipe: Recipe, table: Table, screen: Screen) -> tuple[Array, Array, Array]:
    """Inputs and targets of the rows that have a target, and their places."""
    y, known = recipe.responses(table)
    rows = np.flatnonzero(known)
    if not len(rows):
        raise TableError(f"{table.source} has no row with a target; nothing can be compared.")
    if len(rows) < len(table):
        screen.notice(f"{len(table) - len(rows)} rows have no target and are left out")
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    return recipe.apply(table)[rows], y[rows], rows
