"""The planner's rules: for each operator, the schemes it works in and the emitter that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from mlsdk.errors import LayoutError
from mlsdk.pipeline.ir import plugins
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ir.layout import L1B, L2B, MAB
from mlsdk.pipeline.ir.placed import ANY, LANES, ON_HOST, ZERO
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL, Digit, Scheme, choose_lane, spread
from mlsdk.pipeline.layout import (
    drawing,
    filters,
    gradients,
    losses,
    moving,
    normalizing,
    pointwise,
    products,
    reducing,
    resizing,
    windows,
)
from mlsdk.pipeline.layout.fusing import fuse, numbers_of
from mlsdk.pipeline.layout.moving import FEW, MOVED, anywhere
from mlsdk.pipeline.layout.pointwise import KEEPS_ZERO, kernel_of, widened
from mlsdk.pipeline.ops.emitters.kernels import kernels_of
from mlsdk.pipeline.ops.table import attributes

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

Rule = Callable[["Planner", Node], None]


def rule_of_graph(node: Node, planner: Planner) -> Rule | None:
    """The rule of a node of the graph itself, which may be meant for the host."""
    return on_host if node.op in planner.options.on_host else rule_of(node, planner)


def rule_of(node: Node, planner: Planner) -> Rule | None:
    return RULES.get(node.op, elementwise if kernels_of(node.op) else None)


def on_host(planner: Planner, node: Node) -> None:
    """The operands from wherever they lie; the results in the default schemes, as the host packs them."""
    operands = [name and anywhere(planner, name) for name in node.inputs]
    schemes = [planner.default(name) for name in node.outputs if name]
    planner.put(node, ON_HOST, operands, schemes, pad=ZERO, reason=f"{node.op} is computed on the host")


# ---- elementwise --------------------------------------------------------------------------------------------------


def elementwise(planner: Planner, node: Node, kernel: str = "") -> None:
    out = node.outputs[0]
    shape = planner.shape(out)
    inputs = [name for name in node.inputs if name]
    scheme = planner.wish(out) or _common_scheme(planner, inputs, shape)
    kernel = kernel or kernel_of(planner, node)
    dtype = planner.result_dtype(node.op, inputs, out)
    numbers = numbers_of(planner, node, kernel, dtype)
    operands = [
        name
        if name in numbers
        else planner.want(name, scheme.restrict(planner.shape(name), shape), reason=f"operand of {node.op}")
        for name in inputs
    ]
    pad = padding_of(planner, node.op, operands, numbers, scheme)
    node, operands, kernel = fuse(planner, node, operands, kernel, scheme, dtype, numbers)
    operands = widened(planner, node, operands, kernel, scheme, dtype)
    planner.put(node, "elementwise", operands, [scheme], dtypes=[dtype], kernel=kernel, pad=pad)


def padding_of(planner: Planner, op: str, operands: Sequence[str], numbers: Mapping[str, int], scheme: Scheme) -> str:
    """What an elementwise result holds in its padding. An operand that is broadcast has values where others have padding, as
    have the `numbers` among them; as a factor, one value for all does no harm."""
    if op not in KEEPS_ZERO or (op != "Mul" and any(numbers.values())):
        return ANY
    placed = [planner.values[name] for name in operands if name not in numbers]
    whole = [v for v in placed if v.scheme == scheme or op != "Mul" or prod(v.shape) > 1]
    if whole and all(v.pad == ZERO and v.scheme == scheme for v in whole):
        return ZERO
    lanes = [v.pad in (ZERO, LANES) and v.scheme is not None and v.scheme.lane is not None for v in placed]
    return LANES if all(lanes) or (op == "Mul" and any(lanes)) else ANY


def _common_scheme(planner: Planner, inputs: Sequence[str], shape: tuple[int, ...]) -> Scheme:
    """That of the first operand of the result's own shape which lies somewhere already, else the default."""
    for name in inputs:
        found = planner.scheme_of(name)
        if (
            planner.shape(name) == shape
            and found is not None
            and (not found.copies or found.addresses("single") <= FEW)
        ):
            return found
    return spread(shape, choose_lane(shape))


# ---- reductions ---------------------------------------------------------------------------------------------------


def _axes(planner: Planner, node: Node, rank: int) -> tuple[int, ...]:
    """The reduced axes: from the second input or an attribute; none given means all (or none, as the node says)."""
    attrs = attributes(node)
    axes = attrs.get("axes")
    if len(node.inputs) > 1 and node.inputs[1]:
        data = planner.data(node.inputs[1])
        if data is None:
            raise LayoutError(f"{node.name}: the axes of {node.op} are computed at run time; make them constant")
        axes = tuple(int(a) for a in data.reshape(-1))
    if not axes:
        return () if attrs.get("noop_with_empty_axes") else tuple(range(rank))
    return tuple(sorted(int(a) % rank for a in axes))


def reduction(planner: Planner, node: Node) -> None:
    source, out = node.inputs[0], node.outputs[0]
    shape = planner.shape(source)
    axes = _axes(planner, node, len(shape))
    if not axes:
        planner.put(node, "elementwise", [anywhere(planner, source)], [planner.scheme_of(source)], kernel="Identity")  # type: ignore[list-item]
        return
    scheme = planner.scheme_of(source)
    joins = node.op != "ReduceProd"  # the network adds and compares; it does not multiply
    if scheme is None or _thin(scheme, shape) or not reducible(scheme, axes, joins):
        scheme = _for_reduction(shape, axes, joins)
    operand = planner.want(source, scheme, reason=f"{node.op} along {axes}")
    reduced = scheme.restrict([1 if a in axes else n for a, n in enumerate(shape)], shape)
    if len(planner.shape(out)) != len(shape):
        for axis in reversed(axes):
            reduced = reduced.drop(axis)
    made = replace(node, attrs={**node.attrs, "reduced": axes})
    sums = node.op in ("ReduceSum", "ReduceMean")
    pad = LANES if sums and reduced.lane is not None and planner.values[operand].pad in (ZERO, LANES) else ANY
    if planner.value(source).dtype != "uint8" or not sums:
        planner.put(made, "reduce", [operand], [reduced], pad=pad)
        return
    wide = planner.temporary(out, planner.shape(out), "int32")
    planner.put(replace(made, outputs=(wide,)), "reduce", [operand], [reduced])
    _cast(planner, Node(planner.fresh(f"{node.name}.byte"), "Cast", (wide,), node.outputs), wide, "int", "uint8")


def _thin(scheme: Scheme, shape: tuple[int, ...]) -> bool:
    """Whether the lanes hold an axis of size 1, as a product may leave it."""
    return scheme.lane is not None and shape[scheme.lane] == 1


def reducible(scheme: Scheme, axes: tuple[int, ...], joins: bool = True) -> bool:
    """Whether the spatial levels of the reduced axes belong to them alone, so that the network can combine them."""
    levels = {d.level for a in axes for d in scheme.axes[a] if d.level != LOCAL and d.n > 1}
    others = {
        d.level for a, axis in enumerate(scheme.axes) if a not in axes for d in axis if d.level != LOCAL and d.n > 1
    }
    others |= {d.level for d in scheme.copies}
    return not levels & others and (not levels or joins)


def _for_reduction(shape: tuple[int, ...], axes: tuple[int, ...], joins: bool) -> Scheme:
    """Rows (the axes that stay) over the levels, the reduced axes on lanes and in LM; the lanes' blocks take the levels that
    rows leave alone (`joins`)."""
    wide = [a for a in axes if shape[a] > 1]
    lane = max(wide, key=lambda a: (shape[a], a)) if wide else choose_lane(shape)
    if prod(n for a, n in enumerate(shape) if a not in axes) == 1 and joins:
        return spread(shape, lane)
    rows = _rows_only(shape, lane, axes)
    if not joins or lane not in axes or not rows.axes[lane]:
        return rows
    used = {d.level for axis in rows.axes for d in axis}
    blocks = [1] * len(shape)
    blocks[lane] = rows.axes[lane][0].n
    beside = spread(blocks, None, levels=[level for level in (L2B, L1B, MAB) if level not in used]).axes[lane]
    local = prod(d.n for d in beside if d.level == LOCAL)
    digits = [d for d in beside if d.level != LOCAL]
    if local > 1:
        digits.append(replace(rows.axes[lane][0], n=local))
    return replace(rows, axes=tuple(tuple(digits) if a == lane else axis for a, axis in enumerate(rows.axes)))


def _rows_only(shape: tuple[int, ...], lane: int | None, inside: Sequence[int]) -> Scheme:
    """`spread` of the axes that are not in `inside`; those stay in LM, least significant."""
    rows = [n if a not in inside and a != lane else 1 for a, n in enumerate(shape)]
    scheme = spread(rows, None)
    axes = list(scheme.axes)
    rank = len(shape)
    for position, a in enumerate([*(a for a in inside if a != lane), *([lane] if lane is not None else [])]):
        n = -(-shape[a] // BLOCK) if a == lane else shape[a]
        axes[a] = (Digit(n, LOCAL, -1 - position),) if n > 1 else ()
    lift = rank + len(axes)
    lifted = tuple(tuple(replace(d, stride=d.stride + lift) if d.level == LOCAL else d for d in axis) for axis in axes)
    return Scheme(lifted, lane)


def softmax(planner: Planner, node: Node) -> None:
    source = node.inputs[0]
    shape = planner.shape(source)
    axis = int(attributes(node)["axis"]) % len(shape) if shape else 0
    axes = (axis,) if shape else ()
    scheme = planner.scheme_of(source)
    if scheme is None or _thin(scheme, shape) or not scheme.inside_mab(axes):
        lane = axis if shape and shape[axis] > 1 else choose_lane(shape)
        scheme = _rows_only(shape, lane, axes)
    operand = planner.want(source, scheme, reason=f"{node.op} along {axis}")
    dtype = planner.result_dtype(node.op, node.inputs, node.outputs[0])
    planner.put(replace(node, attrs={**node.attrs, "reduced": axes}), "softmax", [operand], [scheme], dtypes=[dtype])


def argument(planner: Planner, node: Node) -> None:
    """ArgMax and ArgMin."""
    source, out = node.inputs[0], node.outputs[0]
    shape = planner.shape(source)
    axis = int(attributes(node)["axis"]) % len(shape) if shape else 0
    axes = (axis,) if shape else ()
    scheme = planner.scheme_of(source)
    if scheme is None or _thin(scheme, shape) or not scheme.inside_mab(axes):
        lane = axis if shape and shape[axis] > 1 else choose_lane(shape)
        scheme = _rows_only(shape, lane, axes)
    operand = planner.want(source, scheme, reason=f"{node.op} along {axis}")
    reduced = scheme.restrict([1 if a in axes else n for a, n in enumerate(shape)], shape)
    if len(planner.shape(out)) != len(shape):
        reduced = reduced.drop(axis)
    planner.put(replace(node, attrs={**node.attrs, "reduced": axes}), "argument", [operand], [reduced])


def data_inputs(node: Node) -> tuple[str, ...]:
    """The inputs that are data; the others say how (shapes, axes, starts)."""
    if node.op in MOVED:
        return node.inputs[: MOVED[node.op](node)]
    if node.op.startswith("Scatter"):
        return node.inputs[:1]
    return node.inputs[:1] if node.op.startswith("Reduce") else node.inputs


# ---- casts --------------------------------------------------------------------------------------------------------


def cast(planner: Planner, node: Node) -> None:
    """Of a value of the graph. What becomes float16 is rounded to IEEE half by way of single, as torch does."""
    source, out = anywhere(planner, node.inputs[0]), node.outputs[0]
    have, want = planner.device_dtype(source), planner.device_dtype(out)
    kinds = planner.value(source).dtype, planner.value(out).dtype
    rounds = kinds[1] == "float16" and kinds[0] in ("float32", "float64", "int32", "int64")
    if {have, want} == {"half", "double"} or (rounds and have not in ("half", "single")):
        middle = planner.temporary(out, planner.shape(out), "float32")
        first = replace(node, name=planner.fresh(f"{node.name}.single"), outputs=(middle,))
        _cast(planner, first, source, "single", "")
        source, have = middle, "single"
    narrow = kinds[1] if kinds[0] != kinds[1] and (rounds or kinds[1] in ("bool", "uint8")) else ""
    _cast(planner, node, source, want, narrow)


def cast_to(planner: Planner, name: str, dtype: str) -> str:
    """The value in another device dtype of the same kind, as a new value."""
    if {planner.device_dtype(name), dtype} == {"half", "double"}:
        name = cast_to(planner, name, "single")
    cast = planner.temporary(name, planner.shape(name))
    _cast(planner, Node(planner.fresh(f"Cast_{cast}"), "Cast", (name,), (cast,)), name, dtype, "")
    return cast


def _cast(planner: Planner, node: Node, source: str, dtype: str, narrow: str) -> None:
    scheme = planner.scheme_of(source)
    if scheme is None:
        scheme = planner.default(source)
        source = planner.want(source, scheme, reason="operand of Cast")
    have = planner.device_dtype(source)
    kernel = f"Cast:{have}:{dtype}" + (f":{narrow}" if narrow else "")
    pad = planner.values[source].pad
    planner.put(node, "elementwise", [source], [scheme], dtypes=[dtype], kernel=kernel, pad=pad)


RULES: dict[str, Rule] = {
    "ReduceSum": reduction,
    "ReduceMean": reduction,
    "ReduceMax": reduction,
    "ReduceMin": reduction,
    "Softmax": softmax,
    "ArgMax": argument,
    "ArgMin": argument,
    "Cast": cast,
    **pointwise.RULES,
    **moving.RULES,
    **reducing.RULES,
    **windows.RULES,
    **products.RULES,
    **normalizing.RULES,
    **losses.RULES,
    **resizing.RULES,
    **gradients.RULES,
    **filters.RULES,
    **drawing.RULES,
    **plugins.registry().rules,
}
