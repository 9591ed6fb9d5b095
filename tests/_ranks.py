"""One of three processes that fit together, run as a program: its number and a folder.

What it does, one thing after the other, is the list at the end; the results are files. Of the
tasks of two ranks the third process has no part. The last one kills rank 1.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from finemorphs import FineMorphsRegressor
from finemorphs.engines import choose_engine
from finemorphs.exceptions import DistributedError
from finemorphs.streams import ParquetStream

TASKS = (
    ("fit2", 2),
    ("fit3", 3),
    ("stream", 2),
    ("checkpoint", 2),
    ("resume", 3),
    ("seedless", 2),
    ("full", 2),
    ("differ", 3),
    ("raise", 3),
    ("die", 3),
)


def data(n=240):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 3))
    return x, np.sin(2 * x[:, 0]) + 0.3 * x[:, 1] + 0.1 * rng.standard_normal(n)


def model(**options):
    defaults = {"subset_size": 15, "n_steps": 3, "batch_size": 16, "max_iter": 15}
    return FineMorphsRegressor(**(defaults | {"random_state": 0} | options))


def fit(task, rank, folder):
    x, y = data()
    if task == "stream":
        return model().fit(ParquetStream(folder / "data.parquet", "y"))
    if task == "checkpoint":
        stop = [lambda record: record.iteration == 6]
        return model(checkpoint=folder / "ckpt", callbacks=stop).fit(x, y)
    if task == "resume":
        return model(checkpoint=folder / "ckpt", resume=True).fit(x, y)
    if task == "seedless":
        return model(random_state=None).fit(x, y)
    if task == "full":
        return model(subset_size=None).fit(x, y)
    if task == "differ" and rank == 1:
        return model().fit(x**3, y)
    if task == "raise" and rank == 1:
        return model(callbacks=[lambda record: 1 / (record.iteration - 3)]).fit(x, y)
    if task == "die" and rank == 1:
        return model(callbacks=[lambda record: record.iteration == 3 and os._exit(9)]).fit(x, y)
    return model().fit(x, y)


def main(rank, folder):
    torch.set_num_threads(1)
    for task, size in TASKS:
        if rank >= size:
            continue
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/store-{task}",
            rank=rank,
            world_size=size,
            timeout=timedelta(minutes=5),
        )
        began = time.monotonic()
        try:
            fitted = fit(task, rank, folder)
            found = fitted.model_.predict(data()[0], *choose_engine("cpu", "cpu"))[:, 0]
            np.save(folder / f"{task}-{rank}-predictions.npy", found)
            np.save(folder / f"{task}-{rank}-theta.npy", fitted.model_.theta.numpy())
        except (DistributedError, ValueError, ZeroDivisionError) as error:
            seconds = time.monotonic() - began
            text = f"{type(error).__name__}: {error}\n{seconds}"
            (folder / f"{task}-{rank}-error.txt").write_text(text)
        if task != "die":
            dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
