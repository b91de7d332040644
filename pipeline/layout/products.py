"""The planner's rules for matrix products: A's rows are shared out, B's weights stream to all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import gcd, inf, prod
from typing import TYPE_CHECKING

import numpy as np

from mlsdk.device import spec
from mlsdk.errors import LayoutError
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, EXTENT, L1B, L2B, MAB, PER_LW, Layout, Sub
from mlsdk.pipeline.ir.placed import ANY, LANES, ZERO
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL, QUAD_LW, Digit, Scheme, local_rows, spread
from mlsdk.pipeline.layout import grids, updates
from mlsdk.pipeline.layout.moving import anywhere, reshape
from mlsdk.pipeline.layout.pins import same
from mlsdk.pipeline.ops.emitters.gemm import LB_BIAS_SIZE, sums_in_quarters
from mlsdk.pipeline.ops.emitters.gemm_modes import MODES, Mode, in_quarters, mode_of, weights_layout
from mlsdk.pipeline.ops.emitters.gemm_pipeline import BIAS
from mlsdk.pipeline.ops.emitters.quarters import quartered
from mlsdk.pipeline.ops.table import attributes

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

#: behind the name of a result: of its ways, those to its weights
OF_WEIGHTS = " weights"

#: what is shared out over the L2Bs: the rows of A and C, or the columns of B and C; or both, as in grids.py
ROWS, COLUMNS, GRID = "Rows", "Columns", "Grid"
#: operators that can be done in several ways, which an option may choose from
IMPLEMENTATIONS = dict.fromkeys(("MatMul", "Gemm"), (ROWS, COLUMNS, GRID))
BANK = spec.LM_WORDS // 2  # long words of LM that a tile may take


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
    if planner.device_dtype(a) == "int":
        _of_integers(planner, node, a, b, bias, trans_a, trans_b)
        return
    k = planner.shape(a)[-2 if trans_a else -1]
    most = _most_lanes(
        mode_of(planner.device_dtype(a), _weights_dtype(planner, b), planner.halves), planner.device_dtype(a)
    )
    if k > most:
        _in_parts(planner, node, a, b, bias, trans_a, trans_b, most)
    else:
        _placed_product(planner, node, a, b, bias, trans_a, trans_b)


def _placed_product(
    planner: Planner,
    node: Node,
    a: str,
    b: str,
    bias: str | None,
    trans_a: bool = False,
    trans_b: bool = False,
    dtype: str = "",
) -> None:
    """One product that fits. `dtype`: of the result, if not half where halves are multiplied."""
    out = node.outputs[0]
    shape_a, shape_b, shape_c = planner.shape(a), planner.shape(b), planner.shape(out)
    rank = len(shape_c)
    if trans_a:  # rank 2
        shape_a = shape_a[::-1]
    k, n = shape_a[-1], shape_c[-1]
    wide_a = (1,) * (rank - len(shape_a)) + shape_a
    wide_b = (1,) * (rank - len(shape_b)) + shape_b
    batch = [x for x in range(rank - 2) if wide_b[x] > 1]

    dtype_b = _weights_dtype(planner, b)
    mode = mode_of(planner.device_dtype(a), dtype_b, planner.halves)
    dtype_c = dtype or {"d": "double"}.get(mode.name, "half" if planner.halves else "single")
    stored = (
        _stored(planner, a, b, (prod(shape_c[:-1]), *shape_b), trans_b, mode) if rank == len(shape_b) == 2 else None
    )
    crossed = (
        _crossed(planner, node, a, b, (shape_c[0], *shape_b), trans_a, mode)
        if rank == len(shape_b) == 2 and not trans_b
        else None
    )
    if stored is not None:
        scheme_a, scheme_c = stored.schemes(shape_c[:-1])
        mode = updates.mode_for(mode) or mode
    elif crossed is not None:
        b, scheme_a, scheme_c = crossed
        mode = updates.crossed_mode_for(mode) or mode
    else:
        scheme_a, scheme_c = _schemes(planner, out, a, b, wide_a, shape_c, trans_a, batch, mode, dtype_c)
    own_a = scheme_a.restrict(shape_a, (*shape_c[:-1], k))
    local = [x for x in batch if any(d.level == LOCAL and d.n > 1 for d in scheme_c.axes[x])]
    if {wide_a[x] == shape_c[x] for x in local} == {True, False}:  # each local batch its own A, or one for all
        full = planner.new_constant(f"{node.name}.batches", np.array((*shape_c[:-1], k), np.int64))
        a = planner.apply(node, "Expand", (a, full), (*shape_c[:-1], k))
        _placed_product(planner, node, a, b, bias, False, trans_b, dtype)
        return
    own_a = own_a.permute((1, 0)) if trans_a else own_a
    a_placed = planner.want(a, own_a, reason=f"rows of {node.op}", clean=updates.goal(planner, out) is not None)

    batch_subs = []
    for x in range(rank - len(shape_b), rank - 2):
        batch_subs.append(_batch_subs(scheme_c, x, batch) if x in batch else ())
    of_b = {s.level for axis in batch_subs for s in axis}
    others = [d for x, axis in enumerate(scheme_c.axes[:-1]) if x not in batch for d in axis]
    copied = [Sub(d.n, d.level, d.stride) for d in others if d.level in of_b and d.level != LOCAL and d.n > 1]
    blocks = _local_blocks(scheme_a, rank - 1)
    sums = sums_in_quarters(scheme_a, scheme_c) if stored is None and crossed is None else None
    if crossed is not None:
        b_placed = b
    elif stored is not None:
        b_placed = planner.want(b, stored.scheme, dtype_b, reason=f"weights of {node.op}, which are updated")
    else:
        if any(d.level == L2B and d.n > 1 for d in scheme_a.axes[rank - 1]):
            blocks = -(-k // BLOCK)
        mode = _weights_mode(planner, out, b, trans_b, mode, _rows(scheme_c, rank - 1, batch))
        layout_b = weights_layout(
            mode, blocks * BLOCK, (sums or scheme_c).extents[-1],  # as many outputs as C has room for
            n_digits=(sums or scheme_c).axes[-1], batch=batch_subs, n_first=trans_b, copied=copied,
            k_digits=scheme_a.axes[rank - 1] if sums is not None else (),
        )  # fmt: skip
        if not batch and grids.in_pairs(scheme_c):
            layout_b = in_quarters(layout_b)
        b_placed = planner.want_layout(b, layout_b, dtype_b, reason=f"weights of {node.op}")
    _check_pin(planner, node, a_placed, b_placed, scheme_c.layout(dtype_c), b, trans_b)
    joined = sums is not None or (stored is not None and stored.parts > 1)

    batches = prod(d.n for x in batch for d in scheme_c.axes[x] if d.level == LOCAL)
    inputs = [a_placed, b_placed]
    fused = (
        bias is not None
        and not joined
        and _fusable(planner, bias, _local_blocks(scheme_c, rank - 1) * BLOCK, n, dtype_c)
    )
    if bias is not None and fused:
        wanted = "double" if dtype_c == "double" else "single"
        inputs.append(
            planner.want(bias, scheme_c.restrict(planner.shape(bias), shape_c), wanted, reason=f"bias of {node.op}")
        )
    pads = [planner.values[name].pad for name in inputs]
    pad = ZERO if pads == [ZERO, ZERO] else LANES if all(p in (ZERO, LANES) for p in pads[1:]) else ANY
    if joined:
        _joined(planner, node, inputs, bias, scheme_c, dtype_c, mode)
        return
    if bias is None or fused:
        planner.put(node, "gemm", inputs, [scheme_c], dtypes=[dtype_c], kernel=mode.name, batches=batches, pad=pad)
        return
    middle = planner.temporary(out, shape_c)
    part = replace(node, name=planner.fresh(f"{node.name}.product"), outputs=(middle,), inputs=(a, b))
    planner.put(part, "gemm", inputs, [scheme_c], dtypes=[dtype_c], kernel=mode.name, batches=batches, pad=pad)
    from mlsdk.pipeline.layout.rules import elementwise

    elementwise(
        planner, replace(node, op="Add", inputs=(middle, bias), attrs={})
    )  # by the node's name: others may join


def _check_pin(planner: Planner, node: Node, a: str, b: str, c: Layout, weights: str, trans_b: bool) -> None:
    """Raise LayoutError where the product with `weights` cannot work as gemm_layout_spec wants it."""
    pin = planner.options.pins.gemm(weights)
    if pin is None:
        return
    of_b = planner.values[b].layout
    found = {
        "A": (pin.a, planner.values[a].layout),
        "BT": (pin.bt, of_b if trans_b or of_b.rank != 2 else of_b.transpose((1, 0))),
        "C": (pin.c, c),
    }
    for name, (wanted, have) in found.items():
        if wanted is not None and not same(wanted, have):
            raise LayoutError(f"{pin}: {node.name} works with {name} in {have}, not in {wanted}; see layout.html")


def _stored(
    planner: Planner, a: str, b: str, sizes: tuple[int, ...], trans_b: bool, mode: Mode
) -> updates.Weights | None:
    """How B lies if it is read as a training step stores it. `sizes`: rows, n, k."""
    own = updates.mode_for(mode)
    found = updates.weights(planner, b, a, sizes[0]) if trans_b and own is not None else None
    if found is None:
        return None
    blocks = [prod(d.n for d in digits if d.level == LOCAL) for digits in (found.k, found.n)]
    lw = max(blocks[0] * QUAD_LW[planner.device_dtype(a)], blocks[1] * QUAD_LW["single"])
    return found if 16 * lw <= BANK else None


def _crossed(
    planner: Planner, node: Node, a: str, b: str, sizes: tuple[int, ...], trans_a: bool, mode: Mode
) -> tuple[str, Scheme, Scheme] | None:
    """B (k, n), itself or a copy, that is read as it lies, its lanes being outputs, and then schemes of A and the result.
    `sizes`: rows, k, n."""
    goal = updates.goal(planner, node.outputs[0])
    places = updates.crossed(planner, b) if updates.crossed_mode_for(mode) is not None else iter(())
    found_b = next(((name, lanes) for name, lanes in places if goal is None or goal.k == lanes), None)
    if found_b is None:
        return None
    (name, lanes), (rows, k, _) = found_b, sizes
    axis = goal.scheme.axes[0] if goal is not None else updates.rows_beside((rows,), lanes)[0]
    scheme_a = Scheme((axis, _blocks(k, -1)), 1)
    scheme_c = goal.scheme if goal is not None else Scheme((axis, lanes), 1)
    lies = planner.scheme_of(a)
    if goal is None and lies is not None:
        shape = planner.shape(a)[::-1] if trans_a else planner.shape(a)
        found = _rows_scheme(planner, a, shape, trans_a, [], 0, mode, 2)
        if found is not None and not {d.level for d in found.axes[0] if d.level != LOCAL} & {d.level for d in lanes}:
            scheme_a, scheme_c = found, Scheme((found.axes[0], lanes), 1)
    lw = max(
        _local_blocks(scheme_a, 1) * QUAD_LW[planner.device_dtype(a)], _local_blocks(scheme_c, 1) * QUAD_LW["single"]
    )
    return (name, scheme_a, scheme_c) if 16 * lw <= BANK else None


def _joined(
    planner: Planner, node: Node, inputs: list[str], bias: str | None, scheme: Scheme, dtype: str, mode: Mode
) -> None:
    """A product of which each L1B or L2B has a part. The sum is single (double); it is rounded with its bias on it."""
    wide = "double" if dtype == "double" else "single"
    if bias is None and dtype == wide:
        planner.put(node, "gemm", inputs, [scheme], dtypes=[wide], kernel=mode.name, reason="a sum of parts")
        return
    middle = planner.temporary(node.outputs[0], planner.shape(node.outputs[0]))
    part = replace(node, name=planner.fresh(f"{node.name}.product"), outputs=(middle,))
    planner.put(part, "gemm", inputs, [scheme], dtypes=[wide], kernel=mode.name, reason="a sum of parts")
    shape = planner.shape(middle)
    if bias is None:
        op, operands, kernel = "Cast", [middle], f"Cast:single:{dtype}"
    else:
        op, kernel = "Add", ""
        operands = [
            middle,
            planner.want(bias, scheme.restrict(planner.shape(bias), shape), reason=f"bias of {node.op}"),
        ]
    last = replace(node, op=op, inputs=tuple(operands), attrs={})
    planner.put(last, "elementwise", operands, [scheme], dtypes=[dtype], kernel=kernel)


# ---- what is too large, or no float -------------------------------------------------------------------------------


def _most_lanes(mode: Mode, dtype: str) -> int:
    """How long a row of A may be: as it comes it must fit LM1, as block floats LM0."""
    return BANK // max(mode.floats, QUAD_LW[dtype]) * BLOCK


def _in_parts(
    planner: Planner, node: Node, a: str, b: str, bias: str | None, trans_a: bool, trans_b: bool, most: int
) -> None:
    """A product along more lanes than LM holds, as a sum of products; the partial sums are not rounded to half."""
    out = node.outputs[0]
    shape, dtype = planner.shape(out), planner.device_dtype(a)
    axis_a = len(planner.shape(a)) - (2 if trans_a else 1)
    axis_b = len(planner.shape(b)) - (1 if trans_b else 2)
    k, total = planner.shape(a)[axis_a], ""
    for start in range(0, k, most):
        stop = min(start + most, k)
        left = _cut(planner, node, a, axis_a, start, stop)
        right = _cut(planner, node, b, axis_b, start, stop)
        part = planner.temporary(out, shape)
        one = replace(node, name=planner.fresh(f"{node.name}.part"), outputs=(part,), inputs=(left, right))
        first_bias = bias if start == 0 else None
        _placed_product(
            planner, one, left, right, first_bias, trans_a, trans_b, "double" if dtype == "double" else "single"
        )
        last = stop == k
        total = planner.apply(node, "Add", (total, part), shape, out=out if last else "") if total else part


def _cut(planner: Planner, node: Node, name: str, axis: int, start: int, stop: int) -> str:
    data = planner.data(name)
    if data is not None:
        return planner.new_constant(f"{name}.part", np.take(data, range(start, stop), axis))
    shape = list(planner.shape(name))
    shape[axis] = stop - start
    numbers = [planner.new_constant(f"{node.name}.cut", np.array([v], np.int64)) for v in (start, stop, axis)]
    return planner.apply(node, "Slice", (name, *numbers), shape)


def _of_integers(planner: Planner, node: Node, a: str, b: str, bias: str | None, trans_a: bool, trans_b: bool) -> None:
    """The board multiplies matrices of floats only: integers are multiplied one by one and summed, modulo 2^32 like each."""
    a = planner.apply(node, "Transpose", (a,), planner.shape(a)[::-1], perm=(1, 0)) if trans_a else a
    b = planner.apply(node, "Transpose", (b,), planner.shape(b)[::-1], perm=(1, 0)) if trans_b else b
    shape_a, shape_b, out = planner.shape(a), planner.shape(b), planner.shape(node.outputs[0])
    wide = (*out[:-1], shape_a[-1], out[-1])
    left = _viewed(planner, node, a, (*shape_a, 1))
    right = _viewed(planner, node, b, (*shape_b[:-2], 1, *shape_b[-2:]))
    terms = planner.apply(node, "Mul", (left, right), wide)
    axes = planner.new_constant(f"{node.name}.axes", np.array([len(wide) - 2], np.int64))
    end = "" if bias else node.outputs[0]
    total = planner.apply(node, "ReduceSum", (terms, axes), out, out=end, keepdims=0)
    if bias:
        planner.apply(node, "Add", (total, bias), out, out=node.outputs[0])


# ---- schemes ------------------------------------------------------------------------------------------------------


def _schemes(
    planner: Planner,
    out: str,
    a: str,
    b: str,
    wide_a: tuple[int, ...],
    shape_c: tuple[int, ...],
    trans_a: bool,
    batch: list[int],
    mode: Mode,
    dtype_c: str,
) -> tuple[Scheme, Scheme]:
    """Where A and the result lie."""
    last, k, n = len(shape_c) - 1, wide_a[-1], shape_c[-1]
    unit_a, unit_c = QUAD_LW[planner.device_dtype(a)], QUAD_LW[dtype_c]

    def of_c(scheme: Scheme) -> Scheme:
        return _with_lane(scheme, n, shape_c, wide_a)

    def fits(scheme: Scheme, scheme_c: Scheme) -> bool:
        rows = _rows(scheme, last, batch)
        sizes = [_local_blocks(scheme, last) * unit_a, _local_blocks(scheme_c, last) * unit_c]
        return rows * max(sizes) <= BANK or max(_grain(scheme, lw) for lw in sizes) * max(sizes) <= BANK

    goal = updates.goal(planner, out) if last == 1 and not batch else None
    if goal is not None:
        aimed = Scheme((goal.scheme.axes[0], _blocks(k, -1)), last)
        if fits(aimed, goal.scheme):
            return aimed, goal.scheme
    shape_a = planner.shape(a)[::-1] if trans_a else planner.shape(a)
    lies = _rows_scheme(planner, a, shape_a, trans_a, batch, n, mode, last + 1)
    new = _new_rows(wide_a, batch, shape_c, mode)
    fit = [scheme for scheme in (lies, new) if scheme is not None and fits(scheme, of_c(scheme))]
    rows: list[tuple[Scheme, Scheme]] = [(scheme, of_c(scheme)) for scheme in fit]
    columns: list[tuple[Scheme, Scheme]] = []
    if not batch:
        rows_axes = grids.rows_in_powers_of_two(shape_c[:-1], (L1B, MAB))
        parts = (*_ALL, *_blocks(-(-n // EXTENT[L2B]), -1))
        whole = Scheme((*rows_axes, _blocks(k, -1)), last, _ALL)
        columns = [
            (whole, Scheme((*rows_axes, lanes), last)) for lanes in (*_of_heads(planner, out, n, rows_axes), parts)
        ]
        shared = None if trans_a else _shared_rows(planner, a, shape_a)
        if shared is not None and fits(shared, found := Scheme((*shared.axes[:-1], parts), last)):
            columns.insert(0 if lies is None else 1, (shared, found))
        if shared is not None and (summed := _summed(shared, k, n)) is not None and fits(shared, summed):
            columns.insert(0, (shared, summed))
    pays = not batch and columns_pay(mode, prod(shape_c[:-1]), k, n)
    ways = [*columns, *rows] if pays or not rows else [*rows, *columns]
    implementation = planner.options.implementations.get(planner.maker.get(out, "")) or planner.options.families.get(
        out
    )
    dtypes = planner.device_dtype(a), dtype_c
    free = [] if trans_a or not (planner.free(a) or a in planner.waiting) else grids.sums(shape_c, k)
    others = [] if batch else [way for way in (*grids.grids(shape_c, k), *free) if grids.fits(mode, way, dtypes)]
    ways = {ROWS: rows, COLUMNS: columns, GRID: others}.get(implementation or "", ways) or ways
    pin = planner.options.pins.gemm(b)
    if pin is None and implementation is None and others:
        ways = _with_grids(planner, a, out, trans_a, mode, ways, others, dtypes)
    if pin is not None and not trans_a:
        ways = [(x, y) for x, y in (*ways, *others) if pin.allows(x.layout(dtypes[0]), y.layout(dtypes[1]))] or ways
    wished = planner.wish(out)
    if wished is not None:
        ways = [way for way in (*ways, *others) if way[1].layout(dtype_c) == wished.layout(dtype_c)] or ways
    scheme_a, scheme_c = planner.way(out, ways) if ways else (new, of_c(new))
    while not fits(scheme_a, scheme_c) and _local_blocks(scheme_c, last) * unit_c < BANK:
        grains = [
            _grain(scheme_a, _local_blocks(s, last) * unit) for s, unit in ((scheme_a, unit_a), (scheme_c, unit_c))
        ]
        if grains[0] > grains[1]:
            scheme_a = _widened(scheme_a, last)
        else:
            scheme_c = _widened(scheme_c, last)
    return scheme_a, scheme_c


def _with_grids(
    planner: Planner, a: str, out: str, trans_a: bool, mode: Mode, ways: list[grids.Way], others: list[grids.Way],
    dtypes: tuple[str, str],
) -> list[grids.Way]:  # fmt: skip
    """Ways of which the first is the rule's own, with those that share out rows and columns: before it where they are much
    quicker although A and the result have to be switched; else the quickest that were quicker with half of that, behind all, for
    a search to try."""
    lies = planner.scheme_of(a)
    is_read = out not in planner.graph.outputs or bool(planner.readers.get(out))

    def switching(way: grids.Way) -> float:
        own = way[0].permute((1, 0)) if trans_a else way[0]
        anew = lies is not None and lies.plain != own.restrict(planner.shape(a), own.extents).plain
        names = ((a, dtypes[0], anew), (out, dtypes[1], is_read))
        return sum(grids.switched(planner.shape(name), dtype) for name, dtype, moves in names if moves)

    costs = {way: grids.steps(mode, way, dtypes) for way in (*ways[:1], *others)}
    least = grids.LEAST_GAIN * costs[ways[0]] if ways else inf
    extra = {way: switching(way) for way in others}
    ranked = sorted(
        (way for way in others if costs[way] + extra[way] / 2 < least), key=lambda way: costs[way] + extra[way]
    )
    if not ranked:
        return ways
    return [ranked[0], *ways] if costs[ranked[0]] + extra[ranked[0]] < least else [*ways, ranked[0]]


def _local_blocks(scheme: Scheme, last: int) -> int:
    return prod(d.n for d in scheme.axes[last] if d.level == LOCAL)


def _rows(scheme: Scheme, last: int, batch: list[int]) -> int:
    """Rows of a MAB for each local batch."""
    return prod(
        d.n for x, axis in enumerate(scheme.axes) if x != last and x not in batch for d in axis if d.level == LOCAL
    )


def _grain(scheme: Scheme, lw: int) -> int:
    """How many rows of `lw` long words end where an image in DRAM may be cut (Image.granule)."""
    granule = Image(scheme.layout("half"), "half", ()).granule
    return granule // gcd(lw, granule)


def _in_lm_at_once(mode: Mode, scheme: Scheme, batch: list[int], n: int) -> bool:
    """Whether there is room for the rows of all local batches and their results: then none has to end where an image may be
    cut."""
    last, unit = scheme.rank - 1, QUAD_LW["double" if mode.name == "d" else "single"]
    rows = _rows(scheme, last, batch)
    batches = prod(d.n for x in batch for d in scheme.axes[x] if d.level == LOCAL)
    blocks = max(_local_blocks(scheme, last) * max(mode.floats, unit), -(-n // BLOCK) * unit)
    return rows <= 4 * (BIAS // mode.acc_words) and -(-rows * batches // 8) * 8 * blocks <= BANK


def _widened(scheme: Scheme, last: int) -> Scheme:
    """With one more lane block in each MAB: lanes that no one reads."""
    lanes = scheme.axes[last]
    if not any(d.level == LOCAL for d in lanes):
        lanes = (*lanes, Digit(1, LOCAL, -1))
    lanes = tuple(replace(d, n=d.n + 1) if d.level == LOCAL else d for d in lanes)
    return replace(scheme, axes=(*scheme.axes[:last], lanes))


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


def _weights_mode(planner: Planner, out: str, b: str, trans_b: bool, mode: Mode, rows: int) -> Mode:
    """How weights are multiplied that were computed: halves whose lanes are outputs are transposed on the way to the streamed
    order, or go there whole and are transposed as they are read, which takes longer where a MAB has few `rows` of A."""
    lies = planner.scheme_of(b)
    if mode.name != "h" or planner.is_constant(b) or lies is None:
        return mode
    if lies.lane != len(planner.shape(b)) - (2 if trans_b else 1):
        return mode
    across, groups = MODES["hx"], -(-rows // 4)
    modes = [mode, across] if across.period(groups) > mode.period(groups) else [across, mode]
    return planner.way(out + OF_WEIGHTS, modes)


def _fusable(planner: Planner, bias: str, lanes: int, n: int, dtype_c: str) -> bool:
    """Whether a bias can start the accumulators: one row of n values, singles (doubles), small enough for L1BM."""
    shape = planner.shape(bias)
    if not shape or prod(shape) != n or shape[-1] != n:
        return False
    wanted = "double" if dtype_c == "double" else "single"
    dtype = planner.device_dtype(bias)
    free = bias in planner.graph.constants or planner.free(bias)
    if dtype != wanted and not (free and wanted == "single" and dtype == "half"):
        return False
    return lanes // BLOCK * (4 if wanted == "double" else 2) * 4 <= LB_BIAS_SIZE


def _rows_scheme(
    planner: Planner, a: str, shape: tuple[int, ...], trans: bool, batch: list[int], n: int, mode: Mode, rank: int
) -> Scheme | None:
    """The scheme in which A lies, if the product can work in it: all of k inside a MAB, in the order row, block."""
    found = planner.scheme_of(a)
    if found is None or found.copies or len(shape) != rank:
        return None
    scheme = found.permute((1, 0)) if trans else found
    last = len(shape) - 1
    if scheme.lane != last:
        return None
    if not scheme.inside_mab((last,)):
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
    rows = prod(d.n for axis, d in local if axis not in batch and axis != last)
    if outer and rows % _grain(scheme, 1) and not _in_lm_at_once(mode, scheme, batch, n):
        return None
    if outer and [axis for axis, _ in local[: len(outer)]] != outer:
        return None
    return scheme


def _shared_rows(planner: Planner, a: str, shape: tuple[int, ...]) -> Scheme | None:
    """The scheme in which A lies, if the L2Bs share k and hold the same rows: each part can be brought to all of them. Heads of
    an L2B may lie one after another, each with all rows, if all that fits LM."""
    scheme = planner.scheme_of(a)
    if scheme is None or scheme.copies or len(shape) < 2:
        return None
    last = len(shape) - 1
    digits = [d for d in scheme.axes[last] if d.n > 1]
    rows = [d for axis in scheme.axes[:last] for d in axis if d.n > 1]
    if scheme.lane != last or [d.level for d in digits] not in ([L2B], [L2B, LOCAL], [L2B, LOCAL, LOCAL]):
        return None
    among = [d.stride for d in rows if d.level == LOCAL]
    apart = [d for d in digits[1:] if among and d.stride > min(among)]
    if apart and scheme.addresses(planner.device_dtype(a)) * digits[0].n > BANK:
        return None
    between = any(d.stride < max(among) for d in apart)
    return None if between or any(d.level == L2B for d in rows) else scheme


def _of_heads(planner: Planner, out: str, n: int, rows: tuple[tuple[Digit, ...], ...]) -> list[tuple[Digit, ...]]:
    """Columns over as many L2Bs as have whole heads, where what reads the result cuts it into these and they do not lie so
    anyway. Each head of an L2B has all rows behind each other, as the products of heads read them."""
    top = 1 + max((d.stride for axis in rows for d in axis if d.level == LOCAL), default=0)
    for reader in planner.readers.get(out, ()):
        shape = planner.shape(reader.outputs[0])
        if reader.op != "Reshape" or len(shape) < 3 or shape[-2] * shape[-1] != n or shape[-1] % BLOCK:
            continue
        each = -(-shape[-2] // EXTENT[L2B])
        l2bs = shape[-2] // each
        if l2bs <= EXTENT[L2B] // 2 or l2bs * each != shape[-2]:
            continue
        heads = (Digit(each, LOCAL, top),) if each > 1 else ()
        if l2bs < EXTENT[L2B] or (each > 1 and top > 1):
            return [(Digit(l2bs, L2B, 1), *heads, *_blocks(shape[-1], -1))]
    return []


def _summed(scheme_a: Scheme, k: int, n: int) -> Scheme | None:
    """The result's scheme where the L2Bs, which share k, each multiply their own part, and these are summed. A has no lanes
    beyond k: these might hold anything."""
    last = scheme_a.rank - 1
    whole = any(d.level == L2B and d.stride == 1 for d in scheme_a.axes[last]) and scheme_a.extents[last] == k
    return quartered(Scheme((*scheme_a.axes[:last], _blocks(n, -1)), last)) if whole else None


def _new_rows(shape: tuple[int, ...], batch: list[int], shape_c: tuple[int, ...], mode: Mode) -> Scheme:
    """A's scheme where it lies nowhere yet: batches over L2B and LM, rows over the rest, k inside each MAB. Where a MAB has
    several batches, each starts a granule of its image. L2Bs that would have no batch share the rows of the others'."""
    full = (*shape_c[:-1], shape[-1])
    last = len(full) - 1
    if not batch:
        return local_rows(full, last)
    axes: list[tuple[Digit, ...]] = [() for _ in full]
    free, rank = EXTENT[L2B], 2 * len(full) + 2
    step = 1
    most, last_row = prod(n for x, n in enumerate(full) if x not in batch and x != last), last - 1
    for x in batch:
        n = full[x]
        take = _share_of_l2bs(free, n, most, full[-1], shape_c[-1], mode)
        rest = -(-n // take)
        digits = [Digit(take, L2B, step)] if take > 1 else []
        if rest > 1:
            digits.append(Digit(rest, LOCAL, rank))
        axes[x], rank = tuple(digits), rank - 1
        free, step = free // take, step * take
    beside = min(free, full[last_row]) if last_row not in batch else 1
    rows = [-(-n // beside) if x == last_row else n if x not in batch and x != last else 1 for x, n in enumerate(full)]
    inner = spread(rows, None, levels=(L1B, MAB))
    for x, axis in enumerate(inner.axes):
        if x not in batch and x != last:
            axes[x] = (Digit(beside, L2B, step), *axis) if x == last_row and beside > 1 else axis
    together = Scheme((*axes[:last], _blocks(full[last], 0)), last)
    grain = 1 if _in_lm_at_once(mode, together, batch, shape_c[-1]) else _grain(Scheme(tuple(axes)), 1)
    local = [(x, i) for x, axis in enumerate(axes) for i, d in enumerate(axis) if d.level == LOCAL and x not in batch]
    if local and any(d.level == LOCAL for x in batch for d in axes[x]):
        x, i = min(local, key=lambda item: axes[item[0]][item[1]].stride)
        padded = list(axes[x])
        padded[i] = replace(padded[i], n=-(-padded[i].n // grain) * grain)
        axes[x] = tuple(padded)
    elif grain > 1 and any(d.level == LOCAL for x in batch for d in axes[x]):
        axes[last - 1] = (*axes[last - 1], Digit(grain, LOCAL, 1))
    axes[last] = _blocks(full[last], 0)
    return Scheme(tuple(axes), last)


def _share_of_l2bs(free: int, n: int, rows: int, k: int, columns: int, mode: Mode) -> int:
    """How many of the free L2Bs have batches of their own, of `n` with so many rows and columns: with fewer, others share the
    rows of each, and need the same weights."""

    def steps(take: int) -> float:
        beside = min(free // take, rows)
        own = -(-rows // (beside * EXTENT[L1B] * EXTENT[MAB]))
        moved = ((rows * k + rows * columns) / beside + k * columns) / PER_LW["half"] / grids.PORT * spec.L2B_PER_GROUP
        blocks = -(-k // BLOCK) * mode.steps * -(-columns // BLOCK) * mode.outs
        return -(-n // take) * (moved + blocks * mode.period(-(-own // 4)))

    even = -(-n // -(-n // min(free, n)))
    return min((even, *(take for take in (4, 2, 1) if take < even and take <= free // 2)), key=steps)


def _with_lane(scheme: Scheme, n: int, shape_c: tuple[int, ...], wide_a: tuple[int, ...]) -> Scheme:
    """C's scheme from A's: the same rows, n in place of k."""
    last = len(shape_c) - 1
    ranks = [d.stride for _, d in scheme.local]
    low = min(ranks, default=1) - 1
    axes = list(scheme.axes)
    axes[last] = _blocks(n, low)
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


RULES: dict[str, Callable[[Planner, Node], None]] = {"MatMul": matmul, "Gemm": gemm}
