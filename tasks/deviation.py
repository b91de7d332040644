"""How far two arrays are apart, and how far an operator's result may be: the numbers of `mlsdk bisect`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import Node

# What stands for an error that no number says: JSON has no infinity.
LARGEST = sys.float_info.max

# float_dtype -> allowed error of elementwise operators and moves, of sums and functions of several elements, of matrix
# products; relative to the scale of the node (see `scale_of`). The table of docs/numerics.md; where the board has doubles for
# float32, the errors are those of the reference, which computes in float32 from operands that were rounded to it.
ALLOWED = {
    "float": (2.0**-22, 3e-6, 4e-6),
    "mixed": (2.0**-22, 3e-6, 2.0**-7),
    "half": (3 * 2.0**-10, 2.0**-7, 2.0**-7),
    "double": (2.0**-22, 3e-6, 4e-6),
}
# float64 is double everywhere; float16 is rounded after each node by the reference, and not on the board.
OF_FLOAT64 = (2.0**-48, 1e-13, 1e-13)
FLOAT16 = 2.0**-10
PRODUCTS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
ELEMENTWISE = {"elementwise", "indexing", "random", "shape"}


@dataclass(frozen=True)
class Deviation:
    """`found` against `wanted`, of one shape. `relative`: the largest error over the scale; `wrong`: how many elements are
    farther away than `allowed`; `place`: the index of the worst one, and both values there."""

    largest: float
    mean: float
    relative: float
    elements: int
    allowed: float
    wrong: int
    place: tuple[int, ...]
    found: Any
    wanted: Any

    @property
    def same(self) -> bool:
        return self.wrong == 0


def deviation(found: np.ndarray, wanted: np.ndarray, allowed: float, scale: float) -> Deviation:
    """Floats may differ by `allowed` times `scale`; all others are equal or not. Where `wanted` is no finite number the board
    has numbers of its own (docs/numerics.md), and nothing is compared."""
    if wanted.dtype.kind != "f":
        allowed, scale = 0.0, 1.0
    known = np.isfinite(wanted.astype(np.float64))
    wide_found, wide_wanted = (np.where(known, array, 0).astype(np.float64) for array in (found, wanted))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(wide_found - wide_wanted)
    error = np.where(np.isfinite(error), error, LARGEST)
    if not error.size:
        return Deviation(0.0, 0.0, 0.0, 0, allowed, 0, (), None, None)
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), error.shape))
    largest = float(error[place])
    relative = min(largest / scale, LARGEST) if scale else (LARGEST if largest else 0.0)
    return Deviation(
        largest,
        min(float(np.mean(error / error.size)) * error.size, LARGEST),
        relative,
        error.size,
        allowed,
        int((error > allowed * scale).sum()),
        place,
        found[place].item(),
        wanted[place].item(),
    )


def allowed_of(node: Node, family: str, float_dtype: str, operands: Sequence[str], result: str) -> float:
    """The error that the board may make in one node, by the dtypes of its operands and of the result."""
    exact = {"float64"}.issuperset(dtype for dtype in (*operands, result) if dtype.startswith("float"))
    elementwise, several, product = OF_FLOAT64 if exact else ALLOWED[float_dtype]
    allowed = product if node.op in PRODUCTS else elementwise if family in ELEMENTWISE else several
    return max(allowed, FLOAT16) if "float16" in (*operands, result) else allowed


def scale_of(node: Node, inputs: Sequence[np.ndarray | None], result: np.ndarray) -> float:
    """What errors of a node are relative to: the largest number in it; of a product the largest operands and the root of the
    number of its terms; of a sum the root of the number of its terms, too."""
    if result.dtype.kind != "f":
        return 1.0
    sizes = [_largest(array) for array in inputs if array is not None and array.dtype.kind == "f"]
    if node.op in PRODUCTS:
        return max(_largest(result), sizes[0] * sizes[1] * sqrt(_terms(node, inputs)), *sizes[2:])
    source = inputs[0] if inputs else None
    terms = source.size / max(result.size, 1) if source is not None and node.op.startswith("Reduce") else 1.0
    return max(_largest(result), max(sizes, default=0.0) * sqrt(max(terms, 1.0)))


def _terms(node: Node, inputs: Sequence[np.ndarray | None]) -> int:
    a, b = inputs[0], inputs[1]
    assert a is not None and b is not None
    if node.op == "Gemm":
        return a.shape[0 if node.attrs.get("transA") else 1]
    if node.op == "MatMul":
        return a.shape[-1] if a.ndim else 1
    # a kernel [outputs, inputs of a group, height, width]; transposed, [inputs, outputs of a group, height, width]
    return b.shape[0] * prod(b.shape[2:]) if node.op == "ConvTranspose" else prod(b.shape[1:])


def _largest(array: np.ndarray) -> float:
    known = np.abs(array[np.isfinite(array)].astype(np.float64))
    return float(known.max()) if known.size else 0.0
