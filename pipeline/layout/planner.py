"""The planner: walks the graph once, gives every value a dtype and a layout, and puts switches where two nodes disagree.

It decides by rules: the first node that touches a value decides its layout, and each operator's rule (in `rules`) says which
schemes it works in. Where a rule could do otherwise, a search (search.py) may tell it to. What a rule may do:

    planner.want(name, scheme)          the value in that scheme, through a switch if it lies elsewhere
    planner.want_layout(name, layout)   the same for layouts of no scheme (streamed weights)
    planner.scheme_of(name)             the scheme in which it lies, or None
    planner.put(node, emitter, ..)      add a node, its results placed
    planner.view(node, scheme)          a result that lies where its input lies
    planner.wish(name)                  where a search wants a result
    planner.way(name, ways)             which of several ways a search wants
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from mlsdk.errors import LayoutError, Misuse, NotOnBoard, UnsupportedOperator
from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.ir.layout import Layout
from mlsdk.pipeline.ir.placed import ANY, DEVICE_DTYPE, LANES, VIEW, ZERO, Placed, PlacedNode, PlacedValue
from mlsdk.pipeline.ir.scheme import BLOCK, Scheme, choose_lane, spread
from mlsdk.pipeline.layout.low_bits import wrapped
from mlsdk.pipeline.layout.pins import Pins, scheme_of
from mlsdk.pipeline.ops.clock import Measure
from mlsdk.pipeline.ops.emitters.elementwise import in_last_block
from mlsdk.pipeline.ops.simulation import Helpers, Known
from mlsdk.pipeline.ops.table import run as run_operator
from mlsdk.pipeline.ops.watch import Watch, unwatched

T = TypeVar("T")

BASE_DTYPE = {"float": "single", "half": "half", "mixed": "single", "double": "double"}


@dataclass(frozen=True)
class Fixed:
    """Where an input lies already, because another function of the Context placed it."""

    layout: Layout
    device_dtype: str
    scheme: Scheme | None = None


@dataclass(frozen=True)
class LayoutOptions:
    """`fixed`: where inputs and outputs lie, by name; the name of an input stands for wherever that one comes to lie.
    `on_host`: operators that the host computes. What rules could decide in several ways, for a search to try: `wishes`,
    where inputs and results are to lie, and `ways`, by a result, which of the ways of its rule to take, or `families`, of which
    kind (products.IMPLEMENTATIONS). `planner` names the
    search (search.py); lpz makes so many `trials`, and counts steps and LW of emitted nodes by `measure`, unless they are
    `known`, perhaps with `helpers`. `watch` may end the search. `implementations`: of operators that have several
    (products.IMPLEMENTATIONS). `most_slices`: how many times the LM a value may need. `pins`: layouts that the user wants.
    `fed`: inputs that are the program's own and come anew with each call: they may be stored as whatever the program computes
    with. `judge`: the steps of a plan when it is scheduled."""

    float_dtype: str = "float"
    fixed: Mapping[str, Fixed | str] = field(default_factory=dict)
    on_host: frozenset[str] = frozenset()
    pins: Pins = field(default_factory=Pins)
    planner: str = "lpz"
    measure: Measure | None = None
    trials: int = 0
    known: Known | None = None
    helpers: Helpers | None = None
    watch: Watch = unwatched
    implementations: Mapping[str, str] = field(default_factory=dict)
    most_slices: int | None = None
    wishes: Mapping[str, Scheme] = field(default_factory=dict)
    ways: Mapping[str, int] = field(default_factory=dict)
    families: Mapping[str, str] = field(default_factory=dict)
    judge: Callable[[Placed], int] | None = None
    fed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Event:
    """One decision, for the planner's history."""

    value: str
    layout: str
    reason: str


#: operators whose result is one of their operands, up to its sign
CHOOSES = {"Relu", "Max", "Min", "Neg", "Abs", "Identity", "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin"}
#: operators whose result is one operand's element or an infinity, where the others (from this one on) are masks
MASKS = {"Add": 0, "Where": 1}
MOVES = {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Expand", "Split", "Concat"}
#: those of them that keep the order of the elements
RESHAPES = {"Reshape", "Squeeze", "Unsqueeze", "Flatten"}
#: nodes that wait for each other; they are planned one within the other, and Python nests no deeper than it does
LONGEST_WAIT = 64
#: operators that round float operands to half when float_dtype is mixed
PRODUCTS = {"Conv", "ConvTranspose", "ConvFilterGrad", "MatMul", "Gemm"}


class Planner:
    def __init__(self, graph: Graph, options: LayoutOptions):
        self.graph, self.options = graph, options
        self.base = BASE_DTYPE[options.float_dtype]
        self.halves = options.float_dtype in ("mixed", "half")
        self.values: dict[str, PlacedValue] = {}
        self.nodes: list[PlacedNode] = []
        self.history: list[Event] = []
        self.shown: dict[str, Value] = dict(graph.values)
        self.switched: dict[tuple[str, str, str], str] = {}
        self.names = set(graph.values) | {n.name for n in graph.nodes}
        self.base_of: dict[str, str] = {}  # view -> what it is a view of
        self.literals: dict[str, np.ndarray] = {}
        self.readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in set(node.inputs):
                self.readers.setdefault(name, []).append(node)
        self.literals |= wrapped(graph, self.readers)
        self.maker = {name: node.op for node in graph.nodes for name in node.outputs}
        self._halves: dict[str, str] = {}
        self.made: dict[str, PlacedNode] = {}
        self.read: set[str] = set()  # what nodes have as inputs
        self.once: set[str] = set()  # parts of a node that one more part reads: it may compute them on its way
        self.waiting: dict[str, Node] = {}  # result -> its node, which is planned when the result is wanted
        self.chain: dict[str, int] = {}  # result that waits -> how many wait for each other up to it
        self.ways: dict[str, int] = {}  # result -> how many ways there are
        self.taken: set[str] = set()  # names of nodes that the node before them computes too

    # ---- the walk ---------------------------------------------------------------------------------------------

    def run(self) -> tuple[Placed, tuple[Event, ...]]:
        from mlsdk.pipeline.layout.rules import elementwise, rule_of_graph

        for name, fixed in self.options.fixed.items():
            if name in self.graph.inputs and isinstance(fixed, Fixed):
                self.place_input(name, fixed.layout, fixed.scheme, fixed.device_dtype, "placed by the Context")
        misuses: list[Misuse] = []
        for node in self.graph.nodes:
            try:
                if node.name not in self.taken and not self._known(node):
                    rule = rule_of_graph(node, self)
                    if rule is None:
                        raise NotOnBoard("no emitter for the board")
                    if (rule is elementwise or node.op in RESHAPES) and self._may_wait(node):
                        self.waiting[node.outputs[0]] = node
                    else:
                        rule(self, self.options.pins.switched(self, node))
                        self.options.pins.check(self, node)
            except NotOnBoard as error:
                misuses.append(Misuse(node.op, node.source, node.scope, str(error), node.name))
                for name in node.outputs:  # as if it were there, so that what else is wrong is found too
                    if name and name not in self.values:
                        self._place(name, self.default(name), "its node is not supported")
            except LayoutError as error:
                error.node = node.name
                raise
        if misuses:
            raise UnsupportedOperator.listing(misuses, "rewrite them, or run the function on pfvm:cpu")
        for name in list(self.waiting):  # nothing read it
            self._settle(name, None)
        self.options.pins.finish()
        self._check_slices()
        outputs = [self._output(name) for name in self.graph.outputs]
        for name in self.graph.inputs:
            if name not in self.values:
                self._place(name, self.default(name), "no node reads it")
        placed = Placed(
            self.graph.name, self.graph.inputs, tuple(outputs), tuple(self.nodes), self.values, self.literals
        )
        return placed, tuple(self.history)

    def _check_slices(self) -> None:
        """LayoutError for a value that comes through an LM in more time slices than may be."""
        most = self.options.most_slices
        for name, value in self.values.items() if most is not None else ():
            slices = value.image.slices
            if most is not None and slices > most:
                raise LayoutError(
                    f"{name} has {slices:,} time slices in {value.layout}, and CODEGEN_MAX_TIME_SLICE allows {most:,}; set it to "
                    f"{slices:,} or more, or make the value smaller"
                )

    def _may_wait(self, node: Node) -> bool:
        """Whether an elementwise node has no reason to lie anywhere yet, as nobody has placed its inputs. It is planned when
        its result is wanted, and its operands lie as that then does: state of an optimizer like its gradient."""
        if self.options.pins.output(node.op, self.shape(node.outputs[0])) is not None:
            return False
        if node.outputs[0] in self.graph.outputs or node.outputs[0] in self.options.fixed:
            return False
        out, operands = node.outputs[0], [name for name in node.inputs if name]
        if node.op in RESHAPES:
            operands = operands[:1]
        free = [n for n in operands if self.free(n) or n in self.waiting]
        self.chain[out] = 1 + max((self.chain[n] for n in free if n in self.waiting), default=0)
        if self.chain[out] > LONGEST_WAIT:
            return False
        same = self._same_but_ones if node.op in RESHAPES else lambda n, out: self.shape(n) == self.shape(out)
        alike = any(same(n, out) for n in free)
        others = all(self.is_constant(n) or n in free or self.value(n).size == 1 for n in operands)
        kept = self.result_dtype(node.op, operands, out) == self.device_dtype(out)
        kinds = {self.device_dtype(n) for n in (*free, out)}
        return alike and others and kept and (len(kinds) == 1 or kinds == {"int", self.base})

    def _same_but_ones(self, name: str, other: str) -> bool:
        """Whether shapes are equal but for axes of one element."""
        a, b = self.shape(name), self.shape(other)
        return [n for n in a if n != 1] == [n for n in b if n != 1]

    def _settle(self, name: str, scheme: Scheme | None) -> None:
        """Plan a node that waits, its result in a scheme if that is known."""
        from mlsdk.pipeline.layout.rules import rule_of

        node = self.options.pins.switched(self, self.waiting.pop(name))
        scheme = scheme.plain if scheme is not None else None
        if scheme is not None and not scheme.copies:
            for operand in filter(None, node.inputs[:1] if node.op in RESHAPES else node.inputs):
                unplaced = self.free(operand) or operand in self.waiting
                shape = self.shape(operand)
                if (
                    unplaced
                    and self._same_but_ones(operand, name)
                    and (node.op in RESHAPES or shape == self.shape(name))
                ):
                    there = scheme if shape == self.shape(name) else scheme.reshape(self.shape(name), shape)
                    if there is not None:
                        self.want(operand, there, reason=f"like the result of {node.op}")
        rule = rule_of(node, self)
        assert rule is not None
        rule(self, node)

    def _known(self, node: Node) -> bool:
        """Results without elements, and results of operations on none, are constants; the board computes nothing for them."""
        from mlsdk.pipeline.layout.rules import data_inputs

        outputs = [o for o in node.outputs if o]
        empty = [n for n in data_inputs(node) if n and self.value(n).size == 0]
        if all(self.value(o).size == 0 for o in outputs):
            for name in outputs:
                self.literal(name, np.zeros(self.shape(name), self.value(name).dtype))
            return True
        if not empty or node.op == "Concat":
            return False
        free = () if node.op in ("MatMul", "Gemm") else empty  # a product over no lanes depends on no factor
        arrays = []
        for position, name in enumerate(node.inputs):
            if name in self.graph.constants or not name:
                arrays.append(self.graph.constants[name] if name else None)
            elif name in empty or (not free and position < 2):
                arrays.append(np.zeros(self.shape(name), self.value(name).dtype))
            else:
                raise NotOnBoard(f"its operand {empty[0]} has no elements")
        for name, array in zip(outputs, run_operator(node, arrays)):
            # the mean of nothing is 0 / 0, of which the board makes +inf; the sign of a NaN means nothing
            self.literal(
                name, np.where(np.isnan(array), array.dtype.type(np.inf), array) if array.dtype.kind == "f" else array
            )
        return True

    def _output(self, name: str) -> str:
        """Outputs are values of nodes, and lie where the Context wants them if it says so."""
        found, wanted = self._computed(name), self.options.fixed.get(name)
        if wanted is None or name in self.graph.inputs or not self.value(found).size:
            return found
        if isinstance(wanted, str):
            if wanted not in self.values:
                self._place(wanted, self.default(wanted), "no node reads it before it is written")
            place = self.values[wanted]
            wanted = Fixed(place.layout, place.device_dtype, place.scheme)
        return self._brought(found, wanted)

    def _brought(self, name: str, wanted: Fixed) -> str:
        """A value in a certain dtype and layout, its padding zero."""
        from mlsdk.pipeline.layout.rules import cast_to

        if self.values[name].device_dtype != wanted.device_dtype:
            name = cast_to(self, name, wanted.device_dtype)
        current = self.values[name]
        if current.layout == wanted.layout and (current.pad == ZERO or current.image.full or self._cleared(name)):
            return name
        return self._switch(current, wanted.layout, wanted.scheme, "placed by the Context", clean=True)

    def _computed(self, name: str) -> str:
        """An input, a constant or a view of one is copied."""
        base = name
        while base in self.base_of:
            base = self.base_of[base]
        if name not in self.values:
            self._place(name, self.default(name), "an output that no node computes")
        if self.values[base].origin == "node" and name in self.values:
            return name
        value = self.values[name]
        copy = self.fresh(f"{name}.copy")
        self.shown[copy] = Value(copy, value.dtype, value.shape)
        self._add(PlacedNode(Node(self.fresh(f"Copy_{name}"), "Identity", (name,), (copy,)), "copy"))
        self.values[copy] = replace(value, name=copy, origin="node", data="")
        return copy

    # ---- questions --------------------------------------------------------------------------------------------

    def value(self, name: str) -> Value:
        return self.shown[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.shown[name].shape

    def data(self, name: str) -> np.ndarray | None:
        """The data of a constant."""
        found = self.literals.get(name)
        return self.graph.constants.get(name) if found is None else found

    def is_constant(self, name: str) -> bool:
        known = name in self.graph.constants or name in self.literals
        return known or (name in self.values and self.values[name].origin == "constant")

    def scheme_of(self, name: str) -> Scheme | None:
        return self.values[name].scheme if name in self.values else None

    def placed(self, name: str) -> PlacedValue | None:
        return self.values.get(name)

    def free(self, name: str) -> bool:
        """An input that may still be placed anywhere, in any dtype of its kind."""
        return name in self.graph.inputs and name not in self.values

    def device_dtype(self, name: str) -> str:
        if name in self.values:
            return self.values[name].device_dtype
        dtype = DEVICE_DTYPE.get(self.shown[name].dtype, self.base)
        if dtype == "single" and self.halves and name in self.options.fed and self._rounded(name):
            return "half"
        return dtype

    def wish(self, name: str) -> Scheme | None:
        """Where a result is to lie, if anybody said so."""
        pin = self.options.pins.output(self.maker[name], self.shape(name)) if name in self.maker else None
        if pin is not None:
            dtype = self.device_dtype(name)
            return scheme_of(pin, dtype, "half" if dtype == "single" and self.halves else dtype)
        wished, shape = self.options.wishes.get(name), self.shape(name)
        if wished is None or len(wished.axes) != len(shape):
            return None  # another plan may have had another value of this name
        return wished if all(have >= n for have, n in zip(wished.extents, shape)) else None

    def way(self, name: str, ways: Sequence[T]) -> T:
        """The way to take to a result, of those that its rule knows; the rule's own choice stands first."""
        self.ways[name] = len(ways)
        return ways[self.options.ways.get(name, 0) % len(ways)]

    def default(self, name: str) -> Scheme:
        shape = self.shape(name)
        if 0 in shape:
            return Scheme(((),) * len(shape))
        return spread(shape, choose_lane(shape))

    def fresh(self, name: str) -> str:
        found, n = name, 1
        while found in self.names:
            n += 1
            found = f"{name}.{n}"
        self.names.add(found)
        return found

    # ---- decisions --------------------------------------------------------------------------------------------

    def want(self, name: str, scheme: Scheme, dtype: str | None = None, reason: str = "", clean: bool = False) -> str:
        """`clean`: if it has to be laid out anew, then with zeros in the padding."""
        return self._numbered(self._want(name, scheme, None, dtype, reason, clean), scheme)

    def want_layout(self, name: str, layout: Layout, dtype: str | None = None, reason: str = "") -> str:
        return self._want(name, None, layout, dtype, reason)

    def _numbered(self, name: str, scheme: Scheme) -> str:
        """A value that lies as `scheme` says, seen in that scheme: another of the same layout may number its digits otherwise."""
        if self.values[name].scheme == scheme:
            return name
        key = (name, str(scheme), "seen")
        if key not in self.switched:
            seen = self.fresh(f"{name}.seen")
            self.shown[seen] = replace(self.shown[name], name=seen)
            node = Node(self.fresh(f"See_{name}"), "Identity", (name,), (seen,))
            self.view(node, name, scheme)
            self.switched[key] = seen
        return self.switched[key]

    def _want(
        self,
        name: str,
        scheme: Scheme | None,
        layout: Layout | None,
        dtype: str | None,
        reason: str,
        clean: bool = False,
    ) -> str:
        dtype = dtype or self.device_dtype(name)
        goal = layout if layout is not None else scheme.layout(dtype)  # type: ignore[union-attr]
        if name in self.waiting:
            self._settle(name, scheme)
        current = self.values.get(name)
        if current is not None and current.layout == goal and current.device_dtype == dtype:
            return name
        if name in self.graph.constants or name in self.literals:
            return self._constant_copy(name, goal, scheme, dtype, reason)
        if current is None:
            wished = self.wish(name)
            if wished is None or wished == scheme:
                self.place_input(name, goal, scheme, dtype, reason)
                return name
            self.place_input(name, wished.layout(dtype), wished, dtype, "a wish")
            current = self.values[name]
        key = (name, str(goal), dtype)
        if key not in self.switched:
            if current.device_dtype != dtype:
                raise LayoutError(f"{name} is {current.device_dtype} on the board and wanted as {dtype}; cast it")
            self.switched[key] = self._switch(current, goal, scheme, reason, clean=clean or scheme is None)
        return self.switched[key]

    def _place(self, name: str, scheme: Scheme, reason: str) -> None:
        if name in self.graph.constants or name in self.literals:
            dtype = self.device_dtype(name)
            self.values[name] = replace(self._constant_value(name, scheme.layout(dtype), scheme, dtype), name=name)
        else:
            self.place_input(name, scheme.layout(self.device_dtype(name)), scheme, self.device_dtype(name), reason)

    def place_input(self, name: str, layout: Layout, scheme: Scheme | None, dtype: str, reason: str) -> None:
        value = self.shown[name]
        if value.size:
            layout.check(value.shape, dtype, name)
        self.values[name] = PlacedValue(name, value.dtype, value.shape, dtype, layout, scheme, ZERO, "input")
        self.history.append(Event(name, str(layout), reason))

    def _constant_value(self, name: str, layout: Layout, scheme: Scheme | None, dtype: str) -> PlacedValue:
        value = self.shown[name]
        return PlacedValue(name, value.dtype, value.shape, dtype, layout, scheme, ZERO, "constant", name)

    def _constant_copy(self, name: str, layout: Layout, scheme: Scheme | None, dtype: str, reason: str) -> str:
        """Constants are stored once for each layout in which they are wanted."""
        key = (name, str(layout), dtype)
        if key not in self.switched:
            copy = name if name not in self.values else self.fresh(f"{name}.as")
            self.shown[copy] = replace(self.shown[name], name=copy)
            self.values[copy] = replace(self._constant_value(name, layout, scheme, dtype), name=copy)
            self.switched[key] = copy
            self.history.append(Event(copy, str(layout), reason))
        return self.switched[key]

    def new_constant(self, name: str, data: np.ndarray) -> str:
        """A constant of the planner's own; it lies nowhere until someone wants it."""
        name = self.fresh(name)
        self.shown[name] = Value(name, str(data.dtype), data.shape)
        self.literals[name] = data
        return name

    def seen_as(self, name: str, other: str) -> None:
        """`other`, a temporary of as many elements, as the same value in another shape."""
        data = self.data(name)
        if data is not None:
            self.literals[other] = data.reshape(self.shape(other))
            return
        from mlsdk.pipeline.layout.moving import reshape

        reshape(self, Node(self.fresh(f"{other}.as"), "Reshape", (name,), (other,)))

    def literal(self, name: str, data: np.ndarray) -> None:
        """A result that is known now."""
        scheme, dtype = self.default(name), self.device_dtype(name)
        self.literals[name] = data
        self.values[name] = self._constant_value(name, scheme.layout(dtype), scheme, dtype)
        self.history.append(Event(name, str(scheme.layout(dtype)), "known when the function was compiled"))

    def _switch(self, current: PlacedValue, layout: Layout, scheme: Scheme | None, reason: str, clean: bool) -> str:
        """A switch node; `clean`: its padding is made zero, as streamed weights need it."""
        name = self.fresh(f"{current.name}.switched")
        self.shown[name] = Value(name, current.dtype, current.shape)
        layout.check(current.shape, current.device_dtype, name)
        placed = replace(current, name=name, layout=layout, scheme=scheme, pad=ANY, origin="node", data="")
        self.values[name] = replace(placed, pad=ZERO) if clean or placed.image.full else placed
        node = Node(
            self.fresh(f"Switch_{current.name}"), "MNCoreLayoutSwitch", (current.name,), (name,), {"clean": int(clean)}
        )
        self._add(PlacedNode(node, "move"))
        self.history.append(Event(name, str(layout), reason or "a switch"))
        return name

    def put(
        self,
        node: Node,
        emitter: str,
        inputs: Sequence[str],
        schemes: Sequence[Scheme],
        *,
        dtypes: Sequence[str] | None = None,
        pad: str = ANY,
        kernel: str = "",
        batches: int = 1,
        reason: str = "",
    ) -> None:
        """Add `node` reading `inputs` (as they were placed), its results in these schemes and dtypes."""
        names = [o for o in node.outputs if o]
        for i, (name, scheme) in enumerate(zip(names, schemes)):
            value = self.shown[name]
            dtype = dtypes[i] if dtypes else self.device_dtype(name)
            layout = scheme.layout(dtype).check(value.shape, dtype, name)
            found = PlacedValue(name, value.dtype, value.shape, dtype, layout, scheme, pad)
            nothing = found.image.full or (pad == LANES and scheme.only_lanes_padded(value.shape, dtype))
            self.values[name] = replace(found, pad=ZERO) if nothing else found
            self.history.append(Event(name, str(layout), reason or f"result of {node.op}"))
        placed = PlacedNode(replace(node, inputs=tuple(inputs)), emitter, kernel, batches)
        self._add(placed)
        self.made |= dict.fromkeys(names, placed)

    def _add(self, placed: PlacedNode) -> None:
        self.nodes.append(placed)
        self.read.update(placed.node.inputs)

    def withdraw(self, placed: PlacedNode, name: str, into: Node) -> None:
        """Take a node out again whose one result another computes on its way."""
        place = next(i for i in range(len(self.nodes) - 1, -1, -1) if self.nodes[i] is placed)
        del self.nodes[place]
        del self.made[name], self.values[name]
        self.history.append(Event(name, "", f"computed within {into.name}"))

    def view(self, node: Node, name: str, scheme: Scheme | None, layout: Layout | None = None) -> None:
        """The node's result is its input seen in another way: it lies in the same place."""
        source, result = self.values[name], self.shown[node.outputs[0]]
        where = layout if layout is not None else scheme.layout(source.device_dtype)  # type: ignore[union-attr]
        seen = replace(source, name=result.name, dtype=result.dtype, shape=result.shape, layout=where, scheme=scheme)
        # the data of a constant is packed once, in the constant's own shape
        self.values[result.name] = replace(seen, origin="node", data="") if seen.origin == "constant" else seen
        self.base_of[result.name] = name
        self._add(PlacedNode(replace(node, inputs=(name,)), VIEW))
        self.history.append(Event(result.name, str(where), f"a view of {name}"))

    def result_dtype(self, op: str, operands: Sequence[str], out: str) -> str:
        """The device dtype of a result: with half operands for products, half also where that loses nothing, because the
        operator only chooses between halves, or because only products read the result."""
        dtype = self.device_dtype(out)
        if dtype != "single" or not self.halves:
            return dtype
        chosen = op in CHOOSES and all(self.device_dtype(name) == "half" for name in operands)
        if op in MASKS:
            masked = [name for name in operands[MASKS[op] :] if not self._masks(name)]
            chosen = len(masked) == 1 and self.device_dtype(masked[0]) == "half"
        return "half" if chosen or self._rounded(out) else dtype

    def _masks(self, name: str) -> bool:
        """Whether a value is a constant of nothing but zeros and infinities, which add to a half without rounding."""
        data = self.data(name)
        return data is not None and data.dtype.kind == "f" and bool(((data == 0) | np.isinf(data)).all())

    def _rounded(self, name: str) -> bool:
        """Whether all that reads a value of the graph rounds it to half."""
        readers = self.readers.get(name, [])
        return (
            bool(readers)
            and name not in self.graph.outputs
            and name not in self.options.fixed
            and all(
                name not in node.inputs[2:]
                and (node.op in PRODUCTS or (node.op in CHOOSES | MOVES and self._rounded(node.outputs[0])))
                for node in readers
            )
        )

    def rounded(self, name: str) -> str:
        """The singles of a value as halves, rounded once however many ask."""
        from mlsdk.pipeline.layout.rules import cast_to

        if name not in self._halves:
            self._halves[name] = cast_to(self, name, "half")
        return self._halves[name]

    def apply(
        self,
        like: Node,
        op: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        *,
        out: str = "",
        dtype: str = "",
        **attrs: Any,
    ) -> str:
        """Plan one more node, a part of `like`: its result's name. `out`: the name to give it."""
        from mlsdk.pipeline.layout.rules import rule_of

        out = out or self.temporary(inputs[0], shape, dtype)
        node = Node(self.fresh(f"{like.name}.{op}"), op, tuple(inputs), (out,), attrs, like.source, like.scope)
        rule = rule_of(node, self)
        assert rule is not None, op
        if not self._known(node):
            rule(self, node)
        return out

    def clean(self, name: str, reason: str = "") -> str:
        """The value with zeros in the lanes beyond its lane axis."""
        value = self.values[name]
        lane = value.scheme.lane if value.scheme is not None else None
        if value.pad in (ZERO, LANES) or value.image.full or (lane is not None and value.shape[lane] % BLOCK == 0):
            return name
        if self._cleared(name):
            return name
        return self._switch(value, value.layout, value.scheme, reason or "zeros in the padding", clean=True)

    def _cleared(self, name: str) -> bool:
        """Let the elementwise node that makes a value clear the lanes beyond its lane axis, if nothing else is padding."""
        value, made = self.values[name], self.made.get(name)
        scheme = value.scheme
        if made is None or made.emitter != "elementwise" or scheme is None or in_last_block(scheme) is None:
            return False
        if not scheme.only_lanes_padded(value.shape, value.device_dtype):
            return False
        clear = replace(made, node=replace(made.node, attrs={**made.node.attrs, "clean": 1}))
        self.nodes[next(i for i, p in enumerate(self.nodes) if p is made)] = clear
        self.made[name], self.values[name] = clear, replace(value, pad=ZERO)
        self.history.append(Event(name, str(value.layout), "cleared beyond its lanes"))
        return True

    def temporary(self, like: str, shape: Sequence[int], dtype: str = "") -> str:
        """A new value's name, for rules that make several nodes of one."""
        name = self.fresh(f"{like}.part")
        self.shown[name] = Value(name, dtype or self.shown[like].dtype, tuple(shape))
        return name
