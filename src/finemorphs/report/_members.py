"""What a model is made of: its members, what they were chosen from, what they cost.

The pictures of an estimator show one flow, ``model_``. What predicts may be more than it, or
something else: several members, among which kernel regressions have no flow to show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

__all__ = ["candidate_table", "choice_words", "is_mean", "model_words", "shown_words", "size_of"]


def is_mean(estimator: Any) -> bool:
    """Whether more than the flow of the pictures predicts, or something else."""
    members = estimator.members_
    return len(members) > 1 or members[0].model is not estimator.model_


def model_words(estimator: Any) -> str:
    """The members by their kinds: "ADA", "a mean of 5 fits of AD^4A and 2 kernel regressions"."""
    models = [member.model for member in estimator.members_]
    flows = Counter(model.sequence.notation for model in models if hasattr(model, "sequence"))
    parts = [name if n == 1 else f"{n} fits of {name}" for name, n in flows.items()]
    n_kernels = len(models) - flows.total()
    if n_kernels:
        parts.append("kernel regression" if n_kernels == 1 else f"{n_kernels} kernel regressions")
    words = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    return words if len(models) == 1 else f"a mean of {words}"


def shown_words(estimator: Any) -> str:
    """The flow of the pictures, and what it counts for in the prediction."""
    for member in estimator.members_:
        if member.model is estimator.model_:
            return f"{member.name}, with a weight of {member.weight:.3g} in the prediction"
    return f"{estimator.sequence_}, which was tried but has no weight in the prediction"


def size_of(estimator: Any) -> tuple[int, int]:
    """Numbers that the model holds, and kernel evaluations that the prediction of a row takes."""
    models = [member.model for member in estimator.members_]
    return sum(m.n_numbers for m in models), sum(m.n_pairs for m in models)


def choice_words(estimator: Any) -> str:
    """How the members were chosen, if they were."""
    selection = getattr(estimator, "selection_", {})
    if "folds" not in selection:
        return ""
    seconds = f"{selection['seconds']:.3g} seconds" if "seconds" in selection else "an unknown time"
    return (
        f"Chosen in {seconds} by the errors on held-out rows of {selection['folds']} folds; the "
        "error of a candidate that was left earlier is over the rows of fewer folds, and so is "
        "that of a mean with such a part."
    )


def candidate_table(estimator: Any) -> tuple[list[str], list[list[str]]]:
    """A header, and a line for each candidate and their mean; of members without a choice, too."""
    selection = getattr(estimator, "selection_", {})
    if "candidates" not in selection:
        return ["model", "weight"], [[m.name, f"{m.weight:.3g}"] for m in estimator.members_]
    n_folds = selection.get("folds", "?")
    rows = [
        [
            candidate["name"],
            _errors(candidate["rmse"]),
            f"{candidate['weight']:.3g}" if "weight" in candidate else "rejected",
            f"{candidate['folds']} of {n_folds}" if "folds" in candidate else "",
        ]
        for candidate in [*selection["candidates"], *selection.get("rejected", [])]
    ]
    of_mean = f"{selection.get('folds_of_mean', n_folds)} of {n_folds}"
    mean = ["their weighted mean", _errors(selection["rmse"]), "1", of_mean]
    return ["candidate", "RMSE held out", "weight", "folds"], [*rows, mean]


def _errors(values: Sequence[float]) -> str:
    """Of each response."""
    return ", ".join(f"{value:.4g}" for value in values)
