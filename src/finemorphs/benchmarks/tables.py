"""Results as tables: mean and standard error, beside the paper's, with a verdict."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from finemorphs._typing import Array
from finemorphs.benchmarks.models import MODELS, TABLES
from finemorphs.benchmarks.paper import PaperScore, find_score, rank
from finemorphs.datasets import UCI_NAMES

__all__ = ["FORMATS", "Row", "render", "report", "standard_error", "summarise"]

FORMATS = ("markdown", "csv", "latex")


@dataclass(frozen=True)
class Row:
    """One model on one dataset: means over the splits that are there, and what was set."""

    dataset: str
    gap: bool
    model: str
    n_splits: int
    mean: float
    standard_error: float
    without_twins: float | None
    seconds: float
    options: str
    paper: PaperScore | None

    @property
    def verdict(self) -> str:
        """Whether the mean is the paper's or better, within one of its standard errors."""
        return "" if self.paper is None else self.paper.judge(self.mean)

    @property
    def ranks(self) -> str:
        """Place among all rows of the paper, and among those on the same splits."""
        place, n = rank(self.model, self.dataset, self.gap, self.mean)
        same, n_same = rank(self.model, self.dataset, self.gap, self.mean, same_splits=True)
        return f"{place} of {n}" + (f" ({same} of {n_same})" if n_same < n else "")


def standard_error(values: Sequence[float] | Array) -> float:
    """Population standard deviation over sqrt(n), as the paper has it."""
    with np.errstate(invalid="ignore"):  # an infinite value has no deviation
        return float(np.std(values) / math.sqrt(len(values)))


def summarise(results: Sequence[dict[str, Any]]) -> list[Row]:
    """One row a dataset, kind of splits and model, in the paper's order; failures are left out."""
    groups: dict[tuple[int, bool, int], list[dict[str, Any]]] = {}
    for result in results:
        if result["status"] != "failed":
            order = (UCI_NAMES.index(result["dataset"]), result["gap"])
            groups.setdefault((*order, MODELS.index(result["model"])), []).append(result)
    return [_row(groups[key]) for key in sorted(groups)]


def _row(results: list[dict[str, Any]]) -> Row:
    first = results[0]
    dataset, gap, model = first["dataset"], first["gap"], first["model"]
    scores = [result["rmse"] for result in results]
    without = [r["rmse_without_twins"] for r in results if r["rmse_without_twins"] is not None]
    return Row(
        dataset,
        gap,
        model,
        len(results),
        float(np.mean(scores)),
        standard_error(scores),
        float(np.mean(without)) if without else None,
        float(np.mean([result["seconds"] for result in results])),
        _options(results),
        find_score(model, dataset, gap),
    )


def _options(results: Sequence[dict[str, Any]]) -> str:
    """What was set, "max_iter=2"; of results that differ, each with its number of fits."""
    texts = (
        ", ".join(f"{name}={value}" for name, value in result["options"].items())
        for result in results
    )
    counts = Counter(texts)
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{text or 'defaults'} ({n} fits)" for text, n in counts.items())


_HEAD = (
    "dataset",
    "model",
    "splits",
    "RMSE",
    "paper",
    "within 1 s.e.",
    "without duplicates",
    "seconds a fit",
)


def _cells(row: Row) -> tuple[str, ...]:
    digits = _digits(row.mean)
    spread = f" ± {row.standard_error:.{digits}f}" if row.n_splits > 1 else ""
    return (
        row.dataset + " gap" * row.gap,
        row.model,
        str(row.n_splits),
        f"{row.mean:.{digits}f}{spread}",
        "" if row.paper is None else str(row.paper),
        {"better": "yes, better", "within": "yes"}.get(row.verdict, row.verdict),
        "" if row.without_twins is None else f"{row.without_twins:.{digits}f}",
        f"{row.seconds:.3g}",
    )


def _digits(mean: float) -> int:
    """Decimals for four significant digits, two at least."""
    return max(2, 3 - math.floor(math.log10(mean))) if 0 < mean < math.inf else 4


_RECORD_HEAD = (
    *_HEAD[:3],
    "mean",
    "standard_error",
    "paper_mean",
    "paper_standard_error",
    *_HEAD[5:],
    "options",
)


def _record(row: Row) -> tuple[object, ...]:
    """The fields of CSV: numbers with all digits."""
    paper = row.paper
    return (
        row.dataset + " gap" * row.gap,
        row.model,
        row.n_splits,
        row.mean,
        row.standard_error if row.n_splits > 1 else None,
        None if paper is None else paper.mean,
        None if paper is None else paper.standard_error,
        row.verdict,
        row.without_twins,
        row.seconds,
        row.options,
    )


def render(rows: Sequence[Row], form: str = "markdown", *, ranks: bool = False) -> str:
    """A table of text.

    Parameters
    ----------
    rows : sequence of Row
    form : {"markdown", "csv", "latex"}
        CSV has the numbers with all digits, each in a column of its own.
    ranks : bool, default=False
        Add each mean's place among the paper's rows; in brackets, among those that were
        measured on the same splits.
    """
    if form not in FORMATS:
        raise ValueError(f"format {form!r} is not known; choose one of {', '.join(FORMATS)}.")
    rank_head = ("rank",) * ranks
    if form == "csv":
        records = [_record(row) + (row.ranks,) * ranks for row in rows]
        return _csv([_RECORD_HEAD + rank_head, *records])
    lines = [_HEAD + rank_head, *(_cells(row) + (row.ranks,) * ranks for row in rows)]
    return _latex(lines) if form == "latex" else _markdown(lines)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *rest = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([head, "|" + "---|" * len(lines[0]), *rest]) + "\n"


def _csv(lines: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _latex(lines: Sequence[Sequence[str]]) -> str:
    head, *rest = (" & ".join(map(_escape, line)) + r" \\" for line in lines)
    columns = "ll" + "r" * (len(lines[0]) - 2)
    return "\n".join(
        [rf"\begin{{tabular}}{{{columns}}}", head, r"\hline", *rest, r"\end{tabular}", ""]
    )


def _escape(text: str) -> str:
    return text.replace("^", r"\^{}").replace("±", r"$\pm$")


def report(results: Sequence[dict[str, Any]], form: str = "markdown") -> str:
    """Every table for which there are results, with ranks, what was set and what failed.

    Parameters
    ----------
    results : sequence of dict
    form : {"markdown", "csv", "latex"}
        Titles, options and failures are comments in LaTeX. CSV is one table whose first column
        is the title, without failures.
    """
    sections = _sections(summarise(results))
    if form == "csv":
        lines = [(title, *_record(row), row.ranks) for title, rows in sections for row in rows]
        return _csv([("table", *_RECORD_HEAD, "rank"), *lines])
    comment = "% " * (form == "latex")
    head = comment or "## "
    parts = [f"{head}{title}\n\n{render(rows, form, ranks=True)}" for title, rows in sections]
    options = [f"{comment}- {line}\n" for line in _options_of_models(results)]
    if options:
        parts.append(f"{head}Options\n\n{''.join(options)}")
    failed = [
        f"{comment}- {r['dataset']}{' gap' * r['gap']}, {r['model']}, split {r['split']}: "
        f"{' '.join(r['error'].split())}\n"
        for r in results
        if r["status"] == "failed"
    ]
    if failed:
        parts.append(f"{head}Failed\n\n{''.join(failed)}")
    return "\n".join(parts) or f"{comment}No results yet.\n"


def _options_of_models(results: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each model with options, "ADA: max_iter=2"."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        if result["status"] != "failed":
            groups.setdefault(result["model"], []).append(result)
    texts = {model: _options(groups[model]) for model in MODELS if model in groups}
    return [f"{model}: {text}" for model, text in texts.items() if text]


def _sections(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """The tables that have rows: title and rows, and at the end the rows of no table."""
    sections = []
    shown: set[tuple[str, str, bool]] = set()
    for table in TABLES.values():
        for gap, datasets in ((False, table.datasets), (True, table.gap_datasets)):
            some = [
                r
                for r in rows
                if r.model in table.models and r.dataset in datasets and r.gap == gap
            ]
            if some:
                sections.append((f"{table.title}{', gap splits' * gap}", some))
                shown |= {(r.model, r.dataset, r.gap) for r in some}
    other = [r for r in rows if (r.model, r.dataset, r.gap) not in shown]
    return [*sections, ("Others", other)] if other else sections
