"""A cell is one model on one split of one dataset; its result is one JSON file."""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Cell", "read_result", "read_results", "write_result"]


@dataclass(frozen=True)
class Cell:
    """One model on one split of one dataset."""

    model: str
    dataset: str
    gap: bool
    split: int

    def path(self, out: str | os.PathLike[str]) -> Path:
        """Where its result is: ``cells/concrete_gap/AD4A-down/0.json``."""
        folder = self.dataset + "_gap" * self.gap
        model = re.sub(r"[^\w.()-]+", "", self.model.replace(" (", "-(").replace(" ", "-"))
        return Path(out, "cells", folder, model, f"{self.split}.json")

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


def read_result(path: Path) -> dict[str, Any] | None:
    """A result, or None where there is none that can be read."""
    try:
        result = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) and "status" in result else None


def read_results(out: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Every result of a folder, failed ones included."""
    paths = sorted(Path(out, "cells").glob("*/*/*.json"))
    return [result for result in map(read_result, paths) if result is not None]
