"""Data to try a model on: made ones, and the tables of the paper with their splits."""

from __future__ import annotations

from finemorphs.datasets.synthetic import make_rings, make_tori
from finemorphs.datasets.uci import UCI_NAMES, UCIDataset, load_uci

__all__ = ["UCI_NAMES", "UCIDataset", "load_uci", "make_rings", "make_tori"]
