"""Engines compute the sums over pairs of points; :func:`choose_engine` is the one choice.

| name | where | needs |
|---|---|---|
| ``reference`` | dense PyTorch on any device; the specification | O(n n_S) memory |
| ``cpu`` | fused vector code, compiled by LLVM on first use | llvmlite |
| ``cuda`` | fused Triton kernels on a CUDA device | triton, which CUDA builds of PyTorch bring |
| ``keops`` | PyKeOps, the paper's own way, on any device | pykeops and a C++ compiler |

``auto`` takes ``cuda`` where PyTorch finds a CUDA device, and ``cpu`` elsewhere.
"""

from __future__ import annotations

import torch

from finemorphs.engines._base import Engine
from finemorphs.exceptions import EngineError

__all__ = ["ENGINES", "Engine", "choose_engine"]

ENGINES = ("auto", "cpu", "cuda", "keops", "reference")

# The kind of device an engine works on; the others work on any.
_PLACES = {"cpu": "cpu", "cuda": "cuda"}


def choose_engine(engine: str = "auto", device: str = "auto") -> tuple[Engine, torch.device]:
    """The engine of that name and the device it works on.

    Parameters
    ----------
    engine : str
        One of :data:`ENGINES`.
    device : str
        "auto", or a PyTorch device such as "cpu", "cuda" or "cuda:1".
    """
    if engine not in ENGINES:
        raise EngineError(f"engine {engine!r} is not known; choose one of {', '.join(ENGINES)}.")
    place = _choose_device(engine, device)
    return _make(place.type if engine == "auto" else engine), place


def _make(name: str) -> Engine:
    """Import and make an engine; nothing of the others is imported."""
    if name == "reference":
        from finemorphs.engines.reference import ReferenceEngine

        return ReferenceEngine()
    if name == "cuda":
        from finemorphs.engines.cuda import CUDAEngine

        return CUDAEngine()
    if name == "keops":
        from finemorphs.engines.keops import KeOpsEngine

        return KeOpsEngine()
    from finemorphs.engines.cpu import CPUEngine

    return CPUEngine()


def _choose_device(engine: str, device: str) -> torch.device:
    """The device, checked against what the engine can and what this machine has."""
    if device == "auto":
        wanted = _PLACES.get(engine) or ("cuda" if torch.cuda.is_available() else "cpu")
        place = torch.device(wanted)
    else:
        try:
            place = torch.device(device)
        except RuntimeError as error:
            raise EngineError(
                f"device {device!r} is not a PyTorch device; use 'auto', 'cpu' or 'cuda'."
            ) from error
    if place.type not in ("cpu", "cuda"):
        raise EngineError(f"device {device!r} is not supported; use 'auto', 'cpu' or 'cuda'.")
    if place.type != _PLACES.get(engine, place.type):
        raise EngineError(
            f"engine {engine!r} does not work on device {device!r}; use device='auto', or "
            "another engine."
        )
    if place.type == "cuda" and not torch.cuda.is_available():
        raise EngineError(
            f"a CUDA device was asked for (engine={engine!r}, device={device!r}), but PyTorch "
            "finds none here; use engine='cpu'."
        )
    return place
