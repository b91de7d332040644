"""Layouts that a user pins: the entries of the options layout_spec and gemm_layout_spec.

    layout_spec       {"trigger": "SwitchInput" | "FixOutput", "op_type": "Add", "shape": [128, 256], "layout": "((..),(..))"}
    gemm_layout_spec  {"key": "embed_tokens", "A": "..", "BT": "..", "C": ".."}

SwitchInput: before a node of that operator, an operand of that shape is brought to the layout. FixOutput: the node's result of
that shape lies so. `key` is a part of the name of the product's weights; of A, BT (the weights, transposed) and C those that
are given have to be what the product works with. An entry that nothing of the graph fits is an error, unless unused ones are
allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlsdk.errors import LayoutError
from mlsdk.pipeline.ir.layout import EXTENT, Layout
from mlsdk.pipeline.ir.scheme import Scheme

if TYPE_CHECKING:
    from mlsdk.pipeline.ir.graph import Node
    from mlsdk.pipeline.layout.planner import Planner

SWITCH, FIX = "SwitchInput", "FixOutput"


@dataclass(frozen=True)
class Pin:
    """An entry of layout_spec."""

    trigger: str
    op: str
    shape: tuple[int, ...]
    layout: Layout

    def __str__(self) -> str:
        return f"layout_spec {self.trigger} {self.op} {list(self.shape)}"


@dataclass(frozen=True)
class GemmPin:
    """An entry of gemm_layout_spec; None: not given."""

    key: str
    a: Layout | None = None
    bt: Layout | None = None
    c: Layout | None = None

    def __str__(self) -> str:
        return f"gemm_layout_spec {self.key}"

    def allows(self, a: Layout, c: Layout) -> bool:
        """Whether A and C may lie so."""
        pairs = ((self.a, a), (self.c, c))
        return all(wanted is None or same(wanted, have) for wanted, have in pairs)


@dataclass
class Pins:
    """All entries; `used` are those that fitted something. `unused_allowed`: the others are no error."""

    pins: tuple[Pin, ...] = ()
    gemms: tuple[GemmPin, ...] = ()
    unused_allowed: bool = False
    used: set[Any] = field(default_factory=set)

    def output(self, op: str, shape: Sequence[int]) -> Pin | None:
        """Where the result of a node is to lie."""
        return self._found(FIX, op, shape)

    def gemm(self, weights: str) -> GemmPin | None:
        """What is said of the product with these weights."""
        found = next((pin for pin in self.gemms if pin.key in weights), None)
        if found is not None:
            self.used.add(found)
        return found

    def touch(self, planner: Planner, node: Node) -> bool:
        """Whether an entry speaks of where a node's operands or its result lie."""
        inputs = {planner.shape(name) for name in node.inputs if name}
        outputs = {planner.shape(name) for name in node.outputs if name}
        return any(
            pin.op == node.op and pin.shape in (inputs if pin.trigger == SWITCH else outputs) for pin in self.pins
        )

    def _found(self, trigger: str, op: str, shape: Sequence[int]) -> Pin | None:
        wanted = (trigger, op, tuple(shape))
        found = next((pin for pin in self.pins if (pin.trigger, pin.op, pin.shape) == wanted), None)
        if found is not None:
            self.used.add(found)
        return found

    def switched(self, planner: Planner, node: Node) -> Node:
        """The node with its operands where they are pinned. Constants that say how it works stay."""
        from dataclasses import replace

        names = list(node.inputs)
        for i, name in enumerate(names):
            if name and planner.data(name) is None:
                pin = self._found(SWITCH, node.op, planner.shape(name))
                if pin is not None:
                    scheme = scheme_of(pin, planner.device_dtype(name))
                    names[i] = planner.want(name, scheme, reason=str(pin))
        return replace(node, inputs=tuple(names))

    def check(self, planner: Planner, node: Node) -> None:
        """Raise LayoutError where a result does not lie as it is pinned, for its rule cannot leave it so."""
        for name in filter(None, node.outputs):
            pin = self.output(node.op, planner.shape(name))
            value = planner.placed(name)
            if pin is None or value is None:
                continue
            if not same(value.layout, pin.layout):
                raise LayoutError(
                    f"{pin}: {node.name} leaves its result in {value.layout}, not in {pin.layout}; pin the operand of the "
                    f"node that reads it ({SWITCH})"
                )

    def finish(self) -> None:
        """Raise LayoutError for entries that nothing fitted."""
        idle = [str(pin) for pin in (*self.pins, *self.gemms) if pin not in self.used]
        if idle and not self.unused_allowed:
            raise LayoutError(
                f"{', '.join(idle)}: nothing of the graph fits; see op_type and shapes in model.onnx, or set "
                "CODEGEN_ALLOW_UNUSED_LAYOUT_SPEC=1"
            )


def pins_of(layouts: Sequence[Mapping[str, Any]], gemms: Sequence[Mapping[str, Any]], unused_allowed: bool) -> Pins:
    """The entries as the options give them. LayoutError names an entry that is wrong."""
    found, products = [], []
    for place, entry in enumerate(layouts):
        where = f"layout_spec, entry {place}"
        _members(where, entry, ("trigger", "op_type", "shape", "layout"), ("trigger", "op_type", "shape", "layout"))
        if entry["trigger"] not in (SWITCH, FIX):
            raise LayoutError(f"{where}: trigger is {entry['trigger']!r}; write {SWITCH!r} or {FIX!r}")
        shape = entry["shape"]
        if not isinstance(shape, (list, tuple)) or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise LayoutError(f"{where}: shape is {shape!r:.60}; write a list of whole numbers")
        found.append(Pin(entry["trigger"], str(entry["op_type"]), tuple(shape), _layout(where, entry["layout"])))
    for place, entry in enumerate(gemms):
        where = f"gemm_layout_spec, entry {place}"
        _members(where, entry, ("key",), ("key", "A", "BT", "C"))
        given = [_layout(where, entry[name]) if entry.get(name) else None for name in ("A", "BT", "C")]
        products.append(GemmPin(str(entry["key"]), *given))
    return Pins(tuple(found), tuple(products), unused_allowed)


def _members(where: str, entry: Mapping[str, Any], needed: Sequence[str], known: Sequence[str]) -> None:
    missing = [name for name in needed if name not in entry]
    unknown = [name for name in entry if name not in known]
    if missing or unknown:
        raise LayoutError(f"{where}: {'missing ' + ', '.join(missing) if missing else 'unknown ' + ', '.join(unknown)}; "
                          f"write an object of {', '.join(known)}")  # fmt: skip


def _layout(where: str, text: Any) -> Layout:
    if not isinstance(text, str):
        raise LayoutError(f"{where}: a layout is a text like '((8_L2B:1),(4_PE:1,4_W:1))', not {text!r:.60}")
    try:
        return Layout.parse(text)
    except LayoutError as error:
        raise LayoutError(f"{where}: {error}") from None


def scheme_of(pin: Pin, *dtypes: str) -> Scheme:
    """The scheme of a pinned layout, for the first of some device dtypes that it is a layout of. LayoutError says what the first
    makes of it."""
    wrong: list[LayoutError] = []
    for dtype in dict.fromkeys(dtypes):
        try:
            return Scheme.of(pin.layout.check(pin.shape, dtype), dtype)
        except LayoutError as error:
            wrong.append(error)
    raise LayoutError(f"{pin}: {wrong[0]}") from None


def same(one: Layout, other: Layout) -> bool:
    """Whether two layouts say the same, their copies in any order."""

    def plain(layout: Layout):
        axes = tuple(tuple(s for s in axis if s.n > 1) for axis in layout.axes)
        return axes, sorted((s.level, s.n or EXTENT.get(s.level, 0), s.stride) for s in layout.broadcast if s.n != 1)

    return plain(one) == plain(other)
