"""The pair sums on the processor: vector code for each kernel and dimension, many threads.

The passes are written in ``_cpu_passes``, compiled by ``_cpu_compile`` and run by
``_cpu_threads``; this file lays out their arguments. Memory beyond the results is
O((n + n_S) d).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator

import torch

from finemorphs._typing import Tensor
from finemorphs.engines._base import Engine
from finemorphs.engines._cpu_compile import (
    NUMBERS,
    Recipe,
    Support,
    compiled,
    is_compiled,
    tiling,
)
from finemorphs.engines._cpu_passes import PASSES, Profile, Slot
from finemorphs.engines._cpu_threads import run
from finemorphs.engines.reference import ReferenceEngine
from finemorphs.exceptions import EngineError
from finemorphs.kernels import Kernel

__all__ = ["CPUEngine"]

_LARGEST_DIM = 64  # beyond it the registers are far too few, and matrix products win
_PARTIAL_BYTES = 2**27  # for the partial sums of one pass
_SMALL = 300_000  # numbers in pairs, n n_S (d + 8), under which a second thread does not pay
_BLOCK_PAIRS = 2**22  # pairs of a block, where dim > _LARGEST_DIM


class CPUEngine(Engine):
    """Fused passes over the pairs, vectorised, on ``torch.get_num_threads()`` threads.

    Results do not depend on the number of threads.
    """

    name = "cpu"

    def product(self, kernel: Kernel, x: Tensor, y: Tensor, a: Tensor) -> Tensor:
        _check((x,), (y, a))
        if _is_trivial(x, y) or x.shape[1] > _LARGEST_DIM:
            return _in_blocks_product(kernel, x, y, a)
        (out,) = _Call("product", kernel, {"x": x}, {"x": y, "a": a}).results()
        return out

    def self_product(self, kernel: Kernel, x: Tensor, a: Tensor) -> Tensor:
        _check((x, a))
        if _is_trivial(x, x) or x.shape[1] > _LARGEST_DIM:
            return _in_blocks_product(kernel, x, x, a)
        fields = {"x": x, "a": a}
        (out,) = _Call("self_product", kernel, fields, fields).results()
        return out

    def adjoint(
        self, kernel: Kernel, x: Tensor, y: Tensor, p: Tensor, q: Tensor, a: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        _check((x, p, q), (y, a))
        if _is_trivial(x, y) or x.shape[1] > _LARGEST_DIM:
            return _in_blocks_adjoint(kernel, x, y, p, q, a)
        rows, columns = {"x": x, "p": p, "q": q}, {"x": y, "a": a}
        force, reaction, pullback = _Call("adjoint", kernel, rows, columns).results()
        return force, reaction, pullback

    def self_adjoint(
        self, kernel: Kernel, x: Tensor, p: Tensor, q: Tensor, a: Tensor
    ) -> tuple[Tensor, Tensor]:
        _check((x, p, q, a))
        if _is_trivial(x, x) or x.shape[1] > _LARGEST_DIM:
            force, reaction, pullback = _in_blocks_adjoint(kernel, x, x, p, q, a)
            return force + reaction, pullback
        fields = {"x": x, "a": a, "p": p, "q": q}
        force, pullback = _Call("self_adjoint", kernel, fields, fields).results()
        return force, pullback

    def needs_compilation(self, kernel: Kernel, dim: int, dtype: torch.dtype) -> bool:
        """Whether a first call with these has to compile, which takes a second or less."""
        if dim > _LARGEST_DIM:
            return False
        needed: list[Recipe | Support] = [Support(name, dtype) for name in ("pack", "collect")]
        needed += [Recipe(name, dtype, _profile(kernel), dim) for name in PASSES]
        return not all(map(is_compiled, needed))


class _Call:
    """One pass: its arguments laid out, run, and its partial sums added up."""

    def __init__(
        self, name: str, kernel: Kernel, rows: dict[str, Tensor], columns: dict[str, Tensor]
    ) -> None:
        x, y = rows["x"], columns["x"]
        self.which = PASSES[name]
        self.n, self.dim = x.shape
        self.n_columns = len(y)
        self.dtype = x.dtype
        self.tiling = tiling(name, x.dtype, self.dim)
        self.group = self.tiling.group
        tasks = self._tasks()

        packed = self._groups(1, self.n, len(rows))
        pack = compiled(Support("pack", self.dtype))
        width = len(rows) * self.dim
        for i, field in enumerate(self.which.row_fields):
            _call(pack, rows[field], self.n, self.dim, i * self.dim, width, self.group, packed)

        self.to_rows = self._groups(tasks if self.which.is_self else 1, self.n, self.which.row_sums)
        self.to_columns = self.to_rows
        if name == "adjoint":
            self.to_columns = self._groups(tasks, self.n_columns, self.which.column_sums)
        block = self.tiling.block * self.which.column_sums * self.dim * self.tiling.lanes
        scratch = x.new_empty(tasks * block)
        parameters = torch.tensor(_parameters(kernel, self.dtype), dtype=self.dtype)
        arguments = _addresses(
            0, tasks, self.n, self.n_columns, parameters, packed, self.to_rows, self.to_columns,
            scratch, *(columns[field] for field in self.which.fields),
        )  # fmt: skip
        assert len(arguments) == Slot.FIELDS + len(self.which.fields)
        function = compiled(Recipe(name, self.dtype, _profile(kernel), self.dim))
        run(function, ctypes.addressof(arguments), self._threads(tasks))

    def results(self) -> Iterator[Tensor]:
        """The sums to the rows, then those to the columns where these are others."""
        sides = [(self.to_rows, self.n, self.which.row_sums)]
        if self.to_columns is not self.to_rows:
            sides.append((self.to_columns, self.n_columns, self.which.column_sums))
        collect = compiled(Support("collect", self.dtype))
        for sums, n, count in sides:
            for i in range(count):
                out = sums.new_empty(n, self.dim)
                width = count * self.dim
                _call(collect, sums, n, self.dim, i * self.dim, width, self.group, out, len(sums))
                yield out

    def _groups(self, parts: int, n: int, fields: int) -> Tensor:
        groups = -(-n // self.group)
        return torch.empty(parts, groups, fields * self.dim, self.group, dtype=self.dtype)

    def _tasks(self) -> int:
        """Enough for many threads to share, few enough for their partial sums to be small."""
        groups = -(-self.n // self.group)
        if not self.which.column_sums:
            return groups
        partial = self.n if self.which.is_self else self.n_columns
        size = partial * self.dim * self.which.column_sums * NUMBERS[self.dtype].itemsize
        return max(1, min(groups, max(8, min(64, self.n // 256)), max(4, _PARTIAL_BYTES // size)))

    def _threads(self, tasks: int) -> int:
        if self.n * self.n_columns * (self.dim + 8) < _SMALL:
            return 1
        return min(torch.get_num_threads(), tasks)


def _addresses(*values: int | Tensor) -> ctypes.Array[ctypes.c_int64]:
    numbers = (v.data_ptr() if isinstance(v, Tensor) else v for v in values)
    return (ctypes.c_int64 * len(values))(*numbers)


def _call(function: object, *values: int | Tensor) -> None:
    arguments = _addresses(*values)
    assert callable(function)
    function(ctypes.addressof(arguments))


def _profile(kernel: Kernel) -> Profile:
    return Profile(
        len(kernel.value_coefficients), len(kernel.slope_coefficients), kernel.is_gaussian
    )


def _parameters(kernel: Kernel, dtype: torch.dtype) -> list[float]:
    """What a pass reads: scale, cutoff, and the coefficients of kappa and -g/h^2.

    They are polynomials in v = r (Gaussian: r^2) times 2^(scale v), and 0 where v > cutoff.
    """
    h = kernel.width
    scale = -1 / (2 * h * h * math.log(2)) if kernel.is_gaussian else -1 / (h * math.log(2))
    return [
        scale,
        NUMBERS[dtype].smallest / scale,
        *(c / h**i for i, c in enumerate(kernel.value_coefficients)),
        *(-c / h ** (i + 2) for i, c in enumerate(kernel.slope_coefficients)),
    ]


def _check(rows: tuple[Tensor, ...], columns: tuple[Tensor, ...] = ()) -> None:
    """The compiled code trusts what it is given, so that nothing may slip through here."""
    dim, dtype = rows[0].shape[-1], rows[0].dtype
    for side in (rows, columns):
        for tensor in side:
            if tensor.device.type != "cpu" or tensor.dtype != dtype or dtype not in NUMBERS:
                raise EngineError(
                    "engine 'cpu' takes float32 or float64 tensors on the CPU, all of one kind, "
                    f"but got {tensor.dtype} on {tensor.device}; convert them, or use "
                    "engine='reference'."
                )
            if tensor.shape != (len(side[0]), dim) or not tensor.is_contiguous():
                raise EngineError(
                    f"engine 'cpu' takes contiguous tensors of shape ({len(side[0])}, {dim}) "
                    f"here, but got shape {tuple(tensor.shape)} with strides {tensor.stride()}; "
                    "reshape it, or call .contiguous()."
                )


def _is_trivial(x: Tensor, y: Tensor) -> bool:
    return x.numel() == 0 or y.numel() == 0


def _in_blocks_product(kernel: Kernel, x: Tensor, y: Tensor, a: Tensor) -> Tensor:
    engine, size = ReferenceEngine(), max(1, _BLOCK_PAIRS // max(1, len(y)))
    blocks = [engine.product(kernel, part, y, a) for part in x.split(size)]
    return torch.cat(blocks)


def _in_blocks_adjoint(
    kernel: Kernel, x: Tensor, y: Tensor, p: Tensor, q: Tensor, a: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    engine, size = ReferenceEngine(), max(1, _BLOCK_PAIRS // max(1, len(y)))
    force, reaction, pullback = torch.empty_like(x), torch.zeros_like(y), torch.zeros_like(y)
    for start in range(0, len(x), size):
        rows = slice(start, start + size)
        force[rows], one, other = engine.adjoint(kernel, x[rows], y, p[rows], q[rows], a)
        reaction += one
        pullback += other
    return force, reaction, pullback
