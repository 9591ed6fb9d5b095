"""Minimisation of smooth functions of one flat tensor; nothing here knows the model."""

from finemorphs.optim.lbfgs import History, minimize
from finemorphs.optim.result import Evaluation, Iteration, Result

__all__ = ["Evaluation", "History", "Iteration", "Result", "minimize"]
