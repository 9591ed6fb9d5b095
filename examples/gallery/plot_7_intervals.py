"""
Intervals with a guarantee
==========================

``calibrate`` measures the errors on rows that training has not seen, and ``predict_interval``
makes intervals of them that hold the response as often as promised, whatever the data are: split
conformal prediction. An ensemble says in addition where its members disagree.
"""

import matplotlib.pyplot as plt
import numpy as np

from finemorphs import FineMorphsRegressor

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 4, (600, 1)), axis=0)
y = np.sin(3 * X[:, 0]) * X[:, 0] + rng.normal(0, 0.3, len(X))
order = rng.permutation(len(X))
train, calibration, test = order[:200], order[200:400], order[400:]

model = FineMorphsRegressor(n_steps=5, max_iter=60, random_state=0).fit(X[train], y[train])
model.calibrate(X[calibration], y[calibration])

for confidence in (0.5, 0.8, 0.9, 0.95):
    low, high = model.predict_interval(X[test], confidence).T
    held = np.mean((low <= y[test]) & (y[test] <= high))
    print(
        f"asked for {confidence:.2f}: {held:.2f} of the test rows, width {np.mean(high - low):.2f}"
    )

# %%
grid = np.linspace(-1, 5, 200)[:, None]
low, high = model.predict_interval(grid, 0.9).T
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.fill_between(grid[:, 0], low, high, alpha=0.25, label="90 % interval")
ax.plot(grid[:, 0], model.predict(grid), label="prediction")
ax.scatter(X[test, 0], y[test], s=6, color="0.4", label="test rows")
ax.set(xlabel="x", ylabel="y", ylim=(-6, 6))
ax.legend(frameon=False)

# %%
# The guarantee is for new rows *like the old ones*: beyond x = 4 there were none, and the interval
# has the same width all the same. The members of an ensemble disagree more there; but they are of
# one kind, and fade together to the same calm. Neither is a licence to extrapolate.

ensemble = FineMorphsRegressor(n_members=4, n_steps=5, max_iter=40, random_state=0)
mean, std = ensemble.fit(X[train], y[train]).predict(grid, return_std=True)
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.25, label="two std")
ax.plot(grid[:, 0], mean, label="mean of four members")
ax.scatter(X[test, 0], y[test], s=6, color="0.4")
ax.set(xlabel="x", ylabel="y", ylim=(-6, 6))
ax.legend(frameon=False)
plt.show()
