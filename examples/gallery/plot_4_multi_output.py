"""
Several responses, one flow
===========================

The position of the hand of an arm with two joints, from the angles of the joints: two responses
that share their geometry. One model predicts both; the flow is common, and only the last affine
module tells them apart.
"""

import matplotlib.pyplot as plt
import numpy as np

from finemorphs import FineMorphsRegressor

rng = np.random.default_rng(0)
angles = rng.uniform(0, np.pi, (400, 2))
shoulder, elbow = angles.T
hand = np.column_stack(
    [
        np.cos(shoulder) + 0.6 * np.cos(shoulder + elbow),
        np.sin(shoulder) + 0.6 * np.sin(shoulder + elbow),
    ]
)
hand += rng.normal(0, 0.02, hand.shape)

model = FineMorphsRegressor(n_steps=5, max_iter=60, random_state=0)
model.fit(angles[:250], hand[:250])
predicted = model.predict(angles[250:])
print("shape of a prediction:", predicted.shape)
print("test R2 of both:", round(model.score(angles[250:], hand[250:]), 4))

# %%
# Where the hand is (grey) and where the model thinks it is (blue):

figure, ax = plt.subplots(figsize=(5, 5), layout="constrained")
for true, guess in zip(hand[250:], predicted, strict=True):
    ax.plot(*zip(true, guess, strict=True), color="0.7", linewidth=0.8)
ax.scatter(*hand[250:].T, s=12, color="0.6", label="measured")
ax.scatter(*predicted.T, s=12, color="tab:blue", label="predicted")
ax.set(xlabel="x", ylabel="y", aspect="equal", title="The hand")
ax.legend(frameon=False)

# %%
# The Jacobian has a row for each response and a column for each angle. Where its determinant is
# near zero the arm is stretched out, and the hand cannot be moved in every direction.

determinants = np.linalg.det(model.jacobian(angles[250:]))
figure, ax = plt.subplots(figsize=(5.5, 4), layout="constrained")
picture = ax.scatter(*angles[250:].T, c=determinants, s=20, cmap="coolwarm")
ax.set(
    xlabel="shoulder", ylabel="elbow", title="determinant of the Jacobian (truth: 0.6 sin(elbow))"
)
figure.colorbar(picture)
plt.show()
