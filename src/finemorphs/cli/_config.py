"""Options in a TOML file: read where the command line gives none, written with all defaults."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

__all__ = ["read_config", "write_config"]


def read_config(path: Path, known: Iterable[str]) -> dict[str, Any]:
    """The options of a file, under names with underscores."""
    if not path.is_file():
        raise ValueError(
            f"--config {path} names no file; give a TOML file, such as --save-config writes."
        )
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file ({error}); correct it.") from error
    options = {name.replace("-", "_"): value for name, value in data.items()}
    names = list(known)
    for name in options:
        if name not in names:
            close = get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "finemorphs fit --help lists them."
            raise ValueError(f"{path} sets {name!r}, which is no option of fit; {hint}")
    return options


def write_config(path: Path, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """The options that are given, and the others with their defaults as comments."""
    lines = ["# Options of finemorphs fit; a line without # is used.", ""]
    for name, default in defaults.items():
        if given.get(name) is not None:
            lines.append(f"{name} = {_toml(given[name])}")
        else:
            lines.append(f"# {name} = {'' if default is None else _toml(default)}".rstrip())
    path.write_text("\n".join(lines) + "\n", "utf-8")


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value if isinstance(value, (bool, int)) else str(value), ensure_ascii=False)
