"""Programs as tapes: named operations on named arrays, in the order they are done."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from finemorphs._typing import Array

__all__ = ["Operation", "Tape", "Value"]


@dataclass(frozen=True)
class Operation:
    """A step of a program: its kind, in ONNX's words, the names it takes and the one it gives."""

    kind: str
    inputs: tuple[str, ...]
    output: str


@dataclass(frozen=True)
class Value:
    """An array on a tape, by its name; numbers and arrays beside it become constants."""

    tape: Tape
    name: str

    def __matmul__(self, other: Value | Array) -> Value:
        return self.tape.add("MatMul", self, other)

    def __add__(self, other: Value | Array | float) -> Value:
        return self.tape.add("Add", self, other)

    def __mul__(self, other: Value | Array | float) -> Value:
        return self.tape.add("Mul", self, other)

    def __neg__(self) -> Value:
        return self * -1.0

    def relu(self) -> Value:
        """max(x, 0)."""
        return self.tape.add("Relu", self)

    def sqrt(self) -> Value:
        """The square root."""
        return self.tape.add("Sqrt", self)

    def exp(self) -> Value:
        """The exponential."""
        return self.tape.add("Exp", self)

    def log(self) -> Value:
        """The natural logarithm."""
        return self.tape.add("Log", self)


@dataclass
class Tape:
    """Operations in their order, and the arrays of the model by name."""

    operations: list[Operation] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def add(self, kind: str, *inputs: Value | Array | float) -> Value:
        """One more operation."""
        values = [v if isinstance(v, Value) else self._constant(v) for v in inputs]
        name = f"{kind}_{len(self.operations)}"
        self.operations.append(Operation(kind, tuple(v.name for v in values), name))
        return Value(self, name)

    def _constant(self, values: Array | float) -> Value:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = np.array(values, dtype=np.float64, order="C")
        return Value(self, name)
