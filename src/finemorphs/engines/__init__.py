"""Engines compute the sums over pairs of points; :func:`choose_engine` is the one choice.

| name | where | needs |
|---|---|---|
| ``reference`` | dense PyTorch on any device; the specification | O(n n_S) memory |
| ``cpu`` | fused vector code, compiled by LLVM on first use | llvmlite |

``auto`` takes the fastest that this machine has.
"""

from __future__ import annotations

import torch

from finemorphs.engines._base import Engine
from finemorphs.exceptions import EngineError

__all__ = ["ENGINES", "Engine", "choose_engine"]

ENGINES = ("auto", "reference", "cpu")


def choose_engine(engine: str = "auto", device: str = "auto") -> tuple[Engine, torch.device]:
    """The engine of that name and the device it works on."""
    if engine not in ENGINES:
        raise EngineError(f"engine {engine!r} is not known; choose one of {', '.join(ENGINES)}.")
    place = _choose_device(engine, device)
    if engine == "reference":
        from finemorphs.engines.reference import ReferenceEngine

        return ReferenceEngine(), place
    from finemorphs.engines.cpu import CPUEngine

    return CPUEngine(), place


def _choose_device(engine: str, device: str) -> torch.device:
    if device == "auto":
        return torch.device("cpu")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise EngineError(
            f"device {device!r} is not a PyTorch device; use 'auto', 'cpu' or 'cuda'."
        ) from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise EngineError(
            f"device {device!r} was asked for, but PyTorch finds no CUDA device here."
        )
    if engine in ("auto", "cpu") and place.type != "cpu":
        raise EngineError(
            f"engine {engine!r} works on the CPU, not on {device!r}; use device='cpu', or "
            "engine='reference'."
        )
    return place
