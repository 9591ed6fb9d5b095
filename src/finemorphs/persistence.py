"""Reading model files: which estimator a file holds, and that estimator, fitted.

Writing is the method ``save`` of the estimators. The container is :mod:`finemorphs.storage`; its
content is described in :mod:`finemorphs.estimators._state`.
"""

from __future__ import annotations

import os

from finemorphs import storage
from finemorphs.estimators import FineMorphsClassifier, FineMorphsRegressor
from finemorphs.estimators._state import VERSION, restore
from finemorphs.exceptions import ModelFileError

__all__ = ["load"]

# What parts that do not fit together lead to.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RuntimeError, OverflowError)

_ESTIMATORS = {kind.__name__: kind for kind in (FineMorphsRegressor, FineMorphsClassifier)}


def load(path: str | os.PathLike[str]) -> FineMorphsRegressor | FineMorphsClassifier:
    """Read a model file.

    Parameters
    ----------
    path : path-like
        A file that ``save`` wrote.

    Returns
    -------
    FineMorphsRegressor or FineMorphsClassifier
        Fitted, with the same predictions to the bit on the same engine.

    Raises
    ------
    ModelFileError
        If the file is damaged, of another kind, or of a newer format.
    """
    name = os.fspath(path)
    tensors, header = storage.read(path, VERSION)
    kind = _ESTIMATORS.get(str(header.get("estimator")))
    if kind is None:
        raise ModelFileError(
            f"{name!r} holds a {header.get('estimator')!r:.60}, which this finemorphs does not "
            "know; install a newer finemorphs."
        )
    try:
        estimator: FineMorphsRegressor | FineMorphsClassifier = restore(kind, tensors, header)
    except _UNREADABLE as error:
        reason = str(error) if isinstance(error, ValueError) else repr(error)
        raise ModelFileError(
            f"{name!r} does not hold a whole model ({reason:.300}); save the model again."
        ) from error
    return estimator
