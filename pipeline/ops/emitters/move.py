"""The generic move: any elements of any tensors to any places, whatever the layouts.

Every place of the result takes an element of the sources (or is padding, or the fill). LM addresses of the result that need
the same lines of DRAM are made together, a lot at a time (`order`, `lots`): its pieces come to LM0 (`pieces`, `bring`), each PE
picks its places from there into GRF0 (`pick`), and these go back to DRAM.

Where the move repeats itself along LM addresses with everything shifted in DRAM, it is emitted once, in loops (`repeats`). The
next pieces are on their way from DRAM while some are picked, and results on their way back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.bring import bring
from mlsdk.pipeline.ops.emitters.lots import Lots, Pick, Stage
from mlsdk.pipeline.ops.emitters.order import ordered
from mlsdk.pipeline.ops.emitters.pick import FILL_IN_GRF1, Picker
from mlsdk.pipeline.ops.emitters.pieces import LB_SIZE, LC_SIZE
from mlsdk.pipeline.ops.emitters.places import SOURCE, Map, Move
from mlsdk.pipeline.ops.emitters.repeats import Repeat, repeats
from mlsdk.pipeline.ops.emitters.slots import start_fills
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, finish_upload, settle_at_home, start_upload

BUFFERS = 4  # L2BM: pieces of this stage and of the next ones,
LC_OUT, LC_OUT_SIZE = BUFFERS * LC_SIZE, 4096  # two parts of a result,
LC_TABLE = LC_OUT + 2 * LC_OUT_SIZE  # and tables
LB_LISTS, LB, LB_OUT = (0, LB_SIZE), 2 * LB_SIZE, 3 * LB_SIZE  # L1BM: lists of L1Bs, other pieces, results and tables
FIRST = 8  # LM addresses that tell where a move reads
FLYING, FLYING_IN_LOOPS = 14, 8  # moves in flight into a buffer, so that there are tags for all


def emit_move(
    sources: Sequence[Tensor], result: Tensor, where: Map, clean: bool = False, fill: int = 0
) -> tuple[Asm, dict[str, np.ndarray]]:
    """Statements and the constants they need (symbol -> uint64[4][n]). `clean`: the result's padding becomes zero.
    `fill`: the bits of what stands where no source does."""
    if any(s.dtype != result.dtype for s in sources):
        raise EmitError(f"a move cannot change dtypes: {[s.dtype for s in sources]} to {result.dtype}")
    move = Move([s.image for s in sources], result.image, where, everywhere=result.home is not None)
    _refuse_local(sources, move)
    addresses, loops = repeats(move, clean)
    lots = Lots(move, ordered(move, addresses), clean, bool(fill))
    mover = _Mover(sources, replace(result, image=move.result), move.holder.held, result)
    mover.prepare(fill)
    if loops:
        mover.in_loops(list(lots.stages()), loops)
    else:
        mover.in_turn(lots.stages())
    return mover.asm, mover.picker.tables


def _refuse_local(sources: Sequence[Tensor], move: Move) -> None:
    """EmitError where something comes from a source in LM, as a look at the first places says: before all of them are planned."""
    local = [number for number, source in enumerate(sources) if source.home is not None]
    if local:
        place, good = move.at(np.arange(min(move.result.addresses, FIRST)))
        if np.isin(place[good & (place >= 0)] >> SOURCE, local).any():
            raise EmitError("an operand that lives in LM has no place in DRAM")


def ring(count: int) -> tuple[int, list[int]]:
    """For `count` stages that are repeated: how many ahead of one may be under way, and the buffers of all, so that no two
    of those have the same one."""
    if count == 1:
        return 0, [0]
    if count % BUFFERS == 0:
        return 3, [i % 4 for i in range(count)]
    if count in (2, 5):
        return 1, [i % 2 for i in range(count - 1)] + [2 if count % 2 else 1]
    fours = next(n for n in range(count) if (count - 4 * n) % 3 == 0)
    return 2, [0, 1, 2, 3] * fours + [0, 1, 2] * ((count - 4 * fours) // 3)


class _Mover:
    def __init__(self, sources: Sequence[Tensor], result: Tensor, held: Sequence[np.ndarray], shown: Tensor):
        """`result` as all PEs see it, `shown` as it is."""
        self.asm = Asm()
        self.sources, self.result, self.shown = sources, result, shown
        self.picker = Picker(self.asm, held, LC_TABLE, LB_OUT)
        self.results: list[list[int]] = []  # moves of results under way
        self.given = 0
        self.loops: list[Repeat] = []  # those around what is emitted
        self.shifted: list[tuple[Repeat, int]] = []  # and turns of others
        self.most = FLYING
        self.spared = False  # zero and the fill stand in LM0

    def prepare(self, fill: int) -> None:
        """Constants, and the fill in a long word as often as that holds it."""
        self.picker.prepare()
        word = FILL_IN_GRF1
        if self.result.dtype == "double":
            self.asm.pe(f'imm ui"{fill >> 32}" $s{word}')
            self.asm.pe(f'imm ui"{fill & 0xFFFFFFFF}" $s{word + 1}')
        else:
            self.asm.pe(f'imm ui"{fill << 16 | fill if self.result.dtype == "half" else fill}" $ls{word}')

    # ---- orders of stages -------------------------------------------------------------------------------------

    def in_turn(self, stages: Iterator[Stage]) -> None:
        """Stages one after the other, the next ones on their way."""
        under_way: list[tuple[Stage, int, list[int]]] = []
        buffer = 0

        def start() -> None:
            nonlocal buffer
            stage = next(stages, None)
            if stage is not None:
                under_way.append((stage, buffer, self._start(stage, buffer)))
                buffer = (buffer + 1) % BUFFERS

        for _ in range(BUFFERS - 1):
            start()
        while under_way:
            stage, mine, tags = under_way.pop(0)
            self._load(stage)
            start()
            self._finish(stage, mine, tags)
        self._settle()

    def in_loops(self, stages: Sequence[Stage], loops: Sequence[Repeat]) -> None:
        """Loops around all stages. In the innermost the last stages start the first ones of its next turn."""
        asm, inner = self.asm, loops[-1]
        self.most = FLYING_IN_LOOPS
        ahead, buffers = ring(len(stages))
        steady = self._steady(stages)
        first = [[asm.tag_reserved() for _ in stage.moves[: self.most]] for stage in stages[:ahead]]
        with ExitStack() as stack:
            for loop in loops[:-1]:
                stack.enter_context(asm.loop(loop.count))
                self.loops.append(loop)
                self._forget(steady)
            for stage, buffer, tags in zip(stages, buffers, first):
                self._start(stage, buffer, tags)
            with asm.loop(inner.count - 1):
                self._forget(steady)
                self.loops.append(inner)
                self._turn(stages, ahead, buffers, first, again=True)
                self.loops.pop()
            self.shifted = [(inner, inner.count - 1)]
            self._turn(stages, ahead, buffers, first, again=False)
            self.shifted = []
        self.loops = []
        asm.tag_release(*(tag for tags in first for tag in tags))

    def _turn(
        self, stages: Sequence[Stage], ahead: int, buffers: Sequence[int], first: Sequence[list[int]], again: bool
    ) -> None:
        tags = dict(enumerate(first))
        for number, stage in enumerate(stages):
            self._load(stage)
            following = number + ahead
            if following >= len(stages) and again:
                self.shifted = [(self.loops[-1], 1)]
                following -= len(stages)
                self._start(stages[following], buffers[following], first[following])
                self.shifted = []
            elif following < len(stages):
                tags[following] = self._start(stages[following], buffers[following])
            self._finish(stage, buffers[number], tags[number])
        self._settle()

    def _steady(self, stages: Sequence[Stage]) -> bool:
        """Whether all stages have one table, which is loaded here, and T at most one content."""
        picks = [turn.pick.picking for stage in stages for turn in stage.turns if turn.pick]
        columns = {source.columns for p in picks for turn in p.turns for source in turn.sources}
        if len({p.table.tobytes() for p in picks}) > 1 or len(columns - {()}) > 1:
            return False
        self.picker.load(picks[0])
        return True

    def _forget(self, steady: bool) -> None:
        """Another turn of a loop may find something else in memories."""
        self.spared = False
        if not steady:
            self.picker.forget()

    # ---- a stage ----------------------------------------------------------------------------------------------

    def _start(self, stage: Stage, buffer: int, tags: Sequence[int] = ()) -> list[int]:
        """Its moves, with these tags or new ones."""
        count = range(len(self.sources))
        return start_fills(
            self.asm,
            stage.moves,
            [s.symbol for s in self.sources],
            buffer * LC_SIZE,
            [sum(loop.shifts[s] * turns for loop, turns in self.shifted) for s in count],
            [tuple(loop.shifts[s] for loop in self.loops) for s in count],
            tags,
            self.most,
        )

    def _load(self, stage: Stage) -> None:
        """The table of its first picks, before more moves are in its way."""
        pick = next((turn.pick for turn in stage.turns if turn.pick), None)
        if pick:
            self.picker.load(pick.picking)

    def _finish(self, stage: Stage, buffer: int, tags: Sequence[int]) -> None:
        self.asm.wait(*tags)
        for turn in stage.turns:
            for load in turn.loads:
                bring(self.asm, load, buffer * LC_SIZE, LB if load.part.given is None else LB_LISTS[turn.place])
            if turn.pick:
                self.picker.load(turn.pick.picking)
                self._pick(turn.pick)

    def _pick(self, pick: Pick) -> None:
        if pick.spares and not self.spared:
            self.picker.constants()
        self.spared = pick.spares
        merge = not (pick.first and pick.last)
        if merge and pick.first:
            for word in range(0, 2 * sum(hi - lo for lo, hi in pick.runs), 8):
                self.asm.pe(f"zero {vec(m.GRF0, list(range(word, word + 8, 2)), 2)}")
        self.picker.pick(pick.picking, merge)
        word = 0
        for lo, hi in pick.runs if pick.last else ():
            self._give(lo, hi, word)
            word += 2 * (hi - lo)

    def _give(self, lo: int, hi: int, word: int) -> None:
        """LM addresses from GRF0 to DRAM; two parts of them may be under way."""
        image = self.result.image
        each = max(LC_OUT_SIZE // image.lw_per_address, 1), LB_SIZE // (64 if image.mab_spread else 4)
        most = max(image.granule, min(each) // image.granule * image.granule)
        if most > 8:
            most = most // 8 * 8 if not (most // 8 * 8) % image.granule else most
        shift = sum(loop.addresses * turns for loop, turns in self.shifted)
        strides = tuple(loop.addresses for loop in self.loops)
        for at in range(lo, hi, most):
            piece = Range.of(self.result, at + shift, min(at + most, hi) + shift)
            if len(self.results) == 2:
                self.asm.wait(*self.results.pop(0))
            lc = LC_OUT + LC_OUT_SIZE * (self.given % 2)
            finish_upload(self.asm, piece, lc, LB_OUT, m.GRF0, word + 2 * (at - lo))
            self.results.append(start_upload(self.asm, piece, lc, strides))
            if self.shown.home is not None:
                self._settle_at_home(piece, lc, strides)
            self.given += 1

    def _settle_at_home(self, piece: Range, lc: int, strides: tuple[int, ...]) -> None:
        """A part of the result from L2BM to LM."""
        times = self.result.image.lw_per_address // self.shown.image.lw_per_address
        part = Range.of(self.shown, piece.lo * times, min(piece.hi * times, self.shown.image.addresses))
        settle_at_home(self.asm, part, lc, LB_OUT, LB_SIZE, tuple(s * times for s in strides))

    def _settle(self) -> None:
        for tags in self.results:
            self.asm.wait(*tags)
        self.results = []
