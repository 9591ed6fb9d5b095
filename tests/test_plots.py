from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from finemorphs import FineMorphsClassifier, FineMorphsRegressor
from finemorphs.plots import (
    plot_convergence,
    plot_displacement,
    plot_flow,
    plot_panels,
    plot_predictions,
    plot_reshaping,
    plot_sensitivity,
    plot_singular_values,
    plot_space,
    plot_trajectories,
    plot_volume,
)


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def drawn(ax: object) -> np.ndarray:
    """What the 3-D scatter was given, one row a point."""
    return np.column_stack(ax.collections[0]._offsets3d)  # type: ignore[attr-defined]


def test_a_picture_is_written(tmp_path: Path, rng: np.random.Generator) -> None:
    X, y, states = rng.normal(size=(40, 2)), rng.normal(size=40), rng.normal(size=(40, 3))
    figure = plot_reshaping(X, y, states, label="strength")[0].figure
    figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5000
    left, right, bar = figure.axes
    np.testing.assert_allclose(left.collections[0].get_offsets(), X)
    np.testing.assert_allclose(left.collections[0].get_array(), y)
    assert right.name == "3d"
    assert bar.get_ylabel() == "strength"


def test_states_are_turned_but_not_stretched(rng: np.random.Generator) -> None:
    X, y, states = rng.normal(size=(30, 2)), rng.normal(size=30), rng.normal(size=(30, 3))
    _, right = plot_reshaping(X, y, states)
    gram = np.cov(states.T, bias=True)
    np.testing.assert_allclose(
        np.linalg.eigvalsh(np.cov(drawn(right).T, bias=True)), np.linalg.eigvalsh(gram)
    )


def test_a_response_linear_in_the_states_is_linear_upwards(rng: np.random.Generator) -> None:
    states = rng.normal(size=(50, 4))
    y = states @ np.array([1.0, -2.0, 0.5, 0.0]) + 3
    _, right = plot_reshaping(states[:, :2], y, states)
    assert np.corrcoef(drawn(right)[:, 2], y)[0, 1] == pytest.approx(1)


@pytest.mark.parametrize("n_features", [1, 2, 5])
@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_any_number_of_columns_can_be_drawn(
    n_features: int, d: int, rng: np.random.Generator
) -> None:
    _, right = plot_reshaping(
        rng.normal(size=(12, n_features)), rng.normal(size=(12, 1)), rng.normal(size=(12, d))
    )
    assert drawn(right).shape == (12, 3)


def test_a_constant_response_can_be_drawn(rng: np.random.Generator) -> None:
    _, right = plot_reshaping(rng.normal(size=(9, 2)), np.ones(9), rng.normal(size=(9, 3)))
    assert np.isfinite(drawn(right)).all()


def test_axes_of_the_caller_are_used(rng: np.random.Generator) -> None:
    own = plt.figure()
    axes = own.add_subplot(1, 2, 1), own.add_subplot(1, 2, 2, projection="3d")
    data = rng.normal(size=(9, 2)), rng.normal(size=9), rng.normal(size=(9, 3))
    assert plot_reshaping(*data, axes=axes) == axes
    flat = own.add_subplot(), own.add_subplot()
    with pytest.raises(ValueError, match="projection='3d'"):
        plot_reshaping(*data, axes=flat)


def test_bad_arrays_are_refused(rng: np.random.Generator) -> None:
    X, y, states = rng.normal(size=(9, 2)), rng.normal(size=9), rng.normal(size=(9, 3))
    with pytest.raises(ValueError, match="one response column"):
        plot_reshaping(X, rng.normal(size=(9, 2)), states)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        plot_reshaping(X, y, states[:5])
    with pytest.raises(ValueError, match="NaN"):
        plot_reshaping(X, np.full(9, np.nan), states)


def test_without_matplotlib_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install finemorphs\[plots\]"):
        plot_reshaping(rng.normal(size=(9, 2)), np.ones(9), rng.normal(size=(9, 3)))


def test_importing_the_package_does_not_import_matplotlib() -> None:
    code = "import sys, finemorphs, finemorphs.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_panels_share_their_axes_and_show_what_moves(rng: np.random.Generator) -> None:
    y = rng.normal(size=50)
    start = rng.normal(size=(50, 5)) * [5, 4, 3, 1, 1]
    end = start + np.outer(y, [0, 0, 0, 0, 1.0])
    first, second = plot_panels([start, end], y, titles=["t = 0", "t = 1"], n_columns=2)
    assert [first.get_title(), second.get_title()] == ["t = 0", "t = 1"]
    assert first.get_xlim() == second.get_xlim()
    assert first.get_zlim() == second.get_zlim()
    spread = [drawn(first)[:, k].std() for k in range(3)]
    assert spread == sorted(spread, reverse=True)
    first, second = plot_panels([start, end], y, response_axis=True, n_columns=2)
    rise = [abs(np.corrcoef(drawn(ax)[:, 2], y)[0, 1]) for ax in (first, second)]
    assert rise[1] > rise[0] + 0.1
    bar = first.figure.axes[-1]
    assert (first.get_zlabel(), bar.get_ylabel()) == ("axis of the response", "response")


def tick_labels(axis: object) -> list[object]:
    """The texts that were drawn at an axis of a 3-D picture."""
    low, high = sorted(axis.get_view_interval())  # type: ignore[attr-defined]
    return [tick.label1 for tick in axis.majorTicks if low <= tick.get_loc() <= high]  # type: ignore[attr-defined]


@pytest.mark.parametrize("depth", [1.0, 0.4, 0.1])
@pytest.mark.parametrize("title", ["", "a title"])
def test_names_of_axes_are_whole_and_clear_of_the_colour_bar(
    rng: np.random.Generator, depth: float, title: str
) -> None:
    states = rng.uniform(-1, 1, size=(90, 3)) * [1, depth, 1]
    left, right = plot_reshaping(states[:, :2], states[:, 2], states)
    figure = left.figure
    figure.suptitle(title)
    figure.canvas.draw()
    bar = figure.axes[-1].get_window_extent()
    for axis in (right.xaxis, right.yaxis, right.zaxis):
        name = axis.label.get_window_extent()
        assert name.x1 < bar.x0 - 10
        assert name.y0 > 0


def test_numbers_of_panels_keep_clear_of_axes_and_names(rng: np.random.Generator) -> None:
    states = rng.uniform(-0.4, 0.4, size=(90, 3)) * [1.2, 1.1, 1.0]
    for response_axis in (False, True):
        panels = plot_panels([states] * 6, states[:, 2], response_axis=response_axis)
        panels[0].figure.canvas.draw()
        for ax in panels:
            line, name = ax.zaxis.line.get_window_extent(), ax.zaxis.label.get_window_extent()
            for text in tick_labels(ax.zaxis):
                assert text.get_window_extent().x0 > line.x1 + 2
                assert text.get_window_extent().x1 < name.x0
            for text in tick_labels(ax.xaxis):
                assert not text.get_window_extent().overlaps(ax.xaxis.label.get_window_extent())


def test_panels_that_are_left_over_are_empty(rng: np.random.Generator) -> None:
    states = [rng.normal(size=(9, 2)) for _ in range(4)]
    panels = plot_panels(states, np.arange(9.0))
    assert len(panels) == 4
    assert len(panels[0].figure.axes) == 4 + 1
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        plot_panels([*states, rng.normal(size=(8, 2))], np.arange(9.0))


# --- pictures of a fitted model -----------------------------------------------------------


@pytest.fixture(scope="module")
def data() -> tuple[pd.DataFrame, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = X[:, 0] + np.sin(X[:, 1])
    return pd.DataFrame(X, columns=["a$b", "second", "third"]), y


@pytest.fixture(scope="module")
def model(data: tuple[pd.DataFrame, np.ndarray]) -> FineMorphsRegressor:
    options = {"max_iter": 15, "n_steps": 4, "random_state": 0, "engine": "reference"}
    return FineMorphsRegressor("ADDA", kernel_width=[0.3, 0.8], **options).fit(*data)


def test_flow_panels_are_the_states_over_time(model: FineMorphsRegressor, data: tuple) -> None:
    panels = plot_flow(model, *data, module="D2", n_panels=3)
    assert [ax.get_title() for ax in panels] == ["D2, t = 0", "D2, t = 0.5", "D2, t = 1"]
    assert len(plot_flow(model, *data, n_panels=50)) == 5
    path = [states for name, _, states in model.trajectory(data[0]) if name == "D2"]
    spread = np.linalg.norm(drawn(panels[2]) - drawn(panels[0]), axis=1).max()
    assert spread <= np.linalg.norm(path[-1] - path[0], axis=1).max() * (1 + 1e-9)
    with pytest.raises(ValueError, match="module='D9' is no D module"):
        plot_flow(model, *data, module="D9")


@pytest.mark.parametrize("n_components", [2, 3])
def test_trajectories_end_in_the_last_states(
    model: FineMorphsRegressor, data: tuple, n_components: int
) -> None:
    ax = plot_trajectories(model, *data, n_components=n_components)
    assert ax.name == ("3d" if n_components == 3 else "rectilinear")
    assert len(ax.lines) == 40
    assert len(np.ravel(ax.lines[0].get_xdata())) == 5
    ends = ax.collections[0].get_offsets()[:, 0] if n_components == 2 else drawn(ax)[:, 0]
    last = [
        np.ravel(line.get_data_3d()[0] if n_components == 3 else line.get_xdata())[-1]
        for line in ax.lines
    ]
    np.testing.assert_allclose(np.sort(last), np.sort(ends))
    turned = plot_trajectories(model, *data, n_components=n_components, response_axis=True)
    last_label = turned.get_zlabel() if n_components == 3 else turned.get_ylabel()
    assert last_label == "axis of the response"
    with pytest.raises(ValueError, match="give 2 or 3"):
        plot_trajectories(model, *data, n_components=4)


def test_boxes_show_the_medians_of_each_diffeomorphism(
    model: FineMorphsRegressor, data: tuple
) -> None:
    def medians(ax: object) -> list[float]:
        return [line.get_ydata()[0] for line in ax.lines if line.get_color() == "C0"]  # type: ignore[attr-defined]

    ax = plot_volume(model, data[0])
    np.testing.assert_allclose(medians(ax), np.median(model.log_det(data[0]), axis=0))
    assert [text.get_text() for text in ax.get_xticklabels()] == ["D1", "D2"]
    walk = model.trajectory(data[0])
    paths = [[states for name, _, states in walk if name == d] for d in ("D1", "D2")]
    expected = [np.median(np.linalg.norm(p[-1] - p[0], axis=1)) for p in paths]
    np.testing.assert_allclose(medians(plot_displacement(model, data[0])), expected)


def test_predictions_and_residuals(model: FineMorphsRegressor, data: tuple) -> None:
    X, y = data
    left, right = plot_predictions(model, X, y)
    predicted = model.predict(X)
    np.testing.assert_allclose(left.collections[0].get_offsets(), np.column_stack([y, predicted]))
    np.testing.assert_allclose(
        right.collections[0].get_offsets(), np.column_stack([predicted, y - predicted])
    )
    own = plt.subplots(1, 2)[1]
    assert plot_predictions(model, X, y, axes=own)[0] is own[0]


def test_convergence_shows_the_parts_of_the_objective(model: FineMorphsRegressor) -> None:
    ax = plot_convergence(model)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), model.history_["objective"])
    assert ax.get_legend().get_texts()[0].get_text() == "objective"
    assert ax.get_yscale() == "log"


def test_singular_values_are_those_of_the_matrices(model: FineMorphsRegressor) -> None:
    ax = plot_singular_values(model)
    first = model.model_.sequence.affines[0]
    matrix = first.views(model.model_.sequence.split(model.model_.theta)[0])[0].double().numpy()
    values = np.linalg.eigvalsh(matrix.T @ matrix)[::-1] ** 0.5
    np.testing.assert_allclose(ax.lines[0].get_ydata(), values, rtol=1e-6)
    assert [line.get_label() for line in ax.lines] == ["A0", "A2"]


def test_sensitivities_come_from_the_jacobian(model: FineMorphsRegressor, data: tuple) -> None:
    ax = plot_sensitivity(model, data[0])
    X = data[0].to_numpy()
    slopes = model.jacobian(data[0]).reshape(40, 3)
    effect = np.sqrt((slopes**2).mean(0)) * X.std(0) / model.predict(data[0]).std()
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], np.sort(effect)[::-1])
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names == [data[0].columns[i] for i in np.argsort(-effect)]
    ax.figure.canvas.draw()


def test_space_has_a_frame_for_every_moment(model: FineMorphsRegressor, data: tuple) -> None:
    figure = plot_space(model, *data, label="y")
    bar, up = figure.data[0].marker.colorbar, figure.layout.scene.zaxis
    assert (bar.title.text, up.title.text) == ("y", "axis of the response")
    assert len(figure.frames) == 1 + 1 + 4 + 4 + 1
    assert len(figure.layout.sliders[0].steps) == len(figure.frames)
    assert len(figure.frames[0].data[0].x) == 40


def test_a_sequence_without_the_module_is_refused(data: tuple) -> None:
    options = {"max_iter": 3, "n_steps": 2, "engine": "reference"}
    affine = FineMorphsRegressor("A", **options).fit(*data)
    for draw in (plot_volume, plot_displacement):
        with pytest.raises(ValueError, match="no D module"):
            draw(affine, data[0])
    with pytest.raises(ValueError, match="no D module"):
        plot_flow(affine, *data)
    flow = FineMorphsRegressor("D", dummy_dims=0, output_dims=2, **options).fit(*data)
    with pytest.raises(ValueError, match="no A module"):
        plot_singular_values(flow)


def test_classifiers_can_be_drawn(data: tuple) -> None:
    X, y = data
    labels = y > 0
    model = FineMorphsClassifier(max_iter=5, n_steps=2, engine="reference").fit(X, labels)
    titles = [panel.get_title() for panel in plot_flow(model, X, labels)]
    assert titles == ["D1, t = 0", "D1, t = 0.5", "D1, t = 1"]
    names = {label.get_text() for label in plot_sensitivity(model, X).get_yticklabels()}
    assert names == set(X.columns)
    assert all(len(line.get_xdata()) == 5 for line in plot_convergence(model).get_lines())


def test_without_plotly_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, model: FineMorphsRegressor, data: tuple
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(ImportError, match=r"pip install finemorphs\[plots\]"):
        plot_space(model, *data)
