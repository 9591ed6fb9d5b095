"""What may stand in one folder: a model has one way to be fitted, a dataset one table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from finemorphs.benchmarks.cells import Cell, read_result, read_results
from finemorphs.benchmarks.models import FINEMORPHS, taken_options
from finemorphs.benchmarks.settings import Settings

__all__ = ["as_stored", "check_results", "find_result"]


def check_results(cells: Sequence[Cell], settings: Settings) -> None:
    """Refuse a folder with results that cannot be averaged with, or stand beside, the cells'.

    All results of a model have the same options and the same seed for split 0, all results of
    a dataset the same table and splits. Failed ones do not count, as they are in no table.
    Options that a result could not keep are refused too.
    """
    as_stored(settings.options)
    models = {cell.model for cell in cells}
    datasets = {(cell.dataset, cell.gap) for cell in cells}
    for result in read_results(settings.out):
        if result["status"] == "failed":
            continue
        if result["model"] in models:
            _check_way(result, settings)
        if (result["dataset"], result["gap"]) in datasets:
            _check_data(result, settings)


def find_result(cell: Cell, settings: Settings) -> dict[str, Any] | None:
    """The result of a cell, or None if it is still to do.

    Failed cells are tried again, and those whose model is wanted and was not kept.
    """
    result = read_result(cell.path(settings.out))
    if result is None or result["status"] == "failed":
        return None
    _check_way(result, settings)
    _check_data(result, settings)
    wants_model = settings.save_models and cell.model in FINEMORPHS
    return None if wants_model and not cell.model_path(settings.out).is_file() else result


def _check_way(result: dict[str, Any], settings: Settings) -> None:
    model = result["model"]
    found = {"options": taken_options(model, result["options"]), "seed": result["seed"]}
    wanted = {
        "options": as_stored(taken_options(model, settings.options)),
        "seed": settings.seed + result["split"],
    }
    for what, value in found.items():
        if value != wanted[what]:
            raise ValueError(
                f"the result of {Cell.of(result)} in {settings.out} was made with the {what} "
                f"{value}, not {wanted[what]}; give another folder with --out."
            )


def _check_data(result: dict[str, Any], settings: Settings) -> None:
    """Compare the data with the hashes of a result, where it has them."""
    table, splits = settings.digests(result["dataset"], result["gap"])
    wanted = {"table": table}
    if result["split"] < len(splits):
        wanted["rows"] = splits[result["split"]]
    for what, digest in wanted.items():
        if result.get(what, digest) != digest:
            raise ValueError(
                f"the result of {Cell.of(result)} in {settings.out} was made with another {what} "
                f"than that of the data at hand ({result[what]}, not {digest}); give another "
                "folder with --out, or that of the other data with --data-dir."
            )


def as_stored(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a file gives them back: tuples are lists."""
    try:
        stored: dict[str, Any] = json.loads(json.dumps(options))
    except TypeError as error:
        raise ValueError(
            f"the options {dict(options)} cannot be kept in a file of results ({error}); give "
            "numbers, strings, lists or dictionaries of them."
        ) from error
    return stored
