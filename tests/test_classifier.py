"""The classifier: its probabilities, its labels, its weights, its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import finemorphs
from finemorphs import FineMorphsClassifier, FineMorphsRegressor
from finemorphs.datasets import make_tori

X, Y = load_iris(return_X_y=True)
X, Y = X[::2], Y[::2]
NAMES = np.array(["setosa", "versicolor", "virginica"])
FITTED = FineMorphsClassifier(random_state=0, n_steps=5).fit(X, NAMES[Y])


def test_without_a_diffeomorphism_it_is_logistic_regression() -> None:
    standardised = (X - X.mean(0)) / X.std(0)
    # Ours costs |M|^2, scikit-learn's |M|^2 / (2 C); neither prices the offsets.
    theirs = LogisticRegression(C=0.5, tol=1e-10).fit(standardised, Y)
    ours = FineMorphsClassifier("A", dummy_dims=0, noise=1.0, dtype="float64", tol=1e-13)
    ours.fit(X, Y)
    expected = theirs.predict_proba(standardised)
    np.testing.assert_allclose(ours.predict_proba(X), expected, atol=1e-5)


def test_linked_tori_come_apart() -> None:
    table, label = make_tori(500, random_state=1)
    model = FineMorphsClassifier(random_state=0).fit(table[:300], label[:300])
    assert model.score(table[300:], label[300:]) > 0.98
    line = LogisticRegression().fit(table[:300], label[:300])
    assert line.score(table[300:], label[300:]) < 0.8


def test_labels_come_back_as_they_were() -> None:
    assert FITTED.classes_.tolist() == NAMES.tolist()
    assert set(FITTED.predict(X)) <= set(NAMES)
    assert FITTED.score(X, NAMES[Y]) > 0.95


def test_the_three_views_of_an_output_agree() -> None:
    outputs, probabilities = FITTED.decision_function(X), FITTED.predict_proba(X)
    assert outputs.shape == probabilities.shape == (len(X), 3)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_array_equal(outputs.argmax(1), probabilities.argmax(1))
    np.testing.assert_array_equal(FITTED.predict(X), NAMES[outputs.argmax(1)])
    ratio = np.log(probabilities[:, 1] / probabilities[:, 0])
    np.testing.assert_allclose(ratio, outputs[:, 1] - outputs[:, 0], atol=1e-9)


def test_two_classes_have_one_column_of_log_odds() -> None:
    model = FineMorphsClassifier(random_state=0, n_steps=2).fit(X, Y == 1)
    odds = model.decision_function(X)
    assert odds.shape == (len(X),)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-odds)))
    np.testing.assert_array_equal(model.predict(X), odds > 0)


def test_balanced_classes_are_weighted_by_their_rarity() -> None:
    rng = np.random.default_rng(0)
    table = np.concatenate([rng.normal(0, 1, (150, 2)), rng.normal(1, 1, (15, 2))])
    label = np.repeat([0, 1], [150, 15])
    plain = FineMorphsClassifier(random_state=0, n_steps=2).fit(table, label)
    balanced = FineMorphsClassifier(random_state=0, n_steps=2, class_weight="balanced")
    balanced.fit(table, label)
    by_hand = FineMorphsClassifier(random_state=0, n_steps=2)
    by_hand.fit(table, label, sample_weight=np.where(label == 1, 165 / 30, 165 / 300))
    assert (balanced.predict(table) == 1).sum() > 1.5 * (plain.predict(table) == 1).sum()
    np.testing.assert_array_equal(balanced.predict_proba(table), by_hand.predict_proba(table))
    doubled, twice = np.concatenate([table, table]), np.concatenate([label, np.ones_like(label)])
    left_out = np.repeat([1.0, 0.0], len(table))
    again = FineMorphsClassifier(random_state=0, n_steps=2, class_weight="balanced")
    again.fit(doubled, twice, left_out)
    np.testing.assert_array_equal(balanced.predict_proba(table), again.predict_proba(table))


@pytest.mark.parametrize(
    "labels",
    [NAMES, NAMES.astype(object), np.array([3, -1, 7]), np.array([0.0, 2.0, 1.0])],
    ids=["strings", "objects", "ints", "floats"],
)
def test_a_file_keeps_the_labels(labels: np.ndarray, tmp_path: Path) -> None:
    model = FineMorphsClassifier(random_state=0, n_steps=2, max_iter=5).fit(X, labels[Y])
    model.save(tmp_path / "model")
    again = finemorphs.load(tmp_path / "model")
    assert isinstance(again, FineMorphsClassifier)
    assert again.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(again.classes_, model.classes_)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_parameters_are_those_of_the_regressor() -> None:
    ours, theirs = FineMorphsClassifier().get_params(), FineMorphsRegressor().get_params()
    of_responses = {"loss", "input_warp", "response_warp", "preset", "n_members"}
    assert ours.keys() - {"class_weight"} == theirs.keys() - of_responses
    others = {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]}
    assert others == {"noise", "tol"}


def test_callbacks_see_the_loss_fall() -> None:
    seen = []
    FineMorphsClassifier(random_state=0, n_steps=2, callbacks=[seen.append]).fit(X, Y)
    assert seen[-1].rmse < seen[0].rmse
    assert seen[-1].endpoint == pytest.approx(len(X) * seen[-1].rmse ** 2)


@pytest.mark.parametrize(
    ("options", "labels", "message"),
    [
        ({}, np.zeros(len(X)), "y holds one class, .*; a classifier needs rows of two or more"),
        ({"noise": "auto"}, Y, "noise='auto' is estimated from responses, .* a positive number"),
        ({"noise": -1}, Y, "noise=-1 is not usable"),
        ({"class_weight": "equal"}, Y, "class_weight"),
    ],
)
def test_what_cannot_work_is_refused(options: dict, labels: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FineMorphsClassifier(**options).fit(X, labels)
