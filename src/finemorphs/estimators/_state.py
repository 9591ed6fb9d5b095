"""A fitted estimator as tensors and a header, and back: the content of a model file.

tensors   theta, centers.0 .. (a D module each), x_mean, x_scale, y_mean, y_scale, history.*
header    estimator, parameters, sequence, modules, fitted attributes, feature names, classes
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from finemorphs._typing import Array, Tensor
from finemorphs.estimators._data import Scaling
from finemorphs.estimators._model import Model
from finemorphs.exceptions import ModelFileError
from finemorphs.kernels import Kernel
from finemorphs.modules import Affine, Diffeo
from finemorphs.sequence import ModuleSequence
from finemorphs.training import Record

__all__ = ["VERSION", "describe", "restore"]

VERSION = 1  # of the content; raised when older readers could not understand a file

# Parameters of one machine: a loaded model must not write where its file says.
_NOT_KEPT = {"callbacks", "checkpoint", "resume"}

_FITTED = (
    "noise_",
    "objective_",
    "n_iter_",
    "n_evaluations_",
    "converged_",
    "status_",
    "n_features_in_",
)
# Of some estimators only, or unknown to older files.
_OPTIONAL = ("_n_response_axes", "distance_", "stationarity_")


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
    tensors |= {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    names = getattr(estimator, "feature_names_in_", None)
    parameters = estimator.get_params(deep=False)
    header = {
        "estimator": type(estimator).__name__,
        "parameters": {k: _plain(v) for k, v in parameters.items() if k not in _NOT_KEPT},
        "sequence": model.sequence.notation,
        "modules": [
            {"kind": type(m).__name__, **dataclasses.asdict(m)} for m in model.sequence.modules
        ],
        "fitted": {
            name: getattr(estimator, name)
            for name in _FITTED + _OPTIONAL
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
    parameters = header["parameters"]
    estimator = kind(**{k: v for k, v in parameters.items() if k not in _NOT_KEPT})
    sequence = ModuleSequence(header["sequence"], [_restore_module(m) for m in header["modules"]])
    centers = tuple(tensors[f"centers.{i}"] for i in range(len(sequence.diffeos)))
    n_features, n_responses = header["fitted"]["n_features_in_"], len(tensors["y_mean"])
    shapes: dict[str, tuple[int, ...]] = {
        "theta": (sequence.n_parameters,),
        "x_mean": (n_features,),
        "x_scale": (n_features,),
        "y_mean": (n_responses,),
        "y_scale": (n_responses,),
    }
    for i, module in enumerate(sequence.diffeos):
        shapes[f"centers.{i}"] = (module.n_steps, module.n_controls, module.dim)
    for name, shape in shapes.items():
        _check_shape(name, tensors[name], shape)
    arrays: dict[str, Array] = {name: tensor.numpy() for name, tensor in tensors.items()}
    estimator.model_ = Model(
        sequence,
        tensors["theta"],
        centers,
        Scaling(arrays["x_mean"], arrays["x_scale"]),
        Scaling(arrays["y_mean"], arrays["y_scale"]),
    )
    estimator.sequence_ = sequence.notation
    estimator.history_ = {f.name: arrays[f"history.{f.name}"] for f in dataclasses.fields(Record)}
    for name in _FITTED:
        setattr(estimator, name, header["fitted"][name])
    for name in _OPTIONAL:
        if name in header["fitted"]:
            setattr(estimator, name, header["fitted"][name])
    if "classes" in header:
        classes = header["classes"]
        estimator.classes_ = np.array(classes["labels"], dtype=np.dtype(classes["dtype"]))
    if header.get("notes") is not None:
        estimator.notes_ = dict(header["notes"])
    if header["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    return estimator


def _restore_module(description: dict[str, Any]) -> Affine | Diffeo:
    fields = dict(description)
    kind = fields.pop("kind")
    if kind == "Affine":
        return Affine(**fields)
    if kind == "Diffeo":
        return Diffeo(**{**fields, "kernel": Kernel(**fields["kernel"])})
    raise ModelFileError(f"the file holds a module of the unknown kind {kind!r}.")


def _plain(value: Any) -> Any:
    """What JSON can hold; None for what it cannot (callbacks, generators)."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (bool, int, float, str)) else None


def _check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ModelFileError(
            f"tensor {name!r} of the file has shape {tuple(tensor.shape)} where the model asks "
            f"for {shape}."
        )
