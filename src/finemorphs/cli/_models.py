"""Model files with the recipe of their columns, and what models say about rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sklearn.base import is_classifier

from finemorphs._typing import Array
from finemorphs.exceptions import ModelFileError
from finemorphs.persistence import load
from finemorphs.tables import Recipe
from finemorphs.tables.columns import NumberColumn

__all__ = ["interval_columns", "load_model", "output_columns", "outputs"]


def load_model(path: Path) -> tuple[Any, Recipe]:
    """The estimator of a file, and what is done to the columns of its tables.

    A model that was saved in Python takes its columns as numbers, by their names.
    """
    estimator = load(path)
    notes = getattr(estimator, "notes_", None)
    if notes is not None:
        recipe = Recipe.from_json(notes.get("recipe"))
        if len(recipe.features) != estimator.n_features_in_:
            raise ModelFileError(
                f"{path} describes {len(recipe.features)} columns for a model of "
                f"{estimator.n_features_in_}; fit the model again."
            )
        return estimator, recipe
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        raise ModelFileError(
            f"the model in {path} was fitted to an array without column names, so that tables "
            "cannot be matched to it; fit it to a data frame, or with finemorphs fit."
        )
    columns = tuple(NumberColumn(str(name), float("nan")) for name in names)
    return estimator, Recipe(("y",), columns, "error", classes=is_classifier(estimator))


def outputs(estimator: Any, X: Array) -> Array:
    """Predicted numbers (n, d_Y), or the probabilities (n, n_classes) of a classifier."""
    classes = is_classifier(estimator)
    values: Array = estimator.predict_proba(X) if classes else estimator.predict(X)
    return values.reshape(len(X), -1)


def output_columns(estimator: Any, recipe: Recipe, values: Array) -> dict[str, Array]:
    """What :func:`outputs` gave, as columns of a table."""
    if not recipe.classes:
        names = [f"predicted_{target}" for target in recipe.targets]
        return dict(zip(names, values.T, strict=True))
    (target,) = recipe.targets
    columns = {f"predicted_{target}": estimator.classes_[values.argmax(1)]}
    for label, column in zip(estimator.classes_, values.T, strict=True):
        columns[f"probability_{label}"] = column
    return columns


def interval_columns(
    estimator: Any, recipe: Recipe, X: Array, confidence: float
) -> dict[str, Array]:
    """The lower and upper ends of the intervals of each target, as columns of a table."""
    ends = estimator.predict_interval(X, confidence).reshape(len(X), -1, 2)
    return {
        f"{end}_{target}": ends[:, i, j]
        for i, target in enumerate(recipe.targets)
        for j, end in enumerate(("lower", "upper"))
    }
