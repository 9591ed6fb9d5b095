"""
Pipelines and search
====================

The estimators are scikit-learn's: they work in pipelines, in searches, and as a transformer whose
output another model takes.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from finemorphs import FineMorphsRegressor

rng = np.random.default_rng(0)
n = 160
table = pd.DataFrame({"size": rng.uniform(1, 4, n), "kind": rng.choice(["round", "square"], n)})
area = np.where(table.kind == "round", np.pi / 4, 1.0) * table["size"] ** 2
area = area + rng.normal(0, 0.2, n)

# %%
# Text becomes columns of 0 and 1, the rest passes through; then the flow. A search goes over the
# options of any step.

pipeline = make_pipeline(
    make_column_transformer((OneHotEncoder(drop="first"), ["kind"]), remainder="passthrough"),
    FineMorphsRegressor(n_steps=5, max_iter=40, random_state=0),
)
options = {
    "finemorphsregressor__sequence": ["DA", "ADA"],
    "finemorphsregressor__kernel_width": [0.3, 1.0],
}
search = GridSearchCV(pipeline, options, cv=2, scoring="neg_root_mean_squared_error")
search.fit(table, area)
print("best:", search.best_params_)
print(f"error out of fold: {-search.best_score_:.3f} (noise of the data: 0.2)")

# %%
results = pd.DataFrame(search.cv_results_).pivot_table(
    index="param_finemorphsregressor__kernel_width",
    columns="param_finemorphsregressor__sequence",
    values="mean_test_score",
)
ax = (-results).plot.bar(rot=0, figsize=(6, 3.2), ylabel="RMSE out of fold", xlabel="kernel width")
ax.legend(title="sequence", frameon=False)

# %%
# As a transformer: a flow learnt with the response, then a ridge regression on its states. Ridge
# regression on the columns as they are cannot see the product of kind and size.

columns, model = pipeline[0], pipeline[1]
flow = make_pipeline(columns, model, Ridge())
plain = make_pipeline(columns, Ridge())
for name, steps in (("ridge", plain), ("flow, then ridge", flow)):
    print(f"{name:17} R2 {cross_val_score(steps, table, area, cv=2).mean():.3f}")
plt.show()
