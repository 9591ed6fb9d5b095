"""The classifier beside others: the linked tori, and three datasets of scikit-learn.

    python benchmarks/classification.py [--folds 5] [--out classification.json]

Accuracy and log loss (the mean of minus the log probability of the right class) over stratified
folds, the same for everyone, with the seconds that the folds took. Everyone has its defaults;
logistic regression and the SVM get standardised columns, as ours standardises its own.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.base import ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from finemorphs import FineMorphsClassifier
from finemorphs.datasets import make_tori

MODELS: dict[str, ClassifierMixin] = {
    "FineMorphs ADA": FineMorphsClassifier(random_state=0),
    "FineMorphs AD2A": FineMorphsClassifier("AD2A", random_state=0),
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
    "SVM": make_pipeline(StandardScaler(), CalibratedClassifierCV(SVC(), ensemble=False)),
    "gradient boosting": HistGradientBoostingClassifier(random_state=0),
}


def datasets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {
        "tori": make_tori(600, random_state=0),
        "tori, noisy": make_tori(600, noise=0.2, random_state=0),
        "iris": load_iris(return_X_y=True),
        "wine": load_wine(return_X_y=True),
        "breast cancer": load_breast_cancer(return_X_y=True),
    }


def measure(model: ClassifierMixin, X: np.ndarray, y: np.ndarray, folds: int) -> dict[str, float]:
    """Means over the folds, and the population standard deviation of the accuracy over root n."""
    accuracy, loss = [], []
    began = time.perf_counter()
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=0).split(X, y):
        fitted = clone(model).fit(X[train], y[train])
        chances = fitted.predict_proba(X[test])
        accuracy.append(float((fitted.predict(X[test]) == y[test]).mean()))
        loss.append(float(log_loss(y[test], chances, labels=fitted.classes_)))
    return {
        "accuracy": float(np.mean(accuracy)),
        "standard_error": float(np.std(accuracy) / np.sqrt(folds)),
        "log_loss": float(np.mean(loss)),
        "seconds": time.perf_counter() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    table = Table("dataset", "rows", "columns", "model", "accuracy", "log loss", "seconds")
    rows = []
    for name, (X, y) in datasets().items():
        for label, model in MODELS.items():
            found = measure(model, X, y, options.folds)
            rows.append({"dataset": name, "rows": len(X), "model": label, **found})
            table.add_row(
                name,
                str(len(X)),
                str(X.shape[1]),
                label,
                f"{found['accuracy']:.3f} ± {found['standard_error']:.3f}",
                f"{found['log_loss']:.3f}",
                f"{found['seconds']:.1f}",
            )
    Console().print(table)
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
