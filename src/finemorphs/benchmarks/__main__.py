"""``python -m finemorphs.benchmarks table3|table4|table5|peers|figures|report``."""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from finemorphs.benchmarks.cells import read_results
from finemorphs.benchmarks.figures import FIGURES, draw_figure
from finemorphs.benchmarks.models import MODELS, TABLES, make_model
from finemorphs.benchmarks.runner import Settings, plan, run
from finemorphs.benchmarks.tables import FORMATS, render, report, summarise
from finemorphs.datasets._sources import find_source
from finemorphs.exceptions import FineMorphsError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the status for the shell, 1 where a fit failed, 2 for a wrong option."""
    options = _parser().parse_args(arguments)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        if options.command == "report":
            sys.stdout.write(report(read_results(options.out)))
            return 0
        return (_figures if options.command == "figures" else _table)(options, console)
    except (FineMorphsError, ValueError, ImportError) as error:
        console.print(f"error: {error}", markup=False)
        return 2
    except KeyboardInterrupt:
        return 130


def _table(options: argparse.Namespace, console: Console) -> int:
    table = TABLES[options.command]
    settings = _settings(options)
    known = table.gap_datasets if options.gap else table.datasets
    models = options.models or table.models
    _check_models(models, settings)
    datasets = [find_source(name).name for name in options.datasets or known]
    cells = plan(models, datasets, settings, gap=options.gap, splits=_splits(options.splits))
    results = run(cells, settings, jobs=options.jobs, console=console)
    sys.stdout.write(render(summarise(results), options.format, ranks=options.rank))
    failed = [result for result in results if result["status"] == "failed"]
    if failed:
        console.print(f"{len(failed)} fits failed; the same command tries them again")
    return 1 if failed else 0


def _figures(options: argparse.Namespace, console: Console) -> int:
    import matplotlib as mpl

    mpl.use("Agg")
    settings = _settings(options)
    splits = _splits(options.splits)
    for name in options.datasets or FIGURES:
        dataset = name if name == "rings" else find_source(name).name
        for model in options.models or ["ADA"]:
            for split in [0] if splits is None or dataset == "rings" else splits:
                paths = draw_figure(dataset, settings, model=model, gap=options.gap, split=split)
                console.print(" ".join(map(str, paths)), markup=False)
    return 0


def _check_models(models: Sequence[str], settings: Settings) -> None:
    """Names, packages that are missing, and options that no model has, before the first fit."""
    known: set[str] = set()
    for name in models:
        known |= set(make_model(name, "", 1).get_params())
    unknown = sorted(set(settings.options) - known)
    if unknown:
        raise ValueError(
            f"no model of this run has the parameter {unknown[0]!r}; correct or drop --set."
        )


def _settings(options: argparse.Namespace) -> Settings:
    return Settings(
        out=options.out,
        data_dir=options.data_dir,
        seed=options.seed,
        engine=options.engine,
        device=options.device,
        options=dict(map(_assignment, options.set or ())),
        save_models=options.save_models,
    )


def _assignment(text: str) -> tuple[str, Any]:
    """A name and a value of "max_iter=50"; what is not a Python literal is a string."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--set takes NAME=VALUE, but {text!r} came.")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _splits(words: Sequence[str] | None) -> list[int] | None:
    """Numbers of "0 3 5-7"; None for all."""
    if words is None:
        return None
    numbers: list[int] = []
    for word in words:
        first, _, last = word.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise ValueError(f"--splits takes numbers and ranges such as 0 3 5-7, not {word!r}.")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m finemorphs.benchmarks",
        description="The tables and figures of the paper, with our numbers beside its own.",
        epilog="Models: " + ", ".join(MODELS) + ". Finished fits are kept in --out; a stopped "
        "run goes on where it was.",
    )
    parser.add_argument("command", choices=[*TABLES, "figures", "report"])
    add = parser.add_argument
    add("--datasets", nargs="+", metavar="NAME", help="those of the table by default")
    add("--models", nargs="+", metavar="NAME", help="those of the table by default")
    add("--splits", nargs="+", metavar="K", help="numbers and ranges, 0 3 5-7; all by default")
    add("--gap", action="store_true", help="gap splits in place of the standard ones")
    add("--jobs", type=int, default=1, help="processes side by side (1)")
    add("--device", default="auto", help="of FineMorphs models and networks (auto)")
    add("--engine", default="auto", help="of FineMorphs models (auto)")
    add("--seed", type=int, default=0, help="split k has the seed SEED + k (0)")
    add("--set", action="append", metavar="NAME=VALUE", help="a parameter of the models")
    add("--save-models", action="store_true", help="keep fitted FineMorphs models")
    add("--data-dir", type=Path, help="folder of the datasets (FINEMORPHS_DATA, or a cache)")
    add("--out", type=Path, required=True, help="folder of the results")
    add("--format", choices=FORMATS, default="markdown")
    add("--rank", action="store_true", help="add each mean's place among the paper's rows")
    return parser


if __name__ == "__main__":
    sys.exit(main())
