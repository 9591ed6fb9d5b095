"""Memory of a fit: what a user allows, what a block of rows takes, what the whole will take.

With b bytes a number, N rows of which N_S are control points, R = N_S + a block of the other
rows at once, n parameters, m pairs of L-BFGS and the widest module d dimensions wide,

    data           8 * 3 N (d_X + d_Y) + b N (d_0 + d_Y)
    states         b R ( sum_D (T + 1) d_q + sum_A d_(q+1) + 8 d )
    parameters     b (20 n)
    L-BFGS         b (3 m n),   2 m n without the metric
    metric         8 * 4 N_S^2 W where N_S < N, W at a time,   none without the metric
    pairs          b * 32 R N_S with the reference engine, which holds them
    neighbours     8 * 3 min( N k d_X, 2^24 ),   k = 2 d_X + 1, for the noise level
    workspace      32 MB

The counts were measured; a fit takes about half of the sum to all of it, the metric all where
single precision fails and a step is factorised again in double.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from finemorphs.exceptions import MemoryLimitError
from finemorphs.modules import Affine, Diffeo
from finemorphs.resources import available, parse_size, size_text
from finemorphs.sequence import ModuleSequence

__all__ = ["Fit", "block_size", "budget", "check_memory"]

_SHARE = 4  # a block takes a quarter of the memory at most
_LEAST_ROWS = 256
_MOST_ROWS = {"cpu": 2**13, "cuda": 2**17}  # beyond them blocks are not faster
_UNKNOWN = 2**32  # taken for the memory of a system that does not say
_FEW_PAIRS = 5
_FEW_DIMENSIONS = 10
_WORKSPACE = 2**25


def budget(max_memory: int | str | None, device: torch.device) -> int:
    """Bytes that a fit may use: as the user says, or half of what the device has free."""
    if max_memory is not None:
        return parse_size("max_memory", max_memory)
    return (available(device) or _UNKNOWN) // 2


def block_size(sequence: ModuleSequence, itemsize: int, memory: int, device: torch.device) -> int:
    """Rows that are in work at a time."""
    fitting = memory // (_SHARE * _numbers_a_row(sequence) * itemsize)
    return max(_LEAST_ROWS, min(fitting, _MOST_ROWS[device.type]))


@dataclass(frozen=True)
class Fit:
    """All that the memory of a fit depends on.

    Attributes
    ----------
    sequence : ModuleSequence
    n_rows : int
        Rows that are held in memory.
    n_controls : int
    n_columns : int
        d_X + d_Y.
    block : int
        Other rows that are in work at a time.
    memory : int
        Pairs of L-BFGS.
    itemsize : int
        Bytes a number.
    natural, dense, search : bool
        Whether there is a metric, whether the engine holds all pairs, and whether the noise
        level is estimated.
    at_once : int
        Time steps whose metric is in work at a time.
    """

    sequence: ModuleSequence
    n_rows: int
    n_controls: int
    n_columns: int
    block: int
    memory: int
    itemsize: int
    natural: bool
    dense: bool
    search: bool
    at_once: int

    def parts(self, n_controls: int, memory: int) -> dict[str, int]:
        """Bytes by what they are for, with so many control points and pairs."""
        s = self.sequence
        rows = n_controls + min(self.block, self.n_rows - n_controls)
        n = sum(m.n_parameters for m in s.affines)
        n += n_controls * sum(m.n_steps * m.dim for m in s.diffeos)
        subset = n_controls < self.n_rows and bool(s.diffeos)
        numbers = {
            "states": rows * _numbers_a_row(s),
            "parameters": 20 * n,
            "L-BFGS": (3 if self.natural else 2) * memory * n,
            "pairs": 32 * rows * n_controls if self.dense and s.diffeos else 0,
        }
        sizes = {name: self.itemsize * count for name, count in numbers.items()}
        sizes["metric"] = 32 * self.at_once * n_controls**2 if subset and self.natural else 0
        sizes["data"] = self.n_rows * (24 + self.itemsize) * self.n_columns
        near = (2 * self.n_columns + 1) * self.n_columns
        sizes["neighbours"] = 24 * min(self.n_rows * near, 2**24) if self.search else 0
        sizes["workspace"] = _WORKSPACE
        return sizes

    def total(self, n_controls: int | None = None, memory: int | None = None) -> int:
        """Bytes in all."""
        return sum(self.parts(n_controls or self.n_controls, memory or self.memory).values())


def check_memory(fit: Fit, max_memory: int | str | None, device: torch.device) -> None:
    """Refuse a fit that will not find the memory it needs, with what to change."""
    given = None if max_memory is None else parse_size("max_memory", max_memory)
    limit = available(device) if given is None else given
    if limit is None or fit.total() <= limit:
        return
    parts = fit.parts(fit.n_controls, fit.memory)
    largest = sorted(parts, key=lambda name: -parts[name])[:3]
    listed = ", ".join(f"{name} {size_text(parts[name])}" for name in largest)
    what = f"{size_text(limit)} is free" if given is None else f"max_memory={max_memory!r}"
    raise MemoryLimitError(
        f"the fit needs about {size_text(fit.total())} ({listed}), but {what}; "
        f"{_advice(fit, limit)}."
    )


def _advice(fit: Fit, limit: int) -> str:
    """What would bring the fit under the limit."""
    ways = []
    affine = sum(module.n_parameters for module in fit.sequence.affines)
    if affine > fit.sequence.n_parameters // 2:
        ways.append(f"a small dims, such as {_FEW_DIMENSIONS}")
    if fit.sequence.diffeos:
        sizes = (n for k in range(1, 20) if (n := fit.n_controls >> k) >= 10)
        smaller = next((n for n in sizes if fit.total(n_controls=n) <= limit), None)
        if smaller is not None:
            ways.append(f"subset_size={smaller} ({size_text(fit.total(n_controls=smaller))})")
    if fit.memory > _FEW_PAIRS and fit.total(memory=_FEW_PAIRS) <= limit:
        ways.append(f"memory={_FEW_PAIRS} ({size_text(fit.total(memory=_FEW_PAIRS))})")
    if not ways:
        return "give fewer rows, a shorter sequence, or more memory"
    return f"give {' or '.join(ways)}, or more memory"


def _numbers_a_row(sequence: ModuleSequence) -> int:
    """A row's states behind every module and at every step, and copies of the widest of them."""
    numbers = sequence.d_in + 8 * max(max(m.d_in, m.d_out) for m in sequence.modules)
    for module in sequence.modules:
        if isinstance(module, Diffeo):
            numbers += (module.n_steps + 1) * module.dim
        elif isinstance(module, Affine):
            numbers += module.d_out
    return numbers
