"""Resize: each axis on its own, as a matrix of interpolation weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlsdk.errors import GraphError
from mlsdk.pipeline.ir.graph import FLOATS, Node
from mlsdk.pipeline.ops.table import (
    Operator,
    Type,
    accumulating,
    attributes,
    axis_of,
    constant_of,
    register,
    require,
    require_dtype,
)

Array = np.ndarray

# mode -> (output index, scale, input extent, output extent) -> input coordinate
COORDINATES: dict[str, Callable[[float, float, int, int], float]] = {
    "half_pixel": lambda i, scale, n, out: (i + 0.5) / scale - 0.5,
    "half_pixel_symmetric": lambda i, scale, n, out: (
        (n / 2) * (1 - out / (scale * n)) + (i + 0.5) / scale - 0.5 if n else 0.0
    ),
    "pytorch_half_pixel": lambda i, scale, n, out: (i + 0.5) / scale - 0.5 if out > 1 else 0.0,
    "align_corners": lambda i, scale, n, out: i * (n - 1) / (scale * n - 1) if scale * n > 1 else 0.0,
    "asymmetric": lambda i, scale, n, out: i / scale,
}

ROUNDINGS: dict[str, Callable[[float], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_floor": lambda x: math.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5),
}


def geometry(node: Node, shape: tuple[int, ...], scales: Any, sizes: Any) -> list[tuple[int, int, float]]:
    """(axis, output extent, scale) for each axis that changes. Raises GraphError."""
    attrs = attributes(node)
    axes = list(range(len(shape))) if attrs["axes"] is None else [axis_of(axis, len(shape)) for axis in attrs["axes"]]
    require(attrs["keep_aspect_ratio_policy"] == "stretch", "keep_aspect_ratio_policy is 'stretch' only")
    require(not attrs["antialias"] or attrs["mode"] in FILTERS, f"antialias is of modes {', '.join(FILTERS)} only")
    if sizes is not None and sizes.size:
        require(len(axes) == sizes.size, f"{sizes.size} sizes for {len(axes)} axes")
        wanted = [(axis, int(size), int(size) / shape[axis]) for axis, size in zip(axes, sizes)]
    else:
        require(scales is not None and scales.size == len(axes), f"needs scales or sizes for {len(axes)} axes")
        wanted = [(axis, math.floor(shape[axis] * float(scale)), float(scale)) for axis, scale in zip(axes, scales)]
    return [entry for entry in wanted if not (entry[1] == shape[entry[0]] and entry[2] == 1)]


def _infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, _, scales, sizes = inputs
    attrs = attributes(node)
    require(attrs["mode"] in ("nearest", "linear", "cubic"), "mode is 'nearest', 'linear' or 'cubic'")
    require(attrs["coordinate_transformation_mode"] in COORDINATES, f"coordinates are {', '.join(COORDINATES)}")
    require(attrs["nearest_mode"] in ROUNDINGS, f"nearest_mode is {', '.join(ROUNDINGS)}")
    if attrs["mode"] != "nearest":
        require_dtype(x, FLOATS)
    shape = list(x.shape)
    scale_data = None if scales is None else constant_of(scales, "scales")
    size_data = None if sizes is None else constant_of(sizes, "sizes")
    for axis, extent, _ in geometry(node, x.shape, scale_data, size_data):
        shape[axis] = extent
    return [(x.dtype, tuple(shape))]


def _linear(x: float, a: float) -> float:
    return max(0.0, 1 - abs(x))


def _cubic(x: float, a: float) -> float:
    """Keys' kernel."""
    x = abs(x)
    if x <= 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


# mode -> how far a filter reaches, and its weight at a distance
FILTERS: dict[str, tuple[int, Callable[[float, float], float]]] = {"linear": (1, _linear), "cubic": (2, _cubic)}


def weights(node: Node, extent: int, out: int, scale: float) -> Array:
    """The matrix [out, extent] that resizes one axis (float64)."""
    attrs = attributes(node)
    coordinate = COORDINATES[attrs["coordinate_transformation_mode"]]
    matrix = np.zeros((out, extent))
    wide = max(1.0, 1 / scale) if attrs["antialias"] else 1.0
    for i in range(out):
        x = coordinate(i, scale, extent, out)
        if attrs["mode"] == "nearest":
            matrix[i, min(max(ROUNDINGS[attrs["nearest_mode"]](x), 0), extent - 1)] = 1
            continue
        reach, weight = FILTERS[attrs["mode"]]
        places = range(math.ceil(x - reach * wide), math.floor(x + reach * wide) + 1)
        taps = [(place, weight((place - x) / wide, attrs["cubic_coeff_a"])) for place in places]
        if attrs["exclude_outside"]:
            taps = [(place, factor) for place, factor in taps if 0 <= place < extent]
        if attrs["exclude_outside"] or attrs["antialias"]:
            total = sum(factor for _, factor in taps)
            taps = [(place, factor / total) for place, factor in taps]
        for place, factor in taps:
            matrix[i, min(max(place, 0), extent - 1)] += factor
    return matrix


def _reference(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, _, scales, sizes = inputs
    if x.size == 0:
        raise GraphError(f"{node.name}: cannot resize an input without elements")
    out = x if attributes(node)["mode"] == "nearest" else accumulating(x)
    for axis, extent, scale in geometry(node, x.shape, scales, sizes):
        matrix = weights(node, x.shape[axis], extent, scale)
        if attributes(node)["mode"] == "nearest":
            out = np.take(out, np.argmax(matrix, axis=1), axis=axis)
        else:
            out = np.moveaxis(np.tensordot(matrix.astype(out.dtype), out, (1, axis)), 0, axis)
    return [np.asarray(out, x.dtype)]


register(
    Operator(
        "Resize",
        _infer,
        _reference,
        "x at another resolution: nearest, linear or cubic; inputs x, roi (unused), scales, sizes.",
        (1, 4),
        {
            "antialias": 0,
            "axes": None,
            "coordinate_transformation_mode": "half_pixel",
            "cubic_coeff_a": -0.75,
            "exclude_outside": 0,
            "extrapolation_value": 0.0,
            "keep_aspect_ratio_policy": "stretch",
            "mode": "nearest",
            "nearest_mode": "round_prefer_floor",
        },
        "resize",
    )
)
