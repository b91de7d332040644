"""What a scheduler decides about: turns of nodes, the values between them, and what a node costs with its operands here or there.

The costs are exact: a node is emitted with its operands in DRAM, LM0 or LM1, and its steps are counted. What does not fit or is
not known to the emitter raises EmitError there; that candidate does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import ClassVar

from mlsdk.device import spec
from mlsdk.errors import EmitError, ScheduleError
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.placed import Placed, PlacedNode
from mlsdk.pipeline.ops.clock import Measure
from mlsdk.pipeline.ops.emitters import ON_HOST, VIEW, emit_anew, fragment_key
from mlsdk.pipeline.ops.emitters.home import GRAIN, IN_DRAM, LM, Lives, size_of

GRAINS = spec.LM_WORDS // 2 // GRAIN  # of an LM
ALL = (1 << GRAINS) - 1
#: LW that all DRAMs together move in a step
DRAM_LW = spec.GROUPS * spec.DRAM_LW_PER_CYCLE * spec.CYCLES_PER_STEP


@dataclass(frozen=True)
class Cost:
    """Of a node: steps, DRAM traffic in LW, and the grains of LM0 and LM1 that it writes for itself, a bit each."""

    steps: int
    dram_lw: int
    scratch: tuple[int, int] = (0, 0)

    @property
    def total(self) -> float:
        """Steps, and those for which its traffic keeps the DRAMs busy."""
        return self.steps + self.dram_lw / DRAM_LW


@dataclass(frozen=True)
class Item:
    """A value that nodes make. `grains`: its size in LM; `wanted`: it has to be in DRAM in the end."""

    name: str
    grains: int
    wanted: bool = False


@dataclass(frozen=True)
class Turn:
    """A node. `reads`: the item of each operand (-1: none); `alike`: whether the operand lies in LM as the item was made (a view
    may differ); `makes`: the item of each result; `after`: turns that come before."""

    name: str
    reads: tuple[int, ...]
    alike: tuple[bool, ...]
    makes: tuple[int, ...]
    after: tuple[int, ...]


class Problem:
    """`cost_of(turn, lives)` gives a candidate's cost, or None where there is none. `capacity`: grains of an LM that may be
    used."""

    def __init__(
        self,
        turns: Sequence[Turn],
        items: Sequence[Item],
        cost_of: Callable[[int, Lives], Cost | None],
        capacity: int = GRAINS,
    ):
        self.turns, self.items, self.capacity = tuple(turns), tuple(items), capacity
        self._cost_of = cost_of
        self._costs: dict[tuple[int, Lives], Cost | None] = {}
        self._gains: dict[tuple[int, int], float | None] = {}
        self._reads: dict[tuple[int, int, int], bool] = {}
        self._found: dict[tuple, tuple[Lives, Cost | None]] = {}

    @cached_property
    def maker(self) -> list[tuple[int, int]]:
        """(turn, result) of each item."""
        made = {item: (t, o) for t, turn in enumerate(self.turns) for o, item in enumerate(turn.makes)}
        return [made[i] for i in range(len(self.items))]

    @cached_property
    def readers(self) -> list[list[tuple[int, int]]]:
        """(turn, operand) that read each item."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.items]
        for t, turn in enumerate(self.turns):
            for i, item in enumerate(turn.reads):
                if item >= 0:
                    found[item].append((t, i))
        return found

    # ---- costs ------------------------------------------------------------------------------------------------

    def cost(self, turn: int, lives: Lives) -> Cost | None:
        key = turn, lives
        if key not in self._costs:
            self._costs[key] = self._cost_of(turn, lives)
        return self._costs[key]

    def in_dram(self, turn: int) -> Cost:
        """A node whose operands are all in DRAM: what every node can."""
        return self._in_dram[turn]

    @cached_property
    def _in_dram(self) -> list[Cost]:
        found = [self.cost(turn, IN_DRAM) for turn in range(len(self.turns))]
        assert all(cost is not None for cost in found)
        return found  # type: ignore[return-value]

    @cached_property
    def room(self) -> list[tuple[int, int]]:
        """Grains of each LM beside what a node writes with all its operands in DRAM, by turn."""
        return [
            (self.capacity - c.scratch[0].bit_count(), self.capacity - c.scratch[1].bit_count()) for c in self._in_dram
        ]

    def candidate(
        self, turn: int, reads: tuple[tuple[int, int], ...], keeps: tuple[tuple[int, int], ...], only: tuple[int, ...]
    ) -> tuple[Lives, Cost | None]:
        """`lives` and its cost."""
        key = turn, reads, keeps, only
        if key not in self._found:
            lives = self.lives(turn, reads, keeps, only)
            self._found[key] = lives, self.cost(turn, lives)
        return self._found[key]

    def lives(
        self, turn: int, reads: Sequence[tuple[int, int]] = (), keeps: Sequence[tuple[int, int]] = (), only=()
    ) -> Lives:
        """`reads` and `keeps`: (operand or result, LM 0 or 1); `only`: results that do not go to DRAM."""
        if not reads and not keeps:
            return IN_DRAM
        inputs, outputs = [""] * len(self.turns[turn].reads), [""] * len(self.turns[turn].makes)
        for i, bank in reads:
            inputs[i] = LM[bank]
        for o, bank in keeps:
            outputs[o] = LM[bank]
        return Lives(tuple(inputs), tuple(outputs), tuple(o not in only for o in range(len(outputs))))

    def read_gain(self, turn: int, operand: int, bank: int) -> float | None:
        """What a node saves if it reads one operand in LM; None where it cannot."""
        if not self.turns[turn].alike[operand]:
            return None
        found = self.cost(turn, self.lives(turn, [(operand, bank)]))
        return None if found is None else self.in_dram(turn).total - found.total

    def reads(self, turn: int, operand: int, bank: int) -> bool:
        """Whether a node reads an operand better in LM than in DRAM."""
        key = turn, operand, bank
        if key not in self._reads:
            self._reads[key] = (self.read_gain(turn, operand, bank) or 0) > 0
        return self._reads[key]

    def gain(self, item: int, bank: int) -> float | None:
        """About what is saved if an item lives in an LM until its last use; None where nobody reads it there, or steps are
        lost."""
        key = item, bank
        if key not in self._gains:
            self._gains[key] = self._gain(item, bank)
        return self._gains[key]

    def _gain(self, item: int, bank: int) -> float | None:
        turn, result = self.maker[item]
        if not self.items[item].grains or self.items[item].grains > self.capacity:
            return None
        some = [(t, i) for t, i in self.readers[item] if self.reads(t, i, bank)]
        if not some:
            return None
        only = [] if self.items[item].wanted or len(some) < len(self.readers[item]) else [result]
        changed = [(turn, self.lives(turn, (), [(result, bank)], only))]
        changed += [(t, self.lives(t, [(i, bank)])) for t, i in some]
        pairs = [(self.in_dram(t), self.cost(t, mine)) for t, mine in changed]
        if any(c is None for _, c in pairs) or sum(c.steps - before.steps for before, c in pairs if c) > 0:
            return None
        return sum(before.total - c.total for before, c in pairs if c)


# ---- of a placed graph --------------------------------------------------------------------------------------------


def problem_of(placed: Placed, measure: Measure, budget: float = 1.0) -> Problem:
    """The problem of a graph; `budget`: the part of each LM that may be used. ScheduleError where a node alone needs more."""
    nodes = [p for p in placed.nodes if p.emitter != VIEW]
    base = bases(placed)
    outputs = {base.get(name, name) for name in placed.outputs}
    items: list[Item] = []
    number: dict[str, int] = {}
    made_by: dict[str, int] = {}
    for t, p in enumerate(nodes):
        for name in p.node.outputs:
            if name:
                image = placed.values[name].image
                grains = 0 if p.emitter == ON_HOST else size_of(image.addresses, image.granule) // GRAIN
                number[name], made_by[name] = len(items), t
                items.append(Item(name, grains, name in outputs))
    turns = []
    for p in nodes:
        sources = [base.get(name, name) for name in p.node.inputs]
        turns.append(
            Turn(
                p.node.name,
                tuple(number.get(s, -1) for s in sources),
                tuple(
                    p.emitter != ON_HOST and bool(name) and _alike(placed.values[name].image, placed.values[s].image)
                    for name, s in zip(p.node.inputs, sources)
                ),
                tuple(number[name] for name in p.node.outputs if name),
                tuple(sorted({made_by[s] for s in sources if s in made_by})),
            )
        )
    problem = Problem(turns, items, Simulation(placed, nodes, measure), int(GRAINS * budget))
    check_budget(problem, budget)
    return problem


def bases(placed: Placed) -> dict[str, str]:
    """Name of a view -> the value that it is a view of."""
    found: dict[str, str] = {}
    for p in placed.nodes:
        if p.emitter == VIEW:
            source = p.node.inputs[0]
            found[p.node.outputs[0]] = found.get(source, source)
    return found


def _alike(view: Image, base: Image) -> bool:
    """Whether a view has the same LM addresses as what it is a view of."""

    def form(image: Image) -> tuple:
        return image.mab_spread, image.l1b_spread, image.l2b_spread, image.l2bs_used, image.l2b_size, image.dtype

    return view is base or form(view) == form(base)


class Simulation:
    """Costs by emission; equal nodes are emitted once in a process. Fragments are not kept: those of candidates are many."""

    _known: ClassVar[dict[tuple[Measure, str], Cost | None]] = {}

    def __init__(self, placed: Placed, nodes: Sequence[PlacedNode], measure: Measure):
        self.placed, self.nodes, self.measure = placed, nodes, measure

    def __call__(self, turn: int, lives: Lives) -> Cost | None:
        node = self.nodes[turn]
        if node.emitter == ON_HOST:  # other programs may run meanwhile
            return Cost(0, 0, (ALL, ALL)) if lives == IN_DRAM else None
        key = self.measure, fragment_key(node, self.placed.values, lives)
        if key not in self._known:
            self._known[key] = self._emit(node, lives)
        return self._known[key]

    def _emit(self, node: PlacedNode, lives: Lives) -> Cost | None:
        try:
            fragment = emit_anew(node, self.placed.values, lives)
        except EmitError:
            if lives == IN_DRAM:
                raise
            return None
        steps, dram_lw = self.measure(fragment.statements)
        return Cost(steps, dram_lw, tuple(_grains(fragment.written.get((space, 0), 0)) for space in LM))  # type: ignore[arg-type]


def _grains(lw: int) -> int:
    """Bits of LW -> bits of grains."""
    found = 0
    for grain in range(GRAINS):
        if lw >> grain * GRAIN & (1 << GRAIN) - 1:
            found |= 1 << grain
    return found


def check_budget(problem: Problem, budget: float) -> None:
    """Every node has to fit by itself."""
    if problem.capacity >= GRAINS:
        return
    for t, turn in enumerate(problem.turns):
        for space, scratch in zip(LM, problem.in_dram(t).scratch):
            if problem.in_dram(t).steps and scratch.bit_count() > problem.capacity:
                raise ScheduleError(
                    f"{turn.name} needs {scratch.bit_count() * GRAIN:,} long words of {space} with all its operands in DRAM, "
                    f"and sram_budget {budget} allows {problem.capacity * GRAIN:,}; live: no value; map of {space}: "
                    f"{map_of(scratch)}; set sram_budget to {ceil(100 * scratch.bit_count() / GRAINS) / 100} or more"
                )


def map_of(scratch: int, homes: Sequence[tuple[str, int, int]] = ()) -> str:
    """An LM as text, in LW: what a node writes, and the values (name, first grain, grains)."""
    found = [("scratch", at, size) for at, size in _runs(scratch)] + list(homes)
    return ", ".join(
        f"{at * GRAIN}-{(at + size) * GRAIN - 1} {name}" for name, at, size in sorted(found, key=lambda f: f[1])
    )


def _runs(bits: int) -> list[tuple[int, int]]:
    found, at = [], 0
    while bits:
        gap = (bits & -bits).bit_length() - 1
        bits >>= gap
        size = (~bits & (bits + 1)).bit_length() - 1
        found.append((at + gap, size))
        bits >>= size
        at += gap + size
    return found
