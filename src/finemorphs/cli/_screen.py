"""What the commands write: sentences and columns, coloured on a terminal, plain elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["Screen"]

_WIDE = 10_000  # columns of a file or a pipe: nothing is cut


class Screen:
    """Standard output for results and notices, standard error for errors.

    Parameters
    ----------
    quiet : bool
        Whether only errors are shown, and results that were asked for.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self._out = _console(stderr=False)
        self._errors = _console(stderr=True)

    def say(self, text: str, style: str = "") -> None:
        """A sentence, unless quiet."""
        if not self.quiet:
            self._out.print(Text(text, style=style))

    def notice(self, text: str) -> None:
        """Something that was decided and may surprise, unless quiet."""
        self.say(f"  note: {text}", "yellow")

    def error(self, text: str) -> None:
        """What went wrong, always."""
        self._errors.print(Text("error: ", style="bold red") + Text(text))

    def columns(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], always: bool = False
    ) -> None:
        """Rows under a header, the first column to the left, the others to the right."""
        if self.quiet and not always:
            return
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for i, name in enumerate(header):
            table.add_column(Text(name), justify="left" if i == 0 else "right", overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        self._out.print(table)

    def facts(self, rows: Sequence[tuple[str, str]]) -> None:
        """Names and what they are, always."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in rows:
            table.add_row(Text(name), Text(value))
        self._out.print(table)


def _console(stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console = Console(stderr=stderr, highlight=False, soft_wrap=True, width=_WIDE)
    return console
