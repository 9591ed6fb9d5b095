"""The objective: value, exact gradient, natural gradient, and where it is ridge regression."""

from __future__ import annotations

import pytest
import torch
from _oracles import (
    autograd,
    gram,
    one_thread,  # noqa: F401
    slope_along,
)
from _oracles import objective as naive_objective

from finemorphs.engines.cpu import CPUEngine
from finemorphs.engines.reference import ReferenceEngine
from finemorphs.objective import Objective
from finemorphs.rows import Rows
from finemorphs.sequence import ModuleSequence

ENGINE = ReferenceEngine()
SIGMA = 0.6
KERNELS = [("matern", 1), ("matern", 2), ("matern", 3), ("matern", 4), ("gaussian", 3)]
SEQUENCES = ["A", "AD", "DA", "ADA", "AD2A", "(AD)^2A", "AD2A2"]


def build(notation="ADA", n=7, n_controls=None, d_in=3, d_y=1, output_dims=0, seed=0, **options):
    """A problem of n rows, a point theta to look at it from, and weights."""
    generator = torch.Generator().manual_seed(seed)
    options = {"kernel_width": 0.9, "n_steps": 3, "ridge": 0.7} | options
    sequence = ModuleSequence.build(notation, d_in, d_y + output_dims, n_controls or n, **options)
    shapes = [(sequence.n_parameters,), (n, d_in), (n, d_y), (n,)]
    theta, x, y, w = (torch.randn(s, dtype=torch.float64, generator=generator) for s in shapes)
    return sequence, 0.7 * theta, x, y, w.abs() + 0.1


def check_gradient(sequence, theta, x, y, weights=None):
    """Value and parts against the naive twin, gradient against its autograd and differences."""
    objective = Objective(sequence, ENGINE, x, y, weights)
    found = objective.evaluate(theta, SIGMA)
    parts = naive_objective(sequence, theta, x, y, SIGMA, weights)
    assert (found.energy, found.affine, found.endpoint) == pytest.approx([float(p) for p in parts])
    assert found.value == pytest.approx(float(sum(parts)), rel=1e-12)
    (expected,) = autograd(lambda t: sum(naive_objective(sequence, t, x, y, SIGMA, weights)), theta)
    assert (found.gradient - expected).norm() <= 1e-9 * expected.norm()
    direction = torch.randn(
        len(theta), dtype=torch.float64, generator=torch.Generator().manual_seed(9)
    )
    slope = slope_along(lambda t: objective.evaluate(t, SIGMA).value, theta, direction)
    assert float(found.gradient @ direction) == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("n_controls", [7, 3])
@pytest.mark.parametrize(("kernel", "order"), KERNELS)
def test_gradient_for_every_kernel(kernel, order, n_controls):
    sequence, theta, x, y, _ = build(n_controls=n_controls, kernel=kernel, kernel_order=order)
    check_gradient(sequence, theta, x, y)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_controls", [7, 3])
@pytest.mark.parametrize("notation", SEQUENCES)
def test_gradient_for_every_sequence(notation, n_controls, weighted):
    sequence, theta, x, y, weights = build(
        notation, n_controls=n_controls, inner_affine="identity", n_steps=2
    )
    check_gradient(sequence, theta, x, y, weights if weighted else None)


@pytest.mark.parametrize("output_dims", [0, 1])
@pytest.mark.parametrize("d_y", [1, 2])
@pytest.mark.parametrize("notation", ["A", "AD", "ADA"])
def test_gradient_for_several_responses_and_dropped_columns(notation, d_y, output_dims):
    sequence, theta, x, y, weights = build(notation, d_y=d_y, output_dims=output_dims)
    assert sequence.d_out == d_y + output_dims
    check_gradient(sequence, theta, x, y, weights)


def test_gradient_with_dimensions_steps_and_widths_of_each_module():
    sequence, theta, x, y, weights = build(
        "(AD)^2A", dims=[2, 4], n_steps=[1, 3], kernel_width=[0.5, 1.5], ridge=[0.1, 1.0, 2.0]
    )
    check_gradient(sequence, theta, x, y, weights)


def test_gradient_at_the_start_of_training():
    """a = 0: what stands still feels the pull of the data alone."""
    sequence, theta, x, y, _ = build()
    sequence.split(theta)[1].zero_()
    check_gradient(sequence, theta, x, y)
    assert Objective(sequence, ENGINE, x, y).evaluate(theta, SIGMA).energy == 0


def test_parts_add_up():
    sequence, theta, x, y, weights = build("(AD)^2A", d_y=2)
    found = Objective(sequence, ENGINE, x, y, weights).evaluate(theta, SIGMA)
    assert found.value == pytest.approx(found.energy + found.affine + found.endpoint, rel=1e-14)
    assert found.endpoint == pytest.approx(float(found.losses.sum()) / SIGMA**2, rel=1e-14)
    output = sequence.forward(ENGINE, theta, x)[-1].output
    expected = (weights[:, None] * (output - y) ** 2).sum(0)
    torch.testing.assert_close(found.losses, expected)
    assert min(found.energy, found.affine, found.endpoint) > 0


def test_sigma_scales_the_endpoint_and_nothing_else():
    sequence, theta, x, y, _ = build()
    objective = Objective(sequence, ENGINE, x, y)
    one, two = objective.evaluate(theta, 1.0), objective.evaluate(theta, 2.0)
    assert (one.energy, one.affine) == (two.energy, two.affine)
    assert one.endpoint == pytest.approx(4 * two.endpoint, rel=1e-14)
    torch.testing.assert_close(one.losses, two.losses)


# --- blocks of rows -----------------------------------------------------------------------


def assert_same(one, other, tolerance=1e-12):
    """Two evaluations, up to a relative difference."""
    assert one.value == pytest.approx(other.value, rel=tolerance)
    assert one.mass == other.mass
    torch.testing.assert_close(one.losses, other.losses, rtol=tolerance, atol=0)
    for name in ("gradient", "natural"):
        a, b = getattr(one, name), getattr(other, name)
        # The metric of a subset is solved for with condition numbers up to 1e4.
        assert (a - b).norm() <= (1 if name == "gradient" else 1e4) * tolerance * b.norm()
    for (_, _, a), (_, _, b) in zip(one.affine_metrics, other.affine_metrics, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batch_size", [1, 4, 7, 100])
@pytest.mark.parametrize("notation", ["AD", "DA", "(AD)^2A", "AD2A2"])
def test_blocks_of_rows_add_up(notation, batch_size, weighted):
    sequence, theta, x, y, weights = build(notation, n=15, n_controls=4, d_y=2, output_dims=1)
    weights = weights if weighted else None
    whole = Objective(sequence, ENGINE, x, y, weights).evaluate(theta, SIGMA)
    controls = Rows(x[:4], y[:4], None if weights is None else weights[:4])
    rest = Rows(x[4:], y[4:], None if weights is None else weights[4:])
    parts = Objective(
        sequence,
        ENGINE,
        controls.inputs,
        controls.targets,
        controls.weights,
        others=rest.blocks(batch_size),
    )
    for _ in range(2):  # the blocks are run through again for each evaluation
        assert_same(parts.evaluate(theta, SIGMA), whole)


def test_blocks_of_rows_in_single_precision():
    """Relative to one block, with the engine that trains."""
    sequence, theta, x, y, _ = build("ADA", n=3000, n_controls=40, d_in=4, seed=1)
    theta, x, y = 0.2 * theta.float(), x.float(), y.float()
    engine = CPUEngine()
    whole = Objective(sequence, engine, x, y).evaluate(theta, SIGMA)
    others = Rows(x[40:], y[40:]).blocks(257)
    blocks = Objective(sequence, engine, x[:40], y[:40], others=others).evaluate(theta, SIGMA)
    assert blocks.value == pytest.approx(whole.value, rel=1e-6)
    assert (blocks.gradient - whole.gradient).norm() <= 1e-6 * whole.gradient.norm()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d_y", [1, 2])
def test_without_a_flow_the_minimiser_is_ridge_regression(d_y, weighted):
    """No D module, a free offset: M = (X^T W X + sigma^2 lambda I)^-1 X^T W Y on centred data."""
    sequence, _, x, y, weights = build("A", n=12, d_y=d_y, ridge=0.7)
    w = weights if weighted else torch.ones_like(weights)
    mean_x, mean_y = (w @ x) / w.sum(), (w @ y) / w.sum()
    centred = (x - mean_x) * w[:, None]
    matrix = centred.T @ (x - mean_x) + 0.7 * SIGMA**2 * torch.eye(3).double()
    slopes = torch.linalg.solve(matrix, centred.T @ (y - mean_y)).T
    theta = torch.cat([slopes, (mean_y - slopes @ mean_x)[:, None]], 1).reshape(-1)
    objective = Objective(sequence, ENGINE, x, y, weights if weighted else None)
    best = objective.evaluate(theta, SIGMA)
    assert best.gradient.abs().max() < 1e-11
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        away = 0.1 * torch.randn(len(theta), dtype=torch.float64, generator=generator)
        assert objective.evaluate(theta + away, SIGMA).value > best.value


def test_a_weight_of_two_is_the_row_twice():
    """For rows that do not steer; they come last."""
    sequence, theta, x, y, _ = build("AD2A", n=7, n_controls=4, d_y=2)
    weights = torch.tensor([1, 1, 1, 1, 1, 2, 3], dtype=torch.float64)
    rows = torch.arange(7).repeat_interleave(weights.long())
    weighted = Objective(sequence, ENGINE, x, y, weights).evaluate(theta, SIGMA)
    repeated = Objective(sequence, ENGINE, x[rows], y[rows]).evaluate(theta, SIGMA)
    assert weighted.value == pytest.approx(repeated.value, rel=1e-13)
    torch.testing.assert_close(weighted.gradient, repeated.gradient)
    torch.testing.assert_close(weighted.losses, repeated.losses)
    for (_, _, one), (_, _, other) in zip(
        weighted.affine_metrics, repeated.affine_metrics, strict=True
    ):
        torch.testing.assert_close(one, other)


def test_weights_of_one_are_no_weights():
    sequence, theta, x, y, weights = build()
    ones = Objective(sequence, ENGINE, x, y, torch.ones_like(weights)).evaluate(theta, SIGMA)
    none = Objective(sequence, ENGINE, x, y).evaluate(theta, SIGMA)
    assert ones.value == none.value
    assert torch.equal(ones.gradient, none.gradient)


# --- the metric ---------------------------------------------------------------------------


def inverse_hessian(sequence, theta, x, y, weights=None):
    """The metric of the docstring, H0, as a matrix: K_SS^-1 / (2 dt) and B^-1 blocks."""
    n_controls = sequence.n_controls or len(x)
    centers = sequence.centers(ENGINE, theta, x[:n_controls])
    states = sequence.inputs(x, sequence.trajectory(ENGINE, theta, centers, x))
    blocks, following = [], None
    parts = zip(sequence.modules, sequence.split(theta), states, strict=True)
    for module, part, state in reversed(list(parts)):
        if module.name.startswith("A"):
            matrix = part.view(module.d_out, -1)[:, :-1]
            share = 4.0 if following is None else float(following.square().sum()) / module.d_out
            following = matrix
            xi = torch.cat([state, torch.ones_like(state[:, :1])], 1)
            weighted = xi if weights is None else xi * weights[:, None]
            metric = 0.02 / SIGMA**2 * share * weighted.T @ xi
            metric += torch.diag(torch.tensor([2 * module.ridge] * module.d_in + [0.0]).double())
            block = torch.kron(torch.eye(module.d_out).double(), metric.inverse().contiguous())
        else:
            step, n = 1 / module.n_steps, module.n_controls
            inverses = []
            for z in centers.pop():
                kernel = gram(module.kernel, z, z)
                if n < len(x):
                    kernel = kernel + 1e-4 * torch.eye(n).double()
                inverse = kernel.inverse().contiguous() / (2 * step)
                inverses.append(torch.kron(inverse, torch.eye(module.d_in).double()))
            block = torch.block_diag(*inverses)
        blocks.insert(0, block)
    return torch.block_diag(*blocks)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_controls", [6, 3])
@pytest.mark.parametrize("notation", ["A", "AD", "DA", "ADA", "(AD)^2A", "AD2A2"])
def test_metric_is_its_formula(notation, n_controls, weighted):
    sequence, theta, x, y, weights = build(notation, n=6, n_controls=n_controls, n_steps=2)
    weights = weights if weighted else None
    found = Objective(sequence, ENGINE, x, y, weights).evaluate(theta, SIGMA)
    expected = inverse_hessian(sequence, theta, x, y, weights) @ found.gradient
    natural = found.complete(found.gradient, found.natural)
    assert (natural - expected).norm() <= 1e-6 * expected.norm()
    assert float(natural @ found.gradient) > 0


@pytest.mark.parametrize("n_controls", [6, 3])
def test_metric_of_the_affine_modules_is_symmetric_and_positive(n_controls):
    """complete() on vectors that carry nothing on the controls is the affine block alone."""
    sequence, theta, x, y, _ = build("(AD)^2A", n=6, n_controls=n_controls)
    found = Objective(sequence, ENGINE, x, y).evaluate(theta, SIGMA)
    generator = torch.Generator().manual_seed(1)
    draw = torch.randn(2, len(theta), dtype=torch.float64, generator=generator)
    for vector in draw:
        for module, part in zip(sequence.modules, sequence.split(vector), strict=True):
            if module.name.startswith("D"):
                part.zero_()
    u, v = draw
    hu, hv = (found.complete(w, torch.zeros_like(w)) for w in draw)
    assert float(u @ hv) == pytest.approx(float(v @ hu), rel=1e-9)
    assert float(u @ hu) > 0
    assert float(v @ hv) > 0


@pytest.mark.parametrize("n_controls", [6, 3])
def test_metric_is_symmetric_positive_definite(n_controls):
    """On combinations of gradients at one point: differences with the same metric."""
    sequence, theta, x, _, _ = build("ADA", n=6, n_controls=n_controls)
    generator = torch.Generator().manual_seed(2)
    pairs = []
    for _ in range(3):  # the same states, so the same metric, and other responses
        responses = torch.randn(6, 1, dtype=torch.float64, generator=generator)
        pairs.append(Objective(sequence, ENGINE, x, responses).evaluate(theta, SIGMA))
    found = pairs[0]
    vectors = [e.gradient for e in pairs]
    images = [found.complete(e.gradient, e.natural) for e in pairs]
    products = torch.stack([torch.stack([v @ h for h in images]) for v in vectors])
    torch.testing.assert_close(products, products.T, rtol=1e-9, atol=1e-9)
    assert torch.linalg.eigvalsh(products).min() > 0


def test_complete_is_linear():
    sequence, theta, x, y, _ = build("ADA")
    found = Objective(sequence, ENGINE, x, y).evaluate(theta, SIGMA)
    g, n = found.gradient, found.natural
    before = n.clone()
    twice = found.complete(2 * g, 2 * n)
    torch.testing.assert_close(twice, 2 * found.complete(g, n))
    assert torch.equal(found.natural, before)


@pytest.mark.parametrize("n_controls", [7, 3])
def test_without_the_natural_gradient_the_rest_is_the_same(n_controls):
    sequence, theta, x, y, _ = build("AD2A", n_controls=n_controls)
    objective = Objective(sequence, ENGINE, x, y)
    plain, natural = (objective.evaluate(theta, SIGMA, natural=asked) for asked in (False, True))
    assert plain.natural is None
    assert plain.affine_metrics == ()
    assert plain.value == natural.value
    assert torch.equal(plain.gradient, natural.gradient)


def test_float32_is_close_to_float64():
    sequence, theta, x, y, weights = build("(AD)^2A", n=30, d_y=2)
    double = Objective(sequence, ENGINE, x, y, weights).evaluate(theta, SIGMA)
    single = Objective(sequence, ENGINE, x.float(), y.float(), weights.float()).evaluate(
        theta.float(), SIGMA
    )
    assert single.gradient.dtype == single.natural.dtype == torch.float32
    assert single.value == pytest.approx(double.value, rel=1e-5)
    assert (single.gradient - double.gradient).norm() <= 1e-4 * double.gradient.norm()


def test_theta_is_left_alone():
    sequence, theta, x, y, _ = build()
    before = theta.clone()
    Objective(sequence, ENGINE, x, y).evaluate(theta, SIGMA)
    assert torch.equal(theta, before)
