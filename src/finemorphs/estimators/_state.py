"""A fitted estimator as tensors and a header, and back: the content of a model file.

tensors   of the model (:mod:`._model_state`), of further members ("members.1." ..), history.*,
          conformity_scores, residual
header    estimator, parameters, the model, further members, fitted attributes, feature names,
          classes

Nothing in a file is taken on trust: :func:`restore` compares every field with what the others
say of it, and gives a model that can predict, or an error.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier

from finemorphs._typing import Array, Tensor
from finemorphs.estimators._checks import check_tensor, field, restore_classes, texts
from finemorphs.estimators._members import KernelModel, Member
from finemorphs.estimators._model import Model
from finemorphs.estimators._model_state import describe_model, restore_kernel, restore_model
from finemorphs.estimators._parameters import check_parameters
from finemorphs.training import Record

__all__ = ["VERSION", "describe", "restore"]

VERSION = 2  # of the content; raised when older readers could not understand a file

_MAX_MEMBERS = 1000

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
    "selection_": dict,
}


def describe(estimator: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header of a fitted estimator."""
    tensors, model = describe_model(estimator.model_)
    history = {f"history.{name}": column for name, column in estimator.history_.items()}
    tensors |= {name: torch.from_numpy(np.array(column)) for name, column in history.items()}
    if hasattr(estimator, "noise_path_"):
        tensors["noise_steps"] = torch.from_numpy(estimator.noise_path_)
    for name in ("conformity_scores", "residual"):
        if hasattr(estimator, f"{name}_"):
            tensors[name] = torch.from_numpy(np.array(getattr(estimator, f"{name}_")))
    names = getattr(estimator, "feature_names_in_", None)
    parameters = estimator.get_params(deep=False)
    header = {
        "estimator": type(estimator).__name__,
        "parameters": {
            k: _plain(v) for k, v in parameters.items() if k not in _NOT_KEPT and _is_plain(v)
        },
        **model,
        "fitted": {
            name: getattr(estimator, name)
            for name in _FITTED | _OPTIONAL
            if name in _FITTED or hasattr(estimator, name)
        },
        "feature_names": None if names is None else [str(n) for n in names],
        "notes": getattr(estimator, "notes_", None),
        "members": [],
    }
    for i, member in enumerate(estimator.members_):
        entry: dict[str, Any] = {"name": member.name, "weight": member.weight}
        if member.model is not estimator.model_:
            own, entry["model"] = describe_model(member.model)
            tensors |= {f"members.{i}.{name}": tensor for name, tensor in own.items()}
        header["members"].append(entry)
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
    estimator.model_ = restore_model(tensors, header, estimator.n_features_in_)
    estimator.members_ = _restore_members(estimator.model_, tensors, header)
    estimator.sequence_ = estimator.model_.sequence.notation
    estimator.history_ = _restore_history(tensors, estimator.n_iter_)
    n_responses = len(estimator.model_.y_scaling.mean)
    if "conformity_scores" in tensors:
        estimator.conformity_scores_ = _restore_table(tensors, "conformity_scores", n_responses)
    if "residual" in tensors:
        check_tensor(tensors, "residual", (n_responses,), torch.float64)
        estimator.residual_ = tensors["residual"].numpy()
    elif "rmse" in getattr(estimator, "selection_", {}):  # of one member, in an older file
        estimator.residual_ = _restore_residual(estimator.selection_["rmse"], n_responses)
    if "noise_steps" in tensors or "noise_path" in tensors:
        estimator.noise_path_ = _restore_noise_path(tensors, estimator.kernel_order)
    if is_classifier(estimator):
        estimator.classes_ = restore_classes(field(header, "classes", dict), n_responses)
    elif field(fitted, "_n_response_axes", int) not in ((1, 2) if n_responses == 1 else (2,)):
        raise ValueError(
            f"it has {fitted['_n_response_axes']} axes of the responses where there are "
            f"{n_responses} of them"
        )
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


def _restore_members(
    first: Model, tensors: dict[str, Tensor], header: dict[str, Any]
) -> tuple[Member, ...]:
    """What predicts; files of version 1 hold the model alone."""
    if "members" not in header:
        return (Member(first.sequence.notation, 1.0, first),)
    members = []
    entries = field(header, "members", list)
    if len(entries) > _MAX_MEMBERS:
        raise ValueError(f"it holds {len(entries)} members, more than {_MAX_MEMBERS}")
    for i, entry in enumerate(entries):
        name, weight = field(entry, "name", str), field(entry, "weight", float)
        members.append(Member(name, weight, _restore_member(i, entry, first, tensors)))
    if abs(sum(member.weight for member in members) - 1) > 1e-6:
        raise ValueError("the weights of its members do not add up to 1")
    return tuple(members)


def _restore_member(
    place: int, entry: dict[str, Any], first: Model, tensors: dict[str, Tensor]
) -> Model | KernelModel:
    """The model of a member: its own, or the first where it has none."""
    if "model" not in entry:
        return first
    prefix = f"members.{place}."
    own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    description = field(entry, "model", dict)
    restore_one = restore_model if "modules" in description else restore_kernel
    model = restore_one(own, description, len(first.x_scaling.mean))
    if len(model.y_scaling.mean) != len(first.y_scaling.mean):
        raise ValueError(f"member {place} predicts another number of responses than the first")
    return model


def _restore_noise_path(tensors: dict[str, Tensor], kernel_order: int) -> Array:
    """The path of noise levels.

    Older files have one ridge for all modules, before that no column of widths, all being the given
    ones; still older ones have the number of folds where now the evaluations are, and the oldest
    no column of orders.
    """
    if "noise_steps" in tensors:
        n_columns = next((n for n in (7, 6) if tensors["noise_steps"].shape[1:] == (n,)), 5)
        path = _restore_table(tensors, "noise_steps", n_columns)
    else:
        oldest = tensors["noise_path"].shape[1:] == (4,)
        path = _restore_table(tensors, "noise_path", 4 if oldest else 5)
        path = np.insert(path, 0, kernel_order, axis=1) if oldest else path.copy()
        path[:, -1] = np.nan
    if path.shape[1] < 6:
        path = np.insert(path, 5, 1.0, axis=1)
    return path if path.shape[1] == 7 else np.insert(path, 6, path[:, 1], axis=1)


def _restore_residual(errors: Any, n_responses: int) -> Array:
    """The residual level where it is the error out of fold alone."""
    residual = np.asarray(errors, dtype=np.float64)
    if residual.shape != (n_responses,):
        raise ValueError(f"it has errors of shape {residual.shape} for {n_responses} responses")
    return residual


def _restore_table(tensors: dict[str, Tensor], name: str, n_columns: int) -> Array:
    """A matrix with so many columns, of as many rows as it has."""
    table = tensors[name]
    check_tensor(tensors, name, (*table.shape[:1], n_columns), torch.float64)
    return table.numpy()


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
