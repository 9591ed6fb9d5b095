"""Errors of predictions, and ridge regression to compare them with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from finemorphs._typing import Array

__all__ = ["SCORES", "ridge_predictions", "score_rows", "scores"]

SCORES = ("RMSE", "MAE", "R2")


def scores(observed: Array, predicted: Array) -> list[dict[str, float]]:
    """RMSE, MAE and R2 of each response."""
    return [
        {
            "RMSE": float(root_mean_squared_error(y, p)),
            "MAE": float(mean_absolute_error(y, p)),
            "R2": float(r2_score(y, p)) if len(y) > 1 else float("nan"),
        }
        for y, p in zip(observed.T, predicted.T, strict=True)
    ]


def score_rows(
    targets: Sequence[str], named: Sequence[tuple[str, list[dict[str, float]]]]
) -> list[list[str]]:
    """One line for each response and model: names, then the scores as text."""
    return [
        [f"{target}, {name}" if name else target, *(f"{values[i][s]:.4g}" for s in SCORES)]
        for i, target in enumerate(targets)
        for name, values in named
    ]


def ridge_predictions(X: Array, y: Array, X_new: Array) -> Array:
    """Ridge regression on standardised columns, its weight chosen by leave-one-out errors."""
    ridge = make_pipeline(StandardScaler(), RidgeCV(alphas=np.logspace(-3, 3, 13)))
    predicted: Array = ridge.fit(X, y).predict(X_new)
    return predicted.reshape(len(X_new), -1)
