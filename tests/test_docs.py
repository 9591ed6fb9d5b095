"""What the documents say is there, is there, and the examples run."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from finemorphs import FineMorphsRegressor

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "finemorphs"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", page.read_text("utf-8"))
    local = [target for target in targets if not target.startswith("http")]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_the_mathematics_names_files_and_functions_that_exist() -> None:
    text = (ROOT / "docs" / "mathematics.md").read_text("utf-8")
    places = " ".join(re.findall(r"(?ms)^\*(`.*?|[A-Z].*?)\*$", text))
    tokens = re.findall(r"`([^`]+)`", places)
    files = {token for token in tokens if token.endswith((".py", "/"))}
    names = {t.rpartition(".")[2] for t in tokens if t not in files and "=" not in t}
    assert len(files) > 8
    assert len(names) > 10
    assert {file for file in files if not (SOURCE / file).exists()} == set()
    defined = {
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    assert names - defined == set()


def test_the_options_of_the_readme_are_those_of_the_estimator() -> None:
    table = README.partition("## Main options")[2].partition("\n## ")[0]
    parameters = inspect.signature(FineMorphsRegressor).parameters
    rows = re.findall(r"(?m)^\| (`[^|]+) \| (`[^|]+) \|", table)
    assert len(rows) > 10
    for names, defaults in rows:
        written = dict(zip(_code(names), map(ast.literal_eval, _code(defaults)), strict=True))
        assert written == {name: parameters[name].default for name in written}


def test_the_examples_of_the_readme_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```", README)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)


def _code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)
