"""The parts of the page, as HTML; every name and value that comes from outside is escaped."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from finemorphs._typing import Array
from finemorphs.plots._frames import Frame, encode
from finemorphs.report._numbers import Answer, Measure, sample_rows
from finemorphs.report._svg import Chart, bars, number

__all__ = [
    "confusion",
    "convergence",
    "errors",
    "modules",
    "sensitivities",
    "sequence",
    "table",
    "tiles",
    "viewer",
    "viewer_data",
    "worst_rows",
]

_DOTS = 5000
_SHOWN_COLUMNS = 12
_SHOWN_BARS = 30


def tiles(rows: Sequence[tuple[str, str]]) -> str:
    """Numbers to see first: (what, value)."""
    items = (f"<li><b>{escape(value)}</b><span>{escape(what)}</span></li>" for what, value in rows)
    return f'<ul class="tiles">{"".join(items)}</ul>'


def sequence(measures: Sequence[Measure]) -> str:
    """The modules as blocks from X to Y, with the dimensions between them, as in the paper."""
    items = ['<li><span class="end">X</span></li>']
    for m in measures:
        kind = "affine" if m.kind == "affine" else "diffeo"
        letter, place = escape(m.name[0]), escape(m.name[1:])
        items.append(
            f'<li><span class="arrow"><span>{m.d_in}</span></span>'
            f'<span class="block {kind}" title="{escape(m.details)}">{letter}<sub>{place}</sub>'
            f'<span class="hidden">, {m.kind}</span></span></li>'
        )
    items.append(
        f'<li><span class="arrow"><span>{measures[-1].d_out}</span></span>'
        '<span class="end">Y</span></li>'
    )
    return f'<ol class="sequence" aria-label="The sequence of modules">{"".join(items)}</ol>'


def modules(measures: Sequence[Measure]) -> str:
    """A table of what each module does."""
    rows = [
        [
            m.name,
            f"{m.d_in} → {m.d_out}",
            m.details,
            _spread(m.displacement),
            _spread(m.volume),
            "" if m.singular is None else _range(m.singular),
        ]
        for m in measures
    ]
    header = ["module", "dimensions", "", "displacement", "local volume \u00d7"]
    return table([*header, "singular values"], rows)


def viewer(measures: Sequence[Measure], frames: Sequence[Frame], answers: Sequence[Answer]) -> str:
    """The moving picture with its controls; the script fills it."""
    ends = {frame.name: i for i, frame in enumerate(frames)}
    strip = "".join(
        f'<button type="button" data-name="{escape(name)}" data-end="{end}" aria-pressed="false">'
        f"{'input' if name == 'X' else escape(name)}</button>"
        for name, end in ends.items()
    )
    options = "".join(
        f'<option value="{i}">{escape(colour["name"])}</option>'
        for i, colour in enumerate(_colours(answers))
    )
    return f"""
<div id="viewer">
<canvas tabindex="0" role="img" aria-describedby="hands" aria-label="The rows as points in three
dimensions on their way through {len(measures)} modules, coloured by response or residual"></canvas>
<div class="controls"><button type="button" id="play" aria-pressed="false">Play</button>
<input type="range" min="0" max="1" step="any" value="0" aria-label="Place in the sequence">
<span id="moment"></span></div>
<div id="strip" role="group" aria-label="Go to the end of a module">{strip}</div>
<div class="controls"><label>Colour <select>{options}</select></label>
<button type="button" id="reset">Reset view</button></div>
<div id="legend" role="img"></div>
<div id="picked"></div>
<p class="soft hands" id="hands">Drag to turn. With the picture in focus: arrow keys turn it,
plus and minus zoom, Home resets the view, space plays.</p>
<div id="spoken" class="hidden" aria-live="polite"></div>
</div>"""


def viewer_data(
    frames: Sequence[Frame], answers: Sequence[Answer], rows: Array, numbers: Array
) -> str:
    """What the script shows, as JSON that cannot end the script element it stands in."""
    data = {
        "n": len(rows),
        "unit": 16384,
        "up": "response" if answers[0].labels else answers[0].name[:24],
        "rows": numbers[rows].tolist(),
        "frames": [{"name": f.name, "time": round(f.time, 4)} for f in frames],
        "coords": encode(frames),
        "colours": [{**c, "values": _floats(c["values"][rows])} for c in _colours(answers)],
    }
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def errors(answer: Answer) -> str:
    """Predicted against observed values, and the residuals against the predictions."""
    rows = sample_rows(len(answer.observed), _DOTS)
    observed, predicted = answer.observed[rows], answer.predicted[rows]
    low = float(min(observed.min(), predicted.min()))
    high = float(max(observed.max(), predicted.max()))
    left = Chart((low, high), (low, high), ("observed", "predicted"))
    ends = np.array([low, high])
    left.line(ends, ends, "guide")
    left.dots(observed, predicted)
    residual = observed - predicted
    reach = float(np.abs(residual).max())
    span = float(predicted.min()), float(predicted.max())
    right = Chart(span, (-reach, reach), ("predicted", "observed \u2212 predicted"))
    right.line(np.array(span), np.zeros(2), "guide")
    right.dots(predicted, residual)
    return (
        f'<div class="pair"><figure>{left.render("Predicted against observed values")}</figure>'
        f"<figure>{right.render('Residuals against predicted values')}</figure></div>"
    )


def confusion(answer: Answer) -> str:
    """Counts of observed classes by predicted ones."""
    k = len(answer.labels)
    counts = np.zeros((k, k), dtype=int)
    np.add.at(counts, (answer.observed, answer.predicted), 1)
    rows = [[answer.labels[i], *map(str, counts[i])] for i in range(k)]
    return table(["observed \\ predicted", *answer.labels], rows)


def convergence(history: Mapping[str, Array]) -> str:
    """The objective and its parts over the iterations, on a logarithmic scale."""
    parts = {"objective": "c1", "energy": "c2", "affine": "c3", "endpoint": "c4"}
    values = np.concatenate([history[name] for name in parts])
    positive = values[np.isfinite(values) & (values > 0)]
    if len(history["iteration"]) < 2 or not len(positive):
        return '<p class="soft">Training made no iterations to show.</p>'
    top = math.log10(float(positive.max()))
    bottom = max(math.log10(float(positive.min())), top - 6)
    x = history["iteration"].astype(float)
    chart = Chart(
        (float(x[0]), float(x[-1])),
        (bottom, top),
        ("iteration", "cost"),
        log=True,
        size=(520.0, 300.0),
    )
    for name, kind in parts.items():
        chart.line(x, history[name], kind)
    words = {"energy": "energy of the flows", "affine": "cost of the matrices", "endpoint": "error"}
    key = "".join(
        f'<li style="--k: var(--{kind})">{words.get(name, name)}</li>'
        for name, kind in parts.items()
    )
    picture = chart.render("The objective and its three parts over the iterations of training")
    return f'<figure>{picture}<ul class="key">{key}</ul></figure>'


def sensitivities(names: Sequence[str], effects: Array) -> str:
    """A bar for each feature."""
    shown = bars(list(names[:_SHOWN_BARS]), effects[:_SHOWN_BARS], "Effect of each input")
    hidden = len(names) - _SHOWN_BARS
    more = f'<p class="soft">{hidden} inputs of smaller effect are not shown.</p>'
    figure = f'<figure class="small">{shown}</figure>'
    return figure + (more if hidden > 0 else "")


def worst_rows(
    answer: Answer, cells: Mapping[str, Sequence[str]], numbers: Array, count: int
) -> str:
    """The rows whose prediction is farthest off, with their numbers and their own cells."""
    order = np.argsort(-np.abs(answer.error), kind="stable")[:count]
    columns = dict(list(cells.items())[:_SHOWN_COLUMNS])
    rows = []
    for i in order.tolist():
        if answer.labels:
            shown = [answer.labels[answer.observed[i]], answer.labels[answer.predicted[i]]]
        else:
            shown = [number(answer.observed[i]), number(answer.predicted[i])]
        own = [column[i] for column in columns.values()]
        rows.append([str(numbers[i]), *shown, number(answer.error[i]), *own])
    off = "1 \u2212 probability" if answer.labels else "difference"
    return table(["row", "observed", "predicted", off, *columns], rows)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """Rows under a header, the first cell of each its name; of the kind "wrap" names break."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    body = "".join(
        "<tr>"
        + f'<th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll {kind}" tabindex="0" role="group" aria-label="Table"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _colours(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """What the points can be coloured by."""
    colours: list[dict[str, Any]] = []
    for a in answers:
        if a.labels:
            colours.append(
                {"name": a.name, "kind": "class", "labels": a.labels, "low": 0, "high": 1}
            )
            colours[-1]["values"] = a.observed
            limits = {"low": 0.0, "high": 1.0}
            colours.append(
                {
                    "name": "1 \u2212 probability of the class",
                    "kind": "value",
                    "values": a.error,
                    **limits,
                }
            )
            continue
        low, high = np.quantile(a.observed, [0.01, 0.99]).tolist()
        colours.append(
            {"name": a.name, "kind": "value", "values": a.observed, "low": low, "high": high}
        )
        reach = float(np.quantile(np.abs(a.error), 0.98))
        limits = {"low": -reach, "high": reach}
        colours.append(
            {"name": f"residual of {a.name}", "kind": "difference", "values": a.error, **limits}
        )
    return colours


def _floats(values: Array) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode("ascii")


def _spread(quantiles: Array | None) -> str:
    if quantiles is None:
        return ""
    low, middle, high = (number(value, 3) for value in quantiles.tolist())
    return f"{middle} ({low} … {high})"


def _range(singular: Array) -> str:
    largest, smallest = number(singular[0], 3), number(singular[-1], 3)
    return largest if len(singular) == 1 else f"{smallest} … {largest}"
