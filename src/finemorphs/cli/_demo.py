"""``finemorphs demo``: the Rings of the paper, from a CSV file to a model, in some seconds."""

from __future__ import annotations

import csv
from pathlib import Path

from finemorphs.cli._fit import FitOptions, fit_table
from finemorphs.cli._screen import Screen
from finemorphs.cli._use import evaluate_file
from finemorphs.datasets import make_rings

__all__ = ["run_demo"]

_TRAIN, _TEST = 400, 800


def run_demo(folder: Path, screen: Screen) -> None:
    """Write two tables, fit a model to one, score it on the other."""
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
    options = FitOptions(train, ["height"], model, [], 0.0, "median")
    fit_table(options, {"random_state": 0}, screen)
    screen.say("")
    evaluate_file(model, test, screen)


def _write(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["x", "y", "height"], *rows])
