"""Damaged and forged files against the readers: python benchmarks/fuzz.py [--cases 20000].

Model files (real ones, changed): single bits, runs of bytes, truncations, two files spliced,
and forgeries with a right checksum: values of the header and lines of the table replaced.
Tables: delimited text made of hostile cells in several encodings, damaged Parquet and gzip files.

A case is right if the file is refused in words (ModelFileError, TableError, exit code 2) or
used: a damaged model that loads must predict what it did before, a forged one finite numbers;
a table that is read must give a table without formulas. Broken is everything else: another
error, a crash, ten seconds, or more memory than four times the file and 64 MB.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import json
import math
import resource
import signal
import tempfile
import traceback
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np

SECONDS = 10
SLACK = 2**26
BATCH = 2500

VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2,
    10**9,
    2**63,
    10**30,
    0.5,
    -1e308,
    float("nan"),
    float("inf"),
    "",
    "A0",
    "ADA",
    "x" * 1000,
    "\0",
    "\ud800",
    "<script>",
    [],
    [[]],
    [0],
    ["a", "b"],
    {},
    {"a": 1},
]


# --- model files --------------------------------------------------------------------------


def real_models() -> list[bytes]:
    """Files of every kind of model."""
    import pandas as pd

    from finemorphs import FineMorphsClassifier, FineMorphsRegressor

    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (30, 3))
    y = np.sin(3 * X[:, 0]) + X[:, 1]
    short: dict[str, Any] = {"max_iter": 3, "n_steps": 2, "random_state": 0}
    frame = pd.DataFrame(X, columns=["a", "b", "ü"])
    warped = {"input_warp": "quantile", "response_warp": "power"}
    fits = [
        FineMorphsRegressor(**short).fit(frame, y),
        FineMorphsRegressor("AD^2A", subset_size=9, dtype="float64", noise=0.5, **short).fit(
            X, np.column_stack([y, X[:, 2]])
        ),
        FineMorphsRegressor(n_members=2, noise=0.5, **warped, **short).fit(X, y),
        FineMorphsClassifier(**short).fit(X, np.where(y > 0, "yes", "no")),
    ]
    contents = []
    with tempfile.TemporaryDirectory() as folder:
        for fit in fits:
            fit.save(Path(folder) / "model")
            contents.append((Path(folder) / "model").read_bytes())
    return contents


def forge_model(rng: np.random.Generator, files: list[bytes]) -> tuple[str, bytes, int]:
    """What was done, the content, and which file it was made of."""
    which = int(rng.integers(len(files)))
    content = bytearray(files[which])
    kind = str(rng.choice(["bit", "bytes", "cut", "grow", "splice", "header", "table", "tensor"]))
    if kind == "bit":
        for _ in range(int(rng.integers(1, 4))):
            content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    elif kind == "bytes":
        begin = int(rng.integers(len(content)))
        content[begin : begin + 16] = rng.bytes(int(rng.integers(1, 32)))
    elif kind == "cut":
        del content[int(rng.integers(len(content))) :]
    elif kind == "grow":
        content += rng.bytes(int(rng.integers(1, 100)))
    elif kind == "splice":
        other = files[int(rng.integers(len(files)))]
        content[int(rng.integers(len(content))) :] = other[int(rng.integers(len(other))) :]
    else:
        content = bytearray(_forge_table(rng, bytes(content), kind))
    return kind, bytes(content), which


def _forge_table(rng: np.random.Generator, content: bytes, kind: str) -> bytes:
    """Change what the file says of itself, as somebody would who knows the format."""
    length = int.from_bytes(content[:8], "little")
    table, data = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    metadata = table["__metadata__"]
    metadata["sha256"] = "0" * 64
    if kind == "header":
        header = json.loads(metadata["header"])
        for _ in range(int(rng.integers(1, 3))):
            _replace_somewhere(rng, header)
        metadata["header"] = json.dumps(header)
    elif kind == "table":
        _replace_somewhere(rng, table)
    else:
        for _ in range(8):
            place = 8 * int(rng.integers(len(data) // 8))
            data[place : place + 8] = np.float64(
                rng.choice([np.nan, 1e308, -1, 0, 1e-308])
            ).tobytes()
    text = json.dumps(table).encode()
    digest = hashlib.sha256(text + data).hexdigest()
    text = text.replace(b"0" * 64, digest.encode(), 1)
    return len(text).to_bytes(8, "little") + text + bytes(data)


def _replace_somewhere(rng: np.random.Generator, tree: Any) -> None:
    """Put a hostile value in place of a random one, or leave it out."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        key = keys[int(rng.integers(len(keys)))]
        child = tree[key]
        if isinstance(child, (dict, list)) and child and rng.random() < 0.8:
            tree = child
            continue
        if rng.random() < 0.1:
            del tree[key]
        else:
            tree[key] = VALUES[int(rng.integers(len(VALUES)))]
        return


def try_model(path: Path, kind: str, expected: np.ndarray | None) -> str:
    """Load and predict; "refused" or "used", anything else is raised."""
    from finemorphs import load
    from finemorphs.exceptions import EngineError, ModelFileError

    try:
        model = load(path)
    except ModelFileError:
        return "refused"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # X has no feature names; forged numbers may overflow
        try:
            prediction = model.predict(np.zeros((3, model.n_features_in_)))
        except EngineError:
            return "refused"  # a name of an engine or a device that is not here
    assert len(prediction) == 3
    if kind in ("bit", "bytes", "cut", "grow", "splice") and expected is not None:
        np.testing.assert_array_equal(prediction, expected)
    return "used"


# --- tables -------------------------------------------------------------------------------

CELLS = [
    "1",
    "-2.5",
    "1e300",
    "-1e300",
    "5e-324",
    "1e-310",
    "1e999",
    "nan",
    "",
    " ",
    "NA",
    "=1+1",
    "+A1",
    "-A1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    '"',
    '"quoted"',
    'a"b',
    "'",
    ",",
    ";",
    "\n",
    "<script>alert(1)</script>",
    "ü",
    "数",
    "\U0001f600",
    "\0",
    "1_000",
    "0x10",
    "1,5",
    "True",
    "x" * 200,
    "2026-11-15",
]
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "latin-1", "utf-16-le", "cp1252"]
NAMES = ["a", "b", "ü"]


def forge_table(rng: np.random.Generator) -> tuple[str, bytes]:
    """The ending of a file and its content."""
    n = int(rng.choice([0, 1, 3, 8, 30]))
    names = NAMES + list(rng.choice(["a", "t", "=x", "", "<b>", "d"], int(rng.integers(0, 3))))
    rows = [
        [
            f"{rng.standard_normal():.3g}" if rng.random() < 0.97 else str(rng.choice(CELLS))
            for _ in range(len(names) + (rng.random() < 0.02))
        ]
        for _ in range(n)
    ]
    way = rng.random()
    if way < 0.15:
        return ".parquet", _parquet(rng, n)
    text = io.StringIO()
    if way < 0.6:
        writer = csv.writer(text, delimiter=str(rng.choice([",", ";", "\t", "|"])))
        writer.writerows([names, *rows])
    else:
        text.write("\n".join(",".join(row) for row in [names, *rows]))
    encoding = str(rng.choice(ENCODINGS, p=[0.7, 0.06, 0.06, 0.06, 0.06, 0.06]))
    content = text.getvalue().encode(encoding, "replace")
    if rng.random() < 0.1:
        content = gzip.compress(content)
    return ".csv", _damaged(rng, content) if rng.random() < 0.2 else content


def _parquet(rng: np.random.Generator, n: int) -> bytes:
    import pandas as pd

    frame = pd.DataFrame(rng.standard_normal((n, 3)), columns=NAMES)
    if rng.random() < 0.5:
        frame["text"] = rng.choice([c for c in CELLS if "\ud800" not in c], n)
    if rng.random() < 0.2:
        frame["when"] = pd.Timestamp("2026-11-15")
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    content = buffer.getvalue()
    return _damaged(rng, content) if rng.random() < 0.7 else content


def _damaged(rng: np.random.Generator, content: bytes) -> bytes:
    damaged = bytearray(content or b"x")
    for _ in range(int(rng.integers(1, 5))):
        damaged[int(rng.integers(len(damaged)))] = int(rng.integers(256))
    return bytes(
        damaged[: int(rng.integers(1, len(damaged) + 1))] if rng.random() < 0.3 else damaged
    )


def try_table(path: Path, model: Path, out: Path, fit: bool) -> str:
    """``predict`` and, now and then, ``fit`` on the table: "refused" or "used"."""
    from typer.testing import CliRunner

    from finemorphs.cli._app import make_app

    calls = [["predict", model, path, "--out", out]]
    if fit:
        options = ["--max-iter", "2", "--n-steps", "1"]
        calls.append(["fit", path, "--target", "a", "--out", out.with_suffix(".fm"), *options])
    codes = []
    for words in calls:
        result = CliRunner().invoke(make_app(), [str(word) for word in words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code in (0, 2), result.output
        assert "Traceback" not in result.output
        codes.append(result.exit_code)
    if codes[0] == 0:
        _check_cells(out)
    return "used" if 0 in codes else "refused"


def _check_cells(path: Path) -> None:
    """No cell that a spreadsheet would take for a formula."""
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.reader(file):
            for cell in row:
                if cell.startswith(("=", "+", "-", "@", "\t", "\r")):
                    float(cell)  # a number may begin with a sign


# --- many of them -------------------------------------------------------------------------


def run_batch(what: str, seed: int, cases: int, fits: bool) -> tuple[Counter[str], list[str]]:
    """Cases of one kind in this process; counts, and what broke."""
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("too slow")))
    rng = np.random.default_rng(seed)
    counts: Counter[str] = Counter()
    broken = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = real_models()
        (folder / "model.fm").write_bytes(files[0])
        expected = []
        for content in files:
            (folder / "whole").write_bytes(content)
            expected.append(_prediction(folder / "whole"))
        if what == "tables":
            _table_model(folder)
        _limit_memory(4 * max(map(len, files)) + SLACK if what == "models" else 2**31)
        for i in range(cases):
            if what == "models":
                kind, content, which = forge_model(rng, files)
                path = folder / "case"
            else:
                ending, content = forge_table(rng)
                kind, path = ending, folder / f"case{ending}"
            path.write_bytes(content)
            signal.alarm(SECONDS)
            try:
                if what == "models":
                    verdict = try_model(path, kind, expected[which])
                else:
                    out = folder / "out.csv"
                    verdict = try_table(path, folder / "table.fm", out, fits and i % 20 == 0)
            except Exception:
                verdict = "broken"
                broken.append(f"seed {seed}, case {i}, {kind}:\n{traceback.format_exc(limit=-3)}")
            finally:
                signal.alarm(0)
            counts[f"{kind}: {verdict}"] += 1
    return counts, broken


def _prediction(path: Path) -> np.ndarray:
    from finemorphs import load

    model = load(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(model.predict(np.zeros((3, model.n_features_in_))))


def _table_model(folder: Path) -> None:
    """A model of the columns that the tables have."""
    from typer.testing import CliRunner

    from finemorphs.cli._app import make_app

    rng = np.random.default_rng(1)
    rows = "\n".join(",".join(f"{v:.3g}" for v in rng.standard_normal(3)) for _ in range(30))
    (folder / "train.csv").write_text(",".join(NAMES) + "\n" + rows, encoding="utf-8")
    words = ["fit", folder / "train.csv", "--target", "a", "--out", folder / "table.fm"]
    options = ["--max-iter", "2", "--n-steps", "1"]
    result = CliRunner().invoke(make_app(), [*map(str, words), *options])
    assert result.exit_code == 0, result.output


def _limit_memory(more: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000, help="of model files")
    parser.add_argument("--tables", type=int, default=2_000, help="tables")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    plan = [("models", arguments.cases), ("tables", arguments.tables)]
    failures: list[str] = []
    print("| what | case | n |\n|---|---|---|")
    for what, cases in plan:
        counts: Counter[str] = Counter()
        for batch in range(math.ceil(cases / BATCH)):
            n, seed = min(BATCH, cases - batch * BATCH), arguments.seed + 1000 * batch
            with ProcessPoolExecutor(1) as pool:
                try:
                    found, broken = pool.submit(run_batch, what, seed, n, True).result()
                except BrokenProcessPool:
                    found, broken = Counter({"crash: broken": 1}), [f"{what}, seed {seed}: crash"]
            counts += found
            failures += broken
        for case, n in sorted(counts.items()):
            print(f"| {what} | {case} | {n} |", flush=True)
    print(f"\n{len(failures)} broken")
    for failure in failures[:20]:
        print(f"\n{failure}")
    return bool(failures)


if __name__ == "__main__":
    raise SystemExit(main())
