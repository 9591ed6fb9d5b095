"""What the modules of a fitted estimator do, in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from finemorphs._typing import Array, ArrayLike
from finemorphs.modules import Affine

__all__ = ["displacements", "effects", "paths", "singular_values", "volumes"]


def paths(estimator: Any, X: ArrayLike) -> dict[str, Array]:
    """For each D module the states (T + 1, n, d) of the rows at its times."""
    found: dict[str, list[Array]] = {module.name: [] for module in _diffeos(estimator)}
    for name, _, states in estimator.trajectory(X):
        if name in found:
            found[name].append(states)
    return {name: np.stack(states) for name, states in found.items()}


def displacements(estimator: Any, X: ArrayLike) -> dict[str, Array]:
    """For each D module how far it moves each row: |z(1) - z(0)|, in standardised units."""
    return {
        name: np.linalg.norm(path[-1] - path[0], axis=1)
        for name, path in paths(estimator, X).items()
    }


def volumes(estimator: Any, X: ArrayLike) -> dict[str, Array]:
    """For each D module log |det d phi| at each row."""
    names = [module.name for module in _diffeos(estimator)]
    return dict(zip(names, estimator.log_det(X).T, strict=True)) if names else {}


def singular_values(estimator: Any) -> dict[str, Array]:
    """For each A module the singular values of its matrix, falling."""
    model = estimator.model_
    parts = zip(model.sequence.modules, model.sequence.split(model.theta), strict=True)
    return {
        module.name: np.linalg.svd(module.views(theta)[0].double().numpy(), compute_uv=False)
        for module, theta in parts
        if isinstance(module, Affine)
    }


def effects(estimator: Any, X: ArrayLike) -> tuple[list[str], Array]:
    """Names of the features and the effect of each on the prediction, the largest first.

    The effect is the root mean square of the derivative times the standard deviation of the
    feature over that of the prediction; of several responses the mean is taken.
    """
    table = estimator.sensitivity(X)
    n = estimator.n_features_in_
    means = table["effect"].reshape(-1, n).mean(0)
    order = np.argsort(-means, kind="stable")
    return [str(name) for name in table["feature"][:n][order]], means[order]


def _diffeos(estimator: Any) -> tuple[Any, ...]:
    diffeos: tuple[Any, ...] = estimator.model_.sequence.diffeos
    return diffeos
