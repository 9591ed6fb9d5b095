"""Streams of rows: what they read, and fits that read them block by block."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from _oracles import one_thread  # noqa: F401

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from finemorphs import FineMorphsRegressor  # noqa: E402
from finemorphs.distributed import ALONE  # noqa: E402
from finemorphs.estimators import _base, _stream  # noqa: E402
from finemorphs.estimators._memory import block_size, budget  # noqa: E402
from finemorphs.exceptions import TableError  # noqa: E402
from finemorphs.sequence import ModuleSequence  # noqa: E402
from finemorphs.streams import ArrayStream, ParquetStream  # noqa: E402

OPTIONS = {"subset_size": 12, "n_steps": 3, "max_iter": 8, "noise": 0.5, "random_state": 0}


def data(n=300, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 3)) * [1.0, 10.0, 0.1] + [0.0, 100.0, 5.0]
    return x, np.sin(2 * x[:, 0]) + 0.1 * x[:, 1] + 0.1 * rng.standard_normal(n)


def write(folder, x, y, n_files=3, group=37):
    """The rows in several files and row groups, the columns in another order in each."""
    folder.mkdir(exist_ok=True)
    columns = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y}
    for i, rows in enumerate(np.array_split(np.arange(len(x)), n_files)):
        names = list(columns)[i % 4 :] + list(columns)[: i % 4] if i else list(columns)
        table = pa.table({name: columns[name][rows] for name in names})
        pq.write_table(table, folder / f"part{i}.parquet", row_group_size=group)
    return folder


def joined(blocks):
    xs, ys = zip(*blocks, strict=True)
    return np.concatenate(xs), np.concatenate(ys)


# --- reading --------------------------------------------------------------------------------


@pytest.mark.parametrize(("begin", "end"), [(0, 300), (0, 0), (37, 74), (99, 101), (150, 300)])
@pytest.mark.parametrize("size", [1000, 64, 7])
def test_any_range_in_blocks_of_any_size(tmp_path, begin, end, size):
    x, y = data()
    for stream in (ParquetStream(write(tmp_path / "t", x, y), "y"), ArrayStream(x, y)):
        blocks = list(stream.read(begin, end, size))
        assert [len(b) for b, _ in blocks[:-1]] == [size] * (len(blocks) - 1)
        if end > begin:
            found_x, found_y = joined(blocks)
            assert np.array_equal(found_x, x[begin:end])
            assert np.array_equal(found_y[:, 0], y[begin:end])
        else:
            assert blocks == []


def test_files_folders_and_patterns(tmp_path):
    x, y = data()
    folder = write(tmp_path / "t", x, y)
    files = sorted(folder.iterdir())
    for path in (folder, f"{folder}/*.parquet", files, [files[0], f"{folder}/part[12].parquet"]):
        stream = ParquetStream(path, "y")
        assert (stream.n_rows, stream.n_features, stream.n_responses) == (300, 3, 1)
        assert stream.feature_names == ["a", "b", "c"]
        assert stream.one_response
    two = ParquetStream(folder, ["y", "b"], drop=["a"])
    assert (two.feature_names, two.n_responses, two.one_response) == (["c"], 2, False)


def test_whole_numbers_booleans_and_missing_cells(tmp_path):
    table = pa.table({"i": pa.array([1, None, 3]), "b": [True, False, True], "y": [1.0, 2.0, 3.0]})
    pq.write_table(table, tmp_path / "t.parquet")
    ((x, _),) = ParquetStream(tmp_path / "t.parquet", "y").read(0, 3, 10)
    assert np.array_equal(x, [[1, 1], [np.nan, 0], [3, 1]], equal_nan=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "z"}, "no column 'z'"),
        ({"drop": ["z"]}, "no column 'z'"),
        ({"path": "nothing/*.parquet"}, "no Parquet file at"),
        ({"drop": ["a", "b", "c"]}, "0 columns to predict from"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path, change, message):
    options = {"path": write(tmp_path / "t", *data()), "target": "y"} | change
    with pytest.raises(TableError, match=message):
        ParquetStream(**options)


def test_files_that_are_not_one_table(tmp_path):
    folder = write(tmp_path / "t", *data())
    pq.write_table(pa.table({"a": [1.0], "y": [1.0]}), folder / "other.parquet")
    with pytest.raises(TableError, match=r"do not have the same columns \('b'"):
        ParquetStream(folder, "y")
    (folder / "other.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(TableError, match="cannot be read as Parquet"):
        ParquetStream(folder, "y")


def test_text_is_refused_and_can_be_left_out(tmp_path):
    pq.write_table(pa.table({"a": [1.0], "s": ["x"], "y": [1.0]}), tmp_path / "t.parquet")
    with pytest.raises(TableError, match=r"column 's'.*holds string.*drop="):
        ParquetStream(tmp_path / "t.parquet", "y")
    assert ParquetStream(tmp_path / "t.parquet", "y", drop=["s"]).feature_names == ["a"]


def test_arrays_must_go_together():
    with pytest.raises(TableError, match=r"\(3, 2\) and y shape \(4,\)"):
        ArrayStream(np.zeros((3, 2)), np.zeros(4))


# --- the first pass ---------------------------------------------------------------------------


class Half:
    """One rank of two, which adds what the other one found."""

    def __init__(self, rank):
        self.rank, self.size, self.sums = rank, 2, []

    def share(self, value):
        return value

    def sum(self, tensor, alike):
        self.sums.append(tensor.clone())


@pytest.mark.parametrize("at_once", [2**22, 40])
def test_scalings_are_those_of_the_whole_table(monkeypatch, at_once):
    monkeypatch.setattr(_stream, "_NUMBERS_AT_ONCE", at_once)
    x, y = data()
    x[:, 2] = 7.3
    rows = _stream.prepare_stream(ArrayStream(x, y), 12, "random", np.random.default_rng(0), ALONE)
    np.testing.assert_allclose(rows.x_scaling.mean, x.mean(0), rtol=1e-13)
    np.testing.assert_allclose(rows.x_scaling.scale[:2], x.std(0)[:2], rtol=1e-12)
    assert rows.x_scaling.scale[2] == 1.0
    np.testing.assert_allclose(rows.y_scaling.scale, [y.std()], rtol=1e-12)
    assert rows.total == 300


def test_two_ranks_read_what_one_reads(monkeypatch):
    monkeypatch.setattr(_stream, "_NUMBERS_AT_ONCE", 40)
    stream = ArrayStream(*data())
    places = np.arange(0, 300, 3)
    whole = _stream._first_pass(stream, places, ALONE)
    halves = [Half(0), Half(1)]
    for half in halves:
        _stream._first_pass(stream, places, half)
    for i, array in enumerate(whole):
        summed = halves[0].sums[i] + halves[1].sums[i]
        assert np.array_equal(summed.numpy(), array.reshape(-1))


def test_the_sample_holds_the_control_points_first(monkeypatch):
    monkeypatch.setattr(_stream, "SAMPLE", 50)
    x, y = data()
    rows = _stream.prepare_stream(
        ArrayStream(x, y), 12, "kmeans++", np.random.default_rng(0), ALONE
    )
    assert rows.x.shape == (50, 3)
    np.testing.assert_allclose(rows.x_scaling.undo(rows.x[:12]), x[rows.chosen], rtol=1e-12)
    assert len(np.unique(rows.chosen)) == 12


# --- fits -------------------------------------------------------------------------------------


def test_a_stream_trains_the_model_of_the_table(tmp_path, monkeypatch):
    """Arrays, a memory map and Parquet, kept or read anew, in blocks of any size."""
    x, y = data()
    order = np.lexsort(np.column_stack([x, y]).T[::-1])
    x, y = x[order], y[order]  # the order in which a table in memory is put
    stream = ParquetStream(write(tmp_path / "t", x, y), "y")
    mapped = np.memmap(tmp_path / "x", dtype=np.float64, mode="w+", shape=x.shape)
    mapped[:] = x
    options = OPTIONS | {"dtype": "float64", "subset_method": "random"}
    expected = FineMorphsRegressor(**options).fit(x, y).predict(x)
    for source, more, memory in [
        ((mapped, y), {}, None),
        ((stream,), {"batch_size": 41}, None),
        ((stream,), {"batch_size": 41}, 1000),  # too little to keep the rows
    ]:
        if memory:
            monkeypatch.setattr(_base, "budget", lambda max_memory, device, m=memory: m)
        model = FineMorphsRegressor(**options, **more).fit(*source)
        frame = pd.DataFrame(x, columns=["a", "b", "c"]) if len(source) == 1 else x
        np.testing.assert_allclose(model.predict(frame), expected, rtol=1e-6)


@pytest.mark.parametrize("batch_size", [10, 77])
def test_the_size_of_blocks_changes_nothing(batch_size):
    x, y = data()
    whole = FineMorphsRegressor(**OPTIONS, dtype="float64", batch_size=1000).fit(x, y)
    blocks = FineMorphsRegressor(**OPTIONS, dtype="float64", batch_size=batch_size).fit(x, y)
    np.testing.assert_allclose(blocks.predict(x), whole.predict(x), rtol=1e-6)
    assert blocks.objective_ == pytest.approx(whole.objective_, rel=1e-6)


def test_the_noise_of_a_stream_is_that_of_its_sample(monkeypatch):
    x, y = data(2000)
    options = OPTIONS | {"noise": "auto", "max_iter": 1, "tol": 1.0}
    model = FineMorphsRegressor(**options).fit(x, y)
    assert FineMorphsRegressor(**options).fit(ArrayStream(x, y)).noise_ == pytest.approx(
        model.noise_, rel=1e-6
    )
    monkeypatch.setattr(_stream, "SAMPLE", 1000)
    sampled = FineMorphsRegressor(**options).fit(ArrayStream(x, y))
    assert sampled.noise_ == pytest.approx(model.noise_, rel=0.3)


def test_what_a_stream_cannot_do_is_said():
    x, y = data()
    stream = ArrayStream(x, y)
    with pytest.raises(ValueError, match="subset_size=None does not go with a stream of 300 rows"):
        FineMorphsRegressor().fit(stream)
    with pytest.raises(ValueError, match=r"subset_size=300 .* up to 299"):
        FineMorphsRegressor(subset_size=300).fit(stream)
    with pytest.raises(ValueError, match="cannot be weighted"):
        FineMorphsRegressor(**OPTIONS).fit(stream, sample_weight=np.ones(300))
    x[7, 1] = np.nan
    with pytest.raises(TableError, match="column 1 of X holds missing"):
        FineMorphsRegressor(**OPTIONS).fit(stream)


# --- memory -----------------------------------------------------------------------------------


def test_blocks_are_chosen_by_memory():
    sequence = ModuleSequence.build("ADA", 91, 1, 100, dims=10)
    cpu = torch.device("cpu")
    large, small = (block_size(sequence, 4, memory, cpu) for memory in (2**40, 2**23))
    assert 256 < small < large
    assert block_size(sequence, 8, 2**23, cpu) < small
    assert block_size(sequence, 4, 1, cpu) == 256


@pytest.mark.parametrize(
    ("value", "size"),
    [(5, 5), ("4GB", 4 * 10**9), ("1.5 MiB", 3 * 2**19), ("7b", 7), ("2k", 2000)],
)
def test_memory_is_a_number_or_text(value, size):
    assert budget(value, torch.device("cpu")) == size


def test_memory_that_is_neither():
    with pytest.raises(ValueError, match="max_memory='much' is not a size"):
        budget("much", torch.device("cpu"))
    assert budget(None, torch.device("cpu")) > 0
