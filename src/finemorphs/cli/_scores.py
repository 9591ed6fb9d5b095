"""Errors of predictions, and a linear model to compare them with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss, mean_absolute_error, r2_score, root_mean_squared_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from finemorphs._typing import Array
from finemorphs.exceptions import TableError

__all__ = ["Scores", "linear_model", "score_table", "scores"]

Scores = list[dict[str, float]]  # one for each target


def scores(observed: Array, predicted: Array, classes: Array | None = None) -> Scores:
    """RMSE, MAE and R2 of each response (n, d_Y); of classes (n,) the accuracy and the log loss."""
    if classes is not None:
        _check_known(observed, classes)
        return [
            {
                "accuracy": float((classes[predicted.argmax(1)] == observed).mean()),
                "log loss": float(log_loss(observed, predicted, labels=classes)),
            }
        ]
    return [
        {
            "RMSE": float(root_mean_squared_error(y, p)),
            "MAE": float(mean_absolute_error(y, p)),
            "R2": float(r2_score(y, p)) if len(y) > 1 else float("nan"),
        }
        for y, p in zip(observed.T, predicted.T, strict=True)
    ]


def score_table(
    targets: Sequence[str], named: Mapping[str, Scores]
) -> tuple[list[str], list[list[str]]]:
    """A header, and one line for each target and model: names, then the scores as text."""
    rows = [
        [f"{target}, {name}" if name else target, *(f"{v:.4g}" for v in values[i].values())]
        for i, target in enumerate(targets)
        for name, values in named.items()
    ]
    first = next(iter(named.values()))[0]
    return ["", *first], rows


def linear_model(classes: bool) -> Any:
    """Ridge regression, its weight chosen by leave-one-out errors, or logistic regression."""
    model = LogisticRegression() if classes else RidgeCV(alphas=np.logspace(-3, 3, 13))
    return make_pipeline(StandardScaler(), model)


def _check_known(labels: Array, classes: Array) -> None:
    unknown = sorted(set(labels.tolist()) - set(classes.tolist()))
    if unknown:
        raise TableError(
            f"the class {unknown[0]!r} was not there in training; leave its rows out, or fit again."
        )
