"""Files of tensors: safetensors with a JSON header of ours, written whole or not at all.

No pickle: reading a file runs nothing. A file is written aside, synced and renamed, so that
a failed write leaves the old file as it was, and a process killed on the way no more than a
file aside, which :func:`sweep` removes.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from finemorphs import _safetensors
from finemorphs._typing import Tensor
from finemorphs.exceptions import ModelFileError

__all__ = ["read", "sweep", "write"]

_FORMAT = "finemorphs"
_ASIDE = ".part"
_CHECKED_FROM = 2  # the format version from which every file carries a checksum


def write(
    path: str | os.PathLike[str],
    tensors: dict[str, Tensor],
    header: dict[str, Any],
    version: int,
) -> None:
    """Write named tensors and a header that JSON can hold."""
    metadata = {"format": _FORMAT, "version": str(version), "header": json.dumps(header)}
    _replace(Path(path), lambda file: _safetensors.write(file, tensors, metadata))


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
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            _check_beginning(name, file, size)
            table = _safetensors.read_table(file, size)
            _check_version(name, table.metadata, version)
            header = _safetensors.parse(table.metadata["header"].encode(), size)
            if not isinstance(header, dict):
                raise ValueError("its header is not one")
            return _safetensors.read_tensors(file, table), header
    except ModelFileError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise ModelFileError(
            f"{name!r} is not a whole finemorphs file ({error}); save the model again, or check "
            "that the file was copied to its end."
        ) from error


def sweep(path: str | os.PathLike[str]) -> None:
    """Remove what killed processes left beside a path while they wrote it."""
    path = Path(path)
    for aside in path.parent.glob(f".{glob.escape(path.name)}.*{_ASIDE}"):
        with contextlib.suppress(OSError):
            aside.unlink()


def _check_beginning(name: str, file: BinaryIO, size: int) -> None:
    """Refuse a file of another kind: the length it would begin with is too large, and no table."""
    start = file.read(9)
    file.seek(0)
    length = int.from_bytes(start[:8], "little")
    if length > size - 8 and len(start) == 9 and start[8:] != b"{":
        raise ModelFileError(
            f"{name!r} is not a finemorphs file: it begins with {start[:8]!r}; give a file made by "
            "save() or finemorphs fit."
        )


def _check_version(name: str, metadata: dict[str, str], version: int) -> None:
    if metadata.get("format") != _FORMAT:
        raise ModelFileError(
            f"{name!r} is a safetensors file, but not one that finemorphs wrote; give a file "
            "made by save()."
        )
    found = metadata.get("version", "")
    if not re.fullmatch("[1-9][0-9]{0,8}", found):
        raise ModelFileError(
            f"{name!r} has no readable format version (found {found[:20]!r}); save the model again."
        )
    if int(found) > version:
        raise ModelFileError(
            f"{name!r} has format version {found}, and this finemorphs reads up to {version}; "
            "install a newer finemorphs."
        )
    if int(found) >= _CHECKED_FROM and "sha256" not in metadata:
        raise ModelFileError(
            f"{name!r} has format version {found} but no checksum; save the model again."
        )


def _replace(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write beside the path, sync, then rename over it."""
    handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_ASIDE, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o666 & ~_umask())
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a loss of power, on systems where folders can be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
