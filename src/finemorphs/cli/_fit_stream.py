"""``finemorphs fit`` on several Parquet files: a stream of rows instead of a table in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from finemorphs.cli._fit import finish, make_estimator, note_interrupts
from finemorphs.cli._fit_options import FitOptions
from finemorphs.cli._models import outputs
from finemorphs.cli._scores import Scores, linear_model, score_table, scores
from finemorphs.cli._screen import Screen
from finemorphs.streams import ParquetStream
from finemorphs.tables import Recipe
from finemorphs.tables.columns import NumberColumn

__all__ = ["fit_stream"]

_MOST_HELD_OUT = 50_000
_LINEAR = 100_000  # rows that the linear model is fitted to


def fit_stream(
    options: FitOptions, parameters: dict[str, Any], screen: Screen, leads: bool
) -> None:
    """Train on all rows but the last, compare with a linear model on these, save."""
    target = options.target[0] if len(options.target) == 1 else options.target
    stream = ParquetStream(options.train, target, options.drop)
    n_test = min(round(stream.n_rows * options.holdout), _MOST_HELD_OUT)
    train = stream.head(stream.n_rows - n_test)
    screen.say(
        f"{options.name}: {stream.n_rows} rows, read in blocks; {stream.n_features} columns "
        f"predict {', '.join(options.target)}"
    )
    estimator, checkpoint = make_estimator(False, options, parameters, screen)
    with note_interrupts() as interrupted:
        estimator.fit(train)
    screen.say(estimator.status_)
    if not leads:
        return
    compared = _compare(estimator, stream, train, n_test) if n_test else {}
    if compared:
        screen.say(f"\nerrors on the last {n_test} rows, held out of training")
        screen.columns(*score_table(options.target, compared))
        screen.say("")
    means = estimator.model_.x_scaling.mean
    columns = map(NumberColumn, stream.feature_names or [], map(float, means))
    recipe = Recipe(tuple(options.target), tuple(columns), missing="error")
    finish(estimator, recipe, options, train.n_rows, compared, screen, interrupted, checkpoint)


def _compare(
    estimator: Any, stream: ParquetStream, train: ParquetStream, n_test: int
) -> dict[str, Scores]:
    """Scores on the last rows, beside those of ridge regression on the first ones."""
    n_linear = min(train.n_rows, _LINEAR)
    linear = linear_model(False).fit(*next(train.read(0, n_linear, n_linear)))
    X, y = next(stream.read(train.n_rows, stream.n_rows, n_test))
    return {
        name: scores(y, np.reshape(outputs(model, X), y.shape))
        for name, model in (("finemorphs", estimator), ("ridge regression", linear))
    }
