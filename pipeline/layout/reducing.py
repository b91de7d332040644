"""The planner's rules for reductions that are made of others, for running sums, and for the k largest elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from mlsdk.errors import UnsupportedOperator
from mlsdk.pipeline.ir.graph import Attr, Node
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.scheme import LOCAL, Digit, Scheme
from mlsdk.pipeline.layout.indexing import arranged
from mlsdk.pipeline.layout.moving import anywhere, identity
from mlsdk.pipeline.ops.table import attributes

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

Rule = Callable[["Planner", Node], None]


class Chain:
    """Nodes that a rule puts in place of one: each gives a new value, the last the node's own result."""

    def __init__(self, planner: Planner, node: Node):
        self.planner, self.node = planner, node

    def __call__(
        self,
        op: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        attrs: Mapping[str, Attr] | None = None,
        out: str = "",
    ) -> str:
        from mlsdk.pipeline.layout.rules import rule_of

        planner, node = self.planner, self.node
        result = out or planner.temporary(node.outputs[0], shape, planner.value(inputs[0]).dtype)
        made = Node(
            planner.fresh(f"{node.name}.{op}"), op, tuple(inputs), (result,), attrs or {}, node.source, node.scope
        )
        rule = rule_of(made, planner)
        if rule is None:
            raise UnsupportedOperator(f"{node.name}: {node.op} on the board is made of {op}, which has no emitter")
        rule(planner, made)
        return result

    def constant(self, value: np.ndarray | Sequence[int]) -> str:
        return constant(self.planner, self.node, np.asarray(value))


def constant(planner: Planner, node: Node, data: np.ndarray) -> str:
    """A constant of the planner's own."""
    name = planner.temporary(node.outputs[0], data.shape, str(data.dtype))
    planner.literals[name] = data
    return name


def as_single(planner: Planner, name: str) -> str:
    """Halves as singles, so that what is in between is not rounded."""
    from mlsdk.pipeline.layout.rules import cast_to

    return cast_to(planner, anywhere(planner, name), "single") if planner.device_dtype(name) == "half" else name


def finish(planner: Planner, node: Node, name: str) -> None:
    """The node's result from a value of its shape and of its device dtype or a wider one."""
    from mlsdk.pipeline.layout.rules import cast

    same = planner.device_dtype(name) == planner.device_dtype(node.outputs[0])
    op, rule = ("Identity", identity) if same else ("Cast", cast)
    label = planner.fresh(f"{node.name}.result")
    rule(planner, Node(label, op, (name,), node.outputs, {}, node.source, node.scope))


# ---- reductions of what is computed first -------------------------------------------------------------------------


def _reduced(planner: Planner, node: Node) -> tuple[str, tuple[int, ...], dict[str, Attr], tuple[str, ...]]:
    """The operand, the result's shape, and how the axes are named."""
    attrs = {key: value for key, value in node.attrs.items() if key in ("keepdims", "noop_with_empty_axes")}
    return node.inputs[0], planner.shape(node.outputs[0]), attrs, tuple(n for n in node.inputs[1:] if n)


def sum_of(*before: str, after: str = "") -> Rule:
    """before(x) (or x times x), then the sum, then after."""

    def rule(planner: Planner, node: Node) -> None:
        x, shape, attrs, axes = _reduced(planner, node)
        chain = Chain(planner, node)
        x = as_single(planner, x)
        full = planner.shape(x)
        for op in before:
            x = chain(op, [x, x] if op == "Mul" else [x], full)
        total = chain("ReduceSum", [x, *axes], shape, attrs)
        if after:
            total = chain(after, [total], shape)
        finish(planner, node, total)

    return rule


def log_sum_exp(planner: Planner, node: Node) -> None:
    """log(sum(exp(x - max x))) + max x."""
    x, shape, attrs, axes = _reduced(planner, node)
    chain = Chain(planner, node)
    x = as_single(planner, x)
    full = planner.shape(x)
    kept = _kept_shape(planner, node, full)
    peak = chain("ReduceMax", [x, *axes], kept, {**attrs, "keepdims": 1})
    powers = chain("Exp", [chain("Sub", [x, peak], full)], full)
    total = chain("ReduceSum", [powers, *axes], kept, {**attrs, "keepdims": 1})
    result = chain("Add", [chain("Log", [total], kept), peak], kept)
    if kept != shape:
        result = chain("Reshape", [result, chain.constant(np.array(shape, np.int64))], shape)
    finish(planner, node, result)


def _kept_shape(planner: Planner, node: Node, shape: tuple[int, ...]) -> tuple[int, ...]:
    from mlsdk.pipeline.layout.rules import _axes

    axes = _axes(planner, node, len(shape))
    return tuple(1 if a in axes else n for a, n in enumerate(shape))


def product(planner: Planner, node: Node) -> None:
    """ReduceProd: singles are multiplied by the emitter; doubles and integers pairwise."""
    from mlsdk.pipeline.layout.rules import _axes, reduction

    x, shape, attrs, _ = _reduced(planner, node)
    full = planner.shape(x)
    axes = _axes(planner, node, len(full))
    if planner.device_dtype(x) in ("single", "half") or not axes:
        reduction(planner, node)
        return
    chain = Chain(planner, node)
    rest = [a for a in range(len(full)) if a not in axes]
    count, columns = prod(full[a] for a in axes), prod(full[a] for a in rest)
    x = chain("Transpose", [x], [full[a] for a in (*axes, *rest)], {"perm": (*axes, *rest)})
    x = chain("Reshape", [x, chain.constant(np.array([count, columns]))], [count, columns])
    while count > 1:
        half = count // 2
        parts = [_rows(chain, x, lo, lo + half, columns) for lo in (0, half)]
        y = chain("Mul", parts, [half, columns])
        if count % 2:
            y = chain("Concat", [y, _rows(chain, x, count - 1, count, columns)], [half + 1, columns], {"axis": 0})
        x, count = y, half + count % 2
    x = chain("Reshape", [x, chain.constant(np.array(shape, np.int64))], shape)
    finish(planner, node, x)


def _rows(chain: Chain, x: str, lo: int, hi: int, columns: int) -> str:
    bounds = [chain.constant(np.array([v])) for v in (lo, hi, 0)]
    return chain("Slice", [x, *bounds], [hi - lo, columns])


# ---- running sums -------------------------------------------------------------------------------------------------

#: a running sum longer than this, with few beside it, is taken in two levels
LONG, FEW = 2048, 64


def cumulative_sum(planner: Planner, node: Node) -> None:
    """CumSum: the axis in LM, most significant inside it; lanes and levels for the others."""
    x = node.inputs[0]
    data = planner.data(node.inputs[1])
    if data is None:
        from mlsdk.errors import LayoutError

        raise LayoutError(f"{node.name}: the axis of CumSum is computed at run time; make it constant")
    shape = planner.shape(x)
    axis = int(data.reshape(())) % len(shape)
    if shape[axis] > LONG and prod(shape) // shape[axis] <= FEW:
        _two_levels(planner, node, axis)
        return
    scheme = in_memory(planner, shape, axis, planner.device_dtype(x))
    operand = planner.want(x, scheme, reason="operand of CumSum")
    attrs = {**attributes(node), "axis": axis, "logical": planner.value(x).dtype}
    planner.put(replace(node, attrs=attrs), "scan", [operand], [scheme], dtypes=[planner.device_dtype(operand)])


def in_memory(planner: Planner, shape: tuple[int, ...], axis: int, dtype: str) -> Scheme:
    """The axis in LM, least significant; lanes for the widest of the others."""
    others = [a for a in range(len(shape)) if a != axis]
    wide = [a for a in others if shape[a] >= 4]
    lane = max(wide, key=lambda a: (shape[a], a)) if wide else None
    order = [a for a in others if a != lane] + ([lane] if lane is not None else [])
    plain = [1 if a == axis else n for a, n in enumerate(shape)]
    found = arranged(plain, lane, order, [])
    grain = 1
    while True:
        n = -(-shape[axis] // grain) * grain
        low = min((d.stride for _, d in found.local), default=1) - 1
        axes = [(Digit(n, LOCAL, low),) if a == axis and n > 1 else ds for a, ds in enumerate(found.axes)]
        scheme = Scheme(tuple(axes), lane)
        need = max(1, Image(scheme.layout(dtype), dtype, shape).granule // scheme.unit_lw(dtype))
        if found.units == 1 or n % need == 0:
            return scheme
        grain = need


def _two_levels(planner: Planner, node: Node, axis: int) -> None:
    """Running sums of pieces, and to each what stands before it."""
    chain, attrs = Chain(planner, node), attributes(node)
    x, out = node.inputs[0], node.outputs[0]
    x = as_single(planner, x)
    shape = planner.shape(x)
    n = shape[axis]
    pieces = 1 << (n.bit_length() // 2)
    each = -(-n // pieces)
    padded = (*shape[:axis], pieces * each, *shape[axis + 1 :])
    if padded != shape:
        pads = np.zeros(2 * len(shape), np.int64)
        pads[len(shape) + axis] = pieces * each - n
        x = chain("Pad", [x, chain.constant(pads)], padded)
    cut = (*shape[:axis], pieces, each, *shape[axis + 1 :])
    sums = (*shape[:axis], pieces, 1, *shape[axis + 1 :])
    x = chain("Reshape", [x, chain.constant(np.array(cut))], cut)
    inner = chain(
        "CumSum", [x, chain.constant(np.array(axis + 1))], cut, {key: attrs[key] for key in ("exclusive", "reverse")}
    )
    totals = chain("ReduceSum", [x, chain.constant(np.array([axis + 1]))], sums, {"keepdims": 1})
    before = chain(
        "CumSum", [totals, chain.constant(np.array(axis))], sums, {"exclusive": 1, "reverse": attrs["reverse"]}
    )
    whole = chain("Add", [inner, before], cut)
    whole = chain("Reshape", [whole, chain.constant(np.array(padded))], padded)
    if padded != shape:
        bounds = [chain.constant(np.array([v])) for v in (0, n, axis)]
        whole = chain("Slice", [whole, *bounds], shape)
    finish(planner, node, whole)
    assert planner.shape(out) == shape


# ---- the k largest ------------------------------------------------------------------------------------------------

#: elements of a row that fit LM, by device dtype
MOST = {"single": 7920, "int": 7920, "double": 4000}
#: rows longer than this, with few beside them, are cut into pieces
WORTH = 1024


def top_k(planner: Planner, node: Node) -> None:
    """TopK: the axis on the lanes, inside each MAB. Long rows: the k largest of each piece, then of those."""
    from mlsdk.pipeline.layout.indexing import on_lanes
    from mlsdk.pipeline.layout.rules import _cast, _rows_only

    x = as_single(planner, node.inputs[0])
    shape, attrs = planner.shape(x), attributes(node)
    axis = int(attrs["axis"]) % len(shape)
    values, indexes = (*node.outputs, "")[:2]
    n, k = shape[axis], planner.shape(values or indexes)[axis]
    dtype = planner.device_dtype(x)
    pieces = _pieces(n, k, prod(shape) // n, MOST[dtype])
    if pieces > 1:
        _by_pieces(planner, replace(node, inputs=(x, node.inputs[1])), axis, k, pieces)
        return
    scheme = on_lanes(planner, x, axis) or _rows_only(shape, axis, (axis,))
    operand = planner.want(x, scheme, reason="operand of TopK")
    low = min((d.stride for a, d in scheme.local if a != axis), default=1) - 1
    axes = list(scheme.axes)
    for size in (k, -(-k // 16) * 16):
        axes[axis] = (Digit(size, LOCAL, low),) if size > 1 else ()
        out = Scheme(tuple(axes), None)
        goal = (*shape[:axis], k, *shape[axis + 1 :])
        grain = max(Image(out.layout(d), d, goal).granule for d in (dtype, "int"))
        if out.units == size or size % grain == 0:
            break
    wide = (
        values
        if values and planner.device_dtype(values) == dtype
        else planner.temporary(values or indexes, goal, planner.value(x).dtype)
    )
    index = indexes or planner.temporary(values, goal, "int64")
    plain: dict[str, Attr] = {"axis": axis, "k": k, "largest": int(attrs["largest"])}
    planner.put(
        replace(node, inputs=(operand,), outputs=(wide, index), attrs=plain),
        "topk",
        [operand],
        [out, out],
        dtypes=[dtype, "int"],
    )
    if values and wide != values:
        cast_node = Node(planner.fresh(f"{node.name}.cast"), "Cast", (wide,), (values,))
        _cast(planner, cast_node, wide, planner.device_dtype(values), "")


def _pieces(n: int, k: int, rows: int, most: int) -> int:
    """Into how many pieces a row is cut: 1 where that gains nothing."""
    needed = -(-n // most)
    wanted = max(needed, min(n // 256, max(1, 1024 // max(rows, 1)))) if n >= WORTH and rows <= 256 else needed
    while wanted > needed and wanted * min(k, -(-n // wanted)) * 2 > n:
        wanted //= 2
    return max(wanted, needed)


def _by_pieces(planner: Planner, node: Node, axis: int, k: int, pieces: int) -> None:
    from mlsdk.errors import LayoutError

    chain, attrs, x = Chain(planner, node), attributes(node), node.inputs[0]
    shape, dtype = planner.shape(x), planner.value(x).dtype
    n = shape[axis]
    each = -(-n // pieces)
    pieces = -(-n // each)
    few = min(k, each)
    if pieces * few >= n:
        raise LayoutError(
            f"{node.name}: the {k} largest of {n} elements do not fit LM; sort fewer, or a longer axis in parts"
        )
    padded, cut = (*shape[:axis], pieces * each, *shape[axis + 1 :]), (*shape[:axis], pieces, each, *shape[axis + 1 :])
    if padded != shape:
        pads = np.zeros(2 * len(shape), np.int64)
        pads[len(shape) + axis] = pieces * each - n
        x = chain("Pad", [x, chain.constant(pads), chain.constant(_last(dtype, bool(attrs["largest"])))], padded)
    x = chain("Reshape", [x, chain.constant(np.array(cut))], cut)
    best = (*shape[:axis], pieces, few, *shape[axis + 1 :])
    v, i = planner.temporary(node.outputs[0], best, dtype), planner.temporary(node.outputs[0], best, "int64")
    order: dict[str, Attr] = {"largest": attrs["largest"], "sorted": 1}
    count = chain.constant(np.array([few]))
    top_k(planner, Node(planner.fresh(f"{node.name}.pieces"), "TopK", (x, count), (v, i), {**order, "axis": axis + 1}))
    starts = (np.arange(pieces) * each).reshape((pieces, *[1] * (len(shape) - axis))).astype(np.int64)
    i = chain("Add", [i, chain.constant(starts)], best)
    flat = (*shape[:axis], pieces * few, *shape[axis + 1 :])
    v, i = (chain("Reshape", [name, chain.constant(np.array(flat))], flat) for name in (v, i))
    values, indexes = (*node.outputs, "")[:2]
    goal = planner.shape(values or indexes)
    values = values or planner.temporary(indexes, goal, dtype)
    place = planner.temporary(values, goal, "int64")
    count = chain.constant(np.array([k]))
    top_k(
        planner, Node(planner.fresh(f"{node.name}.whole"), "TopK", (v, count), (values, place), {**order, "axis": axis})
    )
    if indexes:
        chain("GatherElements", [i, place], goal, {"axis": axis}, indexes)


def _last(dtype: str, largest: bool) -> np.ndarray:
    """A number that no other comes behind."""
    if np.dtype(dtype).kind == "f":
        return np.array(-np.inf if largest else np.inf, dtype)
    info = np.iinfo(np.int32 if dtype != "uint8" else np.uint8)
    return np.array(info.min if largest else info.max, dtype)


RULES: dict[str, Rule] = {
    "ReduceProd": product,
    "ReduceL1": sum_of("Abs"),
    "ReduceL2": sum_of("Mul", after="Sqrt"),
    "ReduceSumSquare": sum_of("Mul"),
    "ReduceLogSum": sum_of(after="Log"),
    "ReduceLogSumExp": log_sum_exp,
    "CumSum": cumulative_sum,
    "TopK": top_k,
}
