"""``finemorphs fit``: from a table to a model file."""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import typer

from finemorphs._typing import Array
from finemorphs.cli._command import INTERRUPTED
from finemorphs.cli._models import predictions
from finemorphs.cli._scores import SCORES, ridge_predictions, score_rows, scores
from finemorphs.cli._screen import Screen
from finemorphs.estimators import FineMorphsRegressor
from finemorphs.exceptions import TableError
from finemorphs.tables import Recipe, Table, read_table

__all__ = ["FitOptions", "fit_table"]

_LEAST_ROWS = 5
_SPLIT_SEED = 0


@dataclass(frozen=True)
class FitOptions:
    """What ``fit`` is told besides the estimator's own parameters."""

    train: Path
    target: list[str]
    out: Path
    drop: list[str]
    holdout: float
    missing: str

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> FitOptions:
        """Check what the command line and the configuration gave."""
        needed = {"train": "the table to train on", "target": "--target", "out": "--out"}
        for name, words in needed.items():
            if not given.get(name):
                raise ValueError(
                    f"{words} is missing; finemorphs fit TRAIN --target COLUMN --out MODEL."
                )
        values = {**FIT_DEFAULTS, **given}
        holdout = values["holdout"]
        if not isinstance(holdout, (int, float)) or not 0 <= holdout < 1:
            raise ValueError(
                f"--holdout takes a share of the rows from 0 to 1, but {holdout!r} came."
            )
        return cls(
            train=Path(values["train"]),
            target=list(dict.fromkeys(_texts("target", values["target"]))),
            out=_writable(Path(values["out"])),
            drop=_texts("drop", values["drop"]),
            holdout=float(holdout),
            missing=str(values["missing"]),
        )


FIT_DEFAULTS: dict[str, Any] = {"drop": [], "holdout": 0.1, "missing": "median"}
FIT_NAMES = [field.name for field in fields(FitOptions)]


def fit_table(options: FitOptions, parameters: dict[str, Any], screen: Screen) -> None:
    """Read, prepare, train, compare with ridge regression on held-out rows, save."""
    table = read_table(options.train)
    known = _rows_with_target(table, options, screen)
    train, test = _split(known, options.holdout)
    recipe, notices = Recipe.learn(table, options.target, options.drop, options.missing, rows=train)
    _tell(options, table, recipe, notices, screen)
    X, y = recipe.apply(table), recipe.responses(table)
    estimator = FineMorphsRegressor(verbose=0 if screen.quiet else 1, **parameters)
    with _interrupts() as interrupted:
        estimator.fit(X[train], y[train, 0] if y.shape[1] == 1 else y[train])
    screen.say(estimator.status_)
    compared = _compare(estimator, X, y, train, test) if len(test) else []
    if compared:
        screen.say(f"\nerrors on {len(test)} rows held out of training")
        screen.columns(["", *SCORES], score_rows(options.target, compared))
        screen.say("")
    elif options.holdout:
        screen.notice(f"{len(known)} rows are too few to hold some out, so there is no score")
    _save(estimator, recipe, options, len(train), compared, screen)
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _rows_with_target(table: Table, options: FitOptions, screen: Screen) -> Array:
    """Places of the rows that have every target."""
    missing = np.isnan(Recipe(tuple(options.target), ()).responses(table)).any(axis=1)
    if missing.any():
        if options.missing == "error":
            row = int(np.flatnonzero(missing)[0]) + 1
            raise TableError(
                f"{table.source}: {int(missing.sum())} rows have no value of "
                f"{', '.join(map(repr, options.target))}, the first is row {row}; fill them, or "
                "use --missing median, which leaves such rows out."
            )
        screen.notice(f"{int(missing.sum())} rows have no target and are left out")
    known = np.flatnonzero(~missing)
    if len(known) < _LEAST_ROWS:
        raise TableError(
            f"{table.source} has {len(known)} rows with a target, and training needs "
            f"{_LEAST_ROWS}; give more rows."
        )
    return known


def _split(rows: Array, share: float) -> tuple[Array, Array]:
    """Rows to train on and rows held out, both in the order of the file."""
    n_test = round(len(rows) * share)
    if n_test < 2 or len(rows) - n_test < _LEAST_ROWS:
        return rows, rows[:0]
    order = np.random.default_rng(_SPLIT_SEED).permutation(rows)
    return np.sort(order[n_test:]), np.sort(order[:n_test])


def _tell(
    options: FitOptions, table: Table, recipe: Recipe, notices: list[str], screen: Screen
) -> None:
    screen.say(
        f"{options.train.name}: {len(table)} rows, {len(table.columns)} columns; "
        f"{len(recipe.columns)} of them predict {', '.join(options.target)}"
    )
    for notice in (*table.notices, *notices):
        screen.notice(notice)


def _compare(
    estimator: FineMorphsRegressor, X: Array, y: Array, train: Array, test: Array
) -> list[tuple[str, list[dict[str, float]]]]:
    ridge = ridge_predictions(X[train], y[train], X[test])
    return [
        ("finemorphs", scores(y[test], predictions(estimator, X[test]))),
        ("ridge regression", scores(y[test], ridge)),
    ]


def _save(
    estimator: FineMorphsRegressor,
    recipe: Recipe,
    options: FitOptions,
    n_train: int,
    compared: list[tuple[str, list[dict[str, float]]]],
    screen: Screen,
) -> None:
    estimator.feature_names_in_ = np.array(recipe.features, dtype=object)
    estimator.notes_ = {
        "recipe": recipe.to_json(),
        "file": options.train.name,
        "rows": n_train,
        "scores": _finite(compared),
    }
    estimator.save(options.out)
    size = options.out.stat().st_size / 1e6
    screen.say(f"saved {options.out} ({size:.2g} MB), trained on {n_train} rows")


def _finite(compared: list[tuple[str, list[dict[str, float]]]]) -> dict[str, Any]:
    """Scores as JSON takes them: None for what is not finite."""
    return {
        name: [{k: v if math.isfinite(v) else None for k, v in s.items()} for s in values]
        for name, values in compared
    }


@contextlib.contextmanager
def _interrupts() -> Iterator[list[bool]]:
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


def _texts(name: str, value: Any) -> list[str]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, str) for v in values):
        raise ValueError(f"{name} takes column names, but {value!r} came.")
    return list(values)


def _writable(path: Path) -> Path:
    """The path, refused before training rather than after."""
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ValueError(f"--out {path} cannot be written there; name a file in a folder of yours.")
    return path
