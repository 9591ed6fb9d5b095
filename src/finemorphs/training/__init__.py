"""Training: the noise level, its rounds, their record and the progress on the screen."""

from finemorphs.training.checkpoint import Checkpoint
from finemorphs.training.history import Callback, Record, as_table, join
from finemorphs.training.noise import NoiseLevel, estimate_noise
from finemorphs.training.progress import Progress
from finemorphs.training.rounds import INTERRUPTED, Settings, Training, train

__all__ = [
    "INTERRUPTED",
    "Callback",
    "Checkpoint",
    "NoiseLevel",
    "Progress",
    "Record",
    "Settings",
    "Training",
    "as_table",
    "estimate_noise",
    "join",
    "train",
]
