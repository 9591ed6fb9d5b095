"""Opening files: compression found by the first bytes, text decoded, new files whole or none."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from finemorphs.exceptions import TableError

__all__ = ["is_parquet", "lines", "open_text", "replacing"]

_MAX_LINE = 2**26  # characters; a file without line ends is not read whole into memory
_DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError)


def is_parquet(path: Path) -> bool:
    """Whether a file begins as a Parquet file does."""
    return _first_bytes(path)[:4] == b"PAR1"


@contextlib.contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """A text file, uncompressed and decoded on the way: UTF-8, or UTF-16 with its mark."""
    begin = _first_bytes(path)
    try:
        with _uncompressed(path, begin) as binary:
            mark = binary.read(2)
            binary.seek(0)
            encoding = "utf-16" if mark in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
            with io.TextIOWrapper(binary, encoding=encoding, newline="") as text:
                yield text
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path} is not UTF-8 text (byte {error.object[error.start]:#04x}); save it as UTF-8."
        ) from error
    except _DAMAGED as error:
        raise TableError(
            f"{path} cannot be read to its end ({error}); check that it was copied whole."
        ) from error


def lines(text: IO[str], path: Path) -> Iterator[str]:
    """The lines of a text file, their ends kept."""
    while line := text.readline(_MAX_LINE):
        if "\0" in line:
            raise TableError(
                f"{path} holds NUL bytes and is not a text table; save it as CSV in UTF-8."
            )
        if len(line) == _MAX_LINE:
            raise TableError(f"{path} has a line of more than {_MAX_LINE} characters; is it text?")
        yield line


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside the wanted one, renamed to it at the end, removed if the block fails."""
    try:
        handle, aside = tempfile.mkstemp(prefix=".", suffix=f".{path.name}", dir=path.parent)
    except OSError as error:
        raise TableError(
            f"{path} cannot be written ({error.strerror}); choose another place."
        ) from error
    os.close(handle)
    try:
        yield Path(aside)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(aside, 0o666 & ~mask)
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def _first_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise TableError(f"{path} is a folder; give a file.")
    if not path.exists():
        raise TableError(f"there is no file at {path}; check the name.")
    try:
        with path.open("rb") as file:
            begin = file.read(8)
    except OSError as error:
        raise TableError(f"{path} cannot be read ({error.strerror}); check its rights.") from error
    if not begin:
        raise TableError(f"{path} is empty; give a table with a line of column names and rows.")
    return begin


def _uncompressed(path: Path, begin: bytes) -> IO[bytes]:
    if begin.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(path))
    if begin.startswith(b"BZh"):
        return bz2.open(path)
    if begin.startswith(b"\xfd7zXZ\0"):
        return lzma.open(path)
    if begin.startswith(b"PK\3\4"):
        return _only_member(path)
    if begin.startswith(b"\x28\xb5\x2f\xfd"):
        raise TableError(f"{path} is compressed by zstd, which is not read; use gzip, bzip2 or xz.")
    return path.open("rb")


def _only_member(path: Path) -> IO[bytes]:
    archive = zipfile.ZipFile(path)
    members = [info for info in archive.infolist() if not info.is_dir()]
    if len(members) != 1:
        what = "a spreadsheet" if "[Content_Types].xml" in archive.namelist() else "an archive"
        archive.close()
        raise TableError(
            f"{path} is {what} of {len(members)} files; save the one table in it as CSV."
        )
    return archive.open(members[0])
