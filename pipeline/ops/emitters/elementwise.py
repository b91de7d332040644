"""Elementwise operators: every operand in the scheme of the result (restricted where it is broadcast), tile by tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL, Scheme
from mlsdk.pipeline.ops.emitters import turns
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.constants import load_constants
from mlsdk.pipeline.ops.emitters.formula import DOUBLE, HALF, INT, SINGLE, Constant, Formula
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.fused import FUSED, Fused
from mlsdk.pipeline.ops.emitters.kernels import KERNELS, Kernel, WriteFormula, attrs_of, kernels_of
from mlsdk.pipeline.ops.emitters.lanes import clear_tail
from mlsdk.pipeline.ops.emitters.seen import Turns, shared_out, unit_map
from mlsdk.pipeline.ops.emitters.stream import Feed, lc_needed, stream
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, room
from mlsdk.pipeline.ops.emitters.weave import most_groups, order, weave
from mlsdk.pipeline.ops.emitters.woven import Line, Room, Token, Woven

SPACE = {"m": m.LM0, "n": m.LM1, "r": m.GRF0, "s": m.GRF1}
CONSTANTS = {"m": 3968, "n": 3968, "r": 256, "s": 256}  # first word of the constants in each memory
CONSTANTS_LIMIT = 64  # long words
SLOTS = 384  # first word of the temporaries in GRF0 and GRF1, 8 words each
TILE_LIMIT = 128  # LM addresses of a tile: an operand and the constants must fit GRF
L2BM_BUDGET = 32768 - 1024
TABLE = L2BM_BUDGET  # where a table of constants comes to L2BM
_FREE = {"r": 16, "s": 16}
#: by number of inputs, the memories that they are read from, one each
INPUTS = {1: "m", 2: "mn", 3: "mns"}
_LETTER = {m.LM0: "m", m.LM1: "n"}


def room_of(homes: Sequence[str], left: str = "") -> Room:
    """Where the operands and the constants lie, for inputs that live in these memories and a result that is left in `left` ("":
    in DRAM). What lives in LM is read where it lives, if no other input is read there. One input leaves the result in the other
    LM, more leave it in GRF0."""
    if len(homes) == 1:
        read = homes[0] or ("n" if left == "m" else "m")
        return Room((read,), "n" if read == "m" else "m", ("r", "s", read), _FREE)
    chosen: dict[int, str] = {}
    for i, letter in enumerate(homes):
        if letter and letter not in chosen.values():
            chosen[i] = letter
    others = iter([letter for letter in INPUTS[len(homes)] if letter not in chosen.values()])
    places = [chosen.get(i) or next(others) for i in range(len(homes))]
    return Room(tuple(places), "r", ("s", "r", "m", "n"), _FREE)


def compute_dtype(dtypes: Sequence[str]) -> str:
    if DOUBLE in dtypes:
        return DOUBLE
    if all(d == INT for d in dtypes):
        return INT
    return SINGLE


class Access:
    """How the items of a tile are reached in one tensor: `words(items)` are the word addresses, relative to the tensor's
    first LM address, of each (unit, part) item."""

    def __init__(self, tensor: Tensor, compute: str, is_result: bool = False):
        self.dtype = tensor.dtype
        assert tensor.scheme is not None
        self.unit_words = 2 * tensor.scheme.unit_lw(tensor.dtype)
        narrow = (tensor.dtype == HALF and compute != HALF) or (compute == DOUBLE and tensor.dtype != DOUBLE)
        self.width = 1 if narrow else 2
        # without lanes all words of a long word are copies: a result must fill them, an operand may be any of them
        self.step = self.width if tensor.scheme.lane is not None or (is_result and narrow) else 0

    def words(self, unit: np.ndarray, part: np.ndarray) -> np.ndarray:
        return unit * self.unit_words + part * self.step


def parts_of(out: Tensor, compute: str) -> int:
    """Items per unit: an item is what one access of the compute dtype covers (LW; W of a narrower dtype)."""
    assert out.scheme is not None
    if out.scheme.lane is not None:
        return {DOUBLE: 4, HALF: 1}.get(compute, 2)
    return 2 // Access(out, compute).width


# ---- programs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """What is computed: a formula, the dtypes of its inputs and its result, and a mask for results of fewer bits."""

    formula: WriteFormula
    compute: str
    inputs: tuple[str, ...]
    out: str
    attrs: tuple[tuple[str, Any], ...] = ()
    mask: int = 0


class Program:
    """A task woven for several numbers of groups. Raises EmitError where it needs more than there is."""

    def __init__(self, task: Task, room: Room):
        narrow = [is_narrow(dtype, task.compute) for dtype in task.inputs]
        pen = Formula(task.compute, HALF if task.out == HALF else task.compute, narrow)
        values = [pen.input(i) for i in range(len(task.inputs))]
        result = task.formula(pen, *values, **dict(task.attrs))
        if task.mask:
            result = pen.iand(result, task.mask << 32 if task.compute == DOUBLE else task.mask)
        self.result = pen.finish(result, is_narrow(task.out, task.compute))
        constants = {v.word for op in order(self.result) for v in op.sources if isinstance(v, Constant)}
        if len(constants) > CONSTANTS_LIMIT:
            raise EmitError(f"the kernel has {len(constants)} constants; {CONSTANTS_LIMIT} have a place")
        self.room = room
        self.woven: dict[int, Woven] = {}
        self.most = most_groups(self.weave(1))

    def weave(self, groups: int) -> Woven:
        if groups not in self.woven:
            self.woven[groups] = weave(self.result, self.room, groups)
        return self.woven[groups]

    def cut(self, groups: int) -> list[Woven]:
        """So many groups as a row of programs."""
        row: list[Woven] = []
        size = self.most
        while groups:
            while size > groups:
                size //= 2
            row.append(self.weave(size))
            groups -= size
        return row


def is_narrow(dtype: str, compute: str) -> bool:
    """A float that is narrower than what is computed with."""
    return (dtype == HALF and compute == SINGLE) or (dtype == SINGLE and compute == DOUBLE)


@lru_cache(maxsize=512)
def program_of(task: Task, room: Room) -> Program:
    return Program(task, room)


def steps_of_item(node: Node, kernel: str, dtypes: Sequence[str]) -> int:
    """PE steps for four items of a node's kernel, `dtypes` of its operands and its result; 0 where it does not fit."""
    *inputs, out = dtypes
    formula: WriteFormula
    attrs: Mapping[str, Any] = {}
    try:
        if kernel == FUSED:
            formula, compute = Fused(tuple(node.attrs["steps"])), compute_dtype(dtypes)  # type: ignore[arg-type]
        else:
            row, compute = find_kernel(node.name, kernel or node.op, dtypes)
            formula, attrs = row.formula, attrs_of(row, node)
        task = Task(formula, compute, tuple(inputs), out, tuple(sorted(attrs.items())))
        return len(program_of(task, room_of([""] * len(inputs))).weave(1).steps)
    except EmitError:
        return 0


# ---- emission -------------------------------------------------------------------------------------------------


def emit_elementwise(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    inputs = [t for t in call.inputs if t is not None]
    if call.kernel == FUSED:
        steps = Fused(tuple(call.node.attrs["steps"]))  # type: ignore[arg-type]
        dtypes = [t.dtype for t in (*inputs, call.outputs[0])]
        return emit_formula(call, steps, inputs, call.outputs[0], compute_dtype(dtypes))
    name, _, narrow = (call.kernel or call.node.op).partition(":uint8")
    kernel, compute = find_kernel(call.node.name, name + narrow, [t.dtype for t in (*inputs, call.outputs[0])])
    mask = 255 if (call.kernel or call.node.op).endswith(":uint8") else 0
    return emit_formula(call, kernel.formula, inputs, call.outputs[0], compute, attrs_of(kernel, call.node), mask)


def find_kernel(node: str, name: str, dtypes: Sequence[str]) -> tuple[Kernel, str]:
    """The row of a kernel for these dtypes (the result's last), and the dtype that it computes in."""
    compute = compute_dtype(dtypes)
    if all(d == HALF for d in dtypes) and (name, HALF) in KERNELS:
        return KERNELS[name, HALF], HALF
    kernel = KERNELS.get((name, compute))
    if kernel is None:
        exists = ", ".join(kernels_of(name)) or "none"
        raise EmitError(f"{node}: {name} has no kernel in {compute}; it has in {exists}")
    return kernel, DOUBLE if kernel.wide else compute


def emit_formula(
    call: Call,
    formula: WriteFormula,
    inputs: Sequence[Tensor],
    out: Tensor,
    compute: str,
    attrs: Mapping[str, Any] | None = None,
    mask: int = 0,
) -> tuple[Asm, dict[str, np.ndarray]]:
    """A formula applied to each element. Gives the program and its constants in DRAM."""
    task = Task(formula, compute, tuple(t.dtype for t in inputs), out.dtype, tuple(sorted((attrs or {}).items())), mask)
    clean = bool(call.node.attrs.get("clean"))  # the lanes beyond the lane axis: each PE needs its own for that
    met: dict[int, Turns] = {}
    if not clean:
        (*inputs, out), met = shared_out([*inputs, out])
    homes = [_LETTER[t.home.space] if t.home is not None else "" for t in (*inputs, out)]
    program = program_of(task, room_of(homes[:-1], homes[-1]))
    asm = Asm()
    assert out.scheme is not None
    parts = parts_of(out, compute)
    maps = [
        np.arange(out.scheme.units) % met[i].units if i in met else unit_map(out.scheme, t.scheme)  # type: ignore[arg-type]
        for i, t in enumerate(inputs)
    ]
    unit_lw = out.scheme.unit_lw(out.dtype)
    flowing = [i for i in range(len(inputs)) if i not in met]
    tiles = _tiles(out, [inputs[i] for i in flowing], [maps[i] for i in flowing])

    feeds: list[Feed] = []
    for i, (tensor, units, place) in enumerate(zip(inputs, maps, program.room.inputs)):
        lw = tensor.scheme.unit_lw(tensor.dtype)  # type: ignore[union-attr]
        if i in met:
            feeds.append(Feed(tensor, (Range(tensor, 0, met[i].units * lw),) * len(tiles), SPACE[place], 0))
            continue
        ranges = tuple(Range.of(tensor, int(units[a:b].min()) * lw, (int(units[a:b].max()) + 1) * lw) for a, b in tiles)
        feeds.append(Feed(tensor, ranges, SPACE[place], 0))
    drain = Feed(out, tuple(Range.of(out, a * unit_lw, b * unit_lw) for a, b in tiles), SPACE[program.room.out], 0)
    for feed in (*feeds, drain):
        if 2 * room(max(r.addresses for r in feed.ranges)) > CONSTANTS["r"]:
            raise EmitError(
                f"{call.node.name}: no tile of {out.image.layout} needs as little of an operand in {feed.tensor.image.layout} as "
                "a register file holds; pad the rows to an even number of lane blocks, or pin the result to another layout"
            )

    rows = {count: program.cut(count) for count in {-(-(b - a) * parts // 4) for a, b in tiles}}
    held: dict[int, set[str]] = {}
    for row in rows.values():
        for woven in row:
            for word, memories in woven.held.items():
                held.setdefault(word, set()).update(memories)
    constants: dict[str, np.ndarray] = {}

    def prepare() -> None:
        places = {word: {SPACE[memory] for memory in memories} for word, memories in held.items()}
        constants.update(load_constants(asm, places, _CONSTANT_WORDS, TABLE))

    place_of = {word: 2 * i for i, word in enumerate(held)}
    ends = in_last_block(out.scheme) if clean else None
    tail = np.flatnonzero(ends) if ends is not None else np.zeros(0, np.int64)
    accesses = [Access(t, compute) for t in inputs]
    result = Access(out, compute, is_result=True)

    def body(t: int) -> None:
        first, last = tiles[t]
        count = (last - first) * parts
        item = np.arange(4 * -(-count // 4))
        item = np.minimum(item, count - 1)  # a group that is not full repeats the last item
        unit, part = first + item // parts, item % parts
        reads = []
        for feed, access, units in zip(feeds, accesses, maps):
            words = access.words(units[unit], part) + feed.base(t) - 2 * feed.ranges[t].lo
            extend = is_narrow(access.dtype, compute)
            reads.append(_texts(feed.space, words, access.width, "e" if extend else ""))
        words = result.words(unit, part) + drain.base(t) - 2 * drain.ranges[t].lo
        writes = _texts(drain.space, words, result.width)
        lay(asm, rows[len(writes)], reads, writes, place_of)
        mine = [2 * unit_lw * int(u) + drain.base(t) - 2 * drain.ranges[t].lo for u in tail if first <= u < last]
        if mine:  # no place of a formula is in use now
            clear_tail(asm, out, drain.space, mine, out.shape[out.scheme.lane] % BLOCK)  # type: ignore[index, union-attr]

    if met:
        constants.update(turns.bring(asm, {i: (each, feeds[i].space, 0) for i, each in met.items()}))
    stream(
        asm,
        [feeds[i] for i in flowing],
        [drain],
        body,
        [_pattern(t, tiles[t], feeds, maps) for t in range(len(tiles))],
        prepare,
    )
    return asm, constants


def lay(
    asm: Asm, row: Sequence[Woven], reads: Sequence[Sequence[str]], writes: Sequence[str], places: Mapping[int, int]
) -> None:
    """The lines of a row of programs. `reads`: for each input, the operands of its groups; `places`: words of the constants,
    from where their memory's begin."""
    at = 0
    for woven in row:
        for step in woven.steps:
            if not step:
                asm.nop(1)
                continue
            asm.pe("; ".join(_text(line, reads, writes, at, places) for line in step))
        at += woven.groups


def in_last_block(scheme: Scheme) -> np.ndarray | None:
    """Of each unit, whether it is in the last block of the lane axis; None where some PEs have that and others do not."""
    digits = [d for d in scheme.axes[scheme.lane] if d.n > 1] if scheme.lane is not None else []
    if scheme.lane is None or len(digits) > 1 or any(d.level != LOCAL for d in digits):
        return None
    unit, strides = np.arange(scheme.units), scheme.unit_strides()
    found = np.ones(scheme.units, bool)
    for d in digits:
        found &= unit // strides[scheme.lane, d.stride] % d.n == d.n - 1
    return found


def _pattern(t: int, tile: tuple[int, int], feeds: Sequence[Feed], maps: Sequence[np.ndarray]) -> tuple[bytes, ...]:
    """Where the operands of a tile lie in their ranges."""
    a, b = tile
    return tuple(
        (units[a:b] * feed.tensor.scheme.unit_lw(feed.tensor.dtype) - feed.ranges[t].lo).tobytes()  # type: ignore[union-attr]
        for feed, units in zip(feeds, maps)
    )


_CONSTANT_WORDS = {SPACE[memory]: word for memory, word in CONSTANTS.items()}


def _texts(space: str, words: np.ndarray, width: int, suffix: str = "") -> list[str]:
    """The operand of each group of four items."""
    return [vec(space, group, width, suffix) for group in words.reshape(-1, 4).tolist()]


def _text(line: Line, reads: Sequence[Sequence[str]], writes: Sequence[str], at: int, places: Mapping[int, int]) -> str:
    def operand(token: Token) -> str:
        sign, mask = "-" if token.negate else "", f"/$imr{token.mask}" if token.mask else ""
        if token.kind == "forward":
            return sign + token.memory
        if token.kind == "nowrite":
            return "$nowrite"
        if token.kind == "t":
            return sign + "$lt" + mask
        if token.kind == "flag":
            return f"$omr{token.index}"
        if token.kind == "slot":
            return f"{sign}$l{token.memory}{SLOTS + 8 * token.index}v{mask}"
        if token.kind == "constant":
            return f"{sign}$l{token.memory}{CONSTANTS[token.memory] + places[token.index]}"
        if token.kind == "input":
            return sign + reads[token.index][at + token.group]
        return writes[at + token.group] + mask

    flush = f"/$imr{line.flush}" if line.flush else ""
    return " ".join([line.mnemonic + flush, *map(operand, line.sources), *map(operand, line.targets)])


def _tiles(out: Tensor, inputs: Sequence[Tensor], maps: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    """Unit ranges of the tiles, on granules of the result: as large as L2BM, L1BM and GRF allow, but two at least, so that the
    transfers of one overlap with the work on the other. Where operands are broadcast, of a size that repeats with their
    digits, if one of at least a quarter of that does, so that the tiles are alike."""
    assert out.scheme is not None
    units, unit_lw = out.scheme.units, out.scheme.unit_lw(out.dtype)
    grain = max(1, out.image.granule // unit_lw)
    most = TILE_LIMIT // max(t.scheme.unit_lw(t.dtype) for t in (out, *inputs))  # type: ignore[union-attr]
    size = max(grain, min(most // grain, -(-units // (2 * grain))) * grain)

    def cut(size: int) -> list[tuple[int, int]]:
        return [(a, min(a + size, units)) for a in range(0, units, size)]

    while size > grain and not _fits(cut(size), out, inputs, maps):
        size = max(grain, size // 2 // grain * grain)
    if size < units and any(len(np.unique(m)) < units for m in maps):
        for even in _repeating(out.scheme, size):
            if 4 * even >= size and even % grain == 0 and _fits(cut(even), out, inputs, maps):
                return cut(even)
    return cut(size)


def _repeating(scheme: Scheme, size: int) -> list[int]:
    """Numbers of units, up to `size`, that are whole digits of the scheme, the largest first."""
    found, block = {1}, 1
    for _, digit in reversed(scheme.local):
        found |= {block * n for n in range(1, digit.n + 1) if digit.n % n == 0}
        block *= digit.n
    return sorted((n for n in found if n <= size), reverse=True)


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
