"""Memory in bytes: what there is, what this process holds, sizes as text."""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch

__all__ = ["available", "parse_size", "resident", "size_text"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_CGROUP = Path("/sys/fs/cgroup")


def available(device: torch.device) -> int | None:
    """Memory that is free on the device; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found = [n for n in (_system_memory(), _container_memory()) if n is not None]
    return min(found) if found else None


def resident(device: torch.device) -> int | None:
    """Memory that this process holds on the device; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def parse_size(name: str, value: int | str) -> int:
    """Bytes of 4_000_000_000, "4GB", "512 MiB"."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", value.lower())
        if match is None:
            raise ValueError(f"{name}={value!r} is not a size; give bytes, or text such as '4GB'.")
        return int(float(match[1]) * _UNITS[match[2] or ""])
    return int(value)


def size_text(n_bytes: float) -> str:
    """Three digits and a unit: "1.23 GB"."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 999.5:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def _system_memory() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text()
        if match := re.search(r"MemAvailable:\s+(\d+) kB", text):
            return 1024 * int(match[1])
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _container_memory() -> int | None:
    """What the limit of a container leaves; files that are only cached do not count."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        stat = (_CGROUP / "memory.stat").read_text()
        cached = re.search(r"^inactive_file (\d+)$", stat, re.MULTILINE)
        return max(limit - used + (int(cached[1]) if cached else 0), 0)
    except (OSError, ValueError):
        return None
