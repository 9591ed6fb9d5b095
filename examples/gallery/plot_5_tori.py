"""
Classification of two linked tori
=================================

Two tori are linked like rings of a chain. Any diffeomorphism of space keeps them linked, so that
no plane can separate their images; in four dimensions they come apart. The classifier is the same
sequence with a logistic loss.
"""

import matplotlib.pyplot as plt

from finemorphs import FineMorphsClassifier
from finemorphs.datasets import make_tori
from finemorphs.plots import plot_reshaping

X, y = make_tori(700, noise=0.02, random_state=0)
X_train, y_train, X_test, y_test = X[:300], y[:300], X[300:], y[300:]

for dummy_dims in (0, 1):
    model = FineMorphsClassifier(dummy_dims=dummy_dims, n_steps=5, max_iter=60, random_state=0)
    model.fit(X_train, y_train)
    # The squared distance of the flow's map from the identity.
    (distance,) = model.distance_.values()
    print(
        f"dummy_dims={dummy_dims}: accuracy {model.score(X_test, y_test):.3f}, "
        f"deformation {distance:.0f}"
    )

# %%
# The test rows as they come (two principal axes), and as they leave the D module that had a fourth
# dimension to move in, upwards the direction that tells the tori apart.

plot_reshaping(X_test, y_test, model.transform(X_test), label="torus")

# %%
# The probabilities are calibrated as far as a logistic model is: most rows are certain.

certain = model.predict_proba(X_test).max(axis=1)
figure, ax = plt.subplots(figsize=(5.5, 3), layout="constrained")
ax.hist(certain, bins=25, color="tab:blue")
ax.set(xlabel="probability of the class that is predicted", ylabel="test rows")
plt.show()
