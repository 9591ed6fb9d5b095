"""A cell is one model on one split of one dataset; its result is one JSON file."""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finemorphs.benchmarks.models import MODELS
from finemorphs.datasets import UCI_NAMES

__all__ = [
    "Cell",
    "check_writable",
    "find_unreadable",
    "read_result",
    "read_results",
    "write_result",
]

_FIELDS = {"model", "dataset", "gap", "split", "seed", "options", "status"}
_FIELDS_OF_SCORES = {"rmse", "rmse_without_twins", "seconds"}


@dataclass(frozen=True)
class Cell:
    """One model on one split of one dataset."""

    model: str
    dataset: str
    gap: bool
    split: int

    @classmethod
    def of(cls, result: dict[str, Any]) -> Cell:
        """The cell that a result is of."""
        return cls(result["model"], result["dataset"], result["gap"], result["split"])

    def path(self, out: str | os.PathLike[str]) -> Path:
        """Where its result is: ``cells/concrete_gap/AD4A-down/0.json``."""
        folder = self.dataset + "_gap" * self.gap
        model = re.sub(r"[^\w.()-]+", "", self.model.replace(" (", "-(").replace(" ", "-"))
        return Path(out, "cells", folder, model, f"{self.split}.json")

    def model_path(self, out: str | os.PathLike[str]) -> Path:
        """Where its fitted model is, if it is kept."""
        return self.path(out).with_suffix(".safetensors")

    def __str__(self) -> str:
        return f"{self.dataset}{' gap' * self.gap} {self.model} split {self.split}"


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Write beside the path, then rename: a file is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps(result, indent=1) + "\n")
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def check_writable(folder: Path) -> None:
    """Make a folder of results and write into it, so that no fit is lost later."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"0")
    except OSError as error:
        raise ValueError(
            f"the folder of --out cannot be written to ({error}); give another one with --out."
        ) from error


def read_result(path: Path) -> dict[str, Any] | None:
    """A result, or None where there is none that is whole, of a known model and dataset."""
    try:
        result = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) and _is_whole(result) else None


def _is_whole(result: dict[str, Any]) -> bool:
    needed = {"error"} if result.get("status") == "failed" else _FIELDS_OF_SCORES
    return (
        result.keys() >= _FIELDS | needed
        and result["model"] in MODELS
        and result["dataset"] in UCI_NAMES
    )


def read_results(out: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Every result of a folder that can be read, failed ones included."""
    return [result for result in map(read_result, _paths(out)) if result is not None]


def find_unreadable(out: str | os.PathLike[str]) -> list[Path]:
    """The files that :func:`read_results` leaves out."""
    return [path for path in _paths(out) if read_result(path) is None]


def _paths(out: str | os.PathLike[str]) -> list[Path]:
    return sorted(Path(out, "cells").glob("*/*/*.json"))
