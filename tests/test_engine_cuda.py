"""The CUDA engine against the float64 reference: on a device, and in Triton's interpreter.

Run as a script, this file checks the kernels in the interpreter, which has to be chosen
before Triton is imported.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import weakref

import pytest
import torch

from finemorphs.engines import cuda
from finemorphs.engines.cuda import CUDAEngine, out_of_memory_advice
from finemorphs.engines.reference import ReferenceEngine
from finemorphs.exceptions import EngineError
from finemorphs.kernels import Kernel

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
KERNELS = [Kernel("matern", order, 0.8) for order in (1, 2, 3, 4)] + [Kernel("gaussian", width=0.8)]
triton_installed = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


def normal(n, d, source):
    return torch.randn(n, d, generator=source, dtype=torch.float64)


def clustered(n, d, source):
    centres = 100 * torch.randn(7, d, generator=source, dtype=torch.float64)
    return centres[torch.arange(n) % 7] + 0.3 * normal(n, d, source)


def duplicated(n, d, source):
    return normal(n // 3 + 1, d, source).repeat(3, 1)[:n]


def spread(n, d, source):
    return 1e4 * torch.rand(n, d, generator=source, dtype=torch.float64) ** (3 * d)


def problem(n, n_control, d, dtype, device="cuda", points=normal):
    """x, y, p, q, a; the first control points are points."""
    source = torch.Generator().manual_seed(n + d)
    x = points(n, d, source)
    y = torch.cat((x, points(n_control, d, source)))[-n_control:]
    p, q, a = (normal(m, d, source) for m in (n, n, n_control))
    return [t.to(device, dtype).contiguous() for t in (x, y, p, q, a)]


def errors(kernel, arguments):
    """Norm-wise relative error of every sum, by name."""

    def sums(engine, x, y, p, q, a):
        own = p.flip(0)
        yield "product", engine.product(kernel, x, y, a)
        yield "self_product", engine.self_product(kernel, x, own)
        yield from zip(
            ("force", "reaction", "pullback"),
            engine.adjoint(kernel, x, y, p, q, a),
            strict=True,
        )
        yield from zip(
            ("self force", "self pullback"),
            engine.self_adjoint(kernel, x, p, own),
            strict=True,
        )

    exact = dict(sums(ReferenceEngine(), *(t.double() for t in arguments)))
    for name, result in sums(CUDAEngine(), *arguments):
        assert result.dtype == arguments[0].dtype
        difference = (result.double() - exact[name]).norm()
        yield name, float(difference / exact[name].norm().clamp_min(1e-30))


def assert_agrees(kernel, arguments):
    bound = TOLERANCE[arguments[0].dtype]
    for name, error in errors(kernel, arguments):
        assert error <= bound, f"{name}: relative error {error:.1e}"


def roomy(d):
    """A kernel under which points in d dimensions see each other."""
    return Kernel("matern", 3, 0.5 * d**0.5)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("d", [1, 3, 10, 16, 17, 32, 40])
def test_every_dimension(d, dtype):
    for n, n_control in ((1, 1), (200, 200), (301, 77)):
        assert_agrees(roomy(d), problem(n, n_control, d, dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_every_kernel(kernel):
    for dtype in TOLERANCE:
        assert_agrees(kernel, problem(203, 60, 3, dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("points", [clustered, duplicated, spread])
def test_close_pairs_and_distant_ones(points):
    assert_agrees(Kernel(width=0.5), problem(2001, 700, 10, torch.float32, points=points))


@pytest.mark.gpu
def test_many_rows_and_few_controls():
    assert_agrees(roomy(10), problem(30011, 150, 10, torch.float32))


@pytest.mark.gpu
def test_loops_that_many_pairs_unroll(monkeypatch):
    monkeypatch.setattr(cuda, "_UNROLLED_PAIRS", 0)
    assert_agrees(roomy(10), problem(301, 77, 10, torch.float32))


@pytest.mark.gpu
def test_the_same_bits_again_and_in_a_graph():
    engine, kernel = CUDAEngine(), roomy(10)
    x, _, p, _, a = problem(927, 927, 10, torch.float32)

    def work():
        return engine.self_product(kernel, x, a), *engine.self_adjoint(kernel, x, p, a)

    first, second = work(), work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = work()
    graph.replay()
    for one, two, three in zip(first, second, captured, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


def test_out_of_memory_says_what_to_lower_and_drops_the_tensors():
    dropped = []

    def fit():
        state = torch.zeros(1)
        weakref.finalize(state, dropped.append, "state")
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    with pytest.raises(EngineError, match=r"20\.00 GiB.*subset_size"), out_of_memory_advice():
        fit()
    assert dropped == ["state"]


def test_the_kernels_are_not_imported_with_the_module():
    check = (
        "import sys, finemorphs.engines.cuda; "
        "sys.exit('finemorphs.engines._cuda_kernels' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


@triton_installed
@pytest.mark.slow
def test_kernels_in_the_interpreter():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def check_in_the_interpreter():
    _let_the_interpreter_take_new_numpy()
    for n, n_control, d, dtype in (
        (1, 1, 1, torch.float32),
        (70, 9, 3, torch.float32),
        (12, 5, 9, torch.float32),
        (20, 9, 10, torch.float32),
        (9, 5, 17, torch.float64),
        (4, 3, 32, torch.float32),
        (5, 3, 33, torch.float32),
    ):
        assert_agrees(roomy(d), problem(n, n_control, d, dtype, device="cpu"))
    for kernel in KERNELS:
        assert_agrees(kernel, problem(9, 5, 2, torch.float64, device="cpu"))
    cuda._UNROLLED_PAIRS = 0
    assert_agrees(roomy(10), problem(20, 9, 10, torch.float32, device="cpu"))


def _let_the_interpreter_take_new_numpy():
    """Triton 3.6 reads loop bounds with int(array of one), which NumPy 2.4 no longer allows."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


if __name__ == "__main__":
    check_in_the_interpreter()
