"""Naive twins of the library, written from the formulas and from nothing in the package.

They are slow, short and differentiable by autograd; a test that compares with them compares
the library with the mathematics.
"""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Of a file that imports it: tensors this small are slower on several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# (family, order) -> kappa(u), as the table of the kernels prints it
PROFILES = {
    ("matern", 1): lambda u: (1 + u) * torch.exp(-u),
    ("matern", 2): lambda u: (1 + u + u**2 / 3) * torch.exp(-u),
    ("matern", 3): lambda u: (1 + u + 0.4 * u**2 + u**3 / 15) * torch.exp(-u),
    ("matern", 4): lambda u: (105 + 105 * u + 45 * u**2 + 10 * u**3 + u**4) / 105 * torch.exp(-u),
    ("gaussian", 3): lambda u: torch.exp(-(u**2) / 2),
}


def gram(kernel, x, y):
    """kappa(|x_k - y_l| / h), with the derivative 0 that it has where two points coincide."""
    squared = (x[:, None, :] - y[None, :, :]).square().sum(-1)
    apart = squared > 0
    distance = torch.where(apart, torch.where(apart, squared, 1.0).sqrt(), 0.0)
    return PROFILES[kernel.family, kernel.order](distance / kernel.width)


def flow(kernel, points, controls):
    """The points at time 1 and the energy of the way."""
    step = 1.0 / len(controls)
    energy = points.new_zeros(())
    for control in controls:
        velocity = gram(kernel, points, points[: len(control)]) @ control
        energy = energy + step * (control * velocity[: len(control)]).sum()
        points = points + step * velocity
    return points, energy


def objective(sequence, theta, x, y, sigma, weights=None):
    """G(theta): energy, affine cost and endpoint cost of a sequence, module by module."""
    energy, affine, start = theta.new_zeros(()), theta.new_zeros(()), 0
    for module in sequence.modules:
        if module.name.startswith("A"):
            size = module.d_out * (module.d_in + 1)
            table = theta[start : start + size].reshape(module.d_out, module.d_in + 1)
            matrix, offset = table[:, :-1], table[:, -1]
            center = torch.eye(module.d_in, dtype=x.dtype) if module.towards_identity else 0.0
            affine = affine + module.ridge * (matrix - center).square().sum()
            x = x @ matrix.T + offset
        else:
            size = module.n_steps * module.n_controls * module.d_in
            shape = (module.n_steps, module.n_controls, module.d_in)
            x, spent = flow(module.kernel, x, theta[start : start + size].reshape(shape))
            energy = energy + spent
        start += size
    errors = (x[:, : y.shape[1]] - y).square().sum(1)
    if weights is not None:
        errors = errors * weights
    return energy, affine, errors.sum() / sigma**2


def autograd(function, *arguments):
    """The gradients of a scalar function of several tensors."""
    leaves = [argument.detach().clone().requires_grad_() for argument in arguments]
    return torch.autograd.grad(function(*leaves), leaves)


def slope_along(function, point, direction, step=1e-5):
    """The central difference of a function of a tensor along a direction."""
    ahead, behind = function(point + step * direction), function(point - step * direction)
    return float(ahead - behind) / (2 * step)


def two_loops(gradient, steps, differences, metric):
    """-H g by the recursion as the textbook prints it; ``metric`` applies H0 before gamma."""
    q, alphas = gradient.clone(), []
    for s, y in reversed(list(zip(steps, differences, strict=True))):
        alphas.append(torch.dot(s, q) / torch.dot(s, y))
        q = q - alphas[-1] * y
    s, y = steps[-1], differences[-1]
    r = torch.dot(s, y) / torch.dot(y, metric(y)) * metric(q)
    for s, y, alpha in zip(steps, differences, reversed(alphas), strict=True):
        beta = torch.dot(y, r) / torch.dot(s, y)
        r = r + (alpha - beta) * s
    return -r


def local_variance(x, y, weights=None):
    """s2 of the noise estimate by plain loops; a row of weight w fills w places."""
    n, d = x.shape
    w = [1.0] * n if weights is None else [float(v) for v in weights]
    places = max(2, min(2 * d + 1, int(sum(w)) // 5))
    total, mass = torch.zeros(y.shape[1], dtype=torch.float64), 0.0
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    for i in range(n):
        others = sorted((float((x[j] - x[i]).norm()), j) for j in range(n) if j != i)
        filled, shares, second = 0.0, [], []
        for j in [i] + [j for _, j in others]:
            end = filled + w[j]
            shares.append((j, max(0.0, min(end, places) - min(filled, places))))
            second.append((j, max(0.0, min(end, 2.0) - max(filled, 1.0))))
            filled = end
        matrix, right = (
            0.01 * torch.eye(d, dtype=torch.float64),
            torch.zeros(d, y.shape[1]).double(),
        )
        for j, share in shares:
            matrix += share * torch.outer(x[j] - x[i], x[j] - x[i])
            right += share * torch.outer(x[j] - x[i], y[j] - y[i])
        slopes = torch.linalg.solve(matrix, right)
        for j, share in second:
            residual = (y[j] - y[i] - (x[j] - x[i]) @ slopes).square()
            total += w[i] * share * residual
            mass += w[i] * share
    return total / mass
