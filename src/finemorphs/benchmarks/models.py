"""Every row of the paper's Tables 3, 4 and 5, and the peers, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from finemorphs.benchmarks.dnn import DNNRegressor
from finemorphs.benchmarks.peers import PEERS, check_candidates, make_peer
from finemorphs.estimators import FineMorphsRegressor

__all__ = [
    "DNN_LAYERS",
    "FINEMORPHS",
    "MODELS",
    "TABLES",
    "Table",
    "check_options",
    "make_model",
    "max_rows",
    "taken_options",
]

# Table 2 of the paper.
DNN_LAYERS: dict[str, tuple[int, ...]] = {
    "DNN-1": (64,),
    "DNN-2": (128, 64),
    "DNN-3": (256, 128, 64),
    "DNN-5": (256, 128, 64, 32, 16),
    "DNN-10": (256, 128, 64, 32, 16, 16, 8, 8, 4, 4),
}

# "up" and "down" are the kernel widths q/(m + 1), rising and falling.
FINEMORPHS: dict[str, dict[str, Any]] = {
    "ADA": {"sequence": "ADA"},
    **{f"ADA (T={n})": {"sequence": "ADA", "n_steps": n} for n in (20, 30, 40)},
    **{
        f"AD^{m}A {word}": {"sequence": f"AD^{m}A", "kernel_width": widths}
        for word, widths in (("up", "increasing"), ("down", "decreasing"))
        for m in (2, 3, 4)
    },
    **{f"(AD)^{m}A": {"sequence": f"(AD)^{m}A", "inner_affine": "identity"} for m in (2, 3, 4, 5)},
    "DA": {"sequence": "DA"},
    "AD": {"sequence": "AD"},
    "best": {"preset": "best"},
}
_FLAGS = {"random_state": "--seed", "engine": "--engine", "device": "--device"}
_YEAR = {"dims": 10, "subset_size": 1000}

MODELS: tuple[str, ...] = ("A", *FINEMORPHS, *DNN_LAYERS, *PEERS)


@dataclass(frozen=True)
class Table:
    """What a table of the paper holds: its rows, its datasets, and those with gap splits."""

    title: str
    models: tuple[str, ...]
    datasets: tuple[str, ...]
    gap_datasets: tuple[str, ...] = ()


_UCI = ("concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
_SIX = ("concrete", "energy", "kin8nm", "power", "wine", "yacht")
TABLES = {
    "table3": Table(
        "Table 3: the baseline", ("ADA", "A", *DNN_LAYERS), (*_UCI, "year"), gap_datasets=_UCI
    ),
    "table4": Table(
        "Table 4: other sequences",
        (*(name for name in FINEMORPHS if name not in ("DA", "AD", "best")), "A", *DNN_LAYERS),
        ("airfoil",),
    ),
    "table5": Table("Table 5: four diffeomorphisms", ("ADA", "AD^4A down"), _SIX, _SIX),
    "peers": Table("The best preset and its peers", ("best", *PEERS), (*_UCI, "airfoil"), _UCI),
}


def max_rows(name: str) -> float:
    """The most training rows a model is run on."""
    return 2000 if name == "GP" else float("inf")


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse an option with a flag of its own, or against what the name of a model stands for."""
    for option in options.keys() & _FLAGS.keys():
        raise ValueError(
            f"the option {option}={options[option]!r} would overrule {_FLAGS[option]}; give it "
            f"with {_FLAGS[option]}."
        )
    if "n_candidates" in options:
        check_candidates(options["n_candidates"])
    layers = {"hidden_layers": DNN_LAYERS[name]} if name in DNN_LAYERS else {}
    for option, value in FINEMORPHS.get(name, layers).items():
        if option in options and options[option] != value:
            raise ValueError(
                f"the model {name!r} has {option}={value!r}, but the option "
                f"{option}={options[option]!r} came; drop the option, or choose models that "
                "leave it open."
            )


def taken_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that are parameters of a model."""
    known = make_model(name, "", 1).get_params() if options else {}
    return {option: value for option, value in options.items() if option in known}


def make_model(
    name: str,
    dataset: str,
    n_features: int,
    *,
    seed: int = 0,
    engine: str = "auto",
    device: str = "auto",
) -> Any:
    """A fresh estimator for a row of a table.

    Parameters
    ----------
    name : str
        One of ``MODELS``.
    dataset : str
        Year has ten inner dimensions and 1000 control points, as in the paper.
    n_features : int
        Columns of X.
    seed : int, default=0
    engine, device : str
        Of FineMorphs models; networks and xRFM take the device too, and the CPU for "auto".
    """
    other = "cpu" if device == "auto" else device
    if name == "A":
        return _ridge()
    if name in DNN_LAYERS:
        return DNNRegressor(DNN_LAYERS[name], device=other, random_state=seed)
    if name in PEERS:
        return make_peer(name, n_features, seed, other)
    if name not in FINEMORPHS:
        raise ValueError(f"there is no model {name!r}; choose from {', '.join(MODELS)}.")
    options = dict(FINEMORPHS[name], engine=engine, device=device, random_state=seed)
    if dataset == "year":
        options |= _YEAR
    if name == "AD":  # the flow keeps all dimensions, and all but the response are dropped
        options["output_dims"] = n_features
    return FineMorphsRegressor(**options)


def _ridge() -> Any:
    """Ridge regression, lambda = 1, of standardised data."""
    return TransformedTargetRegressor(
        make_pipeline(StandardScaler(), Ridge(1.0)), transformer=StandardScaler()
    )
