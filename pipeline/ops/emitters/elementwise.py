"""Elementwise operators: every operand in the scheme of the result (restricted where it is broadcast), tile by tile."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.scheme import Scheme
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.kernels import KERNELS, Kernel, kernels_of
from mlsdk.pipeline.ops.emitters.stream import Feed, lc_needed, stream
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, room

SPACE = {"m": m.LM0, "n": m.LM1, "r": m.GRF0, "s": m.GRF1}
SCRATCH = 448  # first word of the temporaries in GRF0 and GRF1
CONSTANTS = 384  # first word of the constants in GRF1
LM_CONSTANTS = 4032  # first word of the constants in LM0
_TEMPORARY = re.compile(r"\{([rs])(\d+)\}")
TILE_LIMIT = 128  # LM addresses of a tile: two operands and a result must fit GRF
L2BM_BUDGET = 32768


def unit_map(out: Scheme, operand: Scheme) -> np.ndarray:
    """For each unit of a tensor in scheme `out`, the unit of an operand in the restricted scheme `operand`."""
    skip = out.rank - operand.rank
    mine, theirs = out.unit_strides(), operand.unit_strides()
    unit = np.arange(out.units)
    total = np.zeros(out.units, np.int64)
    for axis, digit in out.local:
        stride = theirs.get((axis - skip, digit.stride), 0) if axis >= skip else 0
        total += unit // mine[axis, digit.stride] % digit.n * stride
    return total


def compute_dtype(dtypes: Sequence[str]) -> str:
    if "double" in dtypes:
        return "double"
    if all(d == "int" for d in dtypes):
        return "int"
    return "single"


class Access:
    """How the items of a tile are reached in one tensor: `words(items)` are the word addresses, relative to the tensor's
    first LM address, of each (unit, part) item."""

    def __init__(self, tensor: Tensor, compute: str, parts: int):
        self.dtype, self.parts = tensor.dtype, parts
        assert tensor.scheme is not None
        self.lane = tensor.scheme.lane is not None
        self.unit_words = 2 * tensor.scheme.unit_lw(tensor.dtype)
        self.width = 1 if tensor.dtype == "half" or (compute == "double" and tensor.dtype != "double") else 2

    def words(self, unit: np.ndarray, part: np.ndarray) -> np.ndarray:
        step = self.width if self.lane or (self.dtype == "half" and self.parts > 1) else 0
        return unit * self.unit_words + part * step


def parts_of(out: Tensor, compute: str) -> int:
    """Items per unit: an item is what one access of the compute dtype covers (LW; W of a narrower dtype)."""
    assert out.scheme is not None
    if out.scheme.lane is not None:
        return 4 if compute == "double" else 2
    return 2 if out.dtype == "half" else 1


def emit_elementwise(call: Call) -> Asm:
    out = call.outputs[0]
    inputs = [t for t in call.inputs if t is not None]
    compute = compute_dtype([t.dtype for t in (*inputs, out)])
    name = call.kernel or call.node.op
    kernel = KERNELS.get((name, compute))
    if kernel is None:
        raise EmitError(
            f"{call.node.name}: {name} has no kernel in {compute}; it has in {', '.join(kernels_of(name)) or 'none'}"
        )
    return emit_kernel(call, kernel, inputs, out, compute)


def emit_kernel(call: Call, kernel: Kernel, inputs: Sequence[Tensor], out: Tensor, compute: str) -> Asm:
    asm = Asm()
    assert out.scheme is not None
    parts = parts_of(out, compute)
    maps = [unit_map(out.scheme, t.scheme) for t in inputs]  # type: ignore[arg-type]
    unit_lw = out.scheme.unit_lw(out.dtype)

    tiles = _tiles(out, inputs, maps)
    feeds: list[Feed] = []
    for index, (tensor, units, place) in enumerate(zip(inputs, maps, kernel.places)):
        lw = tensor.scheme.unit_lw(tensor.dtype)  # type: ignore[union-attr]
        ranges = tuple(Range.of(tensor, int(units[a:b].min()) * lw, (int(units[a:b].max()) + 1) * lw) for a, b in tiles)
        word = sum(_words(f) for f, p in zip(feeds, kernel.places) if p == place)
        feeds.append(Feed(tensor, ranges, SPACE[place], word))
        assert index < 3
    drain = Feed(out, tuple(Range.of(out, a * unit_lw, b * unit_lw) for a, b in tiles), SPACE[kernel.places[-1]], 0)
    same = [f for f in feeds if f.space == drain.space]
    if same:
        drain = Feed(out, drain.ranges, drain.space, sum(_words(f) for f in same))

    constants = load_constants(asm, kernel)
    accesses = [Access(t, compute, parts) for t in inputs]
    out_access = Access(out, compute, parts)

    def body(t: int) -> None:
        first, last = tiles[t]
        count = (last - first) * parts
        for at in range(0, count, 4):
            item = np.arange(at, min(at + 4, count))
            unit, part = first + item // parts, item % parts
            operands = []
            for feed, access, units in zip(feeds, accesses, maps):
                base = feed.word - 2 * feed.ranges[t].lo
                words = access.words(units[unit], part) + base
                operands.append((feed.space, words.tolist(), access))
            words = out_access.words(unit, part) + drain.word - 2 * drain.ranges[t].lo
            apply(asm, kernel, operands, (drain.space, words.tolist(), out_access), constants)

    stream(asm, feeds, [drain], body)
    return asm


def _words(feed: Feed) -> int:
    """Words that a feed takes in its memory."""
    return 2 * room(max(r.addresses for r in feed.ranges))


def load_constants(asm: Asm, kernel: Kernel) -> dict[str, str]:
    """Put the kernel's constants into GRF1 and LM0 and give the operand of each by its placeholder."""
    places = {}
    for index, (name, value) in enumerate(kernel.constants.items()):
        word = CONSTANTS + 2 * index
        high, low = value >> 32, value & 0xFFFFFFFF
        if high == low:
            asm.pe(f'imm ui"{high}" $ls{word}')
        else:
            asm.pe(f'imm ui"{high}" $s{word}')
            asm.pe(f'imm ui"{low}" $s{word + 1}')
        places["c:" + name] = f"$ls{word}"
        if any("{k:" + name + "}" in line for line in kernel.lines):
            asm.pe(f"lpassa $ls{word} $lm{LM_CONSTANTS + 2 * index}")
            places["k:" + name] = f"$lm{LM_CONSTANTS + 2 * index}"
    return places


def apply(asm: Asm, kernel: Kernel, operands, result, constants: dict[str, str]) -> None:
    """The kernel's lines for one group of items."""
    space, words, access = result
    narrow_out = access.width == 1
    out = vec(space, words, access.width)
    names = {}
    if kernel.raw:
        for i, (sp, ws, a) in enumerate(operands):
            names[str(i)] = vec(sp, ws, a.width)
        for line in kernel.lines:
            asm.pe(_fill(line, names, out, "r" if access.dtype == "half" else "", constants))
        return
    if kernel.alu:
        narrow = [i for i, (_, _, a) in enumerate(operands) if a.width == 1]
        for i, (sp, ws, a) in enumerate(operands):
            names[str(i)] = vec(sp, ws, a.width)
        for i in narrow[:-1]:
            asm.pe(f"fvpassa {names[str(i)]}e $lr{SCRATCH}v")
            names[str(i)] = f"$lr{SCRATCH}v"
        for i in narrow[-1:]:
            asm.pe(f"fvpassa {names[str(i)]}e $nowrite")
            names[str(i)] = "$mauf"
        lines = list(kernel.lines)
        for i, line in enumerate(lines):
            last = i == len(lines) - 1
            asm.pe(_fill(line, names, "$nowrite" if last and narrow_out else out, "", constants))
        if narrow_out:
            asm.pe(f"fvpassar $aluf {out}")
        return
    for i, (sp, ws, a) in enumerate(operands):
        names[str(i)] = vec(sp, ws, a.width, "e" if a.width == 1 else "")
    for line in kernel.lines:
        asm.pe(_fill(line, names, out, "r" if narrow_out else "", constants))


def _fill(line: str, names: dict[str, str], out: str, r: str, constants: dict[str, str]) -> str:
    for key, value in names.items():
        line = line.replace("{" + key + "}", value)
    for key, value in constants.items():
        line = line.replace("{" + key + "}", value)
    line = _TEMPORARY.sub(lambda t: f"$l{t[1]}{SCRATCH + int(t[2])}v", line)
    return line.replace("{out}", out).replace("{r}", r)


def _tiles(out: Tensor, inputs: Sequence[Tensor], maps: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    """Unit ranges of the tiles: as large as L2BM, L1BM and GRF allow, on granules of the result."""
    assert out.scheme is not None
    units, unit_lw = out.scheme.units, out.scheme.unit_lw(out.dtype)
    grain = max(1, out.image.granule // unit_lw)
    size = max(grain, TILE_LIMIT // max(t.scheme.unit_lw(t.dtype) for t in (out, *inputs)) // grain * grain)  # type: ignore[union-attr]
    while True:
        tiles = [(a, min(a + size, units)) for a in range(0, units, size)]
        if _fits(tiles, out, inputs, maps) or size <= grain:
            return tiles
        size = max(grain, size // 2 // grain * grain)


def _fits(tiles, out: Tensor, inputs: Sequence[Tensor], maps: Sequence[np.ndarray]) -> bool:
    def feed(tensor: Tensor, units: np.ndarray) -> Feed:
        lw = tensor.scheme.unit_lw(tensor.dtype)  # type: ignore[union-attr]
        ranges = tuple(Range.of(tensor, int(units[a:b].min()) * lw, (int(units[a:b].max()) + 1) * lw) for a, b in tiles)
        return Feed(tensor, ranges, "", 0)

    feeds = [feed(t, u) for t, u in zip(inputs, maps)]
    drains = [feed(out, np.arange(out.scheme.units))]  # type: ignore[union-attr]
    every = [*feeds, *drains]
    return (
        lc_needed(feeds, drains) <= L2BM_BUDGET
        and sum(-(-f.lb_size // 64) * 64 for f in every) <= 8192
        and all(r.addresses <= TILE_LIMIT for f in every for r in f.ranges)
    )
