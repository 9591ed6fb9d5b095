"""The CPU engine in its surroundings: memory, threads, processes, the cache on disk."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import joblib
import pytest
import threadpoolctl
import torch

from finemorphs.engines import _cpu_compile, _cpu_threads, cpu
from finemorphs.engines.cpu import CPUEngine
from finemorphs.exceptions import EngineError
from finemorphs.kernels import Kernel

KERNEL = Kernel()
ENGINE = CPUEngine()


def points(n, dim=3, seed=0, dtype=torch.float32):
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def every_sum(n=700, n_control=300, dim=3):
    x, p, q, own = (points(n, dim, seed) for seed in range(4))
    y, a = (points(n_control, dim, seed) for seed in (4, 5))
    return [
        ENGINE.product(KERNEL, x, y, a),
        ENGINE.self_product(KERNEL, x, own),
        *ENGINE.adjoint(KERNEL, x, y, p, q, a),
        *ENGINE.self_adjoint(KERNEL, x, p, own),
    ]


@pytest.fixture
def restore_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def asked(monkeypatch):
    """The numbers of threads that passes have asked for."""
    numbers = []

    def spy(function, argument, n_threads, memory):
        numbers.append(n_threads)
        _cpu_threads.run(function, argument, n_threads, memory)

    monkeypatch.setattr(cpu, "run", spy)
    return numbers


def python(code, **environment):
    """Run the code in a new process; what it printed."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


# -- threads


@pytest.mark.usefixtures("restore_threads")
def test_work_is_shared_out_in_a_session():
    """All of it is done, by several threads, each of which leaves PyTorch one of its own."""
    torch.set_num_threads(3)
    together = threading.Barrier(3, timeout=10)  # broken unless three are under way
    seen = []

    def work(item):
        together.wait()
        seen.append((item, torch.get_num_threads()))

    engine = CPUEngine()
    with engine.session():
        assert engine.side_by_side() == 3
        engine.for_each(work, range(6))
    assert sorted(seen) == [(item, 1) for item in range(6)]


@pytest.mark.usefixtures("restore_threads")
@pytest.mark.parametrize("n_threads", [1, 2])
def test_an_error_in_shared_work_is_raised(n_threads):
    torch.set_num_threads(n_threads)
    engine = CPUEngine()
    with engine.session(), pytest.raises(ZeroDivisionError):
        engine.for_each(lambda item: 1 / item, [1, 0, 2])


@pytest.mark.usefixtures("restore_threads")
def test_results_do_not_depend_on_the_number_of_threads():
    results = []
    for n_threads in (1, 2, 3, 8):
        torch.set_num_threads(n_threads)
        results.append(every_sum())
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


@pytest.mark.usefixtures("restore_threads")
def test_threads_follow_torch(asked):
    for n_threads in (1, 3):
        torch.set_num_threads(n_threads)
        ENGINE.product(KERNEL, points(500), points(500), points(500))
    assert asked == [1, 3]


@pytest.mark.usefixtures("restore_threads")
def test_threads_follow_threadpoolctl(asked):
    torch.set_num_threads(2)
    with threadpoolctl.threadpool_limits(1):
        ENGINE.self_product(KERNEL, points(500), points(500))
    ENGINE.self_product(KERNEL, points(500), points(500))
    assert asked == [1, 2]


def test_small_problems_stay_on_one_thread(asked):
    ENGINE.product(KERNEL, points(20), points(20), points(20))
    assert asked == [1]


def test_several_threads_may_call_at_the_same_time():
    expected = every_sum()
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: every_sum(), range(12)):
            assert all(map(torch.equal, expected, result))


def test_sleeping_helpers_are_not_waited_for():
    """A ticket whose pass is over before a helper comes is void."""
    calls = []
    ticket = _cpu_threads._Ticket(calls.append, 7, None)
    ticket.settle()
    ticket.help()
    assert calls == []


# -- processes


def _total():
    return float(sum(t.double().sum() for t in every_sum()))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_works_in_processes_of_every_kind(method):
    expected = _total()  # the parent's helpers are running when it forks
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply_async(_total).get(timeout=120) == expected


def test_works_in_joblib_workers_with_their_share_of_threads():
    results = joblib.Parallel(n_jobs=2, backend="loky")(
        joblib.delayed(_total_and_threads)() for _ in range(2)
    )
    for total, n_threads in results:
        assert total == _total()
        assert n_threads <= max(1, joblib.cpu_count() // 2)


def _total_and_threads():
    return _total(), torch.get_num_threads()


# -- memory


def test_memory_is_linear():
    """One array of 20000 x 20000 float32 would be 1600 MB."""
    pytest.importorskip("resource")
    code = """
import resource, torch
from finemorphs.engines.cpu import CPUEngine
from finemorphs.kernels import Kernel
engine, n = CPUEngine(), 20000
def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
def sums(n):
    x, p = torch.randn(n, 3), torch.randn(n, 3)
    engine.product(Kernel(), x, x, p)
    engine.self_product(Kernel(), x, p)
    engine.adjoint(Kernel(), x, x[: n // 4], p, p, p[: n // 4])
    engine.self_adjoint(Kernel(), x, p, p)
sums(100)
before = used()
sums(n)
print(used() - before)
"""
    megabytes = float(python(code))
    if sys.platform == "darwin":
        megabytes /= 1024
    assert megabytes < 150


def test_wide_data_go_in_blocks_of_bounded_memory(monkeypatch):
    monkeypatch.setattr(cpu, "_BLOCK_PAIRS", 1000)
    whole = every_sum(150, 90, 260)
    monkeypatch.setattr(cpu, "_BLOCK_PAIRS", 10**9)
    for one, other in zip(whole, every_sum(150, 90, 260), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


# -- compilation and its cache

USE = """
import sys, torch
from finemorphs.engines.cpu import CPUEngine
from finemorphs.kernels import Kernel
engine, x = CPUEngine(), torch.ones(3, 2)
def needs(subset):
    return engine.needs_compilation(Kernel(), 2, torch.float32, subset=subset)
needed = needs(True), needs(False)
result = engine.self_product(Kernel(), x, x)
engine.product(Kernel(), x, x, x)
engine.adjoint(Kernel(), x, x, x, x, x)
engine.self_adjoint(Kernel(), x, x, x)
print(*needed, needs(True), needs(False), result.sum().item())
"""


def test_passes_are_compiled_once_for_all_processes(tmp_path):
    directory = str(tmp_path / "cache")
    assert python(USE, FINEMORPHS_CACHE_DIR=directory) == "True True False False 18.0"
    assert python(USE, FINEMORPHS_CACHE_DIR=directory) == "False False False False 18.0"


FIT = """
import numpy as np
from finemorphs import FineMorphsRegressor
x = np.random.default_rng(0).standard_normal((40, 2))
for subset_size in (None, None, 20, 20):
    FineMorphsRegressor(max_iter=2, noise=1.0, verbose=1, subset_size=subset_size).fit(x, x[:, 0])
    print("fitted")
"""


def test_only_fits_that_compile_say_so(tmp_path):
    lines = python(FIT, FINEMORPHS_CACHE_DIR=str(tmp_path)).splitlines()
    told = [line.split()[0] for line in lines if line.startswith(("Compiling", "fitted"))]
    assert told == ["Compiling", "fitted", "fitted", "Compiling", "fitted", "fitted"]


def test_a_cache_that_cannot_be_written_costs_only_the_cache(tmp_path):
    (tmp_path / "file").touch()
    directory = str(tmp_path / "file" / "cache")
    assert python(USE, FINEMORPHS_CACHE_DIR=directory) == "True True False False 18.0"


def test_damaged_files_are_compiled_again(tmp_path):
    python(USE, FINEMORPHS_CACHE_DIR=str(tmp_path))
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    assert python(USE, FINEMORPHS_CACHE_DIR=str(tmp_path)) == "True True False False 18.0"


def test_cache_directory_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("FINEMORPHS_CACHE_DIR", str(tmp_path))
    assert _cpu_compile.cache_directory() == tmp_path
    monkeypatch.delenv("FINEMORPHS_CACHE_DIR")
    assert _cpu_compile.cache_directory().name == "finemorphs"


def test_wide_data_need_no_compilation():
    assert not ENGINE.needs_compilation(KERNEL, 1000, torch.float32, subset=False)


def test_import_compiles_nothing(tmp_path):
    code = """
import sys, finemorphs, finemorphs.engines
print([m for m in ("llvmlite", "numba") if m in sys.modules])
from finemorphs.engines import _cpu_compile, cpu
print(len(_cpu_compile._functions))
"""
    assert python(code, FINEMORPHS_CACHE_DIR=str(tmp_path)).split("\n") == ["[]", "0"]


# -- what it refuses


def test_refuses_what_the_compiled_code_cannot_read():
    x = points(6)
    with pytest.raises(EngineError, match="float32 or float64"):
        ENGINE.product(KERNEL, x.half(), x.half(), x.half())
    with pytest.raises(EngineError, match="all of one kind"):
        ENGINE.product(KERNEL, x, x, x.double())
    with pytest.raises(EngineError, match=r"shape \(6, 3\)"):
        ENGINE.self_product(KERNEL, x, points(5))
    with pytest.raises(EngineError, match="contiguous"):
        ENGINE.self_product(KERNEL, x, points(3, 6).T)


# --- sessions -----------------------------------------------------------------------------


def test_a_session_gives_pytorch_one_thread_and_the_passes_all():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with CPUEngine().session():
            assert (torch.get_num_threads(), _cpu_threads.n_threads()) == (1, 2)
            with CPUEngine().session():
                assert (torch.get_num_threads(), _cpu_threads.n_threads()) == (1, 2)
        assert (torch.get_num_threads(), _cpu_threads.n_threads()) == (2, 2)
        with pytest.raises(KeyError), CPUEngine().session():
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_sessions_in_several_threads_leave_the_number_of_threads_as_it_was():
    before = torch.get_num_threads()
    seen = []

    def work(wait, go):
        with CPUEngine().session():
            go.set()
            wait.wait(10)
            seen.append(_cpu_threads.n_threads())

    first, second = threading.Event(), threading.Event()
    threads = [
        threading.Thread(target=work, args=(second, first)),
        threading.Thread(target=work, args=(first, second)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [before, before]
    assert torch.get_num_threads() == _cpu_threads.n_threads() == before


@pytest.mark.usefixtures("restore_threads")
def test_helpers_end_when_they_are_told_to_and_come_back_when_needed():
    torch.set_num_threads(3)
    expected = _total()
    helpers = [t for t in threading.enumerate() if t.name.startswith("finemorphs-")]
    assert helpers
    _cpu_threads._team.stop()
    assert not any(helper.is_alive() for helper in helpers)
    assert _total() == expected
