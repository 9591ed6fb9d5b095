"""Tables in files: read, prepared and written; whatever bytes come, no error but a TableError."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import math
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from finemorphs.exceptions import ModelFileError, TableError
from finemorphs.tables import Cells, Numbers, Recipe, Table, Writer, read_chunks, read_table
from finemorphs.tables.delimited import find_delimiter
from finemorphs.tables.write import harmless

PLAIN = "a,b,name\n1,2.5,x\n3,4.5,y\n5,6.5,z\n"


def written(folder: Path, content: str | bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def zipped(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("table.csv", data)
    return buffer.getvalue()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress, zipped])
@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|", " "])
def test_delimiter_and_compression_are_found(
    tmp_path: Path, pack: Callable[[bytes], bytes], delimiter: str
) -> None:
    table = read_table(written(tmp_path, pack(PLAIN.replace(",", delimiter).encode())))
    assert list(table.columns) == ["a", "b", "name"]
    np.testing.assert_array_equal(table["b"].numbers(), [2.5, 4.5, 6.5])
    assert table["name"].text() == ["x", "y", "z"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_with_a_mark_are_found(tmp_path: Path, encoding: str) -> None:
    table = read_table(written(tmp_path, "größe,y\n1,2\n".encode(encoding)))
    assert list(table.columns) == ["größe", "y"]


def test_decimal_commas_do_not_make_a_delimiter() -> None:
    assert find_delimiter(["a;b\n", "1,5;2,5\n", "2,5;3\n"]) == ";"


def test_a_file_without_names_gets_some(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, "1 \t2 \n3\t4\n"))
    np.testing.assert_array_equal(table["c2"].numbers(), [2, 4])
    assert "c1 to c2" in table.notices[0]


def test_text_after_numbers_keeps_the_text_of_all_rows(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\n01,1\n02,2\nx,3\n")
    table = read_table(path, cells_at_once=2)
    assert table["a"].text() == ["01", "02", "x"]
    np.testing.assert_array_equal(table["b"].numbers(), [1, 2, 3])


def test_chunks_are_the_table(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\n" + "".join(f"{i},{i * i}\n" for i in range(10)))
    chunks = list(read_chunks(path, cells_at_once=6))
    assert [len(chunk) for chunk in chunks] == [3, 3, 3, 1]
    assert [chunk.first_row for chunk in chunks] == [1, 4, 7, 10]
    assert [cell for chunk in chunks for cell in chunk["b"].text()] == [
        str(i * i) for i in range(10)
    ]


def test_missing_cells_and_codes() -> None:
    values = Cells(["1", "", " NA ", "null", "?", "1e300"]).numbers()
    assert values is not None
    np.testing.assert_array_equal(values, [1, *[math.nan] * 4, 1e300])
    assert Cells(["1_000"]).numbers() is None
    assert Cells(["1", "two"]).numbers() is None
    assert Numbers(np.array([0.1, np.nan])).text() == ["0.1", ""]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n\n", "no text in it"),
        ("a,b\n", "no rows"),
        ("a,b\n1,2\n1,2,3\n", "line 3, has 3 cells where the first line has 2"),
        ("a,b,a\n1,2,3\n", "more than one column called 'a'"),
        (b"a,b\n1,\xe9\n", "not UTF-8"),
        (b"a,b\n1,\x002\n", "NUL"),
        ("a,b\n" + '"' * 3 + "x" * 200_000, "quotation mark"),
        (gzip.compress(PLAIN.encode() * 50, mtime=0)[:-20], "copied whole"),
        (b"\x28\xb5\x2f\xfdxxxx", "zstd"),
        (b"PAR1" + b"x" * 40, "cannot be read as Parquet"),
        (b"PK\3\4broken", "copied whole"),
    ],
)
def test_bad_files_are_refused_with_a_reason(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(TableError, match=message):
        read_table(written(tmp_path, content))


def test_a_folder_a_missing_file_and_a_spreadsheet_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="is a folder"):
        read_table(tmp_path)
    with pytest.raises(TableError, match="no file at"):
        read_table(tmp_path / "none.csv")
    with zipfile.ZipFile(tmp_path / "book.xlsx", "w") as archive:
        archive.writestr("[Content_Types].xml", "x")
        archive.writestr("xl/sheet.xml", "x")
    with pytest.raises(TableError, match="a spreadsheet of 2 files"):
        read_table(tmp_path / "book.xlsx")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
def test_any_bytes_give_a_table_or_a_table_error(tmp_path: Path, content: bytes) -> None:
    try:
        table = read_table(written(tmp_path, content))
        target = list(table.columns)[-1]
        recipe, _ = Recipe.learn(table, [target])
        assert np.isfinite(recipe.apply(table)).all()
    except TableError:
        return


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(*[st.text(st.characters(codec="utf-8", exclude_characters="\0"))] * 3),
        min_size=1,
        max_size=8,
    )
)
def test_quoted_cells_come_back_as_they_were(tmp_path: Path, rows: list[tuple[str, ...]]) -> None:
    path = tmp_path / "quoted.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, quoting=csv.QUOTE_ALL)
        out.writerows([("first", "second", "third"), *rows])
    kept = [row for row in rows if any(row)]
    if not kept:
        return
    (table,) = read_chunks(path)
    for i, name in enumerate(("first", "second", "third")):
        assert table[name].text() == [row[i] for row in kept]


def test_many_columns(tmp_path: Path) -> None:
    names = [f"c {i}" for i in range(10_000)]
    lines = [",".join(names), *[",".join(str(i * r) for i in range(10_000)) for r in (1, 2)]]
    table = read_table(written(tmp_path, "\n".join(lines)))
    recipe, notices = Recipe.learn(table, ["c 1"])
    assert recipe.apply(table).shape == (2, 9998)  # "c 0" is 0 in both rows
    assert notices == ["left out: 'c 0' (one value only)"]


# --- the recipe ---------------------------------------------------------------------------


def table_of(**columns: list[str]) -> Table:
    return Table("t.csv", {name: Cells(cells) for name, cells in columns.items()})


def test_a_recipe_does_again_what_it_learnt() -> None:
    table = table_of(
        x=["1", "", "3", "8"], c=["red", "blue", "red", "red"], y=["1"] * 4, k=["5"] * 4
    )
    recipe, notices = Recipe.learn(table, ["y"], missing="median")
    assert recipe.features == ["x", "c=blue", "c=red"]
    np.testing.assert_array_equal(recipe.apply(table), [[1, 0, 1], [3, 1, 0], [3, 0, 1], [8, 0, 1]])
    assert any("1 missing, taken as the median 3" in notice for notice in notices)
    assert any("'k' (one value only)" in notice for notice in notices)
    other = table_of(c=["green", "blue"], more=["?", "!"], x=["na", "2"])
    again = Recipe.from_json(recipe.to_json())
    assert again == recipe
    remarks: Counter[tuple[str, str]] = Counter()
    np.testing.assert_array_equal(again.apply(other, remarks), [[3, 0, 0], [2, 1, 0]])
    assert remarks == {
        ("x", "missing, taken as the median 3"): 1,
        ("c", "that training did not have, taken as none of its values"): 1,
    }


def test_unnamed_and_dropped_columns_are_left_out(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, ",a,b,y\n0,1,5,1\n1,2,6,2\n"))
    recipe, notices = Recipe.learn(table, ["y"], drop=["b"])
    assert recipe.features == ["a"]
    assert "left out: 'unnamed 1' (no name in the header)" in notices
    assert "left out: 'b' (as asked)" in notices


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": ["1", "inf"], "y": ["1", "2"]}, "infinite number in row 2"),
        ({"x": [f"v{i}" for i in range(30)], "y": ["1"] * 30}, "text with 30 different values"),
        (
            {"x": [*map(str, range(30)), "oops"], "y": ["1"] * 31},
            "'x' is numbers but for 1 cells, the first 'oops' in row 31",
        ),
        ({"y": ["1", "2"]}, "no column left"),
        ({"x": ["1", "2"]}, "has no column 'y'"),
    ],
)
def test_columns_that_cannot_be_used_are_named(columns: dict[str, list[str]], message: str) -> None:
    with pytest.raises(TableError, match=message):
        Recipe.learn(table_of(**columns), ["y"])


def test_missing_values_can_be_refused() -> None:
    for cells in (["1", "", "2"], ["a", "", "b"]):
        with pytest.raises(TableError, match="1 missing values, the first in row 2"):
            Recipe.learn(table_of(x=cells, y=["1"] * 3), ["y"], missing="error")
    recipe, _ = Recipe.learn(table_of(x=["1", "2"], y=["1"] * 2), ["y"], missing="error")
    with pytest.raises(TableError, match="first in row 1"):
        recipe.apply(table_of(x=["", "2"]))


def test_a_wrong_name_gets_a_suggestion_and_all_missing_ones_are_named() -> None:
    with pytest.raises(TableError, match="Did you mean 'strength'"):
        Recipe.learn(table_of(x=["1"], strength=["1"]), ["strenght"])
    recipe, _ = Recipe.learn(table_of(a=["1", "2"], b=["1", "2"], y=["1", "2"]), ["y"])
    with pytest.raises(TableError, match="no column 'a', 'b'"):
        recipe.apply(table_of(z=["1"]))


def test_text_where_a_number_was_is_refused_at_prediction() -> None:
    recipe, _ = Recipe.learn(table_of(x=["1", "2"], y=["1", "2"]), ["y"])
    with pytest.raises(TableError, match="'x' has 'abc' in row 2"):
        recipe.apply(table_of(x=["1", "abc"]))


@pytest.mark.parametrize("data", [None, [], {}, {"columns": 3}, {"columns": [{"name": "a"}]}])
def test_a_damaged_recipe_is_refused(data: object) -> None:
    with pytest.raises(ModelFileError, match="fit the model again"):
        Recipe.from_json(data)


# --- writing ------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["=1+1", "+x", "-x", "@SUM(A1)", "\tx", "\rx", " =1", "=-1"])
def test_formulas_are_written_as_text(tmp_path: Path, cell: str) -> None:
    assert harmless(cell) == "'" + cell
    with Writer(tmp_path / "out.csv") as out:
        out.write(Table("t", {cell: Cells([cell])}), {"p": np.array([1.5])})
    with (tmp_path / "out.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["'" + cell, "p"], ["'" + cell, "1.5"]]


@pytest.mark.parametrize("cell", ["-5", "+1e3", "-.5", "text", "", "a=b"])
def test_numbers_and_other_text_are_left_alone(cell: str) -> None:
    assert harmless(cell) == cell


@pytest.mark.parametrize(
    "name", ["o.csv", "o.tsv", "o.csv.gz", "o.tsv.bz2", "o.csv.xz", "o.parquet"]
)
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    with Writer(tmp_path / name) as out:
        for begin in (0, 2):
            cells = [f'r{begin}, "q"', f"é{begin}"]
            out.write(Table("t", {"id": Cells(cells)}), {"p": np.array([begin, 0.1])})
    table = read_table(tmp_path / name)
    assert table["id"].text() == ['r0, "q"', "é0", 'r2, "q"', "é2"]
    np.testing.assert_array_equal(table["p"].numbers(), [0, 0.1, 2, 0.1])


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with Writer(tmp_path / "out.csv") as out:
            out.write(Table("t", {"p": Cells(["1"])}), {"p": np.ones(1)})

    with pytest.raises(TableError, match="already has a column 'p'"):
        fail()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TableError, match="names no format"):
        Writer(tmp_path / "out.doc")
    with pytest.raises(TableError, match="cannot be written"), Writer(tmp_path / "no" / "out.csv"):
        pass


def test_parquet_types(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import datetime
    import decimal

    import pyarrow.parquet as pq

    table = pa.table(
        {
            "i": [1, None],
            "b": [True, False],
            "d": [decimal.Decimal("1.5"), None],
            "n": pa.nulls(2),
            "s": pa.array(["x", None]).dictionary_encode(),
            "t": [datetime.date(2020, 1, 1)] * 2,
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    got = read_table(tmp_path / "t.parquet")
    np.testing.assert_array_equal(got["i"].numbers(), [1, math.nan])
    np.testing.assert_array_equal(got["b"].numbers(), [1, 0])
    np.testing.assert_array_equal(got["d"].numbers(), [1.5, math.nan])
    np.testing.assert_array_equal(got["n"].numbers(), [math.nan] * 2)
    assert got["s"].text() == ["x", ""]
    assert got["t"].text() == ["2020-01-01"] * 2
    with Writer(tmp_path / "again.parquet") as out:
        for chunk in read_chunks(tmp_path / "t.parquet"):
            out.write(chunk, {"p": np.ones(2)})
    assert pq.read_table(tmp_path / "again.parquet").schema.field("i").type == pa.int64()


def test_without_pyarrow_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TableError, match=r"pip install 'finemorphs\[parquet\]'"):
        Writer(tmp_path / "o.parquet")
    with pytest.raises(TableError, match=r"finemorphs\[parquet\]"):
        read_table(written(tmp_path, b"PAR1xxxxPAR1", "o.parquet"))
