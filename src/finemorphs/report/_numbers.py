"""What a report tells, as numbers: answers, scores, ways of the rows, measures of the modules."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import log_loss, mean_absolute_error, r2_score, root_mean_squared_error
from sklearn.utils import _safe_indexing, check_array, check_consistent_length

from finemorphs._typing import Array, ArrayLike
from finemorphs.modules import Diffeo
from finemorphs.plots._measures import displacements, effects, singular_values, volumes

__all__ = [
    "Answer",
    "Measure",
    "answers_of",
    "chosen_options",
    "measures_of",
    "sample_rows",
    "sensitivities_of",
]

_CONFIDENCE = 0.9  # of the intervals of a calibrated estimator

_MEASURED_ROWS = 1000
_NO_RESULT = {"callbacks", "checkpoint", "resume", "sequence", "verbose", "warm_start"}


@dataclass(frozen=True)
class Answer:
    """One response: what was observed and predicted, and how far apart they are.

    For classes, ``observed`` and ``predicted`` are places in ``labels``, and ``error`` is 1 minus
    the probability of the observed class.
    """

    name: str
    observed: Array
    predicted: Array
    error: Array
    scores: dict[str, float]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measure:
    """A module and what it does; quantiles are those of 5, 50 and 95 rows of 100."""

    name: str
    kind: str
    d_in: int
    d_out: int
    details: str
    displacement: Array | None = None
    volume: Array | None = None
    singular: Array | None = None


def answers_of(estimator: Any, X: ArrayLike, y: ArrayLike, names: list[str]) -> list[Answer]:
    """The answers of an estimator for the rows of a table."""
    if is_classifier(estimator):
        return [_class_answer(estimator, X, np.asarray(y), names[0])]
    observed = check_array(y, ensure_2d=False, dtype=float)
    observed = observed.reshape(len(observed), -1)
    predicted = np.asarray(estimator.predict(X), dtype=float).reshape(observed.shape)
    intervals = _interval_scores(estimator, X, observed)
    return [
        Answer(name, o, p, o - p, _scores(o, p) | more)
        for name, o, p, more in zip(names, observed.T, predicted.T, intervals, strict=True)
    ]


def chosen_options(estimator: Any) -> dict[str, str]:
    """The parameters that differ from their defaults, but for those that change no result."""
    parameters = inspect.signature(type(estimator)).parameters
    return {
        name: str(value)
        for name, value in estimator.get_params(deep=False).items()
        if value is not None and name not in _NO_RESULT and value != parameters[name].default
    }


def sample_rows(n: int, most: int) -> Array:
    """Places of all rows, or of so many of them, evenly drawn, in their order."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def measures_of(estimator: Any, X: ArrayLike) -> list[Measure]:
    """Every module with its size, and what it does to a sample of the rows."""
    X = _some(X)
    moved, grown = displacements(estimator, X), volumes(estimator, X)
    singular = singular_values(estimator)
    measures = []
    for module in estimator.model_.sequence.modules:
        place = {"name": module.name, "d_in": module.d_in, "d_out": module.d_out}
        if isinstance(module, Diffeo):
            measure = Measure(
                **place,
                kind="diffeomorphism",
                details=f"{module.kernel}, {module.n_steps} steps",
                displacement=_quantiles(moved[module.name]),
                volume=np.exp(_quantiles(grown[module.name])),
            )
        else:
            measure = Measure(
                **place,
                kind="affine",
                details=f"ridge {module.ridge:g}",
                singular=singular[module.name],
            )
        measures.append(measure)
    return measures


def sensitivities_of(estimator: Any, X: ArrayLike) -> tuple[list[str], Array]:
    """Names of the features, and the effect of each on the prediction, the largest first."""
    return effects(estimator, _some(X))


def _some(X: ArrayLike) -> ArrayLike:
    return _safe_indexing(X, sample_rows(len(X), _MEASURED_ROWS))


def _quantiles(values: Array) -> Array:
    quantiles: Array = np.quantile(values, [0.05, 0.5, 0.95])
    return quantiles


def _scores(observed: Array, predicted: Array) -> dict[str, float]:
    check_consistent_length(observed, predicted)
    return {
        "RMSE": float(root_mean_squared_error(observed, predicted)),
        "MAE": float(mean_absolute_error(observed, predicted)),
        "R²": float(r2_score(observed, predicted)) if len(observed) > 1 else float("nan"),
    }


def _interval_scores(estimator: Any, X: ArrayLike, observed: Array) -> list[dict[str, float]]:
    """Coverage and mean width of intervals, for each response of a calibrated estimator."""
    errors = getattr(estimator, "conformity_scores_", ())
    if len(errors) * (1 - _CONFIDENCE) < 2 or find_spec("mapie") is None:
        return [{}] * observed.shape[1]
    ends = estimator.predict_interval(X, _CONFIDENCE).reshape(*observed.shape, 2)
    inside = (ends[..., 0] <= observed) & (observed <= ends[..., 1])
    widths = ends[..., 1] - ends[..., 0]
    return [
        {
            f"share of rows in their {_CONFIDENCE:.0%} intervals": float(share),
            f"mean width of the {_CONFIDENCE:.0%} intervals": float(width),
        }
        for share, width in zip(inside.mean(0), widths.mean(0), strict=True)
    ]


def _class_answer(estimator: Any, X: ArrayLike, y: Array, name: str) -> Answer:
    classes = estimator.classes_
    codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    if (classes[codes] != y).any():
        unknown = y[classes[codes] != y][0]
        raise ValueError(f"the class {unknown!r} was not there in training; leave its rows out.")
    chances = estimator.predict_proba(X)
    best = chances.argmax(1)
    scores = {
        "accuracy": float((best == codes).mean()),
        "log loss": float(log_loss(codes, chances, labels=np.arange(len(classes)))),
    }
    error = 1 - chances[np.arange(len(codes)), codes]
    return Answer(name, codes, best, error, scores, tuple(map(str, classes)))
