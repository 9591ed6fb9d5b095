"""Other regressors for tables, each tuned inside the training split with the same budget.

The budget is 20 random settings of the space below, the first one being the library's own
default, judged by the mean squared error of three-fold cross-validation, or of one fifth held
out where there are more than 5000 training rows; the best setting is fitted to all of them.
xRFM needs validation rows in its own fit and always holds out one fifth. The Gaussian process
has no search: its kernel is fitted by the marginal likelihood.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from numbers import Integral
from typing import Any

import joblib
import numpy as np
from scipy.stats import loguniform, randint, uniform
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.model_selection import (
    KFold,
    ParameterSampler,
    ShuffleSplit,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from finemorphs._typing import Array, ArrayLike

__all__ = ["PEERS", "TunedRegressor", "XRFMRegressor", "check_candidates", "make_peer"]

PEERS = ("XGBoost", "LightGBM", "CatBoost", "GP", "xRFM")

_FOLD_ROWS = 5000
_SPACES: dict[str, dict[str, Any]] = {
    "XGBoost": {
        "n_estimators": randint(200, 2000),
        "learning_rate": loguniform(0.01, 0.3),
        "max_depth": randint(3, 11),
        "min_child_weight": loguniform(1, 20),
        "subsample": uniform(0.5, 0.5),
        "colsample_bytree": uniform(0.5, 0.5),
        "reg_lambda": loguniform(0.1, 10),
    },
    "LightGBM": {
        "n_estimators": randint(200, 2000),
        "learning_rate": loguniform(0.01, 0.3),
        "num_leaves": randint(7, 128),
        "min_child_samples": randint(3, 40),
        "subsample": uniform(0.5, 0.5),
        "subsample_freq": [1],
        "colsample_bytree": uniform(0.5, 0.5),
        "reg_lambda": loguniform(1e-3, 10),
    },
    "CatBoost": {
        "iterations": randint(300, 2000),
        "learning_rate": loguniform(0.01, 0.3),
        "depth": randint(4, 9),
        "l2_leaf_reg": loguniform(1, 10),
    },
    "xRFM": {
        "bandwidth": loguniform(1, 100),
        "exponent": uniform(0.7, 0.7),
        "reg": loguniform(1e-6, 1),
    },
}


class TunedRegressor(RegressorMixin, BaseEstimator):
    """A regressor whose setting is chosen by random search inside the training rows.

    Parameters
    ----------
    estimator : regressor
        With its own defaults, the first candidate.
    space : dict
        Distributions of its parameters.
    n_candidates : int, default=20
    random_state : int, default=0
    """

    def __init__(
        self,
        estimator: Any,
        space: Mapping[str, Any],
        *,
        n_candidates: int = 20,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.space = space
        self.n_candidates = n_candidates
        self.random_state = random_state

    def fit(self, X: Array, y: Array) -> TunedRegressor:
        """Search, then fit the best setting to all rows."""
        check_candidates(self.n_candidates)
        seed = self.random_state
        folds = (
            KFold(3, shuffle=True, random_state=seed)
            if len(X) <= _FOLD_ROWS
            else ShuffleSplit(1, test_size=0.2, random_state=seed)
        )
        candidates = [{}, *ParameterSampler(self.space, self.n_candidates - 1, random_state=seed)]
        scores = [
            cross_val_score(
                clone(self.estimator).set_params(**candidate),
                X,
                y,
                cv=folds,
                scoring="neg_mean_squared_error",
            ).mean()
            for candidate in candidates
        ]
        self.best_params_ = candidates[int(np.argmax(scores))]
        self.best_estimator_ = clone(self.estimator).set_params(**self.best_params_).fit(X, y)
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Responses for the rows of a table."""
        return np.asarray(self.best_estimator_.predict(X), dtype=np.float64).ravel()


class XRFMRegressor(RegressorMixin, BaseEstimator):
    """Recursive feature machines, their kernel chosen by random search on held-out rows.

    Parameters
    ----------
    n_candidates : int, default=20
    device : str, default="cpu"
    random_state : int, default=0
    """

    def __init__(
        self, *, n_candidates: int = 20, device: str = "cpu", random_state: int = 0
    ) -> None:
        self.n_candidates = n_candidates
        self.device = device
        self.random_state = random_state

    def fit(self, X: Array, y: Array) -> XRFMRegressor:
        """Search on one fifth held out; the best machine is kept."""
        check_candidates(self.n_candidates)
        package = _import("xrfm")
        seed = self.random_state
        self._x, self._y = StandardScaler().fit(X), StandardScaler().fit(y[:, None])
        parts = train_test_split(
            self._x.transform(X).astype(np.float32),
            self._y.transform(y[:, None]).astype(np.float32),
            test_size=0.2,
            random_state=seed,
        )
        x, x_held, z, z_held = parts
        best = np.inf
        for draw in ParameterSampler(_SPACES["xRFM"], self.n_candidates, random_state=seed):
            model = {"kernel": "l2", "bandwidth": draw["bandwidth"], "exponent": draw["exponent"]}
            params = {
                "model": {**model, "diag": False, "bandwidth_mode": "constant"},
                "fit": {"reg": draw["reg"], "iters": 5, "verbose": False, "early_stop_rfm": True},
            }
            machine = package.xRFM(
                params, device=self.device, tuning_metric="mse", random_state=seed, verbose=False
            )
            machine.fit(x, z, x_held, z_held)
            error = float(np.mean((np.asarray(machine.predict(x_held)) - z_held) ** 2))
            if error < best:
                best, self.model_, self.best_params_ = error, machine, draw
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Responses for the rows of a table."""
        outputs = self.model_.predict(self._x.transform(X).astype(np.float32))
        responses: Array = self._y.inverse_transform(np.asarray(outputs, dtype=np.float64))
        return responses.ravel()


def check_candidates(n: object) -> None:
    """Refuse a search over no setting."""
    if not isinstance(n, Integral) or n < 1:
        raise ValueError(f"n_candidates is {n!r}, and a search needs a setting; give 1 or more.")


def make_peer(name: str, n_features: int, seed: int, device: str = "cpu") -> Any:
    """A fresh peer; what it needs is imported here (``finemorphs[peers]``)."""
    if name == "GP":
        return _gaussian_process(n_features, seed)
    if name == "xRFM":
        _import("xrfm")
        return XRFMRegressor(device=device, random_state=seed)
    threads = int(os.environ.get("OMP_NUM_THREADS", joblib.cpu_count()))
    if name == "XGBoost":
        estimator = _import("xgboost").XGBRegressor(n_jobs=threads, random_state=seed)
    elif name == "LightGBM":
        estimator = _import("lightgbm").LGBMRegressor(
            n_jobs=threads, random_state=seed, verbosity=-1
        )
    else:
        estimator = _import("catboost").CatBoostRegressor(
            thread_count=threads, random_seed=seed, verbose=False, allow_writing_files=False
        )
    return TunedRegressor(estimator, _SPACES[name], random_state=seed)


def _gaussian_process(n_features: int, seed: int) -> Any:
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * Matern(
        np.ones(n_features), (1e-2, 1e4), nu=2.5
    ) + WhiteKernel(0.1, (1e-7, 10))
    process = GaussianProcessRegressor(kernel, n_restarts_optimizer=1, random_state=seed)
    return TransformedTargetRegressor(
        make_pipeline(StandardScaler(), process), transformer=StandardScaler()
    )


def _import(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(
            f"the peers need {package}, which cannot be imported ({error}); "
            "pip install finemorphs[peers]."
        ) from error
