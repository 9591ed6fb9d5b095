"""A fitted estimator as tensors and a header, and back: the content of a model file.

tensors   theta, centers.0 .. (a D module each), x_mean, x_scale, y_mean, y_scale, history.*,
          conformity_scores
header    estimator, parameters, sequence, modules, fitted attributes, feature names, classes

Nothing in a file is taken on trust: :func:`restore` compares every field with what the others
say of it, and gives a model that can predict, or an error.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from finemorphs._typing import Array, Tensor
from finemorphs.estimators._checks import (
    check_tensor,
    field,
    restore_classes,
    restore_sequence,
    texts,
)
from finemorphs.estimators._data import Scaling
from finemorphs.estimators._model import Model
from finemorphs.estimators._parameters import check_parameters
from finemorphs.sequence import ModuleSequence
from finemorphs.training import Record

__all__ = ["VERSION", "describe", "restore"]

VERSION = 1  # of the content; raised when older readers could not understand a file

# Parameters of one machine: a loaded model must not write where its file says.
_NOT_KEPT = {"callbacks", "checkpoint", "resume"}

_FITTED: dict[str, type] = {
    "noise_": float,
    "objective_": float,
    "n_iter_": int,
    "n_evaluations_": int,
    "converged_": bool,
    "status_": str,
    "n_features_in_": int,
}
# Of some estimators only, or unknown to older files.
_OPTIONAL: dict[str, type] = {
    "_n_response_axes": int,
    "distance_": dict,
    "stationarity_": dict,
}


def describe(estimator: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header of a fitted estimator."""
    model = estimator.model_
    tensors: dict[str, Tensor] = {"theta": model.theta}
    tensors |= {f"centers.{i}": c for i, c in enumerate(model.centers)}
    arrays = {
        "x_mean": model.x_scaling.mean,
        "x_scale": model.x_scaling.scale,
        "y_mean": model.y_scaling.mean,
        "y_scale": model.y_scaling.scale,
    }
    arrays |= {f"history.{name}": column for name, column in estimator.history_.items()}
    if hasattr(estimator, "conformity_scores_"):
        arrays["conformity_scores"] = estimator.conformity_scores_
    tensors |= {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    names = getattr(estimator, "feature_names_in_", None)
    parameters = estimator.get_params(deep=False)
    header = {
        "estimator": type(estimator).__name__,
        "parameters": {
            k: _plain(v) for k, v in parameters.items() if k not in _NOT_KEPT and _is_plain(v)
        },
        "sequence": model.sequence.notation,
        "modules": [
            {"kind": type(m).__name__, **dataclasses.asdict(m)} for m in model.sequence.modules
        ],
        "fitted": {
            name: getattr(estimator, name)
            for name in _FITTED | _OPTIONAL
            if name in _FITTED or hasattr(estimator, name)
        },
        "feature_names": None if names is None else [str(n) for n in names],
        "notes": getattr(estimator, "notes_", None),
    }
    if hasattr(estimator, "classes_"):
        classes = estimator.classes_
        header["classes"] = {"dtype": classes.dtype.str, "labels": classes.tolist()}
    return tensors, header


def restore(kind: type, tensors: dict[str, Tensor], header: dict[str, Any]) -> Any:
    """The fitted estimator of a class behind tensors and a header."""
    estimator = _restore_parameters(kind, field(header, "parameters", dict))
    fitted = field(header, "fitted", dict)
    for name, wanted in _FITTED.items():
        setattr(estimator, name, field(fitted, name, wanted))
    for name, wanted in _OPTIONAL.items():
        if name in fitted:
            setattr(estimator, name, field(fitted, name, wanted))
    sequence = restore_sequence(header)
    estimator.model_ = _restore_model(sequence, tensors, estimator.n_features_in_)
    estimator.sequence_ = sequence.notation
    estimator.history_ = _restore_history(tensors, estimator.n_iter_)
    if "conformity_scores" in tensors:
        estimator.conformity_scores_ = _restore_scores(
            tensors, len(estimator.model_.y_scaling.mean)
        )
    if "classes" in header:
        n_classes = len(estimator.model_.y_scaling.mean)
        estimator.classes_ = restore_classes(field(header, "classes", dict), n_classes)
    if header.get("notes") is not None:
        estimator.notes_ = field(header, "notes", dict)
    if header.get("feature_names") is not None:
        names = texts(header, "feature_names", estimator.n_features_in_)
        estimator.feature_names_in_ = np.array(names, dtype=object)
    return estimator


def _restore_parameters(kind: type, parameters: dict[str, Any]) -> Any:
    """An estimator with parameters that a user, too, could have given."""
    estimator = kind(**{k: v for k, v in parameters.items() if k not in _NOT_KEPT})
    check_parameters(estimator.get_params(deep=False))
    return estimator


def _restore_model(sequence: ModuleSequence, tensors: dict[str, Tensor], n_features: int) -> Model:
    n_responses = tensors["y_mean"].numel()
    if n_features > sequence.d_in or not 1 <= n_responses <= sequence.d_out:
        raise ValueError(
            f"it maps {n_features} columns to {n_responses} by a sequence from "
            f"{sequence.d_in} to {sequence.d_out} dimensions"
        )
    dtype = tensors["theta"].dtype
    if not dtype.is_floating_point:
        raise ValueError(f"tensor 'theta' holds {dtype}, which are no parameters")
    check_tensor(tensors, "theta", (sequence.n_parameters,), dtype)
    for i, module in enumerate(sequence.diffeos):
        shape = (module.n_steps, module.n_controls, module.dim)
        check_tensor(tensors, f"centers.{i}", shape, dtype)
    scalings = []
    for name, size in (("x", n_features), ("y", n_responses)):
        check_tensor(tensors, f"{name}_mean", (size,), torch.float64)
        check_tensor(tensors, f"{name}_scale", (size,), torch.float64)
        mean, scale = tensors[f"{name}_mean"].numpy(), tensors[f"{name}_scale"].numpy()
        if not (scale > 0).all():
            raise ValueError(f"tensor '{name}_scale' is not positive")
        scalings.append(Scaling(mean, scale))
    centers = tuple(tensors[f"centers.{i}"] for i in range(len(sequence.diffeos)))
    return Model(sequence, tensors["theta"], centers, *scalings)


def _restore_scores(tensors: dict[str, Tensor], n_responses: int) -> Array:
    scores = tensors["conformity_scores"]
    check_tensor(tensors, "conformity_scores", (scores.shape[0], n_responses), torch.float64)
    return scores.numpy()


def _restore_history(tensors: dict[str, Tensor], length: int) -> dict[str, Array]:
    columns = {}
    for column in dataclasses.fields(Record):
        tensor = tensors[f"history.{column.name}"]
        whole = column.type == "int"
        check_tensor(
            tensors, f"history.{column.name}", (length,), torch.int64 if whole else torch.float64
        )
        columns[column.name] = tensor.numpy()
    return columns


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold it; callbacks, generators and losses of one's own it cannot."""
    if isinstance(value, (list, tuple)):
        return all(_is_plain(v) for v in value)
    return value is None or isinstance(value, (bool, int, float, str, np.generic, np.ndarray))


def _plain(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
