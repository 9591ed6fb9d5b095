"""One HTML file about a fitted model, complete in itself: it opens without a network."""

from __future__ import annotations

from finemorphs.report._numbers import chosen_options
from finemorphs.report._page import write_report

__all__ = ["chosen_options", "write_report"]
