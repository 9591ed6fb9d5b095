"""The pair sums on the processor: vector code for each kernel and dimension, many threads.

The passes are written in ``_cpu_passes``, compiled by ``_cpu_compile`` and run by
``_cpu_threads``; this file lays out their arguments. Memory beyond the results is
O((n + n_S) d).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache

import torch

from finemorphs._typing import Item, Tensor
from finemorphs.engines._base import Engine
from finemorphs.engines._cpu_compile import (
    NUMBERS,
    Native,
    Recipe,
    Support,
    compiled,
    is_compiled,
    tiling,
)
from finemorphs.engines._cpu_passes import PASSES, Pass, Profile
from finemorphs.engines._cpu_threads import for_each, n_threads, one_torch_thread, run
from finemorphs.engines.reference import ReferenceEngine
from finemorphs.exceptions import EngineError
from finemorphs.kernels import Kernel

__all__ = ["CPUEngine"]

_LARGEST_DIM = 256  # beyond it compiling takes more than half a minute
_PARTIAL_BYTES = 2**25  # for the partial sums of one pass
_SMALL = 300_000  # numbers in pairs, n n_S (d + 8), under which a second thread does not pay
_SIDE_BY_SIDE = 4  # calls of for_each at a time: what they work on has to find memory
_BLOCK_PAIRS = 2**21  # pairs that are in memory at a time, where dim > _LARGEST_DIM


class CPUEngine(Engine):
    """Fused passes over the pairs, vectorised, on ``torch.get_num_threads()`` threads.

    Results do not depend on the number of threads.
    """

    name = "cpu"

    def product(self, kernel: Kernel, x: Tensor, y: Tensor, a: Tensor) -> Tensor:
        _check((x,), (y, a))
        if _is_trivial(x, y) or x.shape[1] > _LARGEST_DIM:
            return _in_blocks_product(kernel, x, y, a)
        (out,) = _call("product", kernel, {"x": x}, {"x": y, "a": a})
        return out

    def self_product(self, kernel: Kernel, x: Tensor, a: Tensor) -> Tensor:
        _check((x, a))
        if _is_trivial(x, x) or x.shape[1] > _LARGEST_DIM:
            return _in_blocks_product(kernel, x, x, a)
        fields = {"x": x, "a": a}
        (out,) = _call("self_product", kernel, fields, fields)
        return out

    def adjoint(
        self, kernel: Kernel, x: Tensor, y: Tensor, p: Tensor, q: Tensor, a: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        _check((x, p, q), (y, a))
        if _is_trivial(x, y) or x.shape[1] > _LARGEST_DIM:
            return _in_blocks_adjoint(kernel, x, y, p, q, a)
        rows, columns = {"x": x, "p": p, "q": q}, {"x": y, "a": a}
        force, reaction, pullback = _call("adjoint", kernel, rows, columns)
        return force, reaction, pullback

    def self_adjoint(
        self, kernel: Kernel, x: Tensor, p: Tensor, a: Tensor
    ) -> tuple[Tensor, Tensor]:
        _check((x, p, a))
        if _is_trivial(x, x) or x.shape[1] > _LARGEST_DIM:
            force, reaction, pullback = _in_blocks_adjoint(kernel, x, x, p + a, p + 2 * a, a)
            return force + reaction, pullback
        columns = {"x": x, "a": a, "q": torch.add(p, a, alpha=2)}
        force, pullback = _call("self_adjoint", kernel, {**columns, "p": p}, columns)
        return force, pullback

    def session(self) -> AbstractContextManager[None]:
        return one_torch_thread()

    def side_by_side(self) -> int:
        return min(n_threads(), _SIDE_BY_SIDE)

    def for_each(self, work: Callable[[Item], None], items: Iterable[Item]) -> None:
        for_each(work, items, self.side_by_side())

    def needs_compilation(
        self, kernel: Kernel, dim: int, dtype: torch.dtype, *, subset: bool
    ) -> bool:
        """Whether training has to: for 3 seconds in 64 dimensions, for 30 in 256."""
        if dim > _LARGEST_DIM:
            return False
        needed: list[Recipe | Support] = [Support(name, dtype) for name in ("pack", "collect")]
        names = ("product", "adjoint") if subset else ("self_product", "self_adjoint")
        needed += [Recipe(name, dtype, _profile(kernel), dim) for name in names]
        return not all(map(is_compiled, needed))


@dataclass(frozen=True)
class _Plan:
    """All of a pass that depends on its kernel and sizes only."""

    which: Pass
    dtype: torch.dtype
    n_rows: int
    n_columns: int
    dim: int
    group: int
    block_size: int
    tasks: int
    parameters: Tensor
    function: Native
    pack: Native
    collect: Native

    def __call__(self, rows: dict[str, Tensor], columns: dict[str, Tensor]) -> list[Tensor]:
        """The sums to the rows, then those to the columns where these are others."""
        which = self.which
        packed = self._groups(1, self.n_rows, len(rows))
        row_parts = self.tasks if which.is_self else 1
        to_rows = self._groups(row_parts, self.n_rows, which.row_sums)
        to_columns = to_rows
        if which.name == "adjoint":
            to_columns = self._groups(self.tasks, self.n_columns, which.column_sums)
        scratch = torch.empty(self.tasks * self.block_size, dtype=self.dtype)

        sources = [rows[name] for name in which.row_fields]
        self._arrays(self.pack, self.n_rows, packed, 1, sources)
        arrays = (self.parameters, packed, to_rows, to_columns, scratch)
        addresses = [t.data_ptr() for t in arrays] + [columns[f].data_ptr() for f in which.fields]
        arguments = _integers(0, self.tasks, self.n_rows, self.n_columns, *addresses)
        memory = (arguments, arrays, columns)
        run(self.function, ctypes.addressof(arguments), self._threads(), memory)

        results = self._results(self.n_rows, which.row_sums)
        self._arrays(self.collect, self.n_rows, to_rows, row_parts, results)
        if which.name == "adjoint":
            others = self._results(self.n_columns, which.column_sums)
            self._arrays(self.collect, self.n_columns, to_columns, self.tasks, others)
            results += others
        return results

    def _groups(self, parts: int, n: int, fields: int) -> Tensor:
        groups = -(-n // self.group)
        return torch.empty(parts * groups * fields * self.dim * self.group, dtype=self.dtype)

    def _results(self, n: int, count: int) -> list[Tensor]:
        return [torch.empty(n, self.dim, dtype=self.dtype) for _ in range(count)]

    def _arrays(
        self, function: Native, n: int, packed: Tensor, parts: int, arrays: list[Tensor]
    ) -> None:
        addresses = [t.data_ptr() for t in arrays]
        arguments = _integers(
            n, self.dim, self.group, packed.data_ptr(), parts, len(arrays), *addresses
        )
        function(ctypes.addressof(arguments))

    def _threads(self) -> int:
        if self.n_rows * self.n_columns * (self.dim + 8) < _SMALL:
            return 1
        return min(n_threads(), self.tasks)


@lru_cache(maxsize=256)
def _plan(
    name: str, kernel: Kernel, dtype: torch.dtype, n_rows: int, n_columns: int, dim: int
) -> _Plan:
    which, tiles = PASSES[name], tiling(name, dtype, dim)
    block_size = tiles.block * which.column_sums * dim * tiles.lanes
    groups = -(-n_rows // tiles.group)
    tasks = groups
    if which.column_sums:
        # Enough for many threads to share, few enough for their partial sums to be small.
        n_partial = n_rows if which.is_self else n_columns
        partial_bytes = n_partial * dim * which.column_sums * NUMBERS[dtype].itemsize
        wanted = min(max(8, n_rows // 512), 64, max(4, _PARTIAL_BYTES // partial_bytes))
        tasks = min(groups, wanted)
    return _Plan(
        which,
        dtype,
        n_rows,
        n_columns,
        dim,
        tiles.group,
        block_size,
        tasks,
        parameters=torch.tensor(_parameters(kernel, dtype), dtype=dtype),
        function=compiled(Recipe(name, dtype, _profile(kernel), dim)),
        pack=compiled(Support("pack", dtype)),
        collect=compiled(Support("collect", dtype)),
    )


def _call(
    name: str, kernel: Kernel, rows: dict[str, Tensor], columns: dict[str, Tensor]
) -> list[Tensor]:
    x = rows["x"]
    n_rows, dim = x.shape
    return _plan(name, kernel, x.dtype, n_rows, len(columns["x"]), dim)(rows, columns)


def _integers(*values: int) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(values))(*values)


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
    """Dense sums, some rows at a time, in float64: differences of large sums cost digits."""
    engine = ReferenceEngine()
    y, a, dtype = y.double(), a.double(), x.dtype
    blocks = [engine.product(kernel, part.double(), y, a) for part in x.split(_block(y))]
    return torch.cat(blocks).to(dtype)


def _in_blocks_adjoint(
    kernel: Kernel, x: Tensor, y: Tensor, p: Tensor, q: Tensor, a: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    engine, size, dtype = ReferenceEngine(), _block(y), x.dtype
    y, a = y.double(), a.double()
    forces, reaction, pullback = [], torch.zeros_like(y), torch.zeros_like(y)
    for rows in zip(x.split(size), p.split(size), q.split(size), strict=True):
        x_part, p_part, q_part = (t.double() for t in rows)
        force, one, other = engine.adjoint(kernel, x_part, y, p_part, q_part, a)
        forces.append(force.to(dtype))
        reaction += one
        pullback += other
    return torch.cat(forces), reaction.to(dtype), pullback.to(dtype)


def _block(y: Tensor) -> int:
    return max(1, _BLOCK_PAIRS // max(1, len(y)))
