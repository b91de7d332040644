"""Operators that only rearrange elements: which element of the result is which element of the inputs.

Inputs that say how (shapes, pads, indices) are constants, and stand in the node's attributes as `input1`, `input2`, ..
Most operators choose along each axis on its own (`Take`); the others have a map of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from mlsdk.pipeline.ir.bits import to_bits
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.move import emit_move
from mlsdk.pipeline.ops.emitters.places import Map, SourceOf, Take
from mlsdk.pipeline.ops.indexing import from_start, nd_place, place
from mlsdk.pipeline.ops.shape import PAD_MODES, pad_widths
from mlsdk.pipeline.ops.shape import slices as python_slices
from mlsdk.pipeline.ops.table import attributes

Shape = tuple[int, ...]
Rule = Callable[[Node, Sequence[Shape], Shape], Map]


def emit_rearrange(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    sources = [t for t in call.inputs if t is not None]
    out = call.outputs[0]
    source_of = MAPS[call.node.op](call.node, [t.shape for t in sources], out.shape)
    fill = call.node.attrs.get("input2") if call.node.op == "Pad" else None
    bits = int(to_bits(np.asarray(fill).reshape(1), out.dtype)[0]) if fill is not None else 0
    return emit_move(sources, out, source_of, clean=bool(call.node.attrs.get("clean", 0)), fill=bits)


def parameter(node: Node, index: int) -> list[int] | None:
    """The integers of a constant input; None if it is absent."""
    found = node.attrs.get(f"input{index}")
    return None if found is None else [int(x) for x in np.atleast_1d(np.asarray(found))]


# ---- along each axis on its own -----------------------------------------------------------------------------------


def slices(node: Node, shape: Shape, out: Shape) -> Take:
    starts, ends, axes, steps = (parameter(node, i) for i in (1, 2, 3, 4))
    cut = python_slices(shape, starts or [], ends or [], axes, steps)
    return Take.along(shape, tuple(np.arange(n)[part] for n, part in zip(shape, cut)))


def expand(node: Node, shape: Shape, out: Shape) -> Take:
    full = (1,) * (len(out) - len(shape)) + tuple(shape)
    return Take.along(shape, [np.arange(n) if have == n else np.zeros(n, np.int64) for have, n in zip(full, out)])


def tile(node: Node, shape: Shape, out: Shape) -> Take:
    return Take.along(shape, tuple(np.arange(n) % max(have, 1) for have, n in zip(shape, out)))


def pad(node: Node, shape: Shape, out: Shape) -> Take:
    mode = attributes(node)["mode"]
    widths = pad_widths(len(shape), parameter(node, 1) or [], parameter(node, 3))
    tables = []
    for n, (before, after) in zip(shape, widths):
        index = np.arange(n)[max(-before, 0) : n - max(-after, 0)]
        grow = (max(before, 0), max(after, 0))
        if mode == "constant":
            tables.append(np.pad(index, grow, constant_values=-1))
        else:
            tables.append(np.pad(index, grow, mode=PAD_MODES[mode]))  # type: ignore[call-overload]
    return Take.along(shape, tuple(tables))


def gather(node: Node, shape: Shape, out: Shape) -> Take:
    axis = attributes(node)["axis"] % len(shape)
    indices = from_start(np.asarray(node.attrs["input1"]), shape[axis], node.name).reshape(-1)
    return Take.along(shape, tuple(indices if a == axis else np.arange(n) for a, n in enumerate(shape)))


TAKES: dict[str, Callable[[Node, Shape, Shape], Take]] = {
    "Slice": slices,
    "Expand": expand,
    "Tile": tile,
    "Pad": pad,
    "Gather": gather,
}


def _taken(node: Node, shapes: Sequence[Shape], out: Shape) -> Map:
    """The fill of a Pad may be a second input."""
    return [TAKES[node.op](node, shapes[0], out), *(_everywhere(out) for _ in shapes[1:])]


def _everywhere(out: Shape) -> Take:
    """The only element of an input, at every place."""
    return Take.along((), [np.zeros(n, np.int64) for n in out])


# ---- the others ---------------------------------------------------------------------------------------------------


def same_order(node: Node | None, shapes: Sequence[Shape], out: Shape) -> Map:
    """Flat element i of the result is flat element i of the input."""
    return [Take.same(out)]


def concat(node: Node, shapes: Sequence[Shape], out: Shape) -> Map:
    axis, at = int(attributes(node)["axis"]) % len(out), 0
    takes = []
    for shape in shapes:
        mine = np.full(out[axis], -1)
        mine[at : at + shape[axis]] = np.arange(shape[axis])
        takes.append(Take.along(shape, [mine if a == axis else np.arange(n) for a, n in enumerate(out)]))
        at += shape[axis]
    return takes


def depth_to_space(node: Node, shapes: Sequence[Shape], out: Shape) -> Map:
    (n, c, h, w), size = shapes[0], attributes(node)["blocksize"]
    depth = c // size**2
    if attributes(node)["mode"] == "DCR":
        return [Take.permuted((n, size, size, depth, h, w), (0, 3, 4, 1, 5, 2))]
    return [Take.permuted((n, depth, size, size, h, w), (0, 1, 4, 2, 5, 3))]


def space_to_depth(node: Node, shapes: Sequence[Shape], out: Shape) -> Map:
    (n, c, h, w), size = shapes[0], attributes(node)["blocksize"]
    order = (0, 3, 5, 1, 2, 4) if attributes(node)["mode"] == "DCR" else (0, 1, 3, 5, 2, 4)
    return [Take.permuted((n, c, h // size, size, w // size, size), order)]


def trilu(node: Node, shapes: Sequence[Shape], out: Shape) -> SourceOf:
    rows, columns = out[-2:]
    shift = (parameter(node, 1) or [0])[0]
    upper = bool(attributes(node)["upper"])

    def source_of(element: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        distance = element % columns - element // columns % rows
        kept = distance >= shift if upper else distance <= shift
        return np.zeros_like(element), np.where(kept, element, -1)

    return source_of


def _looked_up(number: np.ndarray, table: np.ndarray) -> SourceOf:
    return lambda element: (number[element], table[element])


def _by_table(table: np.ndarray) -> SourceOf:
    return lambda element: (np.zeros_like(element), table[element])


def _numbered(shape: Shape) -> np.ndarray:
    return np.arange(prod(shape)).reshape(shape)


def gather_elements(node: Node, shapes: Sequence[Shape], out: Shape) -> SourceOf:
    shape = shapes[0]
    axis = attributes(node)["axis"] % len(shape)
    indices = from_start(np.asarray(node.attrs["input1"]), shape[axis], node.name)
    return _by_table(_numbered(shape)[place(indices, axis)].reshape(-1))


def gather_nd(node: Node, shapes: Sequence[Shape], out: Shape) -> SourceOf:
    numbers, indices = _numbered(shapes[0]), np.asarray(node.attrs["input1"])
    index = nd_place(numbers, indices, attributes(node)["batch_dims"], node.name)
    found = numbers[index] if index else np.broadcast_to(numbers, (*indices.shape[:-1], *numbers.shape))
    return _by_table(np.ascontiguousarray(found).reshape(-1))


def scatter_elements(node: Node, shapes: Sequence[Shape], out: Shape) -> SourceOf:
    axis = attributes(node)["axis"] % len(out)
    indices = from_start(np.asarray(node.attrs["input1"]), out[axis], node.name)
    return _scattered(out, place(indices, axis), indices.shape)


def scatter_nd(node: Node, shapes: Sequence[Shape], out: Shape) -> SourceOf:
    indices = np.asarray(node.attrs["input1"])
    index = nd_place(np.empty(out, bool), indices, 0, node.name)
    if not index:  # each update is a whole result, and the last one stays
        size = prod(out)
        return lambda element: (np.ones_like(element), element + size * (prod(indices.shape[:-1]) - 1))
    return _scattered(out, index, (*indices.shape[:-1], *out[indices.shape[-1] :]))


def paste(node: Node, shapes: Sequence[Shape], out: Shape) -> Map:
    """Two inputs: what the leading corner becomes, and a tensor."""
    box = [np.where(np.arange(n) < inside, np.arange(n), -1) for n, inside in zip(out, shapes[0])]
    return [Take.along(shapes[0], box), Take.same(out)]


def _scattered(out: Shape, index: tuple[np.ndarray, ...], updates: Shape) -> SourceOf:
    """Two inputs: what was there, and updates of which the last one to a place stays."""
    table = np.full(out, -1, np.int64)
    table[index] = _numbered(updates)
    table = table.reshape(-1)
    written = table >= 0
    return _looked_up(written.astype(np.int64), np.where(written, table, np.arange(table.size)))


MAPS: dict[str, Rule] = {
    "MNCoreLayoutSwitch": same_order,
    "Reshape": same_order,
    "Flatten": same_order,
    "Squeeze": same_order,
    "Unsqueeze": same_order,
    **dict.fromkeys(TAKES, _taken),
    "Concat": concat,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
    "Trilu": trilu,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Paste": paste,
}
