"""A model as tensors and a description, and back.

flow      tensors theta, centers.0 .. (a D module each); description sequence, modules
kernels   tensors points, coefficients, scales, mixing, sharp, anchors; description kind
both      tensors x_mean, x_scale, x_warp.*, the same of y; description warps
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from finemorphs._typing import Array, Tensor
from finemorphs.estimators._checks import check_tensor, field, restore_sequence
from finemorphs.estimators._data import Scaling
from finemorphs.estimators._members import KernelModel
from finemorphs.estimators._model import Model
from finemorphs.estimators._warps import restore_warp, warp_kind
from finemorphs.kernel_regression import MOST_ANCHORS, KernelRegression, Scales

__all__ = ["describe_model", "restore_kernel", "restore_model"]

_OF_MIXED_FEATURES = ("mixing", "sharp")  # of the scales; not in files of others


def describe_model(model: Model | KernelModel) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and description of a model."""
    arrays = _describe_scaling("x", model.x_scaling) | _describe_scaling("y", model.y_scaling)
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    description: dict[str, Any] = {
        "warps": {"x": warp_kind(model.x_scaling.warp), "y": warp_kind(model.y_scaling.warp)}
    }
    if isinstance(model, KernelModel):
        regression = model.regression
        tensors["points"] = regression.points.cpu()
        tensors["coefficients"] = regression.coefficients.cpu()
        tensors["scales"] = torch.from_numpy(regression.scales.logarithms)
        for name in _OF_MIXED_FEATURES:
            if (numbers := getattr(regression.scales, name)).any():
                tensors[name] = torch.from_numpy(numbers)
        if len(regression.anchors):
            tensors["anchors"] = regression.anchors.cpu()
        return tensors, description | {"kind": "kernels"}
    tensors["theta"] = model.theta
    tensors |= {f"centers.{i}": c for i, c in enumerate(model.centers)}
    modules: tuple[Any, ...] = model.sequence.modules
    described = [{"kind": type(m).__name__, **dataclasses.asdict(m)} for m in modules]
    return tensors, description | {"sequence": model.sequence.notation, "modules": described}


def restore_model(
    tensors: dict[str, Tensor], description: dict[str, Any], n_features: int
) -> Model:
    """The flow behind tensors and a description."""
    sequence = restore_sequence(description)
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
    centers = tuple(tensors[f"centers.{i}"] for i in range(len(sequence.diffeos)))
    scalings = _restore_scalings(tensors, description, n_features, n_responses)
    return Model(sequence, tensors["theta"], centers, *scalings)


def restore_kernel(
    tensors: dict[str, Tensor], description: dict[str, Any], n_features: int
) -> KernelModel:
    """The kernel regression behind tensors and a description."""
    n_rows, n_responses = len(tensors["points"]), tensors["y_mean"].numel()
    check_tensor(tensors, "points", (n_rows, n_features), torch.float64)
    check_tensor(tensors, "coefficients", (n_rows, n_responses), torch.float64)
    check_tensor(tensors, "scales", (2 * n_features + 4,), torch.float64)
    scalings = _restore_scalings(tensors, description, n_features, n_responses)
    mixed: dict[str, Array] = {}
    for name, shape in zip(_OF_MIXED_FEATURES, ((n_features, n_features), (2,)), strict=True):
        if name in tensors:
            check_tensor(tensors, name, shape, torch.float64)
            mixed[name] = tensors[name].numpy()
    if (mixed.get("sharp", np.zeros(2)) < 0).any():
        raise ValueError("tensor 'sharp' is negative")
    scales = Scales.of_logarithms(tensors["scales"].numpy(), **mixed)
    anchors = _restore_anchors(tensors, n_rows)
    regression = KernelRegression(scales, tensors["points"], tensors["coefficients"], anchors)
    return KernelModel(regression, *scalings)


def _restore_anchors(tensors: dict[str, Tensor], n_rows: int) -> Tensor:
    """Places among the points; files from before there were any have none."""
    if "anchors" not in tensors:
        return torch.empty(0, dtype=torch.int64)
    anchors = tensors["anchors"]
    check_tensor(tensors, "anchors", (min(anchors.numel(), MOST_ANCHORS),), torch.int64)
    if not ((anchors >= 0) & (anchors < n_rows)).all():
        raise ValueError(f"tensor 'anchors' has places that are not among its {n_rows} points")
    return anchors


def _describe_scaling(side: str, scaling: Scaling) -> dict[str, Array]:
    arrays = {f"{side}_mean": scaling.mean, f"{side}_scale": scaling.scale}
    if scaling.warp is not None:
        arrays |= {f"{side}_warp.{name}": a for name, a in scaling.warp.arrays().items()}
    return arrays


def _restore_scalings(
    tensors: dict[str, Tensor], description: dict[str, Any], n_features: int, n_responses: int
) -> tuple[Scaling, Scaling]:
    kinds = field(description, "warps", dict) if "warps" in description else {}
    x = _restore_scaling("x", tensors, n_features, kinds.get("x", "none"))
    y = _restore_scaling("y", tensors, n_responses, kinds.get("y", "none"))
    return x, y


def _restore_scaling(side: str, tensors: dict[str, Tensor], size: int, kind: str) -> Scaling:
    check_tensor(tensors, f"{side}_mean", (size,), torch.float64)
    check_tensor(tensors, f"{side}_scale", (size,), torch.float64)
    mean, scale = tensors[f"{side}_mean"].numpy(), tensors[f"{side}_scale"].numpy()
    if not (scale > 0).all():
        raise ValueError(f"tensor '{side}_scale' is not positive")
    prefix = f"{side}_warp."
    numbers = {
        name.removeprefix(prefix): tensor.double().numpy()
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
    return Scaling(mean, scale, restore_warp(kind, numbers, size))
