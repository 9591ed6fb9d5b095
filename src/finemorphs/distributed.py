"""One fit by several processes: sums over all of them, and what happens when one is lost.

Every process (a rank of PyTorch's process group) holds the same parameters and runs the same
optimiser; each carries its own share of the rows, and the sums are added up over the ranks.
With each sum goes a digest of the parameters, so that ranks which no longer agree, be it in
one bit, end the fit instead of training two models.

While the fit lasts, every rank writes a heartbeat to the store of the process group. Who
waits for the others watches theirs: a rank that has died, hangs or has ended with an error is
named by all the others within half a minute.
"""

from __future__ import annotations

import hashlib
import itertools
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from finemorphs._typing import Tensor
from finemorphs.exceptions import DistributedError

__all__ = ["ALONE", "Group", "joined"]

T = TypeVar("T")

_BEAT = 1.0  # seconds between two heartbeats
_SILENCE = 25.0  # of a rank that counts as lost
_SILENCE_AFTER_ERROR = 8.0  # the same, once a connection has been closed
_ADVICE = (
    "Start the fit again; with a checkpoint it goes on where it was, also with another number "
    "of ranks."
)


class Group:
    """The processes of a fit; this one is alone."""

    rank = 0
    size = 1

    def sum(self, tensor: Tensor, alike: Tensor) -> None:
        """Add up a tensor over the ranks, in place; ``alike`` must be equal on all to the bit."""

    def least(self, value: int) -> int:
        """The least of a whole number over the ranks."""
        return value

    def share(self, value: T) -> T:
        """The value of rank 0."""
        return value


ALONE = Group()


@contextmanager
def joined(device: torch.device) -> Iterator[Group]:
    """The group of a fit: PyTorch's process group where one is initialised, else this process."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        yield ALONE
        return
    watch = _Watch(dist.get_rank(), dist.get_world_size())
    try:
        yield _Processes(watch, device)
    except BaseException as error:
        watch.leave(f"{type(error).__name__}: {error}")
        raise
    finally:
        watch.stop()


class _Processes(Group):
    """The ranks of the process group that is initialised."""

    def __init__(self, watch: _Watch, device: torch.device) -> None:
        self.rank, self.size = watch.rank, watch.size
        self._watch, self._device = watch, device

    def sum(self, tensor: Tensor, alike: Tensor) -> None:
        digest = _digest(alike)
        message = torch.cat([tensor.double(), tensor.new_tensor([digest], dtype=torch.float64)])
        self._finish(lambda: dist.all_reduce(message, async_op=True))
        if int(message[-1]) != self.size * digest:
            self._refuse(digest)
        tensor.copy_(message[:-1])

    def least(self, value: int) -> int:
        tensor = torch.tensor([value], device=self._device)
        self._finish(lambda: dist.all_reduce(tensor, dist.ReduceOp.MIN, async_op=True))
        return int(tensor)

    def share(self, value: T) -> T:
        content = pickle.dumps(value) if self.rank == 0 else b""
        length = torch.tensor([len(content)], device=self._device)
        self._finish(lambda: dist.broadcast(length, 0, async_op=True))
        message = torch.zeros(int(length), dtype=torch.uint8, device=self._device)
        if self.rank == 0:
            message.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        self._finish(lambda: dist.broadcast(message, 0, async_op=True))
        shared: T = pickle.loads(message.cpu().numpy().tobytes())
        return shared

    def _refuse(self, digest: int) -> None:
        """Say which ranks have other parameters than rank 0."""
        all_digests = [
            torch.zeros(1, dtype=torch.int64, device=self._device) for _ in range(self.size)
        ]
        own = torch.tensor([digest], device=self._device)
        self._finish(lambda: dist.all_gather(all_digests, own, async_op=True))
        others = [rank for rank, one in enumerate(all_digests) if int(one) != int(all_digests[0])]
        raise DistributedError(
            f"the parameters of rank {_listed(others)} differ from those of rank 0; give every "
            "rank the same data, options and versions of the libraries."
        )

    def _finish(self, begin: Any) -> None:
        """Run a collective operation while watching the other ranks."""
        pause = 1e-4
        try:
            work = begin()
            with self._watch.looking():
                while not work.is_completed():
                    self._watch.check()
                    time.sleep(pause)
                    pause = min(2 * pause, 0.01)
            work.wait()
        except RuntimeError as error:
            if isinstance(error, DistributedError):
                raise
            self._watch.explain(error)


class _Watch:
    """The heartbeat of this rank, and the eye on those of the others."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        store = dist.distributed_c10d._get_default_store()
        number = store.add(f"finemorphs/fits/{rank}", 1)  # the same on all: they fit together
        self._store = dist.distributed_c10d.PrefixStore(f"finemorphs/{number}", store)
        self._lost: str | None = None
        self._seen: dict[int, tuple[bytes, float]] = {}
        self._silence = _SILENCE
        self._is_looking = False
        self._ended = threading.Event()
        self._store.set(f"beat/{rank}", "0")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """While this rank waits for the others."""
        self._is_looking = True
        try:
            yield
        finally:
            self._is_looking = False

    def check(self) -> None:
        """Raise where a rank is lost."""
        if self._lost is not None:
            raise DistributedError(f"{self._lost} {_ADVICE}")

    def explain(self, error: RuntimeError) -> None:
        """After a connection was closed: wait until it is known whose."""
        self._silence = _SILENCE_AFTER_ERROR
        with self.looking():
            until = time.monotonic() + _SILENCE
            while time.monotonic() < until:
                self.check()
                time.sleep(0.1)
        raise DistributedError(
            f"the ranks can no longer talk to each other ({str(error).splitlines()[0]}), though "
            f"all of them are alive; check the network. {_ADVICE}"
        ) from error

    def leave(self, reason: str) -> None:
        """Tell the others why this rank ends before the fit does."""
        try:
            if self._lost is None:
                self._store.set(f"left/{self.rank}", reason)
        except RuntimeError:
            self._lost = "the store of the process group has ended."

    def stop(self) -> None:
        """End the heartbeat."""
        self._ended.set()
        self._thread.join(timeout=2 * _BEAT)

    def _run(self) -> None:
        beats = itertools.count(1)
        while not self._ended.wait(_BEAT):
            try:
                self._store.set(f"beat/{self.rank}", str(next(beats)))
                if self._is_looking and self._lost is None:
                    self._lost = self._look()
                    if self._lost is not None:
                        self._store.set("lost", self._lost)
            except RuntimeError as error:
                self._lost = (
                    "the store of the process group cannot be reached "
                    f"({str(error).splitlines()[0]}): the process that holds it has ended, which "
                    "is rank 0 or the launcher."
                )

    def _look(self) -> str | None:
        """A sentence about a rank that is lost; the same on all ranks, from the first to know."""
        if self._store.check(["lost"]):
            return self._store.get("lost").decode(errors="replace")
        now = time.monotonic()
        for rank in set(range(self.size)) - {self.rank}:
            if self._store.check([f"left/{rank}"]):
                reason = self._store.get(f"left/{rank}").decode(errors="replace")
                return f"rank {rank} of {self.size} ended with an error ({reason})."
            if not self._store.check([f"beat/{rank}"]):
                continue  # it has not begun yet
            beat = self._store.get(f"beat/{rank}")
            seen, since = self._seen.get(rank, (b"", now))
            self._seen[rank] = (beat, since if beat == seen else now)
            if now - self._seen[rank][1] > self._silence:
                return (
                    f"rank {rank} of {self.size} has not been heard of for {self._silence:g} "
                    "seconds; its process or its machine has ended."
                )
        return None


def _digest(tensor: Tensor) -> int:
    """40 bits of a hash of the numbers: sums of them are exact in double precision."""
    numbers = tensor.detach().cpu().contiguous().numpy()
    return int.from_bytes(hashlib.sha256(numbers.tobytes()).digest()[:5], "little")


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))
