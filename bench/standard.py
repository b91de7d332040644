"""The standard case of each operator: one node on about 65,536 elements, with operands that its float_dtype holds exactly.

docs/operators.md states its steps, and the tests measure its error on the board.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.ops import OPERATORS, Operand, infer
from mlsdk.pipeline.ops.emitters.kernels import KERNELS

Array = np.ndarray

IMAGE = (1, 16, 64, 64)
MATRIX = (256, 256)


#: float_dtype -> dtype of a case's tensors
TENSORS = {"half": "float32", "mixed": "float32", "float": "float32", "double": "float64"}


@dataclass(frozen=True)
class Operands:
    """Draws the operands of a case."""

    rng: np.random.Generator
    float_dtype: str

    @property
    def dtype(self) -> str:
        return TENSORS[self.float_dtype]

    def floats(self, *shape: int, low: float = -4.0, high: float = 4.0) -> Array:
        """Evenly between two numbers; whole 1/64 where halves must hold them."""
        if self.float_dtype in ("half", "mixed"):
            return (self.rng.integers(int(low * 64), int(high * 64) + 1, shape) / 64).astype(self.dtype)
        return self.rng.uniform(low, high, shape).astype(self.dtype)

    def below(self, bound: int, *shape: int, dtype: str = "int64") -> Array:
        return self.rng.integers(0, bound, shape).astype(dtype)

    def order(self, *shape: int) -> Array:
        """Indices below the last extent, none twice in a row."""
        return self.rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1)


@dataclass(frozen=True)
class Case:
    """`inputs` are fed at run time, `constants` follow them; None is an operand left out."""

    inputs: Callable[[Operands], list[Array]]
    constants: Callable[[Operands], list[Array | None]] = lambda _: []
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1


def whole(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def _matrix(d: Operands) -> list[Array]:
    return [d.floats(*MATRIX)]


def _matrices(d: Operands) -> list[Array]:
    return [d.floats(*MATRIX), d.floats(*MATRIX)]


def _image(d: Operands) -> list[Array]:
    return [d.floats(*IMAGE)]


def _scores(d: Operands) -> list[Array]:
    return [d.floats(*MATRIX), d.below(MATRIX[1], MATRIX[0])]


def _affine(channels: int) -> Callable[[Operands], list[Array | None]]:
    return lambda d: [d.floats(channels, low=0.5), d.floats(channels)]


def _last_axis(_: Operands) -> list[Array | None]:
    return [whole(1)]


_REDUCTION = Case(_matrix, _last_axis)
_POOL = {"kernel_shape": (2, 2), "strides": (2, 2)}

#: operator -> its case; of the elementwise operators that are not here the operands follow from their kernels
CASES: dict[str, Case] = {
    "Conv": Case(_image, lambda d: [d.floats(16, 16, 3, 3), d.floats(16)], {"pads": (1, 1, 1, 1)}),
    "ConvTranspose": Case(
        lambda d: [d.floats(1, 16, 32, 32)], lambda d: [d.floats(16, 16, 2, 2), d.floats(16)], {"strides": (2, 2)}
    ),
    "ConvFilterGrad": Case(
        lambda d: [d.floats(*IMAGE), d.floats(*IMAGE)], attrs={"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
    ),
    "Sum": Case(lambda d: [*_matrices(d), d.floats(*MATRIX)]),
    "Mean": Case(lambda d: [*_matrices(d), d.floats(*MATRIX)]),
    "Cast": Case(_matrix, attrs={"to": 6}),
    "CastLike": Case(_matrix, lambda _: [np.zeros(1, np.int32)]),
    "BitShift": Case(lambda d: [d.below(256, *MATRIX, dtype="uint8"), d.below(8, *MATRIX, dtype="uint8")],
                     attrs={"direction": "LEFT"}),
    "Where": Case(lambda d: [d.below(2, *MATRIX, dtype="bool"), *_matrices(d)]),
    "Clip": Case(_matrix, lambda d: [np.array(-1, d.dtype), np.array(1, d.dtype)]),
    "Gather": Case(lambda d: [d.floats(*MATRIX), d.below(256, 256)]),
    "GatherElements": Case(lambda d: [d.floats(*MATRIX), d.below(256, *MATRIX)], attrs={"axis": 1}),
    "GatherND": Case(lambda d: [d.floats(*MATRIX), d.below(256, 256, 1)]),
    "ScatterElements": Case(lambda d: [d.floats(*MATRIX), d.order(*MATRIX), d.floats(*MATRIX)], attrs={"axis": 1}),
    "ScatterND": Case(lambda d: [d.floats(*MATRIX), d.order(1, 256).reshape(256, 1)[:64], d.floats(64, 256)]),
    "OneHot": Case(lambda d: [d.below(256, 256)], lambda d: [np.array(256), np.array([0, 1], d.dtype)]),
    "NegativeLogLikelihoodLoss": Case(_scores),
    "SoftmaxCrossEntropyLoss": Case(_scores),
    "MatMul": Case(_matrix, lambda d: [d.floats(*MATRIX)]),
    "Gemm": Case(_matrix, lambda d: [d.floats(*MATRIX), d.floats(256)]),
    "Softmax": Case(_matrix),
    "LogSoftmax": Case(_matrix),
    "Hardmax": Case(_matrix),
    "LpNormalization": Case(_matrix),
    "BatchNormalization": Case(_image, lambda d: [*_affine(16)(d), d.floats(16), d.floats(16, low=0.5)]),
    "LayerNormalization": Case(_matrix, _affine(256)),
    "RMSNormalization": Case(_matrix, lambda d: [d.floats(256)]),
    "InstanceNormalization": Case(_image, _affine(16)),
    "GroupNormalization": Case(_image, _affine(16), {"num_groups": 4}),
    "MaxPool": Case(_image, attrs=_POOL),
    "MaxPoolGrad": Case(lambda d: [d.floats(*IMAGE), d.floats(1, 16, 32, 32)], attrs=_POOL),
    "AveragePool": Case(_image, attrs=_POOL),
    "GlobalAveragePool": Case(_image),
    "GlobalMaxPool": Case(_image),
    "RandomBits": Case(lambda d: [d.below(1 << 30, 2, dtype="int32")], attrs={"shape": MATRIX, "stream": 0}),
    "ReduceSum": _REDUCTION,
    "ReduceMean": _REDUCTION,
    "ReduceMax": _REDUCTION,
    "ReduceMin": _REDUCTION,
    "ReduceProd": Case(lambda d: [d.floats(256, 256, low=0.75, high=1.25)], _last_axis),
    "ReduceL1": _REDUCTION,
    "ReduceL2": _REDUCTION,
    "ReduceSumSquare": _REDUCTION,
    "ReduceLogSum": Case(lambda d: [d.floats(256, 256, low=0.5)], _last_axis),
    "ReduceLogSumExp": _REDUCTION,
    "ArgMax": Case(_matrix, attrs={"axis": 1}),
    "ArgMin": Case(_matrix, attrs={"axis": 1}),
    "CumSum": Case(_matrix, lambda _: [np.array(1)]),
    "TopK": Case(_matrix, lambda _: [whole(8)], outputs=2),
    "Resize": Case(
        lambda d: [d.floats(1, 16, 32, 32)], lambda _: [None, np.array([1, 1, 2, 2], np.float32)], {"mode": "linear"}
    ),
    "Reshape": Case(_matrix, lambda _: [whole(64, 1024)]),
    "Flatten": Case(_image),
    "Squeeze": Case(_image, lambda _: [whole(0)]),
    "Unsqueeze": Case(_matrix, lambda _: [whole(0)]),
    "Transpose": Case(_matrix),
    "Expand": Case(lambda d: [d.floats(256, 1)], lambda _: [whole(256, 256)]),
    "Tile": Case(lambda d: [d.floats(128, 128)], lambda _: [whole(2, 2)]),
    "Concat": Case(lambda d: [d.floats(128, 256), d.floats(128, 256)], attrs={"axis": 0}),
    "Split": Case(_matrix, attrs={"axis": 1, "num_outputs": 2}, outputs=2),
    "Slice": Case(lambda d: [d.floats(512, 256)], lambda _: [whole(100), whole(356), whole(0)]),
    "Pad": Case(lambda d: [d.floats(254, 254)], lambda _: [whole(1, 1, 1, 1)]),
    "Trilu": Case(_matrix),
    "DepthToSpace": Case(_image, attrs={"blocksize": 2}),
    "SpaceToDepth": Case(_image, attrs={"blocksize": 2}),
}  # fmt: skip

#: operators whose result does not depend on what a program computes: they become constants of the graph
CONSTANT = ("Constant", "ConstantOfShape", "Range", "EyeLike", "Shape", "Size")


def case_of(op: str) -> Case:
    """The case of an operator. Raises KeyError for one of CONSTANT."""
    if op in CASES:
        return CASES[op]
    if not any((op, dtype) in KERNELS for dtype in ("single", "int")):
        raise KeyError(op)
    fewest, _ = OPERATORS[op].arity
    if (op, "single") in KERNELS:
        return Case(lambda d: [d.floats(*MATRIX) for _ in range(fewest)])
    dtype = "int32" if op.startswith("Bitwise") else "bool"
    return Case(lambda d: [d.below(2, *MATRIX, dtype=dtype) for _ in range(fewest)])


def draw(op: str, float_dtype: str = "float", seed: int = 0) -> tuple[Graph, dict[str, Array]]:
    """The graph of an operator's case, and its run-time inputs."""
    case = case_of(op)
    operands = Operands(np.random.default_rng(seed), float_dtype)
    arrays: list[Array | None] = [*case.inputs(operands)]
    inputs = {f"x{i}": array for i, array in enumerate(arrays) if array is not None}
    arrays += case.constants(operands)
    names = tuple("" if array is None else f"x{i}" for i, array in enumerate(arrays))
    data = {name: array for name, array in zip(names, arrays) if array is not None}
    outputs = tuple(f"y{i}" for i in range(case.outputs))
    node = Node(op, op, names, outputs, case.attrs)
    constants = {name: array for name, array in data.items() if name not in inputs}
    values = {name: Value(name, str(array.dtype), array.shape) for name, array in data.items()}
    known = [Operand(n, values[n].dtype, values[n].shape, constants.get(n)) if n else None for n in names]
    for name, (kind, shape) in zip(outputs, infer(node, known)):
        values[name] = Value(name, kind, shape)
    return Graph(op, tuple(inputs), outputs, (node,), values, constants), inputs
