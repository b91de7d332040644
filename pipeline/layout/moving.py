"""The planner's rules for operators that only rearrange elements: views where nothing has to move, moves elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mlsdk.errors import LayoutError
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ir.placed import ANY, ZERO
from mlsdk.pipeline.ir.planes import Plane, plane_scheme
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL, Digit, Scheme
from mlsdk.pipeline.ops.shape import split_sizes
from mlsdk.pipeline.ops.table import attributes
from mlsdk.pipeline.ops.table import run as run_operator

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

Rule = Callable[["Planner", Node], None]


def anywhere(planner: Planner, name: str) -> str:
    """The value where it lies; in the default scheme if nobody placed it yet."""
    if planner.placed(name) is None:
        return planner.want(name, planner.wish(name) or planner.default(name), reason="first use")
    return name


#: addresses of a copied value up to which every PE computes with its own: to share the work out and back takes more steps
FEW = 8


def reshape(planner: Planner, node: Node) -> None:
    source, out = anywhere(planner, node.inputs[0]), node.outputs[0]
    scheme = planner.scheme_of(source)
    view = scheme.plain.reshape(planner.shape(source), planner.shape(out)) if scheme is not None else None
    if view is not None and (not view.copies or view.addresses("single") <= FEW):
        planner.view(node, source, view)
    else:
        move(planner, node)


def transpose(planner: Planner, node: Node) -> None:
    source = anywhere(planner, node.inputs[0])
    rank = len(planner.shape(source))
    perm = tuple(attributes(node).get("perm") or range(rank - 1, -1, -1))
    value = planner.values[source]
    scheme = value.scheme.permute(perm) if value.scheme is not None else None
    planner.view(
        replace(node, attrs={**node.attrs, "perm": perm}),
        source,
        scheme,
        value.layout.transpose(perm) if scheme is None else None,
    )


def window_slice(
    planner: Planner, node: Node, x: str, starts: Sequence[int], counts: Sequence[int], steps: Sequence[int]
) -> str:
    """`counts` elements of each spatial axis, `steps` apart."""
    shape = planner.shape(x)
    if tuple(shape[2:]) == tuple(counts):
        return x
    ends = [start + (count - 1) * step + 1 for start, count, step in zip(starts, counts, steps)]
    numbers = (starts, ends, range(2, len(shape)), steps)
    inputs = [x, *(planner.new_constant(f"{node.name}.cut", np.array(list(v), np.int64)) for v in numbers)]
    return planner.apply(node, "Slice", inputs, (*shape[:2], *counts))


def move(planner: Planner, node: Node) -> None:
    """Any rearrangement of elements: the result in its default scheme. Inputs that only parametrise it stay constants."""
    count = MOVED[node.op](node)
    parameters = {}
    for i, name in enumerate(node.inputs[count:]):
        data = planner.data(name) if name else None
        if name and data is None:
            raise LayoutError(
                f"{node.name}: {name}, which says how {node.op} moves its input, is computed at run time; make it constant"
            )
        if data is not None:
            parameters[f"input{count + i}"] = data
    moved(planner, node, node.inputs[:count], parameters)


def moved(planner: Planner, node: Node, inputs: Sequence[str], parameters: Mapping[str, np.ndarray]) -> None:
    """A move of `inputs` (those that have elements), brought to one dtype."""
    present = [name for name in inputs if name and planner.value(name).size]
    placed = one_dtype(planner, present)
    dtype, out = planner.device_dtype(placed[0]), node.outputs[0]
    plane = _plane(planner, node, placed, dtype)
    clean = plane is not None and planner.shape(out)[1] % BLOCK != 0  # windows want zeros in the lanes
    attrs = {**node.attrs, **parameters, **({"clean": 1} if clean else {})}
    scheme = planner.wish(out) or (planner.default(out) if plane is None else plane)
    put = replace(node, attrs=attrs)
    planner.put(put, "move", placed, [scheme], dtypes=[dtype], pad=ZERO if clean else ANY)


#: moves of whole rows and columns: where all their inputs are planes, so is what they make
OF_PLANES = ("Concat", "Pad", "Slice", "Tile", "Expand", "DepthToSpace", "SpaceToDepth")


def _plane(planner: Planner, node: Node, placed: Sequence[str], dtype: str) -> Scheme | None:
    """The scheme of a result between windows (convolution, pooling), which work in planes."""
    from mlsdk.pipeline.layout.windows import split_for

    shape = planner.shape(node.outputs[0])
    sources = [(planner.shape(name), planner.scheme_of(name)) for name in placed if planner.value(name).size > 1]
    planes = [scheme is not None and Plane.of(of, scheme) is not None for of, scheme in sources]
    if node.op in OF_PLANES and planes and all(planes) and len(shape) == len(sources[0][0]):
        return plane_scheme(shape, split_for(shape, dtype))
    return None


def one_dtype(planner: Planner, names: Sequence[str]) -> list[str]:
    """The values where they lie, cast to the widest dtype among them."""
    from mlsdk.pipeline.layout.rules import cast_to

    placed = [anywhere(planner, name) for name in names]
    dtypes = {planner.device_dtype(name) for name in placed}
    if len(dtypes) == 1:
        return placed
    widest = max(dtypes, key=WIDTH.index)
    return [name if planner.device_dtype(name) == widest else cast_to(planner, name, widest) for name in placed]


WIDTH = ("int", "half", "single", "double")


def padding(planner: Planner, node: Node) -> None:
    """Pad. A fill that is computed at run time is a second input of the move."""
    fill = node.inputs[2] if len(node.inputs) > 2 else ""
    if not fill or planner.data(fill) is not None:
        move(planner, node)
        return
    parameters = {}
    for i, name in ((1, node.inputs[1]), (3, node.inputs[3] if len(node.inputs) > 3 else "")):
        data = planner.data(name) if name else None
        if data is not None:
            parameters[f"input{i}"] = data
    moved(planner, node, (node.inputs[0], fill), parameters)


def split(planner: Planner, node: Node) -> None:
    """Each part is a slice."""
    source = node.inputs[0]
    shape = planner.shape(source)
    axis = int(attributes(node)["axis"]) % len(shape)
    given = planner.data(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
    sizes = split_sizes(node, shape[axis], None if given is None else given.tolist())
    at = 0
    for index, (name, size) in enumerate(zip(node.outputs, sizes)):
        if name and planner.value(name).size:
            part = Node(
                node.name if not index else planner.fresh(f"{node.name}.{index}"), "Slice", (source,), (name,),
                {f"input{i}": np.array([value]) for i, value in enumerate((at, at + size, axis), 1)},
                node.source, node.scope,
            )  # fmt: skip
            RULES["Slice"](planner, part)
        elif name:
            planner.literal(name, np.zeros(planner.shape(name), planner.value(name).dtype))
        at += size


def _indices(planner: Planner, node: Node) -> np.ndarray | None:
    """The indices of a node if they are known now."""
    value = planner.value(node.inputs[1])
    return planner.data(value.name) if value.size else np.zeros(value.shape, value.dtype)


def gather(planner: Planner, node: Node) -> None:
    """Gather, GatherElements, GatherND: a move where the indices are known, else `indexing`."""
    indices = _indices(planner, node)
    if indices is None:
        from mlsdk.pipeline.layout import indexing

        indexing.gather(planner, node)
        return
    moved(planner, node, node.inputs[:1], {"input1": indices})


def scatter(planner: Planner, node: Node) -> None:
    """ScatterElements and ScatterND: a move where the indices are known and values only replace others."""
    indices = _indices(planner, node)
    if planner.value(node.inputs[2]).size == 0:
        identity(planner, replace(node, op="Identity", inputs=node.inputs[:1], attrs={}))
    elif indices is None or attributes(node)["reduction"] != "none":
        from mlsdk.pipeline.layout import indexing

        indexing.scatter(planner, node)
    else:
        moved(planner, node, (node.inputs[0], node.inputs[2]), {"input1": indices})


def one_hot(planner: Planner, node: Node) -> None:
    from mlsdk.pipeline.layout import indexing

    indexing.one_hot(planner, node)


def identity(planner: Planner, node: Node) -> None:
    """A view: nothing happens."""
    source = anywhere(planner, node.inputs[0])
    value = planner.values[source]
    planner.view(node, source, value.scheme, value.layout if value.scheme is None else None)


def made(planner: Planner, node: Node) -> None:
    """A result of shapes and constants alone is data."""
    known_inputs: list[np.ndarray | None] = []
    for position, name in enumerate(node.inputs):
        data = planner.data(name) if name else None
        if name and data is None and node.op in ("Shape", "Size", "EyeLike") and not position:
            data = np.broadcast_to(np.zeros((), planner.value(name).dtype), planner.shape(name))
        if name and data is None:
            raise LayoutError(f"{node.name}: {node.op} of {name}, which is computed at run time; make it constant")
        known_inputs.append(data)
    planner.literal(node.outputs[0], run_operator(node, known_inputs)[0])


def concat(planner: Planner, node: Node) -> None:
    """Equal parts in one scheme lie one behind the other in LM, each where its source's PEs are; others are a move."""
    names = one_dtype(planner, [n for n in node.inputs if planner.value(n).size])
    first = planner.shape(names[0])
    axis = int(attributes(node)["axis"]) % len(first)
    scheme = planner.scheme_of(names[0])
    if (
        planner.wish(node.outputs[0]) is not None
        or scheme is None
        or scheme.copies
        or Plane.of(first, scheme) is not None
        or any(planner.shape(n) != first for n in names)
        or scheme.extents[axis] != first[axis]
    ):
        moved(planner, node, names, {})
        return
    inputs = [planner.want(n, scheme, reason="part of Concat") for n in names]
    high = 1 + max((d.stride for _, d in scheme.local), default=0)
    axes = list(scheme.axes)
    axes[axis] = (Digit(len(names), LOCAL, high), *axes[axis])
    whole = replace(scheme, axes=tuple(axes))
    planner.put(node, "move", inputs, [whole], dtypes=[planner.device_dtype(inputs[0])])


#: operators that only rearrange elements -> how many of their inputs are data; the others say how
MOVED: dict[str, Callable[[Node], int]] = {
    **dict.fromkeys(
        (
            "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Slice", "Tile", "Pad", "Split", "Trilu",
            "DepthToSpace", "SpaceToDepth", "MNCoreLayoutSwitch",
        ),
        lambda n: 1,
    ),
    "Concat": lambda n: len(n.inputs),
}  # fmt: skip

RULES: dict[str, Rule] = {
    "Reshape": reshape,
    "Flatten": reshape,
    "Squeeze": reshape,
    "Unsqueeze": reshape,
    "Transpose": transpose,
    "Slice": move,
    "Concat": concat,
    "Expand": move,
    "Tile": move,
    "Pad": padding,
    "Split": split,
    "DepthToSpace": move,
    "SpaceToDepth": move,
    "Trilu": move,
    "Gather": gather,
    "GatherElements": gather,
    "GatherND": gather,
    "ScatterElements": scatter,
    "ScatterND": scatter,
    "OneHot": one_hot,
    "Identity": identity,
    "ConstantOfShape": made,
    "Range": made,
    "EyeLike": made,
    "Shape": made,
    "Size": made,
}
