from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finemorphs.datasets import make_rings, make_tori


def test_response_is_minus_cos_4r_on_a_disc_of_several_rings() -> None:
    X, y = make_rings(300, random_state=0)
    r = np.hypot(*X.T)
    assert X.shape == (300, 2)
    assert y.shape == (300,)
    np.testing.assert_allclose(y, -np.cos(4 * r), atol=1e-12)
    assert r.max() <= math.pi
    crests = np.unique(np.floor(r[y > 0.9] / (math.pi / 2)))
    assert len(crests) == 2


def test_points_are_spread_evenly_over_the_disc() -> None:
    X, _ = make_rings(20_000, random_state=0)
    inner = np.hypot(*X.T) < math.pi / 2
    assert inner.mean() == pytest.approx(1 / 4, abs=0.02)
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=0.05)


@given(st.integers(0, 2**32 - 1))
def test_one_seed_gives_one_dataset_and_leaves_the_global_state_alone(seed: int) -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    X, y = make_rings(20, noise=0.3, random_state=seed)
    again = make_rings(20, noise=0.3, random_state=np.random.default_rng(seed))
    np.testing.assert_array_equal(X, again[0])
    np.testing.assert_array_equal(y, again[1])
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_noise_has_the_standard_deviation_asked_for() -> None:
    clean, noisy = make_rings(5000, random_state=1), make_rings(5000, noise=0.5, random_state=1)
    np.testing.assert_array_equal(clean[0], noisy[0])
    assert np.std(noisy[1] - clean[1]) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("n_samples", [0, -3])
def test_too_few_samples_are_refused(n_samples: int) -> None:
    with pytest.raises(ValueError, match="n_samples"):
        make_rings(n_samples)


@pytest.mark.parametrize("noise", [-0.1, math.inf, math.nan])
def test_noise_that_is_no_standard_deviation_is_refused(noise: float) -> None:
    with pytest.raises(ValueError, match="noise"):
        make_rings(10, noise=noise)


@pytest.mark.parametrize("bad", [{"n_samples": 2.5}, {"n_samples": "many"}, {"noise": "some"}])
def test_wrong_types_are_refused_by_name(bad: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=next(iter(bad))):
        make_rings(**bad)  # type: ignore[arg-type]


def test_tori_are_two_linked_surfaces() -> None:
    X, y = make_tori(1001, random_state=0)
    assert X.shape == (1001, 3)
    assert np.bincount(y).tolist() == [501, 500]
    flat, upright = X[y == 0], X[y == 1]
    tube = np.hypot(np.hypot(flat[:, 0], flat[:, 1]) - 1, flat[:, 2])
    np.testing.assert_allclose(tube, 0.35)
    tube = np.hypot(np.hypot(upright[:, 0] - 1, upright[:, 2]) - 1, upright[:, 1])
    np.testing.assert_allclose(tube, 0.35)
    # The core of the second goes through the hole of the first, and they do not touch.
    assert (np.hypot(upright[:, 0], upright[:, 1]) < 0.65).any()
    assert np.linalg.norm(flat[:, None] - upright[None], axis=2).min() > 0.2


def test_tori_are_spread_by_area_and_noise_moves_them() -> None:
    X, y = make_tori(20_000, random_state=0)
    outside = np.hypot(X[y == 0, 0], X[y == 0, 1]) > 1
    assert outside.mean() == pytest.approx(0.5 + 0.35 / np.pi, abs=0.01)
    noisy, _ = make_tori(20_000, noise=0.1, random_state=0)
    assert np.std(noisy - X) == pytest.approx(0.1, rel=0.02)
    np.testing.assert_array_equal(make_tori(20_000, random_state=0)[0], X)
    with pytest.raises(ValueError, match="n_samples"):
        make_tori(0)
