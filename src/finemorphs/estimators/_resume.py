"""What a fit has to have in common with a checkpoint: its options, its data, its seed."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from finemorphs._typing import Array
from finemorphs.distributed import Group
from finemorphs.streams import Stream
from finemorphs.training import Checkpoint

__all__ = ["open_checkpoint"]

# Options that do not change where a fit ends: when it pauses, where it runs, what it shows.
_FREE = {
    "callbacks",
    "checkpoint",
    "device",
    "engine",
    "max_memory",
    "max_time",
    "resume",
    "verbose",
}


def open_checkpoint(
    estimator: Any, data: dict[str, Array | Stream], rng: np.random.Generator, group: Group
) -> tuple[Checkpoint | None, np.random.Generator]:
    """The checkpoint of a fit, if it has one, and the generator of all its draws.

    The generator is ``rng``, or where the fit is resumed the one that it began with. In a
    group both are those of rank 0, and it alone writes.
    """
    found = _open(estimator, data, rng) if group.rank == 0 else (None, rng)
    checkpoint, rng = group.share(found)
    if checkpoint is not None:
        checkpoint.writes = group.rank == 0
    return checkpoint, rng


def _open(
    estimator: Any, data: dict[str, Array | Stream], rng: np.random.Generator
) -> tuple[Checkpoint | None, np.random.Generator]:
    options = estimator.get_params(deep=False)
    path = options["checkpoint"]
    if path is None:
        return None, rng
    identity = {"estimator": type(estimator).__name__}
    identity |= {name: _plain(value) for name, value in options.items() if name not in _FREE}
    for name, table in data.items():
        identity[name] = table.fingerprint() if isinstance(table, Stream) else _fingerprint(table)
    checkpoint = Checkpoint(path, identity, _seed(rng), options["resume"])
    return checkpoint, _generator(checkpoint.seed) if options["resume"] else rng


def _fingerprint(array: Array) -> str:
    """Shape and SHA-256 of a table, as short as the purpose allows."""
    digest = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
    return f"{' x '.join(map(str, array.shape))}, sha256 {digest[:16]}"


def _seed(rng: np.random.Generator) -> dict[str, Any]:
    """What the children of a generator are made of, before the first of them."""
    sequence: Any = rng.bit_generator.seed_seq
    entropy = sequence.entropy
    return {
        "entropy": [int(e) for e in entropy] if np.iterable(entropy) else entropy,
        "spawn_key": list(sequence.spawn_key),
        "n_children_spawned": sequence.n_children_spawned,
    }


def _generator(seed: dict[str, Any]) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(**seed))


def _plain(value: Any) -> Any:
    """An option as JSON gives it back; the name of its class where it cannot."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return type(value).__name__ if " at 0x" in repr(value) else repr(value)
