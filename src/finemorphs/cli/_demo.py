"""``finemorphs demo``: the Rings of the paper, from a CSV file to a report, in some seconds."""

from __future__ import annotations

import csv
from importlib.util import find_spec
from pathlib import Path

from finemorphs.cli._fit import fit_table
from finemorphs.cli._fit_options import FitOptions
from finemorphs.cli._look import plot_file, report_file
from finemorphs.cli._screen import Screen
from finemorphs.cli._use import evaluate_file
from finemorphs.datasets import make_rings

__all__ = ["run_demo"]

_TRAIN, _TEST = 400, 800


def run_demo(folder: Path, screen: Screen) -> None:
    """Write two tables, fit a model to one, show it at work on the other."""
    folder.mkdir(parents=True, exist_ok=True)
    X, y = make_rings(_TRAIN + _TEST, random_state=0)
    rows = [[f"{a:.6f}", f"{b:.6f}", f"{c:.6f}"] for (a, b), c in zip(X, y, strict=True)]
    train, test = folder / "rings-train.csv", folder / "rings-test.csv"
    _write(train, rows[:_TRAIN])
    _write(test, rows[_TRAIN:])
    model = folder / "rings.safetensors"
    screen.say(
        "Points of a disc whose height makes two rings. In the plane no smooth invertible map\n"
        "makes the height linear; with one dimension more, ADA finds one.\n"
    )
    options = FitOptions([train], ["height"], model, [], 0.0, "median")
    fit_table(options, {"random_state": 0}, screen)
    screen.say("")
    evaluate_file(model, test, screen)
    screen.say("")
    report_file(model, test, folder / "report.html", screen)
    if find_spec("matplotlib") is None:
        screen.say("for pictures of your own: pip install 'finemorphs[plots]'")
    else:
        plot_file(model, test, "reshaping", folder / "rings.png", screen)


def _write(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["x", "y", "height"], *rows])
