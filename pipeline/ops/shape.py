"""Operators that move, repeat, cut or make elements and compute nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import DTYPES, Node
from mlsdk.pipeline.ops.table import (
    REQUIRED,
    Operator,
    Type,
    attributes,
    axes_of,
    axis_of,
    broadcast,
    constant_of,
    integers_of,
    register,
    require,
    require_same_dtype,
)

Array = np.ndarray
INDICES = ("int32", "int64")


def product(extents: Sequence[int]) -> int:
    result = 1
    for extent in extents:
        result *= extent
    return result


def row(name: str, infer: Any, reference: Any, doc: str, arity: tuple[int, int | None], **attrs: Any) -> None:
    register(Operator(name, infer, reference, doc, arity, attrs, "shape"))


# --- the same elements in another shape ---


def reshaped(shape: tuple[int, ...], wanted: Sequence[int], allowzero: int) -> tuple[int, ...]:
    """The shape that `wanted` asks for: -1 is what remains, 0 keeps an extent (unless allowzero). Raises GraphError."""
    result = list(wanted)
    for axis, extent in enumerate(result):
        if extent == 0 and not allowzero:
            require(axis < len(shape), f"shape {list(wanted)} copies axis {axis}, which {list(shape)} does not have")
            result[axis] = shape[axis]
    open_ended = result.count(-1)
    require(open_ended <= 1 and min(result, default=0) >= -1, f"shape {list(wanted)} is not a shape")
    size = product(shape)
    if -1 in result:
        rest = product([extent for extent in result if extent != -1])
        require(rest != 0 and size % rest == 0, f"cannot reshape {list(shape)} to {list(wanted)}")
        result[result.index(-1)] = size // rest
    require(product(result) == size, f"cannot reshape {list(shape)} to {list(wanted)}: {size} elements")
    return tuple(result)


def _reshape_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, wanted = inputs
    return [(x.dtype, reshaped(x.shape, integers_of(wanted, "shape"), attributes(node)["allowzero"]))]


def _reshape(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, wanted = inputs
    return [x.reshape(reshaped(x.shape, [int(extent) for extent in wanted], attributes(node)["allowzero"]))]


def _flat_shape(node: Node, shape: tuple[int, ...]) -> tuple[int, int]:
    axis = attributes(node)["axis"]
    require(-len(shape) <= axis <= len(shape), f"axis {axis} is outside a tensor of rank {len(shape)}")
    axis = axis + len(shape) if axis < 0 else axis
    return product(shape[:axis]), product(shape[axis:])


def squeezed(shape: tuple[int, ...], axes: Sequence[int] | None) -> tuple[int, ...]:
    if axes is None:
        return tuple(extent for extent in shape if extent != 1)
    named = axes_of(axes, len(shape))
    for axis in named:
        require(shape[axis] == 1, f"axis {axis} of {list(shape)} has more than one element; it cannot be squeezed")
    return tuple(extent for axis, extent in enumerate(shape) if axis not in named)


def unsqueezed(shape: tuple[int, ...], axes: Sequence[int]) -> tuple[int, ...]:
    rank = len(shape) + len(axes)
    named = axes_of(axes, rank)
    rest = iter(shape)
    return tuple(1 if axis in named else next(rest) for axis in range(rank))


def _squeeze_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, axes = inputs
    return [(x.dtype, squeezed(x.shape, None if axes is None else integers_of(axes, "axes")))]


def _squeeze(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, axes = inputs
    return [x.reshape(squeezed(x.shape, None if axes is None else np.atleast_1d(axes).tolist()))]


row("Reshape", _reshape_infer, _reshape, "The same elements in another shape.", (2, 2), allowzero=0)
row(
    "Flatten",
    lambda node, inputs: [(inputs[0].dtype, _flat_shape(node, inputs[0].shape))],
    lambda node, inputs: [inputs[0].reshape(_flat_shape(node, inputs[0].shape))],
    "The axes before `axis` as one, those from it on as another.",
    (1, 1),
    axis=1,
)
row("Squeeze", _squeeze_infer, _squeeze, "Without axes of extent 1.", (1, 2))
row(
    "Unsqueeze",
    lambda node, inputs: [(inputs[0].dtype, unsqueezed(inputs[0].shape, integers_of(inputs[1], "axes")))],
    lambda node, inputs: [inputs[0].reshape(unsqueezed(inputs[0].shape, np.atleast_1d(inputs[1]).tolist()))],
    "With new axes of extent 1.",
    (2, 2),
)


# --- order and repetition ---


def permutation(node: Node, rank: int) -> tuple[int, ...]:
    """The axes of a Transpose in their new order; reversed when none is given. Raises GraphError."""
    perm = attributes(node)["perm"]
    if perm is None:
        return tuple(reversed(range(rank)))
    require(sorted(perm) == list(range(rank)), f"perm {list(perm)} is not an order of {rank} axes")
    return tuple(perm)


def _transpose_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    (x,) = inputs
    return [(x.dtype, tuple(x.shape[axis] for axis in permutation(node, len(x.shape))))]


def _expand_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, shape = inputs
    return [(x.dtype, broadcast(x.shape, integers_of(shape, "shape")))]


def _expand(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, shape = inputs
    return [np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape.tolist())))]


def _tile_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, repeats = inputs[0], integers_of(inputs[1], "repeats")
    require(len(repeats) == len(x.shape), f"{len(repeats)} repeats for a tensor of rank {len(x.shape)}")
    return [(x.dtype, tuple(extent * count for extent, count in zip(x.shape, repeats)))]


row(
    "Transpose",
    _transpose_infer,
    lambda node, inputs: [inputs[0].transpose(permutation(node, inputs[0].ndim))],
    "The axes in another order.",
    (1, 1),
    perm=None,
)
row("Expand", _expand_infer, _expand, "Repeated by broadcasting to a shape.", (2, 2))
row(
    "Tile",
    _tile_infer,
    lambda node, inputs: [np.tile(inputs[0], inputs[1].tolist())],
    "Repeated along each axis.",
    (2, 2),
)


# --- joining and cutting ---


def _concat_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    dtype = require_same_dtype(inputs)
    first = inputs[0].shape
    axis = axis_of(attributes(node)["axis"], len(first))
    total = 0
    for operand in inputs:
        fits = len(operand.shape) == len(first) and all(
            here == there for i, (here, there) in enumerate(zip(operand.shape, first)) if i != axis
        )
        require(fits, f"cannot join {list(first)} and {list(operand.shape)} along axis {axis}")
        total += operand.shape[axis]
    return [(dtype, (*first[:axis], total, *first[axis + 1 :]))]


def split_sizes(node: Node, extent: int, sizes: Sequence[int] | None) -> list[int]:
    """The extents of the parts. Raises GraphError when they do not sum up."""
    if sizes is None:
        count = attributes(node)["num_outputs"] or len(node.outputs)
        require(count == len(node.outputs), f"num_outputs is {count}, the node has {len(node.outputs)} outputs")
        size = -(-extent // count)
        parts = [size] * (count - 1)
        require(extent >= sum(parts), f"cannot split {extent} elements into {count} parts")
        return [*parts, extent - sum(parts)]
    require(min(sizes, default=0) >= 0 and sum(sizes) == extent, f"parts {list(sizes)} of an axis of {extent} elements")
    return list(sizes)


def _split_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, sizes = inputs
    axis = axis_of(attributes(node)["axis"], len(x.shape))
    parts = split_sizes(node, x.shape[axis], None if sizes is None else integers_of(sizes, "split"))
    return [(x.dtype, (*x.shape[:axis], part, *x.shape[axis + 1 :])) for part in parts]


def _split(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, sizes = inputs
    axis = attributes(node)["axis"] % x.ndim
    parts = split_sizes(node, x.shape[axis], None if sizes is None else sizes.tolist())
    return list(np.split(x, np.cumsum(parts)[:-1], axis=axis))


def slices(
    shape: tuple[int, ...],
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> tuple[slice, ...]:
    """One python slice for each axis, with ONNX's clamping. Raises GraphError."""
    rank = len(shape)
    axes = list(range(len(starts))) if axes is None else [axis_of(axis, rank) for axis in axes]
    steps = [1] * len(starts) if steps is None else steps
    require(len(starts) == len(ends) == len(axes) == len(steps), "starts, ends, axes and steps differ in length")
    require(len(set(axes)) == len(axes), "an axis is named twice")
    result = [slice(None)] * rank
    for start, end, axis, step in zip(starts, ends, axes, steps):
        require(step != 0, "a step is 0")
        extent = shape[axis]
        start = start + extent if start < 0 else start
        end = end + extent if end < 0 else end
        if step > 0:
            start, end = min(max(start, 0), extent), min(max(end, 0), extent)
            result[axis] = slice(start, end, step)
        else:
            start, end = min(max(start, 0), extent - 1), min(max(end, -1), extent - 1)
            result[axis] = slice(start, end if end >= 0 else None, step) if extent else slice(0, 0)
    return tuple(result)


def _slice_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, starts, ends, axes, steps = inputs
    cut = slices(
        x.shape,
        integers_of(starts, "starts"),
        integers_of(ends, "ends"),
        None if axes is None else integers_of(axes, "axes"),
        None if steps is None else integers_of(steps, "steps"),
    )
    return [(x.dtype, tuple(len(range(*part.indices(extent))) for part, extent in zip(cut, x.shape)))]


def _slice(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, *bounds = inputs
    starts, ends, axes, steps = ([] if bound is None else bound.tolist() for bound in bounds)
    return [x[slices(x.shape, starts, ends, axes or None, steps or None)]]


row(
    "Concat",
    _concat_infer,
    lambda node, inputs: [np.concatenate(inputs, axis=attributes(node)["axis"])],
    "Joined along an axis.",
    (1, None),
    axis=REQUIRED,
)
row("Split", _split_infer, _split, "Cut into parts along an axis.", (1, 2), axis=0, num_outputs=None)
row("Slice", _slice_infer, _slice, "A range of each axis, with a step.", (3, 5))


# --- borders ---

PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def pad_widths(rank: int, pads: Sequence[int], axes: Sequence[int] | None) -> list[tuple[int, int]]:
    """(before, after) for each axis; negative ones cut. Raises GraphError."""
    named = list(range(rank)) if axes is None else [axis_of(axis, rank) for axis in axes]
    require(len(pads) == 2 * len(named), f"{len(pads)} pads for {len(named)} axes")
    widths = [(0, 0)] * rank
    for index, axis in enumerate(named):
        widths[axis] = (int(pads[index]), int(pads[index + len(named)]))
    return widths


def _pad_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, pads, fill, axes = inputs
    mode = attributes(node)["mode"]
    require(mode in PAD_MODES, f"mode is {mode!r}; allowed are {', '.join(PAD_MODES)}")
    require(fill is None or (fill.dtype == x.dtype and fill.size == 1), "the fill is one number of the input's dtype")
    rank = len(x.shape)
    widths = pad_widths(rank, integers_of(pads, "pads"), None if axes is None else integers_of(axes, "axes"))
    shape = tuple(extent + before + after for extent, (before, after) in zip(x.shape, widths))
    require(min(shape, default=0) >= 0, f"pads {widths} cut more than {list(x.shape)} has")
    return [(x.dtype, shape)]


def _pad(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, pads, fill, axes = inputs
    mode = attributes(node)["mode"]
    widths = pad_widths(x.ndim, pads.tolist(), None if axes is None else axes.tolist())
    cut = tuple(slice(max(-before, 0), extent - max(-after, 0)) for (before, after), extent in zip(widths, x.shape))
    grown = [(max(before, 0), max(after, 0)) for before, after in widths]
    if mode == "constant":
        return [np.pad(x[cut], grown, constant_values=x.dtype.type(0) if fill is None else fill.reshape(())[()])]
    return [np.pad(x[cut], grown, mode=PAD_MODES[mode])]  # type: ignore[call-overload]


row("Pad", _pad_infer, _pad, "With borders: constant, reflected, repeated edge, or wrapped.", (2, 4), mode="constant")


# --- made from nothing but attributes and shapes ---


def _constant_of_shape_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    fill = attributes(node)["value"]
    return [("float32" if fill is None else str(fill.dtype), integers_of(inputs[0], "shape"))]


def _constant_of_shape(node: Node, inputs: Sequence[Any]) -> list[Array]:
    fill = attributes(node)["value"]
    value = np.float32(0) if fill is None else fill.reshape(())[()]
    return [np.full(tuple(inputs[0].tolist()), value)]


def _range_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    dtype = require_same_dtype(inputs)
    names = ("start", "limit", "step")
    start, limit, step = (constant_of(operand, what).reshape(()) for operand, what in zip(inputs, names))
    require(step != 0, "its step is 0")
    return [(dtype, (max(int(np.ceil((limit - start) / step)), 0),))]


def _range(node: Node, inputs: Sequence[Any]) -> list[Array]:
    start, limit, step = (operand.reshape(())[()] for operand in inputs)
    count = max(int(np.ceil((limit - start) / step)), 0)
    return [(start + np.arange(count).astype(start.dtype) * step).astype(start.dtype)]


def _eye_dtype(node: Node, x: Any) -> str:
    from mlsdk.pipeline.ir.onnx_io import DTYPE_OF_ELEMENT_TYPE

    wanted = attributes(node)["dtype"]
    return str(x.dtype) if wanted is None else DTYPE_OF_ELEMENT_TYPE[wanted]


def _eye_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    require(len(inputs[0].shape) == 2, "takes a matrix")
    return [(_eye_dtype(node, inputs[0]), inputs[0].shape)]


def _eye(node: Node, inputs: Sequence[Any]) -> list[Array]:
    rows, columns = inputs[0].shape
    return [np.eye(rows, columns, attributes(node)["k"], dtype=DTYPES[_eye_dtype(node, inputs[0])])]


def _trilu_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    require(len(inputs[0].shape) >= 2, "takes at least a matrix")
    return [(inputs[0].dtype, inputs[0].shape)]


def _trilu(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, k = inputs
    shift = 0 if k is None else int(k.reshape(()))
    cut: Callable[..., Array] = np.triu if attributes(node)["upper"] else np.tril
    return [cut(x, shift).astype(x.dtype)]


def _shape_cut(node: Node, rank: int) -> slice:
    attrs = attributes(node)
    return slice(*slice(attrs["start"], attrs["end"]).indices(rank))


row("ConstantOfShape", _constant_of_shape_infer, _constant_of_shape, "One value everywhere.", (1, 1), value=None)
row("Range", _range_infer, _range, "start, start + step, ... below the limit.", (3, 3))
row("EyeLike", _eye_infer, _eye, "Ones on a diagonal, zeros elsewhere.", (1, 1), k=0, dtype=None)
row("Trilu", _trilu_infer, _trilu, "The upper or lower triangle, zeros elsewhere.", (1, 2), upper=1)
row(
    "Shape",
    lambda node, inputs: [("int64", (len(inputs[0].shape[_shape_cut(node, len(inputs[0].shape))]),))],
    lambda node, inputs: [np.array(inputs[0].shape[_shape_cut(node, inputs[0].ndim)], np.int64)],
    "The extents of the input.",
    (1, 1),
    start=0,
    end=None,
)
row(
    "Size",
    lambda node, inputs: [("int64", ())],
    lambda node, inputs: [np.array(inputs[0].size, np.int64)],
    "The number of elements of the input.",
    (1, 1),
)


def _constant_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    value = node.attrs["value"]
    require(isinstance(value, np.ndarray), "its value is not a tensor")
    assert isinstance(value, np.ndarray)
    return [(str(value.dtype), value.shape)]


row(
    "Constant",
    _constant_infer,
    lambda node, inputs: [node.attrs["value"]],
    "A literal. (Reading an ONNX file turns these nodes into constants of the graph.)",
    (0, 0),
    value=REQUIRED,
)


# --- space and depth ---


def _blocks(node: Node, shape: tuple[int, ...]) -> int:
    size = attributes(node)["blocksize"]
    require(len(shape) == 4 and size > 0, f"takes NCHW and a block size above 0, got {list(shape)} and {size}")
    return size


def _depth_to_space_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    n, c, h, w = inputs[0].shape if len(inputs[0].shape) == 4 else (0, 0, 0, 0)
    size = _blocks(node, inputs[0].shape)
    require(c % (size * size) == 0, f"{c} channels do not divide into blocks of {size}x{size}")
    require(attributes(node)["mode"] in ("DCR", "CRD"), "mode is 'DCR' or 'CRD'")
    return [(inputs[0].dtype, (n, c // (size * size), h * size, w * size))]


def _depth_to_space(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, size = inputs[0], attributes(node)["blocksize"]
    n, c, h, w = x.shape
    depth = c // (size * size)
    if attributes(node)["mode"] == "DCR":
        out = x.reshape(n, size, size, depth, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        out = x.reshape(n, depth, size, size, h, w).transpose(0, 1, 4, 2, 5, 3)
    return [out.reshape(n, depth, h * size, w * size)]


def _space_to_depth_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    size = _blocks(node, inputs[0].shape)
    n, c, h, w = inputs[0].shape
    require(h % size == 0 and w % size == 0, f"{h}x{w} does not divide into blocks of {size}x{size}")
    require(attributes(node)["mode"] in ("DCR", "CRD"), "mode is 'DCR' or 'CRD'")
    return [(inputs[0].dtype, (n, c * size * size, h // size, w // size))]


def _space_to_depth(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, size = inputs[0], attributes(node)["blocksize"]
    n, c, h, w = x.shape
    order = (0, 3, 5, 1, 2, 4) if attributes(node)["mode"] == "DCR" else (0, 1, 3, 5, 2, 4)
    out = x.reshape(n, c, h // size, size, w // size, size).transpose(order)
    return [out.reshape(n, c * size * size, h // size, w // size)]


row(
    "DepthToSpace",
    _depth_to_space_infer,
    _depth_to_space,
    "Channels become blocks of pixels.",
    (1, 1),
    blocksize=REQUIRED,
    mode="DCR",
)
row(
    "SpaceToDepth",
    _space_to_depth_infer,
    _space_to_depth,
    "Blocks of pixels become channels.",
    (1, 1),
    blocksize=REQUIRED,
    mode="DCR",
)

__all__ = ["permutation", "reshaped", "slices", "split_sizes", "squeezed", "unsqueezed"]
