"""What is shipped: the package, and nothing else, in a small file."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_wheel_holds_only_the_package(tmp_path):
    pytest.importorskip("hatchling")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    package = {name for name in names if name.startswith("finemorphs/")}
    rest = {name.partition("/")[0] for name in set(names) - package}
    assert len(rest) == 1
    assert rest.pop().endswith(".dist-info")
    sources = ROOT / "src" / "finemorphs"
    expected = {
        str(path.relative_to(sources.parent).as_posix())
        for path in sources.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert package == expected
    assert wheel.stat().st_size < 500_000
