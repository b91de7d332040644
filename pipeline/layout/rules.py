"""The planner's rules: for each operator, the schemes it works in and the emitter that it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from mlsdk.errors import LayoutError
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ir.layout import ADDR, EXTENT, L1B, L2B, MAB, Sub
from mlsdk.pipeline.ir.placed import ANY, LANES, ZERO
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL, Digit, Scheme, choose_lane, local_rows, spread
from mlsdk.pipeline.layout import drawing, gradients, moving, normalizing, pointwise, reducing, windows
from mlsdk.pipeline.layout.fusing import fuse
from mlsdk.pipeline.layout.moving import MOVED, anywhere, known, reshape
from mlsdk.pipeline.layout.pointwise import KEEPS_ZERO, kernel_of
from mlsdk.pipeline.ops.emitters.gemm import LB_BIAS_SIZE
from mlsdk.pipeline.ops.emitters.gemm_modes import Mode, mode_of, weights_layout
from mlsdk.pipeline.ops.emitters.kernels import KERNELS
from mlsdk.pipeline.ops.table import attributes

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

Rule = Callable[["Planner", Node], None]


def rule_of(node: Node, planner: Planner) -> Rule | None:
    if node.op in RULES:
        return RULES[node.op]
    if any(op == node.op for op, _ in KERNELS):
        return elementwise
    return None


# ---- elementwise --------------------------------------------------------------------------------------------------


def elementwise(planner: Planner, node: Node, kernel: str = "") -> None:
    out = node.outputs[0]
    shape = planner.shape(out)
    inputs = [name for name in node.inputs if name]
    scheme = _common_scheme(planner, inputs, shape)
    operands = [
        planner.want(name, scheme.restrict(planner.shape(name), shape), reason=f"operand of {node.op}")
        for name in inputs
    ]
    pad = padding_of(planner, node.op, operands, scheme)
    kernel = kernel or kernel_of(planner, node)
    dtype = planner.result_dtype(node.op, operands, out)
    node, operands, kernel = fuse(planner, node, operands, kernel, scheme, dtype)
    planner.put(node, "elementwise", operands, [scheme], dtypes=[dtype], kernel=kernel, pad=pad)


def padding_of(planner: Planner, op: str, operands: Sequence[str], scheme: Scheme) -> str:
    """What an elementwise result holds in its padding. An operand that is broadcast has values where others have padding."""
    if op not in KEEPS_ZERO:
        return ANY
    placed = [planner.values[name] for name in operands]
    if all(v.pad == ZERO and v.scheme == scheme for v in placed):
        return ZERO
    lanes = [v.pad in (ZERO, LANES) and v.scheme is not None and v.scheme.lane is not None for v in placed]
    return LANES if all(lanes) or (op == "Mul" and any(lanes)) else ANY


def _common_scheme(planner: Planner, inputs: Sequence[str], shape: tuple[int, ...]) -> Scheme:
    """That of the first operand of the result's own shape which lies somewhere already, else the default."""
    for name in inputs:
        found = planner.scheme_of(name)
        if planner.shape(name) == shape and found is not None and not found.copies:
            return found
    return spread(shape, choose_lane(shape))


# ---- reductions ---------------------------------------------------------------------------------------------------


def _axes(planner: Planner, node: Node, rank: int) -> tuple[int, ...]:
    """The reduced axes: from the second input or an attribute; none given means all (or none, as the node says)."""
    attrs = attributes(node)
    axes = attrs.get("axes")
    if len(node.inputs) > 1 and node.inputs[1]:
        data = known(planner, node.inputs[1])
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
    if planner.value(source).dtype != "uint8" or node.op not in ("ReduceSum", "ReduceMean"):
        planner.put(made, "reduce", [operand], [reduced])
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
    if scheme is None or _thin(scheme, shape) or not inside_mab(scheme, axes):
        lane = axis if shape and shape[axis] > 1 else choose_lane(shape)
        scheme = _rows_only(shape, lane, axes)
    operand = planner.want(source, scheme, reason=f"{node.op} along {axis}")
    planner.put(replace(node, attrs={**node.attrs, "reduced": axes}), "softmax", [operand], [scheme])


def argument(planner: Planner, node: Node) -> None:
    """ArgMax and ArgMin."""
    source, out = node.inputs[0], node.outputs[0]
    shape = planner.shape(source)
    axis = int(attributes(node)["axis"]) % len(shape) if shape else 0
    axes = (axis,) if shape else ()
    scheme = planner.scheme_of(source)
    if scheme is None or _thin(scheme, shape) or not inside_mab(scheme, axes):
        lane = axis if shape and shape[axis] > 1 else choose_lane(shape)
        scheme = _rows_only(shape, lane, axes)
    operand = planner.want(source, scheme, reason=f"{node.op} along {axis}")
    reduced = scheme.restrict([1 if a in axes else n for a, n in enumerate(shape)], shape)
    if len(planner.shape(out)) != len(shape):
        reduced = reduced.drop(axis)
    planner.put(replace(node, attrs={**node.attrs, "reduced": axes}), "argument", [operand], [reduced])


def inside_mab(scheme: Scheme, axes: Sequence[int]) -> bool:
    return all(d.level == LOCAL or d.n == 1 for a in axes for d in scheme.axes[a])


def data_inputs(node: Node) -> tuple[str, ...]:
    """The inputs that are data; the others say how (shapes, axes, starts)."""
    if node.op in MOVED:
        return node.inputs[: MOVED[node.op](node)]
    if node.op.startswith("Scatter"):
        return node.inputs[:1]
    return node.inputs[:1] if node.op.startswith("Reduce") else node.inputs


# ---- casts --------------------------------------------------------------------------------------------------------


def cast(planner: Planner, node: Node) -> None:
    source, out = anywhere(planner, node.inputs[0]), node.outputs[0]
    have, want = planner.device_dtype(source), planner.device_dtype(out)
    if {have, want} == {"half", "double"}:  # by way of single
        middle = planner.temporary(out, planner.shape(out), "float32")
        first = replace(node, name=planner.fresh(f"{node.name}.single"), outputs=(middle,))
        _cast(planner, first, source, "single", "")
        source, have = middle, "single"
    narrow = planner.value(out).dtype if planner.value(out).dtype in ("bool", "uint8") else ""
    if narrow == planner.value(source).dtype:
        narrow = ""
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


# ---- products -----------------------------------------------------------------------------------------------------


def matmul(planner: Planner, node: Node) -> None:
    a, b = node.inputs[:2]
    shape_a, shape_b = planner.shape(a), planner.shape(b)
    if len(shape_a) == 1 or len(shape_b) == 1:
        _vectors(planner, node, a, b)
        return
    _product(planner, node, a, b, None, False, False)


def _vectors(planner: Planner, node: Node, a: str, b: str) -> None:
    """A product with a vector: seen as one with a matrix of one row or column."""
    shape_a, shape_b = planner.shape(a), planner.shape(b)
    if len(shape_a) == 1:
        a = _viewed(planner, node, a, (1, *shape_a))
    if len(shape_b) == 1:
        b = _viewed(planner, node, b, (*shape_b, 1))
    batch = planner.shape(a)[:-2] if len(shape_a) > 1 else planner.shape(b)[:-2]
    full = (*batch, planner.shape(a)[-2], planner.shape(b)[-1])
    middle = planner.temporary(node.outputs[0], full)
    _product(
        planner,
        replace(node, name=planner.fresh(node.name), inputs=(a, b), outputs=(middle,)),
        a,
        b,
        None,
        False,
        False,
    )
    reshape(
        planner,
        Node(planner.fresh(f"{node.name}.flat"), "Reshape", (middle,), node.outputs, {}, node.source, node.scope),
    )


def _viewed(planner: Planner, node: Node, name: str, shape: tuple[int, ...]) -> str:
    name = anywhere(planner, name)
    seen = planner.temporary(name, shape)
    reshape(planner, Node(planner.fresh(f"{node.name}.as"), "Reshape", (name,), (seen,), {}, node.source, node.scope))
    return seen


def gemm(planner: Planner, node: Node) -> None:
    attrs = attributes(node)
    a, b = node.inputs[:2]
    c = node.inputs[2] if len(node.inputs) > 2 else ""
    a = _scaled(planner, node, a, float(attrs["alpha"]))
    c = _scaled(planner, node, c, float(attrs["beta"])) if c else c
    _product(planner, node, a, b, c or None, bool(attrs["transA"]), bool(attrs["transB"]))


def _scaled(planner: Planner, node: Node, name: str, factor: float) -> str:
    if factor == 1.0:
        return name
    factors = planner.new_constant(f"{node.name}.factor", np.array(factor, planner.value(name).dtype))
    return planner.apply(node, "Mul", (name, factors), planner.shape(name))


def _product(planner: Planner, node: Node, a: str, b: str, bias: str | None, trans_a: bool, trans_b: bool) -> None:
    out = node.outputs[0]
    shape_a, shape_b, shape_c = planner.shape(a), planner.shape(b), planner.shape(out)
    rank = len(shape_c)
    if trans_a:  # rank 2
        shape_a = shape_a[::-1]
    k, n = shape_a[-1], shape_c[-1]
    wide_a = (1,) * (rank - len(shape_a)) + shape_a
    wide_b = (1,) * (rank - len(shape_b)) + shape_b
    batch = [x for x in range(rank - 2) if wide_b[x] > 1]

    mode = mode_of(planner.device_dtype(a), _weights_dtype(planner, b), planner.halves)
    columns = not batch and columns_pay(mode, prod(shape_c[:-1]), k, n)
    if columns:
        scheme_a = Scheme(spread(shape_a[:-1], None, levels=(L1B, MAB)).axes + (_blocks(k, -1),), rank - 1, _ALL)
        scheme_c = Scheme((*scheme_a.axes[:-1], (*_ALL, *_blocks(-(-n // EXTENT[L2B]), -1))), rank - 1)
    else:
        scheme_a = _rows_scheme(planner, a, shape_a, trans_a, batch, rank) or _new_rows(wide_a, batch, shape_c)
        scheme_c = _with_lane(scheme_a, n, shape_c, wide_a)
    own_a = scheme_a.restrict(shape_a, (*shape_c[:-1], k))
    a_placed = planner.want(a, own_a.permute((1, 0)) if trans_a else own_a, reason=f"rows of {node.op}")

    dtype_b = _weights_dtype(planner, b)
    mode = mode_of(planner.device_dtype(a_placed), dtype_b, planner.halves)
    batch_subs = []
    for x in range(rank - len(shape_b), rank - 2):
        batch_subs.append(_batch_subs(scheme_c, x, batch) if x in batch else ())
    of_b = {s.level for axis in batch_subs for s in axis}
    others = [d for x, axis in enumerate(scheme_c.axes[:-1]) if x not in batch for d in axis]
    copied = [Sub(d.n, d.level, d.stride) for d in others if d.level in of_b and d.level != LOCAL and d.n > 1]
    layout_b = weights_layout(mode, k, n, n_digits=scheme_c.axes[-1], batch=batch_subs, n_first=trans_b, copied=copied)
    b_placed = planner.want_layout(b, layout_b, dtype_b, reason=f"weights of {node.op}")

    dtype_c = {"d": "double"}.get(mode.name, "half" if planner.halves else "single")
    batches = prod(d.n for x in batch for d in scheme_c.axes[x] if d.level == LOCAL)
    inputs = [a_placed, b_placed]
    fused = bias is not None and _fusable(planner, bias, n, dtype_c)
    if bias is not None and fused:
        wanted = "double" if dtype_c == "double" else "single"
        inputs.append(
            planner.want(bias, scheme_c.restrict(planner.shape(bias), shape_c), wanted, reason=f"bias of {node.op}")
        )
    pad = LANES if all(planner.values[name].pad in (ZERO, LANES) for name in inputs[1:]) else ANY
    if bias is None or fused:
        planner.put(node, "gemm", inputs, [scheme_c], dtypes=[dtype_c], kernel=mode.name, batches=batches, pad=pad)
        return
    middle = planner.temporary(out, shape_c)
    part = replace(node, name=planner.fresh(f"{node.name}.product"), outputs=(middle,), inputs=(a, b))
    planner.put(part, "gemm", inputs, [scheme_c], dtypes=[dtype_c], kernel=mode.name, batches=batches, pad=pad)
    elementwise(
        planner, Node(planner.fresh(f"{node.name}.bias"), "Add", (middle, bias), (out,), {}, node.source, node.scope)
    )


_ALL = (Digit(EXTENT[L2B], L2B, 1),)


def _blocks(n: int, rank: int) -> tuple[Digit, ...]:
    blocks = -(-n // BLOCK)
    return (Digit(blocks, LOCAL, rank),) if blocks > 1 else ()


def _weights_dtype(planner: Planner, b: str) -> str:
    """Constant weights are stored as what the product reads."""
    dtype = planner.device_dtype(b)
    return "half" if b in planner.graph.constants and planner.halves and dtype != "double" else dtype


def columns_pay(mode: Mode, m: int, k: int, n: int) -> bool:
    """Whether a product of few rows is quicker when the L2Bs share the columns and each has all rows: every weight goes to
    one L2B (eight of them take 256 LW a step), not to all (32)."""
    blocks = -(-k // BLOCK) * mode.steps * -(-n // BLOCK) * mode.outs
    if n < EXTENT[L2B] * BLOCK:
        return False

    def steps(parts: int) -> float:
        rows = -(-m // (EXTENT[L2B] * EXTENT[L1B] * EXTENT[MAB] // parts))
        return max(blocks / parts * mode.period(-(-rows // 4)), blocks * mode.block_lw / (32 * parts))

    spreading = 64 + m * k / 4 / 32
    return steps(EXTENT[L2B]) + spreading < steps(1)


def _fusable(planner: Planner, bias: str, n: int, dtype_c: str) -> bool:
    """Whether a bias can start the accumulators: one row of n values, singles (doubles), small enough for L1BM."""
    shape = planner.shape(bias)
    if not shape or prod(shape) != n or shape[-1] != n:
        return False
    wanted = "double" if dtype_c == "double" else "single"
    dtype = planner.device_dtype(bias)
    free = bias in planner.graph.constants or planner.placed(bias) is None
    if dtype != wanted and not (free and wanted == "single" and dtype == "half"):
        return False
    return -(-n // BLOCK) * (4 if wanted == "double" else 2) * 4 <= LB_BIAS_SIZE


def _rows_scheme(
    planner: Planner, a: str, shape: tuple[int, ...], trans: bool, batch: list[int], rank: int
) -> Scheme | None:
    """The scheme in which A lies, if the product can work in it: all of k inside a MAB, in the order row, block."""
    found = planner.scheme_of(a)
    if found is None or found.copies or len(shape) != rank:
        return None
    scheme = found.permute((1, 0)) if trans else found
    last = len(shape) - 1
    if scheme.lane != last:
        return None
    if not inside_mab(scheme, (last,)):
        return None
    local = scheme.local
    if any(axis == last for axis, _ in local) and local[-1][0] != last:
        return None
    if sum(axis == last for axis, _ in local) > 1:
        return None
    for x in batch:
        if any(d.level in (L1B, MAB) and d.n > 1 for d in scheme.axes[x]):
            return None
    outer = [axis for axis, _ in local if axis in batch]
    if outer and prod(d.n for axis, d in local if axis not in batch and axis != last) % ALIGN:
        return None
    if outer and [axis for axis, _ in local[: len(outer)]] != outer:
        return None
    return scheme


#: local rows of a batch, where a MAB has several: so that each batch starts a granule of its image
ALIGN = 8


def _new_rows(shape: tuple[int, ...], batch: list[int], shape_c: tuple[int, ...]) -> Scheme:
    """A's scheme where it lies nowhere yet: batches over L2B and LM, rows over the rest, k inside each MAB."""
    full = (*shape_c[:-1], shape[-1])
    last = len(full) - 1
    if not batch:
        return local_rows(full, last)
    axes: list[tuple[Digit, ...]] = [() for _ in full]
    free, rank = EXTENT[L2B], 2 * len(full) + 2
    step = 1
    for x in batch:
        n = full[x]
        take = min(free, n)
        take = -(-n // -(-n // take))
        rest = -(-n // take)
        digits = [Digit(take, L2B, step)] if take > 1 else []
        if rest > 1:
            digits.append(Digit(rest, LOCAL, rank))
        axes[x], rank = tuple(digits), rank - 1
        free, step = free // take, step * take
    rows = [n if x not in batch and x != last else 1 for x, n in enumerate(full)]
    inner = spread(rows, None, levels=(L1B, MAB))
    for x, axis in enumerate(inner.axes):
        if x not in batch and x != last:
            axes[x] = axis
    local = [(x, i) for x, axis in enumerate(axes) for i, d in enumerate(axis) if d.level == LOCAL and x not in batch]
    if local and any(d.level == LOCAL for x in batch for d in axes[x]):
        x, i = min(local, key=lambda item: axes[item[0]][item[1]].stride)
        padded = list(axes[x])
        padded[i] = replace(padded[i], n=-(-padded[i].n // ALIGN) * ALIGN)
        axes[x] = tuple(padded)
    elif any(d.level == LOCAL for x in batch for d in axes[x]):
        axes[last - 1] = (*axes[last - 1], Digit(ALIGN, LOCAL, 1))
    blocks = -(-full[last] // BLOCK)
    axes[last] = (Digit(blocks, LOCAL, 0),) if blocks > 1 else ()
    return Scheme(tuple(axes), last)


def _with_lane(scheme: Scheme, n: int, shape_c: tuple[int, ...], wide_a: tuple[int, ...]) -> Scheme:
    """C's scheme from A's: the same rows, n in place of k."""
    last = len(shape_c) - 1
    ranks = [d.stride for _, d in scheme.local]
    low = min(ranks, default=1) - 1
    blocks = -(-n // BLOCK)
    axes = list(scheme.axes)
    axes[last] = (Digit(blocks, LOCAL, low),) if blocks > 1 else ()
    lifted = tuple(
        tuple(replace(d, stride=d.stride + 1 - min(low, 0)) if d.level == LOCAL else d for d in axis) for axis in axes
    )
    return Scheme(lifted, last, scheme.copies)


def _batch_subs(scheme: Scheme, axis: int, batch: list[int]) -> tuple[Sub, ...]:
    """A batch axis of B: spatial digits as in C, local ones counted in whole matrices."""
    strides: dict[tuple[int, int], int] = {}
    step = 1
    for x, d in reversed([(x, d) for x, d in scheme.local if x in batch]):
        strides[x, d.stride] = step
        step *= d.n
    return tuple(
        Sub(d.n, ADDR, strides[axis, d.stride]) if d.level == LOCAL else Sub(d.n, d.level, d.stride)
        for d in scheme.axes[axis]
        if d.n > 1
    )


RULES: dict[str, Rule] = {
    "ReduceSum": reduction,
    "ReduceMean": reduction,
    "ReduceMax": reduction,
    "ReduceMin": reduction,
    "Softmax": softmax,
    "ArgMax": argument,
    "ArgMin": argument,
    "Cast": cast,
    "MatMul": matmul,
    "Gemm": gemm,
    **pointwise.RULES,
    **moving.RULES,
    **reducing.RULES,
    **windows.RULES,
    **normalizing.RULES,
    **gradients.RULES,
    **drawing.RULES,
}
