"""Every command of the documents is one that the programs take, with options that they have.

Those of the command line in README and on the first page are run as well.
"""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer
from _pages import PAGES, README, ROOT, blocks, prepared
from typer.testing import CliRunner

from finemorphs.benchmarks.__main__ import _parser
from finemorphs.cli._app import make_app

APP = make_app()
PROGRAM = typer.main.get_command(APP)


def commands(page: Path) -> list[list[str]]:
    """The words of each command in the bash blocks of a page, comments left out."""
    found = []
    for _, block in blocks(page, "bash"):
        lines = block.replace("\\\n", " ").splitlines()
        # What the shell would put in is one word.
        lines = [re.sub(r"\$\([^)]*\)|\$\w+", "1", line) for line in lines]
        found += [words for line in lines if (words := shlex.split(line, comments=True))]
    return found


def _finemorphs(words: list[str]) -> None:
    if words == ["--help"]:
        return
    command = PROGRAM.commands[words[0]]  # type: ignore[attr-defined]
    if words[1:] != ["--help"]:
        command.make_context(words[0], words[1:])


def _python(words: list[str]) -> None:
    if words[:2] == ["-m", "finemorphs.benchmarks"]:
        _parser().parse_args(words[2:])
        return
    if words[0] == "-m":
        assert words[1] in ("venv", "zipfile")
        return
    script = (ROOT / words[0]).read_text("utf-8")
    strings = {n.value for n in ast.walk(ast.parse(script)) if isinstance(n, ast.Constant)}
    assert {word for word in words if word.startswith("--")} <= strings


def _make(words: list[str]) -> None:
    targets = re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"))
    assert {word for word in words if "=" not in word} <= set(targets)


def _pip(words: list[str]) -> None:
    assert words[0] in ("install", "download")
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    named = {name for word in words for name in re.findall(r"\[([\w,]+)\]", word)}
    assert named <= set(extras)


def _launched(words: list[str]) -> None:
    words = words[words.index("-m") + 1 :]
    assert words[0] == "finemorphs"
    _finemorphs(words[1:])


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "finemorphs": _finemorphs,
    "make": _make,
    "pip": _pip,
    "python": _python,
    "srun": _launched,
    "torchrun": _launched,
}
OTHERS = {"git", "pip-audit", "twine"}  # not ours


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "bash")], ids=lambda p: p.name)
def test_the_commands_of_a_page_are_taken(page: Path) -> None:
    for path, *words in commands(page):
        program = Path(path).name.rstrip(".0123456789")
        if program not in OTHERS:
            CHECKS[program](words)


@pytest.mark.parametrize("page", [README, ROOT / "docs" / "start.md"], ids=lambda p: p.name)
def test_the_command_line_does_what_the_page_says(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("train", "test", "new", "concrete"):
        rows = rng.normal(size=(120, 4))
        np.savetxt(f"{name}.csv", rows, delimiter=",", header="a,b,height,strength", comments="")
    called = [words for program, *words in commands(page) if program == "finemorphs"]
    assert len(called) > 4
    with prepared(page, monkeypatch):
        for words in called:
            result = CliRunner().invoke(APP, words)
            assert result.exit_code == 0, (words, result.output)
            if "--out" in words:
                assert Path(words[words.index("--out") + 1]).stat().st_size > 0


def test_what_kubernetes_is_to_run_is_taken() -> None:
    ((_, text),) = blocks(ROOT / "docs" / "scale.md", "yaml")
    _, job = pytest.importorskip("yaml").safe_load_all(text)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (line,) = container["args"]
    _launched(shlex.split(line.replace("$", "")))


@pytest.mark.parametrize(
    "line",
    [
        "finemorphs fit a.csv --targets y",
        "finemorphs draw a.csv",
        "python -m finemorphs.benchmarks table9",
        "python benchmarks/intervals.py --no-such-option",
        "make coffee",
        "pip install '.[milk]'",
        "torchrun -m finemorphs fit a.csv --subset 10",
        "sudo make test",
    ],
)
def test_a_wrong_command_is_found(line: str) -> None:
    program, *words = shlex.split(line)
    with pytest.raises((Exception, SystemExit)):
        CHECKS[program](words)
