"""The Rings data of the paper: no smooth map of the plane makes it linear, one of space does.

Fits the baseline ADA model with one dummy dimension, prints the errors, and draws the data
before and after the diffeomorphism.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split

from finemorphs import FineMorphsRegressor
from finemorphs.datasets import make_rings
from finemorphs.plots import plot_reshaping


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/rings.png"), help="picture to write")
    arguments = parser.parse_args()

    X, y = make_rings(1200, random_state=0)
    X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=400, random_state=0)
    model = FineMorphsRegressor(sequence="ADA", dummy_dims=1, random_state=0, verbose=1)
    model.fit(X_train, y_train)
    print(f"train RMSE {root_mean_squared_error(y_train, model.predict(X_train)):.4f}")
    test_rmse = root_mean_squared_error(y_test, model.predict(X_test))
    print(f"test RMSE  {test_rmse:.4f}   (standard deviation of the response {y_test.std():.4f})")

    mpl.use("Agg")
    figure = plot_reshaping(X_test, y_test, model.transform(X_test))[0].figure
    figure.suptitle(
        f"Rings, {model.sequence_} with one dummy dimension: "
        f"{len(y_test)} test points, RMSE {test_rmse:.3f}"
    )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.out, dpi=150)
    print(f"picture: {arguments.out}")


if __name__ == "__main__":
    main()
