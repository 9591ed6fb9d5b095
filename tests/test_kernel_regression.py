"""Kernel regression: its gradient, its closed form, its derivative, its weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from finemorphs.kernel_regression import (
    Scales,
    _negative_likelihood,
    likely_scales,
    regress,
)

CPU = torch.device("cpu")


def data(n: int = 60, d: int = 3, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, d))
    y = np.stack([np.sin(2 * x[:, 0]), np.sign(x[:, 1])], axis=1)
    return x, y + noise * rng.standard_normal(y.shape)


def some_scales(d: int = 3) -> Scales:
    p = Scales.start(d).logarithms
    return Scales.of_logarithms(p + 0.3 * np.random.default_rng(1).standard_normal(len(p)))


def test_logarithms_are_undone():
    scales = some_scales()
    again = Scales.of_logarithms(scales.logarithms)
    np.testing.assert_allclose(again.smooth, scales.smooth)
    np.testing.assert_allclose(again.rough, scales.rough)
    assert again.noise == pytest.approx(scales.noise)


def test_gradient_of_the_likelihood_against_finite_differences():
    x, y = data(40)
    weights = np.random.default_rng(2).uniform(0.5, 2, 40)
    arguments = (*(torch.from_numpy(a) for a in (x, y, weights)), np.zeros(10))
    p, step = some_scales().logarithms, 1e-6
    _, gradient = _negative_likelihood(p, *arguments)
    for e, slope in zip(np.eye(len(p)), gradient, strict=True):
        up, down = (_negative_likelihood(p + s * step * e, *arguments)[0] for s in (1, -1))
        assert slope == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-5)


def test_value_is_the_likelihood_of_a_normal_vector():
    x, y = data(20)
    scales = some_scales()
    p = scales.logarithms
    value, _ = _negative_likelihood(p, *map(torch.from_numpy, (x, y, np.ones(20))), p)
    covariance = kernel_by_hand(scales, x, x) + (scales.noise + 1e-7) * np.eye(20)
    by_hand = sum(
        0.5 * y[:, j] @ np.linalg.solve(covariance, y[:, j])
        + 0.5 * np.linalg.slogdet(covariance)[1]
        for j in range(2)
    )
    assert value == pytest.approx(by_hand)


def kernel_by_hand(scales: Scales, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    delta = a[:, None] - b[None]
    r = np.sqrt(((scales.smooth * delta) ** 2).sum(2))
    q = (scales.rough * np.abs(delta)).sum(2)
    s0, s1, s2 = scales.parts
    return s0 * a @ b.T + s1 * (1 + r + r**2 / 3) * np.exp(-r) + s2 * np.exp(-q)


def test_prediction_is_the_closed_form():
    x, y = data()
    scales, weights = some_scales(), np.random.default_rng(2).uniform(0.5, 2, 60)
    covariance = kernel_by_hand(scales, x, x) + np.diag((scales.noise + 1e-7) / weights)
    other = np.random.default_rng(3).standard_normal((7, 3))
    expected = kernel_by_hand(scales, other, x) @ np.linalg.solve(covariance, y)
    model = regress(scales, x, y, weights, CPU)
    np.testing.assert_allclose(model.predict(other), expected, atol=1e-8)


def test_a_weight_of_two_is_the_row_twice():
    x, y = data(30)
    scales = some_scales()
    twice = regress(scales, np.r_[x, x[:10]], np.r_[y, y[:10]], np.ones(40), CPU)
    weighted = regress(scales, x, y, np.r_[np.full(10, 2.0), np.ones(20)], CPU)
    other = np.random.default_rng(3).standard_normal((7, 3))
    np.testing.assert_allclose(weighted.predict(other), twice.predict(other), atol=1e-5)


def test_jacobian_against_finite_differences():
    x, y = data()
    model = regress(some_scales(), x, y, np.ones(60), CPU)
    other, step = np.random.default_rng(3).standard_normal((7, 3)), 1e-6
    for j, e in enumerate(np.eye(3)):
        numeric = (model.predict(other + step * e) - model.predict(other - step * e)) / (2 * step)
        np.testing.assert_allclose(model.jacobian(other)[:, :, j], numeric, atol=1e-6)


def test_predictions_are_kept_to_the_range_of_the_responses():
    x, y = data()
    model = regress(some_scales(), x, y, np.ones(60), CPU)
    far = 10 * np.random.default_rng(3).standard_normal((40, 3))
    free = kernel_by_hand(model.scales, far, x) @ model.coefficients.numpy()
    margin = 0.1 * (y.max(0) - y.min(0))
    expected = np.clip(free, y.min(0) - margin, y.max(0) + margin)
    kept = free != expected
    assert 0.2 < kept.mean() < 0.9
    np.testing.assert_allclose(model.predict(far), expected, atol=1e-8)
    slopes = model.jacobian(far)
    assert not slopes[kept].any()
    assert slopes[~kept].any(1).all()


def test_likely_scales_find_what_matters():
    """The first response bends with feature 0, the second jumps with 1; feature 2 is nothing."""
    x, y = data(300)
    scales = likely_scales(x, y, np.ones(300), np.random.default_rng(0), CPU)
    assert scales.smooth[0] > 3 * scales.smooth[2]
    assert scales.rough[1] > 3 * scales.rough[2]
    new = np.random.default_rng(4).standard_normal((200, 3))
    truth = np.stack([np.sin(2 * new[:, 0]), np.sign(new[:, 1])], axis=1)
    errors = regress(scales, x, y, np.ones(300), CPU).predict(new) - truth
    assert np.sqrt((errors[:, 0] ** 2).mean()) < 0.1
    assert np.sqrt((errors[:, 1] ** 2).mean()) < 0.35


def test_a_sample_is_taken_of_many_rows():
    x, y = data(200)
    rng = np.random.default_rng(0)
    some = likely_scales(x, y, np.ones(200), rng, CPU, max_rows=50)
    assert np.isfinite(some.logarithms).all()
