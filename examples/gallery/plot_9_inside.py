"""
Inside a D module
=================

A fitted model is not a black box: its flow can be drawn, measured, inverted and differentiated.
"""

import matplotlib.pyplot as plt
import numpy as np

from finemorphs import FineMorphsRegressor
from finemorphs.datasets import make_rings
from finemorphs.plots import (
    plot_convergence,
    plot_displacement,
    plot_trajectories,
    plot_volume,
)

X, y = make_rings(300, random_state=0)
model = FineMorphsRegressor("AD^2A", n_steps=5, max_iter=150, tol=1e-4, random_state=0).fit(X, y)
print(model.sequence_, model.status_)

# %%
# How training went: the parts of the objective, round after round of the noise level.

plot_convergence(model)

# %%
# The way of each row through the first D module, and how far the modules move the rows.

plot_trajectories(model, X, y)
plot_displacement(model, X)

# %%
# A diffeomorphism has a positive determinant everywhere. Where its logarithm is positive, space
# is stretched; where it is negative, pressed together.

plot_volume(model, X)
print(
    "log-determinants from",
    *model.log_det(X).min(0).round(2),
    "to",
    *model.log_det(X).max(0).round(2),
)

# %%
# Every step can be undone, so that the whole flow can: from the states that leave the last D
# module back to the inputs.

back = model.inverse_transform(model.transform(X))
print("largest error of the way there and back:", f"{np.abs(back - X).max():.1e}")

# %%
# The derivative of the prediction is exact. Here it is beside differences of predictions:

shift = 1e-3 * np.eye(2)
differences = [(model.predict(X + s) - model.predict(X - s)) / 2e-3 for s in shift]
exact = model.jacobian(X)
print("shape:", exact.shape)
print("difference:", f"{np.abs(np.column_stack(differences) - exact.reshape(-1, 2)).max():.1e}")

# %%
# The cost of a D module is the squared distance of its map from the identity. The maximum principle
# asks for a gradient of 0 by every module; the norms say how far training was from that when the
# tolerance ended it.

print("gradients:", {name: float(f"{value:.2g}") for name, value in model.stationarity_.items()})
print("distances:", {name: float(f"{value:.3g}") for name, value in model.distance_.items()})
plt.show()
