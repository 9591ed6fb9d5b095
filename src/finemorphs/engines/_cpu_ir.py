"""A small vector language over LLVM, in which the CPU passes are written.

A :class:`Vector` holds one number for each SIMD lane and takes the signs of arithmetic, so
that a pass reads like its formula; a :class:`Function` has loads, stores, loops and the few
functions the kernels need. LLVM splits or maps the vectors onto what the processor has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

__all__ = ["FLOAT32", "FLOAT64", "INDEX", "Float", "Function", "Place", "Variable", "Vector"]

INDEX = ir.IntType(64)
Index = Any  # an llvmlite value of type INDEX


@dataclass(frozen=True)
class Float:
    """What a floating-point type is made of, for 2^t from its bits.

    ``exp2`` are the coefficients of 1, f, f^2, ... of 2^f on [-1/2, 1/2]; ``round`` is the
    number whose last bit is worth 1, so that adding it rounds to an integer; ``smallest``
    is the exponent under which 2^t counts as 0, so that nothing is ever denormal.
    """

    type: Any
    suffix: str
    itemsize: int
    mantissa: int
    smallest: float
    exp2: tuple[float, ...]

    @property
    def round(self) -> float:
        return 1.5 * 2.0**self.mantissa

    @property
    def bits(self) -> Any:
        return ir.IntType(8 * self.itemsize)


# Near-minimax polynomials, of relative error 8e-8 and 6e-16.
FLOAT32 = Float(
    ir.FloatType(),
    "f32",
    itemsize=4,
    mantissa=23,
    smallest=-125.0,
    exp2=(
        1.0,
        0.693147061560251,
        0.2402223532236195,
        0.05550678368720907,
        0.009671961679595494,
        0.001327463336532476,
    ),
)
FLOAT64 = Float(
    ir.DoubleType(),
    "f64",
    itemsize=8,
    mantissa=52,
    smallest=-1021.0,
    exp2=(
        1.0,
        0.6931471805599462,
        0.24022650695910075,
        0.05550410866465167,
        0.009618129107618665,
        0.0013333558200794592,
        0.00015403530424776529,
        1.5252672924850737e-05,
        1.3215451633221434e-06,
        1.0205905413765595e-07,
        7.070977866508138e-09,
    ),
)


class Vector:
    """One number for each lane."""

    __slots__ = ("f", "value")

    def __init__(self, f: Function, value: Any) -> None:
        self.f, self.value = f, value

    def __add__(self, other: Vector) -> Vector:
        return Vector(self.f, self.f.ir.fadd(self.value, other.value))

    def __sub__(self, other: Vector) -> Vector:
        return Vector(self.f, self.f.ir.fsub(self.value, other.value))

    def __mul__(self, other: Vector) -> Vector:
        return Vector(self.f, self.f.ir.fmul(self.value, other.value))

    def times(self, other: Vector, plus: Vector | None) -> Vector:
        """self * other + plus, fused where the processor can."""
        if plus is None:
            return self * other
        return Vector(self.f, self.f.call("fmuladd", self.value, other.value, plus.value))

    def sqrt(self) -> Vector:
        return Vector(self.f, self.f.call("sqrt", self.value))

    def zero_where(self, left: Vector, above: Vector) -> Vector:
        """0 where left > above; self elsewhere, and where left is NaN."""
        far = self.f.ir.fcmp_ordered(">", left.value, above.value)
        return Vector(self.f, self.f.ir.select(far, self.f.constant(0.0).value, self.value))

    def sum(self) -> Any:
        """The sum of the lanes as a scalar, by halves, always in the same order."""
        f, value, width = self.f, self.value, self.f.lanes
        while width > 1:
            width //= 2
            shuffles = [
                ir.Constant(
                    ir.VectorType(ir.IntType(32), width), [i + offset for i in range(width)]
                )
                for offset in (0, width)
            ]
            low, high = (f.ir.shuffle_vector(value, value, mask) for mask in shuffles)
            value = f.ir.fadd(low, high)
        return f.ir.extract_element(value, ir.Constant(ir.IntType(32), 0))


class Function:
    """A function ``void name(int64 *arguments)`` under construction."""

    def __init__(self, module: ir.Module, name: str, number: Float, lanes: int) -> None:
        self.number, self.lanes = number, lanes
        self.vector_type = ir.VectorType(number.type, lanes)
        self._bits_type = ir.VectorType(number.bits, lanes)
        self.module = module
        signature = ir.FunctionType(ir.VoidType(), [INDEX.as_pointer()])
        function = ir.Function(module, signature, name)
        function.attributes.add("nounwind")
        self.ir = ir.IRBuilder(function.append_basic_block("entry"))
        self._entry = self.ir.block
        self._arguments = function.args[0]

    # -- arguments and numbers

    def integer(self, slot: int | Index) -> Index:
        """The argument in that slot."""
        place = self.index(slot) if isinstance(slot, int) else slot
        return self.ir.load(self.ir.gep(self._arguments, [place]))

    def array(self, slot: int | Index) -> Any:
        """The argument in that slot, as the address of numbers."""
        return self.ir.inttoptr(self.integer(slot), self.number.type.as_pointer())

    def claim(self, slot: int) -> Index:
        """The argument in that slot, which the next claim, by any thread, finds one larger."""
        place = self.ir.gep(self._arguments, [self.index(slot)])
        return self.ir.atomic_rmw("add", place, self.index(1), "seq_cst")

    def index(self, value: int) -> Index:
        return ir.Constant(INDEX, value)

    def constant(self, value: float) -> Vector:
        return Vector(self, ir.Constant(self.vector_type, [value] * self.lanes))

    def splat(self, scalar: Any) -> Vector:
        undefined = ir.Constant(self.vector_type, ir.Undefined)
        zero = ir.IntType(32)(0)
        one = self.ir.insert_element(undefined, scalar, zero)
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return Vector(self, self.ir.shuffle_vector(one, undefined, mask))

    # -- memory

    def at(self, array: Any, offset: Index) -> Any:
        return self.ir.gep(array, [offset])

    def load_scalar(self, array: Any, offset: Index) -> Any:
        return self.ir.load(self.at(array, offset))

    def store_scalar(self, value: Any, array: Any, offset: Index) -> None:
        self.ir.store(value, self.at(array, offset))

    def broadcast(self, array: Any, offset: Index) -> Vector:
        return self.splat(self.load_scalar(array, offset))

    def load(self, array: Any, offset: Index) -> Vector:
        place = self.ir.bitcast(self.at(array, offset), self.vector_type.as_pointer())
        return Vector(self, self.ir.load(place, align=self.number.itemsize))

    def store(self, value: Vector, array: Any, offset: Index) -> None:
        place = self.ir.bitcast(self.at(array, offset), self.vector_type.as_pointer())
        self.ir.store(value.value, place, align=self.number.itemsize)

    def variable(self, value: Vector) -> Variable:
        """A vector that loops may change."""
        with self.ir.goto_block(self._entry):
            place = self.ir.alloca(self.vector_type)
        variable = Variable(self, place)
        variable.set(value)
        return variable

    # -- control

    @contextmanager
    def loop(self, start: Index, stop: Index, step: int | Index = 1) -> Iterator[Index]:
        """``for i in range(start, stop, step)`` with a positive step."""
        increment = self.index(step) if isinstance(step, int) else step
        before = self.ir.block
        head, body, after = (self.ir.append_basic_block(name) for name in ("head", "body", "after"))
        self.ir.branch(head)
        self.ir.position_at_end(head)
        i = self.ir.phi(INDEX)
        i.add_incoming(start, before)
        self.ir.cbranch(self.ir.icmp_signed("<", i, stop), body, after)
        self.ir.position_at_end(body)
        yield i
        i.add_incoming(self.ir.add(i, increment), self.ir.block)
        self.ir.branch(head)
        self.ir.position_at_end(after)

    @contextmanager
    def claims(self, slot: int, stop: Index) -> Iterator[Index]:
        """The values below ``stop`` that this thread claims."""
        head, body, after = (self.ir.append_basic_block(name) for name in ("claim", "task", "done"))
        self.ir.branch(head)
        self.ir.position_at_end(head)
        i = self.claim(slot)
        self.ir.cbranch(self.ir.icmp_signed("<", i, stop), body, after)
        self.ir.position_at_end(body)
        yield i
        self.ir.branch(head)
        self.ir.position_at_end(after)

    def rounded_up(self, n: Index, unit: Index) -> Index:
        """The first multiple of unit that is not below n."""
        above = self.ir.sub(self.ir.add(n, unit), self.index(1))
        return self.ir.sub(above, self.ir.srem(above, unit))

    def minimum(self, a: Index, b: Index) -> Index:
        return self.ir.select(self.ir.icmp_signed("<", a, b), a, b)

    def maximum(self, a: Index, b: Index) -> Index:
        return self.ir.select(self.ir.icmp_signed(">", a, b), a, b)

    def finish(self) -> None:
        self.ir.ret_void()

    # -- functions

    def call(self, name: str, *values: Any) -> Any:
        function = f"llvm.{name}.v{self.lanes}{self.number.suffix}"
        known = self.module.globals.get(function)
        if known is None:
            signature = ir.FunctionType(self.vector_type, [self.vector_type] * len(values))
            known = ir.Function(self.module, signature, function)
        return self.ir.call(known, values)

    def exp2_of_product(self, x: Vector, scale: Vector) -> Vector:
        """2^(x * scale), right from ``smallest`` to -``smallest``; anything elsewhere.

        With n the integer nearest to t = x * scale and f = t - n, 2^t is the polynomial in
        f with n added to the bits of its exponent. A NaN may come out as a number.
        """
        magic = self.constant(self.number.round)
        shifted = x.times(scale, magic)
        fraction = x.times(scale, magic - shifted)
        power = self.polynomial([self.constant(c) for c in self.number.exp2], fraction)
        exponent = self.ir.shl(
            self.ir.bitcast(shifted.value, self._bits_type),
            ir.Constant(self._bits_type, [self.number.mantissa] * self.lanes),
        )
        bits = self.ir.add(self.ir.bitcast(power.value, self._bits_type), exponent)
        return Vector(self, self.ir.bitcast(bits, self.vector_type))

    def polynomial(self, coefficients: Sequence[Vector], x: Vector) -> Vector:
        """c_0 + c_1 x + c_2 x^2 + ... by Horner's rule."""
        result = coefficients[-1]
        for c in reversed(coefficients[:-1]):
            result = result.times(x, c)
        return result


class Variable:
    """A vector that loops may change; LLVM keeps it in a register."""

    __slots__ = ("f", "place")

    def __init__(self, f: Function, place: Any) -> None:
        self.f, self.place = f, place

    def get(self) -> Vector:
        return Vector(self.f, self.f.ir.load(self.place))

    def set(self, value: Vector) -> None:
        self.f.ir.store(value.value, self.place)


class Place:
    """A vector in memory."""

    __slots__ = ("array", "f", "offset")

    def __init__(self, f: Function, array: Any, offset: Index) -> None:
        self.f, self.array, self.offset = f, array, offset

    def get(self) -> Vector:
        return self.f.load(self.array, self.offset)

    def set(self, value: Vector) -> None:
        self.f.store(value, self.array, self.offset)
