"""Gradients that come as one aten operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import Node, Value
from mlsdk.pipeline.ops.resize import weights
from mlsdk.pipeline.trace.aten.convolution import (
    adaptive_matrix,
    along_axis,
    average_attrs,
    batched,
    pool_attrs,
    window_counts,
)
from mlsdk.pipeline.trace.aten.normalization import per_channel
from mlsdk.pipeline.trace.aten.shape import View, onnx_pads, places_of, select_scatter, slice_scatter, torch_view
from mlsdk.pipeline.trace.aten.table import Row, Type, aten, axis_list, pairs, row, scaled
from mlsdk.pipeline.trace.builder import Builder

Number = float | int | bool


# --- activations ---


@row(aten.threshold_backward.default)
def _threshold(b: Builder, out: list[Type], grad: Value, x: Value, threshold: Number) -> Value:
    below = b.op("LessOrEqual", x, b.scalar(threshold, x.dtype))
    return b.where(below, b.scalar(0, grad.dtype), grad)


@row(aten.sigmoid_backward.default)
def _sigmoid(b: Builder, out: list[Type], grad: Value, y: Value) -> Value:
    return b.op("Mul", grad, b.op("Mul", y, b.op("Sub", b.scalar(1, y.dtype), y)))


@row(aten.tanh_backward.default)
def _tanh(b: Builder, out: list[Type], grad: Value, y: Value) -> Value:
    return b.op("Mul", grad, b.op("Sub", b.scalar(1, y.dtype), b.op("Mul", y, y)))


@row(aten.silu_backward.default)
def _silu(b: Builder, out: list[Type], grad: Value, x: Value) -> Value:
    one, s = b.scalar(1, x.dtype), b.op("Sigmoid", x)
    slope = b.op("Mul", s, b.op("Add", one, b.op("Mul", x, b.op("Sub", one, s))))
    return b.op("Mul", grad, slope)


@row(aten.gelu_backward.default)
def _gelu(b: Builder, out: list[Type], grad: Value, x: Value, *, approximate: str = "none") -> Value:
    def number(value: float) -> Value:
        return b.scalar(value, x.dtype)

    square = b.op("Mul", x, x)
    if approximate == "none":
        below = scaled(b, b.op("Add", b.op("Erf", scaled(b, x, math.sqrt(0.5))), number(1)), 0.5)
        density = scaled(b, b.op("Exp", scaled(b, square, -0.5)), 1 / math.sqrt(2 * math.pi))
        return b.op("Mul", grad, b.op("Add", below, b.op("Mul", x, density)))
    factor, cubic = math.sqrt(2 / math.pi), 0.044715
    inner = b.op("Mul", x, b.op("Add", number(factor), scaled(b, square, factor * cubic)))
    t = b.op("Tanh", inner)
    slope = b.op("Add", number(factor), scaled(b, square, 3 * factor * cubic))
    curve = b.op("Mul", b.op("Mul", x, b.op("Sub", number(1), b.op("Mul", t, t))), slope)
    return b.op("Mul", grad, scaled(b, b.op("Add", b.op("Add", t, number(1)), curve), 0.5))


@row(aten.leaky_relu_backward.default)
def _leaky_relu(b: Builder, out: list[Type], grad: Value, x: Value, slope: Number, is_result: bool) -> Value:
    above = b.op("Greater", x, b.scalar(0, x.dtype))
    return b.where(above, grad, scaled(b, grad, slope))


def inside(b: Builder, x: Value, low: Number, high: Number) -> Value:
    """low < x < high."""
    return b.op("And", b.op("Greater", x, b.scalar(low, x.dtype)), b.op("Less", x, b.scalar(high, x.dtype)))


@row(aten.hardtanh_backward.default)
def _hardtanh(b: Builder, out: list[Type], grad: Value, x: Value, low: Number, high: Number) -> Value:
    return b.where(inside(b, x, low, high), grad, b.scalar(0, grad.dtype))


@row(aten.hardshrink_backward.default, aten.softshrink_backward.default)
def _shrink(b: Builder, out: list[Type], grad: Value, x: Value, bound: Number) -> Value:
    shrunk = b.op("LessOrEqual", b.op("Abs", x), b.scalar(bound, x.dtype))
    return b.where(shrunk, b.scalar(0, grad.dtype), grad)


@row(aten.hardsigmoid_backward.default)
def _hardsigmoid(b: Builder, out: list[Type], grad: Value, x: Value) -> Value:
    return b.where(inside(b, x, -3, 3), scaled(b, grad, 1 / 6), b.scalar(0, grad.dtype))


@row(aten.hardswish_backward.default)
def _hardswish(b: Builder, out: list[Type], grad: Value, x: Value) -> Value:
    middle = b.op("Mul", grad, b.op("Add", scaled(b, x, 1 / 3), b.scalar(0.5, x.dtype)))
    high = b.where(b.op("Less", x, b.scalar(3, x.dtype)), middle, grad)
    return b.where(b.op("LessOrEqual", x, b.scalar(-3, x.dtype)), b.scalar(0, x.dtype), high)


@row(aten.softplus_backward.default)
def _softplus(b: Builder, out: list[Type], grad: Value, x: Value, beta: Number, threshold: Number) -> Value:
    t = scaled(b, x, beta)
    slope = b.op("Mul", grad, b.op("Sigmoid", t))
    return b.where(b.op("Greater", t, b.scalar(threshold, x.dtype)), grad, slope)


@row(aten.elu_backward.default)
def _elu(
    b: Builder,
    out: list[Type],
    grad: Value,
    alpha: Number,
    scale: Number,
    input_scale: Number,
    is_result: bool,
    x: Value,
) -> Value:
    if is_result:
        low = scaled(b, b.op("Add", x, b.scalar(alpha * scale, x.dtype)), input_scale)
    else:
        low = scaled(b, b.op("Exp", scaled(b, x, input_scale)), input_scale * alpha * scale)
    above = b.op("Greater", x, b.scalar(0, x.dtype))
    return b.where(above, scaled(b, grad, scale), b.op("Mul", grad, low))


@row(aten.log_sigmoid_backward.default)
def _log_sigmoid(b: Builder, out: list[Type], grad: Value, x: Value, buffer: Value) -> Value:
    return b.op("Mul", grad, b.op("Sigmoid", b.op("Neg", x)))


# --- softmax ---


@row(aten._softmax_backward_data.default)
def _softmax(b: Builder, out: list[Type], grad: Value, y: Value, dim: int, dtype: Any) -> Value:
    if not y.shape:
        return b.scalar(0, out[0][0])
    weighted = b.op("Mul", grad, y)
    total = b.reduce("ReduceSum", weighted, axis_list(dim, len(y.shape)), True)
    return b.cast(b.op("Sub", weighted, b.op("Mul", y, total)), out[0][0])


@row(aten._log_softmax_backward_data.default)
def _log_softmax(b: Builder, out: list[Type], grad: Value, y: Value, dim: int, dtype: Any) -> Value:
    if not y.shape:
        return b.scalar(0, out[0][0])
    total = b.reduce("ReduceSum", grad, axis_list(dim, len(y.shape)), True)
    return b.cast(b.op("Sub", grad, b.op("Mul", b.op("Exp", y), total)), out[0][0])


# --- normalisation ---


@row(aten.native_layer_norm_backward.default)
def _layer_norm(
    b: Builder,
    out: list[Type],
    grad: Value,
    x: Value,
    shape: Sequence[int],
    mean: Value,
    inverse: Value,
    weight: Value | None,
    bias: Value | None,
    mask: Sequence[bool],
) -> list[Value | None]:
    lead = len(x.shape) - len(shape)
    rows, columns = list(range(lead)), list(range(lead, len(x.shape)))
    wide = mean.dtype
    grad, x = b.cast(grad, wide), b.cast(x, wide)
    standard = b.op("Mul", b.op("Sub", x, mean), inverse)
    weighted = grad if weight is None else b.op("Mul", grad, b.cast(weight, wide))
    average = b.reduce("ReduceMean", weighted, columns, True)
    slope = b.reduce("ReduceMean", b.op("Mul", weighted, standard), columns, True)
    centred = b.op("Sub", b.op("Sub", weighted, average), b.op("Mul", standard, slope))
    results = [
        lambda: b.op("Mul", centred, inverse),
        lambda: b.reduce("ReduceSum", b.op("Mul", grad, standard), rows),
        lambda: b.reduce("ReduceSum", grad, rows),
    ]
    return [
        b.reshape(b.cast(result(), slot[0]), slot[1]) if wanted else None
        for result, wanted, slot in zip(results, mask, out)
    ]


@row(aten.native_group_norm_backward.default)
def _group_norm(
    b: Builder,
    out: list[Type],
    grad: Value,
    x: Value,
    mean: Value,
    inverse: Value,
    weight: Value | None,
    n: int,
    c: int,
    pixels: int,
    groups: int,
    mask: Sequence[bool],
) -> list[Value | None]:
    split = (n, groups, c // groups, pixels)
    g, v = b.reshape(grad, split), b.reshape(x, split)
    mean, inverse = (b.reshape(b.cast(item, x.dtype), (n, groups, 1, 1)) for item in (mean, inverse))
    standard = b.op("Mul", b.op("Sub", v, mean), inverse)
    weighted = g if weight is None else b.op("Mul", g, b.reshape(weight, (1, groups, c // groups, 1)))
    average = b.reduce("ReduceMean", weighted, [2, 3], True)
    slope = b.reduce("ReduceMean", b.op("Mul", weighted, standard), [2, 3], True)
    centred = b.op("Sub", b.op("Sub", weighted, average), b.op("Mul", standard, slope))
    results = [
        lambda: b.reshape(b.op("Mul", centred, inverse), x.shape),
        lambda: b.reshape(b.reduce("ReduceSum", b.op("Mul", g, standard), [0, 3]), (c,)),
        lambda: b.reshape(b.reduce("ReduceSum", g, [0, 3]), (c,)),
    ]
    return [result() if wanted else None for result, wanted in zip(results, mask)]


@row(aten.native_batch_norm_backward.default)
def _batch_norm(
    b: Builder,
    out: list[Type],
    grad: Value,
    x: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    mean: Value | None,
    inverse: Value | None,
    train: bool,
    eps: float,
    mask: Sequence[bool],
) -> list[Value | None]:
    rank = len(x.shape)
    axes = [axis for axis in range(rank) if axis != 1]
    if not train:
        assert running_mean is not None and running_var is not None
        mean = running_mean
        inverse = b.op("Rsqrt", b.op("Add", running_var, b.scalar(eps, running_var.dtype)))
    assert mean is not None and inverse is not None
    spread = per_channel(b, b.cast(inverse, x.dtype), rank)
    standard = b.op("Mul", b.op("Sub", x, per_channel(b, b.cast(mean, x.dtype), rank)), spread)
    grad_weight = b.reduce("ReduceSum", b.op("Mul", grad, standard), axes)
    grad_bias = b.reduce("ReduceSum", grad, axes)
    factor = spread if weight is None else b.op("Mul", spread, per_channel(b, b.cast(weight, x.dtype), rank))
    grad_x: Value | None = None
    if mask[0]:
        inner = grad
        if train:
            count = x.size // x.shape[1]
            average = per_channel(b, scaled(b, grad_bias, 1 / count), rank)
            slope = per_channel(b, scaled(b, grad_weight, 1 / count), rank)
            inner = b.op("Sub", b.op("Sub", grad, average), b.op("Mul", standard, slope))
        grad_x = b.op("Mul", inner, factor)
    return [grad_x, grad_weight if mask[1] else None, grad_bias if mask[2] else None]


# --- convolution ---


@row(aten.convolution_backward.default)
def _convolution(
    b: Builder,
    out: list[Type],
    grad: Value,
    x: Value,
    w: Value,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Sequence[bool],
) -> list[Value | None]:
    rank = len(w.shape) - 2
    stride, padding, dilation = pairs(stride, rank), pairs(padding, rank), pairs(dilation, rank)
    grad_x = grad_w = grad_bias = None
    if mask[0]:
        grad_x = _input_gradient(b, grad, x, w, stride, padding, dilation, transposed, groups)
    if mask[1]:
        near, far = (grad, x) if transposed else (x, grad)
        grad_w = _weight_gradient(b, near, far, w, stride, padding, dilation, groups)
    if mask[2]:
        grad_bias = b.reduce("ReduceSum", grad, [0, *range(2, rank + 2)])
    return [grad_x, grad_w, grad_bias]


def _input_gradient(
    b: Builder,
    grad: Value,
    x: Value,
    w: Value,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    groups: int,
) -> Value:
    """Of a convolution the transposed convolution, and the other way round."""
    attrs: dict[str, Any] = {"strides": tuple(stride), "dilations": tuple(dilation), "group": groups}
    attrs["pads"] = (*padding, *padding)
    if transposed:
        result = b.op("Conv", grad, w, **attrs)
        for axis, extent in enumerate(x.shape):
            if result.shape[axis] > extent:  # windows of what output_padding of a stride or more added
                result = b.slice(result, axis, 0, extent)
        return result
    reach = [
        (extent - 1) * s - 2 * p + d * (size - 1) + 1
        for extent, size, s, p, d in zip(grad.shape[2:], w.shape[2:], stride, padding, dilation)
    ]
    # elements at the end that no window of the forward pass reached
    missing = tuple(extent - there for extent, there in zip(x.shape[2:], reach))
    return b.op("ConvTranspose", grad, w, **attrs, output_padding=missing)


def _weight_gradient(
    b: Builder,
    near: Value,
    far: Value,
    w: Value,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> Value:
    """Of a convolution of `near` with filters like w, of which `far` is the gradient of the result."""
    attrs = {"kernel_shape": w.shape[2:], "strides": tuple(stride), "dilations": tuple(dilation), "group": groups}
    return b.op("ConvFilterGrad", near, far, pads=(*padding, *padding), **attrs)


# --- pooling ---


def _max_pool(rank: int) -> Row:
    def build(
        b: Builder,
        out: list[Type],
        grad: Value,
        x: Value,
        kernel: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        places: Value,
    ) -> Value:
        attrs = pool_attrs(rank, kernel, stride, padding, dilation, ceil_mode)
        result = b.op("MaxPoolGrad", batched(b, x, rank), batched(b, grad, rank), **attrs)
        return b.reshape(result, x.shape)

    return build


row(aten.max_pool2d_with_indices_backward.default)(_max_pool(2))
row(aten.max_pool3d_with_indices_backward.default)(_max_pool(3))


def _average_pool(rank: int) -> Row:
    def build(
        b: Builder,
        out: list[Type],
        grad: Value,
        x: Value,
        kernel: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor: int | None,
    ) -> Value:
        kernel, stride, padding = pairs(kernel, rank), pairs(stride or kernel, rank), pairs(padding, rank)
        wide, extents = batched(b, grad, rank), x.shape[-rank:]
        counts = np.full(1, divisor)
        if divisor is None:
            attrs = average_attrs(kernel, stride, padding, ceil_mode, count_include_pad)
            counts = window_counts(attrs, (1, 1, *extents))
        if np.all(counts == counts.flat[0]):
            each = scaled(b, wide, 1 / float(counts.flat[0]))
        else:
            each = b.op("Mul", wide, b.constant(1 / counts, x.dtype))
        images = math.prod(wide.shape[:2])
        each = b.reshape(each, (images, 1, *wide.shape[2:]))
        missing = tuple(
            extent + 2 * p - ((count - 1) * s + k)
            for extent, count, k, s, p in zip(extents, wide.shape[2:], kernel, stride, padding)
        )
        # one filter of ones gives each element its share; what lies beyond the border is cut
        spread = b.op(
            "ConvTranspose",
            each,
            b.constant(np.ones((1, 1, *kernel)), x.dtype),
            strides=tuple(stride),
            pads=(*padding, *(p + max(-count, 0) for p, count in zip(padding, missing))),
            output_padding=tuple(max(count, 0) for count in missing),
        )
        return b.reshape(spread, x.shape)

    return build


row(aten.avg_pool2d_backward.default)(_average_pool(2))
row(aten.avg_pool3d_backward.default)(_average_pool(3))


def _adaptive_max(rank: int) -> Row:
    def build(b: Builder, out: list[Type], grad: Value, x: Value, places: Value) -> Value:
        if any(extent % count for extent, count in zip(x.shape[-rank:], grad.shape[-rank:])):
            lead, extent = math.prod(x.shape[:-rank]), math.prod(x.shape[-rank:])
            nothing, flat = b.full((lead, extent), 0, grad.dtype), (lead, math.prod(grad.shape[-rank:]))
            where, parts = b.reshape(places, flat), b.reshape(grad, flat)
            return b.reshape(b.op("ScatterElements", nothing, where, parts, axis=1, reduction="add"), x.shape)
        step = [extent // count for extent, count in zip(x.shape[-rank:], grad.shape[-rank:])]
        return _max_pool(rank)(b, out, grad, x, step, step, 0, 1, False, places)

    return build


row(aten.adaptive_max_pool2d_backward.default)(_adaptive_max(2))
row(aten.adaptive_max_pool3d_backward.default)(_adaptive_max(3))


def _adaptive_average(rank: int) -> Row:
    def build(b: Builder, out: list[Type], grad: Value, x: Value) -> Value:
        new, extents = grad.shape[-rank:], x.shape[-rank:]
        if all(extent == 1 for extent in new):
            return b.expand(scaled(b, grad, 1 / math.prod(extents)), x.shape)
        lead = len(x.shape) - rank
        for axis in range(rank):
            if extents[axis] != new[axis]:
                grad = along_axis(b, grad, adaptive_matrix(extents[axis], new[axis]).T, lead + axis)
        return grad

    return build


row(aten._adaptive_avg_pool2d_backward.default)(_adaptive_average(2))
row(aten._adaptive_avg_pool3d_backward.default)(_adaptive_average(3))


# --- resizing ---


def _resize(rank: int, mode: str, **options: Any) -> Row:
    """The transpose of the interpolation matrices, one axis after the other."""

    def build(b: Builder, out: list[Type], grad: Value, size: Sequence[int], shape: Sequence[int], *rest: Any) -> Value:
        attrs = {"mode": mode, **options}
        scales = list(rest)
        if mode != "nearest":
            aligned, *scales = rest
            attrs["coordinate_transformation_mode"] = "align_corners" if aligned else "half_pixel"
            scales = [None] * rank if aligned else scales
        node = Node("resize", "Resize", ("x",), ("y",), attrs)
        for axis in range(rank):
            extent, new = shape[axis + 2], size[axis]
            scale = scales[axis] if axis < len(scales) and scales[axis] else new / extent
            if extent != new or scale != 1:
                grad = along_axis(b, grad, weights(node, extent, new, scale).T, axis + 2)
        return grad

    return build


NEAREST = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
NEAREST_EXACT = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
for _rank in (1, 2, 3):
    row(getattr(aten, f"upsample_nearest{_rank}d_backward").default)(_resize(_rank, "nearest", **NEAREST))
    row(getattr(aten, f"_upsample_nearest_exact{_rank}d_backward").default)(_resize(_rank, "nearest", **NEAREST_EXACT))
row(aten.upsample_linear1d_backward.default)(_resize(1, "linear"))
row(aten.upsample_bilinear2d_backward.default)(_resize(2, "linear"))
row(aten.upsample_trilinear3d_backward.default)(_resize(3, "linear"))
row(aten.upsample_bicubic2d_backward.default)(_resize(2, "cubic"))
ANTIALIASED = {"antialias": 1, "exclude_outside": 1, "cubic_coeff_a": -0.5}
row(aten._upsample_bilinear2d_aa_backward.default)(_resize(2, "linear", **ANTIALIASED))
row(aten._upsample_bicubic2d_aa_backward.default)(_resize(2, "cubic", **ANTIALIASED))


# --- indexing ---


@row(aten.embedding_dense_backward.default)
def _embedding(
    b: Builder, out: list[Type], grad: Value, indices: Value, count: int, padding: int, by_frequency: bool
) -> Value:
    flat = b.cast(b.reshape(indices, (indices.size,)), "int64")
    updates = b.reshape(grad, (indices.size, grad.shape[-1]))
    if by_frequency:
        ones, where = b.full((indices.size,), 1, grad.dtype), b.reshape(flat, (indices.size, 1))
        often = b.op("ScatterND", b.full((count,), 0, grad.dtype), where, ones, reduction="add")
        updates = b.op("Div", updates, b.reshape(b.op("Gather", often, flat, axis=0), (indices.size, 1)))
    if padding >= 0:
        padded = b.reshape(b.op("Equal", flat, b.scalar(padding, "int64")), (indices.size, 1))
        updates = b.where(padded, b.scalar(0, grad.dtype), updates)
    base = b.full((count, grad.shape[-1]), 0, grad.dtype)
    return b.op("ScatterND", base, b.reshape(flat, (indices.size, 1)), updates, reduction="add")


@row(aten.slice_backward.default)
def _slice(
    b: Builder, out: list[Type], grad: Value, shape: Sequence[int], dim: int, start: int, end: int, step: int
) -> Value:
    return slice_scatter(b, out, b.full(shape, 0, grad.dtype), grad, dim, start, end, step)


@row(aten.select_backward.default)
def _select(b: Builder, out: list[Type], grad: Value, shape: Sequence[int], dim: int, index: int) -> Value:
    return select_scatter(b, out, b.full(shape, 0, grad.dtype), grad, dim, index)


def spread(b: Builder, grad: Value, shape: Sequence[int], view: View) -> Value:
    """The gradient of a view: each element of `grad` is added to the element that the view shows there."""
    whole = Value("x", grad.dtype, tuple(shape))
    base = b.full((whole.size,), 0, grad.dtype)
    places = b.constant(places_of(whole, view).reshape(-1, 1))
    flat = b.op("ScatterND", base, places, b.reshape(grad, (grad.size,)), reduction="add")
    return b.reshape(flat, shape)


@row(aten.unfold_backward.default)
def _unfold(b: Builder, out: list[Type], grad: Value, shape: Sequence[int], dim: int, size: int, step: int) -> Value:
    return spread(b, grad, shape, torch_view(lambda places: places.unfold(dim, size, step)))


def _border(mode: str) -> Row:
    def build(b: Builder, out: list[Type], grad: Value, x: Value, pad: Sequence[int]) -> Value:
        rank = len(x.shape)
        pads = onnx_pads(rank, pad)
        widths = [(pads[axis], pads[rank + axis]) for axis in range(rank)]
        return spread(b, grad, x.shape, lambda places: padded_places(places, widths, mode))

    return build


def padded_places(places: np.ndarray, widths: Sequence[tuple[int, int]], mode: str) -> np.ndarray:
    """`places` with borders; negative widths cut."""
    cut = tuple(
        slice(max(-before, 0), extent - max(-after, 0)) for (before, after), extent in zip(widths, places.shape)
    )
    grown = [(max(before, 0), max(after, 0)) for before, after in widths]
    return np.pad(places[cut], grown, mode=mode)  # type: ignore[call-overload]


for _rank in (1, 2, 3):
    row(getattr(aten, f"reflection_pad{_rank}d_backward").default)(_border("reflect"))
    row(getattr(aten, f"replication_pad{_rank}d_backward").default)(_border("edge"))
