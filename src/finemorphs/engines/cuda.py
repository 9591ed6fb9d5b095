"""Triton kernels for CUDA devices: nothing of the size of the pairs is kept.

Every pair is visited once; by ``adjoint`` twice, once for the sums of either side, since no
two threads add to one number.

With the distances scaled so that the exponential is a power of two,

    v = log2(e) |x_k - y_l| / h    (Matern)        v = log2(e) |x_k - y_l|^2 / (2 h^2)    (Gaussian)
    kappa = P(v) 2^-v              g = Q(v) 2^-v,

P and Q being the polynomials of :mod:`finemorphs.kernels` in v; the factor 1/h^2 of G_kl is
applied once, to the finished sums. The kernels are in ``_cuda_kernels``, which is imported
with the first engine: Triton is not needed where there is no CUDA device.

All calls can be captured in a CUDA graph once each has run before (they compile on first
use), and return the same bits for the same input on the same kind of device.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import torch

from finemorphs._typing import Tensor
from finemorphs.engines._base import Engine, Passes
from finemorphs.engines._cuda_graph import Recording
from finemorphs.exceptions import EngineError
from finemorphs.kernels import Kernel

__all__ = ["CUDAEngine", "out_of_memory_advice"]

_LOG2_E = math.log2(math.e)
_WARP = 32


class CUDAEngine(Engine):
    """The sums of :mod:`finemorphs.engines._base` on a CUDA device.

    float32 sums are right to about 1e-6 of their norm, float64 ones to about 1e-14. Beside
    arguments and results there are a packed copy of the arguments and the partial sums: one
    set for every range of pairs, at most about 200 MB in all up to d = 16.
    """

    name = "cuda"

    def __init__(self) -> None:
        self._kernels = _import_kernels()

    def product(self, kernel: Kernel, x: Tensor, y: Tensor, a: Tensor) -> Tensor:
        tile = _tile("product", x, y)
        with torch.cuda.device_of(x):
            own, other = self._pack(tile, x), self._pack(tile, y, a)
            return self._sum(kernel, tile, own, other)[1]

    def self_product(self, kernel: Kernel, x: Tensor, a: Tensor) -> Tensor:
        tile = _tile("product", x, x)
        with torch.cuda.device_of(x):
            points = self._pack(tile, x, a)
            return self._sum(kernel, tile, points, points)[1]

    def adjoint(
        self, kernel: Kernel, x: Tensor, y: Tensor, p: Tensor, q: Tensor, a: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        tile = _tile("adjoint", x, y)
        with torch.cuda.device_of(x):
            points, controls = self._pack(tile, x, p, q), self._pack(tile, y, a)
            force, _ = self._sum(kernel, tile, points, controls, weights=1, values=False)
            reaction, pullback = self._sum(kernel, tile, controls, points, weights=1)
        return force, reaction, pullback

    def self_adjoint(
        self, kernel: Kernel, x: Tensor, p: Tensor, a: Tensor
    ) -> tuple[Tensor, Tensor]:
        tile = _tile("self_adjoint", x, x)
        with torch.cuda.device_of(x):
            points = self._pack(tile, x, p, a)
            others = self._pack(tile, x, a, torch.add(p, a, alpha=2))
            return self._sum(kernel, tile, points, others, weights=2)

    def recorded(self, function: Passes) -> Passes:
        return Recording(function)

    def session(self) -> AbstractContextManager[None]:
        return out_of_memory_advice()

    def _pack(self, tile: _Tile, *fields: Tensor) -> _Points:
        n, d = fields[0].shape
        padded = -(-d // tile.chunk) * tile.chunk
        groups = -(-n // tile.lanes)
        # A load of several columns starts at a multiple of its size.
        per_load = tile.words // tile.lanes
        columns = -(-len(fields) * padded // per_load) * per_load
        packed = fields[0].new_empty(groups + 1, columns, tile.lanes)  # one to read ahead into
        block = 64
        self._kernels.pack[(-(-groups * tile.lanes // block),)](
            fields,
            packed,
            n,
            D=d,
            PADDED_D=padded,
            D_POWER=_power_of_two(padded),
            COLUMNS=columns,
            LANES=tile.lanes,
            BLOCK=block,
        )
        return _Points(packed, groups, n, d, padded)

    def _sum(
        self,
        kernel: Kernel,
        tile: _Tile,
        own: _Points,
        other: _Points,
        weights: int = 0,
        values: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """Force and value of every own point; what was not asked for is empty.

        ``weights`` counts the fields of the weight own . other: one, or two where the
        points are the control points, the weight is p_k . a_l + a_k . q_l and the value q.
        """
        d, n = own.padded_d, own.n
        columns = d * ((weights > 0) + values)
        blocks = -(-n // (_WARP * tile.rows))
        groups = other.groups
        resident = _processors(own.packed.device) * (_REGISTERS // (_WARP * tile.registers))
        per_split = _groups_per_split(tile, blocks * (d // tile.chunk), groups, resident)
        splits = -(-groups // per_split)
        partials = own.packed.new_empty(splits, columns, n)
        scale = _LOG2_E / kernel.width
        if kernel.is_gaussian:
            scale *= 0.5 / kernel.width
        self._kernels.sum_pairs[(blocks, splits, d // tile.chunk)](
            own.packed,
            other.packed,
            partials,
            n,
            groups,
            per_split,
            *_two_floats(scale),
            D=d,
            W=weights * d,
            SELF=weights == 2,
            VALUES=values,
            CHUNK=tile.chunk,
            OWN_COLUMNS=own.packed.shape[1],
            OTHER_COLUMNS=other.packed.shape[1],
            GAUSSIAN=kernel.is_gaussian,
            VALUE=_in_powers_of_two(kernel.value_coefficients),
            SLOPE=_in_powers_of_two(kernel.slope_coefficients),
            ROWS=tile.rows,
            LANES=tile.lanes,
            WORDS=tile.words,
            UNROLL=tile.unroll,
            BLOCK=_WARP,
            num_warps=1,
            maxnreg=tile.registers,
        )
        force = self._add(partials, own, 0, kernel.width**-2, weights > 0)
        return force, self._add(partials, own, columns - d, 1.0, values)

    def _add(
        self, partials: Tensor, own: _Points, first_column: int, factor: float, wanted: bool
    ) -> Tensor:
        splits, columns, n = partials.shape
        total = partials.new_empty(n if wanted else 0, own.d)
        if wanted:
            block = 128
            self._kernels.add_partials[(-(-n // block), own.d)](
                partials,
                total,
                n,
                columns,
                first_column,
                splits,
                *_two_floats(factor),
                D=own.d,
                SPLITS_BLOCK=16,
                BLOCK=block,
            )
        return total


@contextmanager
def out_of_memory_advice() -> Iterator[None]:
    """Turn PyTorch's out-of-memory error into an EngineError that says what to lower."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        # The tensors of the failed calls would live as long as the error does.
        traceback.clear_frames(error.__traceback__)
        torch.cuda.empty_cache()
        raise EngineError(
            f"the CUDA device ran out of memory ({str(error).splitlines()[0]}); lower memory (the "
            "L-BFGS history), subset_size or batch_size, or use device='cpu'."
        ) from error


@dataclass(frozen=True)
class _Points:
    """Fields of n points, packed (groups of LANES points and one more, columns, LANES)."""

    packed: Tensor
    groups: int
    n: int
    d: int
    padded_d: int


@dataclass(frozen=True)
class _Tile:
    """How pairs are cut: a thread owns ``rows`` points and meets others ``lanes`` at a time.

    It keeps ``chunk`` columns of its sums: all d, but in wide data. It has ``registers`` at
    most, a load takes ``words`` numbers, 16 bytes, and the loop over the others is unrolled
    ``unroll`` times where the pairs are many. The programs come in ``rounds`` of those
    that run at once, at least: many, and the last, ragged one costs little; few, and so do the
    partial sums.
    """

    rows: int
    lanes: int
    chunk: int
    registers: int = 255
    unroll: int = 1
    words: int = 4
    rounds: int = 8


# Sum -> (largest d, rows, lanes, registers, unroll), as measured. A thread's own columns (2 d
# for the product, up to 4 d for the adjoint, 5 d for self_adjoint) times its rows should fit
# its registers with the pairs in flight, and every word loaded should serve as many rows as
# possible: loads limit the sums with weights. The fewer the registers, the more threads hide
# each other's waiting: 255 is two warps a scheduler, 168 three, 128 four.
_TILES = {
    "product": (
        (5, 6, 1, 128, 4), (10, 4, 1, 128, 4), (16, 4, 4, 255, 1), (32, 3, 1, 255, 1),
    ),
    "adjoint": ((5, 4, 4, 168, 1), (10, 2, 4, 168, 1), (17, 2, 2, 255, 1), (32, 2, 1, 255, 1)),
    "self_adjoint": (
        (5, 4, 1, 168, 1), (10, 3, 1, 255, 2), (15, 2, 2, 255, 1), (17, 2, 1, 255, 1),
        (32, 1, 1, 255, 1),
    ),
}  # fmt: skip
_WIDE = _Tile(rows=2, lanes=4, chunk=16)
_REGISTERS = 65536  # of a processor
_ROUNDS = {"product": 8, "adjoint": 8, "self_adjoint": 4}  # as measured
_POINTS_PER_SPLIT = 16  # at least
# The loop is unrolled where so many pairs pay for it: that is a tenth faster, but Triton's passes
# take half a minute to compile it, in place of some seconds.
_UNROLLED_PAIRS = 2**30


def _tile(work: str, x: Tensor, y: Tensor) -> _Tile:
    d = x.shape[1]
    for largest, rows, lanes, registers, unroll in _TILES[work]:
        if d <= largest:
            if x.dtype == torch.float64:
                return _Tile(rows=max(rows // 2, 1), lanes=min(lanes, 2), chunk=d, words=2)
            if len(x) * len(y) < _UNROLLED_PAIRS:
                unroll = 1
            return _Tile(rows, lanes, d, registers, unroll, rounds=_ROUNDS[work])
    return _WIDE


def _groups_per_split(tile: _Tile, blocks: int, groups: int, resident: int) -> int:
    """Groups of other points in a range; the ranges' blocks fill whole rounds of the device."""
    most = max(1, groups * tile.lanes // _POINTS_PER_SPLIT)
    possible = max(1, most * blocks // resident)
    choice = range(min(tile.rounds, possible), min(tile.rounds + 4, possible) + 1)
    rounds = max(choice, key=lambda r: r * resident // blocks / r)
    splits = max(1, min(most, rounds * resident // blocks))
    return -(-groups // splits)


@cache
def _processors(device: torch.device) -> int:
    if device.type != "cuda":  # Triton's interpreter
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


def _in_powers_of_two(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    """Coefficients of a polynomial in u as those of one in v = log2(e) u."""
    return tuple(c / _LOG2_E**i for i, c in enumerate(coefficients))


def _two_floats(value: float) -> tuple[float, float]:
    """A float64 as the sum of two float32, the type in which Triton passes numbers."""
    high = float(torch.tensor(value, dtype=torch.float32))
    return high, value - high


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _import_kernels() -> ModuleType:
    try:
        from finemorphs.engines import _cuda_kernels
    except ImportError as error:
        raise EngineError(
            f"engine 'cuda' needs Triton, which could not be imported ({error}); install a "
            "PyTorch with CUDA, or use engine='reference'."
        ) from error
    return _cuda_kernels
