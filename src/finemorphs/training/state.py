"""The state of a training, and how one came out, as tensors and a header."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch

from finemorphs._typing import Tensor
from finemorphs.optim import Past
from finemorphs.training.history import Record, as_table

__all__ = ["Ended", "State"]


@dataclass(frozen=True)
class State:
    """A training at the end of an iteration, or between two rounds.

    Attributes
    ----------
    theta : Tensor
    sigma : float
        The noise level of the round.
    round : int
    reached : bool
        Whether the target is met, which makes this round the last.
    past : Past
        Of this round.
    n_before : int
        Evaluations of the rounds before.
    history : dict of Tensor
        The pairs of the optimiser.
    records : list of Record
    seconds : float
        Since the start of training.
    """

    theta: Tensor
    sigma: float
    round: int
    reached: bool
    past: Past
    n_before: int
    history: dict[str, Tensor]
    records: list[Record]
    seconds: float

    def put(self, tensors: dict[str, Tensor]) -> dict[str, Any]:
        """Add its tensors to those of a file, and give the rest for the header."""
        tensors["theta"] = self.theta
        tensors |= {f"history.{name}": tensor for name, tensor in self.history.items()}
        if self.past.slopes is not None:
            tensors["slopes"] = self.past.slopes
        _put_records(self.records, tensors, "records.")
        return {
            "sigma": self.sigma,
            "round": self.round,
            "reached": self.reached,
            "n_iterations": self.past.n_iterations,
            "n_evaluations": self.past.n_evaluations,
            "decrease": self.past.decrease,
            "n_before": self.n_before,
            "seconds": self.seconds,
        }

    @classmethod
    def get(cls, header: dict[str, Any], tensors: dict[str, Tensor]) -> State:
        """The state that :meth:`put` has written."""
        past = Past(
            int(header["n_iterations"]),
            int(header["n_evaluations"]),
            float(header["decrease"]),
            tensors.get("slopes"),
        )
        return cls(
            tensors["theta"],
            float(header["sigma"]),
            int(header["round"]),
            bool(header["reached"]),
            past,
            int(header["n_before"]),
            {k.removeprefix("history."): t for k, t in tensors.items() if k.startswith("history.")},
            _get_records(tensors, "records."),
            float(header["seconds"]),
        )


@dataclass(frozen=True)
class Ended:
    """How a training came out."""

    theta: Tensor
    sigma: float
    records: list[Record]
    n_evaluations: int
    status: str
    converged: bool

    def put(self, tensors: dict[str, Tensor], prefix: str) -> dict[str, Any]:
        """Add its tensors to those of a file, and give the rest for the header."""
        tensors[prefix + "theta"] = self.theta
        _put_records(self.records, tensors, prefix)
        return {
            "sigma": self.sigma,
            "n_evaluations": self.n_evaluations,
            "status": self.status,
            "converged": self.converged,
        }

    @classmethod
    def get(cls, header: dict[str, Any], tensors: dict[str, Tensor], prefix: str) -> Ended:
        """What :meth:`put` has written."""
        return cls(
            tensors[prefix + "theta"],
            float(header["sigma"]),
            _get_records(tensors, prefix),
            int(header["n_evaluations"]),
            str(header["status"]),
            bool(header["converged"]),
        )


def _put_records(records: list[Record], tensors: dict[str, Tensor], prefix: str) -> None:
    for name, column in as_table(records).items():
        tensors[prefix + name] = torch.from_numpy(column)


def _get_records(tensors: dict[str, Tensor], prefix: str) -> list[Record]:
    columns = [tensors[prefix + f.name].tolist() for f in fields(Record)]
    return [Record(*row) for row in zip(*columns, strict=True)]
