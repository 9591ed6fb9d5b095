"""Regression by sequences of affine and diffeomorphic maps, trained as optimal control.

Names are imported when they are first used, so that ``import finemorphs`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from finemorphs._version import __version__

if TYPE_CHECKING:
    from finemorphs.estimators import FineMorphsClassifier, FineMorphsRegressor
    from finemorphs.persistence import load

__all__ = ["FineMorphsClassifier", "FineMorphsRegressor", "__version__", "load"]

_HOMES = {
    "FineMorphsClassifier": "finemorphs.estimators",
    "FineMorphsRegressor": "finemorphs.estimators",
    "load": "finemorphs.persistence",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'finemorphs' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
