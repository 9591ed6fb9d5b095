"""Getting the files of a dataset with pooch, checked by SHA-256 where it is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from finemorphs.datasets._sources import Source, known_hashes
from finemorphs.exceptions import DatasetError

__all__ = ["download"]


def download(source: Source, gap: bool, folder: Path) -> None:
    """Fetch what is missing of a dataset into its folder; the table comes last."""
    addresses = source.addresses(gap)
    hashes = known_hashes()
    missing = [file for file in addresses if not (folder / file).is_file()]
    try:
        pooch = _import_pooch()
    except ImportError as error:
        raise _not_at_hand(
            source, folder / missing[-1], addresses[missing[-1]], str(error)
        ) from error
    for file in missing:
        kind = f"{source.name}{'_gap' if gap else ''}"
        # Features, target and table are the same for both kinds of splits.
        digest = hashes.get(f"{kind}/{file}") or hashes.get(f"{source.name}/{file}")
        try:
            _fetch(pooch, addresses[file], digest, folder, file)
        except Exception as error:
            raise _not_at_hand(source, folder / file, addresses[file], str(error)) from error


def _import_pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise ImportError("downloads need pooch: pip install finemorphs[datasets]") from error
    return pooch


def _fetch(pooch: Any, address: str, digest: str | None, folder: Path, file: str) -> None:
    """One file, or the one member of a zip archive; pooch writes aside, then renames."""
    if not address.endswith(".zip"):
        pooch.retrieve(address, digest and f"sha256:{digest}", fname=file, path=folder)
        return
    unzip = pooch.Unzip(members=[file], extract_dir=".")
    archive = address.rpartition("/")[2]
    pooch.retrieve(address, None, fname=archive, path=folder, processor=unzip)
    (folder / archive).unlink(missing_ok=True)
    if digest and pooch.file_hash(str(folder / file)) != digest:
        (folder / file).unlink()
        raise ValueError(f"SHA-256 of {file} is not the expected {digest}")


def _not_at_hand(source: Source, path: Path, address: str, why: str) -> DatasetError:
    return DatasetError(
        f"{path}, a file of the dataset {source.name!r}, is missing and could not be loaded "
        f"({why}); get it from {address}, or name the folder that holds "
        f"{source.folders[0]!r} with data_dir or the environment variable FINEMORPHS_DATA."
    )
