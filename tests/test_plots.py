from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from finemorphs.plots import plot_panels, plot_reshaping


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


def test_panels_that_are_left_over_are_empty(rng: np.random.Generator) -> None:
    states = [rng.normal(size=(9, 2)) for _ in range(4)]
    panels = plot_panels(states, np.arange(9.0))
    assert len(panels) == 4
    assert len(panels[0].figure.axes) == 4 + 1
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        plot_panels([*states, rng.normal(size=(8, 2))], np.arange(9.0))
