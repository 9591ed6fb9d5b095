"""The Triton kernels of the CUDA engine: pack, sum over pairs, add the partial sums.

All four sums of :mod:`finemorphs.engines._base` are one kernel. Each of the *own* points
x_k goes over the *other* points y_l and gathers, with weights w_kl = own_k . other_l,

    force_k = sum_l g(u_kl) (x_k - y_l) w_kl         value_k = sum_l kappa(u_kl) b_l

A thread owns a few points and keeps their coordinates, weights and sums in registers, so
that every word it loads serves them all; the others are read in groups of ``LANES`` points,
whose columns lie side by side, ``WORDS`` numbers with each load. Distances come from differences:
they lose nothing to the distance from the origin, and at the dimensions of a flow they
cost less than moving a tile between registers and the tensor cores would.

No thread adds to what another wrote. The other points are split into ranges, each range
writes its own partial sums, and these are added in the order of the ranges, so that the
same input gives the same bits.
"""

# Triton's functions are a language of their own, without Python's types.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["add_partials", "pack", "sum_pairs"]


@triton.jit(do_not_specialize=["n"])
def pack(
    fields,
    packed,
    n,
    D: tl.constexpr,
    PADDED_D: tl.constexpr,
    D_POWER: tl.constexpr,
    COLUMNS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Fields of shape (n, D) into one (groups, COLUMNS, LANES), each PADDED_D columns.

    Zero where padded; columns after the last field are left as they are.
    """
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, D_POWER)
    source = row[:, None] * D + column[None, :]
    present = (row < n)[:, None] & (column < D)[None, :]
    target = (row // LANES * COLUMNS * LANES + row % LANES)[:, None] + column[None, :] * LANES
    inside = (row < (n + LANES - 1) // LANES * LANES)[:, None] & (column < PADDED_D)[None, :]
    for f in tl.static_range(len(fields)):
        block = tl.load(fields[f] + source, mask=present, other=0.0)
        tl.store(packed + f * PADDED_D * LANES + target, block, mask=inside)


@triton.jit
def _polynomial(v, COEFFICIENTS: tl.constexpr):
    DEGREE: tl.constexpr = len(COEFFICIENTS) - 1
    result = tl.full(v.shape, COEFFICIENTS[DEGREE], v.dtype)
    for i in tl.static_range(DEGREE):
        result = result * v + COEFFICIENTS[DEGREE - 1 - i]
    return result


@triton.jit
def _add_lanes(total, terms, first_lane):
    # total + sum of the lanes. The total enters at the first lane, which is known when
    # compiling: what is left is one chain of fused multiply-adds.
    return tl.sum(tl.where(first_lane, terms + total[None, :], terms), axis=0)


@triton.jit
def _own(base, row, n, COLUMNS: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr):
    # The points that the threads own, one each: their numbers, places, and which exist.
    index = row * BLOCK + tl.arange(0, BLOCK)
    place = base + (index // LANES).to(tl.int64) * (COLUMNS * LANES) + index % LANES
    return index, place, index < n


@triton.jit
def _read(
    group, COUNT: tl.constexpr, LANES: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr
):
    # The first COUNT columns of a group, and those that share a load with the last of them.
    PER_LOAD: tl.constexpr = WORDS // LANES
    INTEGER: tl.constexpr = tl.int32 if group.dtype.element_ty == tl.float32 else tl.int64
    place = tl.arange(0, PER_LOAD)[:, None, None]
    word = tl.arange(0, WORDS)[:, None] + tl.zeros((1, BLOCK), tl.int32)
    columns = ()
    for first in tl.static_range(0, COUNT, PER_LOAD):
        words = tl.load(group + first * LANES + word)
        bits = tl.reshape(words, (PER_LOAD, LANES, BLOCK)).to(INTEGER, bitcast=True)
        for i in tl.static_range(PER_LOAD):
            # The place is known when compiling: no instruction is left of this sum with zeros.
            column = tl.sum(tl.where(place == i, bits, 0), axis=0)
            columns += (column.to(words.dtype, bitcast=True),)
    return columns


@triton.jit
def _sum_from_memory(
    own,
    other,
    first_row,
    n_own,
    FIRST: tl.constexpr,
    COUNT: tl.constexpr,
    DISTANCE: tl.constexpr,
    CHUNK: tl.constexpr,
    OWN_COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # Of COUNT columns from FIRST on, for every row: squared distances to the lanes, or products.
    result = ()
    for r in tl.static_range(ROWS):
        _index, place, valid = _own(own, first_row + r, n_own, OWN_COLUMNS, LANES, BLOCK)
        total = tl.zeros((LANES, BLOCK), own.dtype.element_ty)
        for c in range(0, COUNT, CHUNK):
            for j in tl.static_range(CHUNK):
                mine = tl.load(place + (FIRST + c + j) * LANES, mask=valid, other=0.0)[None, :]
                theirs = tl.load(other + (FIRST + c + j) * LANES)[:, None]
                if DISTANCE:
                    total += (mine - theirs) * (mine - theirs)
                else:
                    total += mine * theirs
        result += (total,)
    return result


@triton.jit(do_not_specialize=["n_own", "n_groups", "groups_per_split"])
def sum_pairs(
    own,
    other,
    partials,
    n_own,
    n_groups,
    groups_per_split,
    scale_high,
    scale_low,
    D: tl.constexpr,
    W: tl.constexpr,
    SELF: tl.constexpr,
    VALUES: tl.constexpr,
    CHUNK: tl.constexpr,
    OWN_COLUMNS: tl.constexpr,
    OTHER_COLUMNS: tl.constexpr,
    GAUSSIAN: tl.constexpr,
    VALUE: tl.constexpr,
    SLOPE: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    WORDS: tl.constexpr,
    UNROLL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Partial forces (if W > 0) and values (if VALUES), of shape (splits, columns, n_own).

    Columns of the packed points: D coordinates, W weights, then the other points' D values.
    With SELF the values are the last D of the weights. A thread owns ROWS points and takes
    UNROLL groups between two tests for the end.
    CHUNK is D, or less where D is too large for the registers: then a program makes CHUNK
    columns of the sums, and reads its own points from memory at every step.
    """
    dtype: tl.constexpr = own.dtype.element_ty
    WIDE: tl.constexpr = CHUNK < D
    FIRST_VALUE: tl.constexpr = W if SELF else D + W
    COUNT: tl.constexpr = FIRST_VALUE + D if VALUES else D + W
    VALUE_AT: tl.constexpr = CHUNK if WIDE else FIRST_VALUE
    # The order of the sums, in which they are also kept: neighbours in the instruction stream
    # should share an operand, since reading registers is what limits them. One lane shares
    # the kernel's value along a row, several lanes share a column between the rows.
    BY_ROW: tl.constexpr = LANES == 1
    ROW_STEP: tl.constexpr = CHUNK if BY_ROW else 1
    COLUMN_STEP: tl.constexpr = 1 if BY_ROW else ROWS
    scale = tl.full((), scale_high, dtype) + tl.full((), scale_low, dtype)
    first_row = tl.program_id(0) * ROWS
    chunk = 0
    if WIDE:
        chunk = tl.program_id(2) * CHUNK

    x = ()
    weights = ()
    force = ()
    value = ()
    for r in tl.static_range(ROWS):
        index, place, valid = _own(own, first_row + r, n_own, OWN_COLUMNS, LANES, BLOCK)
        for j in tl.static_range(CHUNK):
            x += (tl.load(place + (chunk + j) * LANES, mask=valid, other=0.0),)
            force += (tl.zeros((BLOCK,), dtype),)
            value += (tl.zeros((BLOCK,), dtype),)
        if not WIDE:
            for j in tl.static_range(W):
                weights += (tl.load(place + (D + j) * LANES, mask=valid, other=0.0),)

    split = tl.program_id(1)
    first = split * groups_per_split
    last = tl.minimum(first + groups_per_split, n_groups)
    lane = tl.arange(0, LANES)
    first_lane = (lane == 0)[:, None]
    group = other + first.to(tl.int64) * (OTHER_COLUMNS * LANES)
    # The coordinates of a group are read while the one before is in work.
    HEAD: tl.constexpr = (D * LANES + WORDS - 1) // WORDS * (WORDS // LANES)
    ahead = ()
    if not WIDE:
        ahead = _read(group, HEAD, LANES, WORDS, BLOCK)
    for _group in tl.range(first, last, loop_unroll_factor=UNROLL):
        if WIDE:
            lanes = group + lane
            square = _sum_from_memory(
                own, lanes, first_row, n_own, 0, D, True, CHUNK, OWN_COLUMNS, ROWS, LANES, BLOCK
            )
            weight = _sum_from_memory(
                own, lanes, first_row, n_own, D, W, False, CHUNK, OWN_COLUMNS, ROWS, LANES, BLOCK
            )
            y = ()
            for j in tl.static_range(CHUNK):
                y += (tl.load(lanes + (chunk + j) * LANES)[:, None],)
            if VALUES:
                for j in tl.static_range(CHUNK):
                    y += (tl.load(lanes + (FIRST_VALUE + chunk + j) * LANES)[:, None],)
        else:
            y = ahead + _read(group + HEAD * LANES, COUNT - HEAD, LANES, WORDS, BLOCK)
            square = ()
            weight = ()
            for r in tl.static_range(ROWS):
                total = tl.zeros((LANES, BLOCK), dtype)
                for j in tl.static_range(D):
                    difference = x[r * D + j][None, :] - y[j]
                    total += difference * difference
                square += (total,)
            ahead = _read(group + OTHER_COLUMNS * LANES, HEAD, LANES, WORDS, BLOCK)
            for r in tl.static_range(ROWS):
                total = tl.zeros((LANES, BLOCK), dtype)
                for j in tl.static_range(W):
                    total += weights[r * W + j][None, :] * y[D + j]
                weight += (total,)

        kernel = ()
        slope = ()
        for r in tl.static_range(ROWS):
            v = square[r] * scale if GAUSSIAN else tl.sqrt(square[r]) * scale
            decay = tl.exp2(-v)
            kernel += (_polynomial(v, VALUE) * decay,)
            slope += (weight[r] * (_polynomial(v, SLOPE) * decay),)
        forces = ()
        values = ()
        if VALUES:
            for i in tl.static_range(ROWS * CHUNK):
                theirs = y[VALUE_AT + (i % CHUNK if BY_ROW else i // ROWS)]
                term = kernel[i // CHUNK if BY_ROW else i % ROWS] * theirs
                values += (_add_lanes(value[i], term, first_lane),)
        if W > 0:
            for i in tl.static_range(ROWS * CHUNK):
                mine = x[i if BY_ROW else i % ROWS * CHUNK + i // ROWS]
                difference = mine[None, :] - y[i % CHUNK if BY_ROW else i // ROWS]
                term = slope[i // CHUNK if BY_ROW else i % ROWS] * difference
                forces += (_add_lanes(force[i], term, first_lane),)
        if W > 0:
            force = forces
        if VALUES:
            value = values
        group += OTHER_COLUMNS * LANES

    COLUMNS: tl.constexpr = (D if W > 0 else 0) + (D if VALUES else 0)
    stride = n_own.to(tl.int64)
    partials += (split * COLUMNS + chunk) * stride
    for r in tl.static_range(ROWS):
        index, place, valid = _own(own, first_row + r, n_own, OWN_COLUMNS, LANES, BLOCK)
        for j in tl.static_range(CHUNK):
            if W > 0:
                sums = force[r * ROW_STEP + j * COLUMN_STEP]
                tl.store(partials + j * stride + index, sums, mask=valid)
            if VALUES:
                sums = value[r * ROW_STEP + j * COLUMN_STEP]
                tl.store(partials + (COLUMNS - D + j) * stride + index, sums, mask=valid)


@triton.jit(do_not_specialize=["n", "columns", "first_column", "splits"])
def add_partials(
    partials,
    total,
    n,
    columns,
    first_column,
    splits,
    factor_high,
    factor_low,
    D: tl.constexpr,
    SPLITS_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """factor * sum over the splits of D columns of the partial sums, as (n, D)."""
    dtype: tl.constexpr = partials.dtype.element_ty
    factor = tl.full((), factor_high, dtype) + tl.full((), factor_low, dtype)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1)
    valid = row < n
    stride = n.to(tl.int64)
    partials += (first_column + column) * stride + row[None, :]
    result = tl.zeros((BLOCK,), dtype)
    for first in range(0, splits, SPLITS_BLOCK):
        split = first + tl.arange(0, SPLITS_BLOCK)
        block = tl.load(
            partials + (split * columns)[:, None] * stride,
            mask=(split < splits)[:, None] & valid[None, :],
            other=0.0,
        )
        result += tl.sum(block, axis=0)
    tl.store(total + row.to(tl.int64) * D + column, result * factor, mask=valid)
