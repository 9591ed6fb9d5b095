"""Training rows out of a stream: one pass over it for the scalings and a sample.

The scalings are exact. Control points and noise level come from a sample of 100,000 rows
(all of them where there are no more), drawn without replacement. Rows are not merged. Several
ranks read a share of the stream each; what they find does not depend on how many they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from finemorphs._typing import Array
from finemorphs.distributed import Group
from finemorphs.estimators._data import Scaling, TrainingRows, choose, is_spread
from finemorphs.exceptions import TableError
from finemorphs.rows import share
from finemorphs.streams import Stream

__all__ = ["StreamedRows", "prepare_stream"]

SAMPLE = 100_000
_NUMBERS_AT_ONCE = 2**22  # in the first pass


@dataclass(frozen=True)
class StreamedRows(TrainingRows):
    """The sample of a stream, the control points first, and where these stand in the stream."""

    stream: Stream
    chosen: Array

    @property
    def total(self) -> float:
        """Number of rows of the stream."""
        return float(self.stream.n_rows)


def prepare_stream(
    stream: Stream,
    subset_size: int | None,
    subset_method: str,
    rng: np.random.Generator,
    group: Group,
) -> StreamedRows:
    """Read a stream once: scalings, a sample, and the control points out of it."""
    most = min(SAMPLE, stream.n_rows - 1)
    if subset_size is None or subset_size > most:
        raise ValueError(
            f"subset_size={subset_size!r} does not go with a stream of {stream.n_rows} rows; give "
            f"a number of control points up to {most}, or an array in memory."
        )
    places = np.arange(stream.n_rows)
    if stream.n_rows > SAMPLE:
        places = np.sort(rng.choice(stream.n_rows, SAMPLE, replace=False))
    moments, sample = _first_pass(stream, places, group)
    x_moments, y_moments = moments[..., : stream.n_features], moments[..., stream.n_features :]
    x_scaling, y_scaling = _scaling(x_moments), _scaling(y_moments)
    x = x_scaling.apply(sample[:, : stream.n_features])
    y = y_scaling.apply(sample[:, stream.n_features :])
    weights = np.ones(len(x))
    chosen = group.share(choose(x, weights, subset_size, subset_method, rng))
    order = np.concatenate([chosen, np.setdiff1d(np.arange(len(x)), chosen)])
    return StreamedRows(
        x[order], y[order], weights, subset_size, x_scaling, y_scaling, stream, places[chosen]
    )


def _first_pass(stream: Stream, places: Array, group: Group) -> tuple[Array, Array]:
    """For each block (count, mean, sum of squares, least, largest) of all columns; the sample.

    Every rank fills the places of its share; the rest is 0, so that the sum over the ranks is
    exact.
    """
    width = stream.n_features + stream.n_responses
    size = max(1, _NUMBERS_AT_ONCE // width)
    n_blocks = -(-stream.n_rows // size)
    first, last = share(n_blocks, group.rank, group.size)
    moments, sample = np.zeros((n_blocks, 5, width)), np.zeros((len(places), width))
    blocks = stream.read(first * size, min(last * size, stream.n_rows), size)
    for i, (x, y) in enumerate(blocks, first):
        table = np.concatenate([x, y], axis=1)
        moments[i] = _moments(stream, table)
        inside = np.searchsorted(places, [i * size, (i + 1) * size])
        sample[slice(*inside)] = table[places[slice(*inside)] - i * size]
    nothing = torch.zeros(0)
    for array in (moments, sample):
        group.sum(torch.from_numpy(array.reshape(-1)), alike=nothing)
    return moments, sample


def _moments(stream: Stream, table: Array) -> Array:
    mean = table.mean(0)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = ((table - mean) ** 2).sum(0)
    if not np.isfinite(squares).all():
        column = stream.name_of(int(np.flatnonzero(~np.isfinite(squares))[0]))
        raise TableError(
            f"{column} holds missing, infinite or far too large numbers; a stream takes finite "
            "numbers only: fill them in or leave the column or the rows out."
        )
    return np.stack([np.full(len(mean), len(table)), mean, squares, table.min(0), table.max(0)])


def _scaling(moments: Array) -> Scaling:
    """Means and standard deviations of all blocks together, taken one after the other."""
    count, mean, squares = moments[0, 0], moments[0, 1], moments[0, 2]
    for more, other_mean, other_squares, _, _ in moments[1:]:
        total = count + more
        apart = other_mean - mean
        mean = mean + apart * (more / total)
        squares = squares + other_squares + apart**2 * (count * more / total)
        count = total
    varies = is_spread(moments[:, 3].min(0), moments[:, 4].max(0))
    return Scaling(mean, np.where(varies, np.sqrt(squares / count), 1.0))
