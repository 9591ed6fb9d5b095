"""Fits that tests run in other threads and processes."""

from __future__ import annotations

import os

import numpy as np

from finemorphs import FineMorphsRegressor


def data(seed=0, n=40):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2]


def fit(seed=0):
    """Predictions of a fit with an int for a seed."""
    X, y = data(seed)
    model = FineMorphsRegressor(subset_size=20, n_steps=3, max_iter=8, random_state=seed)
    return model.fit(X, y).predict(X)


def fit_in_a_forked_child(seed=0):
    """The same, behind a fork of this process, which has threads of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(fit(seed).tobytes())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    return np.frombuffer(content)


if __name__ == "__main__":
    import torch

    torch.set_num_threads(2)  # so that the engine has helpers
    before = fit(0)
    np.testing.assert_array_equal(fit_in_a_forked_child(0), before)
    np.testing.assert_array_equal(fit_in_a_forked_child(1), fit(1))
    print("the same")
