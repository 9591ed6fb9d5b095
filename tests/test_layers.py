"""Imports inside the package go downwards only.

``LEVELS`` is the layout of the package from the lowest level to the highest. A name is a
module or a whole package, which is one unit and may import inside itself. Units of one
level do not import each other. Imports inside functions, under ``TYPE_CHECKING`` and by
``import_module("...")`` count like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "finemorphs"
PACKAGE = "finemorphs"

LEVELS: tuple[tuple[str, ...], ...] = (
    ("_version", "exceptions", "_typing"),
    ("_safetensors", "resources", "sorting"),
    ("distributed", "kernel_regression", "kernels", "losses", "notation", "storage", "tables"),
    ("streams",),
    ("engines",),
    ("flow", "inverse"),
    ("modules",),
    ("rows", "sequence"),
    ("geometry", "objective"),
    ("optim",),
    ("training",),
    ("estimators",),
    ("persistence", "plots", "datasets"),
    ("benchmarks", "report"),
    ("cli",),
    ("__init__", "__main__"),
)
LEVEL_OF = {unit: level for level, units in enumerate(LEVELS) for unit in units}

# Units that see less than their level would let them.
ONLY = {"optim": {"exceptions", "_typing"}}


def imported_names(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of whatever the file imports; `package` is the one it lies in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")
            above = above[: len(above) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func).rpartition(".")[2]
            if called in ("import_module", "__import__"):
                yield node.lineno, str(node.args[0].value)


def unit_of(name: str) -> str | None:
    """The unit a dotted name belongs to, or None where it is not of this package."""
    top, *rest = name.split(".")
    if top != PACKAGE:
        return None
    return rest[0] if rest and rest[0] in LEVEL_OF else "__init__"


def violations(root: Path) -> list[str]:
    """One sentence for each file without a level and each import that does not go down."""
    found = []
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        unit = place.parts[0].removesuffix(".py")
        if unit not in LEVEL_OF:
            found.append(f"{place}: {unit} is in no level; give it one in {Path(__file__).name}")
            continue
        package = ".".join([PACKAGE, *place.parts[:-1]])
        for line, name in imported_names(ast.parse(path.read_text("utf-8")), package):
            target = unit_of(name)
            if target is None or target == unit:
                continue
            if LEVEL_OF[target] >= LEVEL_OF[unit]:
                found.append(f"{place}:{line}: {unit} imports {target}, which is not below it")
            elif target not in ONLY.get(unit, LEVEL_OF):
                found.append(f"{place}:{line}: {unit} imports {target}, which it must not know")
    return found


def test_imports_go_downwards() -> None:
    assert violations(ROOT) == []


def test_every_source_file_is_seen() -> None:
    assert (ROOT / "kernels.py").is_file()
    assert len(LEVEL_OF) == sum(map(len, LEVELS)), "a unit is on two levels"


@pytest.mark.parametrize(
    ("file", "source", "message"),
    [
        ("kernels.py", "import finemorphs.engines.cpu", "kernels imports engines"),
        ("kernels.py", "from finemorphs.flow import run", "kernels imports flow"),
        ("kernels.py", "from finemorphs import flow", "kernels imports flow"),
        ("kernels.py", "from .flow import run", "kernels imports flow"),
        ("engines/cpu.py", "from ..flow import run", "engines imports flow"),
        ("engines/cpu.py", "from .. import flow", "engines imports flow"),
        ("exceptions.py", "import finemorphs._typing", "exceptions imports _typing"),
        ("flow.py", "from finemorphs import __version__", "flow imports __init__"),
        ("flow.py", "import finemorphs", "flow imports __init__"),
        ("flow.py", "def f():\n    import finemorphs.sequence", "flow.py:2: flow imports sequence"),
        ("flow.py", "if TYPE_CHECKING:\n    from finemorphs.cli import x", "flow imports cli"),
        ("flow.py", "importlib.import_module('finemorphs.cli')", "flow imports cli"),
        ("estimators/_base.py", "from finemorphs.persistence import save", "not below it"),
        ("optim/lbfgs.py", "from finemorphs.flow import run", "must not know"),
        ("helpers.py", "", "helpers is in no level"),
        ("helpers/deep/file.py", "", "helpers is in no level"),
    ],
)
def test_a_violation_is_caught(tmp_path: Path, file: str, source: str, message: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    (sentence,) = violations(tmp_path)
    assert message in sentence


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("flow.py", "import numpy\nfrom finemorphs.engines.cpu import CPUEngine"),
        ("flow.py", "from finemorphs import kernels"),
        ("engines/__init__.py", "from finemorphs.engines.cpu import CPUEngine"),
        ("engines/cpu.py", "from . import _base\nfrom ._base import Engine"),
        ("optim/lbfgs.py", "from finemorphs.optim.search import x\nimport finemorphs._typing"),
        ("__init__.py", "from finemorphs.cli import main\nfrom finemorphs._version import x"),
        ("__main__.py", "from finemorphs.cli import main"),
    ],
)
def test_what_is_allowed_passes(tmp_path: Path, file: str, source: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    assert violations(tmp_path) == []
