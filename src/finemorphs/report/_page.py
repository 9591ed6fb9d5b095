"""The page: its parts in their order, its style and script inside it, nothing from outside."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from finemorphs._typing import Array, ArrayLike
from finemorphs._version import __version__
from finemorphs.plots._frames import frames_of
from finemorphs.report import _sections as sections
from finemorphs.report._members import (
    candidate_table,
    choice_words,
    is_mean,
    model_words,
    shown_words,
    size_of,
)
from finemorphs.report._numbers import (
    Answer,
    Measure,
    answers_of,
    chosen_options,
    measures_of,
    sample_rows,
    sensitivities_of,
)
from finemorphs.report._svg import number

__all__ = ["write_report"]

_VIEW_NUMBERS = 2_500_000  # 16-bit coordinates in the file; 6.7 MB as text
_VIEW_ROWS = 5000
_WORST = 20
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def write_report(
    path: str | os.PathLike[str],
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    targets: Sequence[str] | None = None,
    title: str | None = None,
    source: str | None = None,
    cells: Mapping[str, Sequence[str]] | None = None,
    row_numbers: ArrayLike | None = None,
) -> None:
    """Write one HTML file that shows a fitted model at work on a table.

    Parameters
    ----------
    path : path-like
    estimator : FineMorphsRegressor or FineMorphsClassifier
        Fitted.
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,) or (n_samples, n_responses)
    targets : sequence of str, optional
        Names of the responses.
    title : str, optional
        The heading of the page; the responses and what predicts them by default.
    source : str, optional
        Where the rows are from.
    cells : mapping of str to sequence of str, optional
        Columns to show beside the worst predicted rows; those of X by default.
    row_numbers : array-like of int, optional
        What the rows are called; 1 to n_samples by default.
    """
    n_targets = 1 if np.ndim(y) == 1 else np.shape(y)[1]
    names = list(targets or (["y"] if n_targets == 1 else [f"y{i}" for i in range(n_targets)]))
    answers = answers_of(estimator, X, y, names)
    n = len(answers[0].observed)
    numbers = np.arange(1, n + 1) if row_numbers is None else np.asarray(row_numbers)
    title = title or f"{', '.join(names)} by {_pretty(model_words(estimator))}"
    origin = f"<p>{n} rows of {escape(source)}</p>" if source else ""
    summary = origin + _summary(estimator, answers)
    body = "".join(
        f"<section><h2>{heading}</h2>{content}</section>\n"
        for heading, content in _parts(estimator, X, answers, cells, numbers)
    )
    Path(path).write_text(_document(title, summary, body), "utf-8")


def _parts(
    estimator: Any,
    X: ArrayLike,
    answers: list[Answer],
    cells: Mapping[str, Sequence[str]] | None,
    numbers: Array,
) -> list[tuple[str, str]]:
    measures = measures_of(estimator, X)
    names, effects = sensitivities_of(estimator, X)
    whose = " of the flow in the pictures" if is_mean(estimator) else ""
    parts = [
        *_model_parts(estimator, measures),
        ("The data on their way", _flow(estimator, X, answers, measures, numbers)),
        *_answer_parts(answers),
        (
            "What the prediction depends on",
            '<p class="soft">Root mean square of the exact derivative by each input, times the '
            "standard deviation of the input over that of the prediction.</p>"
            + sections.sensitivities(names, effects),
        ),
        (
            "What the modules do",
            '<p class="soft">Displacement of the rows and change of volume around them by each '
            f"diffeomorphism{whose}: the median, and where 90 of 100 rows lie. Smallest and "
            "largest singular value of each matrix. In standardised units.</p>"
            + sections.modules(measures),
        ),
        (
            "Training",
            f"<p>{escape(estimator.status_)} {estimator.n_iter_} iterations{whose}, noise level "
            f"{number(estimator.noise_)}.</p>" + sections.convergence(estimator.history_),
        ),
    ]
    shown = _cells(estimator, X) if cells is None else cells
    for answer in answers:
        of = f" of {escape(answer.name)}" if len(answers) > 1 else ""
        parts.append(
            (f"Worst predicted rows{of}", sections.worst_rows(answer, shown, numbers, _WORST))
        )
    return parts


def _model_parts(estimator: Any, measures: list[Measure]) -> list[tuple[str, str]]:
    """The blocks of the model; of a mean its members, and the blocks of the flow that is shown."""
    options = ", ".join(f"{name} {value}" for name, value in chosen_options(estimator).items())
    options = f"Chosen options: {options}. " if options else ""
    if not is_mean(estimator):
        return [("The model", sections.sequence(measures) + _soft(options))]
    header, rows = candidate_table(estimator)
    flow = f"The pictures of rows and modules show one flow: {_pretty(shown_words(estimator))}."
    return [
        (
            "The model",
            f"<p>The prediction is {escape(_pretty(model_words(estimator)))}.</p>"
            + sections.table(header, [[_pretty(row[0]), *row[1:]] for row in rows], "wrap")
            + _soft(options + choice_words(estimator)),
        ),
        ("The flow in the pictures", f"<p>{escape(flow)}</p>" + sections.sequence(measures)),
    ]


def _soft(text: str) -> str:
    return f'<p class="soft">{escape(text)}</p>' if text else ""


def _flow(
    estimator: Any,
    X: ArrayLike,
    answers: list[Answer],
    measures: list[Measure],
    numbers: Array,
) -> str:
    """The moving picture and its data."""
    n = len(answers[0].observed)
    rows = _view_rows(estimator, n)
    states = estimator.trajectory(_safe_indexing(X, rows))
    frames = frames_of(states, answers[0].observed[rows].astype(float))
    data = sections.viewer_data(frames, answers, rows, numbers)
    part = "" if len(rows) == n else f"{len(rows)} rows of the table, drawn evenly. "
    return (
        f'<p class="soft">{part}Upwards is the direction in which the response is linear behind '
        "the modules of a space; across are the two principal axes of the rest. The flows move "
        "the rows until the response is linear in them.</p>"
        + sections.viewer(measures, frames, answers)
        + f'<script type="application/json" id="flow-data">{data}</script>'
    )


def _answer_parts(answers: list[Answer]) -> list[tuple[str, str]]:
    parts = []
    for answer in answers:
        of = f": {escape(answer.name)}" if len(answers) > 1 else ""
        if answer.labels:
            parts.append((f"Predicted classes{of}", sections.confusion(answer)))
        else:
            parts.append((f"Predicted and observed{of}", sections.errors(answer)))
    return parts


def _summary(estimator: Any, answers: list[Answer]) -> str:
    facts = [
        (f"{score}{f' of {a.name}' if len(answers) > 1 else ''}", number(value))
        for a in answers
        for score, value in a.scores.items()
    ]
    facts += [
        ("rows", f"{len(answers[0].observed)}"),
        ("inputs", f"{estimator.n_features_in_}"),
    ]
    if is_mean(estimator):
        n_numbers, n_pairs = size_of(estimator)
        facts += [
            ("models in the mean", f"{len(estimator.members_)}"),
            ("numbers in the model", f"{n_numbers}"),
            ("kernel evaluations to predict a row", f"{n_pairs}"),
        ]
    else:
        facts.append(("control points", f"{estimator.model_.sequence.n_controls}"))
    return sections.tiles(facts) + _held_out(getattr(estimator, "notes_", None) or {})


def _held_out(notes: Mapping[str, Any]) -> str:
    """The scores that ``finemorphs fit`` kept with the model."""
    kept = notes.get("scores") or {}
    if not kept:
        return ""
    sentences = []
    for name, values in kept.items():
        scores = (f"{k} {number(v)}" for one in values for k, v in one.items() if v is not None)
        sentences.append(f"{escape(str(name))} {escape(', '.join(scores))}")
    return f'<p class="soft">On rows held out of training: {"; ".join(sentences)}.</p>'


def _pretty(notation: str) -> str:
    """Powers as the paper writes them: AD²A for AD^2A."""
    return re.sub(r"\^(\d+)", lambda power: power[1].translate(_RAISED), notation)


def _view_rows(estimator: Any, n: int) -> Array:
    """Rows in the moving picture: all, or as many as keep the file small."""
    n_frames = 1 + sum(getattr(m, "n_steps", 1) for m in estimator.model_.sequence.modules)
    return sample_rows(n, min(_VIEW_ROWS, max(200, _VIEW_NUMBERS // (3 * min(n_frames, 160)))))


def _cells(estimator: Any, X: ArrayLike) -> dict[str, list[str]]:
    table = np.asarray(X, dtype=float)
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        names = [f"x{i}" for i in range(table.shape[1])]
    return {
        str(name): [number(v) for v in column] for name, column in zip(names, table.T, strict=True)
    }


def _document(title: str, summary: str, body: str) -> str:
    here = files("finemorphs.report")
    style, script = (here.joinpath(f).read_text("utf-8") for f in ("style.css", "viewer.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; {allowed}">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<header><h1>{escape(title)}</h1>{summary}</header>
<main>
{body}</main>
<footer>Made by finemorphs {__version__}. This file is complete: it needs no network.</footer>
<script>{script}</script>
</body>
</html>
"""
