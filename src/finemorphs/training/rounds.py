"""Training: rounds of minimisation with a falling noise level (paper, Section 11).

    round 1:  sigma as estimated
    while the mean loss of the training rows is above its target, ten rounds at most:
              sigma <- sigma / 1.4, go on from where the parameters stand
    the last round runs to the fine tolerance

A round ends when G falls by less than ``tol`` of itself over one iteration, or by less than
1e-4 (the last round: 1e-8). With a fixed sigma there is one round.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from finemorphs._typing import Array, Tensor
from finemorphs.objective import Evaluation, Objective
from finemorphs.optim import History, Iteration, minimize
from finemorphs.training.history import Callback, Record

__all__ = ["Settings", "Training", "train"]

_MAX_ROUNDS = 10
_SHRINK = 1.4
_COARSE, _FINE = 1e-4, 1e-8


@dataclass(frozen=True)
class Settings:
    """How to train.

    ``target`` is the mean loss (units of y, squared) that ends the rounds; None: one round.
    ``response_scale`` holds the standard deviation of each response.
    """

    sigma: float
    target: float | None
    natural: bool
    max_iter: int
    tol: float
    memory: int
    response_scale: Array
    max_time: float | None = None


@dataclass(frozen=True)
class Training:
    """Where training ended: parameters, noise level, the objective there, and its record."""

    theta: Tensor
    sigma: float
    evaluation: Evaluation
    records: list[Record]
    n_evaluations: int
    status: str
    converged: bool
    interrupted: bool


def train(
    objective: Objective, theta: Tensor, settings: Settings, callbacks: Sequence[Callback] = ()
) -> Training:
    """Minimise the objective from theta, lowering sigma by rounds until the target is met.

    A callback that returns True, and Ctrl-C, end training with the parameters reached.
    """
    run = _Run(objective, theta, settings, tuple(callbacks))
    interrupted = False
    try:
        run.rounds()
    except KeyboardInterrupt:
        if run.evaluation is None:
            raise
        run.status, run.converged, interrupted = "Interrupted by the user.", False, True
    assert run.evaluation is not None
    return Training(
        run.theta,
        run.sigma,
        run.evaluation,
        run.records,
        run.n_evaluations,
        run.status,
        run.converged,
        interrupted,
    )


class _Run:
    """A training under way; every accepted step is kept, so that it can end at any moment."""

    def __init__(
        self,
        objective: Objective,
        theta: Tensor,
        settings: Settings,
        callbacks: tuple[Callback, ...],
    ) -> None:
        self.objective, self.theta, self.settings = objective, theta, settings
        self.callbacks = callbacks
        self.sigma = settings.sigma
        self.round = 0
        self.evaluation: Evaluation | None = None
        self.records: list[Record] = []
        self.n_evaluations = 0
        self.status = ""
        self.converged = False
        self._began = time.perf_counter()

    def rounds(self) -> None:
        """All rounds, the last one to the fine tolerance."""
        sigma, target = self.settings.sigma, self.settings.target
        history = History(self.settings.memory)
        reached = target is None
        for self.round in range(1, _MAX_ROUNDS + 1):
            last = reached or self.round == _MAX_ROUNDS
            ended_early = self._minimize(sigma, history, _FINE if last else _COARSE)
            if last or ended_early:
                return
            assert target is not None
            reached = self._mean_loss() <= target
            if not reached:
                sigma /= _SHRINK
                history.clear()

    def _minimize(self, sigma: float, history: History, floor: float) -> bool:
        """Minimise at this sigma; True when a callback or the clock has ended training."""
        settings, before = self.settings, self.n_evaluations
        stopped = False

        def evaluate(theta: Tensor) -> Evaluation:
            return self.objective.evaluate(theta, sigma, settings.natural)

        def record(iteration: Iteration[Evaluation]) -> str | None:
            nonlocal stopped
            self.n_evaluations = before + iteration.n_evaluations
            self._keep(sigma, iteration.point, iteration.evaluation)
            status = self._record()
            stopped = status is not None
            return status

        result = minimize(
            evaluate,
            self.theta,
            history=history,
            max_iter=settings.max_iter,
            relative_tolerance=settings.tol,
            absolute_tolerance=floor if settings.tol > 0 else 0.0,
            callback=record,
        )
        self.n_evaluations = before + result.n_evaluations
        self._keep(sigma, result.point, result.evaluation)
        self.status, self.converged = result.status, result.converged
        return stopped

    def _keep(self, sigma: float, theta: Tensor, evaluation: Evaluation) -> None:
        """What has been reached; the three belong together."""
        self.sigma, self.theta, self.evaluation = sigma, theta, evaluation

    def _record(self) -> str | None:
        """Note an iteration and tell the callbacks; a sentence if training has to end."""
        evaluation = self.evaluation
        assert evaluation is not None
        seconds = time.perf_counter() - self._began
        record = Record(
            self.round,
            len(self.records) + 1,
            self.n_evaluations,
            self.sigma,
            evaluation.value,
            evaluation.energy,
            evaluation.affine,
            evaluation.endpoint,
            self._mean_loss() ** 0.5,
            seconds,
        )
        self.records.append(record)
        ended = [callback(record) is True for callback in self.callbacks]
        if any(ended):
            return "A callback ended the training."
        max_time = self.settings.max_time
        if max_time is not None and seconds > max_time:
            return f"The time limit of {max_time:g} seconds was reached."
        return None

    def _mean_loss(self) -> float:
        """Over the training rows, summed over the responses, in the units of y."""
        assert self.evaluation is not None
        losses = self.evaluation.losses.cpu().numpy()
        return float((losses * self.settings.response_scale**2).sum() / self.evaluation.mass)
