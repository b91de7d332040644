"""Convolution, pooling and resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import Node, Value
from mlsdk.pipeline.ops.pooling import average_counts
from mlsdk.pipeline.trace.aten.table import Row, Type, Unsupported, aten, pairs, row, scaled
from mlsdk.pipeline.trace.builder import Builder


def window(rank: int, stride: Any, padding: Any, dilation: Any) -> dict[str, Any]:
    """The attributes of a window with equal pads before and after."""
    pads = pairs(padding, rank)
    return {
        "strides": tuple(pairs(stride, rank)),
        "pads": (*pads, *pads),
        "dilations": tuple(pairs(dilation, rank)),
    }


@row(aten.convolution.default)
def _convolution(
    b: Builder,
    out: list[Type],
    x: Value,
    w: Value,
    bias: Value | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Value:
    rank = len(w.shape) - 2
    attrs = window(rank, stride, padding, dilation)
    if transposed:
        attrs["output_padding"] = tuple(pairs(output_padding, rank))
    return b.op("ConvTranspose" if transposed else "Conv", x, w, bias, group=groups, **attrs)


# --- pooling: torch also takes an input without batch axis ---


def batched(b: Builder, x: Value, rank: int) -> Value:
    return b.reshape(x, (1, *x.shape)) if len(x.shape) == rank + 1 else x


def pool_attrs(rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> dict[str, Any]:
    """Attributes of MaxPool and MaxPoolGrad."""
    attrs = window(rank, stride or kernel, padding, dilation)
    return {"kernel_shape": tuple(pairs(kernel, rank)), "ceil_mode": int(ceil_mode), **attrs}


def _max_pool(rank: int) -> Row:
    def build(
        b: Builder,
        out: list[Type],
        x: Value,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> list[Value]:
        attrs = pool_attrs(rank, kernel, stride, padding, dilation, ceil_mode)
        wide = batched(b, x, rank)
        y, places = b.nodes_of("MaxPool", wide, outputs=2, **attrs)
        # ONNX counts through all images, torch within each
        images = math.prod(wide.shape[:2])
        first = np.arange(images, dtype=np.int64).reshape(*wide.shape[:2], *(1,) * rank) * math.prod(wide.shape[2:])
        places = b.op("Sub", places, b.constant(first))
        return [b.reshape(y, out[0][1]), b.reshape(places, out[0][1])]

    return build


row(aten.max_pool2d_with_indices.default)(_max_pool(2))
row(aten.max_pool3d_with_indices.default)(_max_pool(3))


def averaged(
    b: Builder,
    x: Value,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Value:
    """AveragePool; a divisor of the user's own replaces the number of elements in each window."""
    attrs = average_attrs(kernel, stride, padding, ceil_mode, count_include_pad)
    y = b.op("AveragePool", x, **attrs)
    if divisor is None:
        return y
    counts = window_counts(attrs, x.shape) / divisor
    if np.all(counts == counts.flat[0]):
        return scaled(b, y, float(counts.flat[0]))
    return b.op("Mul", y, b.constant(counts, x.dtype))


def average_attrs(
    kernel: list[int], stride: list[int], padding: list[int], ceil_mode: bool, count_include_pad: bool
) -> dict[str, Any]:
    """Attributes of AveragePool."""
    return {
        "kernel_shape": tuple(kernel),
        "strides": tuple(stride),
        "pads": (*padding, *padding),
        "ceil_mode": int(ceil_mode),
        "count_include_pad": int(count_include_pad),
    }


def window_counts(attrs: dict[str, Any], shape: tuple[int, ...]) -> np.ndarray:
    """The number of elements that each window of an AveragePool divides by, for an input of `shape` (float64)."""
    return average_counts(Node("counts", "AveragePool", ("x",), ("y",), attrs), shape)


def _average_pool(rank: int) -> Row:
    def build(
        b: Builder,
        out: list[Type],
        x: Value,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor: int | None = None,
    ) -> Value:
        kernel, stride, padding = pairs(kernel, rank), pairs(stride or kernel, rank), pairs(padding, rank)
        wide = batched(b, x, rank)
        y = averaged(b, wide, kernel, stride, padding, ceil_mode, count_include_pad, divisor)
        return b.reshape(y, out[0][1])

    return build


row(aten.avg_pool1d.default)(_average_pool(1))
row(aten.avg_pool2d.default)(_average_pool(2))
row(aten.avg_pool3d.default)(_average_pool(3))


# --- adaptive pooling: torch's windows are [floor(i * n / out), ceil((i + 1) * n / out)) ---


def adaptive_matrix(extent: int, out: int) -> np.ndarray:
    """The matrix [out, extent] of means over the windows of one axis (float64)."""
    matrix = np.zeros((out, extent))
    for i in range(out):
        start, end = i * extent // out, -(-(i + 1) * extent // out)
        matrix[i, start:end] = 1 / (end - start)
    return matrix


def along_axis(b: Builder, x: Value, matrix: np.ndarray, axis: int) -> Value:
    """Multiply one axis of x by a constant matrix [new extent, extent]."""
    rank = len(x.shape)
    if axis == rank - 1:
        return b.op("MatMul", x, b.constant(matrix.T, x.dtype))
    if axis == rank - 2:
        return b.op("MatMul", b.constant(matrix, x.dtype), x)
    perm = [other for other in range(rank) if other != axis] + [axis]
    y = b.op("MatMul", b.transpose(x, perm), b.constant(matrix.T, x.dtype))
    return b.transpose(y, np.argsort(perm).tolist())


def _adaptive_average(rank: int) -> Row:
    def build(b: Builder, out: list[Type], x: Value, size: Sequence[int]) -> Value:
        wide, size = batched(b, x, rank), out[0][1][-rank:]
        extents = wide.shape[2:]
        if all(extent == 1 for extent in size):
            return b.reshape(b.op("GlobalAveragePool", wide), out[0][1])
        if all(extent % new == 0 for extent, new in zip(extents, size)):
            step = [extent // new for extent, new in zip(extents, size)]
            return b.reshape(averaged(b, wide, step, step, [0] * rank, False, False, None), out[0][1])
        for axis, (extent, new) in enumerate(zip(extents, size)):
            if extent != new:
                wide = along_axis(b, wide, adaptive_matrix(extent, new), axis + 2)
        return b.reshape(wide, out[0][1])

    return build


row(aten._adaptive_avg_pool2d.default)(_adaptive_average(2))
row(aten._adaptive_avg_pool3d.default)(_adaptive_average(3))


def adaptive_windows(extents: Sequence[int], counts: Sequence[int]) -> np.ndarray:
    """The flat places of each window's elements, int64[windows, elements]; short windows hold their last ones twice."""
    places = np.zeros((1, 1), np.int64)
    for extent, count in zip(extents, counts):
        starts = [i * extent // count for i in range(count)]
        ends = [-(-(i + 1) * extent // count) for i in range(count)]
        size = max(end - start for start, end in zip(starts, ends))
        axis = np.array([[min(start + tap, end - 1) for tap in range(size)] for start, end in zip(starts, ends)])
        places = (places[:, None, :, None] * extent + axis[None, :, None, :]).reshape(len(places) * count, -1)
    return places


def _adaptive_max(rank: int) -> Row:
    def build(b: Builder, out: list[Type], x: Value, size: Sequence[int]) -> list[Value]:
        extents, new = x.shape[-rank:], out[0][1][-rank:]
        if any(extent % count for extent, count in zip(extents, new)):
            places = adaptive_windows(extents, new)
            lead = x.shape[:-rank]
            windows = b.op("Gather", b.reshape(x, (*lead, math.prod(extents))), b.constant(places), axis=len(lead))
            first = b.constant(np.arange(len(places)) * places.shape[1])
            tap = b.op("Add", b.op("ArgMax", windows, axis=len(lead) + 1, keepdims=0), first)
            found = b.op("Gather", b.constant(places.reshape(-1)), tap, axis=0)
            highest = b.reduce("ReduceMax", windows, [len(lead) + 1])
            return [b.reshape(highest, out[0][1]), b.reshape(found, out[1][1])]
        step = [extent // count for extent, count in zip(extents, new)]
        return _max_pool(rank)(b, out, x, step)

    return build


row(aten.adaptive_max_pool2d.default)(_adaptive_max(2))
row(aten.adaptive_max_pool3d.default)(_adaptive_max(3))


# --- resizing ---


def resized(b: Builder, x: Value, out: Type, scales: Sequence[float | None], **attrs: Any) -> Value:
    """Resize to torch's output shape; by the user's factor where there is one, since torch steps by it then."""
    factors = [1.0, 1.0, *(scale or 0.0 for scale in scales)]
    extents = zip(scales, x.shape[2:], out[1][2:])
    exact = all(scale is None or int(extent * scale) == new for scale, extent, new in extents)
    if all(factors) and exact:
        return b.op("Resize", x, None, b.constant(factors, "float32"), **attrs)
    return b.op("Resize", x, None, None, b.ints(out[1]), **attrs)


def _nearest(exact: bool) -> Row:
    attrs = {
        "mode": "nearest",
        "coordinate_transformation_mode": "half_pixel" if exact else "asymmetric",
        "nearest_mode": "round_prefer_ceil" if exact else "floor",
    }

    def build(b: Builder, out: list[Type], x: Value, size: Any, *scales: float | None) -> Value:
        rank = len(x.shape) - 2
        return resized(b, x, out[0], list(scales) or [None] * rank, **attrs)

    return build


row(aten.upsample_nearest1d.default, aten.upsample_nearest2d.default, aten.upsample_nearest3d.default)(_nearest(False))
row(aten._upsample_nearest_exact1d.default, aten._upsample_nearest_exact2d.default)(_nearest(True))


def _interpolated(mode: str) -> Row:
    def build(b: Builder, out: list[Type], x: Value, size: Any, align_corners: bool, *scales: float | None) -> Value:
        rank = len(x.shape) - 2
        coordinates = "align_corners" if align_corners else "half_pixel"
        known = [None] * rank if align_corners else list(scales) or [None] * rank
        return resized(b, x, out[0], known, mode=mode, coordinate_transformation_mode=coordinates)

    return build


row(aten.upsample_linear1d.default, aten.upsample_bilinear2d.default, aten.upsample_trilinear3d.default)(
    _interpolated("linear")
)
row(aten.upsample_bicubic2d.default)(_interpolated("cubic"))


def _antialiased(mode: str) -> Row:
    """As Pillow resizes: the filter is stretched when there are fewer pixels, and ends at the border."""

    def build(b: Builder, out: list[Type], x: Value, size: Any, align_corners: bool, *scales: float | None) -> Value:
        if align_corners:
            raise Unsupported("align_corners together with antialias")
        return resized(
            b, x, out[0], list(scales) or [None, None], mode=mode, antialias=1, exclude_outside=1, cubic_coeff_a=-0.5
        )

    return build


row(aten._upsample_bilinear2d_aa.default)(_antialiased("linear"))
row(aten._upsample_bicubic2d_aa.default)(_antialiased("cubic"))
