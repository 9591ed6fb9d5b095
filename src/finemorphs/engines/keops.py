"""PyKeOps, the library of the paper's own program, on the CPU and on CUDA devices.

Each sum is one symbolic formula, which KeOps compiles on first use (with the C++ compiler,
or NVRTC on a device) and keeps on disk. The coefficients of the profiles are parameters of
the formula: kernels of one family and order share one compiled routine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from finemorphs._typing import Tensor
from finemorphs.engines._base import Engine
from finemorphs.exceptions import EngineError
from finemorphs.kernels import Kernel

__all__ = ["KeOpsEngine"]


class KeOpsEngine(Engine):
    """The sums of :mod:`finemorphs.engines._base` through PyKeOps' ``LazyTensor``."""

    name = "keops"

    def __init__(self) -> None:
        self._lazy_tensor = _import_lazy_tensor()

    def product(self, kernel: Kernel, x: Tensor, y: Tensor, a: Tensor) -> Tensor:
        value = self._value(kernel, self._distances(kernel, x, y))
        return _compiled(lambda: (value * self._columns(a)).sum(dim=1))

    def adjoint(
        self, kernel: Kernel, x: Tensor, y: Tensor, p: Tensor, q: Tensor, a: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        u = self._distances(kernel, x, y)
        weights = (self._rows(p) * self._columns(a)).sum(-1)
        pull = self._slope(kernel, u) * weights * (self._rows(x) - self._columns(y))
        force = _compiled(lambda: pull.sum(dim=1))
        reaction = _compiled(lambda: pull.sum(dim=0))
        pullback = _compiled(lambda: (self._value(kernel, u) * self._rows(q)).sum(dim=0))
        scale = kernel.width**-2
        return force * scale, reaction * -scale, pullback

    def self_adjoint(
        self, kernel: Kernel, x: Tensor, p: Tensor, a: Tensor
    ) -> tuple[Tensor, Tensor]:
        u, q = self._distances(kernel, x, x), p + 2 * a
        weights = (self._rows(p) * self._columns(a) + self._rows(a) * self._columns(q)).sum(-1)
        pull = self._slope(kernel, u) * weights * (self._rows(x) - self._columns(x))
        force = _compiled(lambda: pull.sum(dim=1))
        pullback = _compiled(lambda: (self._value(kernel, u) * self._columns(q)).sum(dim=1))
        return force * kernel.width**-2, pullback

    def _rows(self, points: Tensor) -> Any:
        return self._lazy_tensor(points[:, None, :])

    def _columns(self, points: Tensor) -> Any:
        return self._lazy_tensor(points[None, :, :])

    def _distances(self, kernel: Kernel, x: Tensor, y: Tensor) -> Any:
        difference = self._rows(x) - self._columns(y)
        return (difference**2).sum(-1).sqrt() * self._scalar(1.0 / kernel.width, x)

    def _value(self, kernel: Kernel, u: Any) -> Any:
        return self._profile(kernel, kernel.value_coefficients, u)

    def _slope(self, kernel: Kernel, u: Any) -> Any:
        return self._profile(kernel, kernel.slope_coefficients, u)

    def _profile(self, kernel: Kernel, coefficients: tuple[float, ...], u: Any) -> Any:
        decay = (-(u**2) / 2).exp() if kernel.is_gaussian else (-u).exp()
        result = coefficients[-1]
        for c in reversed(coefficients[:-1]):
            result = result * u + c
        return result * decay

    def _scalar(self, value: float, like: Tensor) -> Any:
        return self._lazy_tensor(torch.full((1,), value, dtype=like.dtype, device=like.device))


def _compiled(reduction: Callable[[], Tensor]) -> Tensor:
    try:
        return reduction()
    except (OSError, RuntimeError, ImportError) as error:
        raise EngineError(
            f"PyKeOps could not compile or run a formula: {error}. It needs a C++ compiler, and "
            "the CUDA toolkit's headers for a device; or use engine='auto'."
        ) from error


def _import_lazy_tensor() -> Any:
    try:
        from pykeops.torch import LazyTensor
    except Exception as error:  # with no compiler, its import fails in several ways
        raise EngineError(
            f"engine 'keops' needs PyKeOps, which could not be imported ({error}); run "
            "pip install 'finemorphs[keops]', or use engine='auto'."
        ) from error
    return LazyTensor
