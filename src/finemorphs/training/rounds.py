"""Training: rounds of minimisation with a falling noise level (paper, Section 11).

    round 1:  sigma as estimated
    while the mean loss of the training rows is above its target, ten rounds at most:
              sigma <- sigma / 1.4, go on from where the parameters stand
    the last round runs to the fine tolerance

A round ends when G falls by less than ``tol`` of itself over one iteration, or by less than
1e-4 (the last round: 1e-8). With a fixed sigma there is one round. The decrease is a running mean
over some three iterations. With plain L-BFGS, whose steps are short, it is that of the last one, as
in the paper, and the share a hundredth of ``tol``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from finemorphs._typing import Array, Tensor
from finemorphs.exceptions import CheckpointError
from finemorphs.objective import Evaluation, Objective
from finemorphs.optim import History, Iteration, Past, minimize
from finemorphs.resources import resident, size_text
from finemorphs.training.checkpoint import Checkpoint
from finemorphs.training.history import Callback, Record
from finemorphs.training.state import Ended, State

__all__ = ["INTERRUPTED", "Settings", "Training", "train"]

INTERRUPTED = "Interrupted by the user."

_MAX_ROUNDS = 10
_SHRINK = 1.4
_COARSE, _FINE = 1e-4, 1e-8
_PLAIN = 0.01  # of tol, with plain L-BFGS
_SMOOTHING = 2 / 3  # of the decreases; the first steps at a new noise level are short


@dataclass(frozen=True)
class Settings:
    """How to train.

    ``target`` is the mean loss (units of y, squared) that ends the rounds; None: one round.
    ``response_scale`` holds the standard deviation of each response. Of responses that are warped,
    both are those behind the warp. ``max_time`` is in seconds from the call, ``max_memory`` in
    bytes beyond what the process held then.
    """

    sigma: float
    target: float | None
    natural: bool
    max_iter: int
    tol: float
    memory: int
    response_scale: Array
    max_time: float | None = None
    max_memory: int | None = None


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
    objective: Objective,
    theta: Tensor,
    settings: Settings,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | None = None,
) -> Training:
    """Minimise the objective from theta, lowering sigma by rounds until the target is met.

    A callback that returns True, and Ctrl-C, end training with the parameters reached. With a
    checkpoint that knows this training it goes on from there, or is not done again.
    """
    run = _Run(objective, theta, settings, tuple(callbacks), checkpoint)
    known = None if checkpoint is None else checkpoint.begin()
    if isinstance(known, Ended):
        return run.as_ended(known)
    if known is not None:
        run.restore(known)
    interrupted = False
    try:
        run.rounds()
    except KeyboardInterrupt:
        if run.evaluation is None:
            raise
        run.status, run.converged, interrupted = INTERRUPTED, False, True
        run.save_interrupted()
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
        checkpoint: Checkpoint | None,
    ) -> None:
        self.objective, self.theta, self.settings = objective, theta, settings
        self.callbacks, self.checkpoint = callbacks, checkpoint
        self.sigma = settings.sigma
        self.round = 1
        self.evaluation: Evaluation | None = None
        self.records: list[Record] = []
        self.n_evaluations = 0
        self.status = ""
        self.converged = False
        self._reached = settings.target is None
        self._history = History(settings.memory)
        self._past, self._n_before = Past(), 0
        # The history as it was at the end of the last iteration; see save_interrupted.
        self._whole_at = -1
        self._began = self._called = time.perf_counter()
        self._held = resident(theta.device) or 0

    def rounds(self) -> None:
        """All rounds, the last one to the fine tolerance."""
        target, sigma = self.settings.target, self.sigma
        while True:
            last = self._reached or self.round == _MAX_ROUNDS
            ended_early = self._minimize(sigma, _FINE if last else _COARSE)
            if ended_early:
                return
            if last:
                break
            assert target is not None
            self._reached = self._mean_loss() <= target
            if not self._reached:
                sigma /= _SHRINK
                self._history.clear()
            self.round += 1
            self._past, self._n_before = Past(), self.n_evaluations
            if self.checkpoint is not None:
                self.checkpoint.keep(self._state(sigma))
        if self.checkpoint is not None:
            self.checkpoint.end(
                Ended(
                    self.theta,
                    self.sigma,
                    self.records,
                    self.n_evaluations,
                    self.status,
                    self.converged,
                )
            )

    def _minimize(self, sigma: float, floor: float) -> bool:
        """Minimise at this sigma; True when a callback or the clock has ended training."""
        settings = self.settings
        stopped = False

        def evaluate(theta: Tensor) -> Evaluation:
            return self.objective.evaluate(theta, sigma, settings.natural)

        def record(iteration: Iteration[Evaluation]) -> str | None:
            nonlocal stopped
            self._keep(sigma, iteration.point, iteration.evaluation, iteration.n_evaluations)
            self._record()
            slopes = self._history.slopes(iteration.evaluation)
            self._past = Past(iteration.number, iteration.n_evaluations, iteration.judged, slopes)
            self._whole_at = self._history.n_changes
            status = self.objective.group.share(self._tell())
            stopped = status is not None
            if self.checkpoint is not None:
                if stopped:
                    self.checkpoint.pause(self._state(sigma))
                elif self.checkpoint.due:
                    self.checkpoint.keep(self._state(sigma))
            return status

        result = minimize(
            evaluate,
            self.theta,
            history=self._history,
            max_iter=settings.max_iter,
            relative_tolerance=settings.tol * (1.0 if settings.natural else _PLAIN),
            absolute_tolerance=floor if settings.tol > 0 else 0.0,
            smoothing=_SMOOTHING if settings.natural else 0.0,
            lower_bound=0.0,
            callback=record,
            past=self._past,
        )
        self._keep(sigma, result.point, result.evaluation, result.n_evaluations)
        self.status, self.converged = result.status, result.converged
        return stopped

    # --- states -----------------------------------------------------------------------------

    def _state(self, sigma: float) -> State:
        return State(
            self.theta,
            sigma,
            self.round,
            self._reached,
            self._past,
            self._n_before,
            self._history.state(),
            self.records,
            time.perf_counter() - self._began,
        )

    def restore(self, state: State) -> None:
        """Stand where the state was taken."""
        self.theta = self._like_theta(state.theta)
        self.sigma, self.round, self._reached = state.sigma, state.round, state.reached
        self._past, self._n_before = state.past, state.n_before
        self.n_evaluations = state.n_before + state.past.n_evaluations
        self.records = list(state.records)
        self._history.restore(state.history, self.theta)
        self._began -= state.seconds

    def as_ended(self, ended: Ended) -> Training:
        """A training that has ended before, with the objective evaluated again."""
        theta = self._like_theta(ended.theta)
        evaluation = self.objective.evaluate(theta, ended.sigma, self.settings.natural)
        return Training(
            theta,
            ended.sigma,
            evaluation,
            ended.records,
            ended.n_evaluations,
            ended.status,
            ended.converged,
            interrupted=False,
        )

    def save_interrupted(self) -> None:
        """Write the last iteration, if the interrupt did not come between two of its pairs."""
        if self.checkpoint is not None:
            whole = self._history.n_changes == self._whole_at
            self.checkpoint.pause(self._state(self.sigma) if whole else None)

    def _like_theta(self, theta: Tensor) -> Tensor:
        if theta.shape != self.theta.shape:
            raise CheckpointError(
                f"the checkpoint holds {len(theta)} parameters where this fit has "
                f"{len(self.theta)}; fit with resume=False."
            )
        return theta.to(self.theta)

    # --- records ----------------------------------------------------------------------------

    def _keep(self, sigma: float, theta: Tensor, evaluation: Evaluation, spent: int) -> None:
        """What has been reached; the three belong together. ``spent`` evaluations in this round."""
        self.sigma, self.theta, self.evaluation = sigma, theta, evaluation
        self.n_evaluations = self._n_before + spent

    def _record(self) -> None:
        """Note an iteration."""
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
            self._mean_error() ** 0.5,
            seconds,
        )
        self.records.append(record)

    def _tell(self) -> str | None:
        """Tell the callbacks of the last record; a sentence if training has to end."""
        record = self.records[-1]
        ended = [callback(record) is True for callback in self.callbacks]
        if any(ended):
            return "A callback ended the training."
        max_time = self.settings.max_time
        if max_time is not None and time.perf_counter() - self._called > max_time:
            return "The time limit was reached."
        max_memory = self.settings.max_memory
        if max_memory is not None and self._memory() > max_memory:
            return f"The memory limit of {size_text(max_memory)} was reached."
        return None

    def _memory(self) -> int:
        """Bytes that training has taken."""
        return (resident(self.theta.device) or 0) - self._held

    def _mean_error(self) -> float:
        """What the record shows: the mean of what the objective measures, or of the loss."""
        assert self.evaluation is not None
        if self.evaluation.measured is None:
            return self._mean_loss()
        return float(self.evaluation.measured.sum() / self.evaluation.mass)

    def _mean_loss(self) -> float:
        """Over the training rows, summed over the responses, in the units of y or its warp."""
        assert self.evaluation is not None
        losses = self.evaluation.losses.cpu().numpy()
        return float((losses * self.settings.response_scale**2).sum() / self.evaluation.mass)
