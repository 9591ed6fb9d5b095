"""The pages of the documentation, their code and links, and what their code expects to find."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
# Pages and pictures that the build makes of the examples.
GENERATED = re.compile(r"gallery/(images/sphx_glr_)?(?P<page>index|plot_\w+?)(_\d{3}\.png|\.rst)")


def blocks(page: Path, kind: str) -> list[tuple[int, str]]:
    """The blocks of code of a kind: the line where each begins, and its text."""
    text = page.read_text("utf-8")
    found = re.finditer(rf"(?ms)^( *)```{re.escape(kind)}\n(.*?)^\1```$", text)
    return [(text[: match.start(2)].count("\n"), dedent(match[2])) for match in found]


def kinds(page: Path) -> set[str]:
    """The kinds of blocks of a page."""
    return set(re.findall(r"(?ms)^ *```([^\n]*)\n.*?^ *```$", page.read_text("utf-8")))


def links(page: Path) -> list[tuple[str, str]]:
    """Targets inside the documentation, and the anchors in them."""
    text = re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text("utf-8"))
    targets = re.findall(r"\]\(([^)\s]*)\)", text)
    pairs = [target.partition("#")[::2] for target in targets]
    return [(path, anchor) for path, anchor in pairs if not path.startswith("http")]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"(?m)^#+ (.*)$", page.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@contextmanager
def prepared(page: Path, patch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names that the code of a page finds, in a place with the files it reads.

    Fits end after two iterations: what is tested is that the code runs. A cluster of one thread
    stands for those that are named, a process group of one process for the launcher's.
    """
    _few_iterations(patch)
    with ExitStack() as stack:
        names: dict[str, Any] = {"__name__": "page"}
        if page.name in ("scale.md", "results.md"):
            _cluster(patch, stack)
        if page.name == "scale.md":
            names |= _streamed_rows()
            _process_group(patch, stack)
        if page.name == "results.md":
            names |= _datasets(patch)
        yield names


def _few_iterations(patch: pytest.MonkeyPatch) -> None:
    from finemorphs.estimators import _base
    from finemorphs.training import Settings

    def short(**options: Any) -> Settings:
        return Settings(**{**options, "max_iter": min(options["max_iter"], 2), "target": None})

    patch.setattr(_base, "Settings", short)


def _cluster(patch: pytest.MonkeyPatch, stack: ExitStack) -> None:
    distributed = pytest.importorskip("dask.distributed")
    local = {"processes": False, "n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    real = distributed.Client
    patch.setattr(
        distributed, "Client", lambda address: stack.enter_context(suppressed(real(**local)))
    )


@contextmanager
def suppressed(client: Any) -> Iterator[Any]:
    """The client, closed at the end whether the page closed it or not."""
    yield client
    with suppress(Exception):
        client.close()


def _streamed_rows() -> dict[str, Any]:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1100, 12))
    Path("data").mkdir()
    columns = {f"x{i}": column for i, column in enumerate(X.T)} | {"year": X[:, 0]}
    parquet.write_table(pa.table(columns), "data/part.parquet")
    return {"X": X[:640, :3], "y": X[:640, 0]}


def _process_group(patch: pytest.MonkeyPatch, stack: ExitStack) -> None:
    import torch.distributed as dist

    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}.items():
        patch.setenv(name, value)
    patch.setenv("MASTER_PORT", "0")
    start = dist.init_process_group
    patch.setattr(dist, "init_process_group", lambda: start("gloo"))
    stack.callback(lambda: dist.is_initialized() and dist.destroy_process_group())


def _datasets(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    from finemorphs import benchmarks

    rng = np.random.default_rng(0)
    for name, n_features in (("concrete", 8), ("energy", 8)):
        folder = Path("datasets", name, "data")
        folder.mkdir(parents=True)
        np.savetxt(folder / "data.txt", rng.normal(size=(40, n_features + 1)))
        np.savetxt(folder / "index_features.txt", range(n_features), fmt="%d")
        np.savetxt(folder / "index_target.txt", [n_features], fmt="%d")
        np.savetxt(folder / "index_train_0.txt", range(30), fmt="%d")
        np.savetxt(folder / "index_test_0.txt", range(30, 40), fmt="%d")
    real = benchmarks.Settings
    few = {"max_iter": 2, "epochs": 2}
    patch.setattr(benchmarks, "Settings", lambda out, data: real(out, data, options=few))
    return {"out": Path("out"), "data_dir": Path("datasets")}
