"""The way of the rows through the model as frames of three coordinates each.

A space begins with the input and behind each A module; the D modules that follow move the rows
inside it. In every space upwards is the direction in which the response is linear in the states
that leave it, across are the two principal axes of the rest, turned to agree with the frame before.
Coordinates lie in [-1, 1], on one scale across and one of its own upwards; the bulk of the rows
fills the box, and rows far out stop at twice its size.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from finemorphs._typing import Array
from finemorphs.plots._projection import response_axes

__all__ = ["Frame", "encode", "frames_of"]

_UNIT = 16384  # of a 16-bit number: the edge of the box; twice that is the end of the range
_BULK = 0.99  # share of the rows that fits into the box
_MOST_FRAMES = 150


@dataclass(frozen=True)
class Frame:
    """A moment: the module just passed (or the input), the time in it, coordinates (n, 3)."""

    name: str
    time: float
    points: Array


def frames_of(trajectory: Sequence[tuple[str, float, Array]], response: Array) -> list[Frame]:
    """The frames of a trajectory, coloured later by anything; the response gives the axes."""
    frames: list[Frame] = []
    for space in _spaces(_thinned(trajectory)):
        stack = np.concatenate([states for _, _, states in space])
        turned = response_axes(stack, response, fitted=space[-1][2])
        points = _scaled(turned).reshape(len(space), len(response), 3)
        if frames:
            points[:, :, :2] = points[:, :, :2] @ _turn(points[0][:, :2], frames[-1].points[:, :2])
        frames += [Frame(name, time, p) for (name, time, _), p in zip(space, points, strict=True)]
    return frames


def encode(frames: Sequence[Frame]) -> str:
    """The coordinates of all frames as 16-bit numbers in base64, frame by frame."""
    numbers = np.stack([frame.points for frame in frames]) * _UNIT
    limited = np.clip(np.rint(numbers), -32767, 32767).astype("<i2")
    return base64.b64encode(limited.tobytes()).decode("ascii")


def _thinned(
    trajectory: Sequence[tuple[str, float, Array]],
) -> list[tuple[str, float, Array]]:
    """Without the start of each D module, which is where the one before ended, nor too many."""
    moments = [m for m in trajectory if not (m[0].startswith("D") and m[1] == 0.0)]
    stride = -(-len(moments) // _MOST_FRAMES)
    kept = [m for i, m in enumerate(moments) if m[1] in (0.0, 1.0) or i % stride == 0]
    return kept


def _spaces(
    moments: Sequence[tuple[str, float, Array]],
) -> list[list[tuple[str, float, Array]]]:
    spaces: list[list[tuple[str, float, Array]]] = []
    for moment in moments:
        if not spaces or moment[0].startswith("A"):
            spaces.append([])
        spaces[-1].append(moment)
    return spaces


def _scaled(points: Array) -> Array:
    """The bulk of the points in the box [-1, 1]^3."""
    centred = points - np.median(points, axis=0)
    reach = np.quantile(np.abs(centred), _BULK, axis=0)
    across = max(float(reach[0]), float(reach[1])) or 1.0
    scaled: Array = centred / [across, across, float(reach[2]) or 1.0]
    return scaled


def _turn(points: Array, towards: Array) -> Array:
    """The orthogonal matrix that brings points nearest to others (Procrustes)."""
    left, _, right = np.linalg.svd(points.T @ towards)
    turn: Array = left @ right
    return turn
