"""The elementwise operators on the board: one row for each operator and compute dtype, naming the formula that computes it.

A formula is called with its pen, one value for each input and the attributes that the row lists. Halves are computed with as
singles and rounded once, in formulas of lower accuracy where every result is a half; what is exact may work on halves themselves
(compute dtype half). `ulp` is the largest error that was measured on the emulated board, in units in the last place of the
result, for each dtype of the result; 0.5 is the rounding itself.

Sums and products take an infinity for 2^128 (double: 2^1024), as the MAU does (docs/isa.md): inf / 2 is 2^127 and inf - inf is
0. The functions know infinity. Where torch gives NaN there is the nearest thing that a board without NaN has: roots of what is
negative are 0, its logarithms -infinity, remainders by 0 are 0, and a function outside its domain is that of the border.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlsdk.pipeline.ir import plugins
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ops.emitters.formula import DOUBLE, HALF, INT, SINGLE, Formula, Operand, Value
from mlsdk.pipeline.ops.emitters.formulas import (
    division,
    exponential,
    integer,
    logarithm,
    normal,
    power,
    remainder,
    short,
    simple,
    trigonometric,
)
from mlsdk.pipeline.ops.table import lookup

WriteFormula = Callable[..., Operand]


@dataclass(frozen=True)
class Kernel:
    """`wide`: integers that are computed with in double. `where`: the arguments for which `ulp` holds, if not all."""

    formula: WriteFormula
    inputs: int = 1
    attrs: tuple[str, ...] = ()
    ulp: Mapping[str, float] = field(default_factory=dict)
    wide: bool = False
    where: str = ""


#: (operator or kernel, compute dtype) -> row
KERNELS: dict[tuple[str, str], Kernel] = {}


def floats(
    name: str,
    formula: WriteFormula,
    half: float = 0.5,
    single: float = 0.5,
    double: float = 0.5,
    *,
    inputs: int = 1,
    attrs: tuple[str, ...] = (),
    where: str = "",
) -> None:
    """A row for singles (and halves) and one for doubles."""
    KERNELS[name, SINGLE] = Kernel(formula, inputs, attrs, {HALF: half, SINGLE: single}, where=where)
    KERNELS[name, DOUBLE] = Kernel(formula, inputs, attrs, {DOUBLE: double}, where=where)


def exact(name: str, formula: WriteFormula, *, inputs: int = 1, attrs: tuple[str, ...] = ()) -> None:
    floats(name, formula, 0.0, 0.0, 0.0, inputs=inputs, attrs=attrs)


def halves(name: str, formula: WriteFormula, *, inputs: int = 1, attrs: tuple[str, ...] = ()) -> None:
    """A row that works on halves as they are."""
    KERNELS[name, HALF] = Kernel(formula, inputs, attrs, {HALF: 0.0})


def ints(name: str, formula: WriteFormula, *, inputs: int = 1, attrs: tuple[str, ...] = (), wide: bool = False) -> None:
    KERNELS[name, INT] = Kernel(formula, inputs, attrs, {INT: 0.0}, wide)


def everywhere(name: str, formula: WriteFormula, *, inputs: int = 1, attrs: tuple[str, ...] = ()) -> None:
    """Exact rows for every dtype."""
    exact(name, formula, inputs=inputs, attrs=attrs)
    halves(name, formula, inputs=inputs, attrs=attrs)
    ints(name, formula, inputs=inputs, attrs=attrs)


# ---- arithmetic -----------------------------------------------------------------------------------------------

floats("Add", simple.add, 0.501, 0.501, 0.501, inputs=2)
floats("Sub", simple.subtract, 0.501, 0.501, 0.501, inputs=2)
floats("Mul", simple.multiply, 0.501, 0.501, 0.501, inputs=2)
floats("Div", division.divide, 0.54, 1.45, 1.45, inputs=2)
floats("Reciprocal", division.reciprocal, 0.54, 0.52, 0.52)
floats("Sqrt", division.sqrt, 0.54, 0.51, 0.51)
floats("Rsqrt", division.rsqrt, 0.52, 0.65, 1.05)
floats("Mod", remainder.modulo, 0.5, 0.0, 0.0, inputs=2, attrs=("fmod",), where="|a / b| < 2^68")
floats("Pow", power.power, 0.65, 1.2, 1.2, inputs=2)
floats("PowConstant", power.constant_power, 0.65, 1.9, 1.8, attrs=("exponent",))
floats("Scale", simple.scale, 0.501, 0.501, 0.501, attrs=("factor",))
ints("Add", simple.add, inputs=2)
ints("Sub", simple.subtract, inputs=2)
ints("Mul", simple.multiply, inputs=2)
ints("Div", integer.quotient, inputs=2, wide=True)
ints("Mod", integer.remainder, inputs=2, attrs=("fmod",), wide=True)
ints("Pow", integer.power, inputs=2, wide=True)
ints("PowConstant", integer.constant_power, attrs=("exponent",))
everywhere("Identity", simple.identity)
everywhere("Neg", simple.negative)
everywhere("Abs", simple.absolute)
exact("RoundToBfloat16", short.bfloat16)
exact("Sign", simple.sign)
ints("Sign", simple.sign)

# ---- rounding, limits, selection ------------------------------------------------------------------------------

exact("Floor", Formula.floor)
halves("Floor", Formula.floor)
exact("Ceil", simple.ceil)
exact("Round", simple.round_even)
everywhere("Relu", simple.relu)
everywhere("Max", simple.maximum, inputs=2)
everywhere("Min", simple.minimum, inputs=2)
everywhere("Clip", simple.clip, inputs=3)
everywhere("ClipConstant", simple.clip, attrs=("low", "high"))
everywhere("ClipBelow", simple.clip_below, inputs=2)
everywhere("ClipAbove", simple.clip_above, inputs=2)
exact("Where", simple.where, inputs=3)
ints("Where", simple.where, inputs=3)

# ---- exponentials, logarithms, trigonometry -------------------------------------------------------------------

floats("Exp", exponential.exp, 0.51, 0.87, 0.87)
floats("Expm1", exponential.expm1, 0.53, 1.5, 1.85)
floats("Sigmoid", exponential.sigmoid, 0.55, 1.1, 1.3)
floats("Tanh", exponential.tanh, 0.6, 0.9, 0.9)
floats("Sinh", exponential.sinh, 0.52, 1.65, 1.65)
floats("Cosh", exponential.cosh, 0.52, 1.4, 1.35)
floats("Erf", normal.erf, 0.62, 1.1, 1.2)
floats("Softplus", exponential.softplus, 0.52, 2.05, 2.2)
floats("Silu", exponential.silu, 0.55, 1.7, 1.95)
floats("Mish", exponential.mish, 0.55, 1.75, 1.8)
floats("Log", logarithm.log, 0.51, 0.9, 0.8)
floats("Log1p", logarithm.log1p, 0.51, 1.4, 1.35)
floats("Asinh", logarithm.asinh, 0.52, 1.8, 1.8)
floats("Acosh", logarithm.acosh, 0.54, 2.0, 2.0)
floats("Atanh", logarithm.atanh, 0.52, 1.85, 1.85)
floats("Sin", trigonometric.sin, 0.51, 1.2, 1.2, where="|x| < 6.5e6 (double: 2^46)")
floats("Cos", trigonometric.cos, 0.51, 1.2, 1.2, where="|x| < 6.5e6 (double: 2^46)")
floats("Tan", trigonometric.tan, 0.55, 1.6, 1.6, where="|x| < 6.5e6 (double: 2^46)")
floats("Asin", trigonometric.asin, 0.55, 1.8, 1.8)
floats("Acos", trigonometric.acos, 0.6, 1.3, 1.3)
floats("Atan", trigonometric.atan, 0.55, 1.95, 1.95)
floats("Atan2", trigonometric.atan2, 0.56, 2.0, 2.0, inputs=2)

# ---- activations ----------------------------------------------------------------------------------------------

floats("Gelu", normal.gelu, 0.6, 3.1, 3.7)
floats("GeluTanh", normal.gelu_tanh, 0.56, 1.85, 1.9)
floats("LeakyRelu", simple.leaky_relu, 0.501, 0.501, 0.501, attrs=("alpha",))
floats("PRelu", simple.prelu, 0.501, 0.501, 0.501, inputs=2)
ints("PRelu", simple.prelu, inputs=2)
exact("ThresholdedRelu", simple.thresholded_relu, attrs=("alpha",))
floats("Elu", exponential.elu, 0.54, 1.6, 1.8, attrs=("alpha",))
floats("Celu", exponential.celu, 0.54, 1.8, 2.1, attrs=("alpha",))
floats("Selu", exponential.selu, 0.54, 1.9, 1.7, attrs=("alpha", "gamma"))
floats("Softsign", exponential.softsign, 0.55, 1.6, 1.6)
floats("HardSigmoid", simple.hard_sigmoid, 0.501, 1.0, 1.0, attrs=("alpha", "beta"), where="|result| > 2^-10")
floats("HardSwish", simple.hard_swish, 0.51, 1.95, 1.95)

# ---- logic ----------------------------------------------------------------------------------------------------

for _name, _formula in {
    "Equal": simple.equal,
    "Less": simple.less,
    "LessOrEqual": simple.less_or_equal,
    "Greater": simple.greater,
    "GreaterOrEqual": simple.greater_or_equal,
}.items():
    exact(_name, _formula, inputs=2)
    ints(_name, _formula, inputs=2)
exact("IsNaN", simple.is_nan)
exact("IsInf", simple.is_infinite, attrs=("detect_negative", "detect_positive"))
ints("And", Formula.iand, inputs=2)
ints("Or", Formula.ior, inputs=2)
ints("Xor", Formula.ixor, inputs=2)
ints("Not", lambda f, x: f.ixor(x, 1))
ints("BitwiseAnd", Formula.iand, inputs=2)
ints("BitwiseOr", Formula.ior, inputs=2)
ints("BitwiseXor", Formula.ixor, inputs=2)
ints("BitwiseNot", Formula.inot)
ints("BitShift", integer.shift, inputs=2, attrs=("direction",))
ints("Threefry", integer.threefry, inputs=3, attrs=("stream",))

# ---- casts: Cast:<device dtype>:<device dtype>, with :bool where the result is a truth value, :float16 where it is rounded to
# ---- an IEEE half -------------------------------------------------------------------------------------------------


def _truth_of(f: Formula, x: Value) -> Operand:
    return simple.untruth(f, f.copy(x if f.compute == INT else f.clean(x)))


def _cast_row(source: str, target: str, compute: str, formula: WriteFormula, bound: float = 0.0) -> None:
    KERNELS[f"Cast:{source}:{target}", compute] = Kernel(formula, ulp={target.split(":")[0]: bound})


for _a in (HALF, SINGLE):
    _cast_row(_a, INT, SINGLE, Formula.to_int)
    _cast_row(INT, _a, SINGLE, integer.to_single, 0.5)
    _cast_row(_a, "int:bool", SINGLE, _truth_of)
    for _b in (HALF, SINGLE):
        _cast_row(_a, _b, SINGLE, simple.identity, 0.5)
        _cast_row(_a, f"{_b}:float16", SINGLE, short.float16, 0.5)
for _a, _b in ((DOUBLE, DOUBLE), (DOUBLE, SINGLE), (SINGLE, DOUBLE)):
    _cast_row(_a, _b, DOUBLE, simple.identity, 0.5)
_cast_row(DOUBLE, INT, DOUBLE, integer.from_double)
_cast_row(INT, DOUBLE, DOUBLE, integer.to_double)
_cast_row(DOUBLE, "int:bool", DOUBLE, _truth_of)
_cast_row(INT, INT, INT, simple.identity)
_cast_row(INT, "int:bool", INT, _truth_of)


for _name, _formula, _options in plugins.registry().kernels:
    floats(_name, _formula, **_options)


def attrs_of(kernel: Kernel, node: Node) -> dict[str, Any]:
    """The attributes of a node that its kernel reads."""
    values = {**lookup(node.op).attrs, **node.attrs}
    return {key: values[key] for key in kernel.attrs if key in values}


def kernels_of(name: str) -> list[str]:
    """The compute dtypes in which a kernel exists."""
    return [dtype for op, dtype in KERNELS if op == name]
