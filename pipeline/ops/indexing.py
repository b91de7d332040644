"""Operators that read or write at indices. Negative indices count from the end; one outside is an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlsdk.errors import GraphError
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ops.table import (
    Operator,
    Type,
    attributes,
    axis_of,
    constant_of,
    register,
    require,
    require_dtype,
    require_same_dtype,
)

Array = np.ndarray
INDICES = ("int32", "int64")


def row(name: str, infer: Any, reference: Any, doc: str, arity: tuple[int, int | None], **attrs: Any) -> None:
    register(Operator(name, infer, reference, doc, arity, attrs, "indexing"))


def from_start(indices: Array, extent: int, what: str) -> Array:
    """Indices counted from 0. Raises GraphError on one outside [-extent, extent)."""
    indices = indices.astype(np.int64)
    if indices.size and not (indices.min() >= -extent and indices.max() < extent):
        worst = int(indices.min() if indices.min() < -extent else indices.max())
        raise GraphError(f"{what}: index {worst} is outside an axis of {extent} elements")
    return np.where(indices < 0, indices + extent, indices)


# --- reading ---


def _gather_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, indices = inputs
    require_dtype(indices, INDICES)
    axis = axis_of(attributes(node)["axis"], len(x.shape))
    return [(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))]


def _gather(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, indices = inputs
    axis = attributes(node)["axis"] % x.ndim
    return [np.take(x, from_start(indices, x.shape[axis], node.name), axis=axis)]


def _gather_elements_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, indices = inputs
    require_dtype(indices, INDICES)
    axis = axis_of(attributes(node)["axis"], len(x.shape))
    _require_inside(x.shape, indices.shape, axis)
    return [(x.dtype, indices.shape)]


def _require_inside(shape: tuple[int, ...], indices: tuple[int, ...], axis: int) -> None:
    fits = len(shape) == len(indices) and all(
        here <= there for i, (here, there) in enumerate(zip(indices, shape)) if i != axis
    )
    require(fits, f"indices {list(indices)} do not fit into {list(shape)} beside axis {axis}")


def place(indices: Array, axis: int) -> tuple[Array, ...]:
    """A full index: `indices` along the axis, its own position along the others."""
    grid = list(np.ogrid[tuple(slice(extent) for extent in indices.shape)])
    grid[axis] = indices
    return tuple(grid)


def _gather_elements(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, indices = inputs
    axis = attributes(node)["axis"] % x.ndim
    return [x[place(from_start(indices, x.shape[axis], node.name), axis)]]


def _gather_nd_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, indices = inputs
    require_dtype(indices, INDICES)
    batch = attributes(node)["batch_dims"]
    require(len(indices.shape) > batch, f"indices of rank {len(indices.shape)} for {batch} batch axes")
    require(x.shape[:batch] == indices.shape[:batch], "the batch axes of data and indices differ")
    depth = indices.shape[-1]
    require(batch + depth <= len(x.shape), f"indices name {depth} axes beside {batch} of {len(x.shape)}")
    return [(x.dtype, (*indices.shape[:-1], *x.shape[batch + depth :]))]


def nd_place(x: Array, indices: Array, batch: int, what: str) -> tuple[Array, ...]:
    """A full index into x: positions along the batch axes, then the columns of `indices`."""
    lead = indices.ndim - 1
    grid = [
        np.arange(indices.shape[axis]).reshape((1,) * axis + (-1,) + (1,) * (lead - axis - 1)) for axis in range(batch)
    ]
    columns = [from_start(indices[..., i], x.shape[batch + i], what) for i in range(indices.shape[-1])]
    return (*grid, *columns)


def _gather_nd(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, indices = inputs
    batch = attributes(node)["batch_dims"]
    index = nd_place(x, indices, batch, node.name)
    if not index:
        return [np.broadcast_to(x, (*indices.shape[:-1], *x.shape))]
    shape = (*indices.shape[:-1], *x.shape[batch + indices.shape[-1] :])
    return [np.asarray(x[index]).reshape(shape)]


row("Gather", _gather_infer, _gather, "Slices of x along an axis, chosen by indices.", (2, 2), axis=0)
row(
    "GatherElements",
    _gather_elements_infer,
    _gather_elements,
    "One element of x for each index: the index replaces the position along an axis.",
    (2, 2),
    axis=0,
)
row("GatherND", _gather_nd_infer, _gather_nd, "Slices of x at full indices.", (2, 2), batch_dims=0)


# --- writing ---

REDUCTIONS: dict[str, Any] = {
    "none": None,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _reduction(node: Node) -> str:
    name = attributes(node)["reduction"]
    require(name in REDUCTIONS, f"reduction is {name!r}; allowed are {', '.join(REDUCTIONS)}")
    return name


def written(x: Array, index: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    """A copy of x with updates at an index; equal indices are applied in order."""
    wide = x.astype(np.float32) if x.dtype == np.float16 and reduction == "add" else x.copy()
    if REDUCTIONS[reduction] is None:
        wide[index] = updates
    elif reduction == "add" and x.dtype == np.bool_:
        np.logical_or.at(wide, index, updates)
    else:
        REDUCTIONS[reduction].at(wide, index, updates.astype(wide.dtype))
    return wide.astype(x.dtype)


def _scatter_elements_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, indices, updates = inputs
    require_dtype(indices, INDICES)
    require_same_dtype([x, updates])
    axis = axis_of(attributes(node)["axis"], len(x.shape))
    _require_inside(x.shape, indices.shape, axis)
    require(indices.shape == updates.shape, f"indices {list(indices.shape)} and updates {list(updates.shape)} differ")
    _reduction(node)
    return [(x.dtype, x.shape)]


def _scatter_elements(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, indices, updates = inputs
    axis = attributes(node)["axis"] % x.ndim
    index = place(from_start(indices, x.shape[axis], node.name), axis)
    return [written(x, index, updates, _reduction(node))]


def _scatter_nd_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, indices, updates = inputs
    require_dtype(indices, INDICES)
    require_same_dtype([x, updates])
    require(len(indices.shape) >= 1, "indices are at least a vector")
    depth = indices.shape[-1]
    require(depth <= len(x.shape), f"indices name {depth} axes of {len(x.shape)}")
    wanted = (*indices.shape[:-1], *x.shape[depth:])
    require(updates.shape == wanted, f"updates are {list(updates.shape)}, the indices need {list(wanted)}")
    _reduction(node)
    return [(x.dtype, x.shape)]


def _scatter_nd(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, indices, updates = inputs
    index = nd_place(x, indices, 0, node.name)
    if not index:
        index = (np.zeros(indices.shape[:-1], np.int64),)
        return [written(x[None], index, updates, _reduction(node))[0]]
    return [written(x, index, updates, _reduction(node))]


row(
    "ScatterElements",
    _scatter_elements_infer,
    _scatter_elements,
    "A copy of x with single elements replaced, added, multiplied, or kept if larger or smaller.",
    (3, 3),
    axis=0,
    reduction="none",
)
row(
    "ScatterND",
    _scatter_nd_infer,
    _scatter_nd,
    "A copy of x with slices at full indices replaced, added, multiplied, or kept if larger or smaller.",
    (3, 3),
    reduction="none",
)


# --- one-hot ---


def _one_hot_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    indices, depth, values = inputs
    require(values.size == 2, "its values are (off, on)")
    count = int(constant_of(depth, "depth").reshape(()))
    axis = attributes(node)["axis"]
    rank = len(indices.shape) + 1
    axis = axis_of(axis, rank)
    shape = list(indices.shape)
    shape.insert(axis, count)
    return [(values.dtype, tuple(shape))]


def _one_hot(node: Node, inputs: Sequence[Any]) -> list[Array]:
    indices, depth, values = inputs
    count = int(depth.reshape(()))
    axis = attributes(node)["axis"] % (indices.ndim + 1)
    column = np.arange(count).reshape((-1,) + (1,) * (indices.ndim - axis))
    wanted = np.expand_dims(np.where(indices < 0, indices + count, indices), axis)
    return [np.where(wanted == column, values[1], values[0]).astype(values.dtype)]


row(
    "OneHot",
    _one_hot_infer,
    _one_hot,
    "`on` at each index along a new axis, `off` elsewhere; an index outside gives `off` everywhere.",
    (3, 3),
    axis=-1,
)

__all__ = ["from_start", "place"]
