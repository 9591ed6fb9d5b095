"""A command of the program: its options, its errors as sentences, its exit code.

0    done
1    a mistake of ours
2    a wrong call, or data that cannot be used
130  Ctrl-C
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from finemorphs.cli._screen import Screen
from finemorphs.exceptions import FineMorphsError

__all__ = ["INTERRUPTED", "WRONG", "command"]

WRONG = 2
INTERRUPTED = 130
_MISTAKES = (FineMorphsError, ValueError, ImportError, OSError)

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show errors only.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """The function as typer takes it: its first parameter, the screen, becomes two options."""
    signature = inspect.signature(function, eval_str=True)
    own = [p for name, p in signature.parameters.items() if name != "screen"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in (("quiet", Quiet), ("debug", Debug))
    ]

    @functools.wraps(function)
    def run(*, quiet: bool, debug: bool, **options: Any) -> None:
        screen = Screen(quiet)
        try:
            with _warnings_as_notices(screen):
                function(screen=screen, **options)
        except KeyboardInterrupt:
            screen.error("interrupted; nothing was written.")
            raise typer.Exit(INTERRUPTED) from None
        except typer.Exit:
            raise
        except Exception as error:
            if debug:
                raise
            mistake = isinstance(error, _MISTAKES)
            text = str(error) if mistake else f"{type(error).__name__}: {error}"
            screen.error(text + ("" if mistake else " (a mistake of ours; --debug shows where)"))
            raise typer.Exit(WRONG if mistake else 1) from None

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *added)]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


@contextmanager
def _warnings_as_notices(screen: Screen) -> Iterator[None]:
    with warnings.catch_warnings():
        # Columns are matched by the recipe of the model; arrays go in.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        warnings.showwarning = lambda message, *_, **__: screen.notice(str(message))
        yield
