"""What the documents say is there, is there; what they tell to type, runs."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest
from _pages import GENERATED, PAGES, README, ROOT, anchors, blocks, kinds, links, prepared
from test_layers import LEVELS

from finemorphs import FineMorphsRegressor

SOURCE = ROOT / "src" / "finemorphs"
GALLERY = ROOT / "examples" / "gallery"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target, anchor in links(page):
        place = page.parent / target if target else page
        made = GENERATED.fullmatch(target)
        if made:
            assert made["page"] == "index" or (GALLERY / f"{made['page']}.py").is_file(), target
            continue
        assert target == "generated/layers.svg" or place.exists(), target
        assert not anchor or anchor in anchors(place), f"{target}#{anchor}"


def test_every_page_is_in_the_contents() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    named = set(re.findall(r"(?m)^([a-z]+)$", index))
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"} == named


def test_the_mathematics_names_files_and_functions_that_exist() -> None:
    text = (ROOT / "docs" / "mathematics.md").read_text("utf-8")
    places = " ".join(re.findall(r"(?ms)^\*(`.*?|[A-Z].*?)\*$", text))
    tokens = re.findall(r"`([^`]+)`", places)
    files = {token for token in tokens if token.endswith((".py", "/"))}
    names = {t.rpartition(".")[2] for t in tokens if t not in files and "=" not in t}
    assert len(files) > 12
    assert len(names) > 25
    assert {file for file in files if not (SOURCE / file).exists()} == set()
    defined = {
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    assert names - defined == set()


def test_the_reference_names_what_the_plots_offer() -> None:
    from finemorphs import plots

    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    assert set(plots.__all__) <= set(re.findall(r"(?m)^   (\w+)$", text))


def test_the_levels_of_the_contributors_page_are_those_of_the_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("| level |")[2]
    rows = re.findall(r"(?m)^\| (`[^|]+) \|", text)
    assert [{name.strip("/") for name in _code(row)} for row in rows] == [*map(set, LEVELS)]


def test_the_options_of_the_readme_are_those_of_the_estimator() -> None:
    table = README.read_text("utf-8").partition("## Main options")[2].partition("\n## ")[0]
    parameters = inspect.signature(FineMorphsRegressor).parameters
    rows = re.findall(r"(?m)^\| (`[^|]+) \| (`[^|]+) \|", table)
    assert len(rows) > 10
    for names, defaults in rows:
        written = dict(zip(_code(names), map(ast.literal_eval, _code(defaults)), strict=True))
        assert written == {name: parameters[name].default for name in written}


@pytest.mark.filterwarnings("ignore")  # of Dask's own libraries
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_the_code_of_a_page_runs(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with prepared(page, monkeypatch) as names:
        for line, block in blocks(page, "python"):
            exec(compile("\n" * line + block, str(page), "exec"), names)


def test_other_blocks_are_of_kinds_that_are_not_run() -> None:
    found = set().union(*map(kinds, PAGES)) - {"python", "bash", "text", "yaml", ""}
    assert {kind.partition("}")[0] for kind in found} == {"{eval-rst", "{toctree", "{include"}
    for page in PAGES:  # what is called text is no code in disguise
        assert not any(re.search(r"(?m)^(from|import) ", text) for _, text in blocks(page, "text"))


def _code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)
