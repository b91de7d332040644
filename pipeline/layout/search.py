"""The layout planners by name.

    legacy  the rules alone: the first node that touches a value decides where it lies
    bidi    what readers want goes backward, too: where a value is switched right after it was made, it is asked to lie that
            way from the start, until that moves no fewer elements
    lpz     search by exact costs: each of the rules' other choices is tried on the whole graph, and kept if the emitted nodes
            take fewer steps

A search plans again and again with other `wishes` (where a result is to lie) and `ways` (how a rule gets there). Equal nodes,
such as those of equal layers, are tried together, the most promising first; a trial emits only what it changed. Nothing
depends on the time that a trial takes: equal graphs and options give equal plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod

from mlsdk.errors import LayoutError, MLSDKError
from mlsdk.pipeline.ir.graph import Graph, Node
from mlsdk.pipeline.ir.placed import ON_HOST, VIEW, Placed, PlacedNode
from mlsdk.pipeline.ir.scheme import BLOCK, Scheme, local_rows, spread
from mlsdk.pipeline.layout.leading import keep_leading_axes
from mlsdk.pipeline.layout.planner import RESHAPES, Event, LayoutOptions, Planner
from mlsdk.pipeline.layout.products import COLUMNS, GRID, IMPLEMENTATIONS, OF_WEIGHTS
from mlsdk.pipeline.ops.emitters.kernels import kernels_of
from mlsdk.pipeline.ops.simulation import Simulation

#: trials of lpz by the option simulation_mode; `fake` counts nothing
TRIALS = {"fake": 0, "fast": 12, "default": 40, "auto": 40, "best": 150, "full": 600}
FAMILIES = (GRID, COLUMNS)  # ways that all products take together, tried before products one by one
LEAST_GAIN = 0.004  # of all steps: what can save less is not tried
BACK = 12  # nodes that a wish goes back at most
MOVE_GAIN = 0.02  # of all steps: results of moves that take less are not tried in other schemes
ROUNDS = 4  # of bidi


def plan(graph: Graph, options: LayoutOptions | None = None) -> tuple[Placed, tuple[Event, ...]]:
    """`graph` placed, and the history of the decisions. Raises UnsupportedOperator with every node that has no rule, and
    LayoutError for a planner that there is not."""
    options = options or LayoutOptions()
    planner = PLANNERS.get(options.planner)
    if planner is None:
        raise LayoutError(f"there is no layout planner {options.planner}; choose one of {', '.join(PLANNERS)}")
    pinned = options.pins.pins or options.pins.gemms  # by shapes of the graph
    return planner(graph if pinned else keep_leading_axes(graph), options)


def legacy(graph: Graph, options: LayoutOptions) -> tuple[Placed, tuple[Event, ...]]:
    return Planner(graph, options).run()


# ---- bidi ---------------------------------------------------------------------------------------------------------


def bidi(graph: Graph, options: LayoutOptions) -> tuple[Placed, tuple[Event, ...]]:
    placed, history = Planner(graph, options).run()
    wishes: dict[str, Scheme] = {}
    told: list[Event] = []
    for _ in range(ROUNDS):
        more: dict[str, Scheme] = {}
        for found in sorted(_wishes(placed, graph, options), key=lambda c: -_elements(placed, c.nodes)):
            for name, scheme in found.wishes.items():
                more.setdefault(name, scheme)
        try:
            again, events = Planner(graph, replace(options, wishes={**wishes, **more})).run()
        except MLSDKError:
            break
        if _moved(again) >= _moved(placed):
            break
        told += [Event(name, str(s), "as its readers want it") for name, s in more.items() if wishes.get(name) != s]
        wishes.update(more)
        placed, history = again, events
    return placed, (*told, *history)


def _moved(placed: Placed) -> int:
    """Elements that are brought from one layout to another."""
    return _elements(placed, tuple(p.node.name for p in placed.nodes if p.emitter == "move"))


def _elements(placed: Placed, nodes: Sequence[str]) -> int:
    wanted = set(nodes)
    return sum(
        prod(placed.values[p.node.outputs[0]].shape)
        for p in placed.nodes
        if p.node.name in wanted and p.node.outputs[0]
    )


# ---- lpz ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """Choices to try together. `nodes`: those whose steps they may save; `kind`: equal for equal layers."""

    kind: str
    nodes: tuple[str, ...]
    wishes: Mapping[str, Scheme] = field(default_factory=dict)
    ways: Mapping[str, int] = field(default_factory=dict)
    families: Mapping[str, str] = field(default_factory=dict)

    def joined(self, other: Candidate) -> Candidate:
        nodes = (*self.nodes, *(n for n in other.nodes if n not in self.nodes))
        return Candidate(self.kind, nodes, *(mine | theirs for mine, theirs in zip(self.choices, other.choices)))

    @property
    def choices(self) -> tuple[dict, dict, dict]:
        return dict(self.wishes), dict(self.ways), dict(self.families)

    def within(self, options: LayoutOptions) -> LayoutOptions:
        """With what is chosen already."""
        wishes, ways, families = self.choices
        return replace(
            options,
            wishes={**options.wishes, **wishes},
            ways={**options.ways, **ways},
            families={**options.families, **families},
        )


@dataclass
class State:
    """A plan, the choices that led to it, and what its nodes cost in steps."""

    placed: Placed
    history: tuple[Event, ...]
    offered: Mapping[str, int]  # result -> ways
    options: LayoutOptions
    steps: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.steps.values())


def lpz(graph: Graph, options: LayoutOptions) -> tuple[Placed, tuple[Event, ...]]:
    if options.measure is None or not options.trials:
        return legacy(graph, options)
    simulation = Simulation(options.measure, options.known, options.helpers)
    told: list[Event] = []
    best = _first(graph, options, simulation, told)
    tried: set[str] = set()
    left, improved = options.trials, True
    going = True
    passed = {0: best}  # what fewer trials give
    while improved:  # passes over the candidates; each kind once in a pass
        improved, done, ranked = False, set[str](), _ranked(best, graph)
        while left and going and (candidate := next((c for c in ranked if c.kind not in done), None)):
            going = options.watch(f"trial {options.trials - left + 1} of {options.trials}: {best.total:,} steps")
            done.add(candidate.kind)
            mark = _mark(best, candidate)
            if mark in tried:
                continue
            tried.add(mark)
            try:
                found = _state(graph, candidate.within(best.options), simulation)
            except MLSDKError as error:  # the rules or an emitter cannot do that
                told.append(Event(candidate.kind, "", f"tried, and not possible: {error}"))
                left -= 1
                continue
            if found.steps == best.steps:
                continue  # it changed nothing
            left -= 1
            if found.total < best.total:
                passed[options.trials - left] = found
                told.append(Event(candidate.kind, "", f"tried and kept: {best.total} -> {found.total} steps"))
                best, improved, ranked = found, True, _ranked(found, graph)
            else:
                told.append(Event(candidate.kind, "", f"tried and dropped: {found.total} steps, not {best.total}"))
    best = _judged(passed, options, told)
    return best.placed, (*told, *best.history)


def _first(graph: Graph, options: LayoutOptions, simulation: Simulation, told: list[Event]) -> State:
    """Where the search begins: with the products as the rules place them, or with all of them in one of the families. Neighbours
    that agree need no switches, which no change of a single product shows."""
    found = {"rules": _state(graph, options, simulation)}
    chosen = any(op in options.implementations for op in IMPLEMENTATIONS)
    products = [node.outputs[0] for node in graph.nodes if node.op in IMPLEMENTATIONS]
    if chosen or not products:
        return found["rules"]
    for family in FAMILIES:
        with suppress(MLSDKError):  # the rules or an emitter cannot do that
            found[family] = _state(graph, replace(options, families=dict.fromkeys(products, family)), simulation)
    best = min(found, key=lambda name: found[name].total)
    totals = ", ".join(f"{state.total} steps by {name}" for name, state in found.items())
    told.append(Event("products", "", f"the search begins with {best}: {totals}"))
    return found[best]


def _judged(passed: Mapping[int, State], options: LayoutOptions, told: list[Event]) -> State:
    """Of what so many trials found, and what fewer would have: that which takes the fewest steps when it is scheduled. Values
    that stay in LM make other switches cheap than those that go by way of DRAM."""
    last = max(passed)
    if options.judge is None:
        return passed[last]
    less = {max(n for n in passed if n <= trials) for trials in TRIALS.values() if 0 < trials < options.trials}
    less.add(0)
    if not less - {last}:
        told.append(Event("trials", "", "less effort would have found the same"))
        return passed[last]
    steps = {n: options.judge(passed[n].placed) for n in sorted(less | {last}, reverse=True)}
    chosen = min(steps, key=lambda n: steps[n])
    said = ", ".join(f"{steps[n]} steps after {n}" for n in sorted(steps))
    told.append(Event("trials", "", f"the first {chosen} kept; scheduled: {said}"))
    return passed[chosen]


def _state(graph: Graph, options: LayoutOptions, simulation: Simulation) -> State:
    planner = Planner(graph, options)
    placed, history = planner.run()
    return State(placed, history, dict(planner.ways), options, _steps(placed, simulation))


def _steps(placed: Placed, simulation: Simulation) -> dict[str, int]:
    """Steps by node. Raises what an emitter cannot do."""
    turns = [p for p in placed.nodes if p.emitter not in (VIEW, ON_HOST)]
    counted = {p.node.name: cost.steps for p, cost in zip(turns, simulation.in_dram(turns, placed.values))}
    return {p.node.name: counted.get(p.node.name, 0) for p in placed.nodes}


def _mark(state: State, candidate: Candidate) -> str:
    """A trial: what is chosen already and what is tried."""
    chosen = candidate.within(state.options)
    return str([sorted((k, str(v)) for k, v in each.items()) for each in (chosen.wishes, chosen.ways, chosen.families)])


def _ranked(state: State, graph: Graph) -> list[Candidate]:
    """Candidates that change something, those first that may save the most steps."""
    by_kind: dict[str, Candidate] = {}
    for c in _candidates(state, graph):
        by_kind[c.kind] = by_kind[c.kind].joined(c) if c.kind in by_kind else c
    gains = {kind: sum(state.steps[n] for n in c.nodes) for kind, c in by_kind.items()}
    least = max(1, LEAST_GAIN * state.total)
    ranked = sorted((c for c in by_kind.values() if gains[c.kind] >= least), key=lambda c: (-gains[c.kind], c.kind))
    return ranked


def _candidates(state: State, graph: Graph) -> Iterator[Candidate]:
    placed = state.placed
    yield from _wishes(placed, graph, state.options)
    yield from _followers(placed)
    yield from _elsewhere(state, graph)
    yield from _pairs(state, graph)
    readers = _readers(placed)
    by_result = _by_result(placed)
    for name, ways in state.offered.items():
        p = by_result.get(name.removesuffix(OF_WEIGHTS))
        if p is None:
            continue
        near = (
            p.node.name,
            *(r.node.name for r in _beyond(placed, readers, p.node.outputs[0])),
            *_before(by_result, p),
        )
        now = state.options.ways.get(name, 0)
        for way in range(ways):
            if way != now:
                what = f"way {way}" + (OF_WEIGHTS if name.endswith(OF_WEIGHTS) else "")
                yield Candidate(f"{_kind(placed, p)} by {what}", near, {}, {name: way})


def _wishes(placed: Placed, graph: Graph, options: LayoutOptions) -> Iterator[Candidate]:
    """A value that is switched right after it was made, or seen otherwise and then switched, lies so from the start; with the
    elementwise nodes before it, and without."""
    by_result = _by_result(placed)
    for p in placed.nodes:
        if p.node.op != "MNCoreLayoutSwitch" or p.node.attrs.get("clean"):
            continue
        scheme = placed.values[p.node.outputs[0]].scheme
        source = _origin(placed, by_result, p.node.inputs[0], scheme)
        if source is None:
            continue
        name, wanted = source
        if name in by_result:
            if not _wishable(by_result[name]):
                continue
            kind = _lying(placed, _kind(placed, by_result[name]), name, wanted)
        elif name in graph.inputs and name not in options.fixed:
            kind = _lying(placed, name, name, wanted)
        else:
            continue
        yield Candidate(kind, (p.node.name,), {name: wanted})
        chain, nodes = _chain(placed, by_result, name, wanted)
        if len(chain) > 1:
            yield Candidate(f"{kind}, with those before", (p.node.name, *nodes), chain)


def _chain(
    placed: Placed, by_result: Mapping[str, PlacedNode], name: str, scheme: Scheme
) -> tuple[dict[str, Scheme], list[str]]:
    """A value and, through elementwise nodes, those of its shape before it; and the switches between them."""
    found: dict[str, Scheme] = {}
    switches: list[str] = []
    todo = [(name, scheme)]
    while todo and len(found) < BACK:
        name, scheme = todo.pop()
        if name in found or name not in by_result or not _wishable(by_result[name]):
            continue
        found[name] = scheme
        p = by_result[name]
        if p.emitter != "elementwise":
            continue
        for operand in filter(None, p.node.inputs):
            if placed.values[operand].shape != placed.values[name].shape:
                continue
            while operand in by_result and by_result[operand].node.op == "MNCoreLayoutSwitch":
                switches.append(by_result[operand].node.name)
                operand = by_result[operand].node.inputs[0]
            source = _origin(placed, by_result, operand, scheme)
            if source is not None:
                todo.append(source)
    return found, switches


def _followers(placed: Placed) -> Iterator[Candidate]:
    """An elementwise result lies as one of its operands does, which is switched now."""
    by_result = _by_result(placed)
    for p in placed.nodes:
        if p.emitter != "elementwise":
            continue
        out = p.node.outputs[0]
        for operand in filter(None, p.node.inputs):
            switch = by_result.get(operand)
            if switch is None or switch.node.op != "MNCoreLayoutSwitch":
                continue
            scheme = placed.values[switch.node.inputs[0]].scheme
            if scheme is None or scheme.copies or placed.values[operand].shape != placed.values[out].shape:
                continue
            kind = f"{_kind(placed, p)} as its operand {p.node.inputs.index(operand)}"
            yield Candidate(kind, (switch.node.name,), {out: scheme})


def _elsewhere(state: State, graph: Graph) -> Iterator[Candidate]:
    """The result of a move, or an input that only moves read, in another scheme of the common kinds."""
    placed, fixed = state.placed, state.options.fixed
    readers = _readers(placed)
    for p in placed.nodes:
        if p.emitter != "move" or state.steps[p.node.name] < MOVE_GAIN * state.total:
            continue
        out = p.node.outputs[0]
        if _wishable(p):
            near = (p.node.name, *(r.node.name for r in _beyond(placed, readers, out)))
            for scheme in _common(placed, out):
                yield Candidate(_lying(placed, _kind(placed, p), out, scheme), near, {out: scheme})
        for name in p.node.inputs:
            if name in graph.inputs and name not in fixed and all(r.emitter == "move" for r in readers[name]):
                for scheme in _common(placed, name):
                    yield Candidate(_lying(placed, name, name, scheme), (p.node.name,), {name: scheme})


def _pairs(state: State, graph: Graph) -> Iterator[Candidate]:
    """A product and those before it whose results are its first operand, through elementwise nodes, all by columns: what the L2Bs
    have of the columns of the one they multiply as k of the other. No change of a single product shows what that saves."""
    placed = state.placed
    for node in graph.nodes:
        if node.op not in IMPLEMENTATIONS:
            continue
        before, between = _products_before(graph, node)
        products = [node, *before]
        families = {p.outputs[0]: COLUMNS for p in products}
        if not before or all(state.options.families.get(name) == family for name, family in families.items()):
            continue
        made = {name for p in (*products, *between) for name in p.outputs}
        names = {p.name for p in (*products, *between)}
        near = [
            p.node.name
            for p in placed.nodes
            if p.node.name in names
            or p.node.name.rpartition(".")[0] in names
            or (p.emitter == "move" and p.node.inputs[0] in made - {node.outputs[0]})
        ]
        shapes = " ".join(str(graph.values[name].shape) for p in products for name in (p.inputs[0], p.outputs[0]))
        yield Candidate(f"{node.op} {shapes} by columns, with the products before", tuple(near), families=families)


def _products_before(graph: Graph, node: Node) -> tuple[list[Node], list[Node]]:
    """The products of which the first operand of one is computed element by element, and the nodes between."""
    products: dict[str, Node] = {}
    between: dict[str, Node] = {}
    todo = [node.inputs[0]]
    while todo:
        made = graph.producers.get(todo.pop())
        if made is None or made.name in between:
            continue
        if made.op in IMPLEMENTATIONS:
            products[made.name] = made
        elif made.op in RESHAPES or kernels_of(made.op):
            between[made.name] = made
            todo += made.inputs[:1] if made.op in RESHAPES else filter(None, made.inputs)
    return list(products.values()), list(between.values())


def _common(placed: Placed, name: str) -> list[Scheme]:
    """Rows over the levels and one axis on the lanes, each wide axis in turn, except as the value lies now."""
    value = placed.values[name]
    lanes = [a for a, n in enumerate(value.shape) if n >= BLOCK // 2]
    found = [build(value.shape, a) for a in reversed(lanes) for build in (spread, local_rows)]
    return [s for i, s in enumerate(found) if s != value.scheme and s not in found[:i]]


def _wishable(p: PlacedNode) -> bool:
    """Whether the rule of a node lets its result lie where it is wanted."""
    return p.emitter == "elementwise" or (p.emitter == "move" and p.node.op != "MNCoreLayoutSwitch")


def _origin(
    placed: Placed, by_result: Mapping[str, PlacedNode], name: str, scheme: Scheme | None
) -> tuple[str, Scheme] | None:
    """The value that `name` is a view of, and where that lies when `name` lies in `scheme`."""
    while scheme is not None and name in by_result and by_result[name].emitter == VIEW:
        p = by_result[name]
        source = p.node.inputs[0]
        if p.node.op == "Transpose":
            perm = [int(x) for x in p.node.attrs["perm"]]  # type: ignore[union-attr]
            scheme = scheme.permute([perm.index(i) for i in range(len(perm))])
        else:
            scheme = scheme.reshape(placed.values[name].shape, placed.values[source].shape)
        name = source
    return (name, scheme) if scheme is not None else None


def _beyond(placed: Placed, readers: Mapping[str, list[PlacedNode]], name: str) -> list[PlacedNode]:
    """The moves that read a value or a view of it."""
    found, todo = [], [name]
    while todo:
        for reader in readers.get(todo.pop(), ()):
            if reader.emitter == VIEW:
                todo.append(reader.node.outputs[0])
            elif reader.emitter == "move":
                found.append(reader)
    return found


def _before(by_result: Mapping[str, PlacedNode], p: PlacedNode) -> list[str]:
    """The switches of a node's operands."""
    sources = [by_result[name] for name in p.node.inputs if name in by_result]
    return [s.node.name for s in sources if s.node.op == "MNCoreLayoutSwitch"]


def _readers(placed: Placed) -> dict[str, list[PlacedNode]]:
    found: dict[str, list[PlacedNode]] = {}
    for p in placed.nodes:
        for name in set(p.node.inputs):
            found.setdefault(name, []).append(p)
    return found


def _by_result(placed: Placed) -> dict[str, PlacedNode]:
    return {name: p for p in placed.nodes for name in p.node.outputs if name}


def _lying(placed: Placed, what: str, name: str, scheme: Scheme) -> str:
    """The kind of a candidate in which a value, or all like it, lies in a scheme."""
    return f"{what} as {scheme.layout(placed.values[name].device_dtype)}"


def _kind(placed: Placed, p: PlacedNode) -> str:
    """Equal for nodes of equal layers: the operator, and the shapes of its operands and results."""

    def shapes(names: Sequence[str]) -> str:
        return " ".join("x".join(map(str, placed.values[name].shape)) or "scalar" for name in names if name)

    return f"{p.node.op}({shapes(p.node.inputs)}) -> {shapes(p.node.outputs)}"


PLANNERS: dict[str, Callable[[Graph, LayoutOptions], tuple[Placed, tuple[Event, ...]]]] = {
    "legacy": legacy,
    "bidi": bidi,
    "lpz": lpz,
}
