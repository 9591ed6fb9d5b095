"""A whole fit on a CUDA device: recorded evaluations, the optimiser, memory that runs out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from finemorphs import FineMorphsRegressor, load
from finemorphs.engines import choose_engine
from finemorphs.estimators import _base
from finemorphs.exceptions import EngineError, MemoryLimitError
from finemorphs.losses import Huber, Logistic
from finemorphs.objective import Objective
from finemorphs.rows import Rows
from finemorphs.sequence import ModuleSequence

pytestmark = pytest.mark.gpu


def curve(n=200, seed=0):
    X = np.random.default_rng(seed).uniform(-1, 1, (n, 3))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2]


def normal(*shape, seed):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("n_controls", [60, 20])
@pytest.mark.parametrize("natural", [True, False])
def test_evaluations_agree_with_the_reference_again_and_again(n_controls, natural):
    sequence = ModuleSequence.build("AD2A", 4, 2, n_controls, n_steps=3)
    x, y = normal(60, 4, seed=0), normal(60, 2, seed=1)
    reference = Objective(sequence, choose_engine("reference", "cpu")[0], x, y)
    engine, device = choose_engine("cuda")
    objective = Objective(sequence, engine, x.float().to(device), y.float().to(device))
    for seed, sigma in ((2, 0.5), (3, 0.5), (3, 0.2)):
        theta = 0.3 * normal(sequence.n_parameters, seed=seed)
        right = reference.evaluate(theta, sigma, natural)
        ours = objective.evaluate(theta.float().to(device), sigma, natural)
        assert ours.value == pytest.approx(right.value, rel=1e-5)
        pairs = [(ours.gradient, right.gradient)]
        if natural and n_controls == 60:
            pairs.append((ours.natural, right.natural))
        for mine, theirs in pairs:
            assert (mine.cpu().double() - theirs).norm() <= 1e-5 * theirs.norm()


@pytest.mark.parametrize("loss", [Huber(), Logistic()], ids=["huber", "logistic"])
@pytest.mark.parametrize("n_controls", [60, 20])
def test_other_losses_and_rows_in_blocks(loss, n_controls):
    sequence = ModuleSequence.build("ADA", 3, 2, n_controls, n_steps=3)
    x = normal(60, 3, seed=0)
    y = torch.nn.functional.one_hot((x[:, 0] > 0).long(), 2).double()
    reference = Objective(sequence, choose_engine("reference", "cpu")[0], x, y, loss=loss)
    engine, device = choose_engine("cuda")
    rows = Rows(x.float().to(device), y.float().to(device))
    first, others = rows[:n_controls], rows[n_controls:].blocks(15)
    objective = Objective(sequence, engine, first.inputs, first.targets, loss=loss, others=others)
    for seed in (1, 2):
        theta = 0.3 * normal(sequence.n_parameters, seed=seed)
        right = reference.evaluate(theta, 0.5, natural=False)
        ours = objective.evaluate(theta.float().to(device), 0.5, natural=False)
        assert ours.value == pytest.approx(right.value, rel=1e-5)
        difference = ours.gradient.cpu().double() - right.gradient
        assert difference.norm() <= 1e-5 * right.gradient.norm()


def test_results_of_an_evaluation_are_not_overwritten_by_the_next():
    sequence = ModuleSequence.build("ADA", 3, 1, 50)
    engine, device = choose_engine("cuda")
    x = normal(50, 3, seed=0).float().to(device)
    objective = Objective(sequence, engine, x, x[:, :1].contiguous())
    first = objective.evaluate(0.1 * torch.ones(sequence.n_parameters, device=device), 0.5)
    kept = first.gradient.clone()
    objective.evaluate(0.2 * torch.ones(sequence.n_parameters, device=device), 0.5)
    assert torch.equal(first.gradient, kept)


def test_a_fit_learns_is_deterministic_and_can_be_taken_to_a_cpu(tmp_path):
    X, y = curve()
    one = FineMorphsRegressor(engine="cuda", random_state=0).fit(X, y)
    two = FineMorphsRegressor(engine="auto", random_state=0).fit(X, y)
    assert one.score(*curve(seed=1)) > 0.95
    assert torch.equal(one.model_.theta, two.model_.theta)
    one.save(tmp_path / "model")
    there = load(tmp_path / "model").set_params(engine="cpu")
    np.testing.assert_allclose(there.predict(X), one.predict(X), atol=1e-4 * y.std())


def test_a_subset_is_fitted_on_the_device():
    model = FineMorphsRegressor(engine="cuda", subset_size=40, random_state=0).fit(*curve(400))
    assert model.score(*curve(seed=1)) > 0.95


@pytest.mark.parametrize("subset_size", [None, 40])
@pytest.mark.parametrize("kind", ["quantile", "power"])
def test_the_error_of_warped_responses_is_measured_on_the_device(kind, subset_size):
    X, y = curve()
    options = {"response_warp": kind, "subset_size": subset_size, "dummy_dims": 0, "max_iter": 20}
    model = FineMorphsRegressor(engine="cuda", random_state=0, **options).fit(X, np.exp(y))
    error = np.sqrt(np.mean((model.predict(X) - np.exp(y)) ** 2))
    assert model.history_["rmse"][-1] == pytest.approx(error, rel=1e-2)


def test_memory_that_runs_out_is_explained_and_the_device_stays_usable(monkeypatch):
    X, y = curve()
    with pytest.raises(MemoryLimitError, match="give memory=5"):
        FineMorphsRegressor(engine="cuda", memory=50_000_000, random_state=0).fit(X, y)
    monkeypatch.setattr(_base, "check_memory", lambda *_: None)  # as if it had looked like enough
    with pytest.raises(EngineError, match="lower memory"):
        FineMorphsRegressor(engine="cuda", memory=50_000_000, random_state=0).fit(X, y)
    model = FineMorphsRegressor(engine="cuda", max_iter=3, noise=0.5, random_state=0).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
