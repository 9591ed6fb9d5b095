"""``python -m finemorphs.benchmarks table3|table4|table5|peers|figures|report``."""

from __future__ import annotations

import argparse
import ast
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from finemorphs.benchmarks.cells import Cell, find_unreadable, read_results
from finemorphs.benchmarks.figures import FIGURES, draw_figure
from finemorphs.benchmarks.models import (
    MODELS,
    TABLES,
    check_options,
    make_model,
    taken_options,
)
from finemorphs.benchmarks.runner import plan, run
from finemorphs.benchmarks.settings import Settings
from finemorphs.benchmarks.tables import FORMATS, render, report, summarise
from finemorphs.datasets import UCIDataset
from finemorphs.datasets._sources import find_source
from finemorphs.exceptions import FineMorphsError, MissingDatasetError
from finemorphs.plots._axes import pyplot

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the status for the shell, 1 where a fit failed, 2 for a wrong option."""
    options = _parser().parse_args(arguments)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        _check_out(options.out)
        command = {"figures": _figures, "report": _report}.get(options.command, _table)
        with _ended_like_by_the_keyboard():
            return command(options, console)
    except (FineMorphsError, ValueError, ImportError, OSError) as error:
        console.print(f"error: {error}", markup=False)
        return 2
    except KeyboardInterrupt:
        return 130


@contextmanager
def _ended_like_by_the_keyboard() -> Iterator[None]:
    """A signal to end raises what Ctrl-C does, so that the processes of the fits end as well."""
    if threading.current_thread() is not threading.main_thread():  # which alone may set it
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _table(options: argparse.Namespace, console: Console) -> int:
    settings = _settings(options)
    models = options.models or TABLES[options.command].models
    _check_models(models, settings)
    cells, missing = _plan(options, models, settings, console)
    results = run(cells, settings, jobs=options.jobs, console=console)
    sys.stdout.write(render(summarise(results), options.format, ranks=options.rank))
    failed = [result for result in results if result["status"] == "failed"]
    if failed:
        console.print(f"{len(failed)} fits failed; the same command tries them again")
    _tell_missing(missing, console)
    return 1 if failed else 0


def _plan(
    options: argparse.Namespace, models: Sequence[str], settings: Settings, console: Console
) -> tuple[list[Cell], list[str]]:
    """The cells of a table, and those of its own datasets that are left out, not to be had."""
    table = TABLES[options.command]
    datasets = _names(options.datasets or (table.gap_datasets if options.gap else table.datasets))
    if not datasets:
        raise ValueError(f"{options.command} has no gap splits; leave --gap out.")
    splits = _splits(options.splits)
    cells, missing, notes = [], [], []
    for dataset in datasets:
        try:
            found = plan(models, [dataset], settings, gap=options.gap, splits=splits)
        except MissingDatasetError as error:
            if options.datasets:
                raise
            console.print(f"{dataset} is left out: {error}", markup=False)
            missing.append(dataset)
            continue
        cells += found
        data = settings.load(dataset, options.gap)
        _tell_other_table(data, console)
        last = data.n_splits - 1
        absent = ", ".join(str(k) for k in splits or () if k > last)
        if absent:
            notes.append(f"{dataset} has no split {absent}, only 0 to {last}")
        elif not found:
            notes.append(f"{dataset} has more training rows than {', '.join(models)} may take")
    if not cells:
        notes += [f"the files of {', '.join(missing)} are missing"] * bool(missing)
        raise ValueError(
            f"there is nothing to run: {'; '.join(notes)}; choose other splits, models or datasets."
        )
    for note in notes:
        console.print(note)
    return cells, missing


def _figures(options: argparse.Namespace, console: Console) -> int:
    pyplot().switch_backend("Agg")
    settings = _settings(options)
    models = list(dict.fromkeys(options.models or ["ADA"]))
    _check_models(models, settings)
    datasets = _names(options.datasets or FIGURES)
    if "rings" in datasets and (options.gap or options.splits):
        console.print("rings is made, not split: --gap and --splits do not apply to it")
    missing = []
    for dataset in datasets:
        try:
            _draw(dataset, models, options, settings, console)
        except MissingDatasetError as error:
            if options.datasets:
                raise
            console.print(f"{dataset} is left out: {error}", markup=False)
            missing.append(dataset)
    _tell_missing(missing, console)
    return 0


def _draw(
    dataset: str,
    models: Sequence[str],
    options: argparse.Namespace,
    settings: Settings,
    console: Console,
) -> None:
    splits = _splits(options.splits)
    if dataset != "rings":
        _tell_other_table(settings.load(dataset, options.gap), console)
    for model in models:
        for split in [0] if splits is None or dataset == "rings" else splits:
            paths = draw_figure(
                dataset, settings, model=model, gap=options.gap, split=split, console=console
            )
            console.print(" ".join(map(str, paths)), markup=False)


def _report(options: argparse.Namespace, console: Console) -> int:
    if not options.out.is_dir():
        raise ValueError(f"there is no folder {options.out}; give the --out of a run.")
    unknown = [model for model in options.models or () if model not in MODELS]
    if unknown:
        raise ValueError(f"there is no model {unknown[0]!r}; choose from {', '.join(MODELS)}.")
    for path in find_unreadable(options.out):
        console.print(
            f"{path} is left out, as it is no whole result of a known model and dataset; remove "
            "it, or run its fit again",
            markup=False,
        )
    results = _asked(read_results(options.out), options)
    sys.stdout.write(report(results, options.format))
    return 0


def _asked(results: list[dict[str, Any]], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Those results that the options of the command name; all where they name none."""
    wanted = {
        "dataset": _names(options.datasets) if options.datasets else None,
        "model": options.models,
        "split": _splits(options.splits),
        "gap": [True] if options.gap else None,
    }
    return [
        result
        for result in results
        if all(values is None or result[key] in values for key, values in wanted.items())
    ]


def _tell_other_table(data: UCIDataset, console: Console) -> None:
    source = find_source(data.name)
    (rows, columns), public = data.shape, (source.n_rows, source.n_columns)
    if data.shape != public:
        console.print(
            f"{data.name}{' gap' * data.gap}: {rows} rows of {columns} columns; the public table "
            f"has {public[0]} of {public[1]}, so the paper's numbers are of other data."
        )


def _tell_missing(datasets: Sequence[str], console: Console) -> None:
    if datasets:
        console.print(f"left out, as their files are missing: {', '.join(datasets)}")


def _names(datasets: Sequence[str]) -> list[str]:
    """Datasets by their own names, each once."""
    own = (name if name == "rings" else find_source(name).name for name in datasets)
    return list(dict.fromkeys(own))


def _check_models(models: Sequence[str], settings: Settings) -> None:
    """Names, packages that are missing, and options that do not fit, before the first fit."""
    taken: set[str] = set()
    for name in models:
        make_model(name, "", 1)
        check_options(name, settings.options)
        taken |= taken_options(name, settings.options).keys()
    unknown = sorted(settings.options.keys() - taken)
    if unknown:
        raise ValueError(
            f"no model of this run has the parameter {unknown[0]!r}; correct or drop --set."
        )


def _check_out(out: Path) -> None:
    there = next(path for path in (out, *out.parents) if path.exists())
    if not there.is_dir():
        raise ValueError(f"--out {out} cannot be a folder, as {there} is a file; give a folder.")


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


def _folder(text: str) -> Path:
    return Path(os.path.expanduser(text))


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
    """Numbers of "0 3 5-7", each once; None for all."""
    if words is None:
        return None
    numbers: list[int] = []
    for word in words:
        first, _, last = word.partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise ValueError(f"--splits takes numbers and ranges such as 0 3 5-7, not {word!r}.")
        numbers += range(int(first), int(last) + 1)
    return list(dict.fromkeys(numbers))


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
    add("--data-dir", type=_folder, help="folder of the datasets (FINEMORPHS_DATA, or a cache)")
    add("--out", type=_folder, required=True, help="folder of the results")
    add("--format", choices=FORMATS, default="markdown")
    add("--rank", action="store_true", help="add each mean's place among the paper's rows")
    return parser


if __name__ == "__main__":
    sys.exit(main())
