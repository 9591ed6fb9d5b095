"""Regression in the span of kernels: closed form, its scales by the marginal likelihood.

    f(x) = sum_j k(x, x_j) c_j / max(1, V(x)),      c = (K + tau W^-1)^-1 y

:mod:`._scales` has the kernel k, :mod:`._likelihood` finds its scales, :mod:`._regression` is f
with its variance V, :mod:`._iterations` solves for c where there are many rows.
"""

from finemorphs.kernel_regression._likelihood import (
    Sample,
    likely_common_scales,
    likely_scales,
    mix_features,
)
from finemorphs.kernel_regression._regression import (
    MOST_ANCHORS,
    KernelRegression,
    regress,
    regress_many,
)
from finemorphs.kernel_regression._scales import Scales

__all__ = [
    "MOST_ANCHORS",
    "KernelRegression",
    "Sample",
    "Scales",
    "likely_common_scales",
    "likely_scales",
    "mix_features",
    "regress",
    "regress_many",
]
