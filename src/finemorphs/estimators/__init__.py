"""Estimators with scikit-learn's interface."""

from finemorphs.estimators.classifier import FineMorphsClassifier
from finemorphs.estimators.regressor import FineMorphsRegressor

__all__ = ["FineMorphsClassifier", "FineMorphsRegressor"]
