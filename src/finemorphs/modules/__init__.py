"""The two kinds of module: affine maps (A) and diffeomorphisms (D)."""

from finemorphs.modules._base import Backward, Forward, Module
from finemorphs.modules.affine import Affine
from finemorphs.modules.diffeo import Diffeo

__all__ = ["Affine", "Backward", "Diffeo", "Forward", "Module"]
