"""Prediction intervals on the UCI tables: how often they hold the response, and how wide they are.

    python benchmarks/intervals.py [--data-dir DIRECTORY] [--datasets concrete yacht ..]
        [--splits 5] [--confidence 0.9] [--calibration 0.25] [--out intervals.json]

Of the training rows of a split, a share is held out for calibration and the model is fitted to
the others; coverage and mean width are those of the test rows. Beside it the same for a ridge
regression: the guarantee is the same, the width is what a better model gains.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.model_selection import train_test_split

from finemorphs import FineMorphsRegressor
from finemorphs.datasets import UCIDataset, load_uci

MODELS = {"FineMorphs ADA": "ADA", "ridge regression": "A"}
SMALL = ("concrete", "energy", "yacht", "airfoil", "wine")


def measure(
    data: UCIDataset, sequence: str, n_splits: int, confidence: float, share: float
) -> dict[str, float]:
    """Coverage over all test rows, and the mean width in standard deviations of the response."""
    inside, widths, errors = [], [], []
    for k, (train, test) in enumerate(data.splits[:n_splits]):
        fitting, held_out = train_test_split(train, test_size=share, random_state=k)
        model = FineMorphsRegressor(sequence, random_state=k).fit(data.X[fitting], data.y[fitting])
        model.calibrate(data.X[held_out], data.y[held_out])
        low, high = model.predict_interval(data.X[test], confidence).T
        y = data.y[test]
        inside.append((low <= y) & (y <= high))
        widths.append((high - low) / data.y[train].std())
        errors.append((model.predict(data.X[test]) - y) ** 2)
    found = np.concatenate(inside)
    return {
        "test_rows": len(found),
        "coverage": float(found.mean()),
        "width": float(np.concatenate(widths).mean()),
        "rmse": float(np.mean([np.sqrt(e.mean()) for e in errors])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--datasets", nargs="+", default=SMALL)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--confidence", type=float, default=0.9)
    parser.add_argument("--calibration", type=float, default=0.25, help="share of training rows")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    table = Table("dataset", "splits", "model", "coverage", "mean width / sd", "RMSE")
    rows = []
    for name in options.datasets:
        data = load_uci(name, data_dir=options.data_dir)
        n_splits = min(options.splits, len(data.splits))
        for label, sequence in MODELS.items():
            found = measure(data, sequence, n_splits, options.confidence, options.calibration)
            rows.append({"dataset": name, "splits": n_splits, "model": label, **found})
            numbers = (f"{found[key]:.3f}" for key in ("coverage", "width", "rmse"))
            table.add_row(name, str(n_splits), label, *numbers)
    Console().print(table)
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
