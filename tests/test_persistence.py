"""Model files: the same model back, and clear words where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import finemorphs
from finemorphs import FineMorphsClassifier, FineMorphsRegressor, _safetensors, load
from finemorphs.exceptions import ModelFileError
from finemorphs.losses import Huber

DATA = Path(__file__).parent / "data"
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (40, 3))
Y = np.column_stack([np.sin(3 * X[:, 0]), X[:, 1] * X[:, 2]])


def fit(y=Y, **options):
    return FineMorphsRegressor(max_iter=10, noise=0.5, random_state=0, **options).fit(X, y)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": "float64", "kernel": "gaussian"},
        {"sequence": "AD^2A^2", "kernel_width": (0.7, 0.3), "n_steps": [3, 4], "subset_size": 15},
        {"sequence": "(AD)^2A", "inner_affine": "identity", "ridge": np.array([1.0, 2.0, 3.0])},
        {"sequence": "A", "callbacks": [print], "random_state": 3},
    ],
)
def test_predictions_are_equal_to_the_bit(tmp_path, options, capsys):
    model = FineMorphsRegressor(**{"max_iter": 10, "noise": 0.5, "random_state": 0, **options})
    model.fit(X, Y)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    for name in ("noise_", "objective_", "n_iter_", "n_evaluations_", "converged_", "status_"):
        assert getattr(again, name) == getattr(model, name)
    assert again.sequence_ == model.sequence_
    for name, column in model.history_.items():
        np.testing.assert_array_equal(again.history_[name], column)


def test_one_response_and_column_names_come_back(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "b", "ü"])
    model = FineMorphsRegressor(max_iter=5, noise=0.5, random_state=0).fit(frame, Y[:, 0])
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert list(again.feature_names_in_) == ["a", "b", "ü"]
    assert again.predict(frame).shape == (40,)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[["b", "a", "ü"]])


def test_a_loaded_model_can_be_fitted_again(tmp_path):
    fit().save(tmp_path / "model")
    again = load(tmp_path / "model").set_params(warm_start=True)
    before = again.objective_
    assert again.fit(X, Y).objective_ < before


def test_an_unfitted_model_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        FineMorphsRegressor().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        load(tmp_path / "nothing")
    (tmp_path / "text").write_text("not a model")
    with pytest.raises(
        ModelFileError, match="is not a finemorphs file: it begins with b'not a mo'"
    ):
        load(tmp_path / "text")
    save_file({"weight": torch.ones(3)}, tmp_path / "other")
    with pytest.raises(ModelFileError, match="not one that finemorphs wrote"):
        load(tmp_path / "other")


def test_a_truncated_file_is_refused(tmp_path):
    fit().save(tmp_path / "model")
    data = (tmp_path / "model").read_bytes()
    for length in (0, 7, 8, 100, len(data) // 2, len(data) - 1):
        (tmp_path / "cut").write_bytes(data[:length])
        with pytest.raises(ModelFileError):
            load(tmp_path / "cut")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The bytes of a model file."""
    path = tmp_path_factory.mktemp("saved") / "model"
    fit().save(path)
    return path.read_bytes()


def _rewrite(path, change_header=None, change_tensors=None, **metadata):
    """A model file with something in it changed."""
    with safe_open(path, framework="pt") as file:
        old = file.metadata()
        del old["sha256"]  # made anew
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    header = json.loads(old["header"])
    if change_header:
        change_header(header)
    if change_tensors:
        change_tensors(tensors)
    with path.open("wb") as file:
        _safetensors.write(file, tensors, {**old, "header": json.dumps(header), **metadata})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "99"}, "version 99.*reads up to 2"),
        ({"version": "x"}, "no readable format version"),
        ({"change_header": lambda h: h.update(estimator="Other")}, "'Other'"),
        ({"change_header": lambda h: h.pop("modules")}, "'modules' is None where list"),
        ({"change_header": lambda h: h["modules"].pop()}, "the modules 'AD'"),
        ({"change_header": lambda h: h["modules"].append(3)}, "does not describe a module"),
        ({"change_header": lambda h: h["modules"][0].update(d_in=10**30)}, "shape|dimensions"),
        ({"change_header": lambda h: h["modules"][0].update(d_in=True)}, "'d_in' is True"),
        ({"change_header": lambda h: h["modules"][0].update(ridge="1")}, "'ridge'"),
        ({"change_header": lambda h: h["modules"][0].update(ridge=float("nan"))}, "'ridge' is nan"),
        ({"change_header": lambda h: h["modules"][0].update(name="A0; rm")}, "calls a module"),
        ({"change_header": lambda h: h["modules"][1].update(n_controls=0)}, "n_controls=0"),
        ({"change_header": lambda h: h["modules"][1].update(n_steps=10**12)}, "shape"),
        ({"change_header": lambda h: h["modules"][1].update(kernel=[])}, "'kernel'"),
        ({"change_header": lambda h: h.update(sequence="A" * 10**6)}, "the modules 'ADA'"),
        ({"change_header": lambda h: h.update(estimator=["x"])}, "does not know"),
        ({"change_header": lambda h: h.update(parameters=[])}, "'parameters'"),
        ({"change_header": lambda h: h["parameters"].update(engine=[])}, "engine"),
        ({"change_header": lambda h: h["parameters"].update(n_steps=-3)}, "n_steps=-3"),
        ({"change_header": lambda h: h["fitted"].pop("status_")}, "'status_' is None"),
        ({"change_header": lambda h: h["fitted"].pop("_n_response_axes")}, "_n_response_axes"),
        ({"change_header": lambda h: h["fitted"].update(_n_response_axes=1)}, "axes of the resp"),
        ({"change_header": lambda h: h["modules"].extend(h["modules"] * 99)}, "300 modules"),
        ({"change_header": lambda h: h["fitted"].update(n_iter_=7)}, r"history.*\(7,\)"),
        ({"change_header": lambda h: h["fitted"].update(n_features_in_=30)}, "30 columns"),
        ({"change_header": lambda h: h["fitted"].update(n_features_in_=2)}, "x_mean"),
        ({"change_header": lambda h: h.update(feature_names=["a"])}, "not 3 texts"),
        ({"change_header": lambda h: h.update(feature_names=[1, 2, 3])}, "not 3 texts"),
        ({"change_header": lambda h: h.update(notes=[1])}, "'notes'"),
        ({"change_header": lambda h: h["modules"][0].update(kind="Spline")}, "'Spline'"),
        ({"change_header": lambda h: h["modules"][1]["kernel"].update(width=-1)}, "width"),
        ({"change_header": lambda h: h["parameters"].update(colour="red")}, "colour"),
        ({"change_tensors": lambda t: t.pop("theta")}, "theta"),
        ({"change_tensors": lambda t: t.update(theta=torch.ones(3))}, r"shape \(3,\)"),
        ({"change_tensors": lambda t: t.update(x_mean=torch.ones(2))}, "x_mean"),
        ({"change_tensors": lambda t: t.update(x_mean=torch.ones(3))}, "x_mean.*float32"),
        ({"change_tensors": lambda t: t["x_scale"].zero_()}, "'x_scale' is not positive"),
        ({"change_tensors": lambda t: t["theta"].fill_(torch.nan)}, "'theta'.*not finite"),
        ({"change_tensors": lambda t: t.update(theta=t["theta"].int())}, "no parameters"),
        ({"change_tensors": lambda t: t.update(y_mean=torch.ones(0).double())}, "to 0 by"),
        ({"change_tensors": lambda t: t.pop("history.rmse")}, "history.rmse"),
    ],
)
def test_files_that_do_not_fit_together_are_refused(tmp_path, saved, change, words):
    path = tmp_path / "model"
    path.write_bytes(saved)
    _rewrite(path, **change)
    with pytest.raises(ModelFileError, match=words):
        load(path)


def test_the_package_offers_its_public_names():
    assert set(finemorphs.__all__) <= set(dir(finemorphs))
    for name in finemorphs.__all__:
        assert getattr(finemorphs, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        finemorphs.nothing  # noqa: B018


def test_a_file_of_the_first_format_version_is_read():
    """Written by finemorphs 0.1 and kept as it was."""
    expected = json.loads((DATA / "model-version-1.json").read_text("utf-8"))
    model = load(DATA / "model-version-1.fm")
    frame = pd.DataFrame(expected["X"], columns=["speed", "angle", "ü"])
    np.testing.assert_allclose(model.predict(frame), expected["predictions"], rtol=1e-10)
    assert model.sequence_ == "AD^2A"
    assert model.objective_ == expected["objective"]
    assert model.status_ == expected["status"]
    assert len(model.history_["objective"]) == model.n_iter_ == expected["n_iter"]


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ({"dtype": "<U100000000", "labels": ["a", "b"]}, None),
        ({"dtype": "O", "labels": ["a", "b"]}, None),
        ({"dtype": "<i8", "labels": [1, "x"]}, "whole model"),
        ({"dtype": "V100000000", "labels": [0, 1]}, "whole model"),
        ({"dtype": "no dtype", "labels": [0, 1]}, "whole model"),
        ({"dtype": "<i8", "labels": [0]}, "not those of 2 classes"),
        ({"dtype": "<i8", "labels": [1, 1]}, "not those of 2 classes"),
        ({"dtype": "<i8", "labels": [[1], [2]]}, "whole model"),
        ({"dtype": "<i8"}, "'labels'"),
    ],
)
def test_labels_are_checked(tmp_path, classes, words):
    path = tmp_path / "model"
    FineMorphsClassifier(max_iter=2, random_state=0).fit(X, X[:, 0] > 0).save(path)
    _rewrite(path, change_header=lambda h: h.update(classes=classes))
    if words is None:
        assert load(path).classes_.tolist() == classes["labels"]
    else:
        with pytest.raises(ModelFileError, match=words):
            load(path)


def test_a_loaded_model_does_not_write_where_its_file_says(tmp_path, saved):
    path = tmp_path / "model"
    path.write_bytes(saved)
    _rewrite(path, lambda h: h["parameters"].update(checkpoint=str(tmp_path / "c"), resume=True))
    model = load(path)
    assert model.checkpoint is None
    assert not model.resume


def test_what_a_file_cannot_hold_is_left_at_its_default(tmp_path):
    model = fit(loss=Huber(0.3), callbacks=[lambda record: None])
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.loss == "squared"
    assert again.callbacks is None
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
