"""The operator table: one row per operator, and what a row holds.

A row knows what an operator means (shape and dtype rule, reference function). How it becomes instructions stands in
`emitters/`, keyed by the operator's name; the table does not import it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlsdk.errors import GraphError, UnknownOperator
from mlsdk.pipeline.ir.graph import DTYPES, Graph, Node, Value

Type = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Operand(Value):
    """A value as the shape rules see it: with its data where that is constant (the shape of a Reshape, say)."""

    data: np.ndarray | None = None


Infer = Callable[[Node, Sequence[Any]], list[Type]]
Reference = Callable[[Node, Sequence[Any]], list[np.ndarray]]


@dataclass(frozen=True)
class Operator:
    """One row.

    infer(node, inputs: list[Operand | None]) -> list[(dtype, shape)], raises GraphError.
    reference(node, inputs: list[ndarray | None]) -> list[ndarray], one for each output of `infer`.
    arity: fewest and most inputs (None: no bound). attrs: name -> default; REQUIRED for one without default.
    """

    name: str
    infer: Infer
    reference: Reference
    doc: str
    arity: tuple[int, int | None] = (1, 1)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    family: str = ""


class Required:
    """The default of an attribute that has none."""

    def __repr__(self) -> str:
        return "required"


REQUIRED = Required()

_ROWS: dict[str, Operator] = {}


def register(row: Operator) -> Operator:
    """Add a row. Raises GraphError when the name is taken."""
    if row.name in _ROWS:
        raise GraphError(f"operator {row.name} is registered twice; choose another name")
    _ROWS[row.name] = row
    return row


def table() -> Mapping[str, Operator]:
    """All registered rows, in the order of registration."""
    return _ROWS


def lookup(name: str) -> Operator:
    """The row of `name`. Raises UnknownOperator, with the nearest name that exists."""
    row = _ROWS.get(name)
    if row is None:
        near = difflib.get_close_matches(name, _ROWS, n=1)
        hint = f"did you mean {near[0]}?" if near else "see `mlsdk.pipeline.ops.OPERATORS`"
        raise UnknownOperator(f"operator {name} is not in the table; {hint}")
    return row


def attributes(node: Node) -> dict[str, Any]:
    """The node's attributes over the defaults of its row."""
    return {**lookup(node.op).attrs, **node.attrs}


def infer(node: Node, inputs: Sequence[Operand | None]) -> list[Type]:
    """dtype and shape of each output of `node`. Raises GraphError that names the node and its source line."""
    row = lookup(node.op)
    fewest, most = row.arity
    present = len(inputs)
    while present and inputs[present - 1] is None:
        present -= 1
    try:
        if present < fewest or (most is not None and present > most):
            bound = f"{fewest}" if fewest == most else f"{fewest} to {'any number' if most is None else most}"
            raise GraphError(f"takes {bound} inputs, got {present}")
        if any(operand is None for operand in inputs[:fewest]):
            raise GraphError(f"its first {fewest} inputs are required")
        for key in node.attrs:
            if key not in row.attrs:
                near = difflib.get_close_matches(key, row.attrs, n=1)
                raise GraphError(f"has no attribute {key}" + (f"; did you mean {near[0]}?" if near else ""))
        for key, default in row.attrs.items():
            if default is REQUIRED and key not in node.attrs:
                raise GraphError(f"needs the attribute {key}")
        results = row.infer(node, list(inputs) + [None] * ((most or 0) - len(inputs)))
    except GraphError as error:
        at = f" at {node.source}" if node.source else ""
        raise GraphError(f"node {node.name} ({node.op}){at}: {error}") from None
    return [(dtype, tuple(int(extent) for extent in shape)) for dtype, shape in results]


def run(node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """The reference function of `node` on arrays; absent trailing inputs may be left out."""
    row = lookup(node.op)
    most = row.arity[1] or 0
    with np.errstate(all="ignore"):
        return row.reference(node, list(inputs) + [None] * (most - len(inputs)))


def operand(graph: Graph, name: str) -> Operand | None:
    """The graph's value as a shape rule sees it; None for the empty name."""
    if not name:
        return None
    value = graph.values[name]
    return Operand(value.name, value.dtype, value.shape, graph.constants.get(name))


# --- helpers of the shape rules ---


def require(condition: object, fact: str) -> None:
    """Raise GraphError with `fact` unless `condition` holds."""
    if not condition:
        raise GraphError(fact)


def require_dtype(operand: Value, allowed: Iterable[str]) -> None:
    require(operand.dtype in allowed, f"input {operand.name} has dtype {operand.dtype}; allowed: {', '.join(allowed)}")


def require_same_dtype(operands: Sequence[Value | None]) -> str:
    """The common dtype of the present operands. Raises GraphError."""
    present = [operand for operand in operands if operand is not None]
    dtypes = dict.fromkeys(operand.dtype for operand in present)
    require(len(dtypes) == 1, f"inputs have different dtypes {', '.join(dtypes)}; cast them to one")
    return present[0].dtype


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape under ONNX's (numpy's) broadcasting. Raises GraphError."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " and ".join(str(list(shape)) for shape in shapes)
        raise GraphError(f"shapes {listed} do not broadcast") from None


def axis_of(axis: int, rank: int) -> int:
    """The axis counted from 0. Raises GraphError when it lies outside."""
    require(-rank <= axis < rank, f"axis {axis} is outside a tensor of rank {rank}")
    return axis % rank


def axes_of(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Sorted axes counted from 0. Raises GraphError on one outside, or named twice."""
    found = sorted(axis_of(int(axis), rank) for axis in axes)
    require(len(set(found)) == len(found), f"an axis is named twice in {found}")
    return tuple(found)


def constant_of(operand: Operand | None, what: str) -> np.ndarray:
    """The data of an operand that a shape depends on. Raises GraphError when it is not constant."""
    require(operand is not None, f"{what} is required")
    assert operand is not None
    require(operand.data is not None, f"{what} ({operand.name}) is computed at run time; make it constant")
    assert operand.data is not None
    return operand.data


def integers_of(operand: Operand | None, what: str) -> tuple[int, ...]:
    """`constant_of` as a tuple of ints."""
    data = constant_of(operand, what)
    fits = data.dtype.kind in "iu" and data.ndim <= 1
    require(fits, f"{what} is {data.dtype}{list(data.shape)}, not a list of integers")
    return tuple(int(item) for item in np.atleast_1d(data))


def dtype_name(array: np.ndarray) -> str:
    return str(array.dtype)


def accumulating(array: np.ndarray) -> np.ndarray:
    """`array` in the precision that sums are taken in: halves in singles, the rest as it is."""
    return array.astype(np.float32) if array.dtype == np.float16 else array


__all__ = ["DTYPES", "REQUIRED", "Operand", "Operator", "attributes", "infer", "lookup", "register", "run", "table"]
