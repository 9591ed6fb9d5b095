"""Fields of a model file, compared with what they must be before anything is made of them.

Each check raises a ValueError that says what is wrong; :func:`finemorphs.load` names the file.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import torch

from finemorphs._typing import Array, Tensor
from finemorphs.kernels import Kernel
from finemorphs.modules import Affine, Diffeo
from finemorphs.notation import MAX_MODULES, canonical
from finemorphs.sequence import ModuleSequence

__all__ = ["check_tensor", "field", "restore_classes", "restore_sequence", "texts"]


def field(mapping: dict[str, Any], name: str, kind: type) -> Any:
    """A value of the header, of the type it must have; floats are finite."""
    value = mapping.get(name)
    if kind is float:
        right = isinstance(value, (int, float)) and math.isfinite(value)
    else:
        right = isinstance(value, kind)
    if not right or isinstance(value, bool) != (kind is bool):
        raise ValueError(f"{name!r} is {value!r:.60} where {kind.__name__} is asked for")
    return value


def texts(mapping: dict[str, Any], name: str, length: int) -> list[str]:
    """As many texts as there must be."""
    values: list[str] = field(mapping, name, list)
    if len(values) != length or not all(isinstance(v, str) for v in values):
        raise ValueError(f"{name!r} are not {length} texts")
    return values


def check_tensor(
    tensors: dict[str, Tensor], name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """Refuse a tensor of another shape or kind, or with values that are not finite."""
    tensor = tensors[name]
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise ValueError(
            f"tensor {name!r} has shape {tuple(tensor.shape)} and {tensor.dtype} where "
            f"the model asks for {shape} and {dtype}"
        )
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"tensor {name!r} holds values that are not finite")


def restore_sequence(header: dict[str, Any]) -> ModuleSequence:
    """The modules of the header, whose letters must be those of its notation."""
    described = field(header, "modules", list)
    if len(described) > MAX_MODULES:
        raise ValueError(f"it holds {len(described)} modules, more than {MAX_MODULES}")
    modules = [_module(m) for m in described]
    letters = "".join(m.name[0] for m in modules)
    if not letters or canonical(letters) != field(header, "sequence", str):
        raise ValueError(
            f"it holds the modules {letters[:60]!r} and calls them the sequence "
            f"{header['sequence'][:60]!r}"
        )
    return ModuleSequence(header["sequence"], modules)


def _module(description: Any) -> Affine | Diffeo:
    if not isinstance(description, dict):
        raise ValueError(f"{description!r:.60} does not describe a module")
    fields = dict(description)
    kind = fields.pop("kind")
    if kind not in ("Affine", "Diffeo"):
        raise ValueError(f"it holds a module of the unknown kind {kind!r:.60}")
    if not re.fullmatch(f"{kind[0]}[0-9]{{1,3}}", field(fields, "name", str)):
        raise ValueError(f"it calls a module {fields['name'][:60]!r}")
    sizes = ("d_in", "d_out") if kind == "Affine" else ("dim", "n_steps", "n_controls")
    for size in sizes:
        if field(fields, size, int) < 1:
            raise ValueError(f"{fields['name']} has {size}={fields[size]}")
    if kind == "Affine":
        field(fields, "ridge", float)
        field(fields, "towards_identity", bool)
        return Affine(**fields)
    kernel = field(fields, "kernel", dict)
    for name, wanted in (("family", str), ("order", int), ("width", float)):
        field(kernel, name, wanted)
    return Diffeo(**{**fields, "kernel": Kernel(**kernel)})


def restore_classes(description: dict[str, Any], length: int) -> Array:
    """Labels of one kind; the width of text is that of the labels, whatever the file says."""
    labels = field(description, "labels", list)
    dtype = np.dtype(field(description, "dtype", str))
    classes = np.array(labels, dtype=object if dtype.kind in "OU" else dtype)
    if dtype.kind == "U":
        classes = np.array([str(label) for label in labels])
    if dtype.kind not in "biufOU" or classes.shape != (length,) or len(set(labels)) < length:
        raise ValueError(f"the labels {labels!r:.60} are not those of {length} classes")
    return classes
