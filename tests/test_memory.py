"""Memory: refused before a fit starts, ended by while it runs, as text and from the system."""

from __future__ import annotations

import os
import tracemalloc

import numpy as np
import pytest
import torch
from _oracles import one_thread  # noqa: F401
from test_training import problem, settings

from finemorphs import FineMorphsClassifier, FineMorphsRegressor, resources
from finemorphs.exceptions import MemoryLimitError
from finemorphs.training import rounds, train

CPU = torch.device("cpu")
RNG = np.random.default_rng(0)
X, Y = RNG.uniform(-1, 1, (3000, 3)), RNG.standard_normal(3000)


@pytest.mark.parametrize("kind", [FineMorphsRegressor, FineMorphsClassifier])
def test_a_fit_that_is_too_large_is_refused_before_it_starts(kind):
    seen = []
    model = kind(max_memory="60MB", callbacks=[seen.append], random_state=0)
    words = r"needs about 8\d\.\d MB \(L-BFGS.*max_memory='60MB'"
    with pytest.raises(MemoryLimitError, match=words):
        model.fit(X, Y > 0)
    assert not seen
    assert not hasattr(model, "model_")


def test_the_advice_is_right():
    """What the message proposes is let through."""
    with pytest.raises(MemoryLimitError, match=r"give subset_size=750 .* or memory=5 ") as caught:
        FineMorphsRegressor(max_memory="80MB", noise=1.0).fit(X, Y)
    assert "or more memory" in str(caught.value)
    stop = [lambda record: True]
    options = {"max_memory": "80MB", "noise": 1.0, "callbacks": stop, "random_state": 0}
    FineMorphsRegressor(**options, subset_size=750).fit(X, Y)
    FineMorphsRegressor(**options, memory=5).fit(X, Y)


def test_the_estimate_counts_what_the_options_ask_for():
    def needed(**options):
        with pytest.raises(MemoryLimitError) as caught:
            FineMorphsRegressor(max_memory=1, **options).fit(X, Y)
        return resources.parse_size("", str(caught.value).split("about ")[1].split(" (")[0])

    whole = needed()
    assert needed(dtype="float64") > 1.5 * whole
    assert needed(sequence="AD^2A") > 1.5 * whole
    assert needed(optimizer="lbfgs") < whole
    assert needed(memory=5) < 0.7 * whole
    assert needed(subset_size=100) < whole
    assert needed(engine="reference") > 5 * whole
    assert needed(sequence="A", noise=1.0) < 0.5 * whole


def test_a_fit_that_does_not_fit_this_machine_is_refused(monkeypatch):
    monkeypatch.setattr("finemorphs.estimators._memory.available", lambda device: 7 * 10**7)
    with pytest.raises(MemoryLimitError, match="but 70 MB is free; give subset_size="):
        FineMorphsRegressor().fit(X, Y)


def test_nothing_helps_where_the_data_alone_are_too_large():
    with pytest.raises(MemoryLimitError, match="give fewer rows, a shorter sequence, or more"):
        FineMorphsRegressor(max_memory="1MB").fit(X, Y)


def test_training_that_takes_too_much_ends_with_what_it_has(monkeypatch):
    held = iter([100, 150, 200, 400, 500])
    monkeypatch.setattr(rounds, "resident", lambda device: next(held))
    objective, theta = problem()
    training = train(objective, theta, settings(max_memory=200))
    assert training.status == "The memory limit of 200 bytes was reached."
    assert len(training.records) == 3
    assert not training.converged


def test_the_limit_holds_in_a_fit(monkeypatch):
    held = iter(range(0, 10**12, 10**8))
    monkeypatch.setattr(rounds, "resident", lambda device: next(held))
    fitted = FineMorphsRegressor(max_memory="500 MB", noise=1.0, random_state=0).fit(
        X[:100], Y[:100]
    )
    assert fitted.status_ == "The memory limit of 500 MB was reached."
    assert fitted.n_iter_ == 6
    assert np.isfinite(fitted.predict(X)).all()


def test_wide_tables_are_told_of_dims():
    X = RNG.standard_normal((20, 1000))
    with pytest.raises(MemoryLimitError, match="give a small dims, such as 10"):
        FineMorphsRegressor(max_memory="100MB").fit(X, X[:, 0])
    stop = [lambda record: True]
    FineMorphsRegressor(max_memory="100MB", dims=10, noise=1.0, callbacks=stop).fit(X, X[:, 0])


# --- the system ---------------------------------------------------------------------------


def test_memory_of_this_machine():
    available, held = resources.available(CPU), resources.resident(CPU)
    if os.path.exists("/proc/meminfo"):
        assert 2**20 < available < 2**50
        assert 2**24 < held < 2**40
        block = np.ones(2**24)
        assert resources.resident(CPU) > held + block.nbytes // 2


def test_the_limit_of_a_container_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "_CGROUP", tmp_path)
    free = resources.available(CPU)
    assert resources._container_memory() is None
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 300000\nfile 1\n")
    assert resources.available(CPU) == 400_000
    (tmp_path / "memory.max").write_text("max\n")
    assert resources.available(CPU) == pytest.approx(free, rel=0.5)


@pytest.mark.parametrize(
    ("n_bytes", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1e6, "1 MB"), (1.234e13, "12.3 TB")]
)
def test_sizes_as_text(n_bytes, text):
    assert resources.size_text(n_bytes) == text


def test_the_estimate_is_near_what_numpy_takes_for_the_data():
    """The part of the formula that can be seen from Python."""
    tracemalloc.start()
    FineMorphsRegressor("A", noise=1.0, callbacks=[lambda record: True], random_state=0).fit(
        np.tile(X, (20, 1)) + RNG.random((60000, 3)), np.tile(Y, 20)
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60000 * 4 * 28 + 2**25
