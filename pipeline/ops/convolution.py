"""Convolution and transposed convolution, in any number of spatial axes (NC...)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import FLOATS, Node
from mlsdk.pipeline.ops.lazy_torch import to_torch, torch
from mlsdk.pipeline.ops.table import (
    REQUIRED,
    Operator,
    Type,
    accumulating,
    attributes,
    register,
    require,
    require_dtype,
    require_same_dtype,
)

Array = np.ndarray

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True)
class Window:
    """A sliding window over the spatial axes; each field has one entry an axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def span(self) -> tuple[int, ...]:
        """Elements from the first to the last tap."""
        return tuple(dilation * (size - 1) + 1 for size, dilation in zip(self.kernel, self.dilations))


def spatial(attrs: dict[str, Any], key: str, rank: int, default: int) -> tuple[int, ...]:
    """An attribute with one entry for each spatial axis. Raises GraphError."""
    value = attrs.get(key)
    value = (default,) * rank if value is None else tuple(value)
    require(len(value) == rank, f"{key} has {len(value)} entries for {rank} spatial axes")
    return value


def window_of(node: Node, extents: tuple[int, ...], kernel: tuple[int, ...]) -> Window:
    """The window of a Conv or pool node over spatial `extents`, with `auto_pad` resolved. Raises GraphError."""
    attrs, rank = attributes(node), len(extents)
    strides = spatial(attrs, "strides", rank, 1)
    dilations = spatial(attrs, "dilations", rank, 1)
    require(min((*kernel, *strides, *dilations), default=1) > 0, "kernel, strides and dilations are above 0")
    auto = attrs["auto_pad"]
    require(auto in AUTO_PADS, f"auto_pad is {auto!r}; allowed are {', '.join(AUTO_PADS)}")
    if auto == "NOTSET":
        pads = attrs["pads"] or (0,) * (2 * rank)
        require(len(pads) == 2 * rank, f"pads has {len(pads)} entries for {rank} spatial axes")
        require(min(pads, default=0) >= 0, f"pads {list(pads)} are below 0")
        return Window(kernel, strides, dilations, tuple(pads[:rank]), tuple(pads[rank:]))
    before, after = [], []
    for extent, size, stride, dilation in zip(extents, kernel, strides, dilations):
        total = 0
        if auto != "VALID":
            total = max((-(-extent // stride) - 1) * stride + dilation * (size - 1) + 1 - extent, 0)
        small = total // 2
        before.append(small if auto == "SAME_UPPER" else total - small)
        after.append(total - before[-1])
    return Window(kernel, strides, dilations, tuple(before), tuple(after))


def output_extents(window: Window, extents: tuple[int, ...], ceil_mode: bool = False) -> tuple[int, ...]:
    """How many places the window takes along each axis. Raises GraphError when it fits nowhere.

    With `ceil_mode` a last window may reach beyond the padded input, but starts inside the input or its front border.
    """
    result = []
    for axis, extent in enumerate(extents):
        room = extent + window.before[axis] + window.after[axis] - window.span[axis]
        stride = window.strides[axis]
        count = (-(-room // stride) if ceil_mode else room // stride) + 1
        if ceil_mode and (count - 1) * stride >= extent + window.before[axis]:
            count -= 1
        require(count > 0, f"the window of {window.span[axis]} does not fit into spatial axis {axis} of {extent}")
        result.append(count)
    return tuple(result)


def _check_operands(inputs: Sequence[Any]) -> int:
    x, w, _ = inputs
    require_dtype(x, FLOATS)
    require_same_dtype(inputs)
    rank = len(x.shape) - 2
    require(1 <= rank <= 3, f"takes a batch, channels and 1 to 3 spatial axes, got {list(x.shape)}")
    require(len(w.shape) == rank + 2, f"weight {list(w.shape)} for an input {list(x.shape)}")
    return rank


def _kernel(node: Node, w: tuple[int, ...]) -> tuple[int, ...]:
    kernel = attributes(node)["kernel_shape"]
    require(kernel is None or tuple(kernel) == w[2:], f"kernel_shape {kernel} differs from the weight's {list(w[2:])}")
    return w[2:]


def _conv_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, w, bias = inputs
    _check_operands(inputs)
    group = attributes(node)["group"]
    fits = group > 0 and x.shape[1] == w.shape[1] * group and w.shape[0] % group == 0
    require(fits, f"{x.shape[1]} channels, weight {list(w.shape)} and {group} groups do not fit")
    require(bias is None or bias.shape == (w.shape[0],), f"the bias is not a vector of {w.shape[0]}")
    extents = output_extents(window_of(node, x.shape[2:], _kernel(node, w.shape)), x.shape[2:])
    return [(x.dtype, (x.shape[0], w.shape[0], *extents))]


def padded(x: Array, window: Window, fill: Any = 0) -> Array:
    """x with the window's borders around its spatial axes."""
    if not any(window.before) and not any(window.after):
        return x
    return np.pad(x, [(0, 0), (0, 0), *zip(window.before, window.after)], constant_values=fill)


def _conv(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, w, bias = inputs
    window = window_of(node, x.shape[2:], w.shape[2:])
    functional = torch().nn.functional
    convolve = (functional.conv1d, functional.conv2d, functional.conv3d)[x.ndim - 3]
    padding: Any = window.before
    if window.before != window.after:
        x, padding = padded(x, window), 0
    y = convolve(
        to_torch(accumulating(x)),
        to_torch(accumulating(w)),
        None if bias is None else to_torch(accumulating(bias)),
        window.strides,
        padding,
        window.dilations,
        attributes(node)["group"],
    )
    return [y.numpy().astype(inputs[0].dtype)]


def transposed_window(node: Node, extents: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[Window, tuple[int, ...]]:
    """Window and output extents of a ConvTranspose node: `before` and `after` are cut off the full result."""
    attrs, rank = attributes(node), len(extents)
    strides, dilations = spatial(attrs, "strides", rank, 1), spatial(attrs, "dilations", rank, 1)
    extra = spatial(attrs, "output_padding", rank, 0)
    full = [
        stride * (extent - 1) + dilation * (size - 1) + 1
        for extent, size, stride, dilation in zip(extents, kernel, strides, dilations)
    ]
    auto, wanted = attrs["auto_pad"], attrs["output_shape"]
    if wanted is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
        out = tuple(wanted)[-rank:] if wanted is not None else tuple(e * s for e, s in zip(extents, strides))
        totals = [max(f + e - o, 0) for f, e, o in zip(full, extra, out)]
        small = tuple(total // 2 for total in totals)
        large = tuple(total - total // 2 for total in totals)
        before, after = (small, large) if auto == "SAME_UPPER" else (large, small)
    else:
        pads = attrs["pads"] if attrs["pads"] and auto == "NOTSET" else (0,) * (2 * rank)
        require(len(pads) == 2 * rank, f"pads has {len(pads)} entries for {rank} spatial axes")
        before, after = tuple(pads[:rank]), tuple(pads[rank:])
        out = tuple(f + e - b - a for f, e, b, a in zip(full, extra, before, after))
    require(min(out, default=1) > 0, f"pads leave no output: {list(out)}")
    return Window(kernel, strides, dilations, before, after), out


def _conv_transpose_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, w, bias = inputs
    _check_operands(inputs)
    group = attributes(node)["group"]
    fits = group > 0 and x.shape[1] == w.shape[0] and w.shape[0] % group == 0
    require(fits, f"{x.shape[1]} channels, weight {list(w.shape)} and {group} groups do not fit")
    channels = w.shape[1] * group
    require(bias is None or bias.shape == (channels,), f"the bias is not a vector of {channels}")
    _, extents = transposed_window(node, x.shape[2:], _kernel(node, w.shape))
    return [(x.dtype, (x.shape[0], channels, *extents))]


def _conv_transpose(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, w, bias = inputs
    window, extents = transposed_window(node, x.shape[2:], w.shape[2:])
    functional = torch().nn.functional
    convolve = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[x.ndim - 3]
    full = convolve(
        to_torch(accumulating(x)),
        to_torch(accumulating(w)),
        stride=window.strides,
        dilation=window.dilations,
        groups=attributes(node)["group"],
    ).numpy()
    missing = [max(b + o - f, 0) for b, o, f in zip(window.before, extents, full.shape[2:])]
    full = np.pad(full, [(0, 0), (0, 0), *((0, count) for count in missing)])
    y = full[(slice(None), slice(None), *(slice(b, b + o) for b, o in zip(window.before, extents)))]
    if bias is not None:
        y = y + accumulating(bias).reshape((1, -1) + (1,) * len(extents))
    return [y.astype(x.dtype)]


WINDOW = {"auto_pad": "NOTSET", "dilations": None, "kernel_shape": None, "pads": None, "strides": None}

register(
    Operator(
        "Conv",
        _conv_infer,
        _conv,
        "The correlation of x with each filter, in groups of channels, plus a bias.",
        (2, 3),
        {**WINDOW, "group": 1},
        "convolution",
    )
)
register(
    Operator(
        "ConvTranspose",
        _conv_transpose_infer,
        _conv_transpose,
        "The transpose of Conv: each input element adds its filter to the output.",
        (2, 3),
        {**WINDOW, "group": 1, "output_padding": None, "output_shape": None},
        "convolution",
    )
)


# --- the gradient of filters ---


def _filter_grad_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, gy = inputs
    require_dtype(x, FLOATS)
    require_same_dtype(inputs)
    attrs, rank = attributes(node), len(x.shape) - 2
    require(1 <= rank <= 3, f"takes a batch, channels and 1 to 3 spatial axes, got {list(x.shape)}")
    kernel, group = tuple(attrs["kernel_shape"]), attrs["group"]
    require(len(kernel) == rank, f"kernel_shape has {len(kernel)} entries for {rank} spatial axes")
    fits = group > 0 and len(gy.shape) == rank + 2 and x.shape[1] % group == 0 and gy.shape[1] % group == 0
    require(fits, f"{x.shape[1]} channels, a gradient {list(gy.shape)} and {group} groups do not fit")
    window = window_of(node, x.shape[2:], kernel)
    require(gy.shape[0] == x.shape[0], f"the gradient has {gy.shape[0]} images, x {x.shape[0]}")
    most = output_extents(window, x.shape[2:])
    require(
        all(n <= places for n, places in zip(gy.shape[2:], most)),
        f"the gradient {list(gy.shape)} has places beyond the {list(most)} of the convolution",
    )
    return [(x.dtype, (gy.shape[1], x.shape[1] // group, *kernel))]


def _filter_grad(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, gy = (accumulating(value) for value in inputs)
    attrs = attributes(node)
    kernel, group = tuple(attrs["kernel_shape"]), int(attrs["group"])
    window = window_of(node, x.shape[2:], kernel)
    x, extents = padded(x, window), gy.shape[2:]
    n, outputs = gy.shape[:2]
    each = x.shape[1] // group
    grads = gy.reshape(n, group, outputs // group, -1).transpose(1, 2, 0, 3).reshape(group, outputs // group, -1)
    result = np.zeros((outputs, each, *kernel), gy.dtype)
    for tap in np.ndindex(*kernel):
        cut = tuple(
            slice(t * d, t * d + (count - 1) * s + 1, s)
            for t, d, s, count in zip(tap, window.dilations, window.strides, extents)
        )
        met = x[(slice(None), slice(None), *cut)].reshape(n, group, each, -1)
        result[(slice(None), slice(None), *tap)] = (grads @ met.transpose(1, 0, 3, 2).reshape(group, -1, each)).reshape(
            outputs, each
        )
    return [result.astype(inputs[0].dtype)]


register(
    Operator(
        "ConvFilterGrad",
        _filter_grad_infer,
        _filter_grad,
        "x, gy: the gradient of the filters of a Conv of x, of which gy is the gradient of the result.",
        (2, 2),
        {**WINDOW, "kernel_shape": REQUIRED, "group": 1},
        "convolution",
    )
)
