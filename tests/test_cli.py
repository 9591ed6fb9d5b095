"""The command line, as a user meets it: what it prints, writes and returns."""

from __future__ import annotations

import csv
import inspect
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import finemorphs
from finemorphs import FineMorphsClassifier, FineMorphsRegressor
from finemorphs.cli import _use
from finemorphs.cli._app import make_app
from finemorphs.cli._fit import _split
from finemorphs.cli._look import PLOTS
from finemorphs.cli._options import EstimatorOption, estimator_options
from finemorphs.cli._screen import Screen
from finemorphs.estimators.best import _flows, _weights
from finemorphs.tables import Recipe, read_chunks, read_table

FAST = ["--max-iter", "15", "--n-steps", "3", "--random-state", "0", "--engine", "reference"]
APP = make_app()
SOURCE = Path(finemorphs.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(SOURCE)}


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str | Path) -> Result:
    result = CliRunner().invoke(APP, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def failed(*words: str | Path) -> str:
    """The error of a call that must end with 2 and without a traceback."""
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.stderr


def make_table(path: Path, n: int = 60, **more: list[str]) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 2))
    y = x[:, 0] + np.sin(x[:, 1])
    columns = {
        "id": [f"{i:04d}" for i in range(n)],
        "a": [f"{v:.6f}" for v in x[:, 0]],
        "b": [f"{v:.6f}" for v in x[:, 1]],
        "y": [f"{v:.6f}" for v in y],
        **more,
    }
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
    return path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    colours = ["red", "blue", ""] * 20
    table = make_table(folder / "train.csv", colour=colours)
    result = run("fit", table, "--target", "y", "--drop", "id", "--out", folder / "m.st", *FAST)
    assert result.exit_code == 0, result.output
    (folder / "fit.txt").write_text(result.stdout)
    return folder


def test_fit_says_what_it_did_and_compares_with_ridge_regression(fitted: Path) -> None:
    text = (fitted / "fit.txt").read_text()
    assert "train.csv: 60 rows, 5 columns; 3 of them predict y" in text
    assert "left out: 'id' (as asked)" in text
    assert "column 'colour': text, one column for each of 3 values" in text
    assert "errors on 6 rows held out" in text
    assert "y, finemorphs" in text
    assert "y, ridge regression" in text
    assert "trained on 54 rows" in text


def test_a_model_file_of_fit_is_an_estimator(fitted: Path) -> None:
    model = finemorphs.load(fitted / "m.st")
    assert list(model.feature_names_in_) == ["a", "b", "colour=", "colour=blue", "colour=red"]
    model.save(fitted / "again.st")
    assert run("evaluate", fitted / "again.st", fitted / "train.csv").exit_code == 0


def test_predict_takes_columns_in_any_order_and_carries_the_others(fitted: Path) -> None:
    model = finemorphs.load(fitted / "m.st")
    data = fitted / "new.csv"
    data.write_text("note,colour,b,a\n=1+1,red,0.5,1\n007,green,,2\n")
    result = run("predict", fitted / "m.st", data, "--out", fitted / "p.csv")
    assert result.exit_code == 0, result.output
    assert "column 'colour': 1 that training did not have" in result.stdout
    assert "column 'b': 1 missing, taken as the median" in result.stdout
    with (fitted / "p.csv").open(newline="") as file:
        header, first, second = csv.reader(file)
    assert header == ["note", "colour", "b", "a", "predicted_y"]
    assert first[:4] == ["'=1+1", "red", "0.5", "1"]
    assert second[:4] == ["007", "green", "", "2"]
    median = json.loads(json.dumps(model.notes_))["recipe"]["columns"][1]["median"]
    rows = np.array([[1, 0.5, 0, 0, 1], [2, median, 0, 0, 0]])
    expected = model.predict(pd.DataFrame(rows, columns=model.feature_names_in_))
    np.testing.assert_allclose([float(first[4]), float(second[4])], expected)


def test_predictions_do_not_depend_on_the_pieces(
    fitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("predict", fitted / "m.st", fitted / "train.csv", "--out", fitted / "whole.csv")
    monkeypatch.setattr(_use, "read_chunks", lambda path: read_chunks(path, cells_at_once=35))
    run("predict", fitted / "m.st", fitted / "train.csv", "--out", fitted / "pieces.parquet")
    whole = read_table(fitted / "whole.csv")["predicted_y"].numbers()
    pieces = read_table(fitted / "pieces.parquet")["predicted_y"].numbers()
    np.testing.assert_allclose(whole, pieces, rtol=1e-12)


def test_evaluate_prints_the_errors(fitted: Path) -> None:
    result = run("evaluate", fitted / "m.st", fitted / "train.csv", "--quiet")
    model = finemorphs.load(fitted / "m.st")
    table = read_table(fitted / "train.csv")
    recipe = Recipe.from_json(model.notes_["recipe"])
    X = pd.DataFrame(recipe.apply(table), columns=recipe.features)
    r2 = model.score(X, recipe.responses(table)[0][:, 0])
    assert result.stdout.splitlines()[-1].split()[-1] == f"{r2:.4g}"
    assert "errors on" not in result.stdout


def test_info_shows_the_modules_and_the_training(fitted: Path) -> None:
    text = run("info", fitted / "m.st").stdout
    assert "options" in text
    assert "max_iter=15, " in text
    for words in (
        "ADA",
        "A0",
        "6 -> 6",
        "D1",
        "Matern-3, width 0.5",
        "54 rows of train.csv",
        "training RMSE",
    ):
        assert words in text
    model = finemorphs.load(fitted / "m.st")
    for kept in (*model.distance_.values(), *model.stationarity_.values()):
        assert f"{kept:.4g}" in text
    assert "from errors on 6 other rows" in text


def test_info_shows_what_was_tried_for_the_noise(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((40, 2))
    model = FineMorphsRegressor(noise="cv", max_iter=3, n_steps=2, random_state=0).fit(x, x[:, 0])
    model.save(tmp_path / "m.st")
    lines = run("info", tmp_path / "m.st").stdout.splitlines()
    header = next(i for i, line in enumerate(lines) if "error held out" in line)
    rows = [line.split() for line in lines[header + 1 :]]
    shown = [[float(word) for word in row[:6]] for row in rows]
    expected = model.noise_path_[:, :6].copy()
    np.testing.assert_array_equal(model.noise_path_[:, 6], expected[:, 1])
    expected[:, 3] **= 0.5
    np.testing.assert_allclose(shown, expected, rtol=1e-3)
    (chosen,) = (row for row in rows if row[6:] == ["chosen"])
    sequence = model.model_.sequence
    assert float(chosen[0]) == sequence.diffeos[0].kernel.order
    assert float(chosen[1]) == sequence.affines[0].ridge
    alone = FineMorphsRegressor(max_iter=1, n_steps=1, random_state=0).fit(x, x[:, 0])
    estimated = alone.history_["sigma"][0]
    assert float(chosen[2]) == pytest.approx(model.noise_ / estimated, rel=1e-3)


@pytest.mark.parametrize(
    ("ridge", "width", "row"),
    [(1.0, 0.5, 1), (4.0, 0.5, 2), (4.0, 2.0, 4), ([4.0, 1.0], 0.5, 6)],
)
def test_the_chosen_step_has_the_widths_and_the_ridge_of_the_model(
    ridge: float | list[float], width: float, row: int
) -> None:
    x = np.random.default_rng(0).standard_normal((20, 2))
    options = {"ridge": ridge, "kernel_width": width, "max_iter": 1, "n_steps": 1}
    model = FineMorphsRegressor("AD2A", **options).fit(x, x[:, 0])
    model.noise_path_ = np.array(
        [
            [3, 1, 1.4, 0.5, 9, 1, 1],
            [3, 1, 1.0, 0.4, 9, 1, 1],
            [3, 4, 1.4, 0.3, 9, 1, 4],
            [3, 4, 1.4, 0.2, 9, 4, 4],
            [3, 4, 1.0, 0.1, 9, 4, 4],
            [1, 4, 1.0, 0.0, 9, 4, 4],
            [3, 4, 1.0, 0.2, 9, 1, 1],
        ]
    )
    assert _use._chosen_step(model) == row
    shown = _use._noise_path(model)[1]
    assert [line[1] for line in shown[-2:]] == ["4", "4, last 1"]
    assert [i for i, line in enumerate(shown) if line[-1]] == [row]


@pytest.mark.parametrize("kind", ["power", "auto"])
def test_info_shows_the_warp_that_was_chosen(cwd: Path, kind: str) -> None:
    x = np.random.default_rng(0).standard_normal((30, 2))
    model = FineMorphsRegressor(input_warp=kind, max_iter=2, random_state=0).fit(x, x[:, 0])
    model.save(cwd / "m.st")
    words = f"input_warp={model.input_warp_}"
    assert (f"warps {words}" in " ".join(run("info", cwd / "m.st").stdout.split())) == (
        kind == "auto"
    )


@pytest.mark.parametrize(("hopeless", "words"), [(np.inf, "with a weight"), (0.0, "no weight")])
def test_info_shows_the_members(
    cwd: Path, monkeypatch: pytest.MonkeyPatch, hopeless: float, words: str
) -> None:
    monkeypatch.setattr(_flows, "_HOPELESS", hopeless)
    alike = lambda columns, y: np.full(columns.shape[1], 1 / columns.shape[1])  # noqa: E731
    monkeypatch.setattr(_weights, "simplex_least_squares", alike)
    x = np.random.default_rng(0).standard_normal((30, 2))
    model = FineMorphsRegressor(preset="best", max_iter=2, random_state=0).fit(x, x[:, 0])
    model.save(cwd / "m.st")
    text = " ".join(run("info", cwd / "m.st").stdout.split())
    assert "model a mean of" in text
    assert f"{words} " in text.partition("pictures show AD")[2]
    selection = model.selection_
    assert f"size {selection['numbers']} numbers" in text
    assert f"prediction {selection['pairs']} kernel evaluations a row" in text
    assert f"training {model.status_} {selection['seconds']:.3g} seconds" in text
    for candidate in selection["candidates"]:
        error, weight = candidate["rmse"][0], candidate["weight"]
        line = f"{candidate['name']} {error:.4g} {weight:.3g} {candidate['folds']} of 5"
        assert line in text
    for candidate in selection["rejected"]:
        assert f"{candidate['name']} {candidate['rmse'][0]:.4g} rejected" in text
    assert f"their weighted mean {selection['rmse'][0]:.4g} 1 5 of 5" in text


def press_ctrl_c(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("finemorphs.estimators.best._kernels.mix_features", "the same call begins again"),
        (
            "finemorphs.training.rounds._Run._tell",
            "the same call with --resume goes on: flows are kept, kernel regressions are fitted",
        ),
    ],
    ids=["kernels", "flows"],
)
def test_an_interrupted_best_fit_says_what_is_kept(
    cwd: Path, monkeypatch: pytest.MonkeyPatch, place: str, words: str
) -> None:
    make_table(cwd / "t.csv")
    monkeypatch.setattr(place, press_ctrl_c)
    call = ["fit", "t.csv", "--target", "y", "--drop", "id", "--out", "m.st", *FAST]
    result = run(*call, "--preset", "best")
    assert result.exit_code == 130, result.output
    assert f"training was interrupted; {words}" in result.stdout


def test_tables_are_whole_on_a_narrow_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    monkeypatch.setattr(screen, "_out", Console(width=40, highlight=False))
    screen.columns(["candidate", "RMSE held out"], [["kernels (inputs none, response none)", "1"]])
    text = " ".join(capsys.readouterr().out.split())
    assert "\u2026" not in text
    assert {"kernels", "(inputs", "none,", "response", "none)", "held", "out"} <= set(text.split())


def test_predict_adds_intervals_when_asked(fitted: Path) -> None:
    out, table = fitted / "p.csv", fitted / "train.csv"
    result = run("predict", fitted / "m.st", table, "--out", out, "--confidence", "0.75")
    assert result.exit_code == 0, result.output
    frame = pd.read_csv(out)
    middle = (frame["lower_y"] + frame["upper_y"]) / 2
    np.testing.assert_allclose(middle, frame["predicted_y"])
    scores = np.sort(finemorphs.load(fitted / "m.st").conformity_scores_[:, 0])
    np.testing.assert_allclose(frame["upper_y"] - middle, scores[5])
    words = failed("predict", fitted / "m.st", table, "--out", out, "--confidence", "0.9")
    assert "needs 11 rows of calibration, and there were 6" in words


def test_report_and_every_plot_are_written(fitted: Path) -> None:
    model, data = fitted / "m.st", fitted / "train.csv"
    result = run("report", model, data, "--out", fitted / "r.html")
    assert result.exit_code == 0, result.output
    text = (fitted / "r.html").read_text("utf-8")
    assert "<h1>y by ADA</h1><p>60 rows of train.csv</p>" in text
    assert "On rows held out of training: finemorphs RMSE" in text
    for kind in PLOTS:
        out = fitted / f"{kind}.{'html' if kind == 'space' else 'svg'}"
        result = run("plot", model, data, "--kind", kind, "--out", out)
        assert result.exit_code == 0, result.output
        assert out.stat().st_size > 1000
    call = ["plot", model, data, "--out", fitted / "x.png"]
    assert "--kind 'pie' is not known" in failed(*call, "--kind", "pie")
    assert "does not fit --kind space" in failed(*call, "--kind", "space")
    help_text = " ".join(run("plot", "--help").stdout.replace("\u2502", " ").split())
    assert all(kind in help_text for kind in PLOTS)


def test_a_picture_of_one_member_says_so(cwd: Path) -> None:
    make_table(cwd / "t.csv")
    words = ["--target", "y", "--drop", "id", "--out", "m.st", "--n-members", "2", *FAST]
    run("fit", "t.csv", *words)
    for kind, shows_one in {"flow": True, "predictions": False}.items():
        text = run("plot", "m.st", "t.csv", "--kind", kind, "--out", "p.svg").stdout
        assert ("shows one flow, ADA, start 1, with a weight of 0.5" in text) is shows_one


def test_several_targets(cwd: Path) -> None:
    make_table(cwd / "t.csv", z=[f"{i % 7}" for i in range(60)])
    words = ["--target", "y", "--target", "z", "--drop", "id", "--out", "m.st", *FAST]
    assert "z, ridge regression" in run("fit", "t.csv", *words).stdout
    run("predict", "m.st", "t.csv", "--out", "p.csv")
    assert {"predicted_y", "predicted_z"} <= set(read_table("p.csv").columns)
    assert "z" in run("evaluate", "m.st", "t.csv").stdout


def test_quiet_says_nothing(cwd: Path) -> None:
    make_table(cwd / "t.csv")
    result = run("fit", "t.csv", "--target", "y", "--drop", "id", "--out", "m.st", "-q", *FAST)
    assert result.output == ""
    assert (cwd / "m.st").is_file()


def test_a_target_of_text_makes_classes(cwd: Path) -> None:
    labels = ["yes" if i % 3 else "no" for i in range(59)] + [""]
    make_table(cwd / "t.csv", 60, label=labels, x=[f"{i % 3}" for i in range(60)])
    call = ["fit", "t.csv", "--target", "label", "--drop", "id", "--out", "m.st", *FAST]
    result = run(*call)
    assert result.exit_code == 0, result.output
    assert "its values are classes" in result.stdout
    assert "label, logistic regression" in result.stdout
    assert "1 rows have no target" in result.stdout
    words = failed("predict", "m.st", "t.csv", "--out", "p.csv", "--confidence", "0.9")
    assert "not classes" in words
    run("predict", "m.st", "t.csv", "--out", "p.csv")
    table = read_table("p.csv")
    assert set(table["predicted_label"].text()) <= {"yes", "no"}
    chances = [table[f"probability_{label}"].numbers() for label in ("no", "yes")]
    np.testing.assert_allclose(chances[0] + chances[1], 1)
    assert "accuracy" in run("evaluate", "m.st", "t.csv").stdout
    (cwd / "new.csv").write_text("a,b,y,x,label\n1,1,1,1,maybe\n")
    assert "class 'maybe' was not there in training" in failed("evaluate", "m.st", "new.csv")
    assert "--loss is no option for a target of classes" in failed(*call, "--loss", "huber")


def test_a_class_of_few_rows_is_never_held_out_whole() -> None:
    y = np.array([f"c{i}" for i in range(30)] + ["c"] * 30)
    train, test = _split(np.arange(60), y, 0.5)
    assert set(y[train]) == set(y)
    assert sorted([*train, *test]) == list(range(60))
    assert len(test) > 5


# --- options ------------------------------------------------------------------------------


def test_every_parameter_of_the_estimator_is_an_option() -> None:
    hidden = {"callbacks", "verbose", "warm_start"}
    for kind in (FineMorphsRegressor, FineMorphsClassifier):
        assert set(inspect.signature(kind).parameters) - hidden <= set(estimator_options())
    text = run("fit", "--help").stdout
    assert "--kernel-width" in text
    assert all(option.help for option in estimator_options().values())


def test_help_has_values_and_no_marks() -> None:
    helps = {name: option.help for name, option in estimator_options().items()}
    assert not any("`" in text or ":mod:" in text for text in helps.values())
    for name in ("input_warp", "response_warp"):
        assert helps[name].endswith("[values: none, quantile, power, auto]")
    assert helps["kernel"] == "matern, gaussian"
    assert helps["preset"].endswith("[values: paper, best or none]")
    assert helps["loss"].endswith("[values: squared, huber]")
    assert "finemorphs.losses says" in helps["loss"]
    assert "values" not in helps["max_iter"]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("kernel_width", "0.25", 0.25),
        ("kernel_width", "0.25,0.5", [0.25, 0.5]),
        ("kernel_width", "decreasing", "decreasing"),
        ("n_steps", "5,6", [5, 6]),
        ("subset_size", "none", None),
        ("subset_size", "30", 30),
        ("noise", "auto", "auto"),
        ("noise", "0.1", 0.1),
        ("sequence", "AD4A", "AD4A"),
        ("max_time", "2.5", 2.5),
    ],
)
def test_text_becomes_what_the_parameter_takes(name: str, text: str, value: object) -> None:
    parsed = estimator_options()[name].parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_switches_are_parsed() -> None:
    option = EstimatorOption("exact", frozenset({"bool", "str"}), False, "")
    assert option.parse("true") is True
    assert option.parse("False") is False


def test_values_of_the_wrong_kind_are_refused(cwd: Path) -> None:
    make_table(cwd / "t.csv")
    call = ["fit", "t.csv", "--target", "y", "--drop", "id", "--out", "m.st"]
    assert "--max-iter takes a whole number, but 'many' came" in failed(*call, "--max-iter", "many")
    assert "kernel='cubic' is not known" in failed(*call, "--kernel", "cubic")
    assert "cannot be read at 'X'" in failed(*call, "--sequence", "AXA")
    assert "--holdout takes a share" in failed(*call, "--holdout", "2")
    assert "missing='x' is not known" in failed(*call, "--missing", "x")
    assert not (cwd / "m.st").exists()


def test_options_can_be_saved_and_used_again(cwd: Path) -> None:
    make_table(cwd / "t.csv")
    words = ["--target", "y", "--drop", "id", "--out", "m.st", *FAST]
    assert run("fit", "t.csv", *words, "--save-config", "fit.toml").exit_code == 0
    assert not (cwd / "m.st").exists()
    text = (cwd / "fit.toml").read_text()
    assert 'target = ["y"]' in text
    assert "# kernel_width = 0.5" in text
    result = run("fit", "--config", "fit.toml", "--sequence", "DA", "--no-holdout")
    assert result.exit_code == 0, result.output
    model = finemorphs.load(cwd / "m.st")
    assert (model.max_iter, model.sequence_) == (15, "DA")
    assert "trained on 60 rows" in result.stdout


def test_a_wrong_configuration_is_refused(cwd: Path) -> None:
    (cwd / "c.toml").write_text("kernel-widht = 1")
    assert "did you mean 'kernel_width'" in failed("fit", "--config", "c.toml")
    (cwd / "c.toml").write_text("a = = 1")
    assert "not a TOML file" in failed("fit", "--config", "c.toml")
    (cwd / "c.toml").write_text("target = 3\ntrain = 't.csv'\nout = 'm.st'")
    assert "target takes column names, but 3 came" in failed("fit", "--config", "c.toml")
    assert "--config none.toml names no file; give" in failed("fit", "--config", "none.toml")
    assert "the table to train on is missing" in failed("fit")
    assert "--target is missing" in failed("fit", "t.csv")


# --- mistakes -----------------------------------------------------------------------------


def test_mistakes_get_a_sentence(cwd: Path, fitted: Path) -> None:
    table = make_table(cwd / "t.csv", text=[f"name {i}" for i in range(60)])
    call = ["--out", "m.st", *FAST]
    assert "Did you mean 'y'" in failed("fit", table, "--target", "Y", *call)
    assert "column 'text' is text with 60" in failed("fit", table, "--target", "y", *call)
    (cwd / "empty.csv").write_text("")
    assert "empty.csv is empty" in failed("fit", "empty.csv", "--target", "y", *call)
    assert "no file at none.csv" in failed("fit", "none.csv", "--target", "y", *call)
    assert "is text with 60 different" in failed("fit", table, "--target", "text", *call)
    two = ["--target", "y", "--target", "text"]
    assert "has 'name 0' in row 1" in failed("fit", table, *two, *call)
    assert "cannot be written there" in failed("fit", table, "--target", "y", "--out", "no/m.st")
    model = fitted / "m.st"
    (cwd / "cut.st").write_bytes(model.read_bytes()[:-100])
    assert "not a whole finemorphs file" in failed("info", "cut.st")
    words = failed("info", table)
    assert "t.csv' is not a finemorphs file: it begins with b'id,a,b,y'; give a file" in words
    assert "not a whole finemorphs file" in failed("predict", "cut.st", table, "--out", "p.csv")
    assert "no column 'colour'" in failed("predict", model, table, "--out", "p.csv")
    assert "there is no file" in failed("info", "none.st")
    assert "names no format" in failed("predict", model, table, "--out", "p.doc")
    assert sorted(path.name for path in cwd.iterdir()) == ["cut.st", "empty.csv", "t.csv"]


def test_rows_without_a_target_are_left_out_or_refused(cwd: Path) -> None:
    (cwd / "t.csv").write_text(
        "a,y\n" + "".join(f"{i},{'' if i % 4 == 0 else i}\n" for i in range(40))
    )
    call = ["fit", "t.csv", "--target", "y", "--out", "m.st", *FAST]
    assert "10 rows have no target and are left out" in run(*call).stdout
    assert "10 rows have no value of 'y', the first is row 1" in failed(*call, "--missing", "error")
    assert "10 rows have no target" in run("evaluate", "m.st", "t.csv").stdout


def test_few_rows(cwd: Path) -> None:
    make_table(cwd / "ten.csv", 10)
    call = ["--target", "y", "--drop", "id", "--out", "m.st", *FAST]
    result = run("fit", "ten.csv", *call)
    assert result.exit_code == 0
    assert "10 rows are too few to hold some out" in result.stdout
    make_table(cwd / "four.csv", 4)
    assert "4 rows with a target, and training needs 5" in failed("fit", "four.csv", *call)


def test_a_model_without_column_names_cannot_be_matched(cwd: Path) -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = FineMorphsRegressor(max_iter=3, n_steps=2, engine="reference").fit(X, X[:, 0])
    model.save(cwd / "m.st")
    make_table(cwd / "t.csv")
    assert "without column names" in failed("predict", "m.st", "t.csv", "--out", "p.csv")
    assert "features" in run("info", "m.st").stdout
    model.fit(pd.DataFrame(X, columns=["a", "b"]), X[:, 0]).save(cwd / "m.st")
    assert run("predict", "m.st", "t.csv", "--out", "p.csv").exit_code == 0
    (cwd / "holes.csv").write_text("a,b\n1,\n")
    assert "1 missing values" in failed("predict", "m.st", "holes.csv", "--out", "p.csv")


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(FileNotFoundError):
        run("info", "none.st", "--debug")


def test_a_mistake_of_ours_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("finemorphs.cli._use.describe_model", broken)
    result = run("info", "m.st")
    assert result.exit_code == 1
    assert "a mistake of ours" in result.stderr


# --- whole processes ----------------------------------------------------------------------


def program(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "finemorphs", *map(str, words)]


def test_wrong_calls_end_with_2_and_help_and_version_with_0() -> None:
    assert run("fit", "--no-such-option").exit_code == 2
    assert run("--version").stdout == f"finemorphs {finemorphs.__version__}\n"
    assert run("bench", "--help").exit_code == 0
    assert run("bench", "table9").exit_code == 2
    done = subprocess.run(
        program("--help"), capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    assert "evaluate" in done.stdout


def test_the_shell_can_complete_words() -> None:
    line = {
        "_FINEMORPHS_COMPLETE": "complete_bash",
        "COMP_WORDS": "finemorphs ev",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        program(), capture_output=True, text=True, env={**ENVIRONMENT, **line}, check=True
    )
    assert done.stdout.split() == ["evaluate"]


def test_ctrl_c_saves_the_model_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_table(tmp_path / "t.csv", 80)
    words = program("fit", "t.csv", "--target", "y", "--drop", "id", "--out", "m.st")
    slow = ["--tol", "0", "--max-iter", "1000000", "--engine", "reference"]
    process = subprocess.Popen(
        [*words, *slow],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert process.stdout is not None
    line = ""
    while "iteration" not in line:
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Interrupted by the user." in output
    assert "Traceback" not in errors
    reached = finemorphs.load(tmp_path / "m.st").n_iter_
    assert reached >= 1
    assert "the same call with --resume goes on" in output
    monkeypatch.chdir(tmp_path)
    call = [*words[3:], *slow[:2], "--max-iter", "3", "--engine", "reference"]
    assert "of a training that was not finished" in failed(*call)
    assert "max_iter" in failed(*call, "--resume")
    os.remove("m.st.checkpoint")
    assert run(*call).exit_code == 0
    assert not Path("m.st.checkpoint").exists()


def test_demo_needs_no_extra(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("finemorphs.cli._demo.find_spec", lambda name: None)
    monkeypatch.setattr("finemorphs.cli._demo._TRAIN", 200)
    for extra in ("matplotlib", "matplotlib.pyplot", "plotly"):
        monkeypatch.setitem(sys.modules, extra, None)
    result = run("demo", "--out", "d")
    assert result.exit_code == 0, result.output
    assert {path.name for path in (cwd / "d").iterdir()} == {
        "rings-train.csv",
        "rings-test.csv",
        "rings.safetensors",
        "report.html",
    }
    r2 = re.search(r"height +[\d.]+ +[\d.]+ +([\d.]+)", result.stdout)
    assert r2 is not None
    assert float(r2[1]) > 0.9
    assert "pip install 'finemorphs[plots]'" in result.stdout
