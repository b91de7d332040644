"""What a scheduler decides about: turns of nodes, the values between them, and what a node costs with its operands here or there.

The costs are exact: a node is emitted with its operands in DRAM, LM0 or LM1, and its steps are counted. What does not fit or is
not known to the emitter raises EmitError there; that candidate does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from types import MappingProxyType

from mlsdk.errors import ScheduleError
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.placed import LOAD, ON_HOST, VIEW, Placed, PlacedNode
from mlsdk.pipeline.ir.plan import load
from mlsdk.pipeline.ops.emitters.home import GRAIN, IN_DRAM, LM, Lives, size_of
from mlsdk.pipeline.ops.simulation import GRAINS, Cost, Simulation

ALL = (1 << GRAINS) - 1


@dataclass(frozen=True)
class Item:
    """A value that nodes make. `grains`: its size in LM; `wanted`: it has to be in DRAM in the end."""

    name: str
    grains: int
    wanted: bool = False


@dataclass(frozen=True)
class Turn:
    """A node. `reads`: the item of each operand (-1: none); `alike`: whether the operand lies in LM as the item was made (a view
    may differ); `makes`: the item of each result; `after`: turns that come before. `loads`: it only brings to LM what is in
    DRAM."""

    name: str
    reads: tuple[int, ...]
    alike: tuple[bool, ...]
    makes: tuple[int, ...]
    after: tuple[int, ...]
    loads: bool = False


#: a turn, its operands and its results in an LM (number, LM), and the results that do not go to DRAM
Where = tuple[int, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...], tuple[int, ...]]


class Problem:
    """`cost_of(turn, lives)` gives a candidate's cost, or None where there is none; `costs_of` gives those of many. `capacity`:
    grains of an LM that may be used. `known`: costs, in part from elsewhere. `of`: the graph and the budget it is made of."""

    of: tuple[Placed, float] | None = None

    def __init__(
        self,
        turns: Sequence[Turn],
        items: Sequence[Item],
        cost_of: Callable[[int, Lives], Cost | None],
        capacity: int = GRAINS,
        costs_of: Callable[[Sequence[tuple[int, Lives]]], Sequence[Cost | None]] | None = None,
    ):
        self.turns, self.items, self.capacity = tuple(turns), tuple(items), capacity
        self._costs_of = costs_of or (lambda asked: [cost_of(*one) for one in asked])
        self.known: dict[tuple[int, Lives], Cost | None] = {}
        self._gains: dict[tuple[int, int], float | None] = {}
        self._reads: dict[tuple[int, int, int], bool] = {}
        self._found: dict[Where, tuple[Lives, Cost | None]] = {}

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
        if key not in self.known:
            self.learn([key])
        return self.known[key]

    def learn(self, asked: Iterable[tuple[int, Lives]]) -> None:
        """Find the costs of candidates together, which is quicker than one after another."""
        new = [key for key in dict.fromkeys(asked) if key not in self.known]
        if new:
            self.known.update(zip(new, self._costs_of(new)))

    def know(self, costs: Mapping[tuple[int, Lives], Cost | None]) -> None:
        """Costs that another process found."""
        self.known.update((key, cost) for key, cost in costs.items() if key not in self.known)

    def in_dram(self, turn: int) -> Cost:
        """A node whose operands are all in DRAM: what every node can."""
        return self._in_dram[turn]

    @cached_property
    def _in_dram(self) -> list[Cost]:
        self.learn((turn, IN_DRAM) for turn in range(len(self.turns)))
        found = [self.cost(turn, IN_DRAM) for turn in range(len(self.turns))]
        assert all(cost is not None for cost in found)
        return found  # type: ignore[return-value]

    @cached_property
    def room(self) -> list[tuple[int, int]]:
        """Grains of each LM beside what a node writes with all its operands in DRAM, by turn."""
        return [
            (self.capacity - c.scratch[0].bit_count(), self.capacity - c.scratch[1].bit_count()) for c in self._in_dram
        ]

    def candidates(self, asked: Sequence[Where]) -> list[tuple[Lives, Cost | None]]:
        """`lives` and the cost of each."""
        new = [where for where in asked if where not in self._found]
        if new:
            lives = {where: self.lives(*where) for where in new}
            self.learn((where[0], mine) for where, mine in lives.items())
            self._found.update({where: (mine, self.cost(where[0], mine)) for where, mine in lives.items()})
        return [self._found[where] for where in asked]

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

    def learn_gains(self) -> None:
        """What `gain` of every item asks for, in few turns."""
        each = [
            (item, bank) for item, one in enumerate(self.items) if 0 < one.grains <= self.capacity for bank in (0, 1)
        ]
        self.learn(
            (t, self.lives(t, [(i, bank)]))
            for item, bank in each
            for t, i in self.readers[item]
            if self.turns[t].alike[i]
        )
        self.learn(self._kept(item, bank) for item, bank in each if self._reading(item, bank))

    def _reading(self, item: int, bank: int) -> list[tuple[int, int]]:
        """(turn, operand) that read an item better in an LM."""
        return [(t, i) for t, i in self.readers[item] if self.reads(t, i, bank)]

    def _kept(self, item: int, bank: int) -> tuple[int, Lives]:
        """The maker of an item, which leaves it in an LM, and in DRAM for those that do not read it there."""
        turn, result = self.maker[item]
        everywhere = self.items[item].wanted or len(self._reading(item, bank)) < len(self.readers[item])
        return turn, self.lives(turn, (), [(result, bank)], [] if everywhere else [result])

    def gain(self, item: int, bank: int) -> float | None:
        """About what is saved if an item lives in an LM until its last use; None where nobody reads it there, or steps are
        lost."""
        key = item, bank
        if key not in self._gains:
            self._gains[key] = self._gain(item, bank)
        return self._gains[key]

    def _gain(self, item: int, bank: int) -> float | None:
        if not self.items[item].grains or self.items[item].grains > self.capacity:
            return None
        some = self._reading(item, bank)
        if not some:
            return None
        changed = [self._kept(item, bank)]
        changed += [(t, self.lives(t, [(i, bank)])) for t, i in some]
        pairs = [(self.in_dram(t), self.cost(t, mine)) for t, mine in changed]
        if any(c is None for _, c in pairs) or sum(c.steps - before.steps for before, c in pairs if c) > 0:
            return None
        return sum(before.total - c.total for before, c in pairs if c)


# ---- of a placed graph --------------------------------------------------------------------------------------------


def problem_of(
    placed: Placed,
    simulation: Simulation,
    budget: float = 1.0,
    known: Mapping[tuple[int, Lives], Cost | None] = MappingProxyType({}),
) -> Problem:
    """The problem of a graph; `budget`: the part of each LM that may be used; `known`: costs. ScheduleError where a node alone
    needs more."""
    base = bases(placed)
    nodes = _with_loads(placed, base)
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
                items.append(Item(name, grains, name in outputs and p.emitter != LOAD))
    turns = []
    for p in nodes:
        sources = [base.get(name, name) for name in p.node.inputs] if p.emitter != LOAD else [""]
        turns.append(
            Turn(
                p.node.name,
                tuple(number.get(s, -1) for s in sources),
                tuple(
                    p.emitter not in (ON_HOST, LOAD)
                    and bool(name)
                    and _alike(placed.values[name].image, placed.values[s].image)
                    for name, s in zip(p.node.inputs, sources)
                ),
                tuple(number[name] for name in p.node.outputs if name),
                tuple(sorted({made_by[s] for s in sources if s in made_by})),
                p.emitter == LOAD,
            )
        )
    costs = NodeCosts(placed, nodes, simulation)
    problem = Problem(turns, items, costs, int(GRAINS * budget), costs.many)
    problem.of = placed, budget
    problem.know(known)
    check_budget(problem, budget)
    return problem


def _with_loads(placed: Placed, base: Mapping[str, str]) -> list[PlacedNode]:
    """The nodes that run; before the first reader of an input or a constant that several read, what would bring it to LM."""
    nodes = [p for p in placed.nodes if p.emitter != VIEW]
    readers: dict[str, int] = {}
    for p in nodes:
        for name in {base.get(name, name) for name in p.node.inputs if name}:
            readers[name] = readers.get(name, 0) + 1
    found: list[PlacedNode] = []
    loaded: set[str] = set()
    for p in nodes:
        for name in dict.fromkeys(base.get(name, name) for name in p.node.inputs if name):
            value = placed.values[name]
            if value.origin != "node" and readers[name] > 1 and name not in loaded and 0 not in value.shape:
                loaded.add(name)
                found.append(load(name))
        found.append(p)
    return found


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
        return (
            image.mab_spread,
            image.l1b_spread,
            image.l2b_spread,
            image.l2bs_used,
            image.paired,
            image.l2b_size,
            image.dtype,
        )

    return view is base or form(view) == form(base)


class NodeCosts:
    """Costs of the turns of a graph."""

    def __init__(self, placed: Placed, nodes: Sequence[PlacedNode], simulation: Simulation):
        self.placed, self.nodes, self.simulation = placed, nodes, simulation

    def __call__(self, turn: int, lives: Lives) -> Cost | None:
        return self.many([(turn, lives)])[0]

    def many(self, asked: Sequence[tuple[int, Lives]]) -> list[Cost | None]:
        """Of several turns at once, which may be counted side by side."""
        questions = [(self.nodes[turn], lives) for turn, lives in asked]
        told = [at for at, (node, _) in enumerate(questions) if node.emitter != ON_HOST]
        found: list[Cost | None] = [
            Cost(0, 0, (ALL, ALL))
            if lives == IN_DRAM
            else None  # of a node of the host: other programs may run meanwhile
            for _, lives in questions
        ]
        for at, answer in zip(told, self.simulation.of([questions[at] for at in told], self.placed.values)):
            found[at] = answer
            if answer is None and questions[at][1] == IN_DRAM:
                (found[at],) = self.simulation.in_dram([questions[at][0]], self.placed.values)  # raises what is wrong
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
