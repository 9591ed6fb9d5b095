"""
Training with a subset of control points
========================================

By default every row steers the flow, and time grows with the square of the rows. With
``subset_size`` some rows steer and all rows count: time grows as rows times control points. How
many are enough?
"""

import time

import matplotlib.pyplot as plt
from sklearn.metrics import root_mean_squared_error

from finemorphs import FineMorphsRegressor
from finemorphs.datasets import make_rings

X, y = make_rings(2500, noise=0.1, random_state=0)
X_train, y_train, X_test, y_test = X[:1500], y[:1500], X[1500:], y[1500:]

sizes = [10, 30, 100, 200, None]
errors, seconds = [], []
for size in sizes:
    model = FineMorphsRegressor(
        subset_size=size, n_steps=5, max_iter=100, noise=0.3, random_state=0
    )
    began = time.perf_counter()
    model.fit(X_train, y_train)
    seconds.append(time.perf_counter() - began)
    errors.append(root_mean_squared_error(y_test, model.predict(X_test)))
    print(f"subset_size={size}: test RMSE {errors[-1]:.3f}")

# %%
# The noise of the data is 0.1. Control points are chosen to be spread over the data (k-means++),
# so that a hundred already see all of it.
#
# In time a subset gains little at this size: its natural gradient solves a system of the control
# points at each step, and that of all rows needs none. From some thousands of rows on the square
# of the rows takes over, and a subset is the only way.

figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
ticks = [size or len(X_train) for size in sizes]
for ax, values, label in zip(axes, (errors, seconds), ("test RMSE", "seconds"), strict=True):
    ax.plot(ticks, values, "o-")
    ax.set(xscale="log", xlabel="control points", ylabel=label, ylim=(0, None))
plt.show()
