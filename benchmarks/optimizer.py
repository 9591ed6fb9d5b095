"""The objective after n evaluations: natural L-BFGS beside plain, from the same start.

    python benchmarks/optimizer.py [--data-dir DIR] [--datasets yacht energy] [--sequences ADA]
        [--split 0] [--out optimizer.json]

Every run has the noise level of the first round and no rounds. Beside the table stands the
verdict: natural at 100 evaluations no worse than plain at 400, at 150 no worse than at 1000.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from finemorphs import FineMorphsRegressor
from finemorphs.datasets import load_uci
from finemorphs.notation import parse

MARKS = {
    "lbfgs": (40, 60, 100, 150, 250, 400, 1000),
    "natural-lbfgs": (40, 60, 100, 150, 250),
}


def first_sigma(X: np.ndarray, y: np.ndarray, seed: int) -> float:
    """The noise level of the first round."""
    model = FineMorphsRegressor(max_iter=1, random_state=seed, callbacks=[lambda record: True])
    return float(model.fit(X, y).history_["sigma"][0])


def trace(
    optimizer: str, sequence: str, split: tuple[np.ndarray, ...], sigma: float, seed: int
) -> dict[str, object]:
    """Objective at the marks of an optimiser, test error at its end, seconds."""
    X, y, X_test, y_test = split
    last = MARKS[optimizer][-1]
    model = FineMorphsRegressor(
        sequence,
        kernel_width="decreasing" if parse(sequence).count("D") > 1 else 0.5,
        noise=sigma,
        optimizer=optimizer,
        tol=0,
        random_state=seed,
        callbacks=[lambda record: record.evaluations >= last],
    ).fit(X, y)
    evaluations, objective = model.history_["evaluations"], model.history_["objective"]
    marks = {n: float(objective[evaluations <= n].min()) for n in MARKS[optimizer]}
    error = float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)))
    return {
        "objective": marks,
        "test_rmse": error,
        "seconds": float(model.history_["seconds"][-1]),
        "status": model.status_,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, help="folder of the datasets")
    parser.add_argument(
        "--datasets", nargs="+", default=["yacht", "energy", "concrete", "airfoil", "wine"]
    )
    parser.add_argument("--sequences", nargs="+", default=["ADA"])
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()

    runs = [(name, sequence) for sequence in options.sequences for name in options.datasets]
    results = []
    with Progress(transient=True) as progress:
        task = progress.add_task("fits", total=2 * len(runs))
        for name, sequence in runs:
            split = load_uci(name, data_dir=options.data_dir).split(options.split)
            sigma = first_sigma(split[0], split[1], options.seed)
            row: dict[str, object] = {"dataset": name, "sequence": sequence, "sigma": sigma}
            for optimizer in MARKS:
                row[optimizer] = trace(optimizer, sequence, split, sigma, options.seed)
                progress.advance(task)
            results.append(row)
    show(results)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1))


def show(results: list[dict]) -> None:
    """The table of objectives, and whether the natural metric keeps its promise."""
    table = Table(title="Objective after n evaluations, same start")
    table.add_column("dataset")
    table.add_column("sequence")
    for optimizer, marks in MARKS.items():
        word = "plain" if optimizer == "lbfgs" else "natural"
        for n in marks:
            table.add_column(f"{word} {n}", justify="right")
    table.add_column("100 vs 400")
    table.add_column("150 vs 1000")
    for row in results:
        plain, natural = row["lbfgs"]["objective"], row["natural-lbfgs"]["objective"]
        table.add_row(
            row["dataset"],
            row["sequence"],
            *(f"{plain[n]:.4g}" for n in MARKS["lbfgs"]),
            *(f"{natural[n]:.4g}" for n in MARKS["natural-lbfgs"]),
            "yes" if natural[100] <= plain[400] else "NO",
            "yes" if natural[150] <= plain[1000] else "NO",
        )
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
