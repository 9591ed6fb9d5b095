"""``report``: a page about a model at work on a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from finemorphs._typing import Array
from finemorphs.cli._models import load_model
from finemorphs.cli._screen import Screen
from finemorphs.exceptions import TableError
from finemorphs.report import write_report
from finemorphs.tables import Recipe, Table, read_table

__all__ = ["known_rows", "report_file"]


def report_file(model: Path, data: Path, out: Path, screen: Screen) -> None:
    """Write the page for the rows that have a target."""
    estimator, recipe = load_model(model)
    table = read_table(data)
    X, y, rows = known_rows(recipe, table, screen)
    cells = {column.name: [table[column.name].text()[i] for i in rows] for column in recipe.columns}
    title = f"{', '.join(recipe.targets)}: {estimator.sequence_} on {data.name}"
    write_report(
        out, estimator, X, y, targets=recipe.targets, title=title, cells=cells, row_numbers=rows + 1
    )
    screen.say(f"wrote {out} ({out.stat().st_size / 1e6:.2g} MB); open it in a browser")


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
