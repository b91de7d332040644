"""Operators that move elements: views, joins, cuts, borders, copies, and tensors that are made from nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from mlsdk.pipeline.ir.graph import Value
from mlsdk.pipeline.trace.aten.table import Row, Type, Unsupported, aten, pairs, row
from mlsdk.pipeline.trace.builder import Builder

Number = float | int | bool


# --- nothing happens ---


@row(
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
    aten.positive.default,
)
def _same(b: Builder, out: list[Type], x: Value, **ignored: Any) -> Value:
    return x


@row(aten._to_copy.default)
def _to_copy(b: Builder, out: list[Type], x: Value, **ignored: Any) -> Value:
    return b.cast(x, out[0][0])


@row(aten.copy.default)
def _copy(b: Builder, out: list[Type], x: Value, source: Value, non_blocking: bool = False) -> Value:
    return b.expand(b.cast(source, x.dtype), x.shape)


# --- another shape, the same order of elements ---


@row(
    aten._reshape_alias.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
    aten.view.default,
)
def _reshape(b: Builder, out: list[Type], x: Value, *ignored: Any) -> Value:
    return b.reshape(x, out[0][1])


@row(aten.view.dtype)
def _view_dtype(b: Builder, out: list[Type], x: Value, dtype: Any) -> Value:
    raise Unsupported("a view of the bits in another dtype")


# --- another order ---


@row(aten.permute.default)
def _permute(b: Builder, out: list[Type], x: Value, dims: Sequence[int]) -> Value:
    return b.transpose(x, [dim % len(x.shape) for dim in dims])


@row(aten.transpose.int)
def _transpose(b: Builder, out: list[Type], x: Value, first: int, second: int) -> Value:
    perm = list(range(len(x.shape)))
    if perm:
        perm[first], perm[second] = perm[second], perm[first]
    return b.transpose(x, perm)


@row(aten.t.default)
def _t(b: Builder, out: list[Type], x: Value) -> Value:
    return b.transpose(x, list(reversed(range(len(x.shape)))))


@row(aten.flip.default)
def _flip(b: Builder, out: list[Type], x: Value, dims: Sequence[int]) -> Value:
    axes = [dim % len(x.shape) for dim in dims] if x.shape else []
    if not axes:
        return x
    far = [-(2**62)] * len(axes)
    return b.op("Slice", x, b.ints([-1] * len(axes)), b.ints(far), b.ints(axes), b.ints([-1] * len(axes)))


@row(aten.roll.default)
def _roll(b: Builder, out: list[Type], x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    if not dims:
        return b.reshape(_roll(b, out, b.reshape(x, [x.size]), shifts, [0]), x.shape)
    for shift, dim in zip(shifts, dims):
        axis = dim % len(x.shape)
        extent = x.shape[axis]
        cut = (-shift) % extent if extent else 0
        if cut:
            x = b.concat([b.slice(x, axis, cut, extent), b.slice(x, axis, 0, cut)], axis)
    return x


# --- repetition ---


@row(aten.expand.default)
def _expand(b: Builder, out: list[Type], x: Value, shape: Any, **ignored: Any) -> Value:
    return b.expand(x, out[0][1])


@row(aten.repeat.default)
def _repeat(b: Builder, out: list[Type], x: Value, repeats: Sequence[int]) -> Value:
    x = b.reshape(x, (*(1 for _ in range(len(repeats) - len(x.shape))), *x.shape))
    if all(count == 1 or extent == 1 for count, extent in zip(repeats, x.shape)):
        return b.expand(x, out[0][1])
    return b.op("Tile", x, b.ints(repeats))


# --- cuts ---


def bounds(extent: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Start and end of a slice counted from 0, clamped as torch does."""
    start, end, _ = slice(start, end).indices(extent)
    return start, max(end, start)


@row(aten.slice.Tensor)
def _slice(
    b: Builder, out: list[Type], x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    axis = dim % len(x.shape)
    return b.slice(x, axis, *bounds(x.shape[axis], start, end), step)


@row(aten.select.int)
def _select(b: Builder, out: list[Type], x: Value, dim: int, index: int) -> Value:
    axis = dim % len(x.shape)
    index %= x.shape[axis]
    return b.reshape(b.slice(x, axis, index, index + 1), out[0][1])


def _split(b: Builder, x: Value, sizes: Sequence[int], dim: int) -> list[Value]:
    if len(sizes) == 1:
        return [x]
    return b.nodes_of("Split", x, b.ints(sizes), outputs=len(sizes), axis=dim % len(x.shape))


@row(aten.split.Tensor, aten.split_with_sizes.default)
def _split_row(b: Builder, out: list[Type], x: Value, sizes: Any, dim: int = 0) -> list[Value]:
    return _split(b, x, [shape[dim] for _, shape in out], dim)


@row(aten.unbind.int)
def _unbind(b: Builder, out: list[Type], x: Value, dim: int = 0) -> list[Value]:
    return [b.reshape(part, shape) for part, (_, shape) in zip(_split(b, x, [1] * len(out), dim), out)]


# --- joins ---


@row(aten.cat.default)
def _cat(b: Builder, out: list[Type], parts: Sequence[Value], dim: int = 0) -> Value:
    # torch skips tensors of shape (0,) whatever the rank of the others
    kept = [b.cast(part, out[0][0]) for part in parts if part.shape != (0,) or len(out[0][1]) == 1]
    return b.concat(kept, dim % len(out[0][1]))


@row(aten.stack.default)
def _stack(b: Builder, out: list[Type], parts: Sequence[Value], dim: int = 0) -> Value:
    axis = dim % len(out[0][1])
    shape = (*out[0][1][:axis], 1, *out[0][1][axis + 1 :])
    return b.concat([b.reshape(b.cast(part, out[0][0]), shape) for part in parts], axis)


# --- writes into a part, as a new tensor ---


def replaced(b: Builder, x: Value, part: Value, axis: int, start: int, end: int) -> Value:
    """x with the range [start, end) of an axis replaced."""
    return b.concat([b.slice(x, axis, 0, start), part, b.slice(x, axis, end, x.shape[axis])], axis)


@row(aten.slice_scatter.default)
def slice_scatter(
    b: Builder, out: list[Type], x: Value, part: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    axis = dim % len(x.shape)
    start, end = bounds(x.shape[axis], start, end)
    part = b.cast(part, x.dtype)
    if step == 1:
        return replaced(b, x, part, axis, start, end) if end > start else x
    return scattered(b, x, part, lambda places: places[(*(slice(None),) * axis, slice(start, end, step))])


@row(aten.select_scatter.default)
def select_scatter(b: Builder, out: list[Type], x: Value, part: Value, dim: int, index: int) -> Value:
    axis = dim % len(x.shape)
    index %= x.shape[axis]
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return replaced(b, x, b.reshape(b.cast(part, x.dtype), shape), axis, index, index + 1)


# --- any other view: by the index of each element ---

View = Callable[[Any], Any]


def places_of(x: Value, view: View) -> np.ndarray:
    """Where each element of a view of x lies in x flattened (int64)."""
    return np.asarray(view(np.arange(x.size).reshape(x.shape)), np.int64)


def gathered(b: Builder, x: Value, view: View) -> Value:
    """The elements that a view shows, by a Gather from x flattened."""
    return b.op("Gather", b.reshape(x, [x.size]), b.constant(places_of(x, view)), axis=0)


def scattered(b: Builder, x: Value, part: Value, view: View) -> Value:
    """x with the elements that a view shows replaced by `part`."""
    places = places_of(x, view)
    flat = b.op("ScatterND", b.reshape(x, [x.size]), b.constant(places.reshape(-1, 1)), b.reshape(part, [places.size]))
    return b.reshape(flat, x.shape)


def torch_view(function: Callable[[torch.Tensor], torch.Tensor]) -> View:
    return lambda places: function(torch.from_numpy(places)).numpy()


@row(aten.diagonal.default)
def _diagonal(b: Builder, out: list[Type], x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    return gathered(b, x, lambda places: np.diagonal(places, offset, dim1, dim2))


@row(aten.diagonal_scatter.default)
def _diagonal_scatter(
    b: Builder, out: list[Type], x: Value, part: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    return scattered(b, x, part, lambda places: np.diagonal(places, offset, dim1, dim2))


@row(aten.unfold.default)
def _unfold(b: Builder, out: list[Type], x: Value, dim: int, size: int, step: int) -> Value:
    return gathered(b, x, torch_view(lambda places: places.unfold(dim, size, step)))


@row(aten.im2col.default)
def _im2col(b: Builder, out: list[Type], x: Value, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    before = pairs(padding, 2)
    if any(before):
        x = b.op("Pad", x, b.ints([0, 0, *before, 0, 0, *before]), mode="constant")

    def view(places: torch.Tensor) -> torch.Tensor:
        columns = torch.nn.functional.unfold(places.double(), kernel, dilation, 0, stride)
        return columns.long()

    return gathered(b, x, torch_view(view))


@row(aten.as_strided.default)
def _as_strided(
    b: Builder, out: list[Type], x: Value, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Value:
    # the recorder gives the whole of a contiguous tensor, whose elements are the places of its memory
    reach = (offset or 0) + sum((extent - 1) * step for extent, step in zip(size, stride)) if math.prod(size) else 0
    if reach >= x.size:
        raise Unsupported("as_strided beyond the elements of its operand")
    view = torch_view(lambda places: places.as_strided(tuple(size), tuple(stride), offset or 0))
    return gathered(b, x, view)


@row(aten.as_strided_scatter.default)
def _as_strided_scatter(
    b: Builder,
    out: list[Type],
    x: Value,
    part: Value,
    size: Sequence[int],
    stride: Sequence[int],
    offset: int | None = None,
) -> Value:
    view = torch_view(lambda places: places.as_strided(tuple(size), tuple(stride), offset or 0))
    return scattered(b, x, part, view)


@row(aten.diag_embed.default)
def _diag_embed(b: Builder, out: list[Type], x: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    base = b.full(out[0][1], 0, x.dtype)
    return scattered(b, base, x, lambda places: np.diagonal(places, offset, dim1, dim2))


# --- borders, triangles ---


def onnx_pads(rank: int, pad: Sequence[int]) -> list[int]:
    """torch's pairs, last axis first, as ONNX's (all before, all after)."""
    before, after = [0] * rank, [0] * rank
    for index in range(len(pad) // 2):
        before[rank - 1 - index], after[rank - 1 - index] = pad[2 * index], pad[2 * index + 1]
    return before + after


@row(aten.constant_pad_nd.default)
def _pad(b: Builder, out: list[Type], x: Value, pad: Sequence[int], value: Number = 0) -> Value:
    if not any(pad):
        return x
    return b.op("Pad", x, b.ints(onnx_pads(len(x.shape), pad)), b.scalar(value, x.dtype), mode="constant")


def _border(mode: str) -> Row:
    def build(b: Builder, out: list[Type], x: Value, pad: Sequence[int]) -> Value:
        return b.op("Pad", x, b.ints(onnx_pads(len(x.shape), pad)), mode=mode)

    return build


row(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)(_border("reflect"))
row(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)(_border("edge"))


def _triangle(upper: int) -> Row:
    def build(b: Builder, out: list[Type], x: Value, diagonal: int = 0) -> Value:
        return b.op("Trilu", x, b.scalar(diagonal, "int64"), upper=upper)

    return build


row(aten.triu.default)(_triangle(1))
row(aten.tril.default)(_triangle(0))


# --- pixels and channels ---


def _shuffled(b: Builder, x: Value, split: Sequence[int], perm: Sequence[int], shape: Sequence[int]) -> Value:
    lead = len(x.shape) - 3
    parts = b.reshape(x, (*x.shape[:lead], *split))
    return b.reshape(b.transpose(parts, [*range(lead), *(lead + axis for axis in perm)]), shape)


@row(aten.pixel_shuffle.default)
def _pixel_shuffle(b: Builder, out: list[Type], x: Value, factor: int) -> Value:
    c, h, w = x.shape[-3:]
    return _shuffled(b, x, [c // factor**2, factor, factor, h, w], [0, 3, 1, 4, 2], out[0][1])


@row(aten.pixel_unshuffle.default)
def _pixel_unshuffle(b: Builder, out: list[Type], x: Value, factor: int) -> Value:
    c, h, w = x.shape[-3:]
    return _shuffled(b, x, [c, h // factor, factor, w // factor, factor], [0, 2, 4, 1, 3], out[0][1])


# --- made from nothing ---


def _filled(number: Number) -> Row:
    def build(b: Builder, out: list[Type], *ignored: Any, **also: Any) -> Value:
        return b.full(out[0][1], number, out[0][0])

    return build


row(
    aten.empty.memory_format,
    aten.empty_like.default,
    aten._efficientzerotensor.default,
    aten._new_zeros_with_same_feature_meta.default,
    aten.empty_strided.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
    aten.new_zeros.default,
    aten.zeros.default,
    aten.zeros_like.default,
)(_filled(0))
row(aten.ones.default, aten.ones_like.default, aten.new_ones.default)(_filled(1))


@row(aten.new_full.default)
def _new_full(b: Builder, out: list[Type], x: Value, shape: Any, number: Number, **ignored: Any) -> Value:
    return b.full(out[0][1], number, out[0][0])


@row(aten.full.default, aten.full_like.default)
def _full(b: Builder, out: list[Type], shape: Any, number: Number, *ignored: Any, **also: Any) -> Value:
    return b.full(out[0][1], number, out[0][0])


@row(aten.fill.Scalar)
def _fill(b: Builder, out: list[Type], x: Value, number: Number) -> Value:
    return b.full(x.shape, number, x.dtype)


@row(aten.fill.Tensor)
def _fill_tensor(b: Builder, out: list[Type], x: Value, number: Value) -> Value:
    return b.expand(b.cast(number, x.dtype), x.shape)


@row(aten.scalar_tensor.default)
def _scalar_tensor(b: Builder, out: list[Type], number: Number, **ignored: Any) -> Value:
    return b.scalar(number, out[0][0])


@row(aten.arange.start_step)
def _arange(b: Builder, out: list[Type], start: Number, end: Number, step: Number = 1, **ignored: Any) -> Value:
    dtype = out[0][0]
    return b.op("Range", *(b.scalar(number, dtype) for number in (start, end, step)))


@row(aten.arange.start)
def _arange_start(b: Builder, out: list[Type], start: Number, end: Number, **ignored: Any) -> Value:
    return _arange(b, out, start, end)


@row(aten.arange.default)
def _arange_end(b: Builder, out: list[Type], end: Number, **ignored: Any) -> Value:
    return _arange(b, out, 0, end)
