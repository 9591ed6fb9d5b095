"""Estimators with scikit-learn's interface."""

from finemorphs.estimators.regressor import FineMorphsRegressor

__all__ = ["FineMorphsRegressor"]
