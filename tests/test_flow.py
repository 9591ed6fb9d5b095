"""The discrete flow and its adjoint, against autograd, differences and closed forms."""

from __future__ import annotations

import pytest
import torch
from _oracles import (
    autograd,
    gram,
    one_thread,  # noqa: F401
    slope_along,
)
from _oracles import flow as naive_flow
from hypothesis import given
from hypothesis import strategies as st

from finemorphs import flow
from finemorphs.engines.cpu import CPUEngine
from finemorphs.engines.reference import ReferenceEngine
from finemorphs.kernels import Kernel

ENGINE = ReferenceEngine()
KERNELS = [Kernel("matern", order, 0.8) for order in (1, 2, 3, 4)] + [Kernel("gaussian", width=0.8)]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=str)
every_shape = pytest.mark.parametrize(
    ("n", "n_controls", "dim", "n_steps"), [(7, 7, 2, 1), (6, 6, 3, 4), (9, 4, 2, 3), (8, 1, 1, 5)]
)


def problem(n, n_controls, dim, n_steps, seed=0, dtype=torch.float64):
    """Points, controls, and the costates of the linear end cost sum(costates * z(1))."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(n, dim), (n_steps, n_controls, dim), (n, dim)]
    return [torch.randn(s, dtype=torch.float64, generator=generator).to(dtype) for s in shapes]


def carry(kernel, points, controls):
    """States (T + 1, n, d) of all points, the control points first, and the energy."""
    n_controls = controls.shape[1]
    steering = flow.forward(ENGINE, kernel, points[:n_controls], controls)
    centers = steering.states[:-1]
    others = flow.transport(ENGINE, kernel, points[n_controls:], centers, controls)
    return torch.cat([steering.states, others], 1), steering.energy


def pull_back(kernel, points, controls, costates, natural=False, blocks=1):
    """The adjoint of all points: costates of all, gradient, natural gradient."""
    n_controls = controls.shape[1]
    steering = flow.forward(ENGINE, kernel, points[:n_controls], controls)
    centers, load, pulled = steering.states[:-1], None, []
    if n_controls < len(points):
        load = flow.Load(*torch.zeros(2, *controls.shape, dtype=torch.float64))
        others = (
            points[n_controls:].tensor_split(blocks),
            costates[n_controls:].tensor_split(blocks),
        )
        for x, p in zip(*others, strict=True):
            states = flow.transport(ENGINE, kernel, x, centers, controls)
            pulled.append(flow.transport_back(ENGINE, kernel, states, centers, controls, p, load))
    adjoint = flow.backward(
        ENGINE, kernel, steering, controls, costates[:n_controls], natural, load=load
    )
    return flow.Adjoint(torch.cat([adjoint.costates, *pulled]), adjoint.gradient, adjoint.natural)


def close(result, expected, tolerance=1e-9):
    assert (result - expected).norm() <= tolerance * (1 + expected.norm())


@every_kernel
@every_shape
def test_forward_is_the_formula(kernel, n, n_controls, dim, n_steps):
    points, controls, _ = problem(n, n_controls, dim, n_steps)
    states, spent = carry(kernel, points, controls)
    end, energy = naive_flow(kernel, points, controls)
    assert states.shape == (n_steps + 1, n, dim)
    assert torch.equal(states[0], points)
    close(states[-1], end, 1e-13)
    close(spent, energy, 1e-13)


@every_kernel
@every_shape
def test_adjoint_agrees_with_autograd(kernel, n, n_controls, dim, n_steps):
    points, controls, costates = problem(n, n_controls, dim, n_steps)

    def cost(z, a):
        end, energy = naive_flow(kernel, z, a)
        return energy + (costates * end).sum()

    adjoint = pull_back(kernel, points, controls, costates)
    by_points, by_controls = autograd(cost, points, controls)
    close(adjoint.costates, by_points)
    close(adjoint.gradient, by_controls)
    assert adjoint.natural is None


@every_kernel
@every_shape
def test_adjoint_agrees_with_central_differences(kernel, n, n_controls, dim, n_steps):
    points, controls, costates = problem(n, n_controls, dim, n_steps, seed=1)

    def cost(z, a):
        states, energy = carry(kernel, z, a)
        return energy + (costates * states[-1]).sum()

    adjoint = pull_back(kernel, points, controls, costates)
    along_z, along_a, _ = problem(n, n_controls, dim, n_steps, seed=2)
    expected = slope_along(lambda z: cost(z, controls), points, along_z)
    assert float((adjoint.costates * along_z).sum()) == pytest.approx(expected, rel=1e-5)
    expected = slope_along(lambda a: cost(points, a), controls, along_a)
    assert float((adjoint.gradient * along_a).sum()) == pytest.approx(expected, rel=1e-5)


@every_kernel
@pytest.mark.parametrize("n_controls", [6, 3])
def test_adjoint_is_exact_where_points_coincide(kernel, n_controls):
    points, controls, costates = problem(6, n_controls, 2, 3)
    points[1], points[4] = points[0], points[0]

    def cost(z, a):
        end, energy = naive_flow(kernel, z, a)
        return energy + (costates * end).sum()

    adjoint = pull_back(kernel, points, controls, costates)
    by_points, by_controls = autograd(cost, points, controls)
    close(adjoint.costates, by_points)
    close(adjoint.gradient, by_controls)


@every_kernel
@given(n_steps=st.integers(1, 8), dim=st.integers(1, 4), seed=st.integers(0, 2**31))
def test_one_point_moves_on_a_straight_line(kernel, n_steps, dim, seed):
    """kappa(0) = 1: z(1) = z(0) + dt sum a, energy = dt sum |a|^2, and the adjoint is linear."""
    points, controls, costates = problem(1, 1, dim, n_steps, seed)
    trajectory = flow.forward(ENGINE, kernel, points, controls)
    torch.testing.assert_close(trajectory.states[-1], points + controls.mean(0))
    torch.testing.assert_close(trajectory.energy, controls.square().sum() / n_steps)
    adjoint = flow.backward(ENGINE, kernel, trajectory, controls, costates, natural=True)
    torch.testing.assert_close(adjoint.costates, costates)
    torch.testing.assert_close(adjoint.gradient, (costates + 2 * controls) / n_steps)
    torch.testing.assert_close(adjoint.natural, controls + costates / 2)


@every_shape
def test_zero_controls_are_the_identity(n, n_controls, dim, n_steps):
    points, controls, costates = problem(n, n_controls, dim, n_steps)
    controls.zero_()
    states, energy = carry(Kernel(), points, controls)
    assert all(torch.equal(state, points) for state in states)
    assert energy.item() == 0.0
    adjoint = pull_back(Kernel(), points, controls, costates)
    assert torch.equal(adjoint.costates, costates)


@every_kernel
def test_energy_is_positive(kernel):
    points, controls, _ = problem(12, 12, 2, 3)
    assert flow.forward(ENGINE, kernel, points, controls).energy > 0


@every_kernel
def test_transport_of_the_control_points_repeats_the_flow(kernel):
    points, controls, _ = problem(7, 7, 3, 4)
    states = flow.forward(ENGINE, kernel, points, controls).states
    carried = flow.transport(ENGINE, kernel, points, states[:-1], controls)
    torch.testing.assert_close(carried, states, rtol=1e-13, atol=1e-13)


@every_kernel
@pytest.mark.parametrize("blocks", [2, 5, 7])
def test_blocks_of_other_points_add_up(kernel, blocks):
    """In any number, empty ones among them."""
    points, controls, costates = problem(9, 4, 2, 3)
    whole = pull_back(kernel, points, controls, costates, natural=True)
    parts = pull_back(kernel, points, controls, costates, natural=True, blocks=blocks)
    close(parts.costates, whole.costates, 1e-13)
    close(parts.gradient, whole.gradient, 1e-13)
    close(parts.natural, whole.natural, 1e-10)


def test_transport_of_no_points_is_no_points():
    points, controls, _ = problem(5, 5, 2, 3)
    centers = flow.forward(ENGINE, Kernel(), points, controls).states[:-1]
    assert flow.transport(ENGINE, Kernel(), points[:0], centers, controls).shape == (4, 0, 2)


def test_points_stay_in_order_on_the_line():
    """A flow of small steps is increasing in one dimension: a diffeomorphism."""
    points, controls, _ = problem(15, 15, 1, 50)
    points = points.sort(0).values
    states = flow.forward(ENGINE, Kernel(width=1.0), points, controls).states
    assert (states.diff(dim=1) > 0).all()


@every_kernel
def test_natural_gradient_is_the_gradient_without_the_kernel(kernel):
    """2 dt K_SS natural = dG/da, exactly where every point is a control point."""
    points, controls, costates = problem(8, 8, 2, 3)
    states, _ = carry(kernel, points, controls)
    adjoint = pull_back(kernel, points, controls, costates, natural=True)
    for i in range(3):
        matrix = gram(kernel, states[i], states[i])
        close(2 / 3 * matrix @ adjoint.natural[i], adjoint.gradient[i], 1e-13)


@every_kernel
@pytest.mark.parametrize("n_controls", [5, 1])
def test_natural_gradient_of_a_subset_is_so_up_to_its_ridge(kernel, n_controls):
    points, controls, costates = problem(11, n_controls, 2, 3)
    states, _ = carry(kernel, points, controls)
    adjoint = pull_back(kernel, points, controls, costates, natural=True)
    for i in range(3):
        centers = states[i, :n_controls]
        ridge = flow._RIDGE[torch.float64]
        matrix = gram(kernel, centers, centers) + ridge * torch.eye(n_controls).double()
        close(2 / 3 * matrix @ adjoint.natural[i], adjoint.gradient[i], 1e-12)
    assert ridge <= 1e-4


@every_kernel
def test_natural_gradient_of_a_subset_in_single_precision(kernel):
    """2 dt (K_SS + ridge I) natural = dG/da, to single precision."""
    points, controls, costates = (t.float() for t in problem(60, 40, 2, 3))
    adjoint = pull_back(kernel, points, controls, costates, natural=True)
    states, _ = carry(kernel, points, controls)
    for i in range(3):
        centers = states[i, :40].double()
        matrix = gram(kernel, centers, centers) + flow._RIDGE[torch.float32] * torch.eye(40)
        close(2 / 3 * matrix @ adjoint.natural[i].double(), adjoint.gradient[i].double(), 1e-5)


@every_kernel
@pytest.mark.parametrize("engine", [ENGINE, CPUEngine()], ids=lambda engine: engine.name)
def test_metric_of_many_control_points(engine, kernel):
    """More than are filled in at a time, far from 0, steps side by side; it need not be exact."""
    n = 2 * flow._ROWS + 10
    generator = torch.Generator().manual_seed(0)
    centers, right = (torch.randn(s, n, 3, generator=generator) for s in (6, 5))
    centers, solution = centers + 50.0, right.clone()
    with engine.session():
        flow._solve(engine, kernel, centers, solution)
    for z, known, found in zip(centers[:-1].double(), right, solution, strict=True):
        matrix = gram(kernel, z, z) + flow._RIDGE[torch.float32] * torch.eye(n)
        close(matrix @ found.double(), known.double(), 1e-2)


def test_metric_of_a_subset_falls_back_to_double_precision(monkeypatch):
    """Where K_SS has no factor in single precision, its ridge being lost to rounding."""
    monkeypatch.setitem(flow._RIDGE, torch.float32, 0.0)
    generator = torch.Generator().manual_seed(0)
    centers, right = (torch.randn(n, 150, 1, generator=generator) for n in (3, 2))
    kernel = Kernel(width=20.0)
    double = right.double()
    flow._solve(ENGINE, kernel, centers, right)
    flow._solve(ENGINE, kernel, centers.double(), double)
    close(right.double(), double, 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_metric_without_a_factor_is_an_error(dtype):
    centers, right = torch.full((2, 3, 1), torch.nan, dtype=dtype), torch.ones(1, 3, 1, dtype=dtype)
    with pytest.raises(torch.linalg.LinAlgError):
        flow._solve(ENGINE, Kernel(), centers, right)


def test_natural_gradient_of_a_subset_survives_equal_control_points():
    points, controls, costates = problem(9, 4, 2, 2)
    points[1] = points[0]
    controls[:, 1] = controls[:, 0]
    adjoint = pull_back(Kernel(), points, controls, costates, natural=True)
    assert adjoint.natural.isfinite().all()


@pytest.mark.parametrize("n_controls", [7, 4])
def test_asking_for_the_natural_gradient_changes_nothing_else(n_controls):
    points, controls, costates = problem(7, n_controls, 2, 3)
    without, with_it = (
        pull_back(Kernel(), points, controls, costates, natural) for natural in (False, True)
    )
    assert torch.equal(without.gradient, with_it.gradient)
    assert torch.equal(without.costates, with_it.costates)


@every_kernel
@pytest.mark.parametrize("n_controls", [20, 6])
def test_float32_is_close_to_float64(kernel, n_controls):
    def run(dtype):
        points, controls, costates = problem(20, n_controls, 3, 4, dtype=dtype)
        states, energy = carry(kernel, points, controls)
        adjoint = pull_back(kernel, points, controls, costates)
        assert states.dtype == adjoint.gradient.dtype == adjoint.costates.dtype == dtype
        assert energy.dtype == torch.float64
        return states, energy, adjoint.gradient, adjoint.costates

    for single, double in zip(run(torch.float32), run(torch.float64), strict=True):
        close(single.double(), double, 1e-5)


@pytest.mark.parametrize("n_controls", [7, 4])
def test_arguments_are_left_alone(n_controls):
    arguments = problem(7, n_controls, 2, 3)
    before = [tensor.clone() for tensor in arguments]
    points, controls, costates = arguments
    pull_back(Kernel(), points, controls, costates, natural=True)
    assert all(map(torch.equal, before, arguments))
