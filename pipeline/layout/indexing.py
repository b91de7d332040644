"""The planner's rules for reading and writing at indices that are computed at run time.

Each operator is brought to one form: rows of the data along one axis, columns along the others, and an index for each place
of the result (or for each update) that may be shared by columns. Then lanes and levels are chosen: every PE that may want a
row holds all of them for its columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from mlsdk.device import spec
from mlsdk.pipeline.ir.graph import Attr, Node
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import L1B, L2B, MAB
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL, Digit, Scheme, local_rows, spread
from mlsdk.pipeline.layout.fetching import fetched
from mlsdk.pipeline.layout.index_form import Form, viewed
from mlsdk.pipeline.ops.table import attributes

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

#: long words of LM0 that rows of data may take at a time
ROOM = 2000
#: LW from a group's DRAM in a step
DRAM_LW = spec.DRAM_LW_PER_CYCLE * spec.CYCLES_PER_STEP
#: an axis as wide as this is worth lanes of its own
WIDE = 4


# ---- forms --------------------------------------------------------------------------------------------------------


def _along_axis(planner: Planner, node: Node, data: str, index: str) -> Form:
    """Gather: an index for all columns."""
    shape, indices = planner.shape(data), planner.shape(index)
    axis, q = int(attributes(node)["axis"]) % len(shape), len(indices)
    out = (*shape[:axis], *indices, *shape[axis + 1 :])
    data_axes = (*range(axis), -1, *range(axis + q, len(out)))
    return Form(data, index, out, axis, shape[axis], data_axes, tuple(range(axis, axis + q)), ((shape[axis], 1),))


def _by_element(planner: Planner, node: Node, data: str, index: str) -> Form:
    """GatherElements, ScatterElements: an index for each element."""
    shape, out = planner.shape(data), planner.shape(index)
    axis = int(attributes(node)["axis"]) % len(shape)
    every = tuple(range(len(out)))
    return Form(
        data, index, out, axis, shape[axis], tuple(-1 if a == axis else a for a in every), every, ((shape[axis], 1),)
    )


def _at_places(planner: Planner, node: Node, data: str, index: str, batch: int) -> Form:
    """GatherND, ScatterND: an index of several numbers, for axes that are seen as one."""
    shape, indices = planner.shape(data), planner.shape(index)
    depth = indices[-1]
    extents = shape[batch : batch + depth]
    rows = prod(extents)
    seen = (*shape[:batch], rows, *shape[batch + depth :])
    if seen != shape:
        data = viewed(planner, data, seen)
    places = len(indices) - 1
    out = (*indices[:-1], *shape[batch + depth :])
    data_axes = (*range(batch), -1, *range(places, len(out)))
    strides = [prod(extents[i + 1 :]) for i in range(depth)]
    return Form(data, index, out, batch, rows, data_axes, (*range(places), -1), tuple(zip(extents, strides)))


def cut(planner: Planner, node: Node, name: str, shape: Sequence[int], axis: int) -> str:
    """The leading part of a value that has `shape` beside `axis`."""
    have = planner.shape(name)
    axes = [a for a in range(len(have)) if a != axis and have[a] != shape[a]]
    if not axes:
        return name
    goal = tuple(have[a] if a == axis else shape[a] for a in range(len(have)))
    first, last = np.zeros(len(axes), np.int64), np.array([goal[a] for a in axes])
    return planner.apply(node, "Slice", (name,), goal, input1=first, input2=last, input3=np.array(axes))


# ---- schemes ------------------------------------------------------------------------------------------------------

_LEAST = {L2B: 2, L1B: 4, MAB: 8}
#: (level, places, stride) in the order in which axes take them: with all L2Bs, or one of each group, because what two of a group
#: have alike is stored twice
LEVELS = ((L2B, 8, 1), (L1B, 8, 1), (MAB, 16, 1))
OF_GROUPS = ((L2B, 4, 2), *LEVELS[1:])


def arranged(
    shape: Sequence[int],
    lane: int | None,
    order: Sequence[int],
    inner: Sequence[int],
    pad: int = 1,
    levels: Sequence[tuple[str, int, int]] = LEVELS,
) -> Scheme:
    """Axes take levels in `order`; what is left of them lies in LM, that of `inner` least significant and its size a
    multiple of `pad`."""
    free = [extent for _, extent, _ in levels]
    step = [stride for _, _, stride in levels]
    axes: list[tuple[Digit, ...]] = [() for _ in shape]
    sizes = {a: -(-n // BLOCK) if a == lane else n for a, n in enumerate(shape)}
    outer = [a for a in order if a not in inner]
    ranks = {a: len(shape) - i for i, a in enumerate([*outer, *(a for a in order if a in inner)])}
    for a in order:
        rest, digits = sizes[a], []
        for i, (level, _, _) in enumerate(levels):
            if free[i] < 2 or rest < 2:
                continue
            take = -(-rest // -(-rest // free[i]))
            if take < min(_LEAST[level], free[i]):
                continue
            digits.append(Digit(take, level, step[i]))
            step[i] *= take
            free[i] //= take
            rest = -(-rest // take)
        if rest > 1:
            digits.append(Digit(rest, LOCAL, ranks[a]))
        axes[a] = tuple(digits)
    if pad > 1 and inner:
        have = prod(d.n for a in inner for d in axes[a] if d.level == LOCAL)
        if have % pad:
            local = [(a, i) for a in inner for i, d in enumerate(axes[a]) if d.level == LOCAL]
            if local:
                a, i = min(local, key=lambda item: axes[item[0]][item[1]].stride)
                others = have // axes[a][i].n
                n = axes[a][i].n
                while n * others % pad:
                    n += 1
                axes[a] = (*axes[a][:i], replace(axes[a][i], n=n), *axes[a][i + 1 :])
            else:
                a = inner[-1]
                axes[a] = (*axes[a], Digit(pad, LOCAL, ranks[a]))
    return Scheme(tuple(axes), lane)


def part_of(scheme: Scheme, axes: Sequence[int], own: Sequence[int]) -> Scheme:
    """The scheme of an operand whose axis i is axis axes[i] of a tensor in `scheme`; where it is -1 the operand has an axis
    of own[i] places in LM, least significant. Over the levels of other axes there are copies."""
    new = [(Digit(n, LOCAL, -1 - i),) if a < 0 and n > 1 else () for i, (a, n) in enumerate(zip(axes, own))]
    digits = [scheme.axes[a] if a >= 0 else new[i] for i, a in enumerate(axes)]
    lane = list(axes).index(scheme.lane) if scheme.lane is not None and scheme.lane in axes else None
    copies = [*scheme.copies]
    for a, axis in enumerate(scheme.axes):
        if a not in axes:
            copies += [d for d in axis if d.level != LOCAL and d.n > 1]
    return Scheme(tuple(digits), lane, tuple(copies))


def choose_columns(form: Form) -> int | None:
    """The column axis for the lanes: one that shares its indices rather than one that does not."""
    for candidates in ([a for a in form.columns if a not in form.shared], form.shared):
        wide = [a for a in candidates if form.shape[a] >= WIDE]
        if wide:
            return wide[-1] if form.shape[wide[-1]] >= BLOCK // 2 else max(wide, key=lambda a: (form.shape[a], a))
    return None


def _local(scheme: Scheme, axes: Sequence[int]) -> int:
    return prod(d.n for a in axes for d in scheme.axes[a] if d.level == LOCAL)


def place_rows(planner: Planner, form: Form, dtype: str) -> tuple[Scheme, Scheme]:
    """Schemes of the result (or the updates) and of the data where all rows of a column lie in one PE."""
    lane = choose_columns(form)
    owns = [form.rows if a < 0 else 0 for a in form.data_axes]
    natural = spread(form.shape, lane)
    data = part_of(natural, form.data_axes, owns)
    if data.units * data.unit_lw(dtype) <= ROOM:
        return natural, data
    order = [a for a in form.columns if a != lane] + ([lane] if lane is not None else []) + form.free
    shape = planner.shape(form.data)
    ways = []
    for levels in (LEVELS, OF_GROUPS):
        found = arranged(form.shape, lane, order, form.free, levels=levels)
        grain = max(1, Image(found.layout(dtype), dtype, form.shape).granule // found.unit_lw(dtype))
        if grain > 1 and _local(found, form.columns) > 1:
            found = arranged(form.shape, lane, order, form.free, grain, levels)
        ways.append((found, part_of(found, form.data_axes, owns)))
    return min(ways, key=lambda way: Image(way[1].layout(dtype), dtype, shape).group_size)


def on_lanes(planner: Planner, name: str, axis: int) -> Scheme | None:
    """The scheme in which a value lies, if that axis is on the lanes and inside each MAB, least significant."""
    scheme = planner.scheme_of(name)
    if scheme is None or scheme.copies or scheme.lane != axis:
        return None
    rows = scheme.axes[axis]
    if any(d.level != LOCAL and d.n > 1 for d in rows):
        return None
    local = [a for a, _ in scheme.local]
    mine = sum(a == axis for a in local)
    if mine and any(a != axis for a in local[len(local) - mine :]):
        return None
    ranks = [d.stride for d in rows if d.n > 1]
    return scheme if ranks == sorted(ranks, reverse=True) else None


def beside_lanes(planner: Planner, form: Form, scheme: Scheme, dtype: str) -> Scheme:
    """The scheme of a result without lanes beside data in `scheme` that have their rows on the lanes."""
    axes: list[tuple[Digit, ...]] = [() for _ in form.shape]
    low = min((d.stride for a, d in scheme.local if a != form.row_axis), default=0)
    for i, a in enumerate(form.data_axes):
        if a >= 0:
            axes[a] = scheme.axes[i]
    for position, a in enumerate(form.free):
        if form.shape[a] > 1:
            axes[a] = (Digit(form.shape[a], LOCAL, low - 1 - position),)
    found = Scheme(tuple(axes), None, scheme.copies)
    grain = Image(found.layout(dtype), dtype, form.shape).granule
    inner = _local(found, form.free)
    if grain > 1 and inner % grain and _local(found, form.columns) > 1 and form.free:
        a = form.free[-1]
        n = axes[a][0].n if axes[a] else 1
        others = inner // n
        while n * others % grain:
            n += 1
        axes[a] = (Digit(n, LOCAL, low - 1 - (len(form.free) - 1)),)
        found = Scheme(tuple(axes), None, scheme.copies)
    return found


# ---- rules --------------------------------------------------------------------------------------------------------


def gather(planner: Planner, node: Node) -> None:
    """Gather, GatherElements, GatherND."""
    data, index = node.inputs
    if node.op == "Gather":
        form = _along_axis(planner, node, data, index)
    elif node.op == "GatherElements":
        axis = int(attributes(node)["axis"]) % len(planner.shape(data))
        form = _by_element(planner, node, cut(planner, node, data, planner.shape(index), axis), index)
    else:
        form = _at_places(planner, node, data, index, int(attributes(node)["batch_dims"]))
    dtype = planner.device_dtype(form.data)
    plan = min(_plans(planner, form, dtype), key=lambda plan: _steps(planner, form, dtype, plan))
    if fetched(planner, node, form, dtype, _steps(planner, form, dtype, plan)):
        return
    operands = _operands(planner, node, form, plan.out, plan.rows)
    put = replace(node, attrs={**node.attrs, **form.attrs()})
    planner.put(put, "gather", operands, [plan.out], dtypes=[dtype], kernel=plan.kernel)


@dataclass(frozen=True)
class Reading:
    """A way to read: the emitter's kernel, and the schemes of the data and of the result."""

    kernel: str
    rows: Scheme
    out: Scheme


def _plans(planner: Planner, form: Form, dtype: str) -> Iterator[Reading]:
    """The ways to read rows."""
    out, rows = place_rows(planner, form, dtype)
    yield Reading("elements" if out.lane is not None and out.lane in form.index_axes else "rows", rows, out)
    if len(form.components) == 1:
        beside = on_lanes(planner, form.data, form.row_axis) or local_rows(planner.shape(form.data), form.row_axis)
        yield Reading("lanes", beside, beside_lanes(planner, form, beside, dtype))


#: kernel -> steps for a long word of the result, or for a quad (`gather`)
EACH = {"rows": 1.0, "elements": 3.0, "lanes": 7.0}


def _steps(planner: Planner, form: Form, dtype: str, plan: Reading) -> float:
    """About how long a way takes: the data on their way from DRAM, before that into their scheme (which takes the longer if
    other elements come to the lanes), and the reading."""
    read = Image(plan.rows.layout(dtype), dtype, planner.shape(form.data)).group_size / DRAM_LW
    loads = -(-_local(plan.rows, [form.row_axis]) * plan.rows.unit_lw(dtype) // ROOM)
    current = planner.placed(form.data)
    switch = 0.0
    if current is not None and current.origin != "constant" and current.scheme != plan.rows:
        same_lane = current.scheme is not None and current.scheme.lane == plan.rows.lane
        by_word = plan.rows.addresses(dtype) * (0.5 if same_lane else 2.0)
        switch = read + max(read + current.image.group_size / DRAM_LW, by_word)
    return switch + read + loads * EACH[plan.kernel] * plan.out.units


def _operands(planner: Planner, node: Node, form: Form, out: Scheme, rows: Scheme) -> list[str]:
    return [
        planner.want(form.data, rows, reason=f"rows of {node.op}"),
        planner.want(form.index, _of_index(form, out), reason=f"indices of {node.op}"),
    ]


def scatter(planner: Planner, node: Node) -> None:
    """ScatterElements, ScatterND. Halves are added and compared as singles; so are they where each has its own index."""
    from mlsdk.pipeline.layout.moving import anywhere, moved
    from mlsdk.pipeline.layout.rules import cast_to

    data, index, updates = node.inputs
    out, shape = node.outputs[0], planner.shape(data)
    axis = int(attributes(node)["axis"]) % len(shape) if node.op == "ScatterElements" else 0
    box = planner.shape(index)
    if node.op == "ScatterElements" and any(a != axis and box[a] < n for a, n in enumerate(shape)):
        part = cut(planner, node, data, box, axis)
        result = planner.temporary(out, planner.shape(part))
        name = planner.fresh(f"{node.name}.part")
        scatter(planner, replace(node, name=name, inputs=(part, index, updates), outputs=(result,)))
        moved(planner, replace(node, op="Paste", attrs={}), (result, data), {})
        return
    if node.op == "ScatterElements":
        form = _by_element(planner, node, data, index)
    else:
        form = _at_places(planner, node, data, index, 0)
    rows = planner.shape(form.data)
    reduction = str(attributes(node)["reduction"])
    scheme, mine = _rows_for_writes(planner, form, rows, planner.device_dtype(data))
    kind = "elements" if scheme.lane is not None and mine.lane in form.index_axes else "rows"
    dtype = planner.device_dtype(data)
    placed = {"data": form.data, "updates": updates}
    for key, name in placed.items():
        have = planner.device_dtype(name)
        want = "single" if dtype == "half" and (reduction != "none" or kind == "elements") else dtype
        if have != want:
            placed[key] = cast_to(planner, anywhere(planner, name), want)
    dtype = planner.device_dtype(placed["data"])
    scheme, mine = _rows_for_writes(planner, form, rows, dtype)
    operands = [
        planner.want(placed["data"], scheme, reason=f"rows of {node.op}"),
        planner.want(form.index, _of_index(form, mine), reason=f"indices of {node.op}"),
        planner.want(placed["updates"], mine, reason=f"updates of {node.op}"),
    ]
    attrs = {**node.attrs, **form.attrs(), "reduction": reduction, "logical": planner.value(data).dtype}
    final = planner.device_dtype(data)
    steps = [out]
    if rows != shape:
        steps.insert(0, planner.temporary(out, rows))
    if dtype != final:
        steps.insert(0, planner.temporary(out, rows))
    planner.put(
        replace(node, outputs=(steps[0],), attrs=attrs), "scatter", operands, [scheme], dtypes=[dtype], kernel=kind
    )
    if dtype != final:
        _cast_back(planner, node, steps[0], steps[1], final)
    if rows != shape:
        _reshaped(planner, node, steps[-2], out)


def _cast_back(planner: Planner, node: Node, name: str, result: str, dtype: str) -> None:
    from mlsdk.pipeline.layout.rules import _cast

    _cast(planner, Node(planner.fresh(f"{node.name}.cast"), "Cast", (name,), (result,)), name, dtype, "")


def _reshaped(planner: Planner, node: Node, name: str, result: str) -> None:
    from mlsdk.pipeline.layout.moving import reshape

    reshape(planner, Node(planner.fresh(f"{node.name}.shape"), "Reshape", (name,), (result,)))


def _rows_for_writes(planner: Planner, form: Form, shape: tuple[int, ...], dtype: str) -> tuple[Scheme, Scheme]:
    """Schemes of the data and of the updates: columns take the levels first, rows what is left of them; all updates of a
    column go to each PE that has rows of it."""
    lane = choose_columns(form)
    own = form.data_axes.index(lane) if lane is not None else None
    columns = [i for i, a in enumerate(form.data_axes) if a >= 0 and i != own] + ([own] if own is not None else [])
    order = [*columns, form.row_axis]
    found = arranged(shape, own, order, [form.row_axis])
    grain = max(1, Image(found.layout(dtype), dtype, shape).granule // found.unit_lw(dtype))
    if grain > 1 and _local(found, columns) > 1:
        found = arranged(shape, own, order, [form.row_axis], grain)
    axes: list[tuple[Digit, ...]] = [() for _ in form.shape]
    low = min((d.stride for _, d in found.local), default=0)
    for i, a in enumerate(form.data_axes):
        if a >= 0:
            axes[a] = found.axes[i]
    for position, a in enumerate(form.free):
        if form.shape[a] > 1:
            axes[a] = (Digit(form.shape[a], LOCAL, low - 1 - position),)
    copies = [d for d in found.axes[form.row_axis] if d.level != LOCAL and d.n > 1]
    return found, Scheme(tuple(axes), lane, tuple(copies))


def _of_index(form: Form, scheme: Scheme) -> Scheme:
    return part_of(scheme, form.index_axes, [len(form.components) if a < 0 else 0 for a in form.index_axes])


def one_hot(planner: Planner, node: Node) -> None:
    """The indices, along a new axis, compared with 0, 1, .. up to the depth."""
    from mlsdk.pipeline.layout.moving import anywhere
    from mlsdk.pipeline.layout.rules import cast_to

    index, depth, values = node.inputs
    out, shape = node.outputs[0], planner.shape(node.outputs[0])
    axis = int(attributes(node)["axis"]) % len(shape)
    count, both = planner.data(depth), planner.data(values)
    assert count is not None
    if both is None:
        _chosen(planner, node, values, axis)
        return
    if planner.device_dtype(index) != "int":
        index = cast_to(planner, anywhere(planner, index), "int")
    beside = tuple(1 if a == axis else n for a, n in enumerate(shape))
    index = viewed(planner, index, beside)
    numbers = planner.temporary(out, tuple(n if a == axis else 1 for a, n in enumerate(shape)), "int32")
    planner.literals[numbers] = np.arange(shape[axis], dtype=np.int32).reshape(planner.shape(numbers))
    scheme = planner.default(out)
    operands = [
        planner.want(name, scheme.restrict(planner.shape(name), shape), reason="operand of OneHot")
        for name in (index, numbers)
    ]
    attrs: dict[str, Attr] = {"depth": int(count.reshape(())), "values": both, "axis": axis}
    planner.put(replace(node, attrs=attrs), "onehot", operands, [scheme])


def _chosen(planner: Planner, node: Node, values: str, axis: int) -> None:
    """Values that are computed at run time: Where(one-hot, on, off)."""
    from mlsdk.errors import LayoutError
    from mlsdk.pipeline.layout.moving import RULES
    from mlsdk.pipeline.layout.rules import rule_of

    out = node.outputs[0]
    parts = []
    for number in (1, 0):
        part = planner.temporary(values, (1,))
        attrs = {f"input{i}": np.array([v]) for i, v in enumerate((number, number + 1, 0), 1)}
        RULES["Slice"](planner, Node(planner.fresh(f"{node.name}.value"), "Slice", (values,), (part,), attrs))
        parts.append(part)
    mask = planner.temporary(out, planner.shape(out), "bool")
    both = planner.temporary(values, (2,), "bool")
    planner.literals[both] = np.array([False, True])
    one_hot(
        planner,
        replace(node, name=planner.fresh(f"{node.name}.mask"), inputs=(*node.inputs[:2], both), outputs=(mask,)),
    )
    where = replace(node, op="Where", inputs=(mask, *parts), attrs={})
    rule = rule_of(where, planner)
    if rule is None:
        raise LayoutError(f"{node.name}: the values of OneHot are computed at run time; make them constant")
    rule(planner, where)
