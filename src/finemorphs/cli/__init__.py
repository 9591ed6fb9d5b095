"""The command line: ``finemorphs``, or ``python -m finemorphs``."""

from __future__ import annotations

from finemorphs.cli._app import main

__all__ = ["main"]
