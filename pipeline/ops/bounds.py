"""The largest errors of the operators that are more than one formula for each element, by float_dtype.

In units in the last place of the largest result, in the format that the result has on the board, against the exact result of the
operands as the board holds them; for the standard case of `bench/standard.py` (sums and products of 256 terms or fewer). Sums of
n terms in another order grow with the root of n. Operators that choose or move elements have no error. Those that are one formula
have their errors in `emitters/kernels.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Ulp = float


class Bound(NamedTuple):
    """Units in the last place for each float_dtype."""

    half: Ulp
    mixed: Ulp
    float: Ulp
    double: Ulp


EXACT = Bound(0, 0, 0, 0)

BOUNDS: Mapping[str, Bound] = {
    "Conv": Bound(0.51, 0.51, 4, 8),
    "ConvTranspose": Bound(0.51, 0.51, 2.5, 4),
    "ConvFilterGrad": Bound(0.51, 1, 4, 8),
    "MatMul": Bound(0.51, 0.51, 6, 12),
    "Gemm": Bound(0.51, 0.51, 6, 12),
    "Sum": Bound(1, 1, 1, 1),
    "Mean": Bound(1, 1.5, 1.5, 1.5),
    "NegativeLogLikelihoodLoss": Bound(0.51, 1.5, 2, 4),
    "SoftmaxCrossEntropyLoss": Bound(0.51, 1, 1, 2),
    "Softmax": Bound(0.51, 2, 2, 4),
    "LogSoftmax": Bound(0.51, 1, 1, 2),
    "LpNormalization": Bound(0.51, 2, 2, 3),
    "BatchNormalization": Bound(0.51, 2, 2, 2),
    "LayerNormalization": Bound(0.51, 1.5, 1.5, 3),
    "RMSNormalization": Bound(0.51, 2, 2, 3),
    "InstanceNormalization": Bound(0.51, 1.5, 1.5, 2),
    "GroupNormalization": Bound(0.51, 1.5, 1.5, 2),
    "AveragePool": Bound(0.51, 1.5, 1.5, 1.5),
    "GlobalAveragePool": Bound(0.51, 6, 6, 12),
    "ReduceSum": Bound(0.51, 1, 1, 1.5),
    "ReduceMean": Bound(0.51, 1, 1, 1.5),
    "ReduceProd": Bound(0.51, 16, 16, 16),
    "ReduceL1": Bound(0.51, 1.5, 1.5, 2),
    "ReduceL2": Bound(0.75, 1.5, 1.5, 2),
    "ReduceSumSquare": Bound(0.55, 1.5, 1.5, 2),
    "ReduceLogSum": Bound(0.75, 1, 1, 2),
    "ReduceLogSumExp": Bound(0.8, 1.5, 1.5, 2),
    "CumSum": Bound(0.51, 6, 6, 12),
    "Resize": Bound(0.51, 2.5, 2.5, 3),
}


def bound(op: str) -> Bound:
    """The bound of an operator that is no kernel."""
    return BOUNDS.get(op, EXACT)
