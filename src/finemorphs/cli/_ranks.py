"""Several processes of one command, as torchrun starts them: one group, one that speaks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

__all__ = ["process_group"]


@contextmanager
def process_group() -> Iterator[bool]:
    """Join the group that the environment describes, if any; whether this process speaks.

    Every process has the CUDA device of its number on its machine, where there are any.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield True
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group()
    yield dist.get_rank() == 0
    # Not after an error: the others may be waiting in an operation that never ends.
    dist.destroy_process_group()
