"""Settings of every test run."""

from __future__ import annotations

import contextlib
import os

import pytest
import torch

os.environ.setdefault("MPLBACKEND", "Agg")  # pictures need no screen

# `make test-gpu` runs with the Python at hand, which may lack what other tests need.
with contextlib.suppress(ImportError):
    from hypothesis import settings

    # Compilation and a busy machine make single examples slow; the suite as a whole is timed.
    settings.register_profile("finemorphs", deadline=None, max_examples=50)
    settings.load_profile("finemorphs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked ``gpu`` where there is no CUDA device."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
