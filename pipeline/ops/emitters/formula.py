"""Formulas: what a kernel computes on one access, as a graph of MAU and ALU operations.

A formula is written in Python with a `Formula` as its pen:

    def square_plus_one(f, x):
        return f.fma(x, x, 1.0)

Nothing in it says where a value lies or when it is computed; `weave` decides both. The same text serves singles and doubles:
in double a product becomes the two instructions that the MAU needs, and the integer operations work on 64 bits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache

import numpy as np

MAU, ALU = "mau", "alu"
SINGLE, DOUBLE, INT, HALF = "single", "double", "int", "half"


class Value:
    """An input, a constant, or the result of an operation."""

    __slots__ = ()

    def __neg__(self) -> Negated:
        return Negated(self)


@dataclass(frozen=True, eq=False, slots=True)
class Input(Value):
    """`narrow`: a float that is narrower than the formula computes; the MAU reads it widened."""

    index: int
    narrow: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Constant(Value):
    word: int  # 64 bits


@dataclass(frozen=True, eq=False, slots=True)
class Op(Value):
    """`guard`: the operation whose flag guards the write, over the value `base`; `flush`: whose flag, where it is 0, makes the
    result 0."""

    mnemonic: str
    sources: tuple[Value, ...]
    negate: tuple[bool, ...]
    guard: Op | None = None
    base: Op | None = None
    flush: Op | None = None
    unit: str = field(init=False)
    needs: tuple[Op, ...] = field(init=False)  # the operations that must come before this one

    def __post_init__(self) -> None:
        needs = tuple(v for v in (*self.sources, self.guard, self.base, self.flush) if isinstance(v, Op))
        object.__setattr__(self, "unit", _unit(self.mnemonic))
        object.__setattr__(self, "needs", needs)


@dataclass(frozen=True, eq=False, slots=True)
class Negated:
    value: Value

    def __neg__(self) -> Value:
        return self.value


_MAU = re.compile(r"[dfh]v(fma|mul|add|passa)[ud]?r?$")


@cache
def _unit(mnemonic: str) -> str:
    return MAU if _MAU.match(mnemonic) else ALU


Operand = Value | Negated | float | int


class Formula:
    """Writes a formula in one compute dtype.

    `level`: how accurate the result has to be (half, single or double). Floats that stand as operands are constants in the
    compute dtype; integers are words (32 bits, in double 64)."""

    def __init__(self, compute: str = SINGLE, level: str = "", narrow: Sequence[bool] = ()):
        self.compute, self.level = compute, level or compute
        self.double = compute == DOUBLE
        self.float = {DOUBLE: "d", HALF: "h"}.get(compute, "f")
        self.integer = {DOUBLE: "l", HALF: "s"}.get(compute, "i")
        self.bits = {DOUBLE: 64, HALF: 16}.get(compute, 32)
        self.mantissa = {DOUBLE: 52, HALF: 9}.get(compute, 23)
        self.sign = 1 << (self.bits - 1)
        self.one = {DOUBLE: 0x3FF << 52, HALF: 31 << 9}.get(compute, 0x3F800000)
        self.infinity = self.sign - (1 << self.mantissa)
        self._narrow = tuple(narrow)
        self._inputs: dict[int, Input] = {}
        self._constants: dict[int, Constant] = {}
        self._known: dict[tuple, Op] = {}

    # ---- leaves -----------------------------------------------------------------------------------------------

    def input(self, index: int) -> Input:
        if index not in self._inputs:
            narrow = index < len(self._narrow) and self._narrow[index]
            self._inputs[index] = Input(index, narrow)
        return self._inputs[index]

    def word(self, pattern: int) -> Constant:
        """A constant by its bits, in every element."""
        pattern &= (1 << self.bits) - 1
        for width in (16, 32):
            if self.bits <= width:
                pattern |= pattern << width
        if pattern not in self._constants:
            self._constants[pattern] = Constant(pattern)
        return self._constants[pattern]

    def number(self, value: float) -> Constant:
        if self.double:
            return self.word(int(np.float64(value).view(np.uint64)))
        bits = int(np.float32(value).view(np.uint32))
        if self.compute == HALF:
            from mlsdk.pipeline.ir.bits import half_from_single

            bits = int(half_from_single(np.array([bits], np.uint32))[0])
        return self.word(bits)

    def _operand(self, operand: Operand) -> tuple[Value, bool]:
        if isinstance(operand, Negated):
            return operand.value, True
        if isinstance(operand, bool) or not isinstance(operand, (Value, float, int)):
            raise TypeError(f"{operand!r} is no operand of a formula")
        if isinstance(operand, float):
            return self.number(operand), False
        if isinstance(operand, int):
            return self.word(operand), False
        return operand, False

    def _op(self, mnemonic: str, *operands: Operand, **marks: Op | None) -> Op:
        pairs = [self._operand(o) for o in operands]
        sources, negate = tuple(v for v, _ in pairs), tuple(n for _, n in pairs)
        key = (mnemonic, sources, negate, *sorted(marks.items(), key=lambda item: item[0]))
        if key not in self._known:
            self._known[key] = Op(mnemonic, sources, negate, **marks)
        return self._known[key]

    # ---- MAU --------------------------------------------------------------------------------------------------

    def fma(self, a: Operand, b: Operand, c: Operand) -> Op:
        """a b + c, rounded once."""
        if not self.double:
            return self._op("fvfma", a, b, c)
        return self._op("dvfmad", a, b, self._op("dvfmau", a, b, c))

    def mul(self, a: Operand, b: Operand) -> Op:
        if not self.double:
            return self._op("fvmul", a, b)
        return self._op("dvfmad", a, b, self._op("dvmulu", a, b))

    def add(self, a: Operand, b: Operand) -> Op:
        return self._op(f"{self.float}vadd", a, b)

    def sub(self, a: Operand, b: Operand) -> Op:
        pair = self._operand(b)
        return self.add(a, pair[0] if pair[1] else Negated(pair[0]))

    def clean(self, a: Operand) -> Op:
        """a, normalised: -0 becomes +0."""
        return self._op(f"{self.float}vpassa", a)

    def times(self, x: Operand, factor: float | Fraction, more: Operand | None = None) -> Op:
        """x factor (+ more), with what the compute dtype rounds off the factor."""
        high = float(factor) if self.double else float(np.float32(float(factor)))
        low = 0.0 if self.level == HALF else float(factor - Fraction(high))
        if more is not None:  # last, for high and more may cancel
            value = self.fma(x, high, more)
            return self.fma(x, low, value) if low else value
        return self.fma(x, high, self.mul(x, low)) if low else self.mul(x, high)

    def horner(self, x: Value, coefficients: Sequence[float], last: Operand | None = None) -> Op:
        """The polynomial with these coefficients, lowest first; `last` stands for the lowest instead, if given."""
        rest = [*coefficients]
        low: list[Operand] = [*rest] if last is None else [last, *rest]
        value = self.fma(low[-1], x, low[-2])
        for c in reversed(low[:-2]):
            value = self.fma(value, x, c)
        return value

    # ---- ALU --------------------------------------------------------------------------------------------------

    def alu(self, mnemonic: str, *operands: Operand) -> Op:
        """An ALU operation; operands are words as they are, narrow floats are widened first."""
        values: list[Operand] = []
        for operand in operands:
            if isinstance(operand, Negated):
                raise TypeError(f"{mnemonic} cannot negate an operand")
            wide = isinstance(operand, Input) and operand.narrow
            values.append(self.clean(operand) if wide else operand)
        return self._op(mnemonic, *values)

    def max(self, a: Operand, b: Operand) -> Op:
        return self.alu(f"{self.float}max", a, b)

    def min(self, a: Operand, b: Operand) -> Op:
        return self.alu(f"{self.float}min", a, b)

    def floor(self, a: Operand) -> Op:
        return self.alu(f"{self.float}floor", a)

    def relu(self, a: Operand, b: Operand) -> Op:
        """b where the sign of a is 0, else -0."""
        return self.alu(f"{self.float}relu", a, b)

    def rsqrt_seed(self, a: Operand) -> Op:
        return self.alu(f"{self.float}rsqrt", a)

    def to_int(self, a: Operand) -> Op:
        return self.alu(f"{self.float}ftoi", a)

    def copy(self, a: Operand) -> Op:
        return self.alu(f"{self.integer}passa", a)

    def iadd(self, a: Operand, b: Operand) -> Op:
        return self.alu(f"{self.integer}add", a, b)

    def isub(self, a: Operand, b: Operand) -> Op:
        return self.alu(f"{self.integer}sub", a, b)

    def iand(self, a: Operand, b: Operand) -> Op:
        return self.alu(f"{self.integer}and", a, b)

    def ior(self, a: Operand, b: Operand) -> Op:
        return self.alu(f"{self.integer}or", a, b)

    def ixor(self, a: Operand, b: Operand) -> Op:
        return self.alu(f"{self.integer}xor", a, b)

    def inot(self, a: Operand) -> Op:
        return self.alu(f"{self.integer}not", a)

    def imax(self, a: Operand, b: Operand) -> Op:
        return self.alu(f"{self.integer}max", a, b)

    def imin(self, a: Operand, b: Operand) -> Op:
        return self.alu(f"{self.integer}min", a, b)

    def left(self, a: Operand, by: Operand) -> Op:
        return self.alu(f"{self.integer}lsl", a, by)

    def right(self, a: Operand, by: Operand) -> Op:
        """Shifted, the sign kept."""
        return self.alu(f"{self.integer}lsr", a, by)

    def right_zero(self, a: Operand, by: Operand) -> Op:
        return self.alu(f"u{self.integer}lsr", a, by)

    def abs(self, a: Operand) -> Op:
        return self.iand(a, self.sign - 1)

    def sign_of(self, a: Operand) -> Op:
        return self.iand(a, self.sign)

    # ---- flags ------------------------------------------------------------------------------------------------
    # An operation used as a flag is read as: 1 where its MAU result is not negative, where its integer sum or difference is
    # not negative, where its logical result or copy is 0, where max or min took the first operand or an equal one.

    def where(self, flag: Op, yes: Operand, no: Operand) -> Op:
        """yes where the flag is 1, else no: a guarded write over a copy of `no`."""
        return self._guarded(yes, flag, self._base(no))

    def keep(self, flag: Op, a: Operand) -> Op:
        """a where the flag is 1, else 0."""
        value = self._plain(a)
        if isinstance(value, Op) and value.guard is None and value.flush is None:
            return self._op(value.mnemonic, *_signed(value), flush=flag)
        return self._op(f"{self.integer}passa", self.wide(value), flush=flag)

    def _guarded(self, yes: Operand, flag: Op, base: Op) -> Op:
        value = self._plain(yes)
        if isinstance(value, Op) and value.guard is None and value.flush is None:
            return self._op(value.mnemonic, *_signed(value), guard=flag, base=base)
        return self._op(f"{self.integer}passa", self.wide(value), guard=flag, base=base)

    def _base(self, operand: Operand) -> Op:
        """The value as the result of an operation, over which another may be written."""
        value = self._plain(operand)
        if isinstance(value, Op):
            return value
        return self.clean(value) if isinstance(value, Input) and value.narrow else self.copy(value)

    def _plain(self, operand: Operand) -> Value:
        value, negate = self._operand(operand)
        return self.clean(Negated(value)) if negate else value

    def wide(self, value: Value) -> Value:
        """The value in the compute dtype."""
        return self.clean(value) if isinstance(value, Input) and value.narrow else value

    # ---- the end ----------------------------------------------------------------------------------------------

    def finish(self, result: Operand, narrow: bool) -> Op:
        """The operation that writes the result; `narrow`: rounded to the next narrower float."""
        value, negate = self._operand(result)
        if not narrow:
            if isinstance(value, Op) and not negate:
                return value
            return self.clean(result) if negate or (isinstance(value, Input) and value.narrow) else self.copy(value)
        if isinstance(value, Op) and not negate and value.unit == MAU and value.guard is None and value.flush is None:
            return self._op(value.mnemonic + "r", *_signed(value))
        return self._op(f"{self.float}vpassar", result)


def _signed(op: Op) -> list[Value | Negated]:
    return [Negated(v) if n else v for v, n in zip(op.sources, op.negate)]
