"""The radial profiles: their formulas, their slopes, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from _oracles import (
    PROFILES,
    autograd,
    gram,
    one_thread,  # noqa: F401
)
from hypothesis import given
from hypothesis import strategies as st

from finemorphs.kernels import FAMILIES, MATERN_ORDERS, Kernel

KERNELS = [Kernel("matern", order, 0.7) for order in MATERN_ORDERS] + [
    Kernel("gaussian", width=0.7)
]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=str)


def line(start=0.0, stop=12.0, n=241):
    return torch.linspace(start, stop, n, dtype=torch.float64)


def test_every_family_and_order_is_tested():
    assert {(k.family, k.order) for k in KERNELS} == set(PROFILES)
    assert {k.family for k in KERNELS} == set(FAMILIES)
    assert MATERN_ORDERS == (1, 2, 3, 4)


def test_the_default_is_the_papers():
    assert Kernel() == Kernel("matern", 3, 0.5)


@every_kernel
def test_value_is_the_formula(kernel):
    u = line()
    expected = PROFILES[kernel.family, kernel.order](u)
    torch.testing.assert_close(kernel.value(u), expected, rtol=1e-14, atol=0)


@every_kernel
def test_value_is_one_at_zero(kernel):
    for dtype in (torch.float32, torch.float64):
        assert kernel.value(torch.zeros(1, dtype=dtype)).item() == 1.0


@every_kernel
def test_slope_is_the_derivative_over_u_by_finite_differences(kernel):
    u, step = line(0.05), 1e-5
    derivative = (kernel.value(u + step) - kernel.value(u - step)) / (2 * step)
    torch.testing.assert_close(kernel.slope(u), derivative / u, rtol=1e-5, atol=1e-9)


@every_kernel
def test_slope_is_the_derivative_over_u_by_autograd(kernel):
    u = line(1e-3)
    (derivative,) = autograd(lambda v: kernel.value(v).sum(), u)
    torch.testing.assert_close(kernel.slope(u), derivative / u, rtol=1e-9, atol=1e-12)


@every_kernel
def test_slope_has_a_limit_at_zero(kernel):
    """kappa is C^2 there: g(0) = kappa''(0), by the second difference."""
    step = torch.tensor([1e-4], dtype=torch.float64)
    second = 2 * (kernel.value(step) - 1) / step**2
    torch.testing.assert_close(kernel.slope(torch.zeros_like(step)), second, rtol=1e-3, atol=0)


@every_kernel
def test_slope_gives_the_gradient_of_the_kernel(kernel):
    """grad_1 K(x, y) = g(u) / h^2 (x - y)."""
    x = torch.tensor([[0.3, -0.2, 0.5]], dtype=torch.float64)
    y = torch.tensor([[-0.1, 0.4, 0.2]], dtype=torch.float64)
    (expected,) = autograd(lambda v: gram(kernel, v, y).sum(), x)
    u = (x - y).norm(dim=1) / kernel.width
    torch.testing.assert_close(kernel.slope(u)[:, None] / kernel.width**2 * (x - y), expected)


@every_kernel
def test_value_falls_to_zero_and_slope_is_negative(kernel):
    values = kernel.value(line(0.0, 30.0))
    assert (values.diff() < 0).all()
    assert (values > 0).all()
    assert values[-1] < 1e-7
    assert (kernel.slope(line(0.0, 30.0)) < 0).all()
    assert kernel.value(torch.tensor([1e4])).item() == 0.0


@every_kernel
@given(dim=st.integers(1, 4), seed=st.integers(0, 2**31))
def test_gram_matrices_are_positive_definite(kernel, dim, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(8, dim, dtype=torch.float64, generator=generator)
    matrix = kernel.value(torch.cdist(x, x) / kernel.width)
    assert torch.linalg.eigvalsh(matrix).min() > -1e-12
    controls = torch.randn(8, dtype=torch.float64, generator=generator)
    assert controls @ matrix @ controls > 0


@every_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_dtype_is_kept(kernel, dtype):
    u = line().to(dtype)
    assert kernel.value(u).dtype == kernel.slope(u).dtype == dtype
    tolerance = {torch.float32: 1e-6, torch.float64: 1e-15}[dtype]
    exact = kernel.value(u.double())
    torch.testing.assert_close(kernel.value(u).double(), exact, rtol=1e-5, atol=tolerance)


def test_an_unknown_family_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"'laplace' is not known; choose one of matern, gaussian"):
        Kernel("laplace")


def test_order_zero_is_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"kernel_order=0 .* not C\^1 .* use order 1 to 4"):
        Kernel("matern", 0)


@pytest.mark.parametrize("order", [-1, 5, 2.5, None])
def test_other_orders_are_refused(order):
    with pytest.raises(ValueError, match="is not a Matern order; choose one of 1, 2, 3, 4"):
        Kernel("matern", order)


def test_a_gaussian_does_not_look_at_the_order():
    u = line()
    torch.testing.assert_close(Kernel("gaussian", 0).value(u), Kernel("gaussian").value(u))


@pytest.mark.parametrize("width", [0.0, -0.5, float("nan"), float("inf")])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_width_is_positive_and_finite(family, width):
    with pytest.raises(ValueError, match="is not a width; give a positive, finite number"):
        Kernel(family, width=width)


def test_it_reads_as_words():
    assert str(Kernel("matern", 2, 0.25)) == "Matern-2, width 0.25"
    assert str(Kernel("gaussian", width=1.0)) == "Gaussian, width 1"
