"""Memory in bytes: what a user allows, what a device has, what a block of rows takes."""

from __future__ import annotations

import os
import re

import torch

from finemorphs.modules import Affine, Diffeo
from finemorphs.sequence import ModuleSequence

__all__ = ["block_size", "budget"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SHARE = 4  # a block takes a quarter of the memory at most
_LEAST_ROWS = 256
_MOST_ROWS = {"cpu": 2**13, "cuda": 2**17}  # beyond them blocks are not faster


def budget(max_memory: int | str | None, device: torch.device) -> int:
    """Bytes that a fit may use: as the user says, or half of what the device has free."""
    if max_memory is not None:
        return _parse(max_memory)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // 2
    if "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return 2**32


def block_size(sequence: ModuleSequence, itemsize: int, memory: int, device: torch.device) -> int:
    """Rows that are in work at a time.

    A row takes its states behind every module and at every step, (T + 1) d for a D module, and
    some copies of the widest of them.
    """
    numbers = sequence.d_in + 8 * max(max(m.d_in, m.d_out) for m in sequence.modules)
    for module in sequence.modules:
        if isinstance(module, Diffeo):
            numbers += (module.n_steps + 1) * module.dim
        elif isinstance(module, Affine):
            numbers += module.d_out
    fitting = memory // (_SHARE * numbers * itemsize)
    return max(_LEAST_ROWS, min(fitting, _MOST_ROWS[device.type]))


def _parse(value: int | str) -> int:
    """Bytes of 4_000_000_000, "4GB", "512 MiB"."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", value.lower())
        if match is None:
            raise ValueError(
                f"max_memory={value!r} is not a size; give bytes, or text such as '4GB'."
            )
        return int(float(match[1]) * _UNITS[match[2] or ""])
    return int(value)
