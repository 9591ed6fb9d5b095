"""``predict``, ``evaluate`` and ``info``: what a model file is good for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from finemorphs._typing import Array
from finemorphs.cli._models import interval_columns, load_model, output_columns, outputs
from finemorphs.cli._scores import score_table, scores
from finemorphs.cli._screen import Screen
from finemorphs.exceptions import TableError
from finemorphs.persistence import load
from finemorphs.report import (
    candidate_table,
    chosen_options,
    is_mean,
    model_words,
    shown_words,
    size_of,
)
from finemorphs.tables import Recipe, Writer, read_chunks

__all__ = ["describe_model", "evaluate_file", "predict_file"]

_MOST_NOTICES = 10


def predict_file(
    model: Path, data: Path, out: Path, screen: Screen, confidence: float | None = None
) -> None:
    """Write the table again with predictions behind its columns, some rows at a time."""
    estimator, recipe = load_model(model)
    if confidence is not None and recipe.classes:
        raise ValueError("--confidence is for targets that are numbers, not classes; leave it out.")
    n_rows = 0
    remarks: Counter[tuple[str, str]] = Counter()
    names: list[str] = []
    with Writer(out) as writer:
        for chunk in read_chunks(data):
            X = recipe.apply(chunk, remarks)
            added = output_columns(estimator, recipe, outputs(estimator, X))
            if confidence is not None:
                added |= interval_columns(estimator, recipe, X, confidence)
            writer.write(chunk, added)
            n_rows, names = n_rows + len(chunk), list(added)
    for (column, words), count in remarks.most_common(_MOST_NOTICES):
        screen.notice(f"column {column!r}: {count} {words}")
    screen.say(f"wrote {out}: {n_rows} rows, with {', '.join(names)}")


def evaluate_file(model: Path, data: Path, screen: Screen) -> None:
    """Print the errors on a table that has the targets."""
    estimator, recipe = load_model(model)
    observed, predicted = [], []
    n_missing = 0
    for chunk in read_chunks(data):
        y, known = recipe.responses(chunk)
        n_missing += int((~known).sum())
        if known.any():
            observed.append(y[known])
            predicted.append(outputs(estimator, recipe.apply(chunk)[known]))
    if not predicted:
        raise TableError(f"{data} has no row with a target; nothing can be compared.")
    if n_missing:
        screen.notice(f"{n_missing} rows have no target and are left out")
    y = np.concatenate(observed)
    screen.say(f"errors on {len(y)} rows of {data.name}")
    values = scores(y, np.concatenate(predicted), getattr(estimator, "classes_", None))
    screen.columns(*score_table(recipe.targets, {"": values}), always=True)


def describe_model(path: Path, screen: Screen) -> None:
    """Print what a model file holds."""
    estimator = load(path)
    history = estimator.history_
    notes: dict[str, Any] = getattr(estimator, "notes_", None) or {}
    facts = [
        ("file", f"{path} ({path.stat().st_size / 1e6:.2g} MB)"),
        ("estimator", type(estimator).__name__),
        ("model" if is_mean(estimator) else "sequence", model_words(estimator)),
    ]
    if notes:
        recipe = Recipe.from_json(notes.get("recipe"))
        facts += [
            ("predicts", ", ".join(recipe.targets)),
            ("from", ", ".join(recipe.features)),
            ("trained on", f"{notes.get('rows')} rows of {notes.get('file')}"),
        ]
    else:
        facts.append(("features", str(estimator.n_features_in_)))
    chosen = chosen_options(estimator).items()
    facts.append(("options", ", ".join(f"{name}={value}" for name, value in chosen) or "defaults"))
    if warps := _chosen_warps(estimator):
        facts.append(("warps", warps))
    facts += _mean_facts(estimator) if is_mean(estimator) else _flow_facts(estimator)
    if hasattr(estimator, "conformity_scores_"):
        facts.append(
            ("intervals", f"from errors on {len(estimator.conformity_scores_)} other rows")
        )
    screen.facts(facts)
    if is_mean(estimator):
        screen.say("")
        screen.columns(*candidate_table(estimator), always=True)
        screen.say("")
        screen.facts([("pictures show", shown_words(estimator)), *_flow_facts(estimator)[:-1]])
    screen.say("")
    screen.columns(*_modules(estimator), always=True)
    if len(history["round"]):
        screen.say("")
        screen.columns(*_rounds(history), always=True)
    if len(getattr(estimator, "noise_path_", [])):
        screen.say("")
        screen.columns(*_noise_path(estimator), always=True)


def _chosen_warps(estimator: Any) -> str:
    """The warps that were chosen in place of "auto"; those of a best fit are its members'."""
    if getattr(estimator, "preset", None) == "best":
        return ""
    names = (n for n in ("input_warp", "response_warp") if getattr(estimator, n, None) == "auto")
    return ", ".join(f"{name}={getattr(estimator, name + '_')}" for name in names)


def _flow_facts(estimator: Any) -> list[tuple[str, str]]:
    """The training of the flow that ``model_`` holds."""
    return [
        ("noise", f"{estimator.noise_:.4g}"),
        ("parameters", str(estimator.model_.sequence.n_parameters)),
        ("iterations", f"{estimator.n_iter_}, with {estimator.n_evaluations_} evaluations"),
        ("training", estimator.status_),
    ]


def _mean_facts(estimator: Any) -> list[tuple[str, str]]:
    """What a mean of models costs to keep, to predict with and to train."""
    n_numbers, n_pairs = size_of(estimator)
    facts = [
        ("size", f"{n_numbers} numbers"),
        ("prediction", f"{n_pairs} kernel evaluations a row"),
        ("training", estimator.status_),
    ]
    seconds = getattr(estimator, "selection_", {}).get("seconds")
    return facts if seconds is None else [*facts, ("", f"{seconds:.3g} seconds")]


def _modules(estimator: Any) -> tuple[list[str], list[list[str]]]:
    """The modules, the deformation cost of each D module, and the gradient left in each block."""
    kept = [getattr(estimator, name, {}) for name in ("distance_", "stationarity_")]
    rows = []
    for module in estimator.model_.sequence.modules:
        kernel = getattr(module, "kernel", None)
        rows.append(
            [
                module.name,
                f"{module.d_in} -> {module.d_out}",
                "" if kernel is None else str(kernel),
                str(getattr(module, "n_steps", "")),
                str(getattr(module, "n_controls", "")),
                f"{module.ridge:g}" if kernel is None else "",
                str(module.n_parameters),
                *(f"{of[module.name]:.4g}" if module.name in of else "" for of in kept),
            ]
        )
    header = ["module", "dimensions", "kernel", "steps", "control points", "ridge", "numbers"]
    return [*header, "distance", "gradient"], rows


def _noise_path(estimator: Any) -> tuple[list[str], list[list[str]]]:
    """What ``noise="cv"`` tried: errors in standard deviations of the response."""
    path, chosen = estimator.noise_path_, _chosen_step(estimator)
    header = ["kernel order", "ridge", "times the noise", "error held out", "evaluations"]
    return [*header, "times the widths", ""], [
        [
            f"{order:g}",
            f"{ridge:g}" if ridge == last else f"{ridge:g}, last {last:g}",
            f"{multiple:g}",
            f"{error**0.5:.4g}",
            f"{evaluations:g}",
            f"{widths:g}",
            "chosen" if i == chosen else "",
        ]
        for i, (order, ridge, multiple, error, evaluations, widths, last) in enumerate(path)
    ]


def _chosen_step(estimator: Any) -> int:
    """The step with the least error among those with the model's kernel order, ridge and widths."""
    path: Array = estimator.noise_path_
    sequence = estimator.model_.sequence
    kernels = [diffeo.kernel for diffeo in sequence.diffeos]
    of_model = {
        0: [getattr(kernel, "order", np.nan) for kernel in kernels],
        1: [affine.ridge for affine in sequence.affines[:1]],
        5: [2 * kernel.width for kernel in kernels],  # widths of a word have the mean 1/2
        6: [affine.ridge for affine in sequence.affines[-1:]],
    }
    errors = path[:, 3].copy()
    for column, values in of_model.items():
        alike = np.isclose(path[:, column], np.mean(values or [np.nan]))
        if alike.any():
            errors[~alike] = np.inf
    return int(np.argmin(errors))


def _rounds(history: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The last iteration of each round of training."""
    header = ["round", "iterations", "sigma", "objective", "training RMSE", "seconds"]
    last = np.flatnonzero(np.append(np.diff(history["round"]) > 0, True))
    columns = ("round", "iteration", "sigma", "objective", "rmse", "seconds")
    return header, [[f"{history[name][i]:.5g}" for name in columns] for i in last]
