"""The program: its commands and their options."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from finemorphs._version import __version__
from finemorphs.cli._command import INTERRUPTED, command
from finemorphs.cli._screen import Screen

__all__ = ["main", "make_app"]

Model = Annotated[Path, typer.Argument(help="A model file that fit wrote.")]
Data = Annotated[Path, typer.Argument(help="A table: CSV, TSV or Parquet.")]


def main() -> None:
    """Run the program; ends the process with its exit code."""
    # The options of fit are those of the estimator, whose libraries take seconds to load.
    words = {*sys.argv[1:], *os.environ.get("COMP_WORDS", "").split()}
    try:
        make_app(with_fit_options="fit" in words)(prog_name="finemorphs")
    except KeyboardInterrupt:  # before the command has begun
        sys.exit(INTERRUPTED)


def make_app(with_fit_options: bool = True) -> typer.Typer:
    """The typer application."""
    app = typer.Typer(
        help="Regression by sequences of affine and diffeomorphic maps, for tables in files.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_program)
    app.command("fit")(_with_estimator_options(fit) if with_fit_options else command(fit))
    for function in (predict, evaluate, info, report, plot, demo):
        app.command()(command(function))
    app.command(
        context_settings={
            "allow_extra_args": True,
            "ignore_unknown_options": True,
            "help_option_names": [],
        },
        help="Run the benchmarks of the paper: finemorphs bench --help.",
    )(bench)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"finemorphs {__version__}")
        raise typer.Exit


def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, help="Show the version and end.")
    ] = False,
) -> None:
    """Regression by sequences of affine and diffeomorphic maps, for tables in files."""


def fit(
    screen: Screen,
    train: Annotated[
        list[Path] | None,
        typer.Argument(help="The table to train on; several Parquet files are read in blocks."),
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Column to predict; may be given several times.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Model file to write.")] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="Column to leave out; may be given several times.")
    ] = None,
    holdout: Annotated[
        float | None, typer.Option(help="Share of rows held out for the score (default 0.1).")
    ] = None,
    no_holdout: Annotated[
        bool, typer.Option("--no-holdout", help="Train on all rows, without a score.")
    ] = False,
    missing: Annotated[
        str | None,
        typer.Option(help="Missing numbers: 'median' (default), or 'error' to refuse them."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with any of these options.")
    ] = None,
    save_config: Annotated[
        Path | None, typer.Option(help="Write these options to a TOML file, and end.")
    ] = None,
    **parameters: Any,
) -> None:
    """Train a model on a table and save it.

    Text columns become columns of 0 and 1, missing numbers their median; a tenth of the rows
    is held out to compare the model with ridge regression. Several Parquet files, or a folder of
    them, may hold more rows than memory does: all columns numbers, and --subset-size given.
    """
    from finemorphs.cli._config import read_config, write_config
    from finemorphs.cli._fit import fit_table
    from finemorphs.cli._fit_options import FIT_DEFAULTS, FIT_NAMES, FitOptions
    from finemorphs.cli._fit_stream import fit_stream
    from finemorphs.cli._options import estimator_options
    from finemorphs.cli._ranks import process_group

    known = estimator_options()
    given: dict[str, Any] = {
        "train": [str(path) for path in train or []],
        "target": target,
        "out": None if out is None else str(out),
        "drop": drop,
        "holdout": 0.0 if no_holdout else holdout,
        "missing": missing,
        **parameters,
    }
    given = {name: value for name, value in given.items() if value is not None and value != []}
    if config is not None:
        given = {**read_config(config, [*FIT_NAMES, *known]), **given}
    for name, option in known.items():
        if name in given:
            given[name] = option.parse(given[name])
    if save_config is not None:
        defaults = {name: FIT_DEFAULTS.get(name) for name in FIT_NAMES}
        defaults |= {n: "none" if o.default is None else o.default for n, o in known.items()}
        write_config(save_config, given, defaults)
        screen.say(f"wrote {save_config}; use it with finemorphs fit --config {save_config}")
        return
    options, own = FitOptions.of(given), {n: given[n] for n in known if n in given}
    with process_group() as leads:
        run = fit_stream if options.is_stream else fit_table
        run(options, own, screen if leads else Screen(quiet=True), leads)


def predict(
    screen: Screen,
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option(help="Table to write: .csv, .tsv (.gz too) or .parquet.")],
    confidence: Annotated[
        float | None,
        typer.Option(
            help="Add the ends of intervals that hold the target with this probability, 0.9 say."
        ),
    ] = None,
) -> None:
    """Write a table again with predictions behind its columns."""
    from finemorphs.cli._use import predict_file

    predict_file(model, data, out, screen, confidence)


def evaluate(screen: Screen, model: Model, data: Data) -> None:
    """Compare predictions with a table that has the targets."""
    from finemorphs.cli._use import evaluate_file

    evaluate_file(model, data, screen)


def info(screen: Screen, model: Model) -> None:
    """Show what a model file holds."""
    from finemorphs.cli._use import describe_model

    describe_model(model, screen)


def report(
    screen: Screen,
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("report.html"),
) -> None:
    """Write a page that shows the model at work on a table."""
    from finemorphs.cli._look import report_file

    report_file(model, data, out, screen)


def plot(
    screen: Screen,
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option(help="Picture to write: .png, .svg, .pdf; space: .html.")],
    kind: Annotated[
        str,
        typer.Option(
            help="flow, reshaping, trajectories, space, displacement, volume, predictions, "
            "sensitivity, convergence or singular-values."
        ),
    ] = "flow",
) -> None:
    """Draw one picture of the model at work on a table."""
    from finemorphs.cli._look import plot_file

    plot_file(model, data, kind, out, screen)


def demo(
    screen: Screen,
    out: Annotated[Path, typer.Option(help="Folder for its files.")] = Path("finemorphs-demo"),
) -> None:
    """Fit a model to a small data set, to see that everything works."""
    from finemorphs.cli._demo import run_demo

    run_demo(out, screen)


def bench(context: typer.Context) -> None:
    """Run the benchmarks of the paper."""
    from finemorphs.benchmarks.__main__ import main as run

    raise typer.Exit(run(context.args))


def _with_estimator_options(function: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each parameter of the estimator in place of its last."""
    from finemorphs.cli._options import option_parameters

    signature = inspect.signature(function, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]

    @functools.wraps(function)
    def with_options(**given: Any) -> None:
        function(**given)

    with_options.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*keyword, *option_parameters()]
    )
    return command(with_options)
