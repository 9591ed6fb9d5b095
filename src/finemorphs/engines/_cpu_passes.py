"""The passes over pairs of points, written in the vector language of ``_cpu_ir``.

A vector holds W *rows* (points x_k); a *column* (a control point y_l) is one number in every
lane. For a pair, with D = y_l - x_k and r = |D| (see :mod:`finemorphs.engines._base`),

    K = kappa(r/h),   w = -g(r/h)/h^2 (p_k . a_l + [self] a_k . q_l)

                      to the row                       to the column
    product           out_k += K a_l
    self_product      out_k += K a_l                   out_l += K a_k
    adjoint           force_k += w D                   reaction_l -= w D,  pullback_l += K q_k
    self_adjoint      force_k += w D, pull_k += K q_l  force_l -= w D,     pull_l += K q_k

A few rows' vectors meet a few columns at a time: their weights K and w are in registers, and
each sum is read and written once for all of them. Sums to the columns of one block stay in
the first-level cache, a vector for each number, and their lanes are added once the block has
met its rows. The ``self`` passes take a pair of groups of rows once, for both sides; only
inside a group they take (k, l) and (l, k) apart.

Every sum has an order that depends on the sizes alone, not on the threads: a pass is cut
into *tasks*, which threads claim as they come; what two tasks may both add to, each keeps
for itself (*partial* sums), and ``collect`` adds them in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from llvmlite import ir

from finemorphs.engines._cpu_ir import Float, Function, Place, Variable, Vector

__all__ = [
    "PASSES",
    "PackSlot",
    "Pass",
    "PassBuilder",
    "Profile",
    "Slot",
    "Tiling",
    "build_collect",
    "build_pack",
]


class Slot:
    """Where a pass finds its arguments."""

    TASK, TASKS, ROWS, COLUMNS, PARAMETERS, PACKED, TO_ROWS, TO_COLUMNS, SCRATCH = range(9)
    FIELDS = 9  # and on: the columns' arrays, in the order of Pass.fields


@dataclass(frozen=True)
class Profile:
    """The shape of a radial kernel; its numbers come at run time."""

    value_terms: int
    slope_terms: int
    gaussian: bool


@dataclass(frozen=True)
class Tiling:
    """How a pass is laid over the machine's registers and caches."""

    lanes: int
    vectors: int  # of rows that are taken at a time
    columns: int  # that are taken at a time
    block: int  # columns whose sums stay in the first-level cache

    @property
    def group(self) -> int:
        """Rows that are taken at a time."""
        return self.lanes * self.vectors


@dataclass(frozen=True)
class Pass:
    """One of the four passes; ``row_fields`` and ``fields`` name what it reads."""

    name: str
    row_fields: tuple[str, ...]
    fields: tuple[str, ...]
    row_sums: int
    column_sums: int

    @property
    def is_self(self) -> bool:
        return self.name.startswith("self")

    @property
    def is_adjoint(self) -> bool:
        return self.name.endswith("adjoint")


PASSES = {
    p.name: p
    for p in (
        Pass("product", ("x",), ("x", "a"), 1, 0),
        Pass("self_product", ("x", "a"), ("x", "a"), 1, 1),
        Pass("adjoint", ("x", "p", "q"), ("x", "a"), 1, 2),
        Pass("self_adjoint", ("x", "a", "p", "q"), ("x", "a", "q"), 2, 2),
    )
}

Fields = dict[str, list[Vector]]
Pair = tuple[int, int]  # which of the rows' vectors, which of the columns
Term = tuple[Vector, Vector]  # weight and number: their product is added to a sum


class PassBuilder:
    """Writes one pass for one kernel shape, dimension and number type."""

    def __init__(
        self,
        module: ir.Module,
        which: Pass,
        profile: Profile,
        dim: int,
        number: Float,
        tiling: Tiling,
    ) -> None:
        self.which, self.profile, self.dim, self.tiling = which, profile, dim, tiling
        self.f = f = Function(module, which.name, number, tiling.lanes)
        self.n_rows, self.n_columns = f.integer(Slot.ROWS), f.integer(Slot.COLUMNS)
        self.n_tasks = f.integer(Slot.TASKS)
        self.packed = f.array(Slot.PACKED)
        self.to_rows, self.to_columns = f.array(Slot.TO_ROWS), f.array(Slot.TO_COLUMNS)
        self.columns = {name: f.array(Slot.FIELDS + i) for i, name in enumerate(which.fields)}
        parameters = f.array(Slot.PARAMETERS)
        values = [
            f.broadcast(parameters, f.index(i))
            for i in range(2 + profile.value_terms + profile.slope_terms)
        ]
        self.scale, self.cutoff = values[:2]
        self.value_coefficients = values[2 : 2 + profile.value_terms]
        self.slope_coefficients = values[2 + profile.value_terms :]
        self.n_groups = self._groups(self.n_rows)

    def build(self) -> None:
        f = self.f
        if self.which.name == "product":
            with f.claims(Slot.TASK, self.n_groups) as group:
                self._meet_all_columns(group)
        else:
            scratch = f.array(Slot.SCRATCH)
            size = f.index(self.tiling.block * self._n_column * self.tiling.lanes)
            with f.claims(Slot.TASK, self.n_tasks) as task:
                self.cache = f.at(scratch, f.ir.mul(task, size))
                if self.which.is_self:
                    self._self_task(task)
                else:
                    self._adjoint_task(task)
        f.finish()

    # -- tasks

    def _meet_all_columns(self, group: Any) -> None:
        rows = self._load_rows(group)
        places = self._places(self.to_rows, group)
        zero = self.f.constant(0.0)
        sums = [[self.f.variable(zero) for _ in one] for one in places]
        columns = self.tiling.columns
        self._sweep(rows, sums, self.f.index(0), self.n_columns, columns, block_start=None)
        for place, total in zip(chain(*places), chain(*sums), strict=True):
            place.set(total.get())

    def _self_task(self, task: Any) -> None:
        """Every ``n_tasks``-th block of columns, with the rows from its own group on."""
        f, b = self.f, self.f.ir
        size = b.mul(self.n_groups, f.index(self._n_row * self.tiling.group))
        partial = f.at(self.to_rows, b.mul(task, size))
        self._clear(partial, size)
        block = f.index(self.tiling.block)
        first = b.mul(task, block)
        with f.loop(first, self.n_columns, b.mul(self.n_tasks, block)) as start:
            stop = f.minimum(b.add(start, block), self.n_columns)
            self._clear_cache()
            own = b.sdiv(start, f.index(self.tiling.group))
            with f.loop(own, self.n_groups) as group:
                rows = self._load_rows(group)
                sums = self._places(partial, group)
                begin = b.mul(group, f.index(self.tiling.group))
                middle = f.minimum(f.maximum(begin, start), stop)
                end = f.minimum(b.add(begin, f.index(self.tiling.group)), stop)
                self._sweep(rows, sums, start, middle, self.tiling.columns, block_start=start)
                self._sweep(rows, sums, middle, end, 1, block_start=None)
            self._add_cache(partial, start, stop)

    def _adjoint_task(self, task: Any) -> None:
        """An equal part of the groups of rows, with every column."""
        f, b = self.f, self.f.ir
        first = b.sdiv(b.mul(task, self.n_groups), self.n_tasks)
        last = b.sdiv(b.mul(b.add(task, f.index(1)), self.n_groups), self.n_tasks)
        row_size = f.index(self._n_row * self.tiling.group)
        self._clear(f.at(self.to_rows, b.mul(first, row_size)), b.mul(b.sub(last, first), row_size))
        column_size = f.index(self._n_column * self.tiling.group)
        size = b.mul(self._groups(self.n_columns), column_size)
        partial = f.at(self.to_columns, b.mul(task, size))
        self._clear(partial, size)
        block = f.index(self.tiling.block)
        with f.loop(f.index(0), self.n_columns, self.tiling.block) as start:
            stop = f.minimum(b.add(start, block), self.n_columns)
            self._clear_cache()
            with f.loop(first, last) as group:
                rows = self._load_rows(group)
                sums = self._places(self.to_rows, group)
                self._sweep(rows, sums, start, stop, self.tiling.columns, block_start=start)
            self._add_cache(partial, start, stop)

    # -- pairs

    def _sweep(
        self,
        rows: Sequence[Fields],
        sums: Sequence[Sequence[Place | Variable]],
        start: Any,
        stop: Any,
        at_a_time: int,
        block_start: Any | None,
    ) -> None:
        """The rows with the columns from start to stop; both sides if in a block."""
        f, b = self.f, self.f.ir
        if at_a_time > 1:
            whole = b.sub(b.sub(stop, start), b.srem(b.sub(stop, start), f.index(at_a_time)))
            middle = b.add(start, whole)
            with f.loop(start, middle, at_a_time) as column:
                self._pairs(rows, sums, column, at_a_time, block_start)
            start = middle
        with f.loop(start, stop) as column:
            self._pairs(rows, sums, column, 1, block_start)

    def _pairs(
        self,
        rows: Sequence[Fields],
        sums: Sequence[Sequence[Place | Variable]],
        first_column: Any,
        n_columns: int,
        block_start: Any | None,
    ) -> None:
        """Some rows with some columns: all weights, then number by number all sums."""
        f, b = self.f, self.f.ir
        indices = [b.add(first_column, f.index(u)) for u in range(n_columns)]
        columns = [self._load_column(index) for index in indices]
        pairs = list(itertools.product(range(len(rows)), range(n_columns)))
        weights = self._weights(rows, columns, pairs)
        for j in range(self.dim):
            terms = {(v, u): self._terms(weights[v, u], rows[v], columns[u], j) for v, u in pairs}
            for v, part in itertools.product(range(len(rows)), range(self.which.row_sums)):
                total = sums[v][part * self.dim + j]
                value = total.get()
                for u in range(n_columns):
                    weight, number = terms[v, u][0][part]
                    value = weight.times(number, value)
                total.set(value)
            if block_start is None:
                continue
            for u, part in itertools.product(range(n_columns), range(self.which.column_sums)):
                offset = self._cache_offset(b.sub(indices[u], block_start), part * self.dim + j)
                value = f.load(self.cache, offset)
                for v in range(len(rows)):
                    weight, number = terms[v, u][1][part]
                    value = weight.times(number, value)
                f.store(value, self.cache, offset)

    def _weights(
        self, rows: Sequence[Fields], columns: Sequence[Fields], pairs: Sequence[Pair]
    ) -> dict[Pair, tuple[Vector, Vector]]:
        """K and w of every pair; w is not read where the pass is no adjoint."""
        squared: dict[Pair, Vector] = {}
        product: dict[Pair, Vector] = {}
        for j, pair in itertools.product(range(self.dim), pairs):
            row, column = rows[pair[0]], columns[pair[1]]
            difference = row["x"][j] - column["x"][j]
            squared[pair] = difference.times(difference, squared.get(pair))
            if self.which.is_adjoint:
                product[pair] = row["p"][j].times(column["a"][j], product.get(pair))
            if self.which.is_adjoint and self.which.is_self:
                product[pair] = row["a"][j].times(column["q"][j], product[pair])
        weights = {}
        for pair in pairs:
            value, slope = self._kernel(squared[pair])
            weights[pair] = value, slope * product[pair] if self.which.is_adjoint else slope
        return weights

    def _terms(
        self, weights: tuple[Vector, Vector], row: Fields, column: Fields, j: int
    ) -> tuple[list[Term], list[Term]]:
        """What a pair adds to number j of its row's and of its column's sums."""
        value, weight = weights
        if not self.which.is_adjoint:
            return [(value, column["a"][j])], [(value, row["a"][j])] if self.which.is_self else []
        # Not x_k - y_l: LLVM would keep that since _weights, and run out of registers.
        difference = column["x"][j] - row["x"][j]
        to_row = [(weight, difference)]
        if self.which.is_self:
            to_row.append((value, column["q"][j]))
        return to_row, [(weight, difference), (value, row["q"][j])]

    def _kernel(self, squared: Vector) -> tuple[Vector, Vector]:
        """kappa and -g/h^2 from r^2; exactly 0 where the exponential would be denormal."""
        distance = squared if self.profile.gaussian else squared.sqrt()
        decay = self.f.exp2_of_product(distance, self.scale)
        value, slope = (
            (self.f.polynomial(c, distance) * decay).zero_where(distance, self.cutoff)
            for c in (self.value_coefficients, self.slope_coefficients)
        )
        return value, slope

    # -- rows, columns and their sums

    @property
    def _n_row(self) -> int:
        return self.which.row_sums * self.dim

    @property
    def _n_column(self) -> int:
        return self.which.column_sums * self.dim

    def _groups(self, n: Any) -> Any:
        group = self.f.index(self.tiling.group)
        return self.f.ir.sdiv(self.f.rounded_up(n, group), group)

    def _parts(self, items: Sequence[Any]) -> list[Sequence[Any]]:
        return [items[i : i + self.dim] for i in range(0, len(items), self.dim)]

    def _load_rows(self, group: Any) -> list[Fields]:
        count = len(self.which.row_fields) * self.dim
        numbers = self._load_group(self.packed, group, count)
        return [
            dict(zip(self.which.row_fields, map(list, self._parts(one)), strict=True))
            for one in numbers
        ]

    def _load_column(self, column: Any) -> Fields:
        f, b = self.f, self.f.ir
        offset = b.mul(column, f.index(self.dim))
        return {
            name: [f.broadcast(array, b.add(offset, f.index(j))) for j in range(self.dim)]
            for name, array in self.columns.items()
        }

    def _offset(self, group: Any, count: int, item: int, vector: int) -> Any:
        b, width = self.f.ir, self.tiling.group
        start = b.mul(group, self.f.index(count * width))
        return b.add(start, self.f.index(item * width + vector * self.tiling.lanes))

    def _load_group(self, array: Any, group: Any, count: int) -> list[list[Vector]]:
        return [
            [self.f.load(array, self._offset(group, count, i, v)) for i in range(count)]
            for v in range(self.tiling.vectors)
        ]

    def _places(self, array: Any, group: Any) -> list[list[Place]]:
        """The rows' sums in memory."""
        return [
            [
                Place(self.f, array, self._offset(group, self._n_row, i, v))
                for i in range(self._n_row)
            ]
            for v in range(self.tiling.vectors)
        ]

    # -- the sums of a block of columns

    def _cache_offset(self, column: Any, item: int) -> Any:
        b, lanes = self.f.ir, self.tiling.lanes
        start = b.mul(column, self.f.index(self._n_column * lanes))
        return b.add(start, self.f.index(item * lanes))

    def _clear_cache(self) -> None:
        size = self.tiling.block * self._n_column * self.tiling.lanes
        self._clear(self.cache, self.f.index(size))

    def _clear(self, array: Any, size: Any) -> None:
        zero = self.f.constant(0.0)
        with self.f.loop(self.f.index(0), size, self.tiling.lanes) as i:
            self.f.store(zero, array, i)

    def _add_cache(self, array: Any, start: Any, stop: Any) -> None:
        """The lanes of the block added up, into the partial sums of its columns."""
        f, b, group = self.f, self.f.ir, self.tiling.group
        with f.loop(start, stop) as column:
            own, lane = (op(column, f.index(group)) for op in (b.sdiv, b.srem))
            for item in range(self._n_column):
                total = f.load(self.cache, self._cache_offset(b.sub(column, start), item)).sum()
                offset = b.add(self._offset(own, self._n_column, item, 0), lane)
                known = f.load_scalar(array, offset)
                is_force = self.which.is_adjoint and item < self.dim
                known = (b.fsub if is_force else b.fadd)(known, total)
                f.store_scalar(known, array, offset)


class PackSlot:
    """Where ``pack`` and ``collect`` find their arguments."""

    ROWS, DIM, GROUP, PACKED, PARTS, FIELDS = range(6)
    ARRAYS = 6  # and on: arrays (rows, dim), as many as FIELDS says


def build_pack(module: ir.Module, number: Float, lanes: int) -> None:
    """Arrays (rows, dim) to packed (groups, fields, dim, group), its missing rows 0."""
    f = Function(module, "pack", number, lanes)
    packed, zero = f.array(PackSlot.PACKED), ir.Constant(number.type, 0.0)
    for array, row_offset, packed_offset, filled in _rows_of_arrays(f):
        value = f.load_scalar(array, row_offset) if filled else zero
        f.store_scalar(value, packed, packed_offset)
    f.finish()


def build_collect(module: ir.Module, number: Float, lanes: int) -> None:
    """Packed (parts, groups, fields, dim, group), added over its parts in order, to arrays."""
    f = Function(module, "collect", number, lanes)
    b, packed = f.ir, f.array(PackSlot.PACKED)
    n, dim, group, n_fields = (
        f.integer(slot) for slot in (PackSlot.ROWS, PackSlot.DIM, PackSlot.GROUP, PackSlot.FIELDS)
    )
    size = b.mul(f.rounded_up(n, group), b.mul(n_fields, dim))
    end = b.mul(size, f.integer(PackSlot.PARTS))
    with f.loop(f.index(0), size, lanes) as i:
        total = f.variable(f.load(packed, i))
        with f.loop(b.add(i, size), end, size) as other:
            total.set(total.get() + f.load(packed, other))
        f.store(total.get(), packed, i)
    for array, row_offset, packed_offset, filled in _rows_of_arrays(f):
        if filled:
            f.store_scalar(f.load_scalar(packed, packed_offset), array, row_offset)
    f.finish()


def _rows_of_arrays(f: Function) -> Iterator[tuple[Any, Any, Any, bool]]:
    """Loops over fields, groups, rows and numbers.

    Yields twice, for the rows that are there and for those that are missing in the last
    group: the array, the number's offset in it, its offset when packed, and which it is.
    """
    b = f.ir
    n, dim, group, n_fields = (
        f.integer(slot) for slot in (PackSlot.ROWS, PackSlot.DIM, PackSlot.GROUP, PackSlot.FIELDS)
    )
    with f.loop(f.index(0), n_fields) as field, f.loop(f.index(0), n, group) as first:
        array = f.array(b.add(f.index(PackSlot.ARRAYS), field))
        start = b.add(b.mul(first, b.mul(n_fields, dim)), b.mul(field, b.mul(dim, group)))
        there = f.minimum(group, b.sub(n, first))
        for lanes, filled in (((f.index(0), there), True), ((there, group), False)):
            with f.loop(*lanes) as lane, f.loop(f.index(0), dim) as j:
                row_offset = b.add(b.mul(b.add(first, lane), dim), j)
                packed_offset = b.add(start, b.add(b.mul(j, group), lane))
                yield array, row_offset, packed_offset, filled
