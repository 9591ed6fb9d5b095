"""Fits that are killed, interrupted or starved, and go on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import _killed
import numpy as np
import pytest

from finemorphs import FineMorphsRegressor, load, storage
from finemorphs.exceptions import CheckpointError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")

MOMENTS = 20


@pytest.fixture(scope="module")
def server():
    source = Path(_killed.__file__)
    process = subprocess.Popen(
        [sys.executable, str(source)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.communicate(timeout=60)


def start(server, path, result, slow=False):
    server.stdin.write(f"{path} {result} {slow}\n")
    server.stdin.flush()
    return int(server.stdout.readline())


def ended(process, patience=0.0):
    """Whether the process ends within so many seconds."""
    until = time.monotonic() + patience
    while True:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        if time.monotonic() > until:
            return False
        time.sleep(0.005)


def test_a_fit_killed_at_any_moment_goes_on_to_the_same_end(tmp_path, server):
    """Half of the moments are likely to be in the middle of a write."""
    rng = np.random.default_rng(int.from_bytes(os.urandom(4), "little"))
    process = start(server, tmp_path / "whole", tmp_path / "whole.npz")
    began = time.monotonic()
    assert ended(process, patience=120)
    duration = time.monotonic() - began
    whole = np.load(tmp_path / "whole.npz")
    in_a_write = 0
    for moment in range(MOMENTS):
        slow = moment % 2 == 0
        path, result = tmp_path / f"c{moment}", tmp_path / f"r{moment}.npz"
        process = start(server, path, result, slow)
        ended(process, patience=rng.uniform(0, duration))
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        assert ended(process, patience=60)
        in_a_write += bool(list(tmp_path.glob(f".c{moment}.*.part")))
        assert ended(start(server, path, result), patience=120)
        again = np.load(result)
        assert again["objective"] == pytest.approx(float(whole["objective"]), rel=1e-6)
        np.testing.assert_array_equal(again["predictions"], whole["predictions"])
        assert again["iterations"] == whole["iterations"]
        assert not list(tmp_path.glob(f".c{moment}.*.part"))  # nothing is left lying about
    assert in_a_write > 0


@pytest.fixture
def _interrupts():
    """Ctrl-C interrupts, also where the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interrupts")
def test_an_interrupt_from_the_keyboard_leaves_a_model_and_a_checkpoint(tmp_path):
    """A real SIGINT, in the middle of the computation."""
    X, y = _killed.data()
    whole = _killed.model(tmp_path / "a", engine="reference").fit(X, y)

    def interrupt(record):
        if record.iteration == 7:
            signal.raise_signal(signal.SIGINT)

    path = tmp_path / "b"
    stopped = _killed.model(path, engine="reference", callbacks=[interrupt]).fit(X, y)
    assert stopped.status_ == "Interrupted by the user."
    assert stopped.n_iter_ == 7
    assert np.isfinite(stopped.predict(X)).all()
    stopped.save(tmp_path / "model")
    assert not load(tmp_path / "model").resume
    again = _killed.model(path, engine="reference").fit(X, y)
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))
    assert again.objective_ == whole.objective_


@pytest.mark.parametrize("seed", [None, np.random.RandomState(3), np.random.default_rng(3)])
def test_the_random_draws_are_those_of_the_fit_that_began(tmp_path, seed):
    """Control points, dummy columns and starts of a fit that nobody seeded."""
    X, y = _killed.data()
    path = tmp_path / "c"
    options = {"subset_size": 20, "max_iter": 6, "noise": 0.5, "checkpoint": path}
    stop = [lambda record: record.iteration == 3]
    first = FineMorphsRegressor(**options, random_state=seed, callbacks=stop).fit(X, y)
    resumed = FineMorphsRegressor(**options, random_state=seed, resume=True).fit(X, y)
    np.testing.assert_array_equal(resumed.history_["objective"][:3], first.history_["objective"])
    assert resumed.n_iter_ == 6
    np.testing.assert_array_equal(resumed.model_.centers[0][0].shape, (20, 4))
    finished = FineMorphsRegressor(**options, random_state=seed, resume=True).fit(X, y)
    np.testing.assert_array_equal(finished.predict(X), resumed.predict(X))
    assert finished.status_ == resumed.status_


def test_other_data_and_other_options_are_refused(tmp_path):
    X, y = _killed.data()
    options = {"max_iter": 3, "noise": 0.5, "random_state": 0, "checkpoint": tmp_path / "c"}
    FineMorphsRegressor(**options).fit(X, y)
    resumed = FineMorphsRegressor(**options, resume=True)
    resumed.fit(X, y)
    changed = X.copy()
    changed[3, 1] += 1e-12
    with pytest.raises(CheckpointError, match=r"\(X: '40 x 3, sha256 \w+' there, '40 x 3, sha256"):
        resumed.fit(changed, y)
    with pytest.raises(CheckpointError, match=r"\(y: '40 x 1"):
        resumed.fit(X, y + 1)
    with pytest.raises(CheckpointError, match=r"\(sample_weight: '40, sha256"):
        resumed.fit(X, y, sample_weight=np.linspace(1, 2, 40))
    with pytest.raises(CheckpointError, match=r"\(tol: 0\.0003 there, 0\.1 here\)"):
        resumed.set_params(tol=0.1).fit(X, y)
    resumed.set_params(tol=3e-4, max_time=99.0, verbose=0, callbacks=[print]).fit(X, y)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"resume": True}, "resume=True has no checkpoint"),
        ({"checkpoint": 3}, "checkpoint=3 is not a path"),
    ],
)
def test_options_that_cannot_work_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        FineMorphsRegressor(**options).fit(*_killed.data())


def test_a_folder_that_is_read_only_is_a_warning(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(storage.tempfile, "mkstemp", refuse)
    with pytest.warns(RuntimeWarning, match=r"could not be written \(.*Permission denied"):
        fitted = _killed.model(tmp_path / "c").fit(*_killed.data())
    assert np.isfinite(fitted.objective_)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"n_members": 3, "noise": 0.5},
        {"n_members": 2, "noise": 0.5, "random_state": None},
        {"noise": "cv", "tol": 1e-2},
        {"input_warp": "auto", "noise": 0.5},
        {"preset": "best"},
    ],
)
def test_a_fit_of_several_trainings_goes_on(tmp_path, options):
    """Stopped in one of them, and again in a later one."""
    X, y = _killed.data()
    fixed = {"max_iter": 4, "n_steps": 2, "subset_size": 15, "random_state": 0, **options}
    count = []

    def stop(record):
        count.append(None)
        return len(count) == 6 or len(count) == 9

    path = tmp_path / "c"
    for _ in range(2):
        stopped = FineMorphsRegressor(**fixed, checkpoint=path, resume=True, callbacks=[stop])
        stopped.fit(X, y)
    resumed = FineMorphsRegressor(**fixed, checkpoint=path, resume=True, callbacks=[stop])
    resumed.fit(X, y)
    again = FineMorphsRegressor(**fixed, checkpoint=path, resume=True).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), resumed.predict(X))
    assert again.status_ == resumed.status_
    if fixed["random_state"] is not None:
        whole = FineMorphsRegressor(**fixed).fit(X, y)
        np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
