"""Subset training as rows, memory and processes grow, on generated data shaped like Year.

    python benchmarks/scale.py evaluation [--rows 50000 100000 200000 463715]
    python benchmarks/scale.py parquet [--rows 10000000] [--folder DIR]
    python benchmarks/scale.py ranks [--rows 463715]
    python benchmarks/scale.py fit [--rows 463715] [--device cuda]
    python benchmarks/scale.py batches [--rows 60000]

90 columns, d_1 = 10, 1000 control points, T = 10 unless said otherwise. ``evaluation``: time of
value and gradient, and the exponent of its growth. ``parquet``: rows that are written once and
read for each of three evaluations; peak memory. ``ranks``: two gloo processes of one thread
beside one process of one thread. ``fit``: to convergence, with the RMSE of ridge regression and
of a dense network. ``batches``: whether a stochastic first phase on mini-batches reaches a
held-out RMSE sooner than L-BFGS on all rows alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from _batches import Race, first_within
from rich.console import Console
from rich.table import Table

from finemorphs import FineMorphsRegressor
from finemorphs.distributed import ALONE, Group, joined
from finemorphs.engines import choose_engine
from finemorphs.objective import Objective
from finemorphs.rows import Rows, share
from finemorphs.sequence import ModuleSequence

YEAR = 463_715
COLUMNS, DIMS, CONTROLS, STEPS = 90, 10, 1000, 10
NOISE = 0.5  # standard deviation of y about its mean given x, whose own is about 1


def make_year(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows with correlated columns; the response bends along six directions of them."""
    shape = np.random.default_rng(20)
    mixing = shape.standard_normal((COLUMNS, COLUMNS)) / np.sqrt(COLUMNS)
    directions = np.linalg.qr(shape.standard_normal((COLUMNS, 6)))[0]
    rng = np.random.default_rng([seed, n])
    latent = rng.standard_normal((n, COLUMNS), dtype=np.float32)
    u = latent @ directions.astype(np.float32)
    mean = np.sin(2 * u[:, 0]) + 0.5 * u[:, 1] ** 2 - u[:, 2] * u[:, 3] + np.tanh(2 * u[:, 4])
    mean = (mean + 0.5 * u[:, 5]) / 2
    y = mean + NOISE * rng.standard_normal(n, dtype=np.float32)
    return latent @ mixing.astype(np.float32), y


def build(
    n: int, device: torch.device, engine: object, group: Group = ALONE
) -> tuple[Objective, torch.Tensor]:
    """The objective of n rows, in blocks that the ranks share, and where to evaluate it."""
    x, y = make_year(n)
    inputs = torch.nn.functional.pad(torch.from_numpy(x), (0, 1)).to(device)
    rows = Rows(inputs / inputs.std(), torch.from_numpy(y[:, None]).to(device))
    sequence = ModuleSequence.build("ADA", COLUMNS + 1, 1, CONTROLS, dims=DIMS, n_steps=STEPS)
    controls, others = rows[:CONTROLS], rows[CONTROLS:].blocks(2**13)
    others = others[slice(*share(len(others), group.rank, group.size))]
    objective = Objective(
        sequence, engine, controls.inputs, controls.targets, others=others, group=group
    )
    theta = torch.as_tensor(sequence.start(np.random.default_rng(0)), dtype=torch.float32)
    return objective, theta.to(device)


def least_times(function: Callable[[], object], repeats: int) -> tuple[float, float]:
    """The least time on the clock, and the least of the processor, of some calls."""
    function()
    clock, processor = [], []
    for _ in range(repeats):
        begun = time.perf_counter(), time.process_time()
        function()
        clock.append(time.perf_counter() - begun[0])
        processor.append(time.process_time() - begun[1])
    return min(clock), min(processor)


def evaluation(rows: list[int], device: str, repeats: int) -> dict[str, object]:
    engine, place = choose_engine("auto", device)
    found = []
    for n in rows:
        objective, theta = build(n, place, engine)
        with engine.session():
            clock, processor = least_times(lambda: objective.evaluate(theta, 10.0), repeats)  # noqa: B023
        found.append({"rows": n, "seconds": clock, "processor_seconds": processor})
    logs = np.log([[r["rows"], r["seconds"], r["processor_seconds"]] for r in found]).T
    return {
        "evaluations": found,
        "exponent": float(np.polyfit(logs[0], logs[1], 1)[0]),
        "exponent_processor": float(np.polyfit(logs[0], logs[2], 1)[0]),
        "threads": torch.get_num_threads(),
    }


def parquet(rows: int, folder: str | None, max_memory: str) -> dict[str, object]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from finemorphs.streams import ParquetStream

    place = Path(folder or tempfile.mkdtemp(prefix="finemorphs-scale-"))
    place.mkdir(exist_ok=True)
    try:
        at_once = 250_000
        for i, begin in enumerate(range(0, rows, at_once)):
            if not (path := place / f"part-{i:04d}.parquet").exists():
                x, y = make_year(min(at_once, rows - begin), seed=i)
                columns = {f"x{j}": x[:, j] for j in range(COLUMNS)} | {"y": y}
                pq.write_table(pa.table(columns), path, row_group_size=50_000, compression="none")
        begun = time.perf_counter()
        model = FineMorphsRegressor(
            dims=DIMS,
            n_steps=STEPS,
            subset_size=CONTROLS,
            noise="auto",
            max_memory=max_memory,
            random_state=0,
            callbacks=[lambda record: record.evaluations >= 3],
        ).fit(ParquetStream(place, "y"))
        return {
            "rows": rows,
            "gigabytes_on_disk": sum(f.stat().st_size for f in place.iterdir()) / 1e9,
            "evaluations": model.n_evaluations_,
            "seconds": time.perf_counter() - begun,
            "seconds_of_training": float(model.history_["seconds"][-1]),
            "noise": model.noise_,
            "rmse": float(model.history_["rmse"][-1]),
            "peak_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        }
    finally:
        if folder is None:
            shutil.rmtree(place)


def ranks(rows: int, repeats: int) -> dict[str, object]:
    """Runs of this script as one rank and as two, in turn, and the best of each."""
    found: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    for _ in range(repeats):
        for size in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                arguments = [sys.executable, __file__, "rank", "--rows", str(rows)]
                arguments += ["--folder", folder, "--size", str(size)]
                environment = os.environ | {"OMP_NUM_THREADS": "1"}
                processes = [
                    subprocess.Popen([*arguments, "--rank", str(r)], env=environment)
                    for r in range(size)
                ]
                if any(p.wait() for p in processes):
                    raise SystemExit("a rank failed")
                files = [Path(folder, f"{r}.json") for r in range(size)]
                each = [json.loads(f.read_text()) for f in files]
                found[size].append({k: max(e[k] for e in each) for k in each[0]})
    best = {size: {k: min(f[k] for f in runs) for k in runs[0]} for size, runs in found.items()}
    return {
        "rows": rows,
        "one": best[1],
        "two": best[2],
        "ratio": best[1]["seconds"] / best[2]["seconds"],
        "ratio_processor": best[1]["processor_seconds"] / best[2]["processor_seconds"],
    }


def rank(rows: int, folder: str, size: int, number: int) -> None:
    """Seconds of an evaluation of one rank, on one thread."""
    import torch.distributed as dist

    torch.set_num_threads(1)
    if size > 1:
        store = f"file://{folder}/store"
        dist.init_process_group("gloo", init_method=store, rank=number, world_size=size)
    engine, place = choose_engine("cpu", "cpu")
    with joined(place) as group, engine.session():
        objective, theta = build(rows, place, engine, group)
        clock, processor = least_times(lambda: objective.evaluate(theta, 10.0), 3)
    result = {"seconds": clock, "processor_seconds": processor}
    Path(folder, f"{number}.json").write_text(json.dumps(result))


def rmse(y: np.ndarray, predictions: np.ndarray) -> float:
    return float(np.sqrt(np.mean((np.asarray(y, dtype=np.float64) - predictions) ** 2)))


def fit(
    rows: int, device: str, tols: list[float], width: float, controls: int, max_seconds: float
) -> dict[str, object]:
    from sklearn.linear_model import Ridge

    from finemorphs.benchmarks.dnn import DNNRegressor

    x, y = make_year(rows)
    x_test, y_test = make_year(50_000, seed=1)
    place = choose_engine("auto", device)[1].type
    wide = {"hidden_layers": (256, 256), "epochs": 40, "batch_size": 2048, "learning_rate": 0.003}
    models = {
        f"finemorphs, tol={tol:g}": FineMorphsRegressor(
            dims=DIMS,
            n_steps=STEPS,
            subset_size=controls,
            kernel_width=width,
            tol=tol,
            max_time=max_seconds,
            device=device,
            random_state=0,
        )
        for tol in tols
    }
    models |= {"ridge": Ridge(), "dnn": DNNRegressor(**wide, device=place)}
    found: dict[str, object] = {"rows": rows, "device": place, "noise_of_the_data": NOISE}
    for name, model in models.items():
        begun = time.perf_counter()
        model.fit(x, y)
        seconds = time.perf_counter() - begun
        found[name] = {"seconds": seconds, "rmse": rmse(y_test, model.predict(x_test))}
        if isinstance(model, FineMorphsRegressor):
            found[name] |= {
                "seconds_of_training": float(model.history_["seconds"][-1]),
                "iterations": model.n_iter_,
                "evaluations": model.n_evaluations_,
                "rounds": int(model.history_["round"][-1]),
                "training_rmse": float(model.history_["rmse"][-1]),
                "converged": model.converged_,
                "status": model.status_,
            }
        print(name, json.dumps(found[name]), flush=True)
    return found


def batches(rows: int, device: str, controls: int, max_seconds: float) -> dict[str, object]:
    engine, place = choose_engine("auto", device)

    def tensors(n: int, seed: int) -> Rows:
        x, y = make_year(n, seed)
        inputs = torch.nn.functional.pad(torch.from_numpy(x), (0, 1)).to(place)
        return Rows(inputs, torch.from_numpy(y[:, None]).to(place))

    train, held_out = tensors(rows, 0), tensors(10_000, 1)
    sequence = ModuleSequence.build("ADA", COLUMNS + 1, 1, controls, dims=DIMS, n_steps=STEPS)
    sigma = float((rows**0.5 * NOISE**2 / 2) ** 0.5)
    with engine.session():
        race = Race(
            sequence,
            engine,
            train[:controls],
            train[controls:],
            held_out,
            sigma,
            2**17 if place.type == "cuda" else 2**13,
        )
        race.whole.evaluate(race.start, sigma)  # compiles
        ways = [(0.0, 1, 0.0), (2.0, 8192, 0.003), (2.0, 8192, 0.03), (5.0, 8192, 0.01)]
        curves = {way: race.run(*way, max_seconds) for way in ways}
    best = min(error for _, error in curves[ways[0]])
    return {
        "rows": rows,
        "runs": [
            {
                "epochs": way[0],
                "batch": way[1],
                "rate": way[2],
                "best_rmse": min(error for _, error in curve),
                "seconds": curve[-1][0],
                "seconds_to_the_best_of_lbfgs_and_1_percent": first_within(curve, 1.01 * best),
                "seconds_to_the_best_of_lbfgs": first_within(curve, best),
            }
            for way, curve in curves.items()
        ],
    }


def show(result: dict[str, object], title: str) -> None:
    table = Table("what", "value", title=title)
    for name, value in result.items():
        for line in value if isinstance(value, list) else [value]:
            text = json.dumps(line, default=float) if isinstance(line, dict) else str(line)
            table.add_row(name, text)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "what", choices=["evaluation", "parquet", "ranks", "fit", "batches", "rank"]
    )
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", help="of the Parquet files, kept; else a temporary one")
    parser.add_argument("--max-memory", default="2GB")
    parser.add_argument("--tol", type=float, nargs="+", default=[3e-4])
    parser.add_argument("--width", type=float, default=0.5)
    parser.add_argument("--controls", type=int, default=CONTROLS)
    parser.add_argument("--max-seconds", type=float, default=300.0, help="of a training")
    parser.add_argument("--size", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    a = parser.parse_args()
    one = a.rows[0] if a.rows else None
    if a.what == "rank":
        rank(one, a.folder, a.size, a.rank)
        return
    result = {
        "evaluation": lambda: evaluation(
            a.rows or [50_000, 100_000, 200_000, YEAR], a.device, a.repeats
        ),
        "parquet": lambda: parquet(one or 10_000_000, a.folder, a.max_memory),
        "ranks": lambda: ranks(one or YEAR, a.repeats),
        "fit": lambda: fit(one or YEAR, a.device, a.tol, a.width, a.controls, a.max_seconds),
        "batches": lambda: batches(one or 60_000, a.device, a.controls, a.max_seconds),
    }[a.what]()
    show(result, f"{a.what}: {COLUMNS} columns, d_1 = {DIMS}, N_S = {CONTROLS}, T = {STEPS}")
    if a.out is not None:
        a.out.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
