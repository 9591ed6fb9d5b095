"""Fits in processes that a test kills.

``python _killed.py`` is a server: for each line "CHECKPOINT RESULT SLOW" on its standard input
it forks a process that fits, and prints the number of that process. Imports and compilation
are done once, by the server.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np
import torch

from finemorphs import FineMorphsRegressor, _safetensors
from finemorphs.training import checkpoint

ROWS = 40


def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (ROWS, 3))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(ROWS)


def model(path, **options):
    fixed = {"subset_size": 20, "max_iter": 8, "n_steps": 3, "random_state": 0, "resume": True}
    return FineMorphsRegressor(checkpoint=path, **{**fixed, **options})


class SlowFile:
    """A file that takes its time between the two halves of what is written."""

    def __init__(self, file):
        self.file = file
        self.seek = file.seek

    def write(self, content):
        half = len(content) // 2
        self.file.write(content[:half])
        self.file.flush()
        time.sleep(0.005)
        self.file.write(content[half:])


def fit(path: str, result: str, slow: bool) -> None:
    checkpoint._INTERVAL = checkpoint._SHARE = 0.0  # at each iteration
    if slow:
        write = _safetensors.write
        _safetensors.write = lambda file, *rest: write(SlowFile(file), *rest)
    X, y = data()
    fitted = model(path).fit(X, y)
    np.savez(
        result + ".part.npz",
        objective=fitted.objective_,
        predictions=fitted.predict(X),
        iterations=fitted.n_iter_,
    )
    os.replace(result + ".part.npz", result)


def serve() -> None:
    torch.set_num_threads(1)
    model(None, max_iter=1, resume=False).fit(*data())  # compiled once for all
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes
    for line in sys.stdin:
        path, result, slow = line.split()
        process = os.fork()
        if process == 0:
            fit(path, result, slow == "True")
            os._exit(0)
        print(process, flush=True)


if __name__ == "__main__":
    serve()
