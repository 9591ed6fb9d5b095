"""A fit on disk: what to go on from after a crash, a kill or a loss of power.

A fit is one training after another. The file holds how each one that has ended came out, the
state of the one under way at the end of an iteration, the seed of every random draw, and the
fingerprints of the data and the options. It is written whole or not at all: at the first
iteration, then every minute and at the end of every round. Where a write takes seconds the
minute is stretched, so that no more than a twentieth of the time goes into writing.

From a state training goes on to the same bits, where the engine gives the same bits each time.
"""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import Any

from finemorphs import storage
from finemorphs._typing import Tensor
from finemorphs.exceptions import CheckpointError, ModelFileError
from finemorphs.training.state import Ended, State

__all__ = ["Checkpoint"]

_VERSION = 2
_KIND = "checkpoint"
_INTERVAL = 60.0  # seconds
_SHARE = 20.0  # least time between two writes, in times that the last one took


class Checkpoint:
    """The file of one fit.

    Parameters
    ----------
    path : path-like
    identity : dict
        What a fit must have in common with the file to go on from it, options and fingerprints
        of data, by name; values that JSON can hold.
    seed : dict
        From which every random draw of the fit comes; JSON, too.
    resume : bool
        Go on from the file where there is one, with the seed it holds.

    Raises
    ------
    CheckpointError
        If the file is of another fit, damaged, or not a checkpoint.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        identity: dict[str, Any],
        seed: dict[str, Any],
        resume: bool = False,
    ) -> None:
        self.path = Path(path)
        self.seed = seed
        self._identity = identity
        self._ended: list[Ended] = []
        self._state: State | None = None
        self._n_begun = 0
        self._next_write = 0.0
        self._failed = False
        self.writes = True  # of several processes that train together, one does
        storage.sweep(self.path)
        if self.path.exists():
            tensors, header = self._read()
            if resume:
                self._take(tensors, header)

    def begin(self) -> State | Ended | None:
        """What is known of the next training of the fit."""
        number, self._n_begun = self._n_begun, self._n_begun + 1
        if number < len(self._ended):
            return self._ended[number]
        state, self._state = self._state, None
        return state

    @property
    def due(self) -> bool:
        """Whether the state of this iteration should be written."""
        return time.monotonic() >= self._next_write

    def keep(self, state: State) -> None:
        """Write the state of the training under way."""
        self._write(state)

    def pause(self, state: State | None) -> None:
        """Write the state of a training that is ended early, if whole, and nothing after it."""
        if state is not None:
            self._write(state)
        self.writes = False

    def end(self, training: Ended) -> None:
        """Write how the training under way came out."""
        if self._n_begun > len(self._ended):
            self._ended.append(training)
            self._write(None)

    # --- the file ---------------------------------------------------------------------------

    def _write(self, state: State | None) -> None:
        """A file that cannot be written is a warning: the fit is worth more than its copy."""
        if not self.writes:
            return
        began = time.monotonic()
        tensors: dict[str, Tensor] = {}
        header = {
            "kind": _KIND,
            "identity": self._identity,
            "seed": self.seed,
            "ended": [e.put(tensors, f"ended.{i}.") for i, e in enumerate(self._ended)],
            "state": None if state is None else state.put(tensors),
        }
        try:
            storage.write(self.path, tensors, header, _VERSION)
            self._failed = False
        except OSError as error:
            if not self._failed:
                warnings.warn(
                    f"the checkpoint {os.fspath(self.path)!r} could not be written ({error}); the "
                    "fit goes on without it. Make room, or give a path that can be written.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self._failed = True
        now = time.monotonic()
        self._next_write = now + max(_INTERVAL, _SHARE * (now - began))

    def _read(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        name = os.fspath(self.path)
        try:
            tensors, header = storage.read(self.path, _VERSION)
        except (ModelFileError, FileNotFoundError) as error:
            raise CheckpointError(f"{error} Or give another path for the checkpoint.") from error
        if header.get("kind") != _KIND:
            raise CheckpointError(
                f"{name!r} is a finemorphs file, but not a checkpoint; give another path for the "
                "checkpoint."
            )
        return tensors, header

    def _take(self, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
        try:
            self._compare(dict(header["identity"]))
            ended = header["ended"]
            self._ended = [Ended.get(e, tensors, f"ended.{i}.") for i, e in enumerate(ended)]
            self._state = None if header["state"] is None else State.get(header["state"], tensors)
            self.seed = header["seed"]
        except CheckpointError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the checkpoint {os.fspath(self.path)!r} is damaged ({error!r}); fit with "
                "resume=False."
            ) from error

    def _compare(self, found: dict[str, Any]) -> None:
        """Refuse a file of another fit, with what differs."""
        names = [*self._identity, *(name for name in found if name not in self._identity)]
        differences = [
            f"{name}: {_short(found.get(name))} there, {_short(self._identity.get(name))} here"
            for name in names
            if found.get(name) != self._identity.get(name)
        ]
        if differences:
            raise CheckpointError(
                f"the checkpoint {os.fspath(self.path)!r} is of another fit "
                f"({'; '.join(differences)}); fit with what is there, or with resume=False."
            )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
