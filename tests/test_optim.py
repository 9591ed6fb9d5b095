"""L-BFGS with and without a metric, on functions whose answer is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from _oracles import (
    autograd,
    one_thread,  # noqa: F401
    two_loops,
)
from hypothesis import given
from hypothesis import strategies as st

from finemorphs.optim import History, Past, minimize
from finemorphs.optim.line_search import weak_wolfe


@dataclass(frozen=True)
class Point:
    """A function at a point; the metric is a constant matrix, or what a test makes of it."""

    value: float
    gradient: torch.Tensor
    natural: torch.Tensor | None = None

    def complete(self, vector, natural):
        return natural


@dataclass(frozen=True)
class Halved(Point):
    """A diagonal metric: carried on the first half, on the second applied to the gradient later."""

    metric: torch.Tensor | None = None

    def complete(self, vector, natural):
        half = len(natural) // 2
        return torch.cat([natural[:half], self.metric[half:] * vector[half:]])


def normal(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype)


def spread(n, seed=0, condition=100.0):
    """A symmetric matrix with eigenvalues between 1 and the condition number."""
    basis = torch.linalg.qr(normal(n, n, seed=seed)).Q
    return basis * torch.logspace(0, math.log10(condition), n).double() @ basis.T


def quadratic(matrix, center, metric=None):
    """(x - c)^T A (x - c) / 2."""

    def function(x):
        gradient = matrix @ (x - center)
        natural = None if metric is None else metric @ gradient
        return Point(float(0.5 * (x - center) @ gradient), gradient, natural)

    return function


def valley(x):
    """Rosenbrock's function, 0 at (1, ..., 1)."""
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def rosenbrock(x):
    return Point(float(valley(x)), autograd(valley, x)[0])


def run(function, start, memory=10, **options):
    """The result, the history at the end and every iteration."""
    iterations = []
    history = History(memory)

    def watch(iteration):
        iterations.append(iteration)

    result = minimize(function, start, history=history, callback=watch, **options)
    return result, history, iterations


# --- what it finds ------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [1, 5, 25])
@pytest.mark.parametrize("n", [1, 2, 20])
def test_quadratics(n, memory):
    center = normal(n)
    result, _, _ = run(quadratic(spread(n), center), torch.zeros(n).double(), memory, max_iter=300)
    torch.testing.assert_close(result.point, center, rtol=1e-6, atol=1e-6)
    assert result.value == result.evaluation.value
    assert result.gradient_norm == pytest.approx(float(result.evaluation.gradient.norm()))


def test_steepest_descent_is_what_no_memory_leaves():
    center = normal(4)
    function = quadratic(spread(4, condition=2.0), center)
    result, history, _ = run(function, torch.zeros(4).double(), memory=0, max_iter=300)
    torch.testing.assert_close(result.point, center, rtol=1e-4, atol=1e-4)
    assert len(history) == 0


@pytest.mark.parametrize("n", [2, 10])
def test_rosenbrock(n):
    start = torch.full((n,), -1.2, dtype=torch.float64)
    result, _, _ = run(rosenbrock, start, max_iter=500)
    gap = min((result.point - 1).norm(), (rosenbrock(result.point).gradient).norm())
    assert gap < 1e-6
    assert result.value < (1e-12 if n == 2 else 4.0)


def test_an_exact_metric_needs_one_step():
    """H0 the inverse Hessian: the first step, of length 1, is Newton's."""
    matrix, center = spread(15, condition=1e6), normal(15)
    function = quadratic(matrix, center, matrix.inverse())
    result, _, iterations = run(function, torch.zeros(15).double(), max_iter=1)
    torch.testing.assert_close(result.point, center, rtol=1e-8, atol=1e-8)
    assert (iterations[0].step, iterations[0].n_evaluations) == (1.0, 2)


def test_float32():
    center = normal(20, dtype=torch.float32)
    function = quadratic(spread(20).float(), center)
    result, _, _ = run(function, torch.zeros(20), max_iter=200)
    assert result.point.dtype == torch.float32
    torch.testing.assert_close(result.point, center, rtol=1e-3, atol=1e-3)


# --- the direction ------------------------------------------------------------------------


def filled_history(memory, n_pairs, n=8, metric=None, kind=Point):
    """A history of steps on a quadratic, and its pairs from the oldest to the newest."""
    matrix = spread(n)

    def function(x):
        gradient = matrix @ x
        if kind is Halved:
            natural = torch.cat([(metric @ gradient)[: n // 2], gradient[n // 2 :]])
            return Halved(0.0, gradient, natural, metric.diagonal())
        return Point(0.0, gradient, None if metric is None else metric @ gradient)

    history, pairs = History(memory), []
    old = normal(n, seed=99)
    for i in range(n_pairs):
        new = old + normal(n, seed=i)
        assert history.add(new - old, function(old), function(new))
        pairs.append((new - old, matrix @ (new - old)))
        old = new
    return history, pairs, function(old)


@pytest.mark.parametrize(("memory", "n_pairs"), [(1, 1), (5, 1), (5, 3), (5, 5), (5, 6), (5, 13)])
def test_direction_is_the_two_loop_recursion(memory, n_pairs):
    history, pairs, current = filled_history(memory, n_pairs)
    kept = pairs[-memory:]
    assert len(history) == len(kept)
    expected = two_loops(
        current.gradient, [s for s, _ in kept], [y for _, y in kept], metric=lambda v: v
    )
    torch.testing.assert_close(history.direction(current), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", [Point, Halved], ids=["carried", "half completed"])
@pytest.mark.parametrize(("memory", "n_pairs"), [(5, 1), (5, 4), (5, 13)])
def test_direction_with_a_metric_is_the_two_loop_recursion_from_it(memory, n_pairs, kind):
    metric = torch.diag(torch.linspace(0.1, 3, 8, dtype=torch.float64))
    if kind is Point:
        metric = spread(8, seed=5)
    history, pairs, current = filled_history(memory, n_pairs, metric=metric, kind=kind)
    kept = pairs[-memory:]
    expected = two_loops(
        current.gradient, [s for s, _ in kept], [y for _, y in kept], metric=lambda v: metric @ v
    )
    torch.testing.assert_close(history.direction(current), expected, rtol=1e-9, atol=1e-9)


def test_direction_satisfies_the_secant_equation():
    """H y = s for the newest pair: from the gradient y the direction is -s."""
    history, pairs, _ = filled_history(5, 9)
    s, y = pairs[-1]
    torch.testing.assert_close(history.direction(Point(0.0, y)), -s, rtol=1e-9, atol=1e-9)


def test_direction_without_pairs():
    g = normal(6)
    torch.testing.assert_close(History(5).direction(Point(0.0, g)), -g / g.norm())
    assert torch.equal(History(5).direction(Point(0.0, g, 3 * g)), -3 * g)
    assert not History(5).direction(Point(0.0, 0 * g)).any()


@given(seed=st.integers(0, 2**31), n_pairs=st.integers(0, 8))
def test_direction_descends(seed, n_pairs):
    history, _, _ = filled_history(4, n_pairs)
    gradient = normal(8, seed=seed)
    assert gradient @ history.direction(Point(0.0, gradient)) < 0


def test_history_forgets_and_begins_again():
    history, pairs, current = filled_history(3, 5)
    history.clear()
    assert len(history) == 0
    s, y = pairs[0]
    assert history.add(s, Point(0.0, 0 * y), Point(0.0, y))
    expected = two_loops(current.gradient, [s], [y], metric=lambda v: v)
    torch.testing.assert_close(history.direction(current), expected)


@pytest.mark.parametrize("factor", [-1.0, 0.0, float("nan")])
def test_history_keeps_no_pair_without_curvature(factor):
    history, s = History(3), normal(4)
    assert not history.add(s, Point(0.0, 0 * s), Point(0.0, factor * s))
    assert len(history) == 0


def test_history_respects_its_memory():
    start = torch.full((6,), -1.2, dtype=torch.float64)
    _, history, iterations = run(rosenbrock, start, memory=4, max_iter=30)
    assert len(iterations) > 20
    assert len(history) == 4
    assert history.steps.shape == history.differences.shape == (4, 6)
    assert history.naturals is None
    assert len(run(rosenbrock, start, memory=0, max_iter=5)[1]) == 0


@pytest.mark.parametrize("memory", [3, 10])
def test_a_metric_is_a_change_of_variables(memory):
    """H0 = L L^T in x is H0 = I in u, where x = L u: the same points."""
    root = torch.linalg.cholesky(spread(6, seed=3, condition=10.0))

    def in_x(x):
        point = rosenbrock(x)
        return Point(point.value, point.gradient, root @ (root.T @ point.gradient))

    def in_u(u):
        point = rosenbrock(root @ u)
        return Point(point.value, root.T @ point.gradient, root.T @ point.gradient)

    u = 0.3 * normal(6)
    _, _, by_x = run(in_x, root @ u, memory, max_iter=15)
    _, _, by_u = run(in_u, u, memory, max_iter=15)
    assert len(by_x) == len(by_u) == 15
    for one, other in zip(by_x, by_u, strict=True):
        assert one.n_evaluations == other.n_evaluations
        torch.testing.assert_close(one.point, root @ other.point, rtol=1e-5, atol=1e-6)


# --- the line search ----------------------------------------------------------------------


@given(seed=st.integers(0, 2**31), length=st.floats(1e-3, 1e2))
def test_line_search_meets_the_weak_wolfe_conditions(seed, length):
    point = normal(4, seed=seed)
    start = rosenbrock(point)
    direction = -length * start.gradient / start.gradient.norm()
    step, candidate, found, spent = weak_wolfe(rosenbrock, point, start, direction)
    slope0 = float(start.gradient @ direction)
    assert 1 <= spent <= 25
    torch.testing.assert_close(candidate, point + step * direction)
    assert found.value == rosenbrock(candidate).value
    assert found.value <= start.value + 1e-4 * step * slope0
    assert spent == 25 or float(found.gradient @ direction) >= 0.9 * slope0


def test_line_search_takes_the_full_step_where_it_will_do():
    matrix, center = spread(3, condition=2.0), normal(3)
    function = quadratic(matrix, center)
    point = torch.zeros(3).double()
    step, candidate, _, spent = weak_wolfe(function, point, function(point), center.clone())
    assert (step, spent) == (1.0, 1)
    torch.testing.assert_close(candidate, center)


def test_line_search_says_when_there_is_no_step():
    def wrong(x):  # the gradient points the wrong way
        return Point(float(x @ x), -2 * x)

    point = normal(3)
    step, candidate, found, spent = weak_wolfe(wrong, point, wrong(point), 2 * point)
    assert (step, found, spent) == (0.0, None, 25)
    assert torch.equal(candidate, point)


# --- where it ends ------------------------------------------------------------------------


def test_values_fall():
    start = torch.full((8,), -1.2, dtype=torch.float64)
    result, _, iterations = run(rosenbrock, start, max_iter=60)
    values = [rosenbrock(start).value] + [i.evaluation.value for i in iterations]
    falls = [before - behind for before, behind in pairwise(values)]
    assert min(falls) > 0
    assert [i.decrease for i in iterations] == falls
    assert result.value == values[-1] == min(values)
    assert [i.number for i in iterations] == list(range(1, 61))
    counts = [i.n_evaluations for i in iterations]
    assert counts == sorted(counts)
    assert counts[0] >= 2


def test_evaluations_are_counted():
    calls = []

    def counted(x):
        calls.append(x)
        return rosenbrock(x)

    result, _, iterations = run(counted, torch.zeros(4).double(), max_iter=20)
    assert result.n_evaluations == iterations[-1].n_evaluations == len(calls)


def test_the_start_is_not_modified():
    start = torch.full((4,), -1.2, dtype=torch.float64)
    before = start.clone()
    result, _, iterations = run(rosenbrock, start, max_iter=10)
    assert torch.equal(start, before)
    assert result.point.data_ptr() != start.data_ptr()
    # nor do points that a callback has kept change later
    for iteration in iterations:
        assert rosenbrock(iteration.point).value == iteration.evaluation.value


def test_it_goes_on_from_a_history():
    """Ten iterations and ten more are twenty."""
    start = torch.full((6,), -1.2, dtype=torch.float64)
    whole, _, _ = run(rosenbrock, start, max_iter=20)
    history = History(10)
    first = minimize(rosenbrock, start, history=history, max_iter=10)
    second = minimize(rosenbrock, first.point, history=history, max_iter=10)
    assert torch.equal(second.point, whole.point)


@pytest.mark.parametrize("max_iter", [0, 1, 7])
def test_max_iter(max_iter):
    result, _, iterations = run(rosenbrock, torch.zeros(4).double(), max_iter=max_iter)
    assert result.n_iterations == len(iterations) == max_iter
    assert result.status == f"The limit of {max_iter} iterations was reached."
    assert not result.converged


def test_max_evaluations():
    result, _, _ = run(rosenbrock, torch.zeros(4).double(), max_evaluations=12)
    assert 12 <= result.n_evaluations <= 12 + 25
    assert result.status == "The limit of 12 evaluations was reached."
    assert not result.converged


@pytest.mark.parametrize(
    "tolerance", [{"relative_tolerance": 1e-3}, {"absolute_tolerance": 1e-2}], ids=str
)
def test_tolerances(tolerance):
    def lifted(x):  # a minimum that is not 0, so that a relative decrease can be small
        point = rosenbrock(x)
        return Point(point.value + 1, point.gradient)

    result, _, iterations = run(lifted, torch.full((4,), -1.2).double(), **tolerance)
    assert result.converged
    assert result.status == "The decrease over one iteration fell under the tolerance."
    bounds = [
        max(
            tolerance.get("absolute_tolerance", 0.0),
            tolerance.get("relative_tolerance", 0.0) * abs(i.evaluation.value),
        )
        for i in iterations
    ]
    under = [i.decrease < bound for i, bound in zip(iterations, bounds, strict=True)]
    assert under == [False] * (len(under) - 1) + [True]


def test_decreases_are_smoothed():
    start = torch.full((4,), -1.2).double()
    at_once, _, _ = run(rosenbrock, start, absolute_tolerance=0.1)
    result, _, iterations = run(rosenbrock, start, absolute_tolerance=0.1, smoothing=0.75)
    judged = rosenbrock(start).value
    for iteration in iterations:
        judged = 0.75 * judged + 0.25 * iteration.decrease
        assert iteration.judged == pytest.approx(judged)
    assert [i.judged < 0.1 for i in iterations] == [False] * (len(iterations) - 1) + [True]
    assert result.converged
    assert any(i.decrease < 0.1 for i in iterations[:-1])
    assert result.value < at_once.value


def test_no_step_is_tried_beyond_the_bottom_of_a_parabola_that_ends_at_the_bound():
    tried = []

    def steep(x):  # a unit step along the gradient goes a thousand times too far
        tried.append(float(x[0]))
        return Point(float(100 * (x - 0.001).square().sum()), 200 * (x - 0.001))

    start = torch.zeros(1).double()
    result, _, _ = run(steep, start, max_iter=1, lower_bound=0.0)
    assert tried == [0.0, pytest.approx(0.001)]
    assert result.n_evaluations == 2
    tried.clear()
    run(steep, start, max_iter=1)
    assert tried[1] == pytest.approx(1.0)


def test_a_tolerance_of_zero_never_ends_it():
    result, _, _ = run(rosenbrock, torch.full((2,), -1.2).double(), max_iter=400)
    assert "tolerance" not in result.status
    assert result.value < 1e-20


def test_a_tolerance_of_zero_does_not_end_it_where_the_value_stands_still():
    """Where the value has no digits left for the decrease, the gradient goes on falling."""

    matrix = spread(3)

    def flat(x):
        return Point(1.0 + float(0.5 * x @ matrix @ x), matrix @ x)

    result, _, iterations = run(flat, 1e-10 * normal(3), max_iter=50)
    assert {i.decrease for i in iterations} == {0.0}
    assert len(iterations) > 1
    assert result.gradient_norm < 1e-15


def test_a_callback_can_end_it():
    def stop(iteration):
        return "Enough." if iteration.number == 3 else None

    result = minimize(rosenbrock, torch.zeros(4).double(), history=History(5), callback=stop)
    assert (result.status, result.n_iterations, result.converged) == ("Enough.", 3, False)


def test_the_gradient_vanishes_at_the_minimum():
    result, _, _ = run(rosenbrock, torch.ones(4).double())
    assert result.status == "The gradient vanished."
    assert result.converged
    assert (result.n_iterations, result.n_evaluations) == (0, 1)


def test_a_metric_that_is_none_is_told():
    function = quadratic(spread(3), normal(3), -torch.eye(3).double())
    result, _, _ = run(function, torch.zeros(3).double())
    assert result.status == "The direction does not descend."
    assert not result.converged


# --- what it survives ---------------------------------------------------------------------


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_steps_too_long(bad):
    """x - log x, not a number where x <= 0, from a start whose first step goes there."""

    def barrier(x):
        if not (x > 0).all():
            return Point(bad, torch.full_like(x, float("nan")))
        return Point(float((4 * x - x.log()).sum()), 4 - 1 / x)

    result, _, iterations = run(barrier, torch.tensor([0.9, 2.0, 0.3], dtype=torch.float64))
    torch.testing.assert_close(result.point, torch.full((3,), 0.25).double())
    assert all(math.isfinite(i.evaluation.value) for i in iterations)


def test_a_gradient_that_is_not_finite_is_a_step_too_long():
    def broken(x):
        gradient = 2 * x if x.norm() > 0.5 else torch.full_like(x, float("nan"))
        return Point(float(x @ x), gradient)

    result, _, iterations = run(broken, torch.ones(2).double(), max_iter=20)
    assert 0.5 < result.point.norm() < 0.6
    assert all(i.evaluation.gradient.isfinite().all() for i in iterations)


def test_minus_infinity_is_not_accepted():
    def pit(x):
        return Point(float(x @ x) if (x > 0.5).all() else -math.inf, 2 * x)

    result, _, _ = run(pit, torch.ones(2).double(), max_iter=20)
    assert math.isfinite(result.value)


def test_a_start_that_is_not_finite_is_told():
    result, _, _ = run(lambda x: Point(math.nan, x), torch.ones(2).double())
    assert result.status == "The function is not finite at the start."
    assert (result.n_evaluations, result.converged) == (1, False)


class Failing:
    """Rosenbrock's function, infinite for some evaluations once it is told to fail."""

    def __init__(self):
        self.failures = 0
        self.points = []

    def __call__(self, x):
        self.points.append(x)
        if self.failures > 0:
            self.failures -= 1
            return Point(math.inf, torch.full_like(x, math.inf))
        return rosenbrock(x)


def test_a_failing_line_search_drops_the_history_and_goes_on():
    function, history, lengths = Failing(), History(10), []

    def callback(iteration):
        lengths.append(len(history))
        if iteration.number == 5:
            function.failures = 25
        return None

    result = minimize(
        function, torch.zeros(4).double(), history=history, max_iter=60, callback=callback
    )
    assert lengths[4] > 1
    assert lengths[5] == 1
    assert result.value < 1e-6


def test_a_line_search_that_fails_without_a_history_ends_it():
    function = Failing()

    def callback(iteration):
        if iteration.number == 5:
            function.failures = 1000
        return None

    result = minimize(
        function, torch.zeros(4).double(), history=History(10), max_iter=60, callback=callback
    )
    assert result.status == "No step along the steepest descent lowers the value any further."
    assert math.isfinite(result.value)
    assert result.value == rosenbrock(result.point).value
    assert function.failures == 1000 - 50  # one search with the history, one without


def test_where_values_are_rough_the_result_is_the_best_up_to_their_rounding():
    """Values with the rounding of float32 may rise by it from one iteration to the next."""

    def rough(x):
        exact = 1000 + 0.5 * float(x @ x)
        return Point(exact + 2e-4 * math.sin(1e6 * float(x.sum())), x.clone())

    result, _, iterations = run(rough, normal(5, dtype=torch.float32), max_iter=40)
    best = min(i.evaluation.value for i in iterations)
    assert best <= result.value <= best + 4 * torch.finfo(torch.float32).eps * 1000


# --- going on -----------------------------------------------------------------------------


def halved(matrix, center, metric):
    def function(x):
        gradient = matrix @ (x - center)
        value = float(0.5 * (x - center) @ gradient + 0.1 * x.square().square().sum())
        gradient = gradient + 0.4 * x**3
        return Halved(value, gradient, metric * gradient, metric)

    return function


GOING_ON = [
    ("plain", rosenbrock, {"max_iter": 25}),
    ("metric", halved(spread(6), normal(6), spread(6).inverse().diagonal()), {"max_iter": 25}),
    ("failed searches", rosenbrock, {"relative_tolerance": 1e-3}),
    ("tolerance", rosenbrock, {"absolute_tolerance": 1e-3}),
    ("smoothed", rosenbrock, {"absolute_tolerance": 1e-3, "smoothing": 0.5}),
    ("evaluations", rosenbrock, {"max_evaluations": 30}),
]


@pytest.mark.parametrize(("function", "options"), [g[1:] for g in GOING_ON], ids=lambda v: "")
@pytest.mark.parametrize("memory", [3, 10])
def test_a_minimisation_goes_on_from_any_iteration_to_the_same_bits(function, options, memory):
    start = torch.zeros(6).double()
    saved = []
    history = History(memory)

    def save(iteration):
        state, slopes = history.state(), history.slopes(iteration.evaluation)
        past = Past(iteration.number, iteration.n_evaluations, iteration.judged, slopes)
        saved.append((iteration.point, {k: v.clone() for k, v in state.items()}, past))

    whole = minimize(function, start, history=history, callback=save, **options)
    assert len(saved) > 3
    for point, state, past in saved:
        again = History(memory)
        again.restore(state, point)
        result = minimize(function, point, history=again, past=past, **options)
        assert torch.equal(result.point, whole.point)
        assert (result.n_iterations, result.n_evaluations) == (
            whole.n_iterations,
            whole.n_evaluations,
        )
        assert (result.status, result.converged) == (whole.status, whole.converged)
        assert again.state().keys() == history.state().keys()
        for name, tensor in history.state().items():
            assert torch.equal(again.state()[name], tensor)


def test_an_empty_history_has_an_empty_state():
    history = History(5)
    assert history.state() == {}
    minimize(rosenbrock, torch.zeros(4).double(), history=history, max_iter=5)
    assert len(history.state()["order"]) == len(history)
    changes = history.n_changes
    history.restore({}, torch.zeros(4).double())
    assert len(history) == 0
    assert history.n_changes > changes
