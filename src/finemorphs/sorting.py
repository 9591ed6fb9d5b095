"""The order of rows, and which of them are equal."""

from __future__ import annotations

import numpy as np

from finemorphs._typing import Array

__all__ = ["find_equal", "sort_rows"]


def sort_rows(rows: Array) -> tuple[Array, Array]:
    """The lexicographic order of rows, and which of them, in that order, differ from the last.

    Column by column, and only rows that are equal in all columns before. Equal rows keep theirs.
    """
    order, equal = np.arange(len(rows)), np.arange(len(rows))
    group = np.zeros(len(rows), dtype=int)  # of the places in ``equal``
    new = np.ones(len(rows), dtype=bool)
    for column in rows.T:
        if len(equal) == 0:
            break
        order[equal] = order[equal][np.lexsort((column[order[equal]], group))]
        values = column[order[equal]]
        first = np.ones(len(equal), dtype=bool)
        first[1:] = (values[1:] != values[:-1]) | (group[1:] != group[:-1])
        alone = first & np.append(first[1:], True)
        new[equal], group = first, np.cumsum(first)
        equal, group = equal[~alone], group[~alone]
    return order, new


def find_equal(rows: Array) -> tuple[Array, Array]:
    """The first of each set of equal rows, and for each row the number of its set."""
    order, new = sort_rows(rows)
    place = np.empty(len(rows), dtype=int)
    place[order] = np.cumsum(new) - 1
    return order[new], place
