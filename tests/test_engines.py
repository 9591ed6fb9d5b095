"""What is true of every engine: it agrees with the float64 reference and with calculus."""

from __future__ import annotations

import itertools

import pytest
import torch

from finemorphs.engines import choose_engine
from finemorphs.engines.reference import ReferenceEngine
from finemorphs.exceptions import EngineError
from finemorphs.kernels import Kernel

ENGINES = ["reference", "cpu"]
KERNELS = [Kernel("matern", order, 0.8) for order in (1, 2, 3, 4)] + [Kernel("gaussian", width=0.8)]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
DTYPES = list(TOLERANCE)
REFERENCE = ReferenceEngine()


@pytest.fixture(params=ENGINES)
def engine(request):
    return choose_engine(request.param, "cpu")[0]


@pytest.fixture(params=ENGINES[1:])
def fused(request):
    """The engines that need not suffer what the dense sums do in float32."""
    return choose_engine(request.param, "cpu")[0]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(n, dim, seed):
    return torch.randn(n, dim, dtype=torch.float64, generator=generator(seed))


def problem(n, n_control, dim, dtype, seed=0, points=normal):
    """x, y, p, q, a as the engines take them."""
    x, y = points(n, dim, seed), points(n_control, dim, seed + 1)
    p, q, a = (normal(m, dim, seed + 2 + i) for i, m in enumerate((n, n, n_control)))
    return [tensor.to(dtype).contiguous() for tensor in (x, y, p, q, a)]


def all_sums(engine, kernel, x, y, p, q, a):
    """Every sum of the interface, by name."""
    own = p.flip(0)  # controls on the points themselves
    force, reaction, pullback = engine.adjoint(kernel, x, y, p, q, a)
    self_force, self_pullback = engine.self_adjoint(kernel, x, p, own)
    return {
        "product": engine.product(kernel, x, y, a),
        "self_product": engine.self_product(kernel, x, own),
        "force": force,
        "reaction": reaction,
        "pullback": pullback,
        "self_force": self_force,
        "self_pullback": self_pullback,
    }


def assert_agrees(engine, kernel, arguments, tolerance):
    exact = all_sums(REFERENCE, kernel, *(t.double() for t in arguments))
    for name, result in all_sums(engine, kernel, *arguments).items():
        assert result.dtype == arguments[0].dtype
        error = (result.double() - exact[name]).norm()
        assert error <= tolerance * exact[name].norm(), f"{name}: {error / exact[name].norm():.1e}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_agrees_with_the_reference_for_every_kernel(engine, kernel, dtype):
    assert_agrees(engine, kernel, problem(150, 83, 3, dtype), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [1, 2, 9, 20, 33, 70, 260])
def test_agrees_with_the_reference_in_every_dimension(engine, dim, dtype):
    kernel = Kernel(width=0.5 * dim**0.5)
    assert_agrees(engine, kernel, problem(100, 130, dim, dtype), TOLERANCE[dtype])


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 65])
@pytest.mark.parametrize("n_control", [1, 16, 33])
def test_agrees_with_the_reference_for_sizes_around_a_vector(engine, n, n_control):
    assert_agrees(engine, Kernel(), problem(n, n_control, 3, torch.float32), 1e-5)


def clustered(n, dim, seed):
    """Five tight clusters around places that do not depend on the seed."""
    centres = 3 * normal(5, dim, 99)
    return centres[torch.arange(n) % 5] + 1e-3 * normal(n, dim, seed)


def far_from_the_origin(n, dim, seed):
    return 200 + normal(n, dim, seed)


def duplicated(n, dim, seed):
    return normal(7, dim, 99)[torch.arange(n) % 7]


def widely_spread(n, dim, seed):
    """A few neighbours, and distances up to 1e6 widths."""
    return normal(n, dim, seed) * 10.0 ** torch.linspace(-2, 6, n, dtype=torch.float64)[:, None]


@pytest.mark.parametrize(("dim", "width"), [(4, 0.5), (70, 3.0)])
@pytest.mark.parametrize("family", ["matern", "gaussian"])
@pytest.mark.parametrize(
    "points", [clustered, far_from_the_origin, duplicated, widely_spread], ids=lambda f: f.__name__
)
def test_float32_is_accurate_on_hard_data(fused, family, width, points, dim):
    kernel = Kernel(family, width=width)
    assert_agrees(fused, kernel, problem(200, 150, dim, torch.float32, points=points), 1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("distance", [1e2, 1e4, 1e9, 1e15, 1e30])
def test_far_pairs_are_nothing(fused, kernel, dtype, distance):
    """Two points this far apart: K = I, and no force."""
    if dtype == torch.float64 and distance == 1e2 and not kernel.is_gaussian:
        distance = 1e3  # e^-125 is a number in float64
    x = torch.tensor([[0.0, 0.0], [distance, distance]], dtype=dtype)
    a = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=dtype)
    assert torch.equal(fused.product(kernel, x, x, a), a)
    assert torch.equal(fused.self_product(kernel, x, a), a)
    force, pullback = fused.self_adjoint(kernel, x, a, a)
    assert torch.equal(force, torch.zeros_like(a))
    assert torch.equal(pullback, 3 * a)
    force, reaction, pullback = fused.adjoint(kernel, x, x, a, a, a)
    assert torch.equal(force, torch.zeros_like(a))
    assert torch.equal(reaction, torch.zeros_like(a))
    assert torch.equal(pullback, a)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_adjoint_is_the_gradient_of_product(engine, kernel):
    """S(x, y, a) = sum(p * K(x, y) a) has gradients force, reaction and, with q = p, pullback."""
    x, y, p, _, a = problem(9, 6, 3, torch.float64)
    gradients = engine.adjoint(kernel, x, y, p, p, a)
    for i, gradient in enumerate(gradients):
        expected = finite_differences(
            lambda *arguments: (p * engine.product(kernel, *arguments)).sum(), [x, y, a], i
        )
        torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_self_adjoint_is_the_gradient_of_self_product_and_energy(engine, kernel):
    """S(x, a) = sum((p + a) * K(x, x) a) has gradients force and pullback."""
    x, _, p, _, a = problem(9, 9, 3, torch.float64)
    gradients = engine.self_adjoint(kernel, x, p, a)
    for i, gradient in enumerate(gradients):
        expected = finite_differences(
            lambda x, a: ((p + a) * engine.self_product(kernel, x, a)).sum(), [x, a], i
        )
        torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-7)


def finite_differences(function, arguments, which, step=1e-5):
    gradient = torch.empty_like(arguments[which])
    for index in itertools.product(*map(range, gradient.shape)):
        values = []
        for sign in (1, -1):
            moved = [t.clone() for t in arguments]
            moved[which][index] += sign * step
            values.append(function(*moved))
        gradient[index] = (values[0] - values[1]) / (2 * step)
    return gradient


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pullback_is_the_transpose_of_product(engine, dtype):
    x, y, p, q, a = problem(70, 40, 5, dtype)
    pullback = engine.adjoint(Kernel(), x, y, p, q, a)[2]
    left = (q * engine.product(Kernel(), x, y, a)).sum()
    torch.testing.assert_close(left, (pullback * a).sum(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_self_passes_are_the_general_ones_on_the_same_points(engine, dtype):
    x, _, p, _, a = problem(120, 120, 9, dtype)
    kernel, close = Kernel(width=2.0), {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(
        engine.self_product(kernel, x, a), engine.product(kernel, x, x, a), **close
    )
    force, reaction, pullback = engine.adjoint(kernel, x, x, p + a, p + 2 * a, a)
    self_force, self_pullback = engine.self_adjoint(kernel, x, p, a)
    torch.testing.assert_close(self_force, force + reaction, **close)
    torch.testing.assert_close(self_pullback, pullback, **close)


def test_forces_add_up_to_zero(engine):
    """Every action has its reaction: nothing pushes the whole cloud of points."""
    x, y, p, q, a = problem(90, 50, 4, torch.float64)
    force, reaction, _ = engine.adjoint(Kernel(), x, y, p, q, a)
    assert (force.sum(0) + reaction.sum(0)).abs().max() < 1e-10
    assert engine.self_adjoint(Kernel(), x, p, p)[0].sum(0).abs().max() < 1e-10


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_kernel_is_one_at_distance_zero(engine, dtype):
    x, a = normal(1, 3, 0).to(dtype), normal(1, 3, 1).to(dtype)
    for kernel in KERNELS:
        assert torch.equal(engine.product(kernel, x, x, a), a)
        assert torch.equal(engine.self_product(kernel, x, a), a)


@pytest.mark.parametrize(("n", "n_control", "dim"), [(0, 5, 3), (5, 0, 3), (0, 0, 3)])
def test_no_points_or_no_control_points(engine, n, n_control, dim):
    arguments = problem(n, n_control, dim, torch.float32)
    for name, result in all_sums(engine, Kernel(), *arguments).items():
        of_control_points = name in ("reaction", "pullback")
        assert result.shape == (n_control if of_control_points else n, dim)
        if not name.startswith("self"):
            assert not result.any()


@pytest.mark.parametrize("position", ["x", "y", "a"])
def test_nan_is_not_swallowed(engine, position):
    x, y, p, q, a = problem(20, 18, 3, torch.float32)
    {"x": x, "y": y, "a": a}[position][4, 1] = float("nan")
    assert engine.product(Kernel(), x, y, a).isnan().any()
    assert engine.adjoint(Kernel(), x, y, p, q, a)[0].isnan().any()
    if position == "x":
        assert engine.self_product(Kernel(), x, p).isnan().all(dim=1)[4]
        assert engine.self_adjoint(Kernel(), x, p, p)[0].isnan().all(dim=1)[4]


def test_same_input_gives_the_same_bits(engine):
    arguments = problem(300, 200, 5, torch.float32)
    first, second = (all_sums(engine, Kernel(), *arguments) for _ in range(2))
    for name in first:
        assert torch.equal(first[name], second[name])


def test_inputs_are_left_alone(engine):
    arguments = problem(40, 30, 3, torch.float32)
    before = [t.clone() for t in arguments]
    all_sums(engine, Kernel(), *arguments)
    assert all(map(torch.equal, before, arguments))


def test_choose_engine_says_what_it_knows():
    with pytest.raises(EngineError, match="choose one of"):
        choose_engine("fortran")
