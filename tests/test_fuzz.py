"""Damaged and forged files: a few hundred of the cases of benchmarks/fuzz.py, and hypothesis."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from _oracles import one_thread  # noqa: F401
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from finemorphs import _safetensors

SOURCE = Path(__file__).parents[1] / "benchmarks" / "fuzz.py"
spec = importlib.util.spec_from_file_location("fuzz", SOURCE)
fuzz = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fuzz)


@pytest.fixture(scope="module")
def files():
    return fuzz.real_models()


@pytest.fixture(scope="module")
def expected(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    found = []
    for content in files:
        (folder / "model").write_bytes(content)
        found.append(fuzz._prediction(folder / "model"))
    return found


def test_damaged_and_forged_models(tmp_path, files, expected):
    rng = np.random.default_rng(0)
    verdicts = set()
    for _ in range(300):
        kind, content, which = fuzz.forge_model(rng, files)
        (tmp_path / "case").write_bytes(content)
        verdicts.add((kind, fuzz.try_model(tmp_path / "case", kind, expected[which])))
    assert {kind for kind, verdict in verdicts if verdict == "refused"} >= {"bit", "cut", "header"}
    assert ("header", "used") in verdicts


@pytest.mark.parametrize("which", range(4))
def test_undamaged_models_are_used(tmp_path, files, expected, which):
    (tmp_path / "case").write_bytes(files[which])
    assert fuzz.try_model(tmp_path / "case", "bit", expected[which]) == "used"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


def places(tree, path=()):
    """The ways to every value of a header."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, child in items:
        yield (*path, key)
        if isinstance(child, (dict, list)):
            yield from places(child, (*path, key))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(which=st.integers(0, 3), choice=st.integers(0, 10**6), value=JSON)
def test_any_value_in_any_place_of_a_header(tmp_path, files, which, choice, value):
    path = tmp_path / "case"
    path.write_bytes(files[which])
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    del metadata["sha256"]
    header = json.loads(metadata["header"])
    ways = list(places(header))
    *way, last = ways[choice % len(ways)]
    tree = header
    for key in way:
        tree = tree[key]
    tree[last] = value
    with path.open("wb") as file:
        _safetensors.write(file, tensors, {**metadata, "header": json.dumps(header)})
    assert fuzz.try_model(path, "header", None) in ("refused", "used")


def test_hostile_tables(tmp_path):
    pytest.importorskip("pyarrow")
    fuzz._table_model(tmp_path)
    rng = np.random.default_rng(0)
    verdicts = set()
    for i in range(80):
        ending, content = fuzz.forge_table(rng)
        path = tmp_path / f"case{ending}"
        path.write_bytes(content)
        out = tmp_path / "out.csv"
        verdicts.add(fuzz.try_table(path, tmp_path / "table.fm", out, fit=i % 20 == 0))
    assert verdicts == {"refused", "used"}
