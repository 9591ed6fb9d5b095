"""The kernel and its scales.

    k(x, x') = s_0 <x, x'> + s_1 (1 + r + r^2/3) e^-r + s_2 e^-q
    r = |(I + E) (v * (x - x'))|_2  (smooth),   q = |w * (x - x')|_1  (rough)

The smooth part, a Matern kernel of order 2 with a width for each feature, carries what a flow
carries too; the rough one follows steps, thresholds and rows that are nearly the same, as
forests of trees do. E mixes the features of the smooth part, or is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from finemorphs._typing import Array, Tensor

__all__ = ["JITTER", "Scales", "kernel_parts", "own_kernel"]

JITTER = 1e-7  # of the noise


@dataclass(frozen=True)
class Scales:
    """The scales of the kernel.

    ``parts`` are s_0, s_1, s_2; ``smooth`` and ``rough`` the weights v and w of the features;
    ``noise`` is tau; ``mixing`` is E, (d, d).
    """

    parts: Array
    smooth: Array
    rough: Array
    noise: float
    mixing: Array

    @classmethod
    def start(cls, d: int) -> Scales:
        """Where the search begins: standardised features that matter alike."""
        parts, noise = np.array([0.1, 0.5, 0.5]), np.exp(-3.0)
        return cls(parts, np.full(d, d**-0.5), np.full(d, 0.3 * d**-0.5), noise, np.zeros((d, d)))

    @classmethod
    def of_logarithms(cls, p: Array, mixing: Array | None = None) -> Scales:
        """From the vector p."""
        values = np.exp(p)
        d = (len(p) - 4) // 2
        mixing = np.zeros((d, d)) if mixing is None else mixing
        return cls(values[:3], values[3 : 3 + d], values[3 + d : -1], float(values[-1]), mixing)

    @property
    def logarithms(self) -> Array:
        """The vector p."""
        values = np.concatenate([self.parts, self.smooth, self.rough, [self.noise]])
        return np.asarray(np.log(values))

    @property
    def metric(self) -> Array:
        """B = (I + E) diag(v), so that r = |B (x - x')|."""
        return np.asarray((np.eye(len(self.smooth)) + self.mixing) * self.smooth)


def own_kernel(scales: Scales, rows: Tensor) -> Tensor:
    """k(x, x) of each row."""
    s0, s1, s2 = (float(part) for part in scales.parts)
    return s0 * rows.square().sum(1) + (s1 + s2)


def kernel_parts(scales: Scales, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The three parts of the kernel between rows, and the smooth distance."""
    metric = torch.as_tensor(scales.metric).to(a)
    rough = torch.as_tensor(scales.rough).to(a)
    r = torch.cdist(a @ metric.T, b @ metric.T, compute_mode="donot_use_mm_for_euclid_dist")
    q = torch.cdist(a * rough, b * rough, p=1)
    s0, s1, s2 = scales.parts
    return s0 * (a @ b.T), s1 * (1 + r + r * r / 3) * torch.exp(-r), r, s2 * torch.exp(-q)
