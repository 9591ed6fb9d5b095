"""Whether a stochastic first phase on mini-batches of rows pays: the held-out RMSE over time.

From one start, at one noise level: L-BFGS on all rows alone, and Adam on random batches (the
rows of a batch weighted to stand for all) for some epochs with L-BFGS behind it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from finemorphs.engines import Engine
from finemorphs.objective import Evaluation, Objective
from finemorphs.optim import History, minimize
from finemorphs.rows import Rows
from finemorphs.sequence import ModuleSequence

Curve = list[tuple[float, float]]  # seconds, held-out RMSE


class Race:
    """One problem, run through in several ways."""

    def __init__(
        self,
        sequence: ModuleSequence,
        engine: Engine,
        controls: Rows,
        others: Rows,
        held_out: Rows,
        sigma: float,
        block: int,
    ) -> None:
        self.sequence, self.engine, self.controls, self.others = sequence, engine, controls, others
        self.held_out, self.sigma = held_out, sigma
        self.whole = self._objective(others.blocks(block))
        start = sequence.start(np.random.default_rng(0))
        self.start = torch.as_tensor(start, dtype=torch.float32, device=others.inputs.device)

    def _objective(self, blocks: list[Rows]) -> Objective:
        controls = self.controls
        return Objective(
            self.sequence, self.engine, controls.inputs, controls.targets, others=blocks
        )

    def rmse(self, theta: torch.Tensor) -> float:
        centers = self.sequence.centers(self.engine, theta, self.controls.inputs)
        states = self.sequence.trajectory(self.engine, theta, centers, self.held_out.inputs)
        return float((states[-1] - self.held_out.targets).square().mean().sqrt())

    def run(self, epochs: float, batch: int, rate: float, max_seconds: float) -> Curve:
        """Adam for some epochs, then L-BFGS; the clock stops while errors are taken.

        On a CPU it is the processor's, which other programs do not disturb.
        """
        curve: Curve = []
        on_cpu = self.start.device.type == "cpu"
        clock = time.process_time if on_cpu else time.perf_counter
        begun, aside = clock(), 0.0

        def note(theta: torch.Tensor) -> bool:
            nonlocal aside
            now = clock()
            curve.append((now - begun - aside, self.rmse(theta)))
            aside += clock() - now
            return curve[-1][0] > max_seconds

        theta = self._adam(epochs, batch, rate, note) if epochs else self.start
        minimize(
            lambda t: self.whole.evaluate(t, self.sigma),
            theta,
            history=History(25),
            relative_tolerance=1e-6,
            callback=lambda i: "The time is over." if note(i.point) else None,
        )
        return curve

    def _adam(
        self, epochs: float, batch: int, rate: float, note: Callable[[torch.Tensor], bool]
    ) -> torch.Tensor:
        theta = self.start.clone()
        optimizer = torch.optim.Adam([theta], lr=rate)
        n = len(self.others)
        n_steps = round(epochs * n / batch)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_steps)
        generator = torch.Generator().manual_seed(0)
        for step in range(n_steps):
            rows = torch.randint(n, (batch,), generator=generator).to(theta.device)
            weights = torch.full((batch,), n / batch, device=theta.device)
            block = Rows(self.others.inputs[rows], self.others.targets[rows], weights)
            found: Evaluation = self._objective([block]).evaluate(theta, self.sigma, natural=False)
            theta.grad = found.gradient
            optimizer.step()
            schedule.step()
            if step % max(1, n_steps // 20) == 0 and note(theta):
                break
        return theta


def first_within(curve: Curve, goal: float) -> float | None:
    """Seconds until the held-out RMSE is as low as a goal."""
    return next((seconds for seconds, error in curve if error <= goal), None)
