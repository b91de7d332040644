"""Softmax and the normalisations. Statistics are taken in single at least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import FLOATS, Node
from mlsdk.pipeline.ops.table import (
    REQUIRED,
    Operator,
    Type,
    accumulating,
    attributes,
    axis_of,
    broadcast,
    register,
    require,
    require_dtype,
    require_same_dtype,
)

Array = np.ndarray


def row(name: str, infer: Any, reference: Any, doc: str, arity: tuple[int, int | None], **attrs: Any) -> None:
    register(Operator(name, infer, reference, doc, arity, attrs, "normalization"))


# --- softmax ---


def _along_axis_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    (x,) = inputs
    require_dtype(x, FLOATS)
    axis_of(attributes(node)["axis"], len(x.shape))
    return [(x.dtype, x.shape)]


def shifted(x: Array, axis: int) -> Array:
    """x minus its maximum along the axis, which keeps exp from overflowing."""
    return x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)


def _softmax(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, axis = inputs[0], attributes(node)["axis"]
    e = np.exp(shifted(accumulating(x), axis))
    return [(e / np.sum(e, axis=axis, keepdims=True)).astype(x.dtype)]


def _log_softmax(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, axis = inputs[0], attributes(node)["axis"]
    low = shifted(accumulating(x), axis)
    return [(low - np.log(np.sum(np.exp(low), axis=axis, keepdims=True))).astype(x.dtype)]


def _hardmax(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, axis = inputs[0], attributes(node)["axis"]
    out = np.zeros_like(x)
    np.put_along_axis(out, np.expand_dims(np.argmax(x, axis=axis), axis), 1, axis)
    return [out]


row("Softmax", _along_axis_infer, _softmax, "exp(x) over its sum along an axis.", (1, 1), axis=-1)
row("LogSoftmax", _along_axis_infer, _log_softmax, "The logarithm of Softmax.", (1, 1), axis=-1)
row("Hardmax", _along_axis_infer, _hardmax, "1 at the first maximum along an axis, else 0.", (1, 1), axis=-1)


# --- batch normalisation over axis 1 ---


def per_channel(vector: Array, rank: int) -> Array:
    """A vector over axis 1 in a shape that broadcasts against a tensor of that rank."""
    return vector.reshape((1, -1) + (1,) * (rank - 2)) if rank > 1 else vector


def _batch_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, *vectors = inputs
    require_dtype(x, FLOATS)
    require(len(x.shape) >= 1, "takes at least one axis")
    channels = x.shape[1] if len(x.shape) > 1 else 1
    for vector in vectors:
        require_dtype(vector, FLOATS)
        fits = vector.shape == (channels,)
        require(fits, f"{vector.name} has shape {list(vector.shape)}, the input {channels} channels")
    if not attributes(node)["training_mode"]:
        return [(x.dtype, x.shape)]
    return [(x.dtype, x.shape), (inputs[3].dtype, (channels,)), (inputs[4].dtype, (channels,))]


def _batch(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, scale, bias, mean, variance = (accumulating(operand) for operand in inputs)
    attrs = attributes(node)
    running: list[Array] = []
    if attrs["training_mode"]:
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        momentum = np.asarray(attrs["momentum"], x.dtype)
        batch_mean, batch_variance = x.mean(axis=axes), x.var(axis=axes)
        running = [
            (mean * momentum + batch_mean * (1 - momentum)).astype(inputs[3].dtype),
            (variance * momentum + batch_variance * (1 - momentum)).astype(inputs[4].dtype),
        ]
        mean, variance = batch_mean, batch_variance
    factor = scale / np.sqrt(variance + np.asarray(attrs["epsilon"], variance.dtype))
    y = (x - per_channel(mean, x.ndim)) * per_channel(factor, x.ndim) + per_channel(bias, x.ndim)
    return [y.astype(inputs[0].dtype), *running]


row(
    "BatchNormalization",
    _batch_infer,
    _batch,
    "(x - mean) / sqrt(variance + epsilon) * scale + bias for each channel of axis 1.",
    (5, 5),
    epsilon=1e-5,
    momentum=0.9,
    training_mode=0,
)


# --- normalisation over the last axes ---


def _layer_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, scale, bias = inputs
    require_dtype(x, FLOATS)
    dtype = require_same_dtype(inputs)
    axis = axis_of(attributes(node)["axis"], len(x.shape))
    for vector in (scale, bias):
        if vector is not None:
            fits = broadcast(vector.shape, x.shape[axis:]) == x.shape[axis:]
            require(fits, f"{vector.name} {list(vector.shape)} does not broadcast to {list(x.shape[axis:])}")
    statistics = (*x.shape[:axis], *(1 for _ in x.shape[axis:]))
    wide = "float64" if dtype == "float64" else "float32"
    return [(dtype, x.shape), (wide, statistics), (wide, statistics)][: max(len(node.outputs), 1)]


def standardised(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """(x - mean) / sqrt(variance + epsilon) over axes, the mean, and the reciprocal of the root."""
    mean = np.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    inverse = 1 / np.sqrt(np.mean(np.square(centred), axis=axes, keepdims=True) + np.asarray(epsilon, x.dtype))
    return centred * inverse, mean, inverse


def _layer(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, scale, bias = inputs
    attrs = attributes(node)
    axes = tuple(range(attrs["axis"] % x.ndim, x.ndim))
    y, mean, inverse = standardised(accumulating(x), axes, attrs["epsilon"])
    y = y * accumulating(scale)
    if bias is not None:
        y = y + accumulating(bias)
    return [y.astype(x.dtype), mean, inverse][: max(len(node.outputs), 1)]


def _rms_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    return _layer_infer(node, [inputs[0], inputs[1], None])[:1]


def _rms(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, scale = inputs
    attrs = attributes(node)
    axes = tuple(range(attrs["axis"] % x.ndim, x.ndim))
    wide = accumulating(x)
    mean = np.mean(np.square(wide), axis=axes, keepdims=True)
    y = wide / np.sqrt(mean + np.asarray(attrs["epsilon"], wide.dtype)) * accumulating(scale)
    return [y.astype(x.dtype)]


row(
    "LayerNormalization",
    _layer_infer,
    _layer,
    "Standardised over the axes from `axis` on, then scale and bias; also the mean and 1 / deviation.",
    (2, 3),
    axis=-1,
    epsilon=1e-5,
    stash_type=1,
)
row(
    "RMSNormalization",
    _rms_infer,
    _rms,
    "x over the root of its mean square over the axes from `axis` on, times scale.",
    (2, 2),
    axis=-1,
    epsilon=1e-5,
    stash_type=1,
)


# --- normalisation of each instance, by channel or by group of channels ---


def _channels_infer(allowed: Any) -> Any:
    def infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
        x, scale, bias = inputs
        require_dtype(x, FLOATS)
        dtype = require_same_dtype(inputs)
        require(len(x.shape) >= 3, "takes a batch, channels and at least one more axis")
        lengths = allowed(node, x.shape)
        for vector in (scale, bias):
            fits = vector.shape == scale.shape and len(vector.shape) == 1 and vector.shape[0] in lengths
            require(fits, f"{vector.name} has shape {list(vector.shape)}, not a vector of {lengths[0]}")
        return [(dtype, x.shape)]

    return infer


def _instance(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, scale, bias = (accumulating(operand) for operand in inputs)
    y, _, _ = standardised(x, tuple(range(2, x.ndim)), attributes(node)["epsilon"])
    return [(y * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)).astype(inputs[0].dtype)]


def _groups(node: Node, shape: tuple[int, ...]) -> list[int]:
    groups = attributes(node)["num_groups"]
    require(groups > 0 and shape[1] % groups == 0, f"{shape[1]} channels do not divide into {groups} groups")
    return [groups, shape[1]]


def _group(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, scale, bias = (accumulating(operand) for operand in inputs)
    grouped = x.reshape(x.shape[0], attributes(node)["num_groups"], -1)
    y, _, _ = standardised(grouped, (2,), attributes(node)["epsilon"])
    if scale.size == grouped.shape[1]:
        return [(y * scale.reshape(1, -1, 1) + bias.reshape(1, -1, 1)).reshape(x.shape).astype(inputs[0].dtype)]
    return [(y.reshape(x.shape) * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)).astype(inputs[0].dtype)]


row(
    "InstanceNormalization",
    _channels_infer(lambda node, shape: [shape[1]]),
    _instance,
    "Standardised over the axes after the channels, then scale and bias for each channel.",
    (3, 3),
    epsilon=1e-5,
)
row(
    "GroupNormalization",
    _channels_infer(_groups),
    _group,
    "Standardised over each group of channels, then scale and bias for each group (opset 18) or each channel (21).",
    (3, 3),
    epsilon=1e-5,
    num_groups=REQUIRED,
)


# --- along one axis, by a norm ---


def _lp(node: Node, inputs: Sequence[Any]) -> list[Array]:
    (x,) = inputs
    attrs = attributes(node)
    wide = accumulating(x)
    norm = np.sum(np.abs(wide) ** attrs["p"], axis=attrs["axis"], keepdims=True) ** (1 / attrs["p"])
    return [np.where(norm == 0, wide.dtype.type(0), wide / norm).astype(x.dtype)]


row("LpNormalization", _along_axis_infer, _lp, "x over its p-norm along an axis.", (1, 1), axis=-1, p=2)
