"""Ranks on CUDA devices: NCCL's operations, and a fit by two ranks that share a device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist
from _ranks import data, model

from finemorphs.distributed import _Processes, _Watch

pytestmark = pytest.mark.gpu


@pytest.fixture
def nccl(tmp_path):
    """A group of one rank: all that NCCL allows on one device."""
    store = f"file://{tmp_path}/store"
    dist.init_process_group("nccl", init_method=store, rank=0, world_size=1)
    watch = _Watch(0, 1)
    yield _Processes(watch, torch.device("cuda", 0))
    watch.stop()
    dist.destroy_process_group()


def test_nccl_carries_sums_least_numbers_and_values(nccl):
    numbers = torch.arange(5.0, device="cuda")
    nccl.sum(numbers, alike=torch.ones(3, device="cuda"))
    assert numbers.tolist() == [0, 1, 2, 3, 4]
    assert nccl.least(7) == 7
    assert nccl.share({"sigma": 0.5}) == {"sigma": 0.5}


def fit(rank, folder):
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    x, y = data()
    fitted = model().set_params(engine="cuda", device="cuda:0").fit(x, y)
    np.save(folder / f"{rank}.npy", fitted.predict(x))
    dist.destroy_process_group()


def test_two_ranks_on_a_device_train_the_model_of_one(tmp_path):
    torch.multiprocessing.spawn(fit, (tmp_path,), nprocs=2)
    x, y = data()
    expected = model().set_params(engine="cuda", device="cuda:0").fit(x, y).predict(x)
    found = [np.load(tmp_path / f"{rank}.npy") for rank in range(2)]
    assert np.array_equal(*found)
    np.testing.assert_allclose(found[0], expected, atol=1e-5 * y.std())
