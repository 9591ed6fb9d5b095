"""``finemorphs fit`` on several Parquet files, by one process and by two of torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch.distributed as dist
from typer.testing import CliRunner

import finemorphs
from finemorphs.cli._app import make_app

pytest.importorskip("pyarrow")

APP = make_app()
OPTIONS = ["--target", "y", "--subset-size", "12", "--n-steps", "3", "--max-iter", "10"]
OPTIONS += ["--random-state", "0", "--batch-size", "32"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stream")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((200, 2)), columns=["a", "b"])
    frame["y"] = np.sin(2 * frame["a"]) + frame["b"] + 0.1 * rng.standard_normal(200)
    (folder / "data").mkdir()
    for i in range(2):
        frame[100 * i : 100 * (i + 1)].to_parquet(folder / "data" / f"{i}.parquet")
    return folder


def run(*words):
    return CliRunner().invoke(APP, [str(word) for word in words])


@pytest.fixture(scope="module")
def model(folder):
    result = run("fit", *sorted((folder / "data").iterdir()), "--out", folder / "one", *OPTIONS)
    assert result.exit_code == 0, result.output
    assert "200 rows, read in blocks; 2 columns predict y" in result.output
    assert "errors on the last 20 rows" in result.output
    assert "ridge regression" in result.output
    return finemorphs.load(folder / "one")


def test_several_files_are_read_in_blocks(folder, model):
    frame = pd.read_parquet(folder / "data" / "0.parquet")
    assert model.score(frame[["a", "b"]], frame["y"]) > 0.8
    assert run("fit", folder / "data", "--out", folder / "two", *OPTIONS).exit_code == 0
    again = finemorphs.load(folder / "two")
    assert np.array_equal(again.predict(frame[["a", "b"]]), model.predict(frame[["a", "b"]]))


def test_the_model_predicts_files(folder, model):
    result = run(
        "predict", folder / "one", folder / "data" / "1.parquet", "--out", folder / "p.csv"
    )
    assert result.exit_code == 0, result.output
    assert len(pd.read_csv(folder / "p.csv")) == 100


def test_streams_without_control_points_are_refused(folder):
    result = run("fit", folder / "data", "--target", "y", "--out", folder / "no")
    assert result.exit_code == 2
    assert "subset_size=None does not go with a stream of 180 rows" in result.stderr


@pytest.mark.skipif(not dist.is_available(), reason="PyTorch without its distributed part")
def test_torchrun_trains_the_same_model(folder, model):
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(finemorphs.__file__).parents[1]),
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["-m", "finemorphs", "fit", folder / "data", "--out", folder / "ranks", *OPTIONS]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("saved") == 1
    frame = pd.read_parquet(folder / "data" / "0.parquet")[["a", "b"]]
    found, expected = finemorphs.load(folder / "ranks").predict(frame), model.predict(frame)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.ptp(expected))
