"""Files of tensors: what is written comes back, whole or not at all."""

from __future__ import annotations

import json
import os
import stat
import sys

import pytest
import torch
from _oracles import one_thread  # noqa: F401
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from finemorphs import storage
from finemorphs.exceptions import ModelFileError

DTYPES = [torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool]


def tensors():
    return {
        "theta": torch.randn(5, 3, generator=torch.Generator().manual_seed(0)),
        "mean": torch.arange(4, dtype=torch.float64) / 3,
    }


def bits(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).tolist()


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert bits(found[name]) == bits(tensor)


# --- round trip ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [str, os.fspath, lambda path: path], ids=["str", "fs", "Path"])
def test_round_trip_to_the_bit(tmp_path, kind):
    path = kind(tmp_path / "model.fm")
    header = {"sequence": "ADA", "dims": [1, 2], "noise": 0.1 + 0.2, "none": None, "é": "ü"}
    storage.write(path, tensors(), header, version=1)
    found, read_header = storage.read(path, version=1)
    assert_same(found, tensors())
    assert read_header == header


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)], ids=str)
def test_round_trip_of_every_dtype_and_shape(tmp_path, dtype, shape):
    tensor = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 100).to(dtype)
    storage.write(tmp_path / "f", {"t": tensor}, {}, version=1)
    assert_same(storage.read(tmp_path / "f", version=1)[0], {"t": tensor})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    values=st.lists(st.floats(width=32), max_size=8),
    header=st.dictionaries(
        st.text(max_size=5), st.integers() | st.text(max_size=5) | st.floats(allow_nan=False)
    ),
)
def test_round_trip_of_any_numbers_and_headers(tmp_path, values, header):
    """Also not-a-numbers, infinities and minus zero."""
    tensor = torch.tensor(values, dtype=torch.float32)
    storage.write(tmp_path / "f", {"t": tensor}, header, version=1)
    found, read_header = storage.read(tmp_path / "f", version=1)
    assert_same(found, {"t": tensor})
    assert read_header == header


def test_views_are_written_as_what_they_show(tmp_path):
    """Parts of one vector, and a table turned."""
    whole = torch.arange(12.0)
    views = {"first": whole[:6], "second": whole[6:], "turned": torch.rand(3, 4).T}
    storage.write(tmp_path / "f", views, {}, version=1)
    assert_same(storage.read(tmp_path / "f", version=1)[0], views)


def test_no_tensors_at_all(tmp_path):
    storage.write(tmp_path / "f", {}, {"a": 1}, version=1)
    assert storage.read(tmp_path / "f", version=1) == ({}, {"a": 1})


def test_an_older_version_is_read(tmp_path):
    storage.write(tmp_path / "f", tensors(), {}, version=2)
    assert_same(storage.read(tmp_path / "f", version=3)[0], tensors())


def test_what_was_read_outlives_its_file(tmp_path):
    storage.write(tmp_path / "f", tensors(), {}, version=1)
    found, _ = storage.read(tmp_path / "f", version=1)
    storage.write(tmp_path / "f", {"theta": torch.zeros(1)}, {}, version=1)
    (tmp_path / "f").unlink()
    assert_same(found, tensors())


def test_the_file_has_the_rights_of_any_other(tmp_path):
    storage.write(tmp_path / "f", tensors(), {}, version=1)
    (tmp_path / "g").touch()
    if sys.platform != "win32":
        assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == stat.S_IMODE(
            (tmp_path / "g").stat().st_mode
        )


# --- written whole or not at all ----------------------------------------------------------


def no_space(*arguments, **options):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("function", ["replace", "fsync", "chmod", "fdopen"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, function):
    path = tmp_path / "model.fm"
    storage.write(path, tensors(), {"old": True}, version=1)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(storage.os, function, no_space)
        with pytest.raises(OSError, match="No space left"):
            storage.write(path, {"theta": torch.zeros(9)}, {"old": False}, version=1)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.fm"]
    assert storage.read(path, version=1)[1] == {"old": True}


def test_an_interrupted_write_leaves_no_file(tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(storage.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        storage.write(tmp_path / "model.fm", tensors(), {}, version=1)
    assert os.listdir(tmp_path) == []


def test_a_header_that_json_cannot_hold_touches_nothing(tmp_path):
    with pytest.raises(TypeError, match="not JSON serializable"):
        storage.write(tmp_path / "f", tensors(), {"a": object()}, version=1)
    assert os.listdir(tmp_path) == []


def test_a_write_leaves_one_file(tmp_path):
    for _ in range(2):
        storage.write(tmp_path / "model.fm", tensors(), {}, version=1)
    assert os.listdir(tmp_path) == ["model.fm"]


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(FileNotFoundError):
        storage.write(tmp_path / "nowhere" / "f", tensors(), {}, version=1)


# --- what is not ours ---------------------------------------------------------------------


def refused(path, words):
    with pytest.raises(ModelFileError, match=words) as caught:
        storage.read(path, version=1)
    assert path.name in str(caught.value)


@pytest.mark.parametrize("content", [b"not a model" * 100, b"id,a,b,y\n1,2,3,4\n", b"\xff" * 64])
def test_a_file_of_another_kind_is_refused(tmp_path, content):
    (tmp_path / "f").write_bytes(content)
    refused(tmp_path / "f", "is not a finemorphs file: it begins with b.*; give a file")


@pytest.mark.parametrize("content", [b"", b"no", b"\x00" * 64])
def test_garbage_is_refused(tmp_path, content):
    (tmp_path / "f").write_bytes(content)
    refused(tmp_path / "f", "is not a whole finemorphs file .*; save the model again")


def test_every_truncation_is_refused(tmp_path):
    storage.write(tmp_path / "f", tensors(), {"a": 1}, version=1)
    whole = (tmp_path / "f").read_bytes()
    for length in [*range(0, len(whole), 13), len(whole) - 1]:
        (tmp_path / "f").write_bytes(whole[:length])
        refused(tmp_path / "f", "is not a whole finemorphs file")


def test_another_safetensors_file_is_refused(tmp_path):
    save_file(tensors(), tmp_path / "f")
    refused(tmp_path / "f", "not one that finemorphs wrote; give a file made by save")
    save_file(tensors(), tmp_path / "g", {"format": "pt"})
    refused(tmp_path / "g", "not one that finemorphs wrote")


def test_from_the_second_version_on_there_is_a_checksum(tmp_path):
    save_file(tensors(), tmp_path / "f", {"format": "finemorphs", "version": "2", "header": "{}"})
    with pytest.raises(ModelFileError, match="version 2 but no checksum"):
        storage.read(tmp_path / "f", version=2)


def test_a_newer_file_is_refused(tmp_path):
    storage.write(tmp_path / "f", tensors(), {}, version=2)
    refused(tmp_path / "f", "has format version 2, .* reads up to 1; install a newer finemorphs")


@pytest.mark.parametrize("version", ["", "0", "-1", "one", "1.5", "²"])
def test_an_unreadable_version_is_refused(tmp_path, version):
    metadata = {"format": "finemorphs", "version": version, "header": "{}"}
    save_file(tensors(), tmp_path / "f", metadata)
    refused(tmp_path / "f", "has no readable format version")


@pytest.mark.parametrize("header", [None, "{", "no json"])
def test_an_unreadable_header_is_refused(tmp_path, header):
    metadata = {"format": "finemorphs", "version": "1"}
    if header is not None:
        metadata["header"] = header
    save_file(tensors(), tmp_path / "f", metadata)
    refused(tmp_path / "f", "is not a whole finemorphs file")


def test_no_file_is_said_to_be_none(tmp_path):
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(FileNotFoundError, match="there is no file at"):
            storage.read(path, version=1)


def test_nothing_is_run_by_reading(tmp_path):
    """The header of the file is plain JSON behind its length, and no pickle is in it."""
    storage.write(tmp_path / "f", tensors(), {"sequence": "ADA"}, version=1)
    content = (tmp_path / "f").read_bytes()
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    assert metadata["format"] == "finemorphs"
    assert json.loads(metadata["header"]) == {"sequence": "ADA"}


# --- a table that promises too much -------------------------------------------------------


def crafted(path, table, data=b"", metadata=True):
    """A file with this table and these bytes behind it."""
    if metadata:
        ours = {"format": "finemorphs", "version": "1", "header": "{}"}
        table = {"__metadata__": ours, **table}
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def entry(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("table", "data", "words"),
    [
        ({"t": entry([2**40], 0, 2**42)}, b"", "do not fill"),
        ({"t": entry([2], 0, 8)}, b"1234567", "do not fill"),
        ({"t": entry([2], 0, 8)}, b"123456789", "do not fill"),
        ({"t": entry([1], 0, 8)}, b"12345678", "entry of 't'"),
        ({"t": entry([-2], -8, 0)}, b"", "entry of 't'"),
        ({"t": entry([True], 0, 4)}, b"1234", "entry of 't'"),
        ({"t": entry([1.0], 0, 4)}, b"1234", "entry of 't'"),
        ({"t": entry([1], 0, 4, "F33")}, b"1234", "entry of 't'"),
        ({"t": entry([0, 2**62, 2**62], 0, 0)}, b"", "entry of 't'"),
        ({"t": entry([1] * 9, 0, 4)}, b"1234", "entry of 't'"),
        ({"t": {"dtype": "F32"}}, b"", "entry of 't'"),
        ({"t": "tensor"}, b"", "entry of 't'"),
        ({"t": entry([1], 0, 4), "u": entry([1], 0, 4)}, b"1234", "do not fill"),
        ({"t": entry([1], 4, 8)}, b"12345678", "do not fill"),
        ({"t": entry([2], 0, 2, "BOOL")}, b"\x01\x02", "truth values"),
    ],
)
def test_a_table_that_cannot_be_is_refused(tmp_path, table, data, words):
    crafted(tmp_path / "f", table, data)
    refused(tmp_path / "f", words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[" * 100_000, "nested too deep"),
        (b'{"a":' * 10_000, "nested too deep"),
        (b"[" + b"[]," * 10**6 + b"[]]", "too large for it"),
        (b'"' + b"x" * 2**22 + b'"', "too large for it"),
        (b'"\xff\xfe"', "can't decode"),
        (b"[1, 2]", "is not one"),
        (b'{"__metadata__": [1]}', "metadata is not text"),
        (b'{"__metadata__": {"format": 1}}', "metadata is not text"),
        (b"9" * 5000, "digits"),
    ],
)
def test_a_table_that_is_no_table_is_refused(tmp_path, text, words):
    crafted(tmp_path / "f", text, metadata=False)
    refused(tmp_path / "f", words)


@pytest.mark.parametrize("header", ["[]", "3", "null", "[" * 100_000, '"x"'])
def test_a_header_that_is_no_header_is_refused(tmp_path, header):
    save_file(tensors(), tmp_path / "f", {"format": "finemorphs", "version": "1", "header": header})
    refused(tmp_path / "f", "header is not one|nested too deep")


def test_a_long_version_is_no_version(tmp_path):
    metadata = {"format": "finemorphs", "version": "9" * 5000, "header": "{}"}
    save_file(tensors(), tmp_path / "f", metadata)
    refused(tmp_path / "f", "no readable format version")


def test_others_read_what_we_write(tmp_path):
    storage.write(tmp_path / "f", tensors(), {"a": 1}, version=1)
    assert_same(load_file(tmp_path / "f"), tensors())


def test_what_killed_processes_left_is_swept(tmp_path):
    storage.write(tmp_path / "a[1].fm", tensors(), {}, version=1)
    (tmp_path / ".a[1].fm.x2y3.part").touch()
    (tmp_path / ".b.fm.x2y3.part").touch()
    storage.sweep(tmp_path / "a[1].fm")
    assert sorted(os.listdir(tmp_path)) == [".b.fm.x2y3.part", "a[1].fm"]


def test_every_flipped_bit_is_found(tmp_path):
    storage.write(tmp_path / "f", tensors(), {"sequence": "ADA", "zeros": "0" * 64}, version=1)
    whole = (tmp_path / "f").read_bytes()
    for place in range(len(whole)):
        content = bytearray(whole)
        content[place] ^= 1 << (place % 8)
        (tmp_path / "f").write_bytes(content)
        try:
            found, header = storage.read(tmp_path / "f", version=1)
        except ModelFileError:
            continue
        assert b'"sha256"' not in content  # the name of the checksum itself
        assert_same(found, tensors())
        assert header == {"sequence": "ADA", "zeros": "0" * 64}
