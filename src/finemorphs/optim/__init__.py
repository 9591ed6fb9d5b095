"""Minimisation of smooth functions of one flat tensor; nothing here knows the model."""

from finemorphs.optim.history import History
from finemorphs.optim.lbfgs import minimize
from finemorphs.optim.result import Evaluation, Iteration, Past, Result

__all__ = ["Evaluation", "History", "Iteration", "Past", "Result", "minimize"]
