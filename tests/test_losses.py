"""Losses against their formulas and autograd, and what they do to a fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from finemorphs import FineMorphsRegressor
from finemorphs.engines import choose_engine
from finemorphs.losses import Huber, Logistic, Loss, Squared
from finemorphs.objective import Objective
from finemorphs.sequence import ModuleSequence

RNG = np.random.default_rng(0)
OUTPUTS = torch.from_numpy(2 * RNG.standard_normal((7, 3)))
RESPONSES = torch.from_numpy(RNG.standard_normal((7, 3)))
ONE_HOT = torch.eye(3, dtype=torch.float64)[torch.tensor([0, 1, 2, 2, 1, 0, 0])]
CASES = [
    (Squared(), RESPONSES),
    (Huber(), RESPONSES),
    (Huber(2.0), RESPONSES),
    (Logistic(), ONE_HOT),
]


class Absolute(Loss):
    """A user's own."""

    def __call__(self, outputs, targets):
        errors = outputs - targets
        return errors.abs(), errors.sign()


@pytest.mark.parametrize(("loss", "targets"), CASES)
def test_derivatives_are_those_of_the_values(loss: Loss, targets: torch.Tensor) -> None:
    outputs = OUTPUTS.clone().requires_grad_()
    values, derivatives = loss(outputs, targets)
    (expected,) = torch.autograd.grad(values.sum(), outputs)
    torch.testing.assert_close(derivatives, expected)


def test_values_are_those_of_the_formulas() -> None:
    errors = (OUTPUTS - RESPONSES).abs()
    torch.testing.assert_close(Squared()(OUTPUTS, RESPONSES)[0], errors**2)
    straight = 2 * 0.7 * errors - 0.49
    huber = torch.where(errors <= 0.7, errors**2, straight)
    torch.testing.assert_close(Huber(0.7)(OUTPUTS, RESPONSES)[0], huber)
    logistic = torch.nn.functional.cross_entropy(OUTPUTS, ONE_HOT.argmax(1), reduction="none")
    torch.testing.assert_close(Logistic()(OUTPUTS, ONE_HOT)[0].sum(1), logistic)


def test_logistic_does_not_overflow() -> None:
    values, derivatives = Logistic()(torch.tensor([[1e4, 0.0]]), torch.tensor([[0.0, 1.0]]))
    assert values.sum().item() == 1e4
    torch.testing.assert_close(derivatives, torch.tensor([[1.0, -1.0]]))


@pytest.mark.parametrize(("loss", "targets"), CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_of_the_objective(loss: Loss, targets: torch.Tensor, weighted: bool) -> None:
    sequence = ModuleSequence.build("ADA", 2, 3, 7, n_steps=3)
    engine = choose_engine("reference", "cpu")[0]
    weights = torch.linspace(0.5, 2, 7, dtype=torch.float64) if weighted else None
    objective = Objective(sequence, engine, OUTPUTS[:, :2].contiguous(), targets, weights, loss)
    theta = torch.from_numpy(0.3 * RNG.standard_normal(sequence.n_parameters))
    direction = torch.from_numpy(RNG.standard_normal(len(theta)))
    found = objective.evaluate(theta, 0.7, natural=False).gradient @ direction
    step = 1e-6
    ahead, behind = (objective.evaluate(theta + s * direction, 0.7).value for s in (step, -step))
    assert float(found) == pytest.approx((ahead - behind) / (2 * step), rel=1e-7)


def test_huber_resists_outliers() -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (120, 1))
    truth = np.sin(2 * X[:, 0])
    y = truth + 0.05 * rng.standard_normal(120)
    y[::12] += 8
    errors = {
        loss: np.mean(
            (FineMorphsRegressor(loss=loss, random_state=0).fit(X, y).predict(X) - truth) ** 2
        )
        for loss in ("squared", "huber")
    }
    assert errors["huber"] < 0.5 * errors["squared"]


def test_a_loss_of_the_user() -> None:
    X = RNG.standard_normal((40, 2))
    y = X @ [1.0, -2.0]
    model = FineMorphsRegressor(loss=Absolute(), noise=0.1, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize("loss", ["cubic", None, np.ones(2)])
def test_an_unknown_loss_is_refused(loss: object) -> None:
    with pytest.raises(ValueError, match=r"loss=.* is not known; choose 'squared', 'huber', or"):
        FineMorphsRegressor(loss=loss).fit(np.ones((6, 1)), np.arange(6))


def test_huber_wants_a_positive_delta() -> None:
    with pytest.raises(ValueError, match="delta=0 is not usable"):
        Huber(0)
