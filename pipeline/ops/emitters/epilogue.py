"""What is done to the results of a window operation before they are stored: a formula of each result, of values for its channel
and of the element of another plane that lies like the result (factor and shift of a normalisation, an addend, an activation).

A MAB has the results of a segment in LM1, and leaves what becomes of them in LM0, whose patch is not needed any more:

    L1BM          the values of all channels, from the beginning on (`prepare`)
    GRF           of some blocks at a time, their values and the plane's elements
    L2BM, LM0     the rows of the plane, where the result's rows go later: each MAB has whole rows and takes its own columns

The attributes of the node say what to do: `epilogue`, the steps of the formula (`fused.py`), whose first operand is the result
and whose others are the node's inputs from FIRST on; `operands`, what each of these is; `epsilons`, those of normalisations;
`raw`, the dtype in which the operation leaves its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.scheme import QUAD_LW
from mlsdk.pipeline.ops.emitters import window as windows
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.constants import load_constants
from mlsdk.pipeline.ops.emitters.elementwise import (
    CONSTANTS,
    SPACE,
    Program,
    Task,
    compute_dtype,
    is_narrow,
    lay,
    program_of,
)
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.fused import Fused
from mlsdk.pipeline.ops.emitters.statistics import MOST, Normalisation
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, pipeline, start_download
from mlsdk.pipeline.ops.emitters.window import LB_ROWS, LB_ROWS_SIZE, Columns, Window
from mlsdk.pipeline.ops.emitters.window import Rows as Tile
from mlsdk.pipeline.ops.emitters.woven import Room

VECTOR, PLANE = "vector", "plane"
FACTOR, SHIFT = "factor", "shift"  # of a normalisation; the node reads its scale, bias, mean and variance instead
FIRST = 3  # input of the node: behind what slides, weights and bias
#: inputs of the node for each
INPUTS = {VECTOR: 1, PLANE: 1, FACTOR: 4, SHIFT: 0}
LB_FREE = 0  # of L1BM, before the first tile
LB_ONCE, LB_ONCE_SIZE = 7168, 1024  # of L1BM, for a bias and the values of channels
BASES = 8  # words of GRF1: where the MABs' columns of the plane begin
#: first word and LW of the operands in the GRFs
PLACES = {"r": (0, 128), "s": (64, 96)}
LM_LW = 1984  # of LM0 and LM1; constants lie behind
_FREE = {"r": 16, "s": 16}


@dataclass(frozen=True)
class Form:
    """An epilogue but for the data: `constants` are the memories in which the operation leaves room for those."""

    steps: tuple[str, ...]
    operands: tuple[str, ...]
    raw: str
    dtypes: tuple[str, ...]  # of the operands
    out: str
    constants: tuple[str, ...]
    epsilons: tuple[float, ...] = ()

    @property
    def homes(self) -> tuple[str, ...]:
        """The memory of each operand: values of channels lie in both GRFs in turn, elements in GRF0."""
        turn = iter("srsrsrsr")
        return tuple("r" if kind == PLANE else next(turn) for kind in self.operands)

    @property
    def vectors(self) -> int:
        return len(self.operands) - self.operands.count(PLANE)

    @property
    def compute(self) -> str:
        return self.raw if self.raw == "half" else compute_dtype((self.raw, *self.dtypes, self.out))

    def program(self) -> Program:
        """EmitError where the formula cannot be laid out."""
        room = Room(("n", *self.homes), "m", self.constants, _FREE)
        return program_of(Task(Fused(self.steps), self.compute, (self.raw, *self.dtypes), self.out), room)

    def place(self, blocks: int, groups: int) -> list[int] | None:
        """The word of each operand in its GRF, for so many blocks at a time; None where they do not fit."""
        taken, found = {"r": 0, "s": 0}, []
        for kind, dtype, home in zip(self.operands, self.dtypes, self.homes):
            first, size = PLACES[home]
            lw = blocks * QUAD_LW[dtype] * (4 * groups if kind == PLANE else 1)
            found.append(first + 2 * taken[home])
            taken[home] += -(-lw // 8) * 8  # that many are written at least
            if taken[home] > size:
                return None
        return found

    def together(self, window: Window, groups: int) -> int:
        """Blocks at a time; 0 where not even one fits."""
        return next((n for n in range(window.y.blocks, 0, -1) if self.place(n, groups) is not None), 0)

    def fits(self, window: Window, columns: int, with_bias: bool) -> bool:
        """Whether there is room for it, `columns` being those of a segment."""
        blocks, widest = window.y.blocks, Columns(0, min(columns, window.y.shape[3]))
        plane = blocks * windows.stored_columns(window.y, widest) * QUAD_LW[self.out] if PLANE in self.operands else 0
        results = widest.groups * blocks * 4
        channels = blocks * QUAD_LW[self.compute]
        once = (self.vectors + with_bias) * -(-channels * 4 // 64) * 64
        return (
            plane + results * QUAD_LW[self.out] <= LM_LW
            and results * QUAD_LW[self.raw] <= LM_LW
            and once <= LB_ONCE_SIZE
            and (channels <= MOST or not self.epsilons)
            and self.operands.count(PLANE) <= 1
            and self.together(window, widest.groups) > 0
        )


def form_of(call: Call, constants: tuple[str, ...]) -> Form | None:
    """The epilogue of a node, if it has one."""
    steps = cast("tuple[str, ...]", call.node.attrs.get("epilogue", ()))
    if not steps:
        return None
    operands = cast("tuple[str, ...]", call.node.attrs["operands"])
    raw, epsilons = str(call.node.attrs["raw"]), cast("tuple[float, ...]", call.node.attrs["epsilons"])
    compute = "double" if raw == "double" else "single"
    dtypes = tuple(call.outputs[0].dtype if kind == PLANE else compute for kind in operands)
    return Form(steps, operands, raw, dtypes, call.outputs[0].dtype, constants, epsilons)


class Epilogue:
    """The epilogue of one node as it is emitted."""

    def __init__(self, asm: Asm, call: Call, form: Form, window: Window):
        self.asm, self.form, self.window = asm, form, window
        inputs = iter(t for t in call.inputs[FIRST:] if t is not None)
        #: of each operand; those of a normalisation stand with its factor
        self.tensors = [[next(inputs) for _ in range(INPUTS[kind])] for kind in form.operands]
        self.plane: Tensor | None = next((t[0] for t, kind in zip(self.tensors, form.operands) if kind == PLANE), None)
        self.program = form.program()
        self.constants: dict[str, np.ndarray] = {}
        self.vectors: dict[int, int] = {}  # operand -> where in L1BM
        self.bases: dict[int, int] = {}  # groups of a segment -> word of GRF1
        self.norms: list[Normalisation] = []
        self._places: dict[int, int] = {}  # constant -> its number
        self._coming: list[int] = []

    # ---- at the beginning -------------------------------------------------------------------------------------

    def prepare(self, once: windows.Once, segments: Sequence[Columns], lb: int) -> None:
        """Bring what stays: values of channels to L1BM from `lb` on, tables, constants. Nothing else is in L2BM yet."""
        count = self.window.y.blocks * QUAD_LW[self.form.compute]
        for index, kind in enumerate(self.form.operands):
            if kind == VECTOR:
                self.vectors[index], lb = lb, windows.load_once(once, self.tensors[index][0], lb)
            elif kind != PLANE:
                self.vectors[index], lb = lb, lb + -(-count * 4 // 64) * 64
        low = LB_FREE
        for number, index in enumerate(i for i, kind in enumerate(self.form.operands) if kind == FACTOR):
            found = []
            for tensor in self.tensors[index]:
                found.append(low)
                low = windows.load_once(once, tensor, low)
            to, epsilon = (self.vectors[index], self.vectors[index + 1]), self.form.epsilons[number]
            scale, bias, mean, variance = found
            norm = Normalisation(
                (scale, bias, mean, variance), to, count, self.form.compute, epsilon, self.form.constants
            )
            self.norms.append(norm)
        for segment in segments if self.plane is not None else ():
            if segment.groups not in self.bases:
                self.bases[segment.groups] = BASES + 2 * len(self.bases)
                symbol = f"columns{len(self.bases)}"
                step = 2 * 4 * segment.groups * QUAD_LW[self.form.out]
                image, self.constants[symbol] = windows.table_of_bases(step, segment.mabs)
                windows.load_base(once, image, symbol, self.bases[segment.groups])
        held: dict[int, set[str]] = {}
        for count in {self._items(segment, blocks) for segment in segments for blocks in self._chunks(segment)}:
            for woven in self.program.cut(count):
                for word, memories in woven.held.items():
                    held.setdefault(word, set()).update(SPACE[memory] for memory in memories)
        for norm in self.norms:
            for word, memories in norm.held:
                held.setdefault(word, set()).update(SPACE[memory] for memory in memories)
        words = {SPACE[memory]: word for memory, word in CONSTANTS.items()}
        self.constants |= load_constants(self.asm, held, words, windows.LC_FREE, "numbers")
        self._places = {word: 2 * i for i, word in enumerate(held)}

    def begin(self) -> None:
        """When all that was brought is there."""
        for norm in self.norms:
            norm.emit(self.asm, self._places)

    def _items(self, segment: Columns, blocks: range) -> int:
        return len(blocks) * segment.groups * self._parts

    @property
    def _parts(self) -> int:
        """Items of a quad: an item is what an instruction computes."""
        return {"double": 4, "half": 1}.get(self.form.compute, 2)

    def _chunks(self, segment: Columns) -> list[range]:
        blocks = self.window.y.blocks
        most = self.form.together(self.window, segment.groups)
        if not most:
            raise EmitError("the operands of an epilogue do not fit GRF; share out more columns")
        return [range(at, min(at + most, blocks)) for at in range(0, blocks, most)]

    # ---- for each tile ----------------------------------------------------------------------------------------

    def fetch(self, tile: Tile) -> None:
        """Start to move the plane's rows of a tile to where its results will lie in L2BM."""
        if self.plane is not None:
            y, image = self.window.y, self.plane.image
            lo = y.row_address(tile.image, tile.row) * QUAD_LW[self.plane.dtype]
            rows = tile.rows * y.blocks * y.columns * QUAD_LW[self.plane.dtype]
            part = Range(self.plane, lo, lo + rows)
            assert part == Range.of(self.plane, lo, lo + rows) and image.lw_per_address == 4
            self._coming = start_download(self.asm, part, windows.lc_out(self.window, tile, self.plane.dtype))

    def apply(self, tile: Tile, segment: Columns) -> tuple[str, int]:
        """From LM1 to LM0: where the results lie then."""
        word = self._rows(tile, segment) if self.plane is not None else 0
        for blocks in self._chunks(segment):
            places = self.form.place(len(blocks), segment.groups)
            assert places is not None
            for index, lb in self.vectors.items():
                self._channels(blocks, lb, self.form.homes[index], places[index])
            if self.plane is not None:
                self._columns(segment, blocks, places[self.form.operands.index(PLANE)])
            self._compute(segment, blocks, places, word)
        return "m", word

    def _rows(self, tile: Tile, segment: Columns) -> int:
        """The segment's columns of the plane's rows, a row for each L1B, to LM0 of all its MABs; gives the word behind."""
        assert self.plane is not None
        y, lw = self.window.y, QUAD_LW[self.plane.dtype]
        self.asm.wait(*self._coming)
        self._coming = []
        out = windows.lc_out(self.window, tile, self.plane.dtype)
        stored, whole = windows.stored_columns(y, segment), windows.is_whole(y, segment)
        each, row = stored * 4 * lw, windows.row_lw(y, self.plane.dtype)
        per_round = max(1, LB_ROWS_SIZE // each)
        for b0 in range(0, y.blocks, per_round):
            blocks = range(b0, min(b0 + per_round, y.blocks))
            lines = [
                (
                    lb + i,
                    f"l2bmb{f'@{b}' if tile.rows > 1 else ''} $lc{out + b * row + lc + i} $lb{LB_ROWS + lb + i}",
                )
                for lb, lc, size in windows.spans(y, blocks, segment, stored, whole, lw)
                for i in windows.cuts(size)
                for b in range(tile.rows)
            ]
            reads = [
                (
                    f"l1bmm $llb{LB_ROWS + 4 * a} $llm{2 * (b0 * stored * lw + a)}v",
                    sum(at < 4 * a + 32 for at, _ in lines),
                )
                for a in range(0, len(blocks) * stored * lw, 8)
            ]
            pipeline(self.asm, [line for _, line in lines], reads, distance=2)
        return -(-2 * y.blocks * stored * lw // 16) * 16

    def _channels(self, blocks: range, lb: int, home: str, word: int) -> None:
        """The values of these blocks' channels from L1BM to a GRF."""
        lw = QUAD_LW[self.form.compute]
        for a in range(0, len(blocks) * lw, 8):
            self.asm.pe(f"l1bmm $llb{lb + 4 * (blocks[0] * lw + a)} $ll{home}{word + 2 * a}v")

    def _columns(self, segment: Columns, blocks: range, word: int) -> None:
        """Each MAB's columns of the plane from LM0 to GRF0."""
        assert self.plane is not None
        lw, stored = QUAD_LW[self.plane.dtype], windows.stored_columns(self.window.y, segment)
        count = 4 * segment.groups * lw  # LW of a block
        windows.set_base(self.asm, self.bases[segment.groups])
        for index, block in enumerate(blocks):
            source, target = 2 * block * stored * lw, word + 2 * index * count
            for a in range(0, count, 8):
                words = [2 * min(a + 2 * c, count - 2) for c in range(4)]
                self.asm.pe(
                    f"lpassa {vec(m.LM0, [source + w for w in words], 4)} {vec(m.GRF0, [target + w for w in words], 4)}"
                )
        windows.clear_base(self.asm)

    def _compute(self, segment: Columns, blocks: range, places: Sequence[int], word: int) -> None:
        form, y = self.form, self.window.y
        homes = form.homes
        reads: list[list[str]] = []
        writes: list[str] = []
        for local, block in enumerate(blocks):
            for group in range(segment.groups):
                for part in range(self._parts):
                    column = [(group * y.blocks + block) * 4 + c for c in range(4)]
                    own = [(local * segment.groups + group) * 4 + c for c in range(4)]
                    item = [self._text("n", 0, column, part, form.raw)]
                    for kind, dtype, home, at in zip(form.operands, form.dtypes, homes, places):
                        item.append(self._text(home, at, own if kind == PLANE else [local] * 4, part, dtype))
                    reads.append(item)
                    writes.append(self._text("m", word, column, part, form.out, source=False))
        lay(self.asm, self.program.cut(len(writes)), list(zip(*reads)), writes, self._places)

    def _text(self, memory: str, word: int, quads: Sequence[int], part: int, dtype: str, source: bool = True) -> str:
        """An operand: of each cycle's quad, the part that an item takes."""
        narrow = is_narrow(dtype, self.form.compute)
        width = 1 if narrow else 2
        words = [word + 2 * QUAD_LW[dtype] * quad + part * width for quad in quads]
        return vec(SPACE[memory], words, width, "e" if narrow and source else "")
