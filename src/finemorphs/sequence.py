"""Sequences of modules: composition, and one vector for all parameters (paper, Section 2).

    f(x) = pi_r( A_m o phi_m o A_(m-1) o ... o phi_1 o A_0 ( iota_s(x) ) )

Which modules there are, and of which dimensions, is said by :mod:`finemorphs.notation`.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch

from finemorphs._typing import Array, Tensor
from finemorphs.engines import Engine
from finemorphs.exceptions import DimensionError, SequenceError
from finemorphs.kernels import Kernel
from finemorphs.modules import Affine, Diffeo, Forward, Module
from finemorphs.notation import Chain, canonical

__all__ = ["ModuleSequence"]


class ModuleSequence:
    """Modules in their order, with one flat vector for all parameters.

    Parameters
    ----------
    notation : str
        The sequence in canonical form.
    modules : sequence of Module
        Each takes the dimension that the one before it gives.
    """

    def __init__(self, notation: str, modules: SequenceOf[Module]) -> None:
        for before, behind in pairwise(modules):
            if before.d_out != behind.d_in:
                raise DimensionError(
                    f"{before.name} gives {before.d_out} dimensions but {behind.name} takes "
                    f"{behind.d_in}; neighbours must agree."
                )
        self.notation = notation
        self.modules = tuple(modules)
        self._offsets = [0, *accumulate(m.n_parameters for m in modules)]

    @classmethod
    def build(
        cls,
        notation: str,
        d_in: int,
        d_out: int,
        n_controls: int,
        *,
        dims: int | SequenceOf[int] | None = None,
        kernel: str = "matern",
        kernel_order: int = 3,
        kernel_width: float | str | SequenceOf[float] = 0.5,
        n_steps: int | SequenceOf[int] = 10,
        ridge: float | SequenceOf[float] = 1.0,
        inner_affine: str = "ridge",
    ) -> ModuleSequence:
        """The modules of a notation.

        Parameters
        ----------
        notation : str
            Such as "ADA", "AD^4A", "(AD)^3A".
        d_in, d_out : int
            Dimensions d_0 = d_X + s and d_(m+1) = d_Y + r.
        n_controls : int
            Number N_S of control points.
        dims : int, sequence of int or None
            Inner dimensions d_1 .. d_m; None carries the input's.
        kernel, kernel_order : str, int
            Family and order of every D module's kernel.
        kernel_width : float, sequence of float, "increasing" or "decreasing"
            One width, one for each D module, or q/(m + 1) rising or falling.
        n_steps : int or sequence of int
            Euler steps, one number or one for each D module.
        ridge : float or sequence of float
            Weights lambda, one or one for each A module.
        inner_affine : {"ridge", "identity"}
            What inner square A modules are pulled to.
        """
        chain = Chain.from_notation(notation)
        d = chain.dimensions(d_in, d_out, dims)
        widths = iter(_widths(kernel_width, chain.letters))
        steps = iter(_one_each("n_steps", n_steps, chain.letters, "D"))
        ridges = iter(_one_each("ridge", ridge, chain.letters, "A"))
        modules: list[Module] = []
        for q in range(chain.m + 1):
            if q > 0 and chain.diffeo[q - 1]:
                shape = Kernel(kernel, kernel_order, next(widths))
                modules.append(Diffeo(f"D{q}", d[q], shape, next(steps), n_controls))
            if chain.affine[q]:
                inner = 0 < q < chain.m and d[q] == d[q + 1]
                identity = inner and inner_affine == "identity"
                modules.append(Affine(f"A{q}", d[q], d[q + 1], next(ridges), identity))
        return cls(canonical(chain.letters), modules)

    @property
    def d_in(self) -> int:
        """Dimension d_0 of the padded input."""
        return self.modules[0].d_in

    @property
    def d_out(self) -> int:
        """Dimension d_(m+1) of the output before it is cut."""
        return self.modules[-1].d_out

    @property
    def n_parameters(self) -> int:
        """Length of the flat parameter vector."""
        return self._offsets[-1]

    @property
    def diffeos(self) -> tuple[Diffeo, ...]:
        """The D modules in their order."""
        return tuple(m for m in self.modules if isinstance(m, Diffeo))

    @property
    def n_controls(self) -> int:
        """Number N_S of control points; 0 without a D module."""
        return self.diffeos[0].n_controls if self.diffeos else 0

    @property
    def affines(self) -> tuple[Affine, ...]:
        """The A modules in their order."""
        return tuple(m for m in self.modules if isinstance(m, Affine))

    @property
    def places(self) -> list[slice]:
        """Where the parameters of each module stand in the flat vector."""
        return [slice(i, j) for i, j in pairwise(self._offsets)]

    def split(self, theta: Tensor) -> list[Tensor]:
        """Views of the parameters of each module."""
        return [theta[place] for place in self.places]

    @property
    def n_sums(self) -> int:
        """Length of the sums of all modules over rows that do not steer."""
        return sum(m.n_sums for m in self.modules)

    def start(self, rng: np.random.Generator) -> Array:
        """Start values of all parameters, drawn in the order of the modules."""
        return np.concatenate([m.start(rng) for m in self.modules])

    def forward(self, engine: Engine, theta: Tensor, x: Tensor) -> list[Forward]:
        """Map the control points (N_S, d_0); one entry for each module."""
        steps: list[Forward] = []
        for module, part in zip(self.modules, self.split(theta), strict=True):
            steps.append(module.forward(engine, part, x))
            x = steps[-1].output
        return steps

    def backward(
        self,
        engine: Engine,
        theta: Tensor,
        steps: list[Forward],
        costates: Tensor,
        natural: bool = False,
        sums: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The flat gradient, and its natural twin (the gradient itself on A modules).

        ``sums`` is what other rows have added up to in :meth:`pull_back`.
        """
        gradient = torch.empty_like(theta)
        twin = torch.empty_like(theta) if natural else None
        shares = [None] * len(self.modules) if sums is None else self._split_sums(sums)
        passed = zip(self.modules, self.places, steps, shares, strict=True)
        for module, place, step, share in reversed(list(passed)):
            into = gradient[place], None if twin is None else twin[place]
            back = module.backward(engine, theta[place], step.cache, costates, natural, into, share)
            costates = back.costates
        return gradient, twin

    def centers(self, engine: Engine, theta: Tensor, control_points: Tensor) -> list[Tensor]:
        """The control points (T, N_S, d) of every D module at the start of each step."""
        return self.paths(self.forward(engine, theta, control_points))

    def paths(self, steps: list[Forward]) -> list[Tensor]:
        """The same out of a forward pass."""
        return [
            step.cache.states[:-1]
            for module, step in zip(self.modules, steps, strict=True)
            if isinstance(module, Diffeo)
        ]

    def trajectory(
        self, engine: Engine, theta: Tensor, centers: list[Tensor], x: Tensor
    ) -> list[Tensor]:
        """States behind each module for other rows: (n, d) for A, (T + 1, n, d) for D."""
        known = iter(centers)
        states: list[Tensor] = []
        for module, part in zip(self.modules, self.split(theta), strict=True):
            if isinstance(module, Diffeo):
                states.append(module.transport(engine, part, next(known), x))
                x = states[-1][-1]
            elif isinstance(module, Affine):
                x = module.apply(part, x)
                states.append(x)
        return states

    def pull_back(
        self,
        engine: Engine,
        theta: Tensor,
        centers: list[Tensor],
        inputs: list[Tensor],
        states: list[Tensor],
        costates: Tensor,
        sums: Tensor,
    ) -> Tensor:
        """Pull the costates of other rows back to their inputs; adds to the sums.

        ``inputs`` enter the modules, ``states`` are what :meth:`trajectory` gave.
        """
        known = reversed(centers)
        parts = zip(self.modules, self.split(theta), self._split_sums(sums), strict=True)
        passed = zip(parts, inputs, states, strict=True)
        for (module, part, share), entering, through in reversed(list(passed)):
            if isinstance(module, Diffeo):
                costates = module.transport_back(
                    engine, part, next(known), through, costates, share
                )
            elif isinstance(module, Affine):
                costates = module.pull_back(part, entering, costates, share)
        return costates

    def inputs(self, x: Tensor, states: list[Tensor]) -> list[Tensor]:
        """The rows (n, d) that enter each module, given x and the states behind each."""
        return [x, *(z[-1] if z.ndim == 3 else z for z in states[:-1])]

    def _split_sums(self, sums: Tensor) -> list[Tensor]:
        return list(sums.split([m.n_sums for m in self.modules]))

    def __str__(self) -> str:
        return self.notation

    def __repr__(self) -> str:
        return f"ModuleSequence({self.notation!r}, d_in={self.d_in}, d_out={self.d_out})"


def _widths(value: float | str | SequenceOf[float], letters: str) -> list[float]:
    m = letters.count("D")
    if isinstance(value, str):
        if value not in ("increasing", "decreasing"):
            raise ValueError(
                f"kernel_width={value!r} is not known; use a number, one for each D module, "
                "'increasing' or 'decreasing'."
            )
        rising = [q / (m + 1) for q in range(1, m + 1)]
        return rising if value == "increasing" else rising[::-1]
    return _one_each("kernel_width", value, letters, "D")


def _one_each(option: str, value: Any, letters: str, letter: str) -> list[Any]:
    """A value for each module of a kind, from one value or a list of them."""
    count = letters.count(letter)
    if isinstance(value, (list, tuple, np.ndarray)):
        values = list(np.asarray(value).tolist())
        if len(values) != count:
            raise SequenceError(
                f"{option} has {len(values)} values but the sequence {canonical(letters)!r} has "
                f"{count} {letter} modules; give one value, or {count}."
            )
        return values
    return [value] * count
