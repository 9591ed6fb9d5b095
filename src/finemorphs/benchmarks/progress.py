"""Progress of a grid: a line for each fit, and the time that is left."""

from __future__ import annotations

import time
from itertools import pairwise
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from finemorphs.benchmarks.cells import Cell
from finemorphs.benchmarks.models import DNN_LAYERS, FINEMORPHS
from finemorphs.notation import parse

__all__ = ["GridProgress", "expected_seconds"]


class GridProgress:
    """Shows how far a grid is; a context manager.

    Fits differ by orders of magnitude, so that the time left is not counted in fits but in
    their expected cost.

    Parameters
    ----------
    costs : dict
        Expected seconds of each cell that is still to do.
    n_kept : int
        Cells of the grid that were done before.
    console : rich.console.Console, optional
        Where to write; standard error by default, so that the table alone is on the output.
    """

    def __init__(self, costs: dict[Cell, float], n_kept: int, console: Console | None) -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._costs, self._n_kept = costs, n_kept
        self._total, self._done, self._n_done = sum(costs.values()), 0.0, 0
        self._began = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task(self._count, total=self._total or 1.0, left="")

    def __enter__(self) -> GridProgress:
        self._began = time.monotonic()
        if self._n_kept:
            n = self._n_kept + len(self._costs)
            self._console.print(f"{self._n_kept} of {n} fits are there already")
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
        if error is not None:
            self._console.print(
                f"stopped with {self._count} done; the same command goes on from here"
            )

    def advance(self, result: dict[str, Any]) -> None:
        """Note a finished cell."""
        cell = Cell(result["model"], result["dataset"], result["gap"], result["split"])
        self._done += self._costs[cell]
        self._n_done += 1
        left = self._time_left()
        self._bar.update(self._task, completed=self._done, description=self._count, left=left)
        if result["status"] == "failed":
            self._console.print(f"{self._count}  {cell}: FAILED, {result['error']}", markup=False)
        else:
            self._console.print(
                f"{self._count}  {cell}: RMSE {result['rmse']:.4g}, {result['seconds']:.1f} s"
                f"{', ' + left if left else ''}",
                markup=False,
            )

    @property
    def _count(self) -> str:
        return f"{self._n_done}/{len(self._costs)} fits"

    def _time_left(self) -> str:
        rest = self._total - self._done
        if rest <= 0 or self._done <= 0:
            return ""
        seconds = (time.monotonic() - self._began) * rest / self._done
        for unit, size in (("h", 3600), ("min", 60)):
            if seconds > 2 * size:
                return f"about {seconds / size:.0f} {unit} left"
        return f"about {seconds:.0f} s left"


def expected_seconds(model: str, n: int) -> float:
    """A guess of how long a fit on n rows takes, on one core of a laptop."""
    if model in DNN_LAYERS:
        sizes = (10, *DNN_LAYERS[model], 1)
        weights = sum(a * b for a, b in pairwise(sizes))
        return 400 * n / 32 * (5e-5 + 3e-5 * len(sizes[2:]) + 3e-9 * weights)
    if model in FINEMORPHS:
        options = FINEMORPHS[model]
        # The best preset: six fits of AD^4A at half the steps, on most of the rows.
        sequence = options.get("sequence", "(AD^4A)^2")
        steps: int = options.get("n_steps", 10) * parse(sequence).count("D")
        return 0.2 + 200 * 3e-9 * steps * n * min(n, 60_000)
    return 0.01 if model == "A" else 30 + 0.01 * n
