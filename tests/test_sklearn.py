"""scikit-learn's own checks of an estimator."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from finemorphs import FineMorphsClassifier, FineMorphsRegressor


@parametrize_with_checks(
    [FineMorphsRegressor(random_state=0), FineMorphsClassifier(random_state=0)]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
