"""Every error of the library that is not a plain ``ValueError`` or ``TypeError``.

Messages have three parts: what is wrong, what came, what to do.
"""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "DatasetError",
    "DimensionError",
    "DistributedError",
    "EngineError",
    "FineMorphsError",
    "MemoryLimitError",
    "MissingDatasetError",
    "ModelFileError",
    "NotInvertibleError",
    "SequenceError",
    "TableError",
]


class FineMorphsError(Exception):
    """Base class of the library's own errors."""


class SequenceError(FineMorphsError, ValueError):
    """The sequence notation cannot be read, or an option does not fit the sequence."""


class DimensionError(FineMorphsError, ValueError):
    """Two neighbouring modules disagree about the dimension between them."""


class NotInvertibleError(FineMorphsError, ValueError):
    """A module cannot be inverted at the states that were given; the message names it."""


class DistributedError(FineMorphsError, RuntimeError):
    """A process of a fit by several was lost, or they do not agree."""


class EngineError(FineMorphsError, RuntimeError):
    """The engine that was asked for is unknown, missing or cannot do what was asked."""


class ModelFileError(FineMorphsError, ValueError):
    """A model file is damaged, of another kind, or of a newer format."""


class MemoryLimitError(FineMorphsError, MemoryError):
    """A fit needs more memory than there is, or is allowed; the message says what to change."""


class CheckpointError(FineMorphsError, ValueError):
    """A checkpoint is damaged, or of other data or other options; the message says which."""


class DatasetError(FineMorphsError, ValueError):
    """A dataset is unknown, not at hand, or damaged; the message names the file and the line."""


class MissingDatasetError(DatasetError):
    """Files of a dataset, all or some, are not at hand and could not be loaded."""


class TableError(FineMorphsError, ValueError):
    """A file of rows and columns cannot be read, or not used as it was asked."""
