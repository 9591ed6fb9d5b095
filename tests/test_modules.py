"""The two kinds of module: starts, maps, costs, pulled-back costates, the affine metric."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from _oracles import (
    autograd,
    one_thread,  # noqa: F401
)
from hypothesis import given
from hypothesis import strategies as st

from finemorphs.engines.reference import ReferenceEngine
from finemorphs.kernels import Kernel
from finemorphs.modules import Affine, Diffeo

ENGINE = ReferenceEngine()


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# --- affine -------------------------------------------------------------------------------


def test_affine_parameters_are_the_table_of_matrix_and_offset():
    module = Affine("A0", 3, 2)
    theta = torch.arange(8.0)
    matrix, offset = module.views(theta)
    assert module.n_parameters == 8
    assert matrix.tolist() == [[0, 1, 2], [4, 5, 6]]
    assert offset.tolist() == [3, 7]
    matrix[0, 0] = 9.0  # views, not copies
    assert theta[0] == 9.0


@given(d_in=st.integers(1, 5), d_out=st.integers(1, 5), seed=st.integers(0, 2**31))
def test_affine_maps_every_row(d_in, d_out, seed):
    module = Affine("A0", d_in, d_out)
    theta, x = normal(module.n_parameters, seed=seed), normal(4, d_in, seed=seed + 1)
    matrix, offset = module.views(theta)
    expected = torch.stack([matrix @ row + offset for row in x])
    torch.testing.assert_close(module.apply(theta, x), expected)
    torch.testing.assert_close(module.forward(ENGINE, theta, x).output, expected)


@pytest.mark.parametrize("towards_identity", [False, True])
def test_affine_backward_agrees_with_autograd(towards_identity):
    module = Affine("A1", 3, 3, 0.7, towards_identity)
    theta, x, costates = normal(12), normal(5, 3, seed=1), normal(5, 3, seed=2)

    def cost(theta, x):
        step = module.forward(ENGINE, theta, x)
        return step.cost + (costates * step.output).sum()

    by_theta, by_x = autograd(cost, theta, x)
    cache = module.forward(ENGINE, theta, x).cache
    back = module.backward(ENGINE, theta, cache, costates, natural=True)
    torch.testing.assert_close(back.gradient, by_theta)
    torch.testing.assert_close(back.costates, by_x)
    assert back.natural is None


def test_affine_cost_is_the_distance_from_its_center():
    x = torch.zeros(1, 3, dtype=torch.float64)
    identity = torch.cat([torch.eye(3), torch.full((3, 1), 5.0)], 1).double().view(-1)
    assert Affine("A1", 3, 3, 2.0, True).forward(ENGINE, identity, x).cost == 0
    assert Affine("A1", 3, 3, 2.0).forward(ENGINE, identity, x).cost == 6
    assert Affine("A1", 3, 3, 0.0).forward(ENGINE, identity, x).cost == 0


def test_affine_start_has_entries_of_variance_one_over_d():
    module = Affine("A0", 50, 400)
    matrix, offset = module.views(torch.as_tensor(module.start(np.random.default_rng(0))))
    assert float(matrix.var()) == pytest.approx(1 / 50, rel=0.05)
    assert float(matrix.mean()) == pytest.approx(0, abs=0.005)
    assert not offset.any()


def test_affine_start_near_the_identity():
    module = Affine("A1", 4, 4, 1.0, towards_identity=True)
    matrix, offset = module.views(torch.as_tensor(module.start(np.random.default_rng(0))))
    assert torch.equal(matrix, torch.diag(matrix.diagonal()))
    assert (matrix.diagonal() - 1).abs().max() < 0.05
    assert (matrix.diagonal() != 1).all()
    assert not offset.any()


@pytest.mark.parametrize("weighted", [False, True])
def test_affine_metric_is_its_formula(weighted):
    """B = 2 lambda I' + curvature sum_k w_k xi_k xi_k^T, no lambda on the offset."""
    module, x = Affine("A0", 3, 2, 0.7), normal(6, 3)
    weights = normal(6, seed=1).abs() if weighted else None
    metric = module.metric(module.gram(x, weights), torch.tensor(0.3, dtype=torch.float64))
    expected = torch.diag(torch.tensor([1.4, 1.4, 1.4, 0.0], dtype=torch.float64))
    for k in range(6):
        xi = torch.cat([x[k], x.new_ones(1)])
        expected += 0.3 * (1.0 if weights is None else weights[k]) * torch.outer(xi, xi)
    torch.testing.assert_close(metric, expected, rtol=1e-8, atol=1e-8)


def test_affine_solve_divides_by_the_metric():
    module, x = Affine("A0", 3, 2, 0.7), normal(6, 3)
    metric = module.metric(module.gram(x, None), torch.tensor(0.3, dtype=torch.float64))
    gradient = normal(8, seed=1)
    factor = torch.linalg.cholesky(metric)
    solved = module.solve(factor, gradient)
    torch.testing.assert_close((solved.view(2, 4) @ metric).view(-1), gradient)
    assert module.solve(factor, gradient.float()).dtype == torch.float32


def test_affine_metric_can_be_solved_for_without_ridge_and_with_collinear_columns():
    module, column = Affine("A0", 3, 2, ridge=0.0), normal(6, 1)
    x = torch.cat([column, 2 * column, torch.zeros_like(column)], 1)
    metric = module.metric(module.gram(x, None), torch.tensor(0.3, dtype=torch.float64))
    assert module.solve(metric, normal(8)).isfinite().all()


# --- diffeo -------------------------------------------------------------------------------


def test_diffeo_backward_agrees_with_differences():
    module = Diffeo("D1", 2, Kernel(width=0.9), 3, 6)
    theta, x = normal(module.n_parameters), normal(6, 2, seed=1)
    costates, direction = normal(6, 2, seed=2), normal(module.n_parameters, seed=3)

    def cost(theta):
        step = module.forward(ENGINE, theta, x)
        return float(step.cost + (costates * step.output).sum())

    cache = module.forward(ENGINE, theta, x).cache
    back = module.backward(ENGINE, theta, cache, costates, natural=False)
    slope = (cost(theta + 1e-6 * direction) - cost(theta - 1e-6 * direction)) / 2e-6
    assert float(back.gradient @ direction) == pytest.approx(slope, rel=1e-6)
    assert back.natural is None
    twin = module.backward(ENGINE, theta, cache, costates, natural=True).natural
    assert twin.shape == theta.shape


def test_diffeo_parameters_are_the_controls_of_its_steps():
    module = Diffeo("D1", 2, Kernel(), 3, 4)
    theta = torch.arange(24.0)
    assert module.n_parameters == 24
    assert module.controls(theta).shape == (3, 4, 2)
    assert module.controls(theta)[1, 0].tolist() == [8, 9]
    assert module.d_in == module.d_out == module.dim == 2


def test_diffeo_starts_without_motion():
    module = Diffeo("D1", 2, Kernel(), 3, 4)
    theta, x = torch.as_tensor(module.start(np.random.default_rng(0))), normal(4, 2)
    step = module.forward(ENGINE, theta, x)
    assert torch.equal(step.output, x)
    assert step.cost == 0


def test_diffeo_transports_other_rows_between_the_training_rows():
    """A row that stands on a control point goes where it goes."""
    module = Diffeo("D1", 2, Kernel(), 3, 4)
    theta, x = normal(24), normal(4, 2, seed=1)
    step = module.forward(ENGINE, theta, x)
    states = module.transport(ENGINE, theta, step.cache.states[:-1], x[2:3])
    torch.testing.assert_close(states[-1], step.output[2:3])
