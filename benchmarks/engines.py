"""How fast the engines are, as ratios from one run.

    python benchmarks/engines.py --out engines.json [--data DIRECTORY] [--only NAME ...]
    python benchmarks/engines.py --device cuda [--quick] [--out cuda.json]

Every row times a subject and its opponents in turn, repeat after repeat, so that whatever
else the machine does hits all of them; the table has the medians. A *pair* is one of the
N x N_S pairs of points. ``--data`` is a directory with Concrete's ``data.txt`` and split
files, as in the UCI collection of Hernandez-Lobato and Adams; without it there is no fit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from finemorphs.engines import Engine, choose_engine
from finemorphs.exceptions import EngineError
from finemorphs.kernels import Kernel
from finemorphs.objective import Objective
from finemorphs.optim import History, minimize
from finemorphs.sequence import ModuleSequence

Job = Callable[[], object]
KERNEL = Kernel("matern", 3, 0.5)


@dataclass
class Row:
    """One line of the table: seconds of everyone in it, and what the first is measured by."""

    work: str
    seconds: dict[str, float]
    pairs: float | None = None  # that one call visits
    at_least: dict[str, float] = field(default_factory=dict)  # ratios to reach
    note: str = ""

    @property
    def subject(self) -> float:
        return next(iter(self.seconds.values()))

    @property
    def ratios(self) -> dict[str, float]:
        opponents = list(self.seconds)[1:]
        return {name: self.seconds[name] / self.subject for name in opponents}

    @property
    def ns_per_pair(self) -> float | None:
        return None if self.pairs is None else 1e9 * self.subject / self.pairs


def race(jobs: dict[str, Job], repeats: int) -> dict[str, float]:
    """Median seconds of each job, taken in turn; the first, untimed round compiles."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for repeat in range(repeats + 1):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            if repeat:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


@dataclass
class Setting:
    """What every row is run with."""

    device: torch.device
    fast: Engine
    reference: Engine
    repeats: int
    data: Path | None

    def normal(self, n: int, dim: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
        source = torch.Generator().manual_seed(seed)
        return torch.randn(n, dim, generator=source, dtype=dtype).to(self.device)

    def race(self, jobs: dict[str, Job], repeats: int | None = None) -> dict[str, float]:
        return race(jobs, repeats or self.repeats)


# -- rows: passes


def products(s: Setting) -> Iterator[Row]:
    n, dim = 7373, 9
    for method, dtype, goal in (
        ("product", torch.float32, 20.0),
        ("self_product", torch.float32, 20.0),
        ("product", torch.float64, 8.0),
    ):
        x, y, a = (s.normal(n, dim, dtype, seed) for seed in range(3))
        arguments = (x, a) if method == "self_product" else (x, y, a)
        jobs: dict[str, Job] = {
            engine.name: partial(getattr(engine, method), KERNEL, *arguments)
            for engine in (s.fast, s.reference)
        }
        goals = {"reference": goal}
        keops = keops_product(x, y, a) if dtype == torch.float32 else None
        if keops is not None:
            jobs["keops"], goals["keops"] = keops, 15.0
        name = str(dtype).removeprefix("torch.")
        yield Row(f"{method}, {name}, N = N_S = {n}, d = {dim}", s.race(jobs), n * n, goals)


def keops_product(x: torch.Tensor, y: torch.Tensor, a: torch.Tensor) -> Job | None:
    """The product as PyKeOps computes it, or None where it is not installed."""
    try:
        from pykeops.torch import LazyTensor
    except ImportError:
        return None

    def product() -> torch.Tensor:
        rows = LazyTensor((x / KERNEL.width)[:, None, :])
        columns = LazyTensor((y / KERNEL.width)[None, :, :])
        u = ((rows - columns) ** 2).sum(-1).sqrt()
        value = 1 + u * (1 + u * (0.4 + u / 15))
        return (value * (-u).exp()) @ a

    return product


def passes(s: Setting) -> Iterator[Row]:
    dtype, dim = torch.float32, 9
    for n in (927, 7373):
        x, p, q, a = (s.normal(n, dim, dtype, seed) for seed in range(4))
        few = n // 10
        y, b = x[:few].contiguous(), a[:few].contiguous()
        calls = {
            "self_product": ("self_product", (x, a), n * n),
            "self_adjoint": ("self_adjoint", (x, p, a), n * n),
            f"product, N_S = {few}": ("product", (x, y, b), n * few),
            f"adjoint, N_S = {few}": ("adjoint", (x, y, p, q, b), n * few),
        }
        for work, (method, arguments, pairs) in calls.items():
            jobs = {
                engine.name: partial(getattr(engine, method), KERNEL, *arguments)
                for engine in (s.fast, s.reference)
            }
            seconds = s.race(jobs, 30 if n < 1000 else None)
            yield Row(f"{work}, N = {n}, d = {dim}", seconds, pairs)


def dimensions(s: Setting) -> Iterator[Row]:
    n = 3000
    for dim in (2, 4, 16, 32):
        x, p, a = (s.normal(n, dim, torch.float32, seed) for seed in range(3))
        jobs = {
            engine.name: partial(engine.self_adjoint, KERNEL, x, p, a)
            for engine in (s.fast, s.reference)
        }
        yield Row(f"self_adjoint, N = {n}, d = {dim}", s.race(jobs), n * n)


# -- rows: evaluations and fits


def objective(s: Setting, engine: Engine, n: int) -> tuple[Objective, torch.Tensor]:
    """ADA with T = 10 steps in 9 dimensions, at a point where everything moves."""
    dim = 9
    sequence = ModuleSequence.build("ADA", dim, 1, n)
    x = s.normal(n, dim, torch.float32)
    y = x[:, :1].sin()
    theta = 0.02 * s.normal(sequence.n_parameters, 1, torch.float32, 1).flatten()
    return Objective(sequence, engine, x, y), theta


def in_session(engine: Engine, function: Objective, theta: torch.Tensor) -> object:
    """An evaluation as a fit makes it."""
    with engine.session():
        return function.evaluate(theta, 0.3)


def evaluations(s: Setting) -> Iterator[Row]:
    for n, goal in ((927, 6.0), (7373, 25.0)):
        jobs: dict[str, Job] = {}
        for engine in (s.fast, s.reference):
            function, theta = objective(s, engine, n)
            jobs[engine.name] = partial(in_session, engine, function, theta)
        seconds = s.race(jobs, 15 if n < 1000 else min(3, s.repeats))
        goals = {"reference": goal}
        yield Row(
            f"objective and gradient, ADA, T = 10, N = {n}, d = 9", seconds, 20 * n * n, goals
        )


def optimiser(s: Setting) -> Iterator[Row]:
    """The optimiser's own share: all of ``minimize`` but the evaluations."""
    function, theta = objective(s, s.fast, 927)
    spent = 0.0

    def timed(point: torch.Tensor) -> object:
        nonlocal spent
        start = time.perf_counter()
        result = function.evaluate(point, 0.3)
        spent += time.perf_counter() - start
        return result

    timed(theta)
    spent, start = 0.0, time.perf_counter()
    with s.fast.session():
        result = minimize(timed, theta, history=History(25), max_iter=60)
    total, n = time.perf_counter() - start, result.n_evaluations
    seconds = {"optimiser": (total - spent) / n, "evaluation": spent / n}
    share = (total - spent) / spent
    note = f"{share:.0%} of an evaluation, goal 20%; {n} evaluations"
    yield Row("the optimiser's own work, N = 927, d = 9", seconds, note=note)


FIT = """
import json, sys, time, warnings
import numpy as np
started = time.perf_counter()
import torch
from finemorphs import FineMorphsRegressor
directory, device, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
table = np.loadtxt(f"{directory}/data.txt")
def index(name):
    return np.loadtxt(f"{directory}/index_{name}.txt", dtype=int)
x, y = table[:, index("features")], table[:, index("target")]
train, test = index("train_0"), index("test_0")
ready = time.perf_counter()
warnings.simplefilter("ignore")
model = FineMorphsRegressor("ADA", device=device, random_state=0).fit(x[train], y[train].ravel())
seconds = time.perf_counter() - ready
rmse = float(np.sqrt(np.mean((model.predict(x[test]) - y[test].ravel()) ** 2)))
print(json.dumps([ready - started, seconds, model.n_evaluations_, model.objective_, rmse]))
"""


def fits(s: Setting) -> Iterator[Row]:
    """Concrete, split 0, each in a process of its own: nothing compiled yet, then all of it."""
    if s.data is None:
        return
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "FINEMORPHS_CACHE_DIR": cache}
        command = [
            sys.executable,
            "-c",
            FIT,
            str(s.data),
            s.device.type,
            str(torch.get_num_threads()),
        ]
        for state in ("cold", "warm"):
            output = subprocess.run(
                command, env=environment, check=True, capture_output=True, text=True
            ).stdout
            imports, seconds, n, value, rmse = json.loads(output.splitlines()[-1])
            note = (
                f"{n} evaluations, {1e3 * seconds / n:.1f} ms each, G = {value:.2f}, "
                f"RMSE {rmse:.2f}; imports {imports:.1f} s"
            )
            yield Row(
                f"a fit, Concrete, ADA, split 0, {state} cache", {s.fast.name: seconds}, note=note
            )


MEMORY = """
import json, resource, sys, time
import torch
import finemorphs.estimators  # all that a fit imports
from finemorphs.engines import choose_engine
from finemorphs.objective import Objective
from finemorphs.optim import History
from finemorphs.sequence import ModuleSequence
torch.set_num_threads(int(sys.argv[1]))
n, dim, memory = 41157, 10, 25
engine, device = choose_engine("cpu")
sequence = ModuleSequence.build("ADA", dim, 1, n)
x = torch.randn(n, dim, generator=torch.Generator().manual_seed(0))
function = Objective(sequence, engine, x, x[:, :1].sin())
history = History(memory)
class Pair:
    def __init__(self, gradient):
        self.gradient = self.natural = gradient
def fill():  # as full as it gets
    zero = Pair(torch.zeros(sequence.n_parameters))
    for i in range(memory):
        step = torch.full((sequence.n_parameters,), 1e-3 * (i + 1))
        assert history.add(step, zero, Pair(step))
    history._slopes = None
fill()
theta = 1e-4 * torch.randn(sequence.n_parameters, generator=torch.Generator().manual_seed(1))
start = time.perf_counter()
with engine.session():  # an iteration of the optimiser, its line search taking the first step
    old = function.evaluate(theta, 0.3)
    direction = history.direction(old)
    candidate = theta + 1e-6 * direction
    new = function.evaluate(candidate, 0.3)
    history.add(candidate - theta, old, new)
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([seconds / 2, peak]))
"""


def memory(s: Setting) -> Iterator[Row]:
    """A step of a fit with a full history, N = 41157: peak memory of the whole process."""
    command = [sys.executable, "-c", MEMORY, str(torch.get_num_threads())]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, peak = json.loads(output.splitlines()[-1])
    note = f"peak {peak / 1e9:.2f} GB with 25 pairs of history, goal under 2 GB"
    size = 41157
    yield Row(
        f"evaluation within a fit, ADA, T = 10, N = {size}, d = 10",
        {s.fast.name: seconds},
        20 * size * size,
        note=note,
    )


ROWS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "products": products,
    "passes": passes,
    "dimensions": dimensions,
    "evaluations": evaluations,
    "optimiser": optimiser,
    "fits": fits,
    "memory": memory,
}


# -- the table


def as_table(rows: list[Row], title: str) -> Table:
    table = Table(title=title)
    table.add_column("work")
    for name in ("ms", "ns a pair", "against", "ms", "ratio", "goal"):
        table.add_column(name, justify="left" if name == "against" else "right")
    for row in rows:
        own = "" if row.ns_per_pair is None else f"{row.ns_per_pair:.3f}"
        table.add_row(row.work, f"{1e3 * row.subject:.2f}", own)
        for name, ratio in row.ratios.items():
            goal = row.at_least.get(name)
            shown = "" if goal is None else f"{goal:g}x {'ok' if ratio >= goal else 'MISSED'}"
            theirs = f"{1e3 * row.seconds[name]:.2f}"
            table.add_row("", "", "", name, theirs, f"{ratio:.1f}x", shown)
        if row.note:
            table.add_row(f"  {row.note}")
    return table


def cuda_report(out: Path | None, quick: bool) -> None:
    """The rows of the CUDA engine, by device events."""
    from _cuda import HEADER, CudaRow, as_text, cuda_rows, keops_note

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(HEADER)
    rows: list[CudaRow] = []
    for row in cuda_rows(quick):
        rows.append(row)
        print(as_text(row), flush=True)
        if out:
            out.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    if not quick:
        print(keops_note())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--data", type=Path, help="directory of Concrete's data.txt")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--quick", action="store_true", help="on cuda: no dense PyTorch, no KeOps")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    try:
        fast, device = choose_engine(options.device, options.device)
    except EngineError as error:
        parser.error(str(error))
    if options.device == "cuda":
        cuda_report(options.out, options.quick)
        return
    reference, _ = choose_engine("reference", options.device)
    setting = Setting(device, fast, reference, options.repeats, options.data)
    rows = [row for name in options.only for row in ROWS[name](setting)]

    console = Console(width=130)
    console.print(as_table(rows, f"{platform.machine()}, {options.threads} threads"))
    if not any("keops" in row.seconds for row in rows) and "products" in options.only:
        console.print("PyKeOps is not installed: no row against it.")
    if options.data is None and "fits" in options.only:
        console.print("No --data: no fit.")
    if options.out:
        extra = ("ratios", "ns_per_pair")
        content = [{**asdict(row), **{name: getattr(row, name) for name in extra}} for row in rows]
        meta = {"device": device.type, "threads": options.threads, "torch": torch.__version__}
        options.out.write_text(json.dumps({**meta, "rows": content}, indent=1))


if __name__ == "__main__":
    main()
