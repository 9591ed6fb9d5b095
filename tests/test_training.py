"""Training: the rounds of sigma, how they end, what is recorded, what is shown."""

from __future__ import annotations

import io
from dataclasses import fields
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from _oracles import one_thread  # noqa: F401
from rich.console import Console

from finemorphs.engines.reference import ReferenceEngine
from finemorphs.objective import Objective
from finemorphs.sequence import ModuleSequence
from finemorphs.training import Progress, Record, Settings, as_table, rounds, train

ENGINE = ReferenceEngine()
SCALE = np.array([3.0])


def problem(notation="ADA", n=12, n_controls=None, weights=None, seed=0):
    """An objective on a bent line, and a start."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 2))
    y = np.sin(2 * x[:, :1]) + 0.1 * rng.standard_normal((n, 1))
    sequence = ModuleSequence.build(notation, 2, 1, n_controls or n, n_steps=2)
    objective = Objective(
        sequence,
        ENGINE,
        torch.as_tensor(x),
        torch.as_tensor(y),
        None if weights is None else weights,
    )
    return objective, torch.as_tensor(sequence.start(rng))


def settings(**changes):
    options = {
        "sigma": 2.0,
        "target": None,
        "natural": True,
        "max_iter": 200,
        "tol": 1e-6,
        "memory": 10,
        "response_scale": SCALE,
    }
    return Settings(**(options | changes))


def mean_squared_error(objective, theta, sigma=1.0):
    found = objective.evaluate(theta, sigma, natural=False)
    return float((found.losses * torch.as_tensor(SCALE) ** 2).sum() / found.mass)


def ridge_error(objective, sigma):
    """Training error of the minimiser where there is no D module: ridge regression."""
    x, y = objective.controls.inputs, objective.controls.targets
    cx, cy = x - x.mean(0), y - y.mean(0)
    slopes = torch.linalg.solve(cx.T @ cx + sigma**2 * torch.eye(2).double(), cx.T @ cy)
    return float((cy - cx @ slopes).square().mean()) * 9.0


@pytest.fixture
def calls(monkeypatch):
    """What every round asks of the optimiser."""
    seen = []
    minimize = rounds.minimize

    def watched(function, start, **options):
        seen.append({"start": start.clone(), "pairs": len(options["history"]), **options})
        return minimize(function, start, **options)

    monkeypatch.setattr(rounds, "minimize", watched)
    return seen


# --- rounds -------------------------------------------------------------------------------


def test_a_fixed_sigma_is_one_round_to_the_fine_tolerance(calls):
    objective, theta = problem()
    training = train(objective, theta, settings())
    assert len(calls) == 1
    assert calls[0]["absolute_tolerance"] == 1e-8
    assert calls[0]["relative_tolerance"] == 1e-6
    assert calls[0]["max_iter"] == 200
    assert training.sigma == 2.0
    assert {r.round for r in training.records} == {1}
    assert training.converged
    assert not training.interrupted


def test_plain_steps_end_at_a_hundredth_of_the_tolerance(calls):
    train(*problem(), settings(natural=False, tol=1e-4))
    assert calls[0]["relative_tolerance"] == pytest.approx(1e-6)


def test_sigma_falls_while_the_error_is_above_its_target(calls):
    """With no D module the error of each round is known in closed form."""
    objective, theta = problem("A")
    sigmas = [2.0 / 1.4**k for k in range(10)]
    errors = [ridge_error(objective, sigma) for sigma in sigmas]
    assert errors == sorted(errors, reverse=True)
    target = (errors[2] + errors[3]) / 2  # reached in the fourth round
    training = train(objective, theta, settings(target=target, tol=1e-12))
    assert training.sigma == pytest.approx(sigmas[3])
    assert len(calls) == 5  # and the last once more at the sigma that was enough
    assert [c["absolute_tolerance"] for c in calls] == [1e-4] * 4 + [1e-8]
    used = sorted({r.sigma for r in training.records}, reverse=True)
    assert used == pytest.approx(sigmas[: len(used)])
    assert mean_squared_error(objective, training.theta) == pytest.approx(errors[3], rel=1e-3)


def test_a_target_met_at_once_lowers_nothing(calls):
    objective, theta = problem()
    training = train(objective, theta, settings(target=1e6))
    assert training.sigma == 2.0
    assert [c["absolute_tolerance"] for c in calls] == [1e-4, 1e-8]
    assert calls[1]["pairs"] > 0  # the same function: what was learnt of it is kept


def test_there_are_ten_rounds_at_most(calls):
    objective, theta = problem("A")
    training = train(objective, theta, settings(target=0.0))
    assert len(calls) == 10
    assert training.sigma == pytest.approx(2.0 / 1.4**9)
    assert [c["absolute_tolerance"] for c in calls] == [1e-4] * 9 + [1e-8]


def test_each_round_goes_on_from_the_last_with_an_empty_history(calls):
    objective, theta = problem()
    train(objective, theta, settings(target=0.0, max_iter=5))
    assert torch.equal(calls[0]["start"], theta)
    assert [c["pairs"] for c in calls] == [0] * 10
    starts = [mean_squared_error(objective, c["start"]) for c in calls]
    assert starts[-1] < starts[0]
    assert not any(torch.equal(a["start"], b["start"]) for a, b in pairwise(calls))


def test_max_iter_is_for_each_round(calls):
    objective, theta = problem()
    training = train(objective, theta, settings(target=0.0, max_iter=3, tol=0.0))
    table = as_table(training.records)
    assert [int((table["round"] == r).sum()) for r in range(1, 11)] == [3] * 10
    assert training.status == "The limit of 3 iterations was reached."
    assert not training.converged


def test_a_tolerance_of_zero_leaves_the_iterations_as_the_only_limit(calls):
    objective, theta = problem()
    train(objective, theta, settings(tol=0.0, max_iter=4))
    assert calls[0]["absolute_tolerance"] == calls[0]["relative_tolerance"] == 0.0


@pytest.mark.parametrize("natural", [False, True])
def test_both_optimisers_find_the_ridge_regression(natural):
    objective, theta = problem("A", n=20)
    training = train(objective, theta, settings(natural=natural, tol=1e-12))
    assert training.evaluation.gradient.norm() < 1e-3
    expected = ridge_error(objective, 2.0)
    assert mean_squared_error(objective, training.theta) == pytest.approx(expected, rel=1e-4)
    assert (training.evaluation.natural is not None) == natural


def test_training_lowers_the_objective_of_a_flow():
    objective, theta = problem("AD2A", n_controls=5)
    before = objective.evaluate(theta, 0.5).value
    training = train(objective, theta, settings(sigma=0.5, max_iter=60))
    assert training.evaluation.value < 0.5 * before
    again = objective.evaluate(training.theta, training.sigma)
    assert training.evaluation.value == pytest.approx(again.value, rel=1e-12)


def test_the_start_is_left_alone():
    objective, theta = problem()
    before = theta.clone()
    train(objective, theta, settings(max_iter=5))
    assert torch.equal(theta, before)


# --- how it ends --------------------------------------------------------------------------


def test_a_callback_that_returns_true_ends_it(calls):
    objective, theta = problem()
    seen = []

    def callback(record):
        seen.append(record)
        return record.iteration == 4

    training = train(objective, theta, settings(target=0.0), [callback])
    assert len(calls) == 1
    assert training.records == seen
    assert len(seen) == 4
    assert training.status == "A callback ended the training."
    assert not training.converged
    assert not training.interrupted
    assert training.evaluation.value == seen[-1].objective


@pytest.mark.parametrize("answer", [None, False, 1, "yes"])
def test_no_other_answer_ends_it(answer):
    objective, theta = problem()
    training = train(objective, theta, settings(max_iter=3), [lambda record: answer])
    assert len(training.records) == 3


def test_every_callback_sees_every_iteration():
    objective, theta = problem()
    first, second = [], []

    def ends(record):
        first.append(record)
        return True

    train(objective, theta, settings(), [ends, second.append])
    assert first == second
    assert len(first) == 1


def test_ctrl_c_keeps_what_was_reached():
    objective, theta = problem()

    def interrupt(record):
        if record.iteration == 5:
            raise KeyboardInterrupt

    training = train(objective, theta, settings(target=0.0), [interrupt])
    assert training.interrupted
    assert not training.converged
    assert training.status == "Interrupted by the user."
    assert len(training.records) == 5
    assert training.evaluation.value == training.records[-1].objective
    again = objective.evaluate(training.theta, training.sigma)
    assert again.value == pytest.approx(training.evaluation.value, rel=1e-12)
    assert training.n_evaluations == training.records[-1].evaluations


def test_ctrl_c_between_two_rounds_keeps_one_state(monkeypatch):
    """Sigma, the parameters and the objective of the result belong together."""
    objective, theta = problem()
    evaluate = objective.evaluate

    def interrupted(theta, sigma, natural=True):
        if sigma < 2.0:
            raise KeyboardInterrupt
        return evaluate(theta, sigma, natural)

    monkeypatch.setattr(objective, "evaluate", interrupted)
    training = train(objective, theta, settings(target=0.0, max_iter=4))
    assert training.interrupted
    again = evaluate(training.theta, training.sigma)
    assert again.value == pytest.approx(training.evaluation.value, rel=1e-12)


def test_ctrl_c_before_the_first_iteration_is_passed_on(monkeypatch):
    objective, theta = problem()

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(objective, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(objective, theta, settings())


def test_another_error_of_a_callback_is_passed_on():
    objective, theta = problem()

    def broken(record):
        raise RuntimeError("of the callback")

    with pytest.raises(RuntimeError, match="of the callback"):
        train(objective, theta, settings(), [broken])


def test_max_time_ends_it(calls):
    objective, theta = problem()
    training = train(objective, theta, settings(target=0.0, max_time=0.0))
    assert len(calls) == len(training.records) == 1
    assert training.status == "The time limit was reached."
    assert not training.converged


# --- the record ---------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_records_say_what_was_true(weighted):
    weights = torch.linspace(0.5, 2, 12, dtype=torch.float64) if weighted else None
    objective, theta = problem(weights=weights)
    training = train(objective, theta, settings(target=0.0, max_iter=6))
    table = as_table(training.records)
    assert table["iteration"].tolist() == list(range(1, len(training.records) + 1))
    assert (np.diff(table["evaluations"]) >= 1).all()
    assert (np.diff(table["round"]) >= 0).all()
    assert (np.diff(table["seconds"]) >= 0).all()
    assert training.n_evaluations >= table["evaluations"][-1]
    np.testing.assert_allclose(table["sigma"], 2.0 / 1.4 ** (table["round"] - 1))
    parts = table["energy"] + table["affine"] + table["endpoint"]
    np.testing.assert_allclose(table["objective"], parts)
    for r in range(1, 11):
        assert (np.diff(table["objective"][table["round"] == r]) < 0).all()
    expected = mean_squared_error(objective, training.theta) ** 0.5
    assert table["rmse"][-1] == pytest.approx(expected)


def test_evaluations_are_counted_over_all_rounds(monkeypatch):
    objective, theta = problem()
    evaluate, count = objective.evaluate, []

    def counted(*arguments):
        count.append(None)
        return evaluate(*arguments)

    monkeypatch.setattr(objective, "evaluate", counted)
    training = train(objective, theta, settings(target=0.0, max_iter=4))
    assert training.n_evaluations == len(count)


def test_rmse_sums_the_responses_in_their_units():
    rng = np.random.default_rng(0)
    x, y = torch.as_tensor(rng.standard_normal((10, 2))), torch.as_tensor(rng.random((10, 2)))
    sequence = ModuleSequence.build("A", 2, 2, 10)
    objective = Objective(sequence, ENGINE, x, y)
    scale = np.array([3.0, 0.5])
    start = torch.as_tensor(sequence.start(rng))
    training = train(objective, start, settings(response_scale=scale, max_iter=3))
    output = sequence.forward(ENGINE, training.theta, x)[-1].output
    errors = ((output - y) * torch.as_tensor(scale)).square().sum(1).mean()
    assert training.records[-1].rmse == pytest.approx(float(errors.sqrt()))


def test_a_table_has_a_column_for_each_field():
    assert set(as_table([])) == {f.name for f in fields(Record)}
    assert all(len(column) == 0 for column in as_table([]).values())


# --- progress -----------------------------------------------------------------------------


def records(rounds_of_iterations=(1, 1, 2)):
    return [
        Record(r, i + 1, 2 * i + 2, 0.5, 10.0 / (i + 1), 1.0, 2.0, 3.0, 0.25, 0.1 * i)
        for i, r in enumerate(rounds_of_iterations)
    ]


def shown(verbose, rows, terminal=False, notice=None, width=200):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=width, highlight=False)
    with Progress(verbose, console) as progress:
        if notice:
            progress.say(notice)
        for row in rows:
            assert progress(row) is None
    return out.getvalue()


def test_progress_is_silent_when_asked():
    assert shown(0, records(), notice="a notice") == ""


def test_progress_in_full_is_a_line_each():
    lines = shown(2, records()).splitlines()
    assert len(lines) == 3
    assert "round 1  iteration    1  objective 10 = energy 1 + affine 2 + endpoint 3" in lines[0]
    assert "RMSE 0.25" in lines[0]


def test_progress_without_a_terminal_shows_rounds_and_the_end(monkeypatch):
    monkeypatch.setattr("finemorphs.training.progress._PLAIN_EVERY", 1e9)
    lines = shown(1, records((1, 1, 1, 2, 2, 2))).splitlines()
    assert [line.split("objective")[0].split()[-1] for line in lines] == ["1", "4", "6"]


def test_progress_prints_nothing_twice():
    assert len(shown(1, records((1,))).splitlines()) == 1
    assert shown(1, []) == ""


def test_progress_on_a_terminal_shows_the_last_iteration():
    text = shown(1, records(), terminal=True)
    assert "iteration    3" in text


@pytest.mark.parametrize(("width", "parts"), [(80, False), (130, True)])
def test_progress_fits_the_terminal(width, parts):
    """What the objective is made of goes first, the error and the seconds stay."""
    row = Record(10, 1234, 3000, 0.5, 123.456789, 1.234, 12.34, 109.883, 0.123456, 1234.56)
    text = shown(1, [row], terminal=True, width=width)
    assert "RMSE 0.1235  1234.6 s" in text
    assert "\u2026" not in text
    assert ("energy 1.234" in text) is parts


def test_a_step_is_shown_with_its_seconds_and_leaves_no_line(monkeypatch):
    seconds = iter([0.0, *[37.0] * 99])
    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr("finemorphs.training.progress.time", clock)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=40, highlight=False)
    with Progress(1, console) as progress:
        progress.step("AD^4A, inputs none, fold 2 of 5")
        progress._live.refresh()
        progress.step("kernels of mixed features (inputs none, response power)")
        progress._live.refresh()
    text = out.getvalue()
    assert "AD^4A, inputs none, fold 2 of 5  37 s" in text
    assert "kernels of mixed features (inputs\u2026  37 s" in text
    assert text.endswith("\x1b[1A\x1b[2K")  # up, and erased


def test_a_step_is_not_shown_without_a_terminal():
    out = io.StringIO()
    with Progress(1, Console(file=out, width=200)) as progress:
        progress.step("kernels")
    assert out.getvalue() == ""


def test_notices_are_shown_as_they_are():
    assert shown(1, [], notice="[brackets] stay").strip() == "[brackets] stay"
