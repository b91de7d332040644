"""The planner's rules for elementwise operators whose kernel depends on more than their name: constant exponents and limits,
any number of operands, dtypes that differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mlsdk.pipeline.ir.bits import INT_MAX, INT_MIN
from mlsdk.pipeline.ir.graph import Attr, Node
from mlsdk.pipeline.ir.scheme import Scheme
from mlsdk.pipeline.layout.fusing import can_share, of_one_size, work_alone
from mlsdk.pipeline.layout.reducing import Chain, constant

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

Rule = Callable[["Planner", Node], None]

#: operators that give zero where every operand is zero
KEEPS_ZERO = {
    "Add", "Sub", "Mul", "Sum", "Mean", "Neg", "Identity", "Cast", "Abs", "Sign", "Floor", "Ceil", "Round", "RoundToBfloat16",
    "Sqrt", "Expm1",
    "Log1p", "Sin", "Tan", "Sinh", "Tanh", "Asin", "Atan", "Asinh", "Atanh", "Erf", "Relu", "LeakyRelu", "PRelu", "Elu", "Celu",
    "Selu", "Gelu", "Silu", "Mish", "Softsign", "HardSwish", "Max", "Min", "Where", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr",
    "BitwiseXor", "BitShift",
}  # fmt: skip
#: operators whose results may need more than 8 bits
_WRAPS = {"Add", "Sub", "Mul", "Pow", "Sum", "BitShift", "BitwiseNot", "PRelu"}


#: integers to this power are products that wrap; beyond, results are right where they fit 32 bits
MOST_PRODUCTS = 64


def kernel_of(planner: Planner, node: Node, kernel: str = "") -> str:
    """The kernel's name: results of dtype uint8 are cut to 8 bits."""
    if planner.value(node.outputs[0]).dtype == "uint8" and node.op in _WRAPS:
        return f"{kernel or node.op}:uint8"
    return kernel


def _put(planner: Planner, node: Node, kernel: str = "") -> None:
    from mlsdk.pipeline.layout.rules import elementwise

    elementwise(planner, node, kernel)


#: steps of a node that does nothing but convert
A_CAST = 300


def widened(
    planner: Planner, node: Node, operands: Sequence[str], kernel: str, scheme: Scheme, dtype: str
) -> list[str]:
    """The operands; halves as singles of their own where the result is single and the PEs can share in a long formula only if
    all have one size (`emitters.seen.shared_out`)."""
    from mlsdk.pipeline.layout.rules import cast_to

    kinds = {planner.device_dtype(name) for name in operands}
    if dtype != "single" or "half" not in kinds or "double" in kinds or not can_share(planner, operands, scheme):
        return list(operands)
    if not of_one_size(scheme):
        return list(operands)
    if work_alone(planner, node, operands, kernel, scheme, dtype) < A_CAST:
        return list(operands)
    wide = {n: cast_to(planner, n, dtype) for n in dict.fromkeys(operands) if planner.device_dtype(n) == "half"}
    return [wide.get(name, name) for name in operands]


def _uniform(planner: Planner, name: str) -> float | int | None:
    """The one value of a constant, if it has only one."""
    data = planner.data(name)
    if data is None or data.size == 0 or not (data == data.flat[0]).all():
        return None
    return data.flat[0].item()


# ---- powers ---------------------------------------------------------------------------------------------------


def power(planner: Planner, node: Node) -> None:
    base, exponent = node.inputs
    value = _uniform(planner, exponent)
    alike = planner.shape(base) == planner.shape(node.outputs[0])
    if planner.device_dtype(base) == "int":
        _integer_power(planner, node, value, alike)
    elif value is not None and math.isfinite(value) and alike:
        _power_of(planner, node, float(value))
    else:
        _put(planner, replace(node, inputs=(base, _as(planner, node, exponent, base))))


def _integer_power(planner: Planner, node: Node, value: float | None, alike: bool) -> None:
    base, exponent = node.inputs
    if value is not None and math.isfinite(value) and value == int(value):
        if 0 <= value <= MOST_PRODUCTS and alike:
            _power_of(planner, node, int(value))
            return
        exponent = constant(planner, node, np.full(planner.data(exponent).shape, int(value), np.int32))  # type: ignore[union-attr]
    elif planner.device_dtype(exponent) != "int":
        _fractional_power(planner, node)
        return
    _put(planner, replace(node, inputs=(base, exponent)), kernel_of(planner, node))


#: a factor for a power that double rounds to just below the whole number which it is
NUDGE = 1 + 2.0**-50


def _fractional_power(planner: Planner, node: Node) -> None:
    """Integers to a power that is no integer: in double, cut."""
    chain, out = Chain(planner, node), node.outputs[0]
    wide = [
        chain("Cast", (name,), planner.shape(name), out=planner.temporary(out, planner.shape(name), "float64"))
        for name in node.inputs
    ]
    power = chain("Pow", wide, planner.shape(out))
    power = chain("Mul", (power, chain.constant(np.array(NUDGE))), planner.shape(out))
    chain("Cast", (power,), planner.shape(out), out=out)


def _power_of(planner: Planner, node: Node, exponent: float) -> None:
    """To one power that is known."""
    attrs: dict[str, Attr] = {**node.attrs, "exponent": exponent}
    _put(planner, replace(node, inputs=node.inputs[:1], attrs=attrs), kernel_of(planner, node, "PowConstant"))


def _as(planner: Planner, node: Node, name: str, like: str) -> str:
    """The value in the device dtype of another, cast if it is not a float of a kind that mixes with it."""
    from mlsdk.pipeline.layout.rules import cast_to

    have, want = planner.device_dtype(name), planner.device_dtype(like)
    if have == want or {have, want} == {"half", "single"}:
        return name
    data = planner.data(name)
    if data is not None:
        return constant(planner, node, data.astype(planner.value(like).dtype))
    return cast_to(planner, name, want)


# ---- limits ---------------------------------------------------------------------------------------------------


def clip(planner: Planner, node: Node) -> None:
    x, low, high = (*node.inputs, "", "")[:3]
    constant_limits = limits_of(planner, node)
    if constant_limits is not None:
        kernel, told = constant_limits
        _put(planner, told, kernel)
        return
    bounds = {key: name for key, name in (("low", low), ("high", high)) if name}
    operands = [_scalar(planner, node, name) for name in bounds.values()]
    kernel = "Clip" if len(bounds) == 2 else "ClipBelow" if "low" in bounds else "ClipAbove"
    _put(planner, replace(node, inputs=(x, *operands)), kernel)


def limits_of(planner: Planner, node: Node) -> tuple[str, Node] | None:
    """The kernel of a Clip with constant limits, and the node with these as attributes."""
    x, *limits = node.inputs
    attrs: dict[str, Attr] = {}
    for key, name in zip(("low", "high"), limits):
        data = planner.data(name) if name else None
        if name and data is None:
            return None
        if data is not None:
            number = data.reshape(-1)[0].item()
            whole = planner.device_dtype(x) == "int"
            attrs[key] = min(max(int(number), INT_MIN), INT_MAX) if whole else float(number)
    return "ClipConstant", replace(node, inputs=(x,), attrs={**node.attrs, **attrs})


def _scalar(planner: Planner, node: Node, name: str) -> str:
    """A bound, of one element in any rank, as one of rank 0."""
    if planner.shape(name) == ():
        return name
    data = planner.data(name)
    if data is not None:
        return constant(planner, node, data.reshape(()))
    chain = Chain(planner, node)
    return chain("Reshape", (name, chain.constant(np.zeros(0, np.int64))), ())


# ---- any number of operands -----------------------------------------------------------------------------------


def folded(planner: Planner, node: Node) -> None:
    """Max, Min, Sum and Mean: two operands at a time."""
    kernel = {"Sum": "Add", "Mean": "Add"}.get(node.op, node.op)
    names, out = list(node.inputs), node.outputs[0]
    result = names[0]
    steps: list[tuple[tuple[str, ...], str, dict[str, Attr]]] = []
    for name in names[1:]:
        steps.append(((name,), kernel_of(planner, node, kernel), {}))
    if node.op == "Mean" and len(names) > 1:
        steps.append(((), "Scale", {"factor": 1.0 / len(names)}))
    if not steps:
        steps.append(((), "Identity", {}))
    for position, (more, step, attrs) in enumerate(steps):
        inputs = (result, *more)
        last = position == len(steps) - 1
        shape = np.broadcast_shapes(*(planner.shape(name) for name in inputs))
        result = out if last else planner.temporary(out, shape)
        name = node.name if last else planner.fresh(f"{node.name}.part")
        _put(planner, replace(node, name=name, inputs=inputs, outputs=(result,), attrs=attrs), step)


# ---- the rest -------------------------------------------------------------------------------------------------


def cast_like(planner: Planner, node: Node) -> None:
    from mlsdk.pipeline.layout.rules import cast

    cast(planner, replace(node, inputs=node.inputs[:1]))


def gelu(planner: Planner, node: Node) -> None:
    kernel, told = gelu_of(planner, node)
    _put(planner, told, "" if kernel == node.op else kernel)


def gelu_of(planner: Planner, node: Node) -> tuple[str, Node]:
    """The kernel of a Gelu, and the node."""
    return "GeluTanh" if node.attrs.get("approximate", "none") == "tanh" else "Gelu", node


RULES: dict[str, Rule] = {
    "Pow": power,
    "Clip": clip,
    "Max": folded,
    "Min": folded,
    "Sum": folded,
    "Mean": folded,
    "CastLike": cast_like,
    "Gelu": gelu,
}
