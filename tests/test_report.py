"""The report: complete in one file, true to the model, harmless, and alive in a real browser."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from _browser import Browser, find_chromium

from finemorphs import FineMorphsClassifier, FineMorphsRegressor
from finemorphs.estimators.best import _flows, _weights
from finemorphs.plots._frames import encode, frames_of
from finemorphs.report import candidate_table, write_report
from finemorphs.report._svg import Chart, bars, number, ticks

NASTY = ["<script>alert(1)</script>", "a&b\"'", "</script><img src=x onerror=alert(2)>"]
QUICK = {"max_iter": 10, "n_steps": 3, "random_state": 0, "engine": "reference"}


def make_frame(n: int = 60) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return pd.DataFrame(X, columns=NASTY), X[:, 0] + np.sin(2 * X[:, 1])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, y = make_frame()
    model = FineMorphsRegressor("AD2A", **QUICK).fit(X, y)
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, model, X, y, targets=[NASTY[0]], title=NASTY[2])
    return path


class Parts(HTMLParser):
    """Elements and attributes of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script":
            self.scripts.append(data)


def flow_data(page: Path) -> dict:
    parts = Parts(page.read_text("utf-8"))
    return json.loads(next(s for s in parts.scripts if s.lstrip().startswith("{")))


def test_nothing_outside_the_file_is_named(page: Path) -> None:
    text = page.read_text("utf-8")
    parts = Parts(text)
    assert [v for name, v in parts.attributes if name in ("src", "href")] == ["data:,"]
    assert not re.search(r"https?:|@import|url\(", text)
    assert "default-src 'none'" in text


def test_names_from_outside_make_no_elements(page: Path) -> None:
    parts = Parts(page.read_text("utf-8"))
    assert "img" not in parts.tags
    assert parts.tags.count("script") == 2
    assert not any(name.startswith("on") for name, _ in parts.attributes)


def test_every_part_is_there(page: Path) -> None:
    text = page.read_text("utf-8")
    for heading in (
        "The model",
        "The data on their way",
        "Predicted and observed",
        "What the prediction depends on",
        "What the modules do",
        "Training",
        "Worst predicted rows",
    ):
        assert f"<h2>{heading}</h2>" in text
    assert len(re.findall('class="block affine"', text)) == 2
    assert len(re.findall('class="block diffeo"', text)) == 2


def test_the_scores_and_the_worst_rows_are_those_of_the_model(tmp_path: Path) -> None:
    X, y = make_frame()
    model = FineMorphsRegressor(**QUICK).fit(X, y)
    write_report(tmp_path / "r.html", model, X, y, row_numbers=np.arange(100, 160))
    text = (tmp_path / "r.html").read_text("utf-8")
    residual = y - model.predict(X)
    assert f"<b>{number(float(np.sqrt(np.mean(residual**2))))}</b><span>RMSE" in text
    worst = text.partition("Worst predicted rows")[2]
    rows = [int(k) for k in re.findall(r'<th scope="row">(\d+)</th>', worst)]
    assert rows == (100 + np.argsort(-np.abs(residual), kind="stable")[:20]).tolist()


def test_a_calibrated_model_shows_its_intervals(tmp_path: Path) -> None:
    X, y = make_frame(120)
    model = FineMorphsRegressor(**QUICK).fit(X[:60], y[:60]).calibrate(X[60:], y[60:])
    write_report(tmp_path / "r.html", model, X[60:], y[60:])
    low, high = model.predict_interval(X[60:], 0.9).T
    share, width = np.mean((low <= y[60:]) & (y[60:] <= high)), np.mean(high - low)
    text = (tmp_path / "r.html").read_text("utf-8")
    assert f"<b>{number(float(share))}</b><span>share of rows in their 90% intervals" in text
    assert f"<b>{number(float(width))}</b><span>mean width of the 90% intervals" in text


def test_the_picture_holds_every_moment(page: Path) -> None:
    data = flow_data(page)
    names = [frame["name"] for frame in data["frames"]]
    assert names == ["X", "A0", *["D1"] * 3, *["D2"] * 3, "A2"]
    coords = np.frombuffer(base64.b64decode(data["coords"]), "<i2")
    assert coords.size == len(names) * data["n"] * 3
    values = np.frombuffer(base64.b64decode(data["colours"][0]["values"]), "<f4")
    np.testing.assert_allclose(values, make_frame()[1], rtol=1e-6)


def test_five_thousand_rows_stay_under_ten_megabytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 6))
    y = np.column_stack([X[:, 0] * X[:, 1], X[:, 2]])
    model = FineMorphsRegressor("AD^10A", subset_size=20, max_iter=1, random_state=0)
    model.fit(X[:200], y[:200])
    write_report(tmp_path / "r.html", model, X, y)
    assert (tmp_path / "r.html").stat().st_size < 10e6
    data = flow_data(tmp_path / "r.html")
    assert data["n"] >= 5000


def test_a_classifier_has_classes_in_place_of_residuals(tmp_path: Path) -> None:
    X, y = make_frame()
    labels = np.where(y > 0, "<b>high</b>", "low")
    model = FineMorphsClassifier(**QUICK).fit(X, labels)
    write_report(tmp_path / "r.html", model, X, labels)
    text = (tmp_path / "r.html").read_text("utf-8")
    assert "accuracy" in text
    assert "<b>high" not in text.replace("\\u003c", "<!")
    assert flow_data(tmp_path / "r.html")["colours"][0]["labels"] == ["<b>high</b>", "low"]
    with pytest.raises(ValueError, match="was not there in training"):
        write_report(tmp_path / "r.html", model, X, np.full(60, "none"))


@pytest.mark.parametrize("sequence", ["A", "DA"])
def test_any_sequence_has_a_report(tmp_path: Path, sequence: str) -> None:
    X, y = make_frame()
    options = {"n_members": 2, "input_warp": "quantile"}
    model = FineMorphsRegressor(sequence, **options, **QUICK).fit(X, y)
    write_report(tmp_path / "r.html", model, X, y)
    text = (tmp_path / "r.html").read_text("utf-8")
    assert "n_members 2" in text
    assert f"<h1>y by a mean of 2 fits of {sequence}</h1>" in text
    for start in ("start 1", "start 2"):
        assert f'<th scope="row">{sequence}, {start}</th><td>0.5</td>' in text
    assert f"show one flow: {sequence}, start 1, with a weight of 0.5 in the prediction" in text


@pytest.fixture
def best_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FineMorphsRegressor]:
    """A function: the best preset, with flows that share the weight or have none."""

    def fit(flows_count: bool, two_responses: bool = False) -> FineMorphsRegressor:
        monkeypatch.setattr(_flows, "_HOPELESS", np.inf if flows_count else 0.0)
        alike = lambda columns, y: np.full(columns.shape[1], 1 / columns.shape[1])  # noqa: E731
        monkeypatch.setattr(_weights, "simplex_least_squares", alike)
        X, y = make_frame(30)
        model = FineMorphsRegressor(preset="best", max_iter=2, n_steps=2, random_state=0)
        return model.fit(X, np.column_stack([y, X.iloc[:, 2]]) if two_responses else y)

    return fit


def text_of(page: str) -> str:
    """What a reader sees of a page, on one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_kernels_alone_are_no_flow(best_of: Callable, tmp_path: Path) -> None:
    model = best_of(flows_count=False)
    X, y = make_frame(30)
    write_report(tmp_path / "r.html", model, X, y)
    page = (tmp_path / "r.html").read_text("utf-8")
    text = text_of(page)
    assert "<h1>y by a mean of 4 kernel regressions</h1>" in page
    assert "The prediction is a mean of 4 kernel regressions." in text
    assert "AD⁴A, which was tried but has no weight in the prediction." in text
    assert "control points" not in text
    assert model.status_ in text
    assert "2 iterations of the flow in the pictures" in text
    assert f"<b>{model.selection_['numbers']}</b><span>numbers in the model" in page
    assert f"<b>{model.selection_['pairs']}</b><span>kernel evaluations to predict a row" in page


def test_the_flow_in_the_pictures_is_named_with_its_weight(
    best_of: Callable, tmp_path: Path
) -> None:
    model = best_of(flows_count=True)
    write_report(tmp_path / "r.html", model, *make_frame(30))
    text = text_of((tmp_path / "r.html").read_text("utf-8"))
    assert re.search(r"y by a mean of (\d fits of AD⁴A|5 fits of ADA).* and 4 kernel", text)
    shown = next(m for m in model.members_ if m.model is model.model_)
    name = re.sub(r"\^4", "⁴", shown.name)
    assert f"show one flow: {name}, with a weight of {shown.weight:.3g} in the prediction" in text


@pytest.mark.parametrize("two_responses", [False, True])
def test_every_candidate_is_shown_with_its_error(best_of: Callable, two_responses: bool) -> None:
    model = best_of(flows_count=False, two_responses=two_responses)
    header, rows = candidate_table(model)
    assert header == ["candidate", "RMSE held out", "weight", "folds"]
    selection = model.selection_
    tried = [*selection["candidates"], *selection["rejected"]]
    for row, candidate in zip(rows[:-1], tried, strict=True):
        name, error, weight, folds = row
        assert name == candidate["name"]
        assert error == ", ".join(f"{value:.4g}" for value in candidate["rmse"])
        assert weight == (f"{candidate['weight']:.3g}" if "weight" in candidate else "rejected")
        assert folds == ("5 of 5" if "kernels" in name else "1 of 5")
    mean = ", ".join(f"{value:.4g}" for value in selection["rmse"])
    assert rows[-1] == ["their weighted mean", mean, "1", "5 of 5"]


def test_a_choice_of_an_older_file_is_shown(best_of: Callable) -> None:
    """It has no folds of candidates, and none that were rejected."""
    model = best_of(flows_count=False)
    model.selection_.pop("rejected")
    for candidate in model.selection_["candidates"]:
        candidate.pop("folds")
    rows = candidate_table(model)[1]
    assert len(rows) == 1 + len(model.selection_["candidates"])
    assert rows[0][3] == ""


# --- its parts ----------------------------------------------------------------------------


def test_frames_move_points_as_the_model_does() -> None:
    rng = np.random.default_rng(0)
    start = rng.normal(size=(40, 3))
    y = start[:, 0]
    half, end = start + 0.5 * np.eye(3)[0], start + np.eye(3)[0]
    walk = [("X", 0.0, start), ("D1", 0.0, start), ("D1", 0.5, half), ("D1", 1.0, end)]
    frames = frames_of([*walk, ("A1", 1.0, end[:, :1])], y)
    assert [(f.name, f.time) for f in frames] == [("X", 0), ("D1", 0.5), ("D1", 1), ("A1", 1)]
    steps = frames[1].points - frames[0].points
    np.testing.assert_allclose(steps, np.broadcast_to(steps[0], steps.shape), atol=1e-12)
    np.testing.assert_allclose(frames[2].points - frames[1].points, steps, atol=1e-12)
    assert np.corrcoef(frames[2].points[:, 2], y)[0, 1] == pytest.approx(1)
    np.testing.assert_allclose(frames[3].points[:, :2], 0, atol=1e-12)


def test_coordinates_are_kept_to_a_ten_thousandth() -> None:
    rng = np.random.default_rng(0)
    (frame,) = frames_of([("X", 0.0, rng.normal(size=(30, 5)))], rng.normal(size=30))
    numbers = np.frombuffer(base64.b64decode(encode([frame])), "<i2").reshape(30, 3)
    np.testing.assert_allclose(numbers / 16384, np.clip(frame.points, -2, 2), atol=1e-4)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 17), (1e-9, 2e-9), (1e300, 2e300)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    places = ticks(low, high)
    assert 2 <= len(places) <= 11
    assert all(low <= place <= high * (1 + 1e-12) for place in places)
    assert ticks(2.0, 2.0) == [2.0]


def test_charts_draw_what_they_are_given() -> None:
    chart = Chart((0, 10), (0, 5), ("<x>", "y"))
    chart.dots(np.array([0.0, 10.0]), np.array([0.0, 5.0]))
    text = chart.render("a & b")
    assert "&lt;x&gt;" in text
    assert 'aria-label="a &amp; b"' in text
    assert "M58.0 260.0h0M408.0 10.0h0" in text
    constant = Chart((1, 1), (2, 2), ("", ""), log=False)
    assert np.isfinite(constant.x(np.array([1.0]))).all()
    assert "width" in bars(["long" * 20, "b"], np.array([0.0, 2.0]), "")


def test_long_numbers_leave_room_for_the_name_of_the_axis() -> None:
    text = Chart((0, 1), (-2e-5, 2e-5), ("x", "y")).render("")
    shown = re.findall(r'x="([\d.]+)" y="[\d.]+" text-anchor="end">([^<]+)<', text)
    assert max(len(number) for _, number in shown) >= 6
    assert all(float(end) - 7 * len(number) >= 20 for end, number in shown)


def test_numbers_are_short() -> None:
    assert number(1234.5) == "1234"
    assert number(-0.5) == "\u22120.5"
    assert number(float("nan")) == "\u2013"
    assert number(-1e-7) == "\u22121e\u221207"


# --- a real browser -----------------------------------------------------------------------

CHROMIUM = find_chromium()
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
PIXELS = "document.querySelector('canvas').toDataURL()"
FRAME = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
SLIDE = """(() => {{
  const slider = document.querySelector("input[type=range]");
  slider.value = {place} * slider.max;
  slider.dispatchEvent(new Event("input"));
}})()"""


@needs_chromium
def test_the_page_lives_in_a_browser(page: Path, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    with Browser(CHROMIUM, tmp_path) as browser:
        browser.open(page)

        def pixels() -> str:
            browser.run(FRAME)
            picture = browser.run(PIXELS)
            assert isinstance(picture, str)
            return picture

        before = pixels()
        browser.run(SLIDE.format(place=0.6))
        middle = pixels()
        assert middle != before
        assert "D" in browser.run("document.getElementById('moment').textContent")
        browser.run(SLIDE.format(place=0))
        assert pixels() == before

        browser.run("document.querySelector('select').value = 1")
        browser.run("document.querySelector('select').dispatchEvent(new Event('change'))")
        assert pixels() != before
        key = "new KeyboardEvent('keydown', {key: 'ArrowLeft'})"
        turned = pixels()
        browser.run(f"document.querySelector('canvas').dispatchEvent({key})")
        assert pixels() != turned

        browser.run("document.getElementById('play').click()")
        assert browser.run("document.getElementById('play').textContent") == "Pause"
        browser.run("document.querySelector('#strip button:last-child').click()")
        assert browser.run("document.getElementById('play').textContent") == "Play"
        assert browser.run("document.getElementById('spoken').textContent") == "behind A2"

        assert browser.run("document.title") == NASTY[2]
        assert browser.run("document.querySelectorAll('img').length") == 0
        browser.call(
            "Emulation.setDeviceMetricsOverride",
            width=360,
            height=700,
            deviceScaleFactor=2,
            mobile=True,
        )
        assert browser.run("document.documentElement.scrollWidth") <= 360
        assert browser.complaints == []
        assert browser.requests == [page.resolve().as_uri()]


CLIPPED = """[...document.querySelectorAll(".tiles b, .scroll")]
  .filter(box => box.scrollWidth > box.clientWidth).map(box => box.textContent)"""


@needs_chromium
def test_nothing_is_clipped_on_a_wide_screen(tmp_path: Path) -> None:
    assert CHROMIUM is not None
    X, y = make_frame()
    X.columns = list("abc")
    model = FineMorphsRegressor("AD^4A", **QUICK).fit(X, 1e-4 * y)
    write_report(tmp_path / "r.html", model, X, 1e-4 * y)
    with Browser(CHROMIUM, tmp_path) as browser:
        browser.call(
            "Emulation.setDeviceMetricsOverride",
            width=1200,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        browser.open(tmp_path / "r.html")
        assert browser.run(CLIPPED) == []


@needs_chromium
def test_a_script_that_was_smuggled_in_does_not_run(page: Path, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    changed = tmp_path / "changed.html"
    text = page.read_text("utf-8")
    changed.write_text(text.replace("</main>", "<script>window.bad = 1</script></main>"), "utf-8")
    with Browser(CHROMIUM, tmp_path / "profile") as browser:
        browser.open(changed)
        assert browser.run("window.bad === undefined")
        assert any("Content Security Policy" in complaint for complaint in browser.complaints)
