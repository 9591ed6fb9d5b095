"""The inverse, the Jacobian, volumes, sensitivities, and the costs kept after training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import finemorphs
from finemorphs import FineMorphsClassifier, FineMorphsRegressor
from finemorphs.engines import choose_engine
from finemorphs.exceptions import NotInvertibleError
from finemorphs.inverse import invert
from finemorphs.kernels import Kernel
from finemorphs.modules import Diffeo

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 3)) * [1.0, 10.0, 0.1] + [5.0, 0.0, -1.0]
Y = np.sin(X[:, 0]) + 0.1 * X[:, 1] * (X[:, 2] + 1) * 10
STEP = 1e-5 * X.std(0)


def fitted(sequence: str = "ADA", **options: object) -> FineMorphsRegressor:
    options = {"random_state": 0, "max_iter": 25, **options}
    return FineMorphsRegressor(sequence, **options).fit(X, Y)


FITTED = fitted()


@pytest.mark.filterwarnings("error")
def test_states_are_a_data_frame_where_that_is_asked_for() -> None:
    model = fitted().set_output(transform="pandas")
    states = model.transform(X)
    assert list(states.columns) == list(model.get_feature_names_out())
    np.testing.assert_array_equal(states, FITTED.transform(X))
    np.testing.assert_allclose(model.inverse_transform(states), X)


def differences(function, rows: np.ndarray) -> np.ndarray:
    """Derivatives (n, .., d_X) by central differences."""
    columns = []
    for j, step in enumerate(STEP):
        ahead, behind = rows.copy(), rows.copy()
        ahead[:, j] += step
        behind[:, j] -= step
        columns.append((function(ahead) - function(behind)) / (2 * step))
    return np.stack(columns, -1)


# --- derivatives --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "gaussian"},
        {"kernel_order": 1},
        {"kernel_order": 2},
        {"kernel_order": 3},
        {"kernel_order": 4},
        {"sequence": "AD2A", "dims": 2, "kernel_width": "decreasing"},
        {"sequence": "DADA", "subset_size": 20, "n_steps": 4},
        {"sequence": "A"},
        {"input_warp": "power", "response_warp": "power"},
        {"n_members": 2, "n_steps": 3},
    ],
    ids=str,
)
def test_jacobian_is_that_of_the_predictions(options: dict) -> None:
    model = fitted(**options)
    rows = X[:10] + 0.1 * STEP
    found, expected = model.jacobian(rows), differences(model.predict, rows)
    assert found.shape == (10, 3)
    scale = np.abs(expected).max(0)
    np.testing.assert_allclose(found / scale, expected / scale, atol=1e-6)


def test_jacobian_of_several_responses() -> None:
    model = FineMorphsRegressor(random_state=0, max_iter=20).fit(X, np.stack([Y, Y**2], 1))
    found = model.jacobian(X[:5])
    assert found.shape == (5, 2, 3)
    np.testing.assert_allclose(found, differences(model.predict, X[:5]), rtol=1e-4, atol=1e-5)


def test_jacobian_of_a_classifier_is_that_of_its_outputs() -> None:
    label = np.digitize(Y, [-0.5, 0.5])
    model = FineMorphsClassifier(random_state=0, max_iter=20).fit(X, label)
    expected = differences(model.decision_function, X[:5])
    np.testing.assert_allclose(model.jacobian(X[:5]), expected, rtol=1e-5, atol=1e-6)


def test_rows_are_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = FITTED.jacobian(X), FITTED.log_det(X), FITTED.inverse_transform(FITTED.transform(X))
    monkeypatch.setattr("finemorphs.estimators._model._ROWS_AT_ONCE", 7)
    monkeypatch.setattr("finemorphs.modules.diffeo._NUMBERS_AT_ONCE", 200)
    parts = FITTED.jacobian(X), FITTED.log_det(X), FITTED.inverse_transform(FITTED.transform(X))
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


def test_log_determinants_are_those_of_the_flow() -> None:
    model = fitted("AD2A", dummy_dims=0, max_iter=60)
    determinants = model.log_det(X[:6])
    assert determinants.shape == (6, 2)
    slopes = differences(lambda rows: model.trajectory(rows)[-2][2], X[:6])
    _, total = np.linalg.slogdet(slopes * X.std(0))
    first = model.model_.sequence.affines[0]
    matrix, _ = first.views(model.model_.theta[: first.n_parameters].double())
    _, affine = np.linalg.slogdet(matrix.numpy())
    np.testing.assert_allclose(determinants.sum(1), total - affine, atol=1e-6)
    assert np.abs(determinants).max() > 0.01


# --- inverses -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dummy_dims": 0},
        {"sequence": "AD2A", "kernel_width": 0.3},
        {"sequence": "(AD)^2A"},
        {"sequence": "DA", "dummy_dims": 2},
        {"dims": 6},
        {"dims": 3},
        {"kernel": "gaussian", "n_steps": 3},
        {"input_warp": "quantile", "response_warp": "power"},
    ],
    ids=str,
)
def test_the_inverse_is_exact(options: dict) -> None:
    model = fitted(**options)
    error = (model.inverse_transform(model.transform(X)) - X) / X.std(0)
    assert np.abs(error).max() < 1e-8  # 1e-5 is what was asked for


def test_the_flow_run_backwards_has_an_error_of_the_step() -> None:
    errors = []
    for n_steps in (5, 20, 80):
        model = fitted(n_steps=n_steps, random_state=0)
        back = model.inverse_transform(model.transform(X), method="reverse")
        errors.append(np.abs((back - X) / X.std(0)).max())
    assert errors[0] > errors[1] > errors[2] > 1e-6
    assert errors[2] < errors[1] / 2


def test_an_affine_module_that_loses_dimensions_is_named() -> None:
    model = fitted(dims=2)
    states = model.transform(X)
    with pytest.raises(NotInvertibleError, match=r"A0 cannot .* the 3 directions .* keeps 2 \("):
        model.inverse_transform(states)
    shortest = model.inverse_transform(states, preimage="least-norm")
    np.testing.assert_allclose(model.transform(shortest), states, atol=1e-8)
    lengths = [np.linalg.norm((rows - X.mean(0)) / X.std(0), axis=1) for rows in (shortest, X)]
    assert (lengths[0] <= lengths[1] + 1e-9).all()


def one_center(control: float) -> tuple:
    """One step of a flow on the line, steered by a point at 0."""
    centers, controls = torch.zeros(1, 1, 1), torch.full((1, 1, 1), control)
    engine = choose_engine("reference", "cpu")[0]
    return engine, Kernel(width=0.5), centers.double(), controls.double()


def test_where_a_step_does_not_contract_newton_goes_on() -> None:
    # On one side z + v(z) is steep: the fixed point repels, and the map still rises.
    engine, kernel, centers, controls = one_center(3.0)
    z = torch.linspace(-2.5, -0.8, 18, dtype=torch.float64)[:, None]
    end = z + engine.product(kernel, z, centers[0], controls[0])
    assert (end.diff(dim=0) > 2 * z.diff(dim=0)).any()
    torch.testing.assert_close(invert(engine, kernel, end, centers, controls), z)


def test_a_module_that_folds_is_named() -> None:
    engine, kernel, centers, controls = one_center(10.0)
    module = Diffeo("D1", 1, kernel, 1, 1)
    fold = torch.tensor([[3.75]], dtype=torch.float64)
    with pytest.raises(NotInvertibleError, match="D1 cannot be inverted at these states: a step"):
        module.inverse(engine, controls.view(-1), centers, fold)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FITTED.inverse_transform(X), "Z has 3 columns, .* have 4; give what transform"),
        (lambda: FITTED.inverse_transform(X, method="both"), "method='both' is not known"),
        (lambda: FITTED.inverse_transform(X, preimage="any"), "preimage='any' is not known"),
        (lambda: fitted("A").inverse_transform(X), "no D module"),
    ],
)
def test_what_cannot_be_inverted_is_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# --- tables and costs ---------------------------------------------------------------------


def test_sensitivity_of_a_straight_line() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    y = frame["a"] - 2 * frame["b"]
    model = FineMorphsRegressor("A", noise=1e-3, dtype="float64", tol=1e-14).fit(frame, y)
    table = pd.DataFrame(model.sensitivity(frame)).set_index("feature")
    assert list(table.index) == ["a", "b", "c"]
    np.testing.assert_allclose(table["mean"], [1, -2, 0], atol=1e-5)
    np.testing.assert_allclose(table["rms"], [1, 2, 0], atol=1e-5)
    effect = [frame["a"].std() / y.std(), 2 * frame["b"].std() / y.std(), 0]
    np.testing.assert_allclose(table["effect"], effect, atol=1e-5)


def test_sensitivity_of_classes_and_of_one_row() -> None:
    model = FineMorphsClassifier(random_state=0, max_iter=5).fit(X, np.where(Y > 0, "up", "down"))
    table = model.sensitivity(X)
    assert table["response"].tolist() == ["down"] * 3 + ["up"] * 3
    assert table["feature"].tolist() == ["x0", "x1", "x2"] * 2
    assert (FITTED.sensitivity(X[:1])["effect"] == 0).all()


def test_the_costs_are_those_of_the_last_iteration(tmp_path: Path) -> None:
    model = fitted("AD2A", max_iter=300, dtype="float64")
    assert list(model.distance_) == ["D1", "D2"]
    assert sum(model.distance_.values()) == pytest.approx(model.history_["energy"][-1])
    assert list(model.stationarity_) == ["A0", "D1", "D2", "A2"]
    early = fitted("AD2A", max_iter=1, noise=model.noise_, dtype="float64")
    for name, norm in model.stationarity_.items():
        assert norm < 0.1 * max(early.stationarity_.values()), name
    model.save(tmp_path / "model")
    again = finemorphs.load(tmp_path / "model")
    assert again.distance_ == model.distance_
    assert again.stationarity_ == model.stationarity_
