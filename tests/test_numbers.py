"""Numbers of every size and kind: finite fits, the same in other units, inputs left alone."""

from __future__ import annotations

import numpy as np
import pytest
from _oracles import one_thread  # noqa: F401

from finemorphs import FineMorphsClassifier, FineMorphsRegressor


def data(n=40, seed=0):
    """Little noise, so that the noise level falls over several rounds."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, np.sin(X[:, 0]) + X[:, 1]


def model(**options):
    fixed = {"n_steps": 2, "max_iter": 8, "random_state": 0}
    return FineMorphsRegressor(**{**fixed, **options})


@pytest.fixture(scope="module")
def plain():
    X, y = data()
    fitted = model().fit(X, y)
    assert fitted.history_["round"][-1] > 2
    return fitted


# --- other units --------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e-12, 1e12, 2.0**-300, 2.0**300])
@pytest.mark.parametrize("of", ["X", "y", "both"])
def test_the_units_do_not_matter(plain, factor, of):
    X, y = data()
    a, b = (1 if of == "y" else factor), (1 if of == "X" else factor)
    fitted = model().fit(X * a, y * b)
    np.testing.assert_allclose(fitted.predict(X * a) / b, plain.predict(X), rtol=0, atol=1e-6)
    assert fitted.noise_ == pytest.approx(plain.noise_, rel=1e-12)
    assert fitted.objective_ == pytest.approx(plain.objective_, rel=1e-6)


@pytest.mark.parametrize("shift", [1e9, -1e9])
@pytest.mark.parametrize("of", ["X", "y"])
def test_the_origin_does_not_matter(shift, of):
    """Up to the digits that numbers near 1e9 have, and what the optimiser makes of them."""
    X, y = data()
    options = {"tol": 1e-9, "max_iter": 500, "dtype": "float64", "noise": 0.5}
    whole = model(**options).fit(X, y)
    a, b = (shift, 0.0) if of == "X" else (0.0, shift)
    fitted = model(**options).fit(X + a, y + b)
    np.testing.assert_allclose(fitted.predict(X + a) - b, whole.predict(X), atol=1e-3)
    assert fitted.objective_ == pytest.approx(whole.objective_, rel=1e-6)


@pytest.mark.parametrize("factor", [1e-12, 1e12])
def test_a_classifier_does_not_care_either(factor):
    X, y = data()
    options = {"n_steps": 2, "max_iter": 10, "random_state": 0}
    one = FineMorphsClassifier(**options).fit(X, y > 0).predict_proba(X)
    other = FineMorphsClassifier(**options).fit(X * factor, y > 0).predict_proba(X * factor)
    np.testing.assert_allclose(one, other, atol=1e-6)


# --- columns and rows that say little -----------------------------------------------------


COLUMNS = {
    "repeated": lambda X: np.column_stack([X, X, X[:, 0]]),
    "collinear": lambda X: np.column_stack([X, X @ [1.0, 2.0], X @ [1e6, -3.0]]),
    "constant": lambda X: np.column_stack([X, np.full(len(X), 1e9), np.zeros(len(X))]),
    "almost constant": lambda X: np.column_stack([X, 1e9 + 1e-6 * X[:, 0]]),
    "of very different sizes": lambda X: X * [1e-12, 1e12],
    "subnormal": lambda X: np.column_stack([X, X[:, 0] * 1e-310]),
    "all constant": lambda X: np.ones_like(X),
}


@pytest.mark.parametrize("make", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("ridge", [1.0, 0.0])
def test_poor_columns(make, ridge):
    X, y = data()
    X = make(X)
    fitted = model(ridge=ridge).fit(X, y)
    predictions = fitted.predict(X)
    assert np.isfinite(predictions).all()
    assert np.isfinite(fitted.history_["objective"]).all()
    assert np.sqrt(np.mean((predictions - y) ** 2)) < 1.05 * y.std()


def test_rows_repeated_many_times_are_a_weight(plain):
    X, y = data()
    repeated = model().fit(np.tile(X, (200, 1)), np.tile(y, 200))
    weighted = model().fit(X, y, sample_weight=np.full(len(y), 200.0))
    np.testing.assert_array_equal(repeated.predict(X), weighted.predict(X))
    assert np.isfinite(repeated.predict(X)).all()


def test_one_row_many_times():
    fitted = model().fit(np.ones((50, 2)), np.full(50, 3.0))
    np.testing.assert_allclose(fitted.predict(np.ones((2, 2))), 3.0, rtol=1e-6)


@pytest.mark.parametrize("of", ["X", "y"])
@pytest.mark.parametrize("options", [{}, {"loss": "huber"}, {"subset_size": 10}])
def test_one_outlier_at_a_million_standard_deviations(of, options):
    X, y = data()
    (X[:, 0] if of == "X" else y)[7] = 1e6
    fitted = model(**options).fit(X, y)
    assert np.isfinite(fitted.predict(X)).all()
    assert np.isfinite(fitted.history_["objective"]).all()
    far = fitted.predict([[1e9, -1e9], [1e100, 1e100]])
    assert np.isfinite(far).all()


# --- kinds of array -----------------------------------------------------------------------


def readonly(array):
    array = array.copy()
    array.flags.writeable = False
    return array


KINDS = {
    "fortran": np.asfortranarray,
    "big-endian": lambda a: a.astype(">f8"),
    "float32": lambda a: a.astype(np.float32),
    "float16": lambda a: a.astype(np.float16),
    "long double": lambda a: a.astype(np.longdouble),
    "int8": lambda a: (a * 20).astype(np.int8),
    "big-endian int": lambda a: (a * 1000).astype(">i4"),
    "bool": lambda a: a > 0,
    "read-only": readonly,
    "every second": lambda a: np.repeat(a, 2, axis=0)[::2],
    "backwards": lambda a: a[::-1],
    "masked, nothing masked": np.ma.masked_array,
    "object": lambda a: a.astype(object),
    "list": lambda a: a.tolist(),
    "matrix of one byte order in another": lambda a: np.asfortranarray(a.astype(">f4")),
}


@pytest.mark.parametrize("convert", KINDS.values(), ids=KINDS)
def test_every_kind_of_array_is_its_numbers(convert):
    X, y = data()
    X, y = convert(X), convert(y)
    before = [np.array(X, copy=True), np.array(y, copy=True)]
    weights = convert(np.ones(len(y)))
    fitted = model(max_iter=4).fit(X, y, sample_weight=weights)
    predictions = fitted.predict(X)
    numbers = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    expected = model(max_iter=4).fit(*numbers, np.asarray(weights, dtype=np.float64))
    np.testing.assert_array_equal(predictions, expected.predict(numbers[0]))
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(y, before[1])


@pytest.mark.parametrize("of", ["X", "y", "sample_weight"])
def test_masked_values_are_refused(of):
    X, y = data()
    arguments = {"X": X, "y": y, "sample_weight": np.ones(len(y))}
    mask = np.zeros(arguments[of].shape, dtype=bool)
    mask[3:5] = True
    arguments[of] = np.ma.masked_array(arguments[of], mask)
    with pytest.raises(ValueError, match=rf"{of} is a masked array with \d masked values; fill"):
        model().fit(**arguments)


def test_masked_values_are_refused_in_predict(plain):
    X, _ = data()
    with pytest.raises(ValueError, match="X is a masked array with 1 masked values"):
        plain.predict(np.ma.masked_array(X, np.arange(X.size).reshape(X.shape) == 3))


# --- what no fit could do right by --------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (1e300, 1.0, "X reaches 9.*e.299.*other units"),
        (1.0, 1e300, "y reaches .*other units"),
        (1.0, 1e-200, "y has a standard deviation of .*e-201.*other units"),
    ],
)
def test_numbers_that_cannot_be_squared_are_refused(a, b, words):
    X, y = data()
    with pytest.raises(ValueError, match=words):
        model().fit(X * a, y * b)


def test_numbers_that_cannot_be_squared_are_refused_in_predict(plain):
    with pytest.raises(ValueError, match=r"X reaches 1\.7e.308"):
        plain.predict([[1.7e308, 0.0]])
