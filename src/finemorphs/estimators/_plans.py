"""How a regressor is trained: once, or several times to choose and to average.

preset, then warps, then members, then the noise level: each choice is made by twins of the
estimator, which differ from it in that one parameter and are trained on the rest of the plan.
"""

from __future__ import annotations

import inspect
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from finemorphs._typing import Array
from finemorphs.distributed import ALONE
from finemorphs.estimators._base import BaseFineMorphs
from finemorphs.estimators._noise_choice import MANY, choose_noise
from finemorphs.estimators._parameters import generator
from finemorphs.estimators._path import Clock, EndedError, stop_reason
from finemorphs.estimators._resume import open_checkpoint
from finemorphs.estimators._selection import choose_warps, fit_members
from finemorphs.estimators.best import fit_best
from finemorphs.training import Progress

if TYPE_CHECKING:
    from finemorphs.estimators.regressor import FineMorphsRegressor
    from finemorphs.streams import Stream

__all__ = ["Plans"]

_PAPER = {"optimizer": "lbfgs", "noise": "paper", "tol": 1e-15}  # then the absolute ends apply

# Any of them given, "auto" is the estimate and its rounds at any number of rows.
_OF_ROUNDS = ("optimizer", "max_iter", "tol", "warm_start", "subset_size")

_IDLE = {
    "noise": "preset='best' finds the noise level itself; leave it out",
    "n_members": "preset='best' chooses its members itself; leave it out",
    "loss": "preset='best' has this loss in its flows alone; kernel regression has squared errors",
}

_CHOSEN = "Trained at the noise level and for the iterations that predict rows held out best."


class Plans(BaseFineMorphs):
    """Trainings of an estimator with ``preset``, warps, ``n_members`` and ``noise``."""

    def _learn(self, X: Array, y: Array, weights: Array) -> None:
        """Train as preset, warps, noise and members ask for, each choice made before the next."""
        rng = generator(self.random_state)
        if self.checkpoint is not None and not self._is_plain(len(X)):
            self._learn_with_checkpoint(X, y, weights, rng)
        elif self.preset == "best":
            self._warn_of_idle_options()
            fit_best(self, X, y, weights)
        elif self.preset == "paper":
            paper = {name: value for name, value in _PAPER.items() if self._is_default(name)}
            self._adopt(self._trained_twin(X, y, weights, preset=None, **paper))
        elif "auto" in (self.input_warp, self.response_warp):
            clock = Clock(self.max_time)
            try:
                with Progress(self.verbose) as progress:
                    warps = choose_warps(self, X, y, weights, rng, progress)
            except EndedError as ended:
                self._adopt(ended.fit)
                return
            self._adopt(self._trained_twin(X, y, weights, **warps, max_time=clock.left()))
        elif self.n_members > 1:
            fit_members(self, X, y, weights, rng)
        elif self._chooses_noise(len(X)):
            with Progress(self.verbose) as progress:
                fitted, self.noise_path_ = choose_noise(self, X, y, weights, rng, progress)
            self._adopt(fitted)
            if not stop_reason(fitted):
                self.status_, self.converged_ = _CHOSEN, True
        else:
            self._fit(X, y, weights)

    def _learn_with_checkpoint(
        self, X: Array, y: Array, weights: Array, rng: np.random.Generator
    ) -> None:
        """Several trainings with one checkpoint, all of whose draws come from one number."""
        data: dict[str, Array | Stream] = {"X": X, "y": y, "sample_weight": weights}
        checkpoint, rng = open_checkpoint(self, data, rng, ALONE)
        seed = int(rng.spawn(1)[0].integers(2**31))
        if isinstance(self.random_state, (int, np.integer)):
            seed = int(self.random_state)
        twin = self._twin(checkpoint=None, resume=False, random_state=seed)
        twin._shared_checkpoint = checkpoint
        twin._learn(X, y, weights)
        self._adopt(twin)

    def _warn_of_idle_options(self) -> None:
        """Say which of the given options ``preset="best"`` has no use for."""
        for name, reason in _IDLE.items():
            if not self._is_default(name):
                warnings.warn(f"{name}={getattr(self, name)!r}: {reason}.", stacklevel=4)

    def _is_plain(self, n_rows: int) -> bool:
        """Whether the fit is one training."""
        return (
            self.preset is None
            and self.n_members == 1
            and not self._chooses_noise(n_rows)
            and "auto" not in (self.input_warp, self.response_warp)
        )

    def _chooses_noise(self, n_rows: int) -> bool:
        """Whether rows held out choose the noise level; where there are many, "auto" does so too.

        Not where the user steers the rounds of the estimate, goes on from the last fit, or has a
        subset of control points, whose other rows may be too many to be read again and again.
        """
        if self.noise != "auto":
            return bool(self.noise == "cv")
        return n_rows >= MANY and all(map(self._is_default, _OF_ROUNDS))

    def _check_plain_fit(self) -> None:
        """Refuse, for streams, what reads the rows more often than a plain fit does."""
        plain = {"preset": None, "n_members": 1, "input_warp": "none", "response_warp": "none"}
        given = {name: getattr(self, name) for name in (*plain, "noise")}
        wrong = [name for name, value in plain.items() if given[name] != value]
        if wrong or given["noise"] == "cv":
            name = wrong[0] if wrong else "noise"
            raise ValueError(
                f"{name}={given[name]!r} needs the rows in memory, but they come as a stream; "
                "leave it at its default, or give arrays."
            )

    def _trained_twin(self, X: Array, y: Array, weights: Array, **changes: Any) -> Any:
        twin = self._twin(**changes)
        twin._learn(X, y, weights)
        return twin

    def _twin(self, **changes: Any) -> FineMorphsRegressor:
        """An estimator with the same parameters but for some, and the same open checkpoint."""
        twin = type(self)(**{**self.get_params(deep=False), **changes})
        twin._shared_checkpoint = self._shared_checkpoint
        return twin

    def _adopt(self, fitted: FineMorphsRegressor) -> None:
        """Take over what a twin has been fitted to."""
        kept = {"n_features_in_", "feature_names_in_"}
        for name, value in vars(fitted).items():
            if name.endswith("_") and name not in kept:
                setattr(self, name, value)

    def _is_default(self, name: str) -> bool:
        """Whether a parameter is left at its default."""
        default = inspect.signature(type(self)).parameters[name].default
        return bool(getattr(self, name) == default)
