"""Files of tensors: safetensors with a JSON header of ours, written whole or not at all.

No pickle: reading a file runs nothing. A file is written aside, synced and renamed, so that
a failed write leaves the old file as it was.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes

from finemorphs._typing import Tensor
from finemorphs.exceptions import ModelFileError

__all__ = ["read", "write"]

_FORMAT = "finemorphs"


def write(
    path: str | os.PathLike[str],
    tensors: dict[str, Tensor],
    header: dict[str, Any],
    version: int,
) -> None:
    """Write named tensors and a header that JSON can hold."""
    metadata = {"format": _FORMAT, "version": str(version), "header": json.dumps(header)}
    data = to_bytes({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata)
    _replace(Path(path), data)


def read(path: str | os.PathLike[str], version: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the header of a file of this format version or an older one.

    Raises
    ------
    ModelFileError
        If the file is damaged, of another kind, or of a newer format.
    """
    name = os.fspath(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file at {name!r}.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            _check_version(name, metadata, version)
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        return tensors, json.loads(metadata["header"])
    except ModelFileError:
        raise
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise ModelFileError(
            f"{name!r} is not a whole finemorphs file ({error}); save the model again, or check "
            "that the file was copied to its end."
        ) from error


def _check_version(name: str, metadata: dict[str, str], version: int) -> None:
    if metadata.get("format") != _FORMAT:
        raise ModelFileError(
            f"{name!r} is a safetensors file, but not one that finemorphs wrote; give a file "
            "made by save()."
        )
    found = metadata.get("version", "")
    if not (found.isascii() and found.isdecimal()) or int(found) < 1:
        raise ModelFileError(f"{name!r} has no readable format version (found {found!r}).")
    if int(found) > version:
        raise ModelFileError(
            f"{name!r} has format version {found}, and this finemorphs reads up to {version}; "
            "install a newer finemorphs."
        )


def _replace(path: Path, data: bytes) -> None:
    """Write beside the path, sync, then rename over it."""
    handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o666 & ~_umask())
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
