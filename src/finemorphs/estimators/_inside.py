"""A look inside a fitted estimator: states, inverses, derivatives, volumes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from finemorphs._typing import Array, ArrayLike
from finemorphs.engines import Engine, choose_engine
from finemorphs.estimators._members import Member, average
from finemorphs.estimators._model import Model
from finemorphs.estimators._numbers import check_range, refuse_masked

__all__ = ["Inside"]

_INVERSES = {"exact": True, "reverse": False}
_PREIMAGES = {None: False, "least-norm": True}


class Inside(TransformerMixin):
    """The methods of an estimator with a ``model_`` that show what its modules do.

    Derivatives and inverses are those of the discrete map, computed in double precision on
    the CPU whatever the engine is.
    """

    model_: Model
    members_: tuple[Member, ...]
    sequence_: str
    engine: str
    device: str

    def transform(self, X: ArrayLike) -> Array:
        """States that leave the last D module, of shape (n_samples, d).

        A data frame after ``set_output(transform="pandas")``, with the names of
        ``get_feature_names_out``.
        """
        X, engine, device = self._ready(X)
        self._check_diffeos()
        return self.model_.transform(X, engine, device)

    def inverse_transform(
        self, Z: ArrayLike, *, method: str = "exact", preimage: str | None = None
    ) -> Array:
        """Back from the states that leave the last D module to the inputs.

        Parameters
        ----------
        Z : array-like of shape (n_samples, d)
            States such as :meth:`transform` gives.
        method : {"exact", "reverse"}, default="exact"
            How a D module is inverted. "exact" solves every Euler step by fixed-point iteration:
            ``inverse_transform(transform(X))`` is X up to rounding, about 1e-12 of its spread
            times the condition of the A modules. "reverse" runs the flow backwards with the
            same steps: cheaper, with an error that falls as 1 / n_steps, but times that
            condition: where training has shrunk a direction in an A module, it is large.
        preimage : {"least-norm"} or None, default=None
            What to give where an A module loses dimensions, so that many inputs have one image:
            the shortest, in standardised units; or an error that names the module.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            In the units of the data. What the dummy columns would hold is left out.
        """
        check_is_fitted(self)
        self._check_diffeos()
        exact = _choice("method", method, _INVERSES)
        least_norm = _choice("preimage", preimage, _PREIMAGES)
        Z = check_array(Z, dtype=np.float64, input_name="Z")
        width = self.model_.sequence.diffeos[-1].dim
        if Z.shape[1] != width:
            raise ValueError(
                f"Z has {Z.shape[1]} columns, but the states that leave the last D module of "
                f"{self.sequence_!r} have {width}; give what transform gives."
            )
        return self.model_.inverse_transform(Z, exact, least_norm)

    def trajectory(self, X: ArrayLike) -> list[tuple[str, float, Array]]:
        """Every state on the way: a list of (name of the module, time, array (n_samples, d)).

        The first entry is ("X", 0.0, the standardised, padded rows). An A module has one entry,
        at time 1; a D module one for each of the times 0, 1/T, .., 1.
        """
        X, engine, device = self._ready(X)
        return self.model_.trajectory(X, engine, device)

    def jacobian(self, X: ArrayLike) -> Array:
        """Derivatives of the prediction by the inputs, in the units of the data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features) or (n_samples, n_responses, n_features)
            As y was in ``fit``; of a classifier the derivatives of the outputs, one a class.
        """
        X, _, _ = self._ready(X)
        slopes = average(self.members_, lambda model: model.jacobian(X))
        return slopes[:, 0] if getattr(self, "_n_response_axes", 2) == 1 else slopes

    def log_det(self, X: ArrayLike) -> Array:
        """``log |det d phi_q|`` at the states of the rows, (n_samples, number of D modules).

        Above 0 the D module spreads its surroundings out, below 0 it draws them together.
        """
        X, _, _ = self._ready(X)
        return self.model_.log_determinants(X)

    def sensitivity(self, X: ArrayLike) -> dict[str, Array]:
        """How the prediction depends on each feature over the rows of a table.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        dict of ndarray
            Columns of a table, one row a feature: "feature" the name, "mean" the mean of the
            derivative, "rms" its root mean square, and "effect" rms times the standard deviation
            of the feature over that of the prediction, both over these rows. With several
            responses there is a row for each response and feature, and a column "response".
            ``pandas.DataFrame`` takes it as it is.
        """
        X, engine, device = self._ready(X)
        slopes = average(self.members_, lambda model: model.jacobian(X))
        responses = average(self.members_, lambda model: model.predict(X, engine, device))
        spread = responses.std(0)[:, None]
        rms = np.sqrt((slopes**2).mean(0))
        effect = np.divide(rms * X.std(0), spread, out=np.zeros_like(rms), where=spread > 0)
        n_responses, n_features = rms.shape
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(n_features)])
        table = {
            "feature": np.tile(np.array(names, dtype=object), n_responses),
            "mean": slopes.mean(0).ravel(),
            "rms": rms.ravel(),
            "effect": effect.ravel(),
        }
        if n_responses > 1:
            labels = getattr(self, "classes_", np.arange(n_responses))
            table = {"response": np.repeat(labels, n_features), **table}
        return table

    def _ready(self, X: ArrayLike) -> tuple[Array, Engine, torch.device]:
        check_is_fitted(self)
        refuse_masked(X=X)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        check_range("X", X)
        return X, *choose_engine(self.engine, self.device)

    def _check_diffeos(self) -> None:
        if not self.model_.sequence.diffeos:
            raise ValueError(
                f"the sequence {self.sequence_!r} has no D module whose states could be given; "
                "use a sequence such as 'ADA'."
            )


def _choice(name: str, value: Any, choices: dict[Any, bool]) -> bool:
    if value not in choices:
        options = " or ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r} is not known; use {options}.")
    return choices[value]
