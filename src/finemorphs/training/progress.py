"""Progress on the screen: one line that updates, or plain lines where there is no terminal."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from finemorphs.training.history import Record

__all__ = ["Progress"]

_PLAIN_EVERY = 10.0  # seconds between plain lines, besides the first of each round


class Progress:
    """Shows what a training is at; a context manager and a callback.

    Parameters
    ----------
    verbose : int
        0 shows nothing; 1 one line that updates (plain lines now and then where the output
        is not a terminal); 2 a plain line at every iteration.
    console : rich.console.Console, optional
        Where to write; standard output by default.
    """

    def __init__(self, verbose: int, console: Console | None = None) -> None:
        self._verbose = verbose
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._step = ""
        self._last: Record | None = None
        self._printed: Record | None = None
        self._printed_at = float("-inf")

    def __enter__(self) -> Progress:
        self._began = time.monotonic()
        if self._verbose == 1 and self._console.is_terminal:
            self._live = Live(
                console=self._console, refresh_per_second=8, get_renderable=self._renderable
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.transient = self._last is None  # the last iteration stays, a step does not
            self._live.stop()
            self._live = None
        elif self._last is not None and self._printed is not self._last:
            self._print(self._last)

    def say(self, text: str) -> None:
        """A notice on a line of its own."""
        if self._verbose > 0:
            self._console.print(Text(text))

    def step(self, text: str) -> None:
        """What is done now; a terminal shows it, with the seconds since the start."""
        self._step = text

    def __call__(self, record: Record) -> None:
        """Show an iteration."""
        if self._verbose == 0:
            return
        new_round = self._last is None or self._last.round != record.round
        self._last = record
        if self._live is not None:
            return
        if self._verbose > 1 or new_round or time.monotonic() - self._printed_at > _PLAIN_EVERY:
            self._print(record)

    def _renderable(self) -> Text:
        """The line that updates."""
        width = self._console.width
        if self._last is not None:
            line = _line(self._last)
            line = line if len(line) <= width else _short_line(self._last)
        elif self._step:
            seconds = f"  {time.monotonic() - self._began:.0f} s"
            room = width - len(seconds)
            step = self._step if len(self._step) <= room else self._step[: room - 1] + "…"
            line = step + seconds
        else:
            line = ""
        return Text(line, no_wrap=True, overflow="ellipsis")

    def _print(self, record: Record) -> None:
        self._console.print(Text(_line(record)))
        self._printed, self._printed_at = record, time.monotonic()


def _line(r: Record) -> str:
    parts = f" = energy {r.energy:.4g} + affine {r.affine:.4g} + endpoint {r.endpoint:.4g}"
    return _short_line(r, parts)


def _short_line(r: Record, parts: str = "") -> str:
    """Without the parts of the objective, for a terminal of 80 columns."""
    return (
        f"round {r.round}  iteration {r.iteration:4d}  objective {r.objective:.6g}{parts}"
        f"  RMSE {r.rmse:.4g}  {r.seconds:.1f} s"
    )
