"""
A swiss roll, unrolled by its response
======================================

A sheet is rolled up in space, and the response is the position along the sheet. Two turns of the
roll are near to each other and have different responses, so that distance in space misleads. The
flow pulls the turns apart.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_swiss_roll
from sklearn.linear_model import Ridge

from finemorphs import FineMorphsRegressor
from finemorphs.plots import plot_panels

X, y = make_swiss_roll(600, noise=0.1, random_state=0)
X_train, y_train, X_test, y_test = X[:300], y[:300], X[300:], y[300:]

model = FineMorphsRegressor(
    "AD^2A", kernel_width="decreasing", n_steps=5, max_iter=60, random_state=0
).fit(X_train, y_train)
print(f"ridge regression: test R2 {Ridge().fit(X_train, y_train).score(X_test, y_test):.3f}")
print(f"{model.sequence_}:            test R2 {model.score(X_test, y_test):.3f}")

# %%
# ``trajectory`` gives every state on the way: a name, a time and an array for each. Here are the
# test rows behind the first A module, and where each of the two D modules leaves them.

states = {name: array for name, time, array in model.trajectory(X_test) if time == 1.0}
names = ["A0", "D1", "D2"]
plot_panels([states[name] for name in names], y_test, titles=[f"behind {n}" for n in names])

# %%
# The same with the direction upwards in which the response is linear in the end:

plot_panels(
    [states[name] for name in names],
    y_test,
    titles=[f"behind {n}" for n in names],
    response_axis=True,
)
plt.show()
