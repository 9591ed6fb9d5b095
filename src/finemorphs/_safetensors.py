"""The safetensors container: a JSON table of tensors, then their bytes.

    8 bytes   length n of the table, little-endian
    n bytes   JSON: {"__metadata__": {str: str}, name: {"dtype", "shape", "data_offsets"}, ..}
    the rest  the bytes of the tensors, one behind the other, without gaps

Written tensor by tensor, without a copy of all of them. Read with nothing taken on trust:
the table is parsed only if that is cheap for a file of this length, and every tensor's place
is compared with the length before its memory is taken. The metadata "sha256" is the digest of
the table, with zeros in its own place, and of the bytes behind it; other writers may leave it out.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO

import torch

from finemorphs._typing import Tensor

__all__ = ["Table", "parse", "read_table", "read_tensors", "write"]

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

_MAX_AXES = 8
_NO_DIGEST = "0" * 64

# What parsing may take: four times the file, or this much where the file is small.
_ALLOWANCE = 2**24
_BYTES_A_CHARACTER = 8  # twice a string of the widest characters
_BYTES_A_VALUE = 100  # a Python object and its place in another


@dataclass(frozen=True)
class Entry:
    """A tensor's dtype, shape and place among the bytes behind the table."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Table:
    """What a file says of itself: its metadata and its tensors in the order of their bytes."""

    metadata: dict[str, str]
    entries: dict[str, Entry]
    text: bytes


def write(file: BinaryIO, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write tensors of any device, the widest numbers first, so that all are aligned."""
    table: dict[str, Any] = {"__metadata__": {"sha256": _NO_DIGEST, **metadata}}
    names = sorted(tensors, key=lambda name: -tensors[name].element_size())
    end = 0
    for name in names:
        tensor = tensors[name]
        begin, end = end, end + tensor.numel() * tensor.element_size()
        dtype, shape = _NAMES[tensor.dtype], list(tensor.shape)
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(table).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    digest = hashlib.sha256(text)
    for name in names:
        content = _bytes(tensors[name].detach().cpu().contiguous())
        digest.update(content)
        file.write(content)
    file.seek(8 + text.index(_NO_DIGEST.encode()))
    file.write(digest.hexdigest().encode())


def read_table(file: BinaryIO, size: int) -> Table:
    """The table of a file of this length; ValueError says what is wrong with it."""
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > size - 8:
        raise ValueError("the file ends before its table does")
    text = file.read(length)
    table = parse(text, size)
    if not isinstance(table, dict):
        raise ValueError("its table is not one")
    metadata = table.pop("__metadata__", {})
    if not (isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())):
        raise ValueError("its metadata is not text")
    entries = {name: _entry(name, value) for name, value in table.items()}
    entries = dict(sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)))
    last = size - 8 - length
    places = [(0, 0), *((e.begin, e.end) for e in entries.values()), (last, last)]
    if any(before[1] != behind[0] for before, behind in pairwise(places)):
        raise ValueError("its tensors do not fill it")
    return Table(metadata, entries, text)


def read_tensors(file: BinaryIO, table: Table) -> dict[str, Tensor]:
    """The tensors behind a table that :func:`read_table` has just read and checked."""
    expected = table.metadata.get("sha256", "")
    digest = hashlib.sha256(table.text.replace(expected.encode(), _NO_DIGEST.encode(), 1))
    tensors = {}
    for name, entry in table.entries.items():
        tensors[name] = torch.empty(entry.shape, dtype=entry.dtype)
        view = _bytes(tensors[name])
        if file.readinto(view) != len(view):  # type: ignore[attr-defined]
            raise ValueError("the file ends before its tensors do")
        digest.update(view)
        if entry.dtype == torch.bool and view.tobytes().translate(None, b"\0\1"):
            raise ValueError(f"{name!r} holds truth values other than 0 and 1")
    if expected and digest.hexdigest() != expected:
        raise ValueError("its content is not what was written")
    return tensors


def parse(text: bytes, size: int) -> Any:
    """JSON, if reading it costs no more than a file of this length may."""
    values = sum(text.count(mark) for mark in (b"[", b"{", b",", b":"))
    if _BYTES_A_CHARACTER * len(text) + _BYTES_A_VALUE * values > max(4 * size, _ALLOWANCE):
        raise ValueError("its table is too large for it")
    try:
        return json.loads(text.decode())
    except RecursionError:
        raise ValueError("its table is nested too deep") from None


def _entry(name: str, value: Any) -> Entry:
    """One line of the table, checked by itself."""
    match value:
        case {"dtype": str(code), "shape": list(shape), "data_offsets": [int(begin), int(end)]} if (
            code in _DTYPES and _is_shape(shape)
        ):
            dtype = _DTYPES[code]
            if begin >= 0 and math.prod(shape) * dtype.itemsize == end - begin:
                return Entry(dtype, tuple(shape), begin, end)
    raise ValueError(f"the entry of {name[:60]!r} in its table cannot be")


def _is_shape(sizes: list[Any]) -> bool:
    """Whole numbers, few and small enough for the strides of an empty tensor, too."""
    whole = all(type(n) is int and n >= 0 for n in sizes)
    return whole and len(sizes) <= _MAX_AXES and math.prod(max(n, 1) for n in sizes) < 2**48


def _bytes(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor."""
    return tensor.view(-1).view(torch.uint8).numpy().data
