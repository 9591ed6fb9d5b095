"""Regression by sequences of affine and diffeomorphic maps, trained as optimal control."""

from finemorphs._version import __version__
from finemorphs.estimators import FineMorphsRegressor
from finemorphs.persistence import load

__all__ = ["FineMorphsRegressor", "__version__", "load"]
