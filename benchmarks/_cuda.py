"""The CUDA engine's times on this device, beside what its special-function units allow.

    python benchmarks/engines.py --device cuda

Medians by device events, of CUDA graphs replayed, as a fit runs them. *bound* is the time
that the square root and the exponential of every pair need on the special-function units alone
(16 a clock on each multiprocessor), *of bound* the fraction of the measured time that is.
*error* is norm-wise against the float64 reference on a thousand rows. Dense PyTorch is timed
where its arrays fit, PyKeOps where it runs; ``--quick`` leaves both out.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from finemorphs.engines.cuda import CUDAEngine
from finemorphs.engines.keops import KeOpsEngine
from finemorphs.engines.reference import ReferenceEngine
from finemorphs.exceptions import EngineError
from finemorphs.kernels import Kernel
from finemorphs.objective import Objective
from finemorphs.sequence import ModuleSequence

KERNEL = Kernel("matern", 3, 0.5)
REFERENCE = ReferenceEngine()


@dataclass(frozen=True)
class CudaRow:
    """One line of the table; times in milliseconds."""

    work: str
    ms: float
    goal_ms: float | None
    bound_ms: float
    error: float | None = None
    dense_ms: float | None = None
    keops_ms: float | None = None

    @property
    def of_bound(self) -> float:
        return self.bound_ms / self.ms


def median_ms(job: Callable[[], object], repeats: int = 15) -> float:
    """Median by device events, after two untimed rounds."""
    times = []
    for repeat in range(repeats + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        job()
        end.record()
        end.synchronize()
        if repeat >= 2:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def graphed(job: Callable[[], object]) -> Callable[[], object]:
    """The job as a CUDA graph, after a first run that compiles."""
    job()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        job()
    return graph.replay


def bound_ms(pairs: float) -> float:
    properties = torch.cuda.get_device_properties(0)
    kilohertz = getattr(properties, "clock_rate", 1_980_000)
    return 2 * pairs / (16 * properties.multi_processor_count * kilohertz)


def normal(n: int, d: int, seed: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=source).cuda()


def product_error(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor, a: torch.Tensor) -> float:
    """Relative error on the first thousand rows."""
    exact = REFERENCE.product(KERNEL, x[:1000].double(), y.double(), a.double())
    return float((result[:1000].double() - exact).norm() / exact.norm())


def force_error(result: torch.Tensor, x: torch.Tensor, p: torch.Tensor, a: torch.Tensor) -> float:
    """Relative error of self_adjoint's force on the first thousand rows."""
    x, p, a = x.double(), p.double(), a.double()
    rows = slice(0, 1000)
    u = torch.cdist(x[rows], x, compute_mode="donot_use_mm_for_euclid_dist") / KERNEL.width
    weights = KERNEL.slope(u) * (p[rows] @ a.T + a[rows] @ (p + 2 * a).T) / KERNEL.width**2
    exact = weights.sum(1, keepdim=True) * x[rows] - weights @ x
    return float((result[rows].double() - exact).norm() / exact.norm())


def rivals(method: str, arguments: tuple[torch.Tensor, ...], quick: bool) -> dict[str, float]:
    """Times of dense PyTorch and of PyKeOps, where they can run."""
    times: dict[str, float] = {}
    if quick:
        return times
    n, n_control = arguments[0].shape[0], arguments[-1].shape[0]
    if 8 * 4 * n * n_control < torch.cuda.mem_get_info()[0]:
        times["dense_ms"] = median_ms(partial(getattr(REFERENCE, method), KERNEL, *arguments), 3)
        torch.cuda.empty_cache()
    try:
        job = partial(getattr(KeOpsEngine(), method), KERNEL, *arguments)
        times["keops_ms"] = median_ms(job, 3)
    except EngineError:
        pass
    return times


def pass_rows(engine: CUDAEngine, quick: bool) -> Iterator[CudaRow]:
    n, d = 41157, 10
    x, p, a = (normal(n, d, seed) for seed in range(3))
    yield CudaRow(
        f"product, N = N_S = {n}, d = {d}",
        median_ms(graphed(lambda: engine.self_product(KERNEL, x, a))),
        2.5,
        bound_ms(n * n),
        product_error(engine.self_product(KERNEL, x, a), x, x, a),
        **rivals("self_product", (x, a), quick),
    )
    yield CudaRow(
        f"backward pass, N = N_S = {n}, d = {d}",
        median_ms(graphed(lambda: engine.self_adjoint(KERNEL, x, p, a))),
        6.0,
        bound_ms(n * n),
        force_error(engine.self_adjoint(KERNEL, x, p, a)[0], x, p, a),
        **rivals("self_adjoint", (x, p, a), quick),
    )
    rows, centres = 463_715, 1000
    x, p, q = (normal(rows, d, seed) for seed in range(3))
    y, b = normal(centres, d, 3), normal(centres, d, 4)
    yield CudaRow(
        f"product, N = {rows}, N_S = {centres}, d = {d}",
        median_ms(graphed(lambda: engine.product(KERNEL, x, y, b))),
        1.5,
        bound_ms(rows * centres),
        product_error(engine.product(KERNEL, x, y, b), x, y, b),
        **rivals("product", (x, y, b), quick),
    )
    yield CudaRow(
        f"backward pass, N = {rows}, N_S = {centres}, d = {d}",
        median_ms(graphed(lambda: engine.adjoint(KERNEL, x, y, p, q, b))),
        None,
        bound_ms(rows * centres),
        **rivals("adjoint", (x, y, p, q, b), quick),
    )


def dimension_rows(engine: CUDAEngine) -> Iterator[CudaRow]:
    """Both passes in other dimensions."""
    n = 16384
    for d in (5, 16, 24, 32):
        x, p, a = (normal(n, d, seed) for seed in range(3))
        jobs: dict[str, Callable[[], object]] = {
            "product": partial(engine.self_product, KERNEL, x, a),
            "backward pass": partial(engine.self_adjoint, KERNEL, x, p, a),
        }
        for work, job in jobs.items():
            name = f"{work}, N = N_S = {n}, d = {d}"
            yield CudaRow(name, median_ms(graphed(job)), None, bound_ms(n * n))


def evaluation_rows(engine: CUDAEngine) -> Iterator[CudaRow]:
    """Objective, gradient and natural gradient, ADA, as a fit asks for them."""
    for n, d, goal in ((927, 9, 1.5), (41157, 10, 90.0)):
        sequence = ModuleSequence.build("ADA", d, 1, n)
        x = normal(n, d, 0)
        objective = Objective(sequence, engine, x, x[:, :1].sin())
        theta = 0.02 * normal(sequence.n_parameters, 1, 1).flatten()
        yield CudaRow(
            f"objective and gradient, ADA, T = 10, N = {n}, d = {d}",
            median_ms(partial(objective.evaluate, theta, 0.3)),
            goal,
            20 * bound_ms(n * n),
        )


def cuda_rows(quick: bool = False) -> Iterator[CudaRow]:
    """Every row, one by one; compiles what is not compiled yet."""
    engine = CUDAEngine()
    yield from pass_rows(engine, quick)
    yield from evaluation_rows(engine)
    yield from dimension_rows(engine)


def keops_note() -> str:
    """Why PyKeOps has no times, or nothing where it has."""
    try:
        KeOpsEngine()
    except EngineError as error:
        return f"PyKeOps was not timed: {error}"
    return ""


HEADER = (
    f"{'work':68} {'ms':>8} {'goal':>6} {'bound':>7} {'of bound':>8} {'error':>8} "
    f"{'dense':>8} {'keops':>8}"
)


def as_text(row: CudaRow) -> str:
    """A row of the table."""

    def cell(value: float | None, form: str = ".3f") -> str:
        return "" if value is None else format(value, form)

    return (
        f"{row.work:68} {row.ms:8.3f} {cell(row.goal_ms, 'g'):>6} {row.bound_ms:7.3f} "
        f"{row.of_bound:8.0%} {cell(row.error, '.1e'):>8} {cell(row.dense_ms):>8} "
        f"{cell(row.keops_ms):>8}"
    )
