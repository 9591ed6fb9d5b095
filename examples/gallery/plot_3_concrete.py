"""
A table like Concrete
=====================

Strength of concrete from its mixture, on generated data: it falls with the ratio of water to
binder, grows with the logarithm of age, and slag does its part late. We compare ridge regression,
boosted trees and two sequences, and look at what the model makes of each column.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from finemorphs import FineMorphsRegressor
from finemorphs.plots import plot_predictions, plot_sensitivity

rng = np.random.default_rng(0)
n = 500
table = pd.DataFrame(
    {
        "cement": rng.uniform(100, 540, n),
        "slag": rng.choice([0.0, 1.0], n) * rng.uniform(0, 250, n),
        "water": rng.uniform(120, 250, n),
        "age": rng.choice([3, 7, 14, 28, 56, 90, 180], n),
    }
)
binder = table.cement + table.slag * (0.3 + 0.1 * np.log(table.age))
strength = 150 / 12 ** (table.water / binder) * (0.25 + 0.2 * np.log(table.age))
strength = strength + rng.normal(0, 2, n)
X_train, X_test, y_train, y_test = train_test_split(table, strength, random_state=0)

# %%
# Data frames go in as they are; columns are standardised inside.

models = {
    "ridge": make_pipeline(StandardScaler(), Ridge()),
    "boosted trees": HistGradientBoostingRegressor(random_state=0),
    "ADA": FineMorphsRegressor("ADA", n_steps=5, max_iter=60, random_state=0),
    "AD^2A": FineMorphsRegressor(
        "AD^2A", kernel_width="decreasing", n_steps=5, max_iter=60, random_state=0
    ),
}
for name, model in models.items():
    predicted = model.fit(X_train, y_train).predict(X_test)
    print(f"{name:14} test RMSE {root_mean_squared_error(y_test, predicted):.2f}")

# %%
# The noise has standard deviation 2: no model can do better than that.

model = models["ADA"]
plot_predictions(model, X_test, y_test)

# %%
# The derivative of the prediction by each column is exact, and cheap.

plot_sensitivity(model, X_test)
plt.show()
