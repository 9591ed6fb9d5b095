"""
Rings: why a flow needs room
============================

The height over a disc makes two rings. Rows of equal height are far apart with other heights
between them, and no smooth invertible map of the *plane* can change that. With one dummy
dimension the flow has room: it lifts the rings off the plane until height is one direction.
"""

import matplotlib.pyplot as plt

from finemorphs import FineMorphsRegressor
from finemorphs.datasets import make_rings
from finemorphs.plots import plot_flow, plot_reshaping

X, y = make_rings(700, random_state=0)
X_train, y_train, X_test, y_test = X[:300], y[:300], X[300:], y[300:]

# %%
# The same sequence without and with a dummy dimension:

models = {}
for dummy_dims in (0, 1):
    model = FineMorphsRegressor(
        "ADA", dummy_dims=dummy_dims, n_steps=5, max_iter=60, random_state=0
    ).fit(X_train, y_train)
    models[dummy_dims] = model
    print(f"dummy_dims={dummy_dims}: test R2 {model.score(X_test, y_test):.3f}")

# %%
# The test rows before and after the D module, coloured by their height. On the right a plane
# through the cloud would predict well, and that is what the last A module is.

model = models[1]
left, right = plot_reshaping(X_test, y_test, model.transform(X_test))

# %%
# What happens in between, at six times of the flow:

plot_flow(model, X_test, y_test, response_axis=True)
plt.show()
