"""The picture of the layers, drawn from the list that the tests hold the imports to."""

from __future__ import annotations

import ast
from html import escape
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
WIDTH, ROW, GAP, CHARACTER = 760, 34, 8, 7.6
COLOURS = {"math": "#dbe8f4", "use": "#e3f0df", "ground": "#eeeeee", "top": "#f6ead7"}
KIND = {
    **dict.fromkeys(("_version", "exceptions", "_typing", "_safetensors", "resources"), "ground"),
    **dict.fromkeys(("distributed", "storage", "tables", "streams", "rows"), "ground"),
    **dict.fromkeys(("cli", "__init__", "__main__", "report", "benchmarks"), "top"),
    **dict.fromkeys(("estimators", "persistence", "plots", "datasets"), "use"),
}


def levels() -> list[list[str]]:
    """LEVELS of tests/test_layers.py, from the lowest to the highest."""
    tree = ast.parse((ROOT / "tests" / "test_layers.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "LEVELS":
            return [list(level) for level in ast.literal_eval(ast.unparse(node.value))]
    raise LookupError("tests/test_layers.py has no LEVELS")


def lines(unit: str) -> int:
    """Lines of source of a module or package."""
    place = ROOT / "src" / "finemorphs" / unit
    files = place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]
    return sum(len(file.read_text("utf-8").splitlines()) for file in files)


def svg() -> str:
    """One row of boxes a level, the lowest at the bottom; imports go downwards only."""
    rows = levels()[::-1]
    height = len(rows) * (ROW + GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="ui-monospace, monospace" font-size="12.5">',
        "<title>Levels of the package: imports go downwards only</title>",
    ]
    for i, units in enumerate(rows):
        top = GAP + i * (ROW + GAP)
        labels = [f"{unit} {lines(unit)}" for unit in units]
        natural = [len(label) * CHARACTER + 20 for label in labels]
        spare = (WIDTH - 2 * GAP - GAP * (len(units) - 1) - sum(natural)) / len(units)
        left = float(GAP)
        for unit, wide in zip(units, natural, strict=True):
            width = wide + spare
            colour = COLOURS[KIND.get(unit, "math")]
            middle = f'x="{left + width / 2:.1f}" y="{top + ROW / 2 + 4.5:.1f}"'
            parts.append(
                f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{ROW}" rx="4" '
                f'fill="{colour}" stroke="#9aa5b1"/>'
                f'<text {middle} text-anchor="middle" fill="#1b2733">{escape(unit)} '
                f'<tspan fill="#5d6b78" font-size="10">{lines(unit)}</tspan></text>'
            )
            left += width + GAP
    return "\n".join([*parts, "</svg>", ""])


def write(app: Sphinx) -> None:
    """docs/generated/layers.svg, before the pages are read."""
    folder = Path(app.srcdir) / "generated"
    folder.mkdir(exist_ok=True)
    (folder / "layers.svg").write_text(svg(), "utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Draw when a build begins."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
