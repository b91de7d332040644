"""The planner's rule for reading few rows of a large tensor: they are fetched from DRAM by their addresses.

Each row is a whole piece of the DRAM of the groups that share the columns of a lane axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from mlsdk.device import spec
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, L1B, L2B, MAB, PE, Layout, Sub, W
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL, QUAD_LW, Digit, Scheme
from mlsdk.pipeline.layout.index_form import Form, viewed
from mlsdk.pipeline.ops.emitters.fetch import ENTRIES_OF_ONE, MOST, ROWS, WRITTEN

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

READS = {"Gather", "GatherND"}
#: LW from a group's DRAM in a step
DRAM_LW = spec.DRAM_LW_PER_CYCLE * spec.CYCLES_PER_STEP
#: (level, places that the columns take, stride); of the L2Bs one of each group
LEVELS = ((L2B, (4, 2), 2), (MAB, tuple(range(16, 7, -1)), 1))
#: steps of a fetch beside its rows, and for each block of entries
BEGIN, OF_BLOCK = 160, 40
#: steps of a read by way of LM for each that is estimated, at least
MORE = 1.5


@dataclass(frozen=True)
class Rows:
    """Schemes of the data and of the result, and the LW of each group's DRAM that a row takes."""

    data: Scheme
    out: Scheme
    row_lw: int

    @property
    def shared_out(self) -> bool:
        """Among the MABs, so that whoever computes with the whole tensor does not wait for a few of them."""
        return any(d.level == MAB for axis in self.data.axes for d in axis)


def rows_of(form: Form, dtype: str) -> Rows | None:
    """Rows most significant, the columns with lanes and over the groups; over MABs too if that takes up to twice the DRAM."""
    wide = [a for a in form.columns if form.shape[a] >= BLOCK // 2]
    if not wide or form.shared or len(form.components) != 1 or 0 in form.shape:
        return None
    ways = [_rows(form, dtype, wide[-1], levels) for levels in (LEVELS[:1], LEVELS)]
    least = min(way.row_lw for way in ways)
    return [way for way in ways if way.row_lw <= 2 * least][-1]


def _rows(form: Form, dtype: str, lane: int, levels: Sequence[tuple[str, tuple[int, ...], int]]) -> Rows:
    rest, spatial = -(-form.shape[lane] // BLOCK), []
    for level, sizes, stride in levels:
        take = next((n for n in sizes if rest >= n), 1)
        take = -(-rest // -(-rest // take))
        spatial += [Digit(take, level, stride)] if take > 1 else []
        rest = -(-rest // take)
    axes: list[tuple[Digit, ...]] = [()] * len(form.shape)
    for rank, a in enumerate([lane, *reversed([*form.free, *(c for c in form.columns if c != lane)])]):
        axes[a] = (Digit(rest if a == lane else form.shape[a], LOCAL, rank),)
    out = Scheme(tuple((*spatial, *digits) if a == lane else digits for a, digits in enumerate(axes)), lane)
    granule = Image(out.layout(dtype), dtype, form.shape).granule
    others = prod(form.shape[a] for a in form.columns if a != lane)
    while rest * others * QUAD_LW[dtype] % granule:
        rest += 1
    axes[lane] = (*spatial, Digit(rest, LOCAL, 0))
    out = Scheme(tuple(axes), lane)
    mine = ((Digit(form.rows, LOCAL, len(form.shape)),) if a < 0 else axes[a] for a in form.data_axes)
    row = rest * others * QUAD_LW[dtype] * Image(out.layout(dtype), dtype, form.shape).lw_per_address
    return Rows(Scheme(tuple(mine), form.data_axes.index(lane)), out, row)


def in_order(shape: Sequence[int]) -> Layout | None:
    """Of indices, one behind the other: eight in four long words, in all MABs. None where eight would be of several rows."""
    last = max((a for a, n in enumerate(shape) if n > 1), default=0)
    lots, stride = -(-shape[last] // 8) if shape else 1, 1
    axes: list[tuple[Sub, ...]] = [()] * len(shape)
    if shape:
        axes[last] = (Sub(lots, ADDR), Sub(4, PE), Sub(2, W))
    for a in reversed(range(last)):
        stride *= lots if a == last - 1 else shape[a + 1]
        axes[a] = (Sub(shape[a], ADDR, stride),) if shape[a] > 1 else ()
    if shape and shape[last] % 8 and prod(shape[:last]) > 1:
        return None
    places = () if shape else (Sub(0, PE), Sub(0, W))
    return Layout(tuple(axes), (Sub(0, L2B), Sub(0, L1B), Sub(0, MAB), *places))


def _lies_so(planner: Planner, name: str, seen: str, rows: Rows) -> bool:
    """Whether a tensor lies in its scheme or can: a constant has a copy of its own, a tensor of the Context lies so for all that
    read it, in other functions too."""
    current = planner.placed(seen)
    if planner.is_constant(name) or (current is not None and current.scheme == rows.data):
        return True
    if current is not None or name not in planner.graph.inputs or not rows.shared_out:
        return False
    return all(reader.op in READS for reader in planner.readers[name])


def fetched(planner: Planner, node: Node, form: Form, dtype: str, most: float) -> bool:
    """Whether the rows are fetched, since otherwise they take about `most` steps."""
    rows, count = rows_of(form, dtype), prod(planner.shape(form.index))
    if rows is None or count > MOST or rows.row_lw > spec.L2BM_LW - ROWS:
        return False
    each = 1 / WRITTEN + 2 * rows.row_lw / DRAM_LW
    steps = BEGIN + -(-count // ENTRIES_OF_ONE) * OF_BLOCK + count * each
    if steps >= MORE * most + BEGIN or not _lies_so(planner, node.inputs[0], form.data, rows):
        return False
    index, layout = form.index, in_order(planner.shape(form.index))
    if layout is None:
        index, layout = viewed(planner, form.index, (count,)), in_order((count,))
    assert layout is not None
    operands = [
        planner.want(form.data, rows.data, reason=f"rows of {node.op}"),
        planner.want_layout(index, layout, reason=f"indices of {node.op}"),
    ]
    attrs = {"rows": form.rows, "row_lw": rows.row_lw}
    planner.put(replace(node, attrs=attrs), "fetch", operands, [rows.out], dtypes=[dtype])
    return True
