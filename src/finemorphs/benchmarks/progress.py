"""Progress of a grid: a line for each fit, and the time that is left."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from finemorphs.benchmarks.cells import Cell
from finemorphs.benchmarks.models import DNN_LAYERS, FINEMORPHS
from finemorphs.notation import parse

__all__ = ["GridProgress", "expected_seconds"]

_PRIOR = 0.1  # how much of the grid counts as done at the pace of the kept fits


class GridProgress:
    """Shows how far a grid is; a context manager.

    Fits differ by orders of magnitude, so that the time left is not counted in fits but in
    their expected cost, for which the seconds of those done before are the measure.

    Parameters
    ----------
    costs : dict
        Expected seconds of each cell of the grid.
    kept : dict
        Seconds that each cell took which was done before.
    console : rich.console.Console, optional
        Where to write; standard error by default, so that the table alone is on the output.
    n_jobs : int, default=1
        Fits side by side.
    """

    def __init__(
        self,
        costs: Mapping[Cell, float],
        kept: Mapping[Cell, float],
        console: Console | None,
        n_jobs: int = 1,
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._costs, self._n_kept = _costs_of_rest(costs, kept), len(kept)
        self._total, self._done, self._n_done = sum(self._costs.values()), 0.0, 0
        self._n_jobs, self._prior = n_jobs, _PRIOR * self._total * bool(kept)
        self._began = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task(self._count, total=self._total or 1.0, left=self._left)

    def __enter__(self) -> GridProgress:
        self._began = time.monotonic()
        if self._n_kept:
            n = self._n_kept + len(self._costs)
            left = f", {self._left}" if self._left else ""
            self._console.print(f"{self._n_kept} of {n} fits are there already{left}")
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
            goes_on = "; the same command goes on from here" * (kind is KeyboardInterrupt)
            self._console.print(f"stopped with {self._count} done{goes_on}")

    def name(self, cells: Iterable[Cell], event: str) -> Iterator[Cell]:
        """The cells; where no bar is seen, each is named with the event as it is taken."""
        for cell in cells:
            if not self._console.is_terminal:
                self._console.print(f"{self._count}  {cell} {event}", markup=False)
            yield cell

    def advance(self, result: dict[str, Any]) -> None:
        """Note a finished cell."""
        cell = Cell.of(result)
        self._done += self._costs[cell]
        self._n_done += 1
        left = self._left
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
        return f"{self._n_kept + self._n_done}/{self._n_kept + len(self._costs)} fits"

    @property
    def _left(self) -> str:
        """In words; nothing at the end, or where nothing is known yet."""
        seconds = self._seconds_left()
        if seconds <= 0:
            return ""
        for unit, size in (("h", 3600), ("min", 60)):
            if seconds > 2 * size:
                return f"about {seconds / size:.0f} {unit} left"
        return f"about {seconds:.0f} s left"

    def _seconds_left(self) -> float:
        """What is left at the pace so far, in which the kept fits count as the prior."""
        done = self._prior + self._done
        if done <= 0:
            return 0.0
        seconds = self._prior / self._n_jobs + time.monotonic() - self._began
        return (self._total - self._done) * seconds / done


def _costs_of_rest(costs: Mapping[Cell, float], kept: Mapping[Cell, float]) -> dict[Cell, float]:
    """Costs of the cells to do, by the measure of the model's own cells that were done."""
    expected: dict[str, float] = defaultdict(float)
    took: dict[str, float] = defaultdict(float)
    for cell, seconds in kept.items():
        expected[cell.model] += costs[cell]
        took[cell.model] += seconds
    return {
        cell: cost * (took[cell.model] / expected[cell.model] if cell.model in took else 1.0)
        for cell, cost in costs.items()
        if cell not in kept
    }


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
