"""Getting the files of a dataset with pooch, checked by SHA-256 where it is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from finemorphs.datasets._sources import Source, known_hashes
from finemorphs.exceptions import MissingDatasetError

__all__ = ["download"]


def download(source: Source, gap: bool, folder: Path) -> None:
    """Fetch what is missing of a dataset into its folder; the table comes last.

    Of a download that fails the whole files are kept for the next try, but no empty folder.
    """
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        _fetch_missing(source, gap, folder)
    finally:
        for path in new_folders:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()


def _fetch_missing(source: Source, gap: bool, folder: Path) -> None:
    addresses = source.addresses(gap)
    hashes = known_hashes()
    *_, table = addresses
    try:
        pooch = _import_pooch()
    except ImportError as error:
        raise _not_at_hand(source, gap, folder / table, table, error) from error
    for file in (file for file in addresses if not (folder / file).is_file()):
        kind = f"{source.name}{'_gap' if gap else ''}"
        # Features, target and table are the same for both kinds of splits.
        digest = hashes.get(f"{kind}/{file}") or hashes.get(f"{source.name}/{file}")
        try:
            _fetch(pooch, addresses[file], digest, folder, file)
        except Exception as error:
            raise _not_at_hand(source, gap, folder / table, file, error) from error


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
    try:
        pooch.retrieve(address, None, fname=archive, path=folder, processor=unzip)
    finally:
        (folder / archive).unlink(missing_ok=True)
    if not (folder / file).is_file():
        raise ValueError(f"{archive} does not hold {file}")
    if digest and pooch.file_hash(str(folder / file)) != digest:
        (folder / file).unlink()
        raise ValueError(f"SHA-256 of {file} is not the expected {digest}")


def _not_at_hand(
    source: Source, gap: bool, table: Path, file: str, why: Exception
) -> MissingDatasetError:
    """The error for a table that is missing, where a file of the dataset cannot be loaded."""
    what = "" if file == table.name else f"{file} "
    splits = source.address("index_train_0.txt", gap).rpartition("/")[0]
    indices = "" if source.archive else f" and the index files of its splits from {splits}"
    return MissingDatasetError(
        f"{table}, the table of the dataset {source.name!r}, is missing and {what}could not be "
        f"loaded ({why}); get {table.name} from {source.address(table.name, gap=False)}{indices}, "
        f"or name the folder that holds '{source.folders[0]}{'_gap' * gap}' with data_dir or the "
        "environment variable FINEMORPHS_DATA."
    )
