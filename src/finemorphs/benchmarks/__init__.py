"""The tables and figures of the paper, by one command: ``python -m finemorphs.benchmarks``."""

from __future__ import annotations

from finemorphs.benchmarks.dnn import DNNRegressor
from finemorphs.benchmarks.models import MODELS, TABLES, make_model
from finemorphs.benchmarks.paper import PaperScore, load_paper
from finemorphs.benchmarks.runner import run
from finemorphs.benchmarks.settings import Settings
from finemorphs.benchmarks.tables import render, summarise

__all__ = [
    "MODELS",
    "TABLES",
    "DNNRegressor",
    "PaperScore",
    "Settings",
    "load_paper",
    "make_model",
    "render",
    "run",
    "summarise",
]
