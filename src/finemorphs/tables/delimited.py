"""Delimited text: the delimiter and the header found, rows read by pieces, each line checked."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from finemorphs.exceptions import TableError
from finemorphs.tables.files import lines, open_text
from finemorphs.tables.table import Cells, Table, as_number

__all__ = ["find_delimiter", "read_delimited"]

_CANDIDATES = ",\t;|"
_BLANKS = " "  # any run of blanks
_SAMPLE_LINES = 50


def read_delimited(path: Path, cells_at_once: int) -> Iterator[Table]:
    """Tables of consecutive rows, about so many cells each."""
    with open_text(path) as text:
        source = lines(text, path)
        sample = list(islice(source, _SAMPLE_LINES))
        delimiter = find_delimiter(sample)
        rows = _rows(chain(sample, source), delimiter, path)
        first = next(rows, None)
        if first is None:
            raise TableError(f"{path} has no text in it; give a line of column names and rows.")
        names, unnamed, notices = _header(first[1], path)
        if notices:
            rows = chain([first], rows)
        yield from _tables(rows, names, unnamed, notices, path, cells_at_once)


def find_delimiter(sample: list[str]) -> str:
    """The delimiter at which most lines have as many cells as the first, and more than one."""
    best, score = ",", (0.0, 1)
    for candidate in _CANDIDATES:
        try:
            widths = [len(row) for row in csv.reader(sample, delimiter=candidate) if row]
        except csv.Error:
            continue
        if widths and widths[0] > 1:
            agreement = sum(width == widths[0] for width in widths) / len(widths)
            if (agreement, widths[0]) > score:
                best, score = candidate, (agreement, widths[0])
    if score[1] == 1:
        blanks = {len(line.split()) for line in sample if line.strip()}
        if len(blanks) == 1 and blanks != {1}:
            return _BLANKS
    return best


def _rows(source: Iterator[str], delimiter: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each line that is not empty."""
    if delimiter == _BLANKS:
        yield from ((i, line.split()) for i, line in enumerate(source, 1) if line.strip())
        return
    reader = csv.reader(source, delimiter=delimiter)
    try:
        for row in reader:
            if any(row):
                yield reader.line_num, row
    except csv.Error as error:
        raise TableError(
            f"{path}, line {reader.line_num}: {error}; is a quotation mark left open?"
        ) from error


def _header(first: list[str], path: Path) -> tuple[list[str], tuple[str, ...], tuple[str, ...]]:
    """Names of the columns, those made up for blanks, and a notice if all had to be made up."""
    cells = [cell.strip() for cell in first]
    if all(cell and as_number(cell) is not None for cell in cells):
        names = [f"c{i}" for i in range(1, len(cells) + 1)]
        notice = f"the first line holds numbers; the columns are called {names[0]} to {names[-1]}"
        return names, (), (notice,)
    names = [cell or f"unnamed {i}" for i, cell in enumerate(cells, 1)]
    unnamed = tuple(f"unnamed {i}" for i, cell in enumerate(cells, 1) if not cell)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(
            f"{path} has more than one column called {', '.join(map(repr, twice[:5]))}; "
            "rename or delete the others."
        )
    return names, unnamed, ()


def _tables(
    rows: Iterator[tuple[int, list[str]]],
    names: list[str],
    unnamed: tuple[str, ...],
    notices: tuple[str, ...],
    path: Path,
    cells_at_once: int,
) -> Iterator[Table]:
    at_once, first_row = max(1, cells_at_once // len(names)), 1
    while piece := list(islice(rows, at_once)):
        for line, row in piece:
            if len(row) != len(names):
                raise TableError(
                    f"{path}, line {line}, has {len(row)} cells where the first line has "
                    f"{len(names)}; correct the line."
                )
        cells = zip(*(row for _, row in piece), strict=True)
        columns = {name: Cells(list(column)) for name, column in zip(names, cells, strict=True)}
        yield Table(str(path), columns, first_row, unnamed, notices)
        first_row += len(piece)
    if first_row == 1:
        raise TableError(f"{path} has column names but no rows under them; give at least one row.")
