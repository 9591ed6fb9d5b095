"""Model files with the recipe of their columns, and predictions from tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from finemorphs._typing import Array
from finemorphs.exceptions import ModelFileError
from finemorphs.persistence import load
from finemorphs.tables import Recipe
from finemorphs.tables.recipe import NumberColumn

__all__ = ["load_model", "predictions"]


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
    return estimator, Recipe(("y",), columns, missing="error")


def predictions(estimator: Any, X: Array) -> Array:
    """Responses (n, d_Y), also where there is one."""
    responses: Array = estimator.predict(X)
    return responses.reshape(len(X), -1)
