"""The numbers of the paper: its own, and the literature's of its appendix."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["PaperScore", "find_score", "load_paper", "rank"]


@dataclass(frozen=True)
class PaperScore:
    """Mean test RMSE of a model over the splits of a dataset, as printed.

    Attributes
    ----------
    model, dataset : str
    gap : bool
        Gap splits, not standard ones.
    mean, standard_error : float
        As printed; the standard error is None for a single split.
    decimals : int
        How many are printed.
    same_splits : bool
        False where the authors of the number made splits of their own (gray in the paper).
    table : str
        Where it is printed.
    precise_mean, precise_standard_error : float or None
        With more digits, where the source of the paper has them in comments.
    """

    model: str
    dataset: str
    gap: bool
    mean: float
    standard_error: float | None
    decimals: int
    same_splits: bool
    table: str
    precise_mean: float | None
    precise_standard_error: float | None

    def judge(self, mean: float) -> str:
        """Whether a mean is "better", "within" one standard error, or not ("no").

        Against a printed value the mean is rounded as it is.
        """
        if self.precise_mean is not None and self.precise_standard_error is not None:
            theirs, error = self.precise_mean, self.precise_standard_error
        else:
            mean = round(mean, self.decimals)
            theirs, error = self.mean, self.standard_error or 0.0
        if mean <= theirs:
            return "better"
        return "within" if mean <= theirs + error + 1e-12 else "no"

    def __str__(self) -> str:
        text = f"{self.mean:.{self.decimals}f}"
        if self.standard_error is None:
            return text
        return f"{text} ± {self.standard_error:.{self.decimals}f}"


@cache
def load_paper() -> tuple[PaperScore, ...]:
    """All rows of ``paper.csv``."""
    with files("finemorphs.benchmarks").joinpath("paper.csv").open(encoding="utf-8") as file:
        return tuple(_score(row) for row in csv.DictReader(file))


def _score(row: dict[str, str]) -> PaperScore:
    return PaperScore(
        row["model"],
        row["dataset"],
        row["splits"] == "gap",
        float(row["mean"]),
        _number(row["standard_error"]),
        len(row["mean"].partition(".")[2]),
        row["same_splits"] == "yes",
        row["table"],
        _number(row["precise_mean"]),
        _number(row["precise_standard_error"]),
    )


def _number(text: str) -> float | None:
    return float(text) if text else None


def find_score(model: str, dataset: str, gap: bool) -> PaperScore | None:
    """The paper's number for a row and a column, if it has one."""
    wanted = (model, dataset, gap)
    return next((s for s in load_paper() if (s.model, s.dataset, s.gap) == wanted), None)


def rank(
    model: str, dataset: str, gap: bool, mean: float, *, same_splits: bool = False
) -> tuple[int, int]:
    """Place of a mean among the paper's rows for a dataset, and how many there are with it.

    The paper's own row of the same model is left out. A mean is compared with a printed one
    rounded as that is, and shares the better place with its equals.
    """
    others = [
        score
        for score in load_paper()
        if (score.dataset, score.gap) == (dataset, gap)
        and score.model != model
        and (score.same_splits or not same_splits)
    ]
    return 1 + _n_lower(others, mean), 1 + len(others)


def _n_lower(scores: Sequence[PaperScore], mean: float) -> int:
    return sum(score.mean < round(mean, score.decimals) for score in scores)
