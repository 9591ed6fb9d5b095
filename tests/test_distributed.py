"""Fits by several processes: the same model as by one, and an end when one is lost.

Three processes run every task of ``_ranks`` once; the tests look at what they left.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from _ranks import data, model

from finemorphs.distributed import ALONE, joined
from finemorphs.rows import share
from finemorphs.streams import ArrayStream

pq = pytest.importorskip("pyarrow.parquet")
pa = pytest.importorskip("pyarrow")
if not dist.is_available():
    pytest.skip("PyTorch without its distributed part", allow_module_level=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    x, y = data()
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y})
    pq.write_table(table, folder / "data.parquet", row_group_size=50)
    program = Path(__file__).with_name("_ranks.py")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([sys.executable, program, str(rank), folder], env=environment)
        for rank in range(3)
    ]
    assert [rank.wait(timeout=600) for rank in ranks] == [0, 9, 0]
    return folder


@pytest.fixture(scope="module")
def expected():
    """What one process predicts."""
    x, y = data()
    return model().fit(x, y).predict(x)


def arrays(folder, task, size, name):
    return [np.load(folder / f"{task}-{rank}-{name}.npy") for rank in range(size)]


def error(folder, task, rank):
    """The text of an error, and after how many seconds it came."""
    text, seconds = (folder / f"{task}-{rank}-error.txt").read_text().rsplit("\n", 1)
    return text, float(seconds)


@pytest.mark.parametrize("size", [2, 3])
def test_several_ranks_train_the_model_of_one(folder, expected, size):
    thetas = arrays(folder, f"fit{size}", size, "theta")
    assert all(np.array_equal(theta, thetas[0]) for theta in thetas)
    for predictions in arrays(folder, f"fit{size}", size, "predictions"):
        np.testing.assert_allclose(predictions, expected, rtol=0, atol=1e-5 * np.ptp(expected))


def test_several_ranks_read_a_stream(folder):
    x, y = data()
    expected = model().fit(ArrayStream(x, y)).predict(x)
    for predictions in arrays(folder, "stream", 2, "predictions"):
        np.testing.assert_allclose(predictions, expected, rtol=0, atol=1e-5 * np.ptp(expected))


def test_a_checkpoint_goes_on_with_another_number_of_ranks(folder, expected):
    """Stopped with two ranks, ended with three: the model of a fit that was never stopped."""
    for stopped in arrays(folder, "checkpoint", 2, "predictions"):
        assert np.abs(stopped - expected).max() > 1e-3 * np.ptp(expected)
    for predictions in arrays(folder, "resume", 3, "predictions"):
        np.testing.assert_allclose(predictions, expected, rtol=0, atol=1e-5 * np.ptp(expected))


def test_ranks_without_a_seed_share_one(folder):
    assert np.array_equal(*arrays(folder, "seedless", 2, "theta"))


def test_ranks_need_rows_to_share(folder):
    for rank in range(2):
        assert "2 processes share the rows that are not control" in error(folder, "full", rank)[0]


def test_ranks_that_no_longer_agree_are_named(folder):
    for rank in range(3):
        text, _ = error(folder, "differ", rank)
        assert "parameters of rank 1 differ from those of rank 0" in text


def test_a_rank_that_ends_with_an_error_is_named_by_the_others(folder):
    assert error(folder, "raise", 1)[0].startswith("ZeroDivisionError")
    for rank in (0, 2):
        text, _ = error(folder, "raise", rank)
        assert "DistributedError: rank 1 of 3 ended with an error (ZeroDivisionError" in text


def test_a_rank_that_dies_is_named_by_the_others(folder):
    for rank in (0, 2):
        text, _ = error(folder, "die", rank)
        assert "DistributedError: rank 1 of 3 has not been heard of" in text
        assert "with a checkpoint it goes on where it was" in text


def test_without_a_process_group_a_fit_is_alone():
    with joined(torch.device("cpu")) as group:
        assert group is ALONE
    assert ALONE.share("x") == "x"
    assert ALONE.least(3) == 3


@pytest.mark.parametrize(("n_blocks", "size"), [(10, 3), (2, 3), (0, 2), (7, 1)])
def test_every_block_is_in_one_share(n_blocks, size):
    places = [share(n_blocks, rank, size) for rank in range(size)]
    assert [i for first, last in places for i in range(first, last)] == list(range(n_blocks))
    lengths = [last - first for first, last in places]
    assert max(lengths) - min(lengths) <= 1
