"""Model files: one safetensors file, its numbers as tensors and the rest as JSON in its header.

No pickle: reading a file runs nothing. A file is written aside, synced and renamed, so that
a failed write leaves the old file as it was.

    tensors    theta, centers.0 .. (a D module each), x_mean, x_scale, y_mean, y_scale, history.*
    metadata   format, version, model (JSON: parameters, sequence, fitted attributes)
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes

from finemorphs._typing import Array, Tensor
from finemorphs.estimators import FineMorphsRegressor
from finemorphs.estimators._data import Scaling
from finemorphs.estimators._model import Model
from finemorphs.exceptions import ModelFileError
from finemorphs.kernels import Kernel
from finemorphs.modules import Affine, Diffeo
from finemorphs.sequence import ModuleSequence
from finemorphs.training import Record

__all__ = ["load", "save"]

FORMAT = "finemorphs"
VERSION = 1

_FITTED = (
    "noise_",
    "objective_",
    "n_iter_",
    "n_evaluations_",
    "converged_",
    "status_",
    "n_features_in_",
    "_n_response_axes",
)


def save(estimator: FineMorphsRegressor, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a file."""
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
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "model": json.dumps(_describe(estimator)),
    }
    data = to_bytes({name: t.contiguous() for name, t in tensors.items()}, metadata)
    _write(Path(path), data)


def load(path: str | os.PathLike[str]) -> FineMorphsRegressor:
    """Read a model file.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    FineMorphsRegressor
        Fitted, with the same predictions to the bit on the same engine.

    Raises
    ------
    ModelFileError
        If the file is damaged, of another kind, or of a newer format.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no model file at {os.fspath(path)!r}.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            _check_version(path, metadata)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return _restore(json.loads(metadata["model"]), tensors)
    except ModelFileError:
        raise
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ModelFileError(
            f"{os.fspath(path)!r} is not a whole finemorphs model file ({error}); "
            "save the model again, or check that the file was copied to the end."
        ) from error


def _check_version(path: str | os.PathLike[str], metadata: dict[str, str]) -> None:
    name = os.fspath(path)
    if metadata.get("format") != FORMAT:
        raise ModelFileError(
            f"{name!r} is a safetensors file, but not one that finemorphs wrote; give a file "
            "made by save()."
        )
    version = metadata.get("version", "")
    if not version.isdecimal() or int(version) < 1:
        raise ModelFileError(f"{name!r} has no readable format version (found {version!r}).")
    if int(version) > VERSION:
        raise ModelFileError(
            f"{name!r} has format version {version}, and this finemorphs reads up to {VERSION}; "
            "install a newer finemorphs."
        )


def _describe(estimator: FineMorphsRegressor) -> dict[str, Any]:
    """All that is not a tensor, ready for JSON."""
    sequence = estimator.model_.sequence
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "estimator": type(estimator).__name__,
        "parameters": {k: _plain(v) for k, v in estimator.get_params(deep=False).items()},
        "sequence": sequence.notation,
        "modules": [_describe_module(m) for m in sequence.modules],
        "fitted": {name: getattr(estimator, name) for name in _FITTED},
        "feature_names": None if names is None else [str(n) for n in names],
    }


def _describe_module(module: Any) -> dict[str, Any]:
    return {"kind": type(module).__name__, **dataclasses.asdict(module)}


def _plain(value: Any) -> Any:
    """What JSON can hold; None for what it cannot (callbacks, generators)."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (bool, int, float, str)) else None


def _restore(description: dict[str, Any], tensors: dict[str, Tensor]) -> FineMorphsRegressor:
    if description["estimator"] != FineMorphsRegressor.__name__:
        raise ModelFileError(
            f"the file holds a {description['estimator']!r}, which this finemorphs does not know; "
            "install a newer finemorphs."
        )
    estimator = FineMorphsRegressor(**description["parameters"])
    sequence = ModuleSequence(
        description["sequence"], [_restore_module(m) for m in description["modules"]]
    )
    centers = tuple(tensors[f"centers.{i}"] for i in range(len(sequence.diffeos)))
    _check_shape("theta", tensors["theta"], (sequence.n_parameters,))
    for i, (module, center) in enumerate(zip(sequence.diffeos, centers, strict=True)):
        shape = (module.n_steps, module.n_controls, module.dim)
        _check_shape(f"centers.{i}", center, shape)
    arrays: dict[str, Array] = {
        name: tensor.numpy() for name, tensor in tensors.items() if name != "theta"
    }
    for name in ("x_mean", "x_scale"):
        _check_shape(name, tensors[name], (description["fitted"]["n_features_in_"],))
    for name in ("y_mean", "y_scale"):
        _check_shape(name, tensors[name], tensors["y_mean"].shape[:1])
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
        setattr(estimator, name, description["fitted"][name])
    if description["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(description["feature_names"], dtype=object)
    return estimator


def _restore_module(description: dict[str, Any]) -> Affine | Diffeo:
    fields = dict(description)
    kind = fields.pop("kind")
    if kind == "Affine":
        return Affine(**fields)
    if kind == "Diffeo":
        return Diffeo(**{**fields, "kernel": Kernel(**fields["kernel"])})
    raise ModelFileError(f"the file holds a module of the unknown kind {kind!r}.")


def _check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != tuple(shape):
        raise ModelFileError(
            f"tensor {name!r} of the file has shape {tuple(tensor.shape)} where the model asks "
            f"for {tuple(shape)}."
        )


def _write(path: Path, data: bytes) -> None:
    """Beside the path, synced, then renamed over it."""
    handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o666 & ~_umask())
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


FineMorphsRegressor._writer = staticmethod(save)
