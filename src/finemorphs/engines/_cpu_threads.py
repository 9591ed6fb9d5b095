"""Native passes on several threads.

The threads are Python's own, started when first needed and asleep between passes. Unlike
OpenMP's they survive a fork (the child starts its own), may be asked by several threads at
the same time, and are as many as each call says.

PyTorch's OpenMP threads wait by spinning: on a machine of few cores each of its small vector
operations would keep a core from the next pass. :func:`one_torch_thread` gives PyTorch one
thread and the passes all; :func:`for_each` lets several threads call PyTorch so.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue

import torch

from finemorphs._typing import Item
from finemorphs.engines._cpu_compile import Native

__all__ = ["for_each", "n_threads", "one_torch_thread", "run"]


class _Ticket:
    """A share in a pass: taken by a helper, or by its owner once no work is left."""

    __slots__ = ("argument", "done", "function", "memory", "taken")

    def __init__(self, function: Native, argument: int, memory: object) -> None:
        self.function, self.argument, self.memory = function, argument, memory
        self.taken, self.done = threading.Lock(), threading.Lock()
        self.done.acquire()

    def help(self) -> None:
        if self.taken.acquire(blocking=False):
            self.function(self.argument)
            self.done.release()

    def settle(self) -> None:
        """Wait for the helper, unless none has come yet: then it need not come at all."""
        if not self.taken.acquire(blocking=False):
            self.done.acquire()


class _Team:
    """Helpers that wait for tickets; they end when they are told to, before the interpreter does.

    A thread that is still in compiled code when the interpreter ends cannot be unwound, and
    would abort the process.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[_Ticket | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._helpers: list[threading.Thread] = []

    def ask(self, tickets: list[_Ticket]) -> None:
        if len(self._helpers) < len(tickets):
            self._grow(len(tickets))
        for ticket in tickets:
            self._queue.put(ticket)

    def stop(self) -> None:
        with self._lock:
            helpers, self._helpers = self._helpers, []
        for _ in helpers:
            self._queue.put(None)
        for helper in helpers:
            helper.join(timeout=10)

    def _grow(self, size: int) -> None:
        with self._lock:
            while len(self._helpers) < size:
                name = f"finemorphs-{len(self._helpers)}"
                helper = threading.Thread(target=self._work, name=name, daemon=True)
                helper.start()
                self._helpers.append(helper)

    def _work(self) -> None:
        while (ticket := self._queue.get()) is not None:
            ticket.help()


_team = _Team()


def _new_team() -> None:
    global _team, _sessions
    _team, _sessions = _Team(), _Sessions()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_team)
atexit.register(lambda: _team.stop())


def run(function: Native, argument: int, n_threads: int, memory: object = None) -> None:
    """Call function(argument) on that many threads, this one included; return when all have.

    The function must share out its work among the calls, and find nothing left to do when it
    comes late. ``memory`` is what it works on: helpers keep it alive, should an interrupt
    from the keyboard end the waiting for them.
    """
    tickets = [_Ticket(function, argument, memory) for _ in range(n_threads - 1)]
    _team.ask(tickets)
    function(argument)
    for ticket in tickets:
        ticket.settle()


class _Sessions:
    """How many sessions are open, and the number of threads that PyTorch had before the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.open = 0
        self.before = 1


_sessions = _Sessions()


def n_threads() -> int:
    """Threads for a pass: as many as PyTorch has, or had before it was given one."""
    return _sessions.before if _sessions.open else torch.get_num_threads()


def for_each(work: Callable[[Item], None], items: Iterable[Item], n_threads: int) -> None:
    """Call work(item) for each, within a session on that many threads.

    PyTorch has one thread in each of them, so that the results do not depend on their number.
    """
    if n_threads == 1 or not _sessions.open:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        for _ in pool.map(work, items):  # raises what one of them does
            pass


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """PyTorch works on one thread inside; several threads may be inside at the same time."""
    with _sessions.lock:
        if not _sessions.open:
            _sessions.before = torch.get_num_threads()
        _sessions.open += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _sessions.lock:
            _sessions.open -= 1
            torch.set_num_threads(_sessions.before)
