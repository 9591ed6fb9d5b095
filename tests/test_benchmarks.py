"""The grid of benchmarks on a small table: what is kept, what fails, what the tables say."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
import psutil
import pytest
import torch
from rich.console import Console
from sklearn.linear_model import Ridge
from sklearn.metrics import root_mean_squared_error

from finemorphs.benchmarks import (
    MODELS,
    TABLES,
    Settings,
    make_model,
    render,
    run,
    runner,
    summarise,
)
from finemorphs.benchmarks import __main__ as command
from finemorphs.benchmarks.cells import (
    Cell,
    find_unreadable,
    read_result,
    read_results,
    write_result,
)
from finemorphs.benchmarks.dnn import DNNRegressor, Network
from finemorphs.benchmarks.figures import panel_states
from finemorphs.benchmarks.models import DNN_LAYERS, FINEMORPHS, check_options, taken_options
from finemorphs.benchmarks.paper import find_score, load_paper, rank
from finemorphs.benchmarks.peers import PEERS, TunedRegressor, XRFMRegressor
from finemorphs.benchmarks.progress import GridProgress, expected_seconds
from finemorphs.benchmarks.tables import report, standard_error
from finemorphs.datasets import UCI_NAMES, _download
from finemorphs.datasets._sources import find_source

N_ROWS, N_TEST = 40, 8


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return write_data(tmp_path / "data")


def write_data(root: Path, seed: int = 0, split_seed: int = 0) -> Path:
    """A folder with "yacht" and its gap splits: 3 features, 3 splits, one twin in each."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS, 3))
    table = np.column_stack([X, np.sin(X[:, 0]) + X[:, 1]]).round(5)
    table[1] = table[0]
    rng = np.random.default_rng(split_seed)
    for name in ("yacht", "yacht_gap"):
        folder = root / name / "data"
        folder.mkdir(parents=True)
        np.savetxt(folder / "data.txt", table)
        (folder / "index_features.txt").write_text("0\n1\n2\n")
        (folder / "index_target.txt").write_text("3\n")
        for k in range(3):
            rest = 2 + rng.permutation(N_ROWS - 2)
            parts = {"test": [0, *rest[: N_TEST - 1]], "train": [1, *rest[N_TEST - 1 :]]}
            for part, rows in parts.items():
                np.savetxt(folder / f"index_{part}_{k}.txt", rows, fmt="%d")
    return root


@pytest.fixture
def settings(data_dir: Path, tmp_path: Path) -> Settings:
    return Settings(tmp_path / "out", data_dir, options={"max_iter": 2, "epochs": 2})


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


def written(console: Console) -> str:
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def grid(settings: Settings, models: tuple[str, ...] = ("A", "ADA", "DNN-1")) -> list[Cell]:
    return runner.plan(models, ["yacht"], settings)


# --- the grid -------------------------------------------------------------------------------


def test_a_result_holds_what_the_tables_need(settings: Settings) -> None:
    (cell, *_) = cells = grid(settings, ("ADA",))
    assert len(cells) == 3
    run([cell], settings, console=quiet())
    result = json.loads(cell.path(settings.out).read_text())
    assert result["n_test"] == N_TEST
    assert result["n_train"] == N_ROWS - N_TEST
    assert result["n_twins"] == 1
    assert result["n_evaluations"] > 0
    assert result["noise"] > 0
    assert result["seconds"] > 0
    assert "torch" in result["versions"]
    assert result["status"] != "failed"


def test_the_score_without_twins_leaves_them_out(settings: Settings) -> None:
    (cell, *_) = grid(settings, ("A",))
    (result,) = run([cell], settings, console=quiet())
    X, y, X_test, y_test = settings.load("yacht", False).split(0)
    model = make_model("A", "yacht", 3).fit(X, y)
    assert result["rmse"] == pytest.approx(root_mean_squared_error(y_test, model.predict(X_test)))
    rest = root_mean_squared_error(y_test[1:], model.predict(X_test[1:]))
    assert result["rmse_without_twins"] == pytest.approx(rest)


def test_a_twin_is_equal_in_every_number_and_in_the_response() -> None:
    X, y = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 2.0])
    X_test, y_test = np.array([[3.0, 4.0], [3.0, 4.0], [1.0, 4.0]]), np.array([2.0, 5.0, 1.0])
    assert runner.has_twin(X, y, X_test, y_test).tolist() == [True, False, False]


def test_what_is_there_is_not_run_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = grid(settings)
    first = run(cells, settings, console=quiet())
    assert len(first) == 9
    cells[4].path(settings.out).unlink()
    cells[5].path(settings.out).write_text('{"mod')  # cut off
    again: list[Cell] = []
    original = runner.run_cell

    def watched(cell: Cell, shared: Settings) -> dict[str, Any]:
        again.append(cell)
        return original(cell, shared)

    monkeypatch.setattr(runner, "run_cell", watched)
    second = run(cells, settings, console=quiet())
    assert again == [cells[4], cells[5]]
    assert [r["rmse"] for r in second] == [r["rmse"] for r in first]


def test_results_of_other_options_are_not_mixed(settings: Settings) -> None:
    first, *rest = grid(settings, ("ADA",))
    run([first], settings, console=quiet())
    other = Settings(settings.out, settings.data_dir)
    for cells in ([first], rest, grid(replace(settings, out="x"), ("ADA",))[1:]):
        with pytest.raises(ValueError, match=r"split 0 in .* the options .*give another folder"):
            run(cells, other, console=quiet())
    assert len(run(grid(settings, ("A",)), other, console=quiet())) == 3  # a model of its own


def test_options_are_those_that_a_model_takes(settings: Settings) -> None:
    run(grid(settings)[:3], settings, console=quiet())
    stored = {result["model"]: result["options"] for result in read_results(settings.out)}
    assert stored == {"A": {}, "ADA": {"max_iter": 2}, "DNN-1": {"epochs": 2}}
    alone = replace(settings, options={"max_iter": 2})
    assert len(run(grid(alone, ("A", "ADA")), alone, console=quiet())) == 6


def test_options_of_other_models_in_a_file_do_not_count(settings: Settings) -> None:
    (cell, *_) = grid(settings, ("ADA",))
    run([cell], settings, console=quiet())
    path = cell.path(settings.out)
    old = json.loads(path.read_text()) | {"options": settings.options}
    path.write_text(json.dumps({k: v for k, v in old.items() if k not in ("table", "rows")}))
    alone = replace(settings, options={"max_iter": 2})
    assert len(run(grid(alone, ("ADA",)), alone, console=quiet())) == 3


@pytest.mark.parametrize(
    ("seeds", "what"), [({"seed": 1}, "table"), ({"split_seed": 1}, "rows"), ({}, None)]
)
def test_results_of_other_data_are_not_mixed(
    settings: Settings, tmp_path: Path, seeds: dict[str, int], what: str | None
) -> None:
    first, second, *_ = grid(settings, ("A",))
    run([first], settings, console=quiet())
    other = replace(settings, data_dir=write_data(tmp_path / "other", **seeds))
    for cell in (first, second, replace(first, model="ADA")):
        if what is None:
            assert run([cell], other, console=quiet())[0]["status"] != "failed"
            continue
        with pytest.raises(ValueError, match=rf"another {what} than .*data at hand.*--out"):
            run([cell], other, console=quiet())


def test_options_that_a_file_cannot_keep_are_refused(settings: Settings) -> None:
    sets = replace(settings, options={"kernel_width": {1, 2}})
    with pytest.raises(ValueError, match=r"kernel_width.*cannot be kept .*give numbers, strings"):
        run(grid(sets, ("ADA",)), sets, console=quiet())
    assert not Path(settings.out).exists()


def test_predictions_that_are_not_finite_are_a_failure(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverges(X: np.ndarray) -> np.ndarray:
        return np.array([np.nan, np.inf, 1e200, *np.zeros(N_TEST - 3)])

    model = SimpleNamespace(predict=diverges)
    monkeypatch.setattr(runner, "fit_model", lambda *arguments: model)
    (result,) = run(grid(settings, ("A",))[:1], settings, console=quiet())
    assert result["status"] == "failed"
    assert f"3 of {N_TEST} squared errors are not finite" in result["error"]


def test_a_cell_that_another_run_has_done_is_not_run_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell, *_) = grid(settings, ("A",))
    result = runner.run_cell(cell, settings)
    monkeypatch.setattr(runner, "fit_model", lambda *arguments: pytest.fail("fitted again"))
    assert runner.run_cell(cell, settings)["rmse"] == result["rmse"]


def test_a_model_that_was_not_kept_is_fitted_again(settings: Settings) -> None:
    cells = grid(settings, ("A", "ADA"))[:2]
    first = run(cells, settings, console=quiet())
    console = quiet()
    keeping = replace(settings, save_models=True)
    second = run(cells, keeping, console=console)
    assert cells[1].model_path(settings.out).is_file()
    assert [r["rmse"] for r in second] == pytest.approx([r["rmse"] for r in first])
    assert "1 of 2 fits are there already" in written(console)
    run(cells, keeping, console=console)
    assert "2 of 2 fits are there already" in written(console)


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_first_fit(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(settings.out).mkdir()
    Path(settings.out, "cells").write_text("")
    monkeypatch.setattr(runner, "run_cell", lambda *arguments: pytest.fail("fitted"))
    with pytest.raises(ValueError, match=r"of --out cannot be written to .*give another one"):
        run(grid(settings, ("A",)), settings, console=quiet())


def test_an_error_does_not_promise_to_go_on(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(runner, "write_result", full)
    console = quiet()
    with pytest.raises(OSError, match="no space"):
        run(grid(settings, ("A",)), settings, console=console)
    assert "stopped with 0/3 fits done\n" in written(console)


def test_results_of_another_seed_are_not_mixed(settings: Settings) -> None:
    cells = grid(settings, ("A",))
    run(cells, settings, console=quiet())
    other = replace(settings, seed=5)
    with pytest.raises(
        ValueError, match=r"split 0 in .* made with the seed 0, not 5; give another"
    ):
        run(cells, other, console=quiet())


def test_options_that_json_writes_otherwise_are_the_same(settings: Settings) -> None:
    tuples = replace(settings, options={"max_iter": 1, "kernel_width": (0.5,)})
    cells = grid(settings, ("ADA",))[:1]
    assert run(cells, tuples, console=quiet()) == run(cells, tuples, console=quiet())


def test_a_cell_that_comes_twice_is_run_once(settings: Settings) -> None:
    console = quiet()
    results = run([*grid(settings, ("A", "A")), *grid(settings, ("A",))], settings, console=console)
    assert [result["split"] for result in results] == [0, 1, 2]
    assert "3/3 fits" in console.file.getvalue()  # type: ignore[attr-defined]


def test_folders_may_be_strings(settings: Settings) -> None:
    texts = replace(settings, out=str(settings.out), data_dir=str(settings.data_dir))
    cells = grid(texts, ("A",))
    assert len(run(cells, texts, console=quiet())) == len(read_results(str(settings.out))) == 3


@pytest.mark.parametrize(
    ("model", "options", "refused"),
    [
        ("ADA (T=20)", {"n_steps": 5}, "n_steps=20"),
        ("AD^4A down", {"kernel_width": 0.5}, "kernel_width='decreasing'"),
        ("(AD)^2A", {"inner_affine": "ridge"}, "inner_affine='identity'"),
        ("DA", {"sequence": "ADA"}, "sequence='DA'"),
        ("best", {"preset": "paper"}, "preset='best'"),
        ("DNN-1", {"hidden_layers": (3, 3)}, r"hidden_layers=\(64,\)"),
        ("ADA", {"n_steps": 5, "preset": "paper", "noise": 0.1}, None),
        ("ADA (T=20)", {"n_steps": 20, "kernel_width": 0.5}, None),
        ("best", {"n_steps": 5}, None),
        ("A", {"sequence": "DA"}, None),
    ],
)
def test_an_option_may_not_contradict_the_name_of_a_model(
    settings: Settings, model: str, options: dict[str, Any], refused: str | None
) -> None:
    if refused is None:
        return check_options(model, options)
    cells = grid(settings, ("A", model))
    with pytest.raises(
        ValueError, match=rf"{re.escape(model)}' has {refused}, but .* drop the opt"
    ):
        run(cells, replace(settings, options=options), console=quiet())
    assert read_results(settings.out) == []


@pytest.mark.parametrize("option", ["random_state", "engine", "device"])
def test_an_option_may_not_overrule_a_flag(option: str) -> None:
    flag = {"random_state": "seed"}.get(option, option)
    with pytest.raises(ValueError, match=rf"the option {option}=3 .* give it with --{flag}"):
        check_options("ADA", {option: 3})


@pytest.mark.parametrize("n", [0, -1, 1.5, "many"])
def test_a_search_needs_a_setting(n: object) -> None:
    message = "n_candidates is .*; give 1 or more"
    with pytest.raises(ValueError, match=message):
        check_options("XGBoost", {"n_candidates": n})
    for model in (TunedRegressor(Ridge(), {}, n_candidates=n), XRFMRegressor(n_candidates=n)):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=message):
            model.fit(np.eye(3), np.ones(3))


def test_taken_options_are_parameters_of_the_model() -> None:
    options = {"max_iter": 2, "epochs": 3}
    assert taken_options("ADA", options) == {"max_iter": 2}
    assert taken_options("DNN-2", options) == {"epochs": 3}


def test_no_processes_are_refused(settings: Settings) -> None:
    with pytest.raises(ValueError, match="jobs=0 leaves no process"):
        run(grid(settings), settings, jobs=0, console=quiet())


@pytest.mark.parametrize(
    ("killed", "status", "said"),
    [
        ("worker", 2, "error: one of the processes that run the fits was killed"),
        ("command", 130, "stopped with 0/3 fits done"),
    ],
)
def test_a_grid_that_is_killed_says_so_and_leaves_no_process(
    killed: str, status: int, said: str, data_dir: Path, tmp_path: Path
) -> None:
    words = ["table3", "--models", "DNN-10", "--datasets", "yacht", "--set", "epochs=1000000"]
    folders = ["--data-dir", str(data_dir), "--out", str(tmp_path / "out")]
    with subprocess.Popen(
        [sys.executable, "-m", "finemorphs.benchmarks", *words, "--jobs", "2", *folders],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            parent, workers = psutil.Process(process.pid), list[psutil.Process]()
            deadline = monotonic() + 120
            while len(workers) < 2 and monotonic() < deadline:
                sleep(0.1)
                workers = [c for c in parent.children() if "popen_loky" in " ".join(c.cmdline())]
            assert len(workers) == 2
            if killed == "worker":
                workers[0].kill()
            else:
                process.terminate()
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == status
    assert said in errors
    assert "Traceback" not in errors
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive


def test_a_failure_is_recorded_shown_and_tried_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "A":
            raise RuntimeError("out of luck [/]")
        return make_model(name, *arguments, **options)

    monkeypatch.setattr(runner, "make_model", broken)
    console = quiet()
    cells = grid(settings, ("A", "DNN-1"))
    results = run(cells, settings, console=console)
    assert [r["status"] == "failed" for r in results] == [True, False] * 3
    assert results[0]["error"] == "RuntimeError: out of luck [/]"
    assert "Traceback" in results[0]["traceback"]
    assert "FAILED, RuntimeError: out of luck [/]" in console.file.getvalue()  # type: ignore[attr-defined]
    assert [row.model for row in summarise(results)] == ["DNN-1"]
    assert "yacht, A, split 0: RuntimeError" in report(results)

    monkeypatch.undo()
    assert [r["status"] == "failed" for r in run(cells, settings, console=quiet())] == [False] * 6


def test_a_fit_that_was_interrupted_is_no_result(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(record: object) -> None:
        raise KeyboardInterrupt

    def made(*arguments: Any, **options: Any) -> Any:
        return make_model(*arguments, **options).set_params(callbacks=[interrupt])

    monkeypatch.setattr(runner, "make_model", made)
    console = quiet()
    with pytest.raises(KeyboardInterrupt):
        run(grid(settings, ("ADA",)), settings, console=console)
    assert read_results(settings.out) == []
    assert "the same command goes on from here" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "cells" / "a" / "b" / "0.json"
    (whole,) = fake("A", [1.0])
    write_result(path, whole)
    with pytest.raises(TypeError):
        write_result(path, {"status": object()})
    assert read_result(path) == whole
    assert [p.name for p in path.parent.iterdir()] == ["0.json"]
    assert read_results(tmp_path) == [whole]
    assert find_unreadable(tmp_path) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda result: result.pop("rmse"),
        lambda result: result.pop("split"),
        lambda result: result.update(status="failed"),
        lambda result: result.update(model="of another version"),
        lambda result: result.update(dataset="boston"),
        lambda result: result.clear(),
    ],
)
def test_a_result_that_is_not_whole_is_found(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    (result,) = fake("A", [1.0])
    change(result)
    path = tmp_path / "cells" / "a" / "b" / "0.json"
    write_result(path, result)
    assert read_results(tmp_path) == []
    assert find_unreadable(tmp_path) == [path]


def test_the_active_backend_of_joblib_carries_the_cells(settings: Settings) -> None:
    cells = grid(settings, ("A", "DNN-1"))
    with joblib.parallel_config("threading", n_jobs=2):
        results = run(cells, settings, console=quiet())
    assert [(r["model"], r["split"]) for r in results] == [(c.model, c.split) for c in cells]


def test_every_cell_has_a_file_of_its_own(tmp_path: Path) -> None:
    cells = [Cell(m, d, g, 0) for m in MODELS for d in UCI_NAMES for g in (False, True)]
    paths = {str(cell.path(tmp_path)).lower() for cell in cells}
    assert len(paths) == len(cells)
    assert Cell("AD^4A down", "yacht", True, 3).path(Path()) == Path(
        "cells/yacht_gap/AD4A-down/3.json"
    )


def test_the_gaussian_process_is_left_out_where_rows_are_many(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(grid(settings, ("GP", "A"))) == 6
    monkeypatch.setattr(runner, "max_rows", lambda name: 10 if name == "GP" else 1e9)
    assert {cell.model for cell in grid(settings, ("GP", "A"))} == {"A"}


def test_progress_says_what_is_left(settings: Settings) -> None:
    console = quiet()
    run(grid(settings), settings, console=console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1/9 fits  yacht A split 0: RMSE" in text
    assert "left" in text
    assert "0/9 fits  yacht A split 0 starts\n" in text
    run(grid(settings), settings, console=console)
    assert written(console).rstrip().endswith("9 of 9 fits are there already")


def test_progress_counts_the_whole_grid_and_guesses_from_what_was_kept(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = grid(settings)
    run(cells[:3], settings, console=quiet())
    for cell in cells[:3]:
        path = cell.path(settings.out)
        write_result(path, json.loads(path.read_text()) | {"seconds": 3600.0})
    console = quiet()
    run(cells, settings, console=console)
    assert "3 of 9 fits are there already, about 6 h left\n" in written(console)
    assert "4/9 fits  yacht A split 1: RMSE" in written(console)
    monkeypatch.setattr(runner, "_spread", lambda *arguments: iter(()))
    for cell in cells[3:]:
        cell.path(settings.out).unlink()
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    run(cells, settings, jobs=2, console=console)
    assert "about 3 h left" in written(console)


def test_a_short_fit_does_not_overthrow_the_guess_of_those_that_were_kept() -> None:
    kept, long, short = (Cell(m, "yacht", False, k) for m, k in (("ADA", 0), ("ADA", 1), ("A", 1)))
    console = quiet()
    with GridProgress({kept: 1.0, long: 1.0, short: 0.01}, {kept: 3600.0}, console) as progress:
        (result,) = fake("A", [1.0], "yacht")
        progress.advance(result | {"split": 1})
    assert "2/3 fits  yacht A split 1: RMSE 1, 2.0 s, about 60 min left\n" in written(console)


@pytest.mark.parametrize("terminal", [False, True])
def test_the_cell_that_is_next_is_named_where_no_bar_is_seen(
    settings: Settings, terminal: bool
) -> None:
    console = Console(file=io.StringIO(), width=200, force_terminal=terminal)
    with joblib.parallel_config("threading", n_jobs=2):
        run(grid(settings, ("A",)), settings, console=console)
    assert written(console).count(" is handed out\n") == (0 if terminal else 3)


@pytest.mark.parametrize("model", MODELS)
def test_costs_are_positive_and_grow(model: str) -> None:
    assert 0 < expected_seconds(model, 1000) <= expected_seconds(model, 10_000)


# --- tables ---------------------------------------------------------------------------------


def fake(model: str, scores: list[float], dataset: str = "concrete") -> list[dict[str, Any]]:
    return [
        {
            "model": model,
            "dataset": dataset,
            "gap": False,
            "split": k,
            "rmse": score,
            "rmse_without_twins": score + 1,
            "seconds": 2.0,
            "seed": k,
            "options": {},
            "status": "Fitted.",
        }
        for k, score in enumerate(scores)
    ]


def test_the_standard_error_is_the_population_deviation_over_root_n() -> None:
    values = [1.0, 2.0, 3.0, 6.0]
    assert standard_error(values) == pytest.approx(np.sqrt(3.5) / 2)


def test_a_row_stands_beside_the_paper() -> None:
    rows = summarise([*fake("ADA", [5.0, 5.1]), *fake("A", [10.0])])
    assert [row.model for row in rows] == ["A", "ADA"]
    text = render(rows, ranks=True)
    assert "| concrete | ADA | 2 | 5.050 ± 0.035 | 4.93 ± 0.13 | yes | 6.050 | 2 | 20 of 53" in text
    assert "| concrete | A | 1 | 10.00 | 10.31 ± 0.14 | yes, better | 11.00 |" in text
    assert "| no |" in render(summarise(fake("ADA", [5.1])))


def test_the_other_formats() -> None:
    rows = summarise(fake("AD^4A down", [4.4, 4.5]))
    (record,) = csv.DictReader(render(rows, "csv").splitlines())
    assert (record["dataset"], record["model"], record["splits"]) == ("concrete", "AD^4A down", "2")
    assert float(record["mean"]) == rows[0].mean
    assert float(record["standard_error"]) == rows[0].standard_error
    assert (record["paper_mean"], record["paper_standard_error"]) == ("4.49", "0.12")
    (single,) = csv.DictReader(render(summarise(fake("GP", [1.0])), "csv").splitlines())
    assert [single[k] for k in ("standard_error", "paper_mean", "paper_standard_error")] == [""] * 3
    latex = render(rows, "latex")
    assert r"AD\^{}4A down & 2 & 4.450 $\pm$ 0.035" in latex
    assert latex.count("&") == 2 * 7
    with pytest.raises(ValueError, match="choose one of markdown, csv, latex"):
        render(rows, "html")


@pytest.mark.parametrize("score", [np.nan, np.inf])
@pytest.mark.parametrize("form", ["markdown", "csv", "latex"])
def test_a_score_that_is_not_finite_is_shown(score: float, form: str) -> None:
    text = report(fake("ADA", [1.0, score]), form)
    assert str(score) in text


def test_the_report_says_what_was_set() -> None:
    plain, some = fake("ADA", [5.0, 5.1])
    results = [*fake("DA", [5.0]), some | {"options": {"max_iter": 2, "noise": "cv"}}]
    text = report(results)
    assert text.endswith("## Options\n\n- ADA: max_iter=2, noise=cv\n")
    (record,) = csv.DictReader(render(summarise(results[1:]), "csv").splitlines())
    assert record["options"] == "max_iter=2, noise=cv"
    mixed = "ADA: max_iter=2, noise=cv (1 fits); defaults (1 fits)\n"
    assert mixed in report([*results, plain], "latex")


def test_the_report_has_a_section_for_each_table() -> None:
    text = report([*fake("ADA", [5.0]), *fake("DA", [5.0]), *fake("DNN-1", [2.0], "airfoil")])
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "## Table 3: the baseline",
        "## Table 4: other sequences",
        "## Table 5: four diffeomorphisms",
        "## Others",
    ]
    assert report([]) == "No results yet.\n"


def test_the_report_has_the_other_formats() -> None:
    failed = {"model": "A", "dataset": "wine", "gap": True, "split": 1, "status": "failed"}
    results = [*fake("ADA", [5.0]), *fake("DA", [5.0]), failed | {"error": "Error: a\nb"}]
    lines = list(csv.reader(report(results, "csv").splitlines()))
    assert [line[:3] for line in lines] == [
        ["table", "dataset", "model"],
        ["Table 3: the baseline", "concrete", "ADA"],
        ["Table 5: four diffeomorphisms", "concrete", "ADA"],
        ["Others", "concrete", "DA"],
    ]
    assert {len(line) for line in lines} == {13}
    latex = report(results, "latex")
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 3
    assert "% Table 5: four diffeomorphisms\n" in latex
    assert latex.endswith("% Failed\n\n% - wine gap, A, split 1: Error: a b\n")
    assert report([], "latex") == "% No results yet.\n"


# --- the paper's numbers --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "dataset", "gap", "text", "table"),
    [
        ("ADA", "concrete", False, "4.93 ± 0.13", "3A"),
        ("ADA", "year", False, "8.84", "3B"),
        ("ADA", "yacht", True, "1.03 ± 0.14", "3B"),
        ("A", "power", True, "4.47 ± 0.08", "3A"),
        ("DNN-10", "airfoil", False, "1.79 ± 0.60", "4"),
        ("AD^4A down", "power", False, "3.24 ± 0.05", "5"),
        ("(AD)^4A", "airfoil", False, "1.21 ± 0.05", "4"),
        ("VMG", "naval", False, "0.00 ± 0.00", "C.1A"),
        ("SGD", "wine", True, "0.73 ± 0.02", "C.2B"),
        ("beta-NLL (beta=0.5)", "protein", False, "4.31 ± 0.01", "C.1B"),
    ],
)
def test_numbers_of_the_paper(model: str, dataset: str, gap: bool, text: str, table: str) -> None:
    score = find_score(model, dataset, gap)
    assert score is not None
    assert (str(score), score.table) == (text, table)


def test_the_papers_rows_are_whole() -> None:
    scores = load_paper()
    assert len({(s.model, s.dataset, s.gap) for s in scores}) == len(scores) == 650
    assert {s.dataset for s in scores} == set(UCI_NAMES)
    for score in scores:
        assert 0 <= score.mean < 20
        if score.precise_mean is not None:
            assert score.precise_mean == pytest.approx(score.mean, abs=0.00501)
    for name, table in TABLES.items():
        if name != "peers":
            for model in table.models:
                assert all(find_score(model, d, False) for d in table.datasets)
                assert all(find_score(model, d, True) for d in table.gap_datasets)


def test_the_verdict_takes_the_precision_that_is_printed() -> None:
    kin8nm = find_score("ADA", "kin8nm", False)  # 0.07 ± 0.00
    assert kin8nm is not None
    assert [kin8nm.judge(m) for m in (0.0749, 0.0751, 0.01)] == ["better", "no", "better"]
    concrete = find_score("ADA", "concrete", False)
    assert concrete is not None
    assert [concrete.judge(m) for m in (4.93, 5.06, 5.07)] == ["better", "within", "no"]
    precise = find_score("AD^4A down", "kin8nm", False)  # 0.06269 ± 0.00036
    assert precise is not None
    assert [precise.judge(m) for m in (0.0626, 0.0630, 0.0632)] == ["better", "within", "no"]


def test_ranks_leave_out_the_papers_own_row_and_share_places() -> None:
    assert rank("ADA", "concrete", False, 0.1) == (1, 53)
    assert rank("new", "concrete", False, 0.1) == (1, 54)
    assert rank("new", "concrete", False, 100.0) == (54, 54)
    place, n = rank("ADA", "yacht", False, 0.72)
    same_place, n_same = rank("ADA", "yacht", False, 0.72, same_splits=True)
    assert same_place == 4  # as the paper says of its 0.72
    assert n_same < n
    assert same_place <= place
    assert rank("ADA", "year", False, 8.84, same_splits=True)[0] == 1
    assert (
        rank("ADA", "kin8nm", False, 0.0749, same_splits=True)[0]
        == rank("ADA", "kin8nm", False, 0.07, same_splits=True)[0]
    )


# --- models ---------------------------------------------------------------------------------


def test_every_sequence_fits(data_dir: Path) -> None:
    X, y, X_test, _ = Settings(Path(), data_dir).load("yacht", False).split(0)
    for name in FINEMORPHS:
        model = make_model(name, "yacht", 3).set_params(max_iter=1)
        assert model.fit(X, y).predict(X_test).shape == (N_TEST,)
        assert {module.dim for module in model.model_.sequence.diffeos} == {4}


def test_models_have_the_settings_of_the_paper() -> None:
    assert (
        make_model("ADA", "year", 90).get_params().items()
        >= {
            "dims": 10,
            "subset_size": 1000,
        }.items()
    )
    assert make_model("AD^3A up", "airfoil", 5).kernel_width == "increasing"
    assert make_model("AD^3A down", "airfoil", 5).kernel_width == "decreasing"
    assert make_model("(AD)^5A", "airfoil", 5).inner_affine == "identity"
    assert make_model("ADA (T=40)", "airfoil", 5).n_steps == 40
    assert [len(layers) for layers in DNN_LAYERS.values()] == [1, 2, 3, 5, 10]
    with pytest.raises(ValueError, match="no model 'DNN-4'; choose from A, ADA"):
        make_model("DNN-4", "yacht", 6)


def test_ridge_is_that_of_standardised_data() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)) * [1, 9] + 4, rng.normal(size=30) * 5 + 1
    x, z = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    weights = np.linalg.solve(x.T @ x + np.eye(2), x.T @ z)
    expected = x @ weights * y.std() + y.mean()
    np.testing.assert_allclose(make_model("A", "", 2).fit(X, y).predict(X), expected)


def test_the_gradient_of_a_network_is_that_of_autograd() -> None:
    network = Network((3, 7, 5, 1), torch.Generator().manual_seed(0), "cpu")
    x, y = torch.randn(11, 3), torch.randn(11, 1)
    network.differentiate(x, y)
    theta = network.parameters.clone().requires_grad_()
    h, at = x, 0
    for n_in, n_out in ((3, 7), (7, 5), (5, 1)):
        weights = theta[at : at + n_in * n_out].view(n_in, n_out)
        biases = theta[at + n_in * n_out : at + n_in * n_out + n_out]
        at += n_in * n_out + n_out
        h = h @ weights + biases
        h = h if n_out == 1 else h.relu()
    torch.nn.functional.mse_loss(h, y).backward()
    torch.testing.assert_close(network.gradient, theta.grad)


def test_a_network_starts_as_in_tensorflow() -> None:
    network = Network((30, 50, 1), torch.Generator().manual_seed(0), "cpu")
    weights, biases = network.parameters[:1500], network.parameters[1500:1550]
    bound = (6 / 80) ** 0.5
    assert 0.95 * bound < weights.abs().max() <= bound
    assert (biases == 0).all()


def test_the_optimiser_of_a_network_is_adam() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(8, 2)), rng.normal(size=8)
    ours = DNNRegressor((4,), epochs=30, batch_size=8).fit(X, y).network_.parameters
    network = Network((2, 4, 1), torch.Generator().manual_seed(0), "cpu")
    adam = torch.optim.Adam([network.parameters], lr=0.001, eps=1e-7)
    x = torch.as_tensor((X - X.mean(0)) / X.std(0), dtype=torch.float32)
    z = torch.as_tensor(((y - y.mean()) / y.std())[:, None], dtype=torch.float32)
    for _ in range(30):
        network.differentiate(x, z)
        network.parameters.grad = network.gradient
        adam.step()
    torch.testing.assert_close(ours, network.parameters, rtol=1e-3, atol=1e-4)


def test_a_network_learns_in_few_epochs() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(203, 2)) * [1, 100]  # the last batch is smaller
    y = 50 + 10 * np.sin(2 * X[:, 0])
    threads = torch.get_num_threads()
    model = DNNRegressor((32, 16), epochs=100, random_state=1).fit(X, y)
    assert model.score(X, y) > 0.9
    assert torch.get_num_threads() == threads
    again = DNNRegressor((32, 16), epochs=100, random_state=1).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), again.predict(X))


# --- peers ----------------------------------------------------------------------------------


def test_a_peer_is_tuned_inside_the_training_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X @ [1.0, 2.0, 3.0]
    tuned = TunedRegressor(Ridge(1e6), {"alpha": [1e-6, 1e3]}, n_candidates=3).fit(X, y)
    assert tuned.best_params_ == {"alpha": 1e-6}
    assert tuned.score(X, y) > 0.999


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_gaussian_process_fits() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(60, 1))
    y = 100 + np.sin(2 * X[:, 0]) + 0.05 * rng.normal(size=60)
    assert make_model("GP", "yacht", 1).fit(X, y).score(X, y) > 0.99


@pytest.mark.parametrize("name", [name for name in PEERS if name != "GP"])
def test_a_peer_that_is_not_installed_is_named_with_the_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name.lower(), None)
    with pytest.raises(ImportError, match=rf"{name.lower()}.*pip install finemorphs\[peers\]"):
        make_model(name, "yacht", 6)


# --- the command ----------------------------------------------------------------------------


def call(settings: Settings, *arguments: str) -> int:
    return command.main(
        [*arguments, "--data-dir", str(settings.data_dir), "--out", str(settings.out)]
    )


def test_the_command_prints_the_table(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("--datasets", "Yacht", "--set", "max_iter=2", "--rank")
    assert call(settings, "table3", *few, "--models", "A", "ADA", "--splits", "0-1") == 0
    out, err = capsys.readouterr()
    assert out.startswith("| dataset | model |")
    assert "| yacht | ADA | 2 |" in out
    assert "4/4 fits" in err
    assert call(settings, "table3", *few, "--models", "A", "ADA", "--gap", "--format", "csv") == 0
    assert "yacht gap,A,3," in capsys.readouterr().out
    assert call(settings, "report") == 0
    assert "## Table 3: the baseline, gap splits" in capsys.readouterr().out
    assert call(settings, "report", "--format", "csv") == 0
    assert capsys.readouterr().out.startswith("table,dataset,model,")


def test_what_comes_twice_is_counted_once(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--datasets", "yacht", "Yacht Hydrodynamics", "--models", "A", "A")
    assert call(settings, "table3", *arguments, "--splits", "1", "0-1") == 0
    out, err = capsys.readouterr()
    assert "| yacht | A | 2 |" in out
    assert "2/2 fits" in err


def test_datasets_of_the_table_that_cannot_be_had_are_left_out(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network() -> object:
        raise ImportError("no pooch")

    monkeypatch.setattr(_download, "_import_pooch", no_network)
    assert call(settings, "table3", "--models", "A") == 0
    out, err = capsys.readouterr()
    assert "| yacht | A | 3 |" in out
    assert "YearPredictionMSD.txt, the table of the dataset 'year', is missing" in err
    assert sum(line.startswith("year is left out: ") for line in err.splitlines()) == 1
    rest = "concrete, energy, kin8nm, naval, power, protein, wine, year"
    assert err.endswith(f"left out, as their files are missing: {rest}\n")

    assert call(settings, "table3", "--models", "A", "--datasets", "yacht", "year") == 2
    assert "error: " in capsys.readouterr().err
    assert call(settings, "table4", "--models", "A") == 2
    assert "nothing to run: the files of airfoil are missing" in capsys.readouterr().err

    monkeypatch.setattr(command, "FIGURES", ("kin8nm", "yacht"))
    assert call(settings, "figures", "--set", "max_iter=1") == 0
    assert capsys.readouterr().err.endswith("left out, as their files are missing: kin8nm\n")
    assert call(settings, "figures", "--datasets", "kin8nm") == 2


def test_splits_that_are_not_there_are_named(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("--datasets", "yacht", "--models", "A")
    assert call(settings, "table3", *few, "--splits", "2-4") == 0
    assert "yacht has no split 3, 4, only 0 to 2\n" in capsys.readouterr().err


def test_a_model_of_the_grid_that_is_too_slow_leaves_nothing(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "max_rows", lambda name: 10)
    assert call(settings, "peers", "--datasets", "yacht", "--models", "GP") == 2
    assert "nothing to run: yacht has more training rows than GP" in capsys.readouterr().err


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("table", ["table3", "figures", "report"])
def test_results_cannot_go_to_a_file(
    settings: Settings, capsys: pytest.CaptureFixture[str], table: str, below: bool
) -> None:
    file = Path(settings.out)
    file.write_text("")
    inside = replace(settings, out=file / "results" if below else file)
    assert call(inside, table, "--datasets", "yacht") == 2
    assert f"as {file} is a file; give a folder" in capsys.readouterr().err


def test_the_command_draws_figures(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(settings, "figures", "--datasets", "yacht", "rings", "--set", "max_iter=2") == 0
    names = sorted(path.name for path in Path(settings.out, "figures").iterdir())
    stems = ("rings", "yacht-ADA-0", "yacht-ADA-0-response")
    assert names == sorted(f"{s}.{end}" for s in stems for end in ("png", "svg"))
    assert Path(settings.out, "cells/yacht/ADA/0.safetensors").is_file()
    capsys.readouterr()
    assert call(settings, "figures", "--datasets", "yacht", "--set", "max_iter=2") == 0
    assert call(settings, "figures", "--datasets", "yacht", "--set", "max_iter=3") == 2
    message = "was made with the options {'max_iter': 2}, not {'max_iter': 3}; give another folder"
    assert message in capsys.readouterr().err
    assert call(settings, "figures", "--datasets", "yacht", "--set", "max_iter=2", "--seed=5") == 2
    assert "split 0 in " in (text := capsys.readouterr().err)
    assert "was made with the seed 0, not 5; give another folder" in text
    assert call(settings, "figures", "--datasets", "yacht", "--models", "A") == 2
    assert "figures show FineMorphs models" in capsys.readouterr().err


def test_a_figure_is_of_the_model_of_its_result(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("figures", "--datasets", "yacht", "--set")
    assert call(settings, *few, "max_iter=2") == 0
    path = Path(settings.out, "cells/yacht/ADA/0.json")
    result = json.loads(path.read_text())
    write_result(path, result | {"rmse": 2 * result["rmse"]})
    capsys.readouterr()
    assert call(settings, *few, "max_iter=2") == 2
    assert "remove the model, and it is fitted again" in capsys.readouterr().err

    path.unlink()
    other = replace(settings, options={"max_iter": 3})
    run(grid(other, ("ADA",))[:1], other, console=quiet())
    assert call(settings, *few, "max_iter=3") == 2
    assert "was made with {'max_iter': 2}, not {'max_iter': 3}" in capsys.readouterr().err


def test_a_figure_of_a_fit_that_fails_is_told(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(settings, "figures", "--datasets", "yacht", "--set", "max_iter=-2") == 2
    assert "yacht ADA split 0 failed, which leaves nothing to draw" in capsys.readouterr().err


def test_rings_of_each_model_have_a_file(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--datasets", "rings", "--models", "ADA", "AD^2A up", "--set", "max_iter=1")
    assert call(settings, "figures", *arguments, "--gap") == 0
    names = sorted(path.name for path in Path(settings.out, "figures").glob("*.png"))
    assert names == ["rings-AD2A-up.png", "rings.png"]
    assert "--gap and --splits do not apply to it" in capsys.readouterr().err


@pytest.mark.parametrize(("n_steps", "shown"), [(10, 6), (3, 4), (8, 6)])
def test_panels_are_titled_with_their_times(data_dir: Path, n_steps: int, shown: int) -> None:
    X, y, *_ = Settings(Path(), data_dir).load("yacht", False).split(0)
    model = make_model("ADA", "yacht", 3).set_params(max_iter=1, n_steps=n_steps).fit(X, y)
    name, panels = panel_states(model, X)
    assert name.startswith("D")
    times = [time for time, _ in panels]
    assert len(times) == len(set(times)) == shown
    walk = {time: states for module, time, states in model.trajectory(X) if module == name}
    for time, states in panels:
        np.testing.assert_array_equal(states, walk[time])


def test_figures_without_matplotlib_name_the_extra(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, module, None)
    assert call(settings, "figures", "--datasets", "rings") == 2
    assert "pip install finemorphs[plots]" in capsys.readouterr().err


def test_a_table_that_is_not_the_public_one_is_told(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "yacht: 40 rows of 4 columns; the public table has 308 of 7, so the paper's numbers"
    few = ("--datasets", "yacht", "--set", "max_iter=1")
    assert call(settings, "table3", *few, "--models", "A", "ADA") == 0
    assert capsys.readouterr().err.count(told) == 1
    monkeypatch.setattr(command, "draw_figure", lambda *arguments, **options: [])
    assert call(settings, "figures", *few) == 0
    assert capsys.readouterr().err.count(told) == 1
    public = replace(find_source("yacht"), n_rows=N_ROWS, n_columns=4)
    monkeypatch.setattr(command, "find_source", lambda name: public)
    assert call(settings, "table3", *few, "--models", "A", "ADA") == 0
    assert "public" not in capsys.readouterr().err


def test_a_tilde_is_the_home_of_the_user(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(Path(settings.out).parent))
    home = replace(settings, out="~/out", data_dir="~/data")
    assert call(home, "table3", "--datasets", "yacht", "--models", "A") == 0
    assert len(read_results(settings.out)) == 3


def test_the_report_is_of_what_is_asked(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(settings, "report") == 2
    assert f"there is no folder {settings.out}; give the --out" in capsys.readouterr().err
    cells = [*grid(settings), *runner.plan(["A"], ["yacht"], settings, gap=True)]
    run(cells, settings, console=quiet())
    for arguments, rows in (
        (("--models", "A", "--splits", "0-1"), ["yacht,A,2", "yacht gap,A,2"]),
        (("--gap",), ["yacht gap,A,3"]),
        (("--datasets", "concrete"), []),
        (("--models", "DNN-1", "--datasets", "Yacht"), ["yacht,DNN-1,3"]),
    ):
        assert call(settings, "report", "--format", "csv", *arguments) == 0
        records = csv.DictReader(capsys.readouterr().out.splitlines())
        assert [",".join([r["dataset"], r["model"], r["splits"]]) for r in records] == rows
    assert call(settings, "report", "--models", "ADB") == 2
    assert "no model 'ADB'" in capsys.readouterr().err


def test_the_report_names_the_files_that_it_leaves_out(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = grid(settings, ("A",))
    run(cells, settings, console=quiet())
    path = cells[1].path(settings.out)
    path.write_text('{"status": "Fitted."}')
    assert call(settings, "report") == 0
    out, err = capsys.readouterr()
    assert "| yacht | A | 2 |" in out
    assert f"{path} is left out, as it is no whole result" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--models", "ADB"), "no model 'ADB'"),
        (("--datasets", "yacht", "--set", "engine=cpu"), "give it with --engine"),
        (("--datasets", "yacht", "--set", "noise={1,2}"), "cannot be kept in a file of results"),
        (("--datasets", "boston"), "no dataset 'boston'"),
        (("--set", "max_itr=2"), "no model of this run has the parameter 'max_itr'"),
        (("--set", "max_iter"), "--set takes NAME=VALUE"),
        (("--set", "kernel_width=1"), "'AD^4A down' has kernel_width='decreasing'"),
        (("--splits", "a"), "--splits takes numbers"),
        (("--splits", "3-1"), "--splits takes numbers and ranges such as 0 3 5-7, not '3-1'"),
        (("--splits", "30", "--datasets", "yacht"), "nothing to run: yacht has no split 30, only"),
        (("--datasets", "yacht", "--jobs", "0"), "jobs=0 leaves no process"),
        (("--gap", "--datasets", "airfoil"), "'airfoil' has no gap splits; take the standard"),
    ],
)
def test_wrong_options_are_told(
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    assert call(settings, "table5", *arguments) == 2
    assert message in capsys.readouterr().err


def test_a_table_without_gap_splits_is_told(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(settings, "table4", "--gap", "--models", "A") == 2
    assert "table4 has no gap splits; leave --gap out" in capsys.readouterr().err
