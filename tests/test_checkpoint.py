"""Checkpoints: a training that goes on ends where one that was never stopped does."""

from __future__ import annotations

import shutil
import warnings

import numpy as np
import pytest
import torch
from _oracles import one_thread  # noqa: F401
from test_training import problem, settings

from finemorphs import storage
from finemorphs.exceptions import CheckpointError
from finemorphs.optim import Past
from finemorphs.training import Checkpoint, checkpoint, train
from finemorphs.training.state import State

IDENTITY = {"tol": 1e-6, "sequence": "ADA", "X": "30 x 3, abc"}
SEED = {"entropy": 2**100, "spawn_key": []}


def opened(path, resume=True, **changes):
    return Checkpoint(path, IDENTITY | changes, SEED, resume)


@pytest.fixture
def every_iteration(monkeypatch):
    """Checkpoints are written at each iteration."""
    monkeypatch.setattr(checkpoint, "_INTERVAL", 0.0)
    monkeypatch.setattr(checkpoint, "_SHARE", 0.0)


def same(one, other):
    """Two trainings came out alike, to the bit; only their clocks may differ."""
    assert torch.equal(one.theta, other.theta)
    assert one.evaluation.value == other.evaluation.value
    for name in ("sigma", "n_evaluations", "status", "converged", "interrupted"):
        assert getattr(one, name) == getattr(other, name)
    assert len(one.records) == len(other.records)
    for a, b in zip(one.records, other.records, strict=True):
        assert {**vars(a), "seconds": 0} == {**vars(b), "seconds": 0}


CASES = {
    "one round": ({"max_iter": 15}, 5),
    "rounds": ({"target": 0.0, "max_iter": 3, "memory": 2}, None),
    "target met": ({"target": 1e6, "max_iter": 9}, None),
    "plain": ({"natural": False, "target": 0.5, "max_iter": 4}, None),
    "tolerance": ({"tol": 1e-1, "target": 0.0}, 5),
}


@pytest.mark.parametrize(("options", "n_controls"), CASES.values(), ids=CASES)
def test_it_goes_on_from_every_checkpoint_to_the_same_bits(
    tmp_path, every_iteration, monkeypatch, options, n_controls
):
    objective, theta = problem(n_controls=n_controls)
    write, copies = storage.write, []

    def copying(path, *arguments):
        write(path, *arguments)
        copies.append(tmp_path / f"copy-{len(copies)}")
        shutil.copy(path, copies[-1])

    with monkeypatch.context() as patch:
        patch.setattr(storage, "write", copying)
        whole = train(objective, theta, settings(**options), (), opened(tmp_path / "c"))
    assert len(copies) > len(whole.records)
    other_start = torch.randn_like(theta)
    for copy in copies[:: len(copies) // 4] + copies[-1:]:
        same(train(objective, other_start, settings(**options), (), opened(copy)), whole)


def test_trainings_that_ended_are_not_done_again(tmp_path):
    """A fit of several trainings, stopped in the second."""

    def fit(stop_at=None):
        kept = opened(tmp_path / "c")
        results, counts = [], []
        for seed in range(3):
            objective, theta = problem(seed=seed)
            evaluate, count = objective.evaluate, []
            objective.evaluate = lambda *a, e=evaluate, c=count: c.append(1) or e(*a)
            ends = [lambda record: record.iteration == 4] if seed == stop_at else []
            results.append(train(objective, theta, settings(max_iter=9), ends, kept))
            counts.append(len(count))
            if seed == stop_at:
                break
        return results, counts

    fit(stop_at=1)
    again, counts = fit()
    (tmp_path / "c").unlink()
    whole, _ = fit()
    for one, other in zip(again, whole, strict=True):
        same(one, other)
    assert counts[0] == 1
    assert counts[1] < whole[1].n_evaluations
    assert counts[2] == whole[2].n_evaluations


def test_a_training_stopped_by_the_clock_goes_on(tmp_path):
    objective, theta = problem()
    whole = train(objective, theta, settings(max_iter=6))
    for n in range(1, 4):
        kept = opened(tmp_path / "c")
        stopped = train(objective, theta, settings(max_iter=6, max_time=0.0), (), kept)
        assert len(stopped.records) == n
        assert "time limit" in stopped.status
    same(train(objective, theta, settings(max_iter=6), (), opened(tmp_path / "c")), whole)


def test_ctrl_c_leaves_a_checkpoint_of_the_last_iteration(tmp_path, monkeypatch):
    objective, theta = problem()
    whole = train(objective, theta, settings(max_iter=8))
    evaluate, count = objective.evaluate, []

    def interrupted(*arguments):
        count.append(None)
        if len(count) == whole.records[4].evaluations + 1:
            raise KeyboardInterrupt
        return evaluate(*arguments)

    monkeypatch.setattr(objective, "evaluate", interrupted)
    stopped = train(objective, theta, settings(max_iter=8), (), opened(tmp_path / "c"))
    assert stopped.interrupted
    assert len(stopped.records) == 5
    state = opened(tmp_path / "c").begin()
    assert len(state.records) == 5
    same(train(objective, theta, settings(max_iter=8), (), opened(tmp_path / "c")), whole)


def test_seconds_go_on_where_they_stood(tmp_path):
    objective, theta = problem()
    train(objective, theta, settings(max_iter=5, max_time=0.0), (), opened(tmp_path / "c"))
    tensors, header = storage.read(tmp_path / "c", 2)
    header["state"]["seconds"] = 1000.0
    storage.write(tmp_path / "c", tensors, header, 2)
    again = train(objective, theta, settings(max_iter=5), (), opened(tmp_path / "c"))
    assert 1000 < again.records[-1].seconds < 2000


# --- when it is written -------------------------------------------------------------------


def test_the_first_iteration_then_every_minute_and_every_round(tmp_path, monkeypatch):
    clock, written = [0.0], []
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])
    write = storage.write

    def slow(path, tensors, header, version):
        state = header["state"]
        written.append(None if state is None else (state["round"], len(tensors["records.round"])))
        clock[0] += 1.0  # of writing
        write(path, tensors, header, version)

    def tick(record):
        clock[0] += 25.0

    monkeypatch.setattr(storage, "write", slow)
    objective, theta = problem()
    options = settings(target=0.0, tol=0.0, max_iter=6)
    train(objective, theta, options, [tick], opened(tmp_path / "c"))
    assert written[:4] == [(1, 1), (1, 4), (2, 6), (2, 9)]
    assert written[-1] is None


def test_slow_writes_are_rare(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(storage, "write", lambda *a: clock.__setitem__(0, clock[0] + 30.0))
    kept = opened(tmp_path / "c")
    assert kept.due
    kept.begin()
    _, theta = problem()
    kept.keep(State(theta, 1.0, 1, False, Past(), 0, {}, [], 0.0))
    clock[0] += 599
    assert not kept.due
    clock[0] += 1
    assert kept.due


# --- where it cannot be written -----------------------------------------------------------


def test_a_full_disk_is_one_warning_and_the_old_file_stays(tmp_path, every_iteration, monkeypatch):
    objective, theta = problem()
    stop = [lambda record: record.iteration == 3]
    train(objective, theta, settings(max_iter=8), stop, opened(tmp_path / "c"))
    before = (tmp_path / "c").read_bytes()

    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storage.os, "fsync", full)
        with pytest.warns(RuntimeWarning, match=r"No space left.*goes on.*Make room") as caught:
            whole = train(objective, theta, settings(max_iter=8), (), opened(tmp_path / "c"))
    assert len(caught) == 1
    assert len(whole.records) == 8
    assert (tmp_path / "c").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    same(train(objective, theta, settings(max_iter=8), (), opened(tmp_path / "c")), whole)


def test_a_folder_that_is_not_there_is_a_warning(tmp_path):
    objective, theta = problem()
    with pytest.warns(RuntimeWarning, match="could not be written"):
        result = train(objective, theta, settings(max_iter=3), (), opened(tmp_path / "no" / "c"))
    assert len(result.records) == 3


# --- what is refused ----------------------------------------------------------------------


@pytest.fixture
def written(tmp_path):
    objective, theta = problem()
    stop = [lambda record: record.iteration == 3]
    train(objective, theta, settings(max_iter=8), stop, opened(tmp_path / "c"))
    return tmp_path / "c"


def test_another_fit_is_refused_with_what_differs(written):
    with pytest.raises(CheckpointError, match=r"\(tol: 1e-06 there, 0.1 here\).*resume=False"):
        opened(written, tol=0.1)
    with pytest.raises(CheckpointError, match=r"X: '30 x 3, abc' there, '9 x 3, def' here"):
        opened(written, X="9 x 3, def")
    with pytest.raises(CheckpointError, match=r"new: None there, 1 here"):
        opened(written, new=1)
    with pytest.raises(CheckpointError, match=r"tol: 1e-06 there, None here; sequence: "):
        Checkpoint(written, {}, SEED, resume=True)
    opened(written, resume=False, X="9 x 3, def")  # begins anew


def test_without_resume_it_begins_anew(written):
    assert opened(written, resume=False).begin() is None
    assert opened(written).begin().past.n_iterations == 3


def test_no_file_is_a_beginning(tmp_path):
    assert opened(tmp_path / "c").begin() is None


def test_the_seed_is_that_of_the_file(written):
    kept = Checkpoint(written, IDENTITY, {"entropy": 1}, resume=True)
    assert kept.seed == SEED
    assert Checkpoint(written, IDENTITY, {"entropy": 1}).seed == {"entropy": 1}


@pytest.mark.parametrize("resume", [False, True])
def test_a_file_that_is_no_checkpoint_is_not_touched(tmp_path, resume):
    path = tmp_path / "data.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(CheckpointError, match=r"data\.csv.*another path"):
        opened(path, resume)
    storage.write(tmp_path / "model", {}, {"estimator": "FineMorphsRegressor"}, 1)
    with pytest.raises(CheckpointError, match="not a checkpoint; give another path"):
        opened(tmp_path / "model", resume)
    with pytest.raises(CheckpointError, match="no file"):
        opened(tmp_path, resume)
    assert path.read_text() == "a,b\n1,2\n"


@pytest.mark.parametrize(
    "damage",
    [
        lambda tensors, header: tensors.pop("theta"),
        lambda tensors, header: tensors.pop("records.round"),
        lambda tensors, header: header.pop("seed"),
        lambda tensors, header: header["state"].pop("sigma"),
        lambda tensors, header: header["state"].update(round=[1]),
        lambda tensors, header: header.update(ended=[3]),
        lambda tensors, header: header.update(identity=3),
    ],
)
def test_a_damaged_checkpoint_is_refused(written, damage):
    tensors, header = storage.read(written, 2)
    damage(tensors, header)
    storage.write(written, tensors, header, 2)
    with pytest.raises(CheckpointError, match=r"damaged.*resume=False"):
        opened(written)


def test_parameters_of_another_number_are_refused(written):
    tensors, header = storage.read(written, 2)
    storage.write(written, tensors | {"theta": torch.zeros(3)}, header, 2)
    objective, theta = problem()
    with pytest.raises(CheckpointError, match="3 parameters where this fit has"):
        train(objective, theta, settings(), (), opened(written))


def test_nothing_warns_when_all_is_well(tmp_path):
    objective, theta = problem()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(objective, theta, settings(max_iter=3), (), opened(tmp_path / "c"))
    assert np.isfinite(opened(tmp_path / "c").begin().sigma)
