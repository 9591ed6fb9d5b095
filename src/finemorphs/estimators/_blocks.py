"""Training rows as tensors on a device: the control points, and this rank's blocks of the others.

Blocks begin at multiples of their size, whatever the number of ranks: what a block adds up to
does not depend on who computes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch

from finemorphs._typing import Array
from finemorphs.distributed import Group
from finemorphs.estimators._data import TrainingRows, pad
from finemorphs.estimators._stream import StreamedRows
from finemorphs.rows import Rows, share

__all__ = ["Blocks"]

_KEPT = 4  # a quarter of the memory at most is for the rows of a stream


@dataclass(frozen=True)
class Blocks:
    """How rows become blocks.

    Attributes
    ----------
    n_dummies : int
        Dummy columns behind the inputs.
    size : int
        Rows in a block.
    memory : int
        Bytes that may be used.
    dtype, device
        Of the tensors.
    group : Group
        The processes that share the blocks.
    """

    n_dummies: int
    size: int
    memory: int
    dtype: torch.dtype
    device: torch.device
    group: Group

    def controls(self, rows: TrainingRows, rng: np.random.Generator, tied: bool) -> Rows:
        """The control points, on every rank; see ``pad`` for ``tied``."""
        part = slice(rows.n_controls)
        return self._tensors(rows, part, pad(rows.x[part], self.n_dummies, rng, tied))

    def others(self, rows: TrainingRows) -> Iterable[Rows] | None:
        """The other rows, this rank's share of them; None where there are none on any rank."""
        n = rows.n_controls
        if n == len(rows.x):
            return None
        if isinstance(rows, StreamedRows):
            return _Stream(rows, self)
        first, last = self.share(len(rows.x) - n)
        part = slice(n + first * self.size, n + last * self.size)
        inputs = pad(rows.x[part], self.n_dummies)
        return self._tensors(rows, part, inputs).blocks(self.size)

    def share(self, n_rows: int) -> tuple[int, int]:
        """First block of this rank out of so many rows, and the one behind its last."""
        return share(-(-n_rows // self.size), self.group.rank, self.group.size)

    def keeps(self, rows: StreamedRows) -> bool:
        """Whether this rank's share of a stream fits in memory."""
        width = rows.stream.n_features + self.n_dummies + rows.stream.n_responses
        needed = rows.stream.n_rows * width * self.dtype.itemsize // self.group.size
        return needed < self.memory // _KEPT

    def tensor(self, array: Array) -> torch.Tensor:
        """An array on the device."""
        return torch.as_tensor(array, dtype=self.dtype, device=self.device).contiguous()

    def _tensors(self, rows: TrainingRows, part: slice, inputs: Array) -> Rows:
        weights = None if rows.uniform else self.tensor(rows.weights[part])
        return Rows(self.tensor(inputs), self.tensor(rows.y[part]), weights)


@dataclass
class _Stream:
    """The blocks of a stream, read anew each time, one ahead of the one in work, or kept."""

    rows: StreamedRows
    blocks: Blocks
    _kept: list[Rows] = field(default_factory=list)

    def __iter__(self) -> Iterator[Rows]:
        if self._kept:
            yield from self._kept
            return
        keeps, found = self.blocks.keeps(self.rows), []
        for block in _ahead(self._read()):
            if keeps:
                found.append(block)
            yield block
        self._kept = found

    def _read(self) -> Iterator[Rows]:
        rows, blocks = self.rows, self.blocks
        n_rows = rows.stream.n_rows
        first, last = blocks.share(n_rows)
        begin = first * blocks.size
        for x, y in rows.stream.read(begin, min(last * blocks.size, n_rows), blocks.size):
            end = begin + len(x)
            controls = rows.chosen[(begin <= rows.chosen) & (rows.chosen < end)] - begin
            begin = end
            x = np.delete(rows.x_scaling.apply(x), controls, axis=0)
            y = np.delete(rows.y_scaling.apply(y), controls, axis=0)
            yield Rows(blocks.tensor(pad(x, blocks.n_dummies)), blocks.tensor(y))


def _ahead(blocks: Iterator[Rows]) -> Iterator[Rows]:
    """The same blocks, the next one read by a thread while one is in work."""
    with ThreadPoolExecutor(1) as reader:
        following = reader.submit(next, blocks, None)
        while (block := following.result()) is not None:
            following = reader.submit(next, blocks, None)
            yield block
