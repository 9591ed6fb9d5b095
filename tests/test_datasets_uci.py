"""Files in the public layout, whole and damaged, at hand and downloaded from a local server."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from finemorphs.datasets import UCI_NAMES, _download, _sources, load_uci, uci
from finemorphs.datasets._sources import SOURCES, Source, find_source, known_hashes
from finemorphs.exceptions import DatasetError, MissingDatasetError

N = 20


def write_folder(folder: Path, n_splits: int = 3, seed: int = 0) -> np.ndarray:
    """A small dataset of 2 features and a response between them, as the public files are."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(N, 3)).round(4)
    folder.mkdir(parents=True)
    lines = ["\t".join(f"{value}" for value in row) + " " for row in table]
    (folder / "data.txt").write_text("\n".join([*lines, "", ""]))
    (folder / "index_features.txt").write_text("0\n2\n")
    (folder / "index_target.txt").write_text("1\n")
    for k in range(n_splits):
        order = rng.permutation(N)
        for part, rows in (("train", order[: N - 4]), ("test", order[N - 4 :])):
            (folder / f"index_{part}_{k}.txt").write_text("\n".join(map(str, rows)) + "\n")
    return table


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "concrete" / "data")
    return tmp_path / "concrete" / "data"


def load(folder: Path) -> uci.UCIDataset:
    return load_uci("concrete", data_dir=folder.parents[1], download=False)


def test_a_folder_in_the_public_layout_is_read(tmp_path: Path) -> None:
    table = write_folder(tmp_path / "wine-quality-red_gap" / "data", n_splits=5)
    data = load_uci("Wine Red", gap=True, data_dir=tmp_path)
    assert (data.name, data.gap, data.n_splits, data.target) == ("wine", True, 5, 1)
    assert data.shape == (N, 3)
    np.testing.assert_array_equal(data.features, [0, 2])
    np.testing.assert_array_equal(data.X, table[:, [0, 2]])
    np.testing.assert_array_equal(data.y, table[:, 1])
    X, y, X_test, y_test = data.split(4)
    train, test = data.splits[4]
    assert sorted([*train, *test]) == list(range(N))
    np.testing.assert_array_equal(np.column_stack([X, y]), table[train][:, [0, 2, 1]])
    np.testing.assert_array_equal(np.column_stack([X_test, y_test]), table[test][:, [0, 2, 1]])
    with pytest.raises(DatasetError, match="no split 5; give one from 0 to 4"):
        data.split(5)


def test_the_environment_names_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FINEMORPHS_DATA", str(folder.parents[1]))
    assert load_uci("concrete", download=False).n_splits == 3
    monkeypatch.delenv("FINEMORPHS_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parents[1] / "elsewhere"))
    with pytest.raises(DatasetError, match="elsewhere"):
        load_uci("concrete", download=False)


def test_a_tilde_is_the_home_of_the_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parents[1]))
    monkeypatch.setenv("USERPROFILE", str(folder.parents[1]))
    assert load_uci("concrete", data_dir="~", download=False).n_splits == 3
    monkeypatch.setenv("FINEMORPHS_DATA", "~")
    assert load_uci("concrete", download=False).n_splits == 3


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("wine-red", "wine"),
        ("wine_quality_red", "wine"),
        ("Protein", "protein"),
        ("protein-tertiary-structure", "protein"),
        ("power plant", "power"),
        ("naval-propulsion", "naval"),
        ("YearPredictionMSD", "year"),
        *((name, name) for name in UCI_NAMES),
    ],
)
def test_datasets_are_called_as_users_say(said: str, meant: str) -> None:
    assert find_source(said).name == meant


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DatasetError, match=r"no dataset 'boston'; choose one of airfoil, concrete"):
        load_uci("boston")
    with pytest.raises(DatasetError, match="'year' has no gap splits"):
        load_uci("year", gap=True)


def replace_line(file: str, line: int, text: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        lines = (folder / file).read_text().splitlines()
        lines[line - 1] = text
        (folder / file).write_text("\n".join(lines))

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (replace_line("data.txt", 5, "1.0 2.0"), r"data\.txt, line 5: 2 values, but 3"),
        (replace_line("data.txt", 7, "1.0 2.0 x"), r"data\.txt, line 7: 'x' is not a number"),
        (replace_line("data.txt", 7, "1 2 # 3"), r"data\.txt, line 7: '#' is not a number"),
        (replace_line("data.txt", 3, "1.0 nan 2"), r"data\.txt, line 3: a value is not finite"),
        (replace_line("index_test_1.txt", 2, "20"), r"test_1\.txt, line 2: index 20 .*\(0 to 19"),
        (replace_line("index_test_1.txt", 2, "-1"), r"test_1\.txt, line 2: index -1 "),
        (replace_line("index_train_2.txt", 4, "1.5"), r"train_2\.txt, line 4: index 1\.5 "),
        (replace_line("index_features.txt", 2, "3"), r"features\.txt, line 2: .* 3 columns"),
        (replace_line("index_features.txt", 2, "0"), r"features\.txt, line 2: .* second time"),
        (replace_line("index_target.txt", 1, "1\n2"), r"index_target\.txt names 2 columns"),
        (
            replace_line("index_target.txt", 1, "\n2"),
            r"target\.txt, line 2: column 2 is in index",
        ),
        (lambda f: (f / "index_test_1.txt").unlink(), r"index_test_1\.txt is missing"),
        (lambda f: (f / "index_train_0.txt").unlink(), r"index_train_0\.txt is missing"),
        (lambda f: (f / "index_features.txt").unlink(), r"index_features\.txt is missing"),
        (lambda f: [p.unlink() for p in f.glob("index_t*_?.txt")], r"index_train_0\.txt is miss"),
        (lambda f: (f / "index_train_0.txt").write_text("\n"), r"train_0\.txt holds no numbers"),
    ],
)
def test_damage_is_named_with_file_and_line(
    folder: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(folder)
    with pytest.raises(DatasetError, match=message):
        load(folder)


@pytest.mark.parametrize("file", ["index_features.txt", "index_test_1.txt"])
def test_damage_is_told_with_the_address_of_the_file(folder: Path, file: str) -> None:
    address = rf"get the file again from https://raw\.github.*/UCI_Datasets/concrete/data/{file}"
    (folder / file).write_text("x")
    with pytest.raises(DatasetError, match=address):
        load(folder)


@pytest.mark.parametrize("file", ["index_features.txt", "index_test_1.txt", "index_train_0.txt"])
def test_a_file_that_is_missing_beside_the_table_is_told_as_missing(
    folder: Path, file: str
) -> None:
    (folder / file).unlink()
    message = rf"{file} is missing; get it from https://raw\.github.*/concrete/data/{file}"
    with pytest.raises(MissingDatasetError, match=message):
        load(folder)


def test_a_row_outside_of_the_table_points_to_a_table_that_is_not_the_public_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_line("index_test_1.txt", 2, "20")(folder)
    with pytest.raises(DatasetError, match=r"\(0 to 19\); the public table has 1030: look at data"):
        load(folder)
    monkeypatch.setitem(SOURCES, "concrete", replace(SOURCES["concrete"], n_rows=N))
    with pytest.raises(DatasetError, match=r"\(0 to 19\); get the file again"):
        load(folder)


def test_files_of_gap_splits_have_addresses_of_their_own() -> None:
    wine = SOURCES["wine"]
    assert "/UCI_for_sharing/gap/wine/" in wine.address("index_train_0.txt", gap=True)
    for file, gap in (("index_train_0.txt", False), ("index_target.txt", True), ("data.txt", True)):
        assert "/UCI_Datasets/wine-quality-red/" in wine.address(file, gap)


def test_a_dataset_is_shown_in_a_line(folder: Path) -> None:
    assert repr(load(folder)) == "<UCIDataset concrete: 20 rows, 2 features, 3 splits>"


def test_a_row_may_not_be_in_both_parts(folder: Path) -> None:
    known = (folder / "index_train_0.txt").read_text().split()[3]
    replace_line("index_test_0.txt", 2, known)(folder)
    with pytest.raises(DatasetError, match=rf"test_0\.txt, line 2: row {known} is in index_train"):
        load(folder)


def test_indices_may_be_written_as_decimals(folder: Path) -> None:
    before = load(folder).splits[0][0]
    path = folder / "index_train_0.txt"
    path.write_text("".join(f"{int(i):.18e}\n" for i in path.read_text().split()))
    np.testing.assert_array_equal(load(folder).splits[0][0], before)


def test_airfoil_has_the_ten_splits_of_the_paper(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(1503, 6)).round(3)
    (tmp_path / "airfoil").mkdir()
    lines = ("\t".join(map(str, row)) for row in table)
    (tmp_path / "airfoil" / "airfoil_self_noise.dat").write_text("\r\n".join(lines))
    data = load_uci("airfoil", data_dir=tmp_path)
    assert (data.n_splits, data.X.shape) == (10, (1503, 5))
    train, _ = train_test_split(table, train_size=0.9, shuffle=True, random_state=4)
    X, y, _, _ = data.split(3)
    np.testing.assert_array_equal(np.column_stack([X, y]), train)


def test_a_file_of_the_archive_is_checked_by_its_shape(tmp_path: Path) -> None:
    (tmp_path / "year").mkdir()
    (tmp_path / "year" / "YearPredictionMSD.txt").write_text("2001,1.5\n2002,1.6\n")
    with pytest.raises(DatasetError, match="has 2 rows of 2, not 515345 of 91"):
        load_uci("year", data_dir=tmp_path)


def test_year_is_split_as_its_authors_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = SOURCES["year"]
    (train, test) = uci._year_splits(source)[0]
    assert (len(train), len(test), train[0], test[-1]) == (463_715, 51_630, 0, 515_344)
    small = Source("year", ("year",), 4, 3, 1, archive="a.zip", file="y.txt")
    monkeypatch.setitem(SOURCES, "year", small)
    monkeypatch.setattr(uci, "_YEAR_TRAIN", 3)
    (tmp_path / "year").mkdir()
    (tmp_path / "year" / "y.txt").write_text("\n".join(f"{k},{k + 10},{k + 20}" for k in range(4)))
    _, y, X_test, y_test = load_uci("year", data_dir=tmp_path).split(0)
    assert (y.tolist(), y_test.tolist()) == ([0, 1, 2], [3])
    assert X_test.tolist() == [[13, 23]]


# --- downloads ------------------------------------------------------------------------------


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder that is served on this machine, and its address."""
    root = tmp_path / "served"
    root.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(root))) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield root, f"http://127.0.0.1:{http.server_address[1]}"
        finally:
            http.shutdown()
            thread.join()


def test_a_dataset_is_downloaded_and_checked(
    server: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pooch")
    root, address = server
    write_folder(root / "toy" / "data")
    source = Source("toy", ("toy",), N, 3, 3, standard=f"{address}/toy")
    monkeypatch.setitem(SOURCES, "toy", source)
    digest = hashlib.sha256((root / "toy" / "data" / "data.txt").read_bytes()).hexdigest()
    monkeypatch.setattr(_download, "known_hashes", lambda: {"toy/data.txt": digest})
    data = load_uci("toy", data_dir=tmp_path / "cache")
    assert data.n_splits == 3

    monkeypatch.setattr(_download, "known_hashes", lambda: {"toy/data.txt": "0" * 64})
    with pytest.raises(DatasetError, match=r"data\.txt, the table of .*hash"):
        load_uci("toy", data_dir=tmp_path / "other")
    assert not (tmp_path / "other" / "toy" / "data" / "data.txt").exists()


def test_a_download_that_was_cut_short_is_taken_up(
    server: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pooch")
    root, address = server
    write_folder(root / "toy" / "data")
    last = root / "toy" / "data" / "index_test_2.txt"
    text = last.read_text()
    last.unlink()
    monkeypatch.setitem(SOURCES, "toy", Source("toy", ("toy",), N, 3, 3, standard=f"{address}/toy"))
    with pytest.raises(DatasetError, match=r"index_test_2\.txt could .*get data\.txt from http"):
        load_uci("toy", data_dir=tmp_path)
    last.write_text(text)
    assert load_uci("toy", data_dir=tmp_path).n_splits == 3


def test_a_download_that_fails_names_the_table_and_leaves_no_folder(
    server: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pooch")
    _, address = server
    monkeypatch.setitem(SOURCES, "toy", Source("toy", ("toy",), N, 3, 3, standard=f"{address}/toy"))
    with pytest.raises(MissingDatasetError, match=r"index_train_0\.txt could not"):
        load_uci("toy", data_dir=tmp_path / "mistyped" / "folder")
    assert not (tmp_path / "mistyped").exists()

    folder = tmp_path / "cache" / "toy" / "data"
    write_folder(folder, n_splits=2)  # fewer splits than the source has are fine
    (folder / "data.txt").unlink()
    message = r"data\.txt, the table of the dataset 'toy', .*get data\.txt from .*/data\.txt and"
    with pytest.raises(MissingDatasetError, match=message):
        load_uci("toy", data_dir=tmp_path / "cache")
    assert len(list(folder.iterdir())) == 2 + 2 * 2


def test_an_archive_without_the_file_is_not_kept(
    server: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pooch")
    root, address = server
    with zipfile.ZipFile(root / "toy.zip", "w") as archive:
        archive.writestr("other.dat", "1")
    source = Source("toy", ("toy",), 10, 3, 2, archive=f"{address}/toy.zip", file="toy.dat")
    monkeypatch.setitem(SOURCES, "toy", source)
    with pytest.raises(MissingDatasetError, match=r"hold toy\.dat.*get toy\.dat from .*toy\.zip"):
        load_uci("toy", data_dir=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_an_archive_is_unpacked(
    server: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pooch")
    root, address = server
    table = "\n".join(f"{k} {k} {k + 0.5}" for k in range(10))
    with zipfile.ZipFile(root / "toy.zip", "w") as archive:
        archive.writestr("toy.dat", table)
    source = Source("toy", ("toy",), 10, 3, 2, archive=f"{address}/toy.zip", file="toy.dat")
    monkeypatch.setitem(SOURCES, "toy", source)
    assert load_uci("toy", data_dir=tmp_path).n_splits == 2
    assert [path.name for path in (tmp_path / "toy").iterdir()] == ["toy.dat"]


def test_without_pooch_the_error_says_what_is_missing_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> object:
        raise ImportError("downloads need pooch: pip install finemorphs[datasets]")

    monkeypatch.setattr(_download, "_import_pooch", missing)
    with pytest.raises(DatasetError) as caught:
        load_uci("power", data_dir=tmp_path)
    message = str(caught.value)
    for part in (
        "data.txt",
        "raw.githubusercontent.com",
        "FINEMORPHS_DATA",
        "finemorphs[datasets]",
    ):
        assert part in message


def test_gap_splits_beside_the_standard_ones_alone_are_told_what_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> object:
        raise ImportError("no pooch")

    monkeypatch.setattr(_download, "_import_pooch", missing)
    write_folder(tmp_path / "yacht" / "data")
    message = (
        r"index files .*/UCI_for_sharing/gap/yacht/data, or .* holds 'yacht_gap' with data_dir"
    )
    with pytest.raises(MissingDatasetError, match=message):
        load_uci("yacht", gap=True, data_dir=tmp_path)


def test_hashes_are_of_files_that_are_downloaded() -> None:
    for path, digest in known_hashes().items():
        name, _, file = path.partition("/")
        gap = name.endswith("_gap")
        assert file in SOURCES[name.removesuffix("_gap")].addresses(gap)
        assert len(digest) == 64
    assert list(_sources.SOURCES["concrete"].addresses(False))[-1] == "data.txt"
