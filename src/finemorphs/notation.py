"""The notation "AD^4A", and the chain of modules and dimensions that it stands for.

A notation names the modules that are there; every other place of the alternating chain
A0 D1 A1 ... Dm Am is the identity. "ADDAA" has places A0 D1 [A1] D2 A2 [D3] A3 with the
ones in brackets identities, so d_1 = d_2 there. d_0 = d_X + s, d_(m+1) = d_Y + r.
"""

from __future__ import annotations

import re
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from finemorphs.exceptions import DimensionError, SequenceError

__all__ = ["MAX_MODULES", "Chain", "canonical", "parse"]

MAX_MODULES = 200
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


def parse(notation: str) -> str:
    """The letters of a notation: "AD^2A2", "AD2A2" and "ADDAA" all give "ADDAA"."""
    if not isinstance(notation, str):
        raise SequenceError(
            f"sequence must be text such as 'ADA' or 'AD^4A', not {type(notation).__name__}."
        )
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda m: "^" + m[0].translate(_SUPERSCRIPTS), notation)
    text = re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text).replace("**", "^").upper()
    tokens = re.findall(r"[AD()]|\^?\d+|.", text)
    letters, rest = _parse_group(notation, tokens, depth=0)
    if rest:
        raise SequenceError(f"sequence {notation!r} closes a bracket that it never opened.")
    if not letters:
        raise SequenceError("sequence is empty; give at least one module, such as 'ADA'.")
    return letters


def _parse_group(notation: str, tokens: list[str], depth: int) -> tuple[str, list[str]]:
    """The letters up to the closing bracket of this depth, and the tokens behind it."""
    letters = ""
    while tokens:
        token, *tokens = tokens
        if token in ("A", "D"):
            unit = token
        elif token == "(" and depth < 20:
            unit, (_, *tokens) = _parse_group(notation, tokens, depth + 1)
            if not unit:
                raise SequenceError(f"sequence {notation!r} has nothing between two brackets.")
        elif token == ")":
            return letters, [token, *tokens]
        else:
            raise SequenceError(
                f"sequence {notation!r} cannot be read at {token!r}; use the letters A and D, "
                "brackets, and repetitions such as 'AD^4A', 'AD4A' or '(AD)^3A'."
            )
        count = 1
        if tokens and (number := re.fullmatch(r"\^?(\d{1,9})", tokens[0])):
            count, tokens = int(number[1]), tokens[1:]
            if count == 0:
                raise SequenceError(f"sequence {notation!r} repeats a part 0 times; leave it out.")
        if len(letters) + len(unit) * count > MAX_MODULES:
            raise SequenceError(
                f"sequence {notation!r} has more than {MAX_MODULES} modules; use fewer."
            )
        letters += unit * count
    if depth:
        raise SequenceError(f"sequence {notation!r} has an opening bracket left open.")
    return letters, []


def canonical(letters: str) -> str:
    """The short form with powers: "ADDAA" is "AD^2A^2", "ADADA" is "(AD)^2A"."""
    result, i = "", 0
    while i < len(letters):
        unit, count = max(_repeats(letters, i), key=lambda r: (len(r[0]) * r[1], -len(r[0])))
        if count == 1:
            unit = letters[i]
        body = unit if len(unit) == 1 else f"({canonical(unit)})"
        result += body if count == 1 else f"{body}^{count}"
        i += len(unit) * count
    return result


def _repeats(letters: str, i: int) -> list[tuple[str, int]]:
    """Every unit that starts at i and stands there at least twice, with its count."""
    found = [(letters[i], 1)]
    for length in range(1, (len(letters) - i) // 2 + 1):
        unit, count = letters[i : i + length], 1
        while letters.startswith(unit, i + count * length):
            count += 1
        if count > 1:
            found.append((unit, count))
    return found


@dataclass(frozen=True)
class Chain:
    """The alternating chain A0 D1 A1 ... Dm Am behind a notation.

    ``affine[q]`` and ``diffeo[q - 1]`` say which of A_q and D_q are there; the others are
    identities.
    """

    letters: str
    affine: tuple[bool, ...]
    diffeo: tuple[bool, ...]

    @classmethod
    def from_notation(cls, notation: str) -> Chain:
        """Lay the letters out; identities go between two of a kind and at the ends."""
        letters = parse(notation)
        places: list[bool] = []
        for letter in letters:
            if (letter == "A") != (len(places) % 2 == 0):
                places.append(False)
            places.append(True)
        if len(places) % 2 == 0:
            places.append(False)
        return cls(letters, tuple(places[0::2]), tuple(places[1::2]))

    @property
    def m(self) -> int:
        """Number of places for D modules."""
        return len(self.diffeo)

    def dimensions(self, d_in: int, d_out: int, dims: int | SequenceOf[int] | None) -> list[int]:
        """d_0 .. d_(m+1): the dimension before A_q is d_q, behind it d_(q+1).

        An identity A_q forces d_q = d_(q+1). What neither that nor ``dims`` settles carries
        the input's dimension.
        """
        wanted: list[int | None] = [d_in, *self._inner(dims), d_out]
        identities = [q for q, there in enumerate(self.affine) if not there]
        for q in identities:
            if wanted[q + 1] is None:
                wanted[q + 1] = wanted[q]
        for q in reversed(identities):
            if wanted[q] is None:
                wanted[q] = wanted[q + 1]
        result = [d_in if d is None else d for d in wanted]
        for q, (before, behind) in enumerate(pairwise(result)):
            if not self.affine[q] and before != behind:
                raise DimensionError(
                    f"A{q} is the identity in the sequence {canonical(self.letters)!r}, but "
                    f"{before} dimensions enter it and {behind} leave it; {self._advice(q)}."
                )
        return result

    def _inner(self, dims: int | SequenceOf[int] | None) -> list[int | None]:
        if dims is None:
            return [None] * self.m
        if isinstance(dims, (int, np.integer)):
            return [int(dims)] * self.m
        if len(dims) != self.m:
            raise DimensionError(
                f"dims has {len(dims)} values but the sequence {canonical(self.letters)!r} has "
                f"{self.m} inner dimensions; give one value, or {self.m}."
            )
        return [int(d) for d in dims]

    def _advice(self, q: int) -> str:
        if q == self.m:
            return "end the sequence with an A module, or change dims, dummy_dims or output_dims"
        if q == 0:
            return "begin the sequence with an A module, or change dims or dummy_dims"
        return f"put an A module there, or give dims equal values at places {q} and {q + 1}"
