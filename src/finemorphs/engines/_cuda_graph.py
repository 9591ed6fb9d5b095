"""A function of tensors recorded as a CUDA graph: small problems are not launch-bound."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from finemorphs._typing import Tensor
from finemorphs.engines._base import Passes

__all__ = ["Recording"]

_WARM_UPS = 2  # calls that compile kernels and fill caches before the recording


class Recording:
    """A function of CUDA tensors that is recorded once and replayed after that.

    The function must do the same work at every call, with no look at values on the host. It
    is recorded anew when the shape or type of an argument changes. Results are copies: the
    next call does not overwrite them.
    """

    def __init__(self, function: Passes) -> None:
        self._function = function
        self._signature: tuple[tuple[torch.Size, torch.dtype], ...] = ()
        self._graph = torch.cuda.CUDAGraph()
        self._arguments: tuple[Tensor, ...] = ()
        self._results: tuple[Tensor, ...] = ()

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        signature = tuple((a.shape, a.dtype) for a in arguments)
        if signature != self._signature:
            self._record(arguments)
            self._signature = signature
        for static, argument in zip(self._arguments, arguments, strict=True):
            static.copy_(argument)
        self._graph.replay()
        return tuple(result.clone() for result in self._results)

    def _record(self, arguments: tuple[Tensor, ...]) -> None:
        self._arguments = tuple(a.clone() for a in arguments)
        self._results = ()
        self._graph = torch.cuda.CUDAGraph()
        aside = torch.cuda.Stream(arguments[0].device)
        aside.wait_stream(torch.cuda.current_stream(arguments[0].device))
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UPS):
                self._function(*self._arguments)
        torch.cuda.current_stream(arguments[0].device).wait_stream(aside)
        with _no_garbage(), torch.cuda.graph(self._graph):
            self._results = self._function(*self._arguments)


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Collect garbage now and not inside: an old graph that is freed would break the recording."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
