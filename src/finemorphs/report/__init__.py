"""One HTML file about a fitted model, complete in itself: it opens without a network."""

from __future__ import annotations

from finemorphs.report._members import (
    candidate_table,
    is_mean,
    model_words,
    shown_words,
    size_of,
)
from finemorphs.report._numbers import chosen_options
from finemorphs.report._page import write_report

__all__ = [
    "candidate_table",
    "chosen_options",
    "is_mean",
    "model_words",
    "shown_words",
    "size_of",
    "write_report",
]
