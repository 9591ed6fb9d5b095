"""What ``finemorphs fit`` is told, checked before anything is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

__all__ = ["FIT_DEFAULTS", "FIT_NAMES", "FitOptions"]


@dataclass(frozen=True)
class FitOptions:
    """What ``fit`` is told besides the estimator's own parameters."""

    train: list[Path]
    target: list[str]
    out: Path
    drop: list[str]
    holdout: float
    missing: str

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> FitOptions:
        """Check what the command line and the configuration gave."""
        needed = {"train": "the table to train on", "target": "--target", "out": "--out"}
        for name, words in needed.items():
            if not given.get(name):
                raise ValueError(
                    f"{words} is missing; finemorphs fit TRAIN --target COLUMN --out MODEL."
                )
        values = {**FIT_DEFAULTS, **given}
        holdout = values["holdout"]
        if not isinstance(holdout, (int, float)) or not 0 <= holdout < 1:
            raise ValueError(
                f"--holdout takes a share of the rows from 0 to 1, but {holdout!r} came."
            )
        return cls(
            train=[Path(path) for path in _texts("train", values["train"])],
            target=list(dict.fromkeys(_texts("target", values["target"]))),
            out=_writable(Path(values["out"])),
            drop=_texts("drop", values["drop"]),
            holdout=float(holdout),
            missing=str(values["missing"]),
        )

    @property
    def name(self) -> str:
        """What to call the data."""
        more = f" and {len(self.train) - 1} more files" if len(self.train) > 1 else ""
        return self.train[0].name + more

    @property
    def is_stream(self) -> bool:
        """Whether the rows are read in blocks: several files, or a folder of them."""
        return len(self.train) > 1 or self.train[0].is_dir()


FIT_DEFAULTS: dict[str, Any] = {"drop": [], "holdout": 0.1, "missing": "median"}
FIT_NAMES = [field.name for field in fields(FitOptions)]


def _texts(name: str, value: Any) -> list[str]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, str) for v in values):
        raise ValueError(f"{name} takes column names, but {value!r} came.")
    return list(values)


def _writable(path: Path) -> Path:
    """The path, refused before training rather than after."""
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ValueError(f"--out {path} cannot be written there; name a file in a folder of yours.")
    return path
