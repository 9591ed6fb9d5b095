"""Small charts as SVG text; colours and fonts come from the style sheet of the page."""

from __future__ import annotations

import math
from html import escape

import numpy as np

from finemorphs._typing import Array

__all__ = ["Chart", "bars", "number", "ticks"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 12.0, 10.0, 40.0
_LABEL, _CHARACTER = 28.0, 7.0  # widths of the name of the axis upwards, and of a digit on it


def number(value: float, digits: int = 4) -> str:
    """A number as people write it: few digits, no exponent where none is needed."""
    if not math.isfinite(value):
        return "\u2013"
    return f"{value:.{digits}g}".replace("-", "\u2212")


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between two, about so many."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = min((m * power for m in (1, 2, 5, 10)), key=lambda s: abs(s - raw))
    first = math.ceil(low / step)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


class Chart:
    """Axes with points and lines on them.

    Parameters
    ----------
    xlim, ylim : pair of float
    labels : pair of str
        What is along and what is up.
    log : bool, default=False
        Whether upwards is logarithmic; the limits are then powers of ten.
    size : pair of float
        In units of the drawing, which is scaled to its place.
    """

    def __init__(
        self,
        xlim: tuple[float, float],
        ylim: tuple[float, float],
        labels: tuple[str, str],
        *,
        log: bool = False,
        size: tuple[float, float] = (420.0, 300.0),
    ) -> None:
        self._xlim, self._ylim, self._log, self._size = _wide(xlim), _wide(ylim), log, size
        self._parts: list[str] = []
        shown = [number(10.0**value if log else value) for value in self._y_ticks()]
        self._left = max(_LEFT, _LABEL + _CHARACTER * max(map(len, shown), default=0))
        self._axes(labels)

    def x(self, values: Array) -> Array:
        """Places along."""
        low, high = self._xlim
        width = self._size[0] - self._left - _RIGHT
        places: Array = self._left + (np.asarray(values, dtype=float) - low) / (high - low) * width
        return places

    def y(self, values: Array) -> Array:
        """Places upwards."""
        low, high = self._ylim
        values = np.asarray(values, dtype=float)
        if self._log:
            values = np.log10(np.maximum(values, 10.0**low))
        height = self._size[1] - _TOP - _BOTTOM
        places: Array = self._size[1] - _BOTTOM - (values - low) / (high - low) * height
        return places

    def dots(self, x: Array, y: Array, kind: str = "") -> None:
        """Points, as one path of strokes without length."""
        places = zip(self.x(x).tolist(), self.y(y).tolist(), strict=True)
        path = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in places)
        self._parts.append(f'<path class="dots {kind}" d="{path}"/>')

    def line(self, x: Array, y: Array, kind: str = "") -> None:
        """A line through points."""
        places = zip(self.x(x).tolist(), self.y(y).tolist(), strict=True)
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
        self._parts.append(f'<path class="line {kind}" d="M{path}"/>')

    def render(self, description: str) -> str:
        """The drawing, with what it shows for those who do not see it."""
        width, height = self._size
        return (
            f'<svg viewBox="0 0 {width:g} {height:g}" role="img" '
            f'aria-label="{escape(description)}">{"".join(self._parts)}</svg>'
        )

    def _axes(self, labels: tuple[str, str]) -> None:
        width, height = self._size
        bottom, right = height - _BOTTOM, width - _RIGHT
        for value in ticks(*self._xlim):
            a = float(self.x(np.array(value)))
            self._parts.append(f'<path class="grid" d="M{a:.1f} {_TOP}V{bottom}"/>')
            self._text(a, bottom + 15, number(value), "middle")
        for value in self._y_ticks():
            shown = 10.0**value if self._log else value
            b = float(self.y(np.array(shown)))
            self._parts.append(f'<path class="grid" d="M{self._left} {b:.1f}H{right}"/>')
            self._text(self._left - 6, b + 4, number(shown), "end")
        self._text((self._left + right) / 2, height - 6, labels[0], "middle", "label")
        middle = (_TOP + bottom) / 2
        self._parts.append(
            f'<text class="label" text-anchor="middle" transform="translate(13 {middle:.1f}) '
            f'rotate(-90)">{escape(labels[1])}</text>'
        )

    def _y_ticks(self) -> list[float]:
        if not self._log:
            return ticks(*self._ylim)
        low, high = math.floor(self._ylim[0]), math.ceil(self._ylim[1])
        step = max(1, round((high - low) / 5))
        inside = (self._ylim[0] - 1e-9, self._ylim[1] + 1e-9)
        return [float(k) for k in range(low, high + 1, step) if inside[0] <= k <= inside[1]]

    def _text(self, x: float, y: float, text: str, anchor: str, kind: str = "tick") -> None:
        self._parts.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )


def bars(names: list[str], values: Array, description: str) -> str:
    """Horizontal bars with their names before and their values behind them."""
    width, step, left = 420.0, 22.0, 150.0
    largest = max(float(np.max(values)), np.finfo(float).tiny)
    parts = []
    for i, (name, value) in enumerate(zip(names, values.tolist(), strict=True)):
        length = value / largest * (width - left - 62)
        behind = left + length + 6
        middle = i * step + step / 2 + 4
        short = name if len(name) <= 22 else name[:21] + "…"
        parts.append(
            f'<text class="tick" x="{left - 8:g}" y="{middle:.1f}" text-anchor="end">'
            f"<title>{escape(name)}</title>{escape(short)}</text>"
            f'<rect class="bar" x="{left:g}" y="{i * step + 4:.1f}" width="{max(length, 0.5):.1f}" '
            f'height="{step - 8:g}" rx="2"/>'
            f'<text class="tick" x="{behind:.1f}" y="{middle:.1f}">{number(value)}</text>'
        )
    return (
        f'<svg viewBox="0 0 {width:g} {max(len(names), 1) * step:g}" role="img" '
        f'aria-label="{escape(description)}">{"".join(parts)}</svg>'
    )


def _wide(limits: tuple[float, float]) -> tuple[float, float]:
    """Limits with room between them, also where all values are one."""
    low, high = limits
    if high > low:
        return low, high
    return low - 0.5 * max(abs(low), 1.0), low + 0.5 * max(abs(low), 1.0)
