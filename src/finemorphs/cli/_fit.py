"""``finemorphs fit``: from a table to a model file."""

from __future__ import annotations

import contextlib
import inspect
import math
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import typer

from finemorphs._typing import Array
from finemorphs.cli._command import INTERRUPTED
from finemorphs.cli._fit_options import FitOptions
from finemorphs.cli._models import outputs
from finemorphs.cli._scores import Scores, linear_model, score_table, scores
from finemorphs.cli._screen import Screen
from finemorphs.estimators import FineMorphsClassifier, FineMorphsRegressor
from finemorphs.exceptions import TableError
from finemorphs.tables import Recipe, Table, read_table

__all__ = ["finish", "fit_table", "make_estimator", "note_interrupts"]

_LEAST_ROWS = 5
_MOST_CLASSES = 20
_SPLIT_SEED = 0


def fit_table(
    options: FitOptions, parameters: dict[str, Any], screen: Screen, leads: bool = True
) -> None:
    """Read, prepare, train, compare with a linear model on held-out rows, save.

    Of several processes that train together one ``leads``: it alone compares and saves.
    """
    table = read_table(options.train[0])
    table.require([*options.target, *options.drop])
    recipe, notices = Recipe.learn(table, options.target, options.drop, options.missing)
    _tell(options, table, recipe, notices, screen)
    y, known = recipe.responses(table)
    _check_targets(table, y[known], ~known, options, screen)
    train, test = _split(np.flatnonzero(known), y, options.holdout)
    recipe = recipe.with_medians(table, train)
    X = recipe.apply(table)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    estimator, checkpoint = make_estimator(recipe.classes, options, parameters, screen)
    with note_interrupts() as interrupted:
        estimator.fit(X[train], y[train])
    screen.say(estimator.status_)
    if not leads:
        return
    compared: dict[str, Scores] = {}
    if len(test):
        compared = _compare(estimator, X, y, train, test)
        if not recipe.classes:
            estimator.calibrate(X[test], y[test])  # for predict --confidence
        screen.say(f"\nerrors on {len(test)} rows held out of training")
        screen.columns(*score_table(options.target, compared))
        screen.say("")
    elif options.holdout:
        screen.notice(f"{len(train)} rows are too few to hold some out, so there is no score")
    finish(estimator, recipe, options, len(train), compared, screen, interrupted, checkpoint)


def make_estimator(
    classes: bool, options: FitOptions, parameters: dict[str, Any], screen: Screen
) -> tuple[Any, Path | None]:
    """The estimator for numbers or classes, and its checkpoint, by default beside the model."""
    kind = FineMorphsClassifier if classes else FineMorphsRegressor
    known = inspect.signature(kind).parameters
    for name in parameters:
        if name not in known:
            what = "classes" if classes else "numbers"
            raise ValueError(
                f"--{name.replace('_', '-')} is no option for a target of {what}; leave it out."
            )
    place = parameters.get("checkpoint", f"{options.out}.checkpoint")
    checkpoint = None if place is None else Path(place)
    if checkpoint is not None and checkpoint.exists() and not parameters.get("resume"):
        raise ValueError(
            f"{checkpoint} holds the state of a training that was not finished; go on from it "
            "with --resume, or delete it to begin anew."
        )
    settings = {**parameters, "checkpoint": place, "verbose": 0 if screen.quiet else 1}
    return kind(**settings), checkpoint


def _check_targets(
    table: Table, y: Array, missing: Array, options: FitOptions, screen: Screen
) -> None:
    if missing.any():
        if options.missing == "error":
            row = int(np.flatnonzero(missing)[0]) + 1
            raise TableError(
                f"{table.source}: {int(missing.sum())} rows have no value of "
                f"{', '.join(map(repr, options.target))}, the first is row {row}; fill them, or "
                "use --missing median, which leaves such rows out."
            )
        screen.notice(f"{int(missing.sum())} rows have no target and are left out")
    if len(y) < _LEAST_ROWS:
        raise TableError(
            f"{table.source} has {len(y)} rows with a target, and training needs "
            f"{_LEAST_ROWS}; give more rows."
        )
    if y.ndim == 1 and len(np.unique(y)) > _MOST_CLASSES:
        raise TableError(
            f"{table.source}: the target {options.target[0]!r} is text with {len(np.unique(y))} "
            f"different values (such as {y[-1][:40]!r}); classes may be {_MOST_CLASSES}, and "
            "numbers must be numbers in every row."
        )


def _split(rows: Array, y: Array, share: float) -> tuple[Array, Array]:
    """Rows to train on and rows held out, both in the order of the file.

    A row of a class that would be held out whole is trained on.
    """
    n_test = round(len(rows) * share)
    if n_test < 2 or len(rows) - n_test < _LEAST_ROWS:
        return rows, rows[:0]
    order = np.random.default_rng(_SPLIT_SEED).permutation(rows)
    test, train = order[:n_test], order[n_test:]
    if y.ndim == 1:
        known = np.isin(y[test], y[train])
        test, train = test[known], np.concatenate([train, test[~known]])
    return np.sort(train), np.sort(test)


def _tell(
    options: FitOptions, table: Table, recipe: Recipe, notices: list[str], screen: Screen
) -> None:
    screen.say(
        f"{options.name}: {len(table)} rows, {len(table.columns)} columns; "
        f"{len(recipe.columns)} of them predict {', '.join(options.target)}"
        + (", which is text: its values are classes" if recipe.classes else "")
    )
    for notice in (*table.notices, *notices):
        screen.notice(notice)


def _compare(estimator: Any, X: Array, y: Array, train: Array, test: Array) -> dict[str, Scores]:
    """Scores on the held-out rows, beside those of a linear model."""
    classes = getattr(estimator, "classes_", None)
    linear = linear_model(classes is not None).fit(X[train], y[train])
    observed = y[test] if classes is not None else y[test].reshape(len(test), -1)
    name = "ridge regression" if classes is None else "logistic regression"
    return {
        model: scores(observed, outputs(predictor, X[test]), classes)
        for model, predictor in (("finemorphs", estimator), (name, linear))
    }


def finish(
    estimator: Any,
    recipe: Recipe,
    options: FitOptions,
    n_train: int,
    compared: dict[str, Scores],
    screen: Screen,
    interrupted: list[bool],
    checkpoint: Path | None,
) -> None:
    """Save the model; the checkpoint goes, unless training was interrupted."""
    estimator.feature_names_in_ = np.array(recipe.features, dtype=object)
    estimator.notes_ = {
        "recipe": recipe.to_json(),
        "file": options.name,
        "rows": n_train,
        "scores": {name: _finite(values) for name, values in compared.items()},
    }
    estimator.save(options.out)
    size = options.out.stat().st_size / 1e6
    screen.say(f"saved {options.out} ({size:.2g} MB), trained on {n_train} rows")
    if interrupted:
        screen.say("training was interrupted; " + _how_to_go_on(estimator, checkpoint))
        raise typer.Exit(INTERRUPTED)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)


def _how_to_go_on(estimator: Any, checkpoint: Path | None) -> str:
    if checkpoint is None or not checkpoint.exists():
        return "the same call begins again"
    again = ": flows are kept, kernel regressions are fitted again"
    is_best = getattr(estimator, "preset", None) == "best"
    return "the same call with --resume goes on" + (again if is_best else "")


def _finite(values: Scores) -> list[dict[str, float | None]]:
    """Scores as JSON takes them: None for what is not finite."""
    return [{k: v if math.isfinite(v) else None for k, v in score.items()} for score in values]


@contextlib.contextmanager
def note_interrupts() -> Iterator[list[bool]]:
    """A list that is not empty once Ctrl-C was pressed; training then ends with what it has."""
    pressed: list[bool] = []

    def note(number: int, frame: FrameType | None) -> None:
        pressed.append(True)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
