"""Checks of the constructor's arguments, made when ``fit`` is called."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from finemorphs.losses import NAMED, Loss

__all__ = ["check_parameters", "generator"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "kernel": ("matern", "gaussian"),
    "inner_affine": ("ridge", "identity"),
    "subset_method": ("kmeans++", "random"),
    "optimizer": ("natural-lbfgs", "lbfgs"),
    "dtype": ("float32", "float64"),
}
_WARPS = ("none", "quantile", "power", "auto")
_REGRESSOR_CHOICES: dict[str, tuple[str | None, ...]] = {
    "input_warp": _WARPS,
    "response_warp": _WARPS,
    "preset": (None, "paper", "best"),
}
_NOISES = ("auto", "cv", "paper")


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Refuse what cannot work, with what is wrong, what came, and what to do."""
    known = {n: c for n, c in _REGRESSOR_CHOICES.items() if n in parameters}
    for name, choices in (_CHOICES | known).items():
        value = parameters[name]
        if not isinstance(value, str | None) or value not in choices:
            options = ", ".join(repr(c) for c in choices)
            raise ValueError(f"{name}={value!r} is not known; choose one of {options}.")
    for name in ("engine", "device"):
        if not isinstance(parameters[name], str):
            raise ValueError(f"{name}={parameters[name]!r} is not a name; use 'auto'.")
    _whole(parameters, "dummy_dims", 0)
    _whole(parameters, "output_dims", 0)
    _whole(parameters, "memory", 1)
    _whole(parameters, "max_iter", 1)
    _whole(parameters, "verbose", 0)
    _whole(parameters, "kernel_order", 0)
    _whole(parameters, "n_steps", 1, many=True)
    if "n_members" in parameters:
        _whole(parameters, "n_members", 1)
    if parameters["subset_size"] is not None:
        _whole(parameters, "subset_size", 1)
    if parameters["batch_size"] is not None:
        _whole(parameters, "batch_size", 1)
    if parameters["dims"] is not None:
        _whole(parameters, "dims", 1, many=True)
    _real(parameters, "ridge", lambda v: v >= 0, "0 or more", many=True)
    _real(parameters, "tol", lambda v: v >= 0, "0 or more")
    if not isinstance(parameters["kernel_width"], str):
        _real(parameters, "kernel_width", lambda v: v > 0, "positive", many=True)
    if parameters["max_memory"] is not None and not isinstance(parameters["max_memory"], str):
        _whole(parameters, "max_memory", 1)
    if parameters["max_time"] is not None:
        _real(parameters, "max_time", lambda v: v > 0, "positive")
    noise = parameters["noise"]
    if isinstance(noise, str) and noise not in _NOISES:
        raise ValueError(
            f"noise={noise!r} is not known; use 'auto', 'cv', 'paper' or a positive number."
        )
    if not isinstance(noise, str):
        _real(parameters, "noise", lambda v: v > 0, "positive, or 'auto'")
    loss = parameters.get("loss", "squared")
    if not isinstance(loss, Loss) and not (isinstance(loss, str) and loss in NAMED):
        raise ValueError(
            f"loss={loss!r} is not known; choose {', '.join(map(repr, NAMED))}, or a Loss of "
            "finemorphs.losses."
        )
    checkpoint = parameters["checkpoint"]
    if checkpoint is not None and not isinstance(checkpoint, (str, os.PathLike)):
        raise ValueError(f"checkpoint={checkpoint!r} is not a path; give one, or None.")
    if parameters["resume"] and checkpoint is None:
        raise ValueError(
            "resume=True has no checkpoint to go on from; give checkpoint= the path of one."
        )
    callbacks = parameters["callbacks"]
    if callbacks is not None and not all(callable(c) for c in callbacks):
        raise ValueError(
            f"callbacks={callbacks!r} holds something that cannot be called; give functions "
            "of one training record."
        )


def generator(random_state: Any) -> np.random.Generator:
    """A generator of our own from None, an int, a RandomState or a Generator."""
    if random_state is None or isinstance(random_state, np.random.Generator):
        return np.random.default_rng(random_state)
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31, size=4))
    if isinstance(random_state, Integral) and int(random_state) >= 0:
        return np.random.default_rng(int(random_state))
    raise ValueError(
        f"random_state={random_state!r} cannot seed a generator; give None, an int of 0 or more, "
        "a numpy Generator or a RandomState."
    )


def _values(value: Any, many: bool) -> list[Any]:
    if many and isinstance(value, (list, tuple, np.ndarray)):
        return list(value)
    return [value]


def _whole(parameters: Mapping[str, Any], name: str, least: int, many: bool = False) -> None:
    value = parameters[name]
    for v in _values(value, many):
        if isinstance(v, bool) or not isinstance(v, Integral) or int(v) < least:
            kind = "a whole number, or a list of them," if many else "a whole number"
            raise ValueError(f"{name}={value!r} is not usable; give {kind} of {least} or more.")


def _real(
    parameters: Mapping[str, Any],
    name: str,
    allowed: Callable[[float], bool],
    words: str,
    many: bool = False,
) -> None:
    value = parameters[name]
    for v in _values(value, many):
        right = isinstance(v, Real) and not isinstance(v, bool)
        if not right or not math.isfinite(v) or not allowed(float(v)):
            kind = "a number, or a list of them," if many else "a number"
            raise ValueError(f"{name}={value!r} is not usable; give {kind} that is {words}.")
