"""Exported programs give what the estimator predicts, with nothing of this library."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pandas
import pytest
import torch

from finemorphs import FineMorphsClassifier, FineMorphsRegressor
from finemorphs.estimators._members import KernelModel

RNG = np.random.default_rng(0)
X = RNG.standard_normal((80, 3)) * [1.0, 100.0, 0.01] + [10.0, 0.0, 1.0]
X = X.astype(np.float32).astype(np.float64)  # what the programs take, to the bit
Y = 1000 + 50 * np.sin(2 * X[:, 0]) + X[:, 1] * (X[:, 2] - 1) * 10
MODELS = {
    "ADA": FineMorphsRegressor(random_state=0),
    "AD4A": FineMorphsRegressor("AD4A", random_state=0, kernel_width="decreasing", max_iter=60),
    "DA": FineMorphsRegressor("DA", random_state=0, n_steps=3, output_dims=2, subset_size=20),
    "A": FineMorphsRegressor("A", dummy_dims=0, random_state=0),
    "gaussian": FineMorphsRegressor(kernel="gaussian", random_state=0, kernel_width=0.3),
    "order 1": FineMorphsRegressor(kernel_order=1, random_state=0, max_iter=60),
    "quantile": FineMorphsRegressor(
        input_warp="quantile", response_warp="quantile", random_state=0, max_iter=40
    ),
    "power": FineMorphsRegressor(
        input_warp="power", response_warp="power", random_state=0, max_iter=40
    ),
    "members": FineMorphsRegressor(n_members=3, random_state=0, max_iter=20),
    "best": FineMorphsRegressor(preset="best", random_state=0, max_iter=10, n_steps=2),
}


def run_onnx(path: Path, rows: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"X": rows.astype(np.float32)})
    return result


def run_torch(path: Path, rows: np.ndarray) -> np.ndarray:
    program = torch.export.load(path).module()
    return program(torch.tensor(rows, dtype=torch.float32)).numpy()


@pytest.mark.parametrize("name", MODELS)
def test_onnx_predicts_the_same(name: str, tmp_path: Path) -> None:
    model = MODELS[name].fit(X, Y)
    model.export(tmp_path / "model.onnx")
    far = (X + X.std(0)).astype(np.float32).astype(np.float64)
    for rows in (X, X[:1], far):
        found, expected = run_onnx(tmp_path / "model.onnx", rows), model.predict(rows)
        assert found.dtype == np.float32
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 1e-5 * Y.std()


@pytest.mark.parametrize("kernel", ["matern", "gaussian"])
def test_a_torch_program_predicts_the_same(kernel: str, tmp_path: Path) -> None:
    model = FineMorphsRegressor(kernel=kernel, random_state=0, n_steps=2).fit(X, Y)
    model.export(tmp_path / "model.pt2", format="torch")
    for rows in (X, X[:1]):
        found, expected = run_torch(tmp_path / "model.pt2", rows), model.predict(rows)
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 1e-5 * Y.std()


def test_the_best_preset_has_a_kernel_regression() -> None:
    kinds = {type(member.model) for member in MODELS["best"].fit(X, Y).members_}
    assert KernelModel in kinds  # or the test above shows less than it says


def test_kernel_regressions_that_know_nothing(tmp_path: Path) -> None:
    model = MODELS["best"].fit(X, Y)
    kernels = [m.model for m in model.members_ if isinstance(m.model, KernelModel)]
    far = (X + 10 * X.std(0)).astype(np.float32).astype(np.float64)
    regression, x = kernels[0].regression, kernels[0].x_scaling.apply(far)
    free = replace(regression, anchors=regression.anchors[:0])
    assert (free.predict(x) != regression.predict(x)).any()
    model.export(tmp_path / "model.onnx")
    error = run_onnx(tmp_path / "model.onnx", far) - model.predict(far)
    assert np.abs(error).max() < 1e-5 * Y.std()


def test_kernel_regressions_of_mixed_features(tmp_path: Path) -> None:
    z = (X - X.mean(0)) / X.std(0)
    responses = np.sin(2 * (z[:, 0] - z[:, 1] + z[:, 2]))
    model = MODELS["best"].fit(X, responses)
    mixed = [m.model.regression.scales for m in model.members_ if "mixed" in m.name]
    assert any(not np.allclose(scales.metric, scales.metric.T, atol=0.01) for scales in mixed)
    model.export(tmp_path / "model.onnx")
    error = run_onnx(tmp_path / "model.onnx", X) - model.predict(X)
    assert np.abs(error).max() < 1e-5 * responses.std()


def test_several_responses(tmp_path: Path) -> None:
    responses = np.stack([Y, X[:, 0]], 1)
    model = FineMorphsRegressor(random_state=0, max_iter=30).fit(X, responses)
    model.export(tmp_path / "model.onnx")
    error = run_onnx(tmp_path / "model.onnx", X) - model.predict(X)
    assert (np.abs(error).max(0) < 1e-5 * responses.std(0)).all()


@pytest.mark.parametrize(("format", "run"), [("onnx", run_onnx), ("torch", run_torch)])
def test_a_classifier_gives_probabilities(format: str, run, tmp_path: Path) -> None:
    labels = np.array(["low", "middle", "high"])[np.digitize(Y, [980, 1020])]
    model = FineMorphsClassifier(random_state=0, n_steps=2, max_iter=40).fit(X, labels)
    model.export(tmp_path / "model", format)
    np.testing.assert_allclose(run(tmp_path / "model", X), model.predict_proba(X), atol=1e-6)


def test_metadata(tmp_path: Path) -> None:
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = FineMorphsClassifier(random_state=0, n_steps=2, max_iter=3).fit(frame, Y > 1000)
    model.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["features"]) == ["a", "b", "c"]
    assert json.loads(about["classes"]) == [False, True]
    assert [i.name for i in session.get_inputs()] == ["X"]
    assert [o.name for o in session.get_outputs()] == ["probabilities"]
    model.export(tmp_path / "model.pt2", "torch")
    extra = {"metadata.json": ""}
    torch.export.load(tmp_path / "model.pt2", extra_files=extra)
    assert json.loads(extra["metadata.json"])["features"] == ["a", "b", "c"]


def test_serving_does_not_import_this_library(tmp_path: Path) -> None:
    MODELS["ADA"].fit(X, Y).export(tmp_path / "model.onnx")
    code = (
        "import sys, numpy, onnxruntime\n"
        f"session = onnxruntime.InferenceSession({str(tmp_path / 'model.onnx')!r})\n"
        "session.run(None, {'X': numpy.zeros((2, 3), 'float32')})\n"
        "assert 'finemorphs' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    model = FineMorphsRegressor("A").fit(X, Y)
    with pytest.raises(ValueError, match="format='pmml' is not known; use 'onnx' or 'torch'"):
        model.export(tmp_path / "model", "pmml")


def test_without_onnx_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = FineMorphsRegressor("A").fit(X, Y)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"needs the package onnx.*finemorphs\[export\]"):
        model.export(tmp_path / "model")
