"""Linear algebra of small matrices, one column after the other: each is a few operators over all matrices of a batch.

Of larger ones the program would be too long, and the form is refused. Singular values and eigenvalues need a number of rounds
that is known only at run time.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mlsdk.pipeline.trace.decompositions.table import aten, decomposes

#: columns of the largest matrix
MOST = 32


def _large(*matrices: Tensor) -> bool:
    return any(min(a.shape[-2:]) > MOST for a in matrices)


def _fine(a: Tensor) -> Tensor:
    """What `_ex` operators tell of each matrix: nothing."""
    return torch.zeros(a.shape[:-2], dtype=torch.int32)


def _swapped(order: Tensor, k: int, other: Tensor) -> Tensor:
    """Places 0.. with place k and `other` [..., 1] exchanged, for rows that were in `order`."""
    places = torch.arange(order.shape[-1])
    return order.gather(-1, torch.where(places == k, other, torch.where(places == other, k, places)))


def _rows(a: Tensor, order: Tensor) -> Tensor:
    return a.gather(-2, order[..., None].expand(a.shape))


class Factors:
    """P L U of a matrix: `packed` has L below its diagonal, which is 1, and U; row i of both is row `order[i]` of the matrix;
    `pivots` count from 1."""

    def __init__(self, a: Tensor):
        height, width = a.shape[-2:]
        rows, columns = torch.arange(height), torch.arange(width)
        self.order = rows.expand(a.shape[:-1])
        pivots = []
        for k in range(min(height, width)):
            largest = torch.where(rows >= k, a[..., k].abs(), -1).argmax(-1, keepdim=True)
            swap = _swapped(rows.expand(a.shape[:-1]), k, largest)
            a, self.order = _rows(a, swap), self.order.gather(-1, swap)
            pivots.append(largest + 1)
            pivot = a[..., k, k, None]
            share = torch.where(rows > k, a[..., k] / torch.where(pivot == 0, 1, pivot), 0)[..., None]
            less = a - share * torch.where(columns > k, a[..., k, None, :], 0)
            a = torch.where((rows > k)[:, None] & (columns == k), share, less)
        self.packed = a
        self.pivots = torch.cat(pivots, -1).int() if pivots else self.order[..., :0].int()

    @property
    def diagonal(self) -> Tensor:
        return self.packed.diagonal(0, -2, -1)

    @property
    def sign(self) -> Tensor:
        """Of the permutation."""
        steps = torch.arange(1, self.pivots.shape[-1] + 1)
        return torch.where(self.pivots == steps, 1, -1).to(self.packed.dtype).prod(-1)


def substituted(a: Tensor, b: Tensor, upper: bool, unit: bool) -> Tensor:
    """X of A X = B for a triangle."""
    size = a.shape[-1]
    rows = torch.arange(size)
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    b = b.expand(*batch, *b.shape[-2:])
    for k in reversed(range(size)) if upper else range(size):
        found = b[..., k, None, :]
        if not unit:
            found = found / a[..., k, k, None, None]
        open_rows = rows < k if upper else rows > k
        b = torch.where((rows == k)[:, None], found, b - torch.where(open_rows, a[..., k], 0)[..., None] * found)
    return b


def _solved(packed: Tensor, order: Tensor, b: Tensor, adjoint: bool) -> Tensor:
    """X of A X = B, or of A^T X = B."""
    if not adjoint:
        batch = torch.broadcast_shapes(packed.shape[:-2], b.shape[:-2])
        order = order.expand(*batch, order.shape[-1])
        lower = substituted(packed, _rows(b.expand(*batch, *b.shape[-2:]), order), False, True)
        return substituted(packed, lower, True, False)
    inner = substituted(packed.mT, substituted(packed.mT, b, False, False), True, True)
    return _rows(inner, order.argsort(-1).expand(*inner.shape[:-2], order.shape[-1]))


def _of_determinant(a: Tensor) -> Factors:
    """torch factors the transpose of a matrix that lies row by row, and its gradients count on that."""
    return Factors(a.mT if a.is_contiguous() else a)


@decomposes(aten.linalg_lu_factor_ex.default)
def _lu_factor(a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    if not pivot or _large(a):
        return NotImplemented
    found = Factors(a)
    return found.packed, found.pivots, _fine(a)


def _unpacked(packed: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    height, width = packed.shape[-2:]
    size = min(height, width)
    which = torch.arange(height)[:, None] == order[..., None, :]
    lower = packed[..., :size].tril(-1) + torch.eye(height, size, dtype=packed.dtype)
    return which.to(packed.dtype), lower, packed[..., :size, :].triu()


def _order(packed: Tensor, pivots: Tensor) -> Tensor:
    order = torch.arange(packed.shape[-2]).expand(packed.shape[:-1])
    for k in range(pivots.shape[-1]):
        order = _swapped(order, k, pivots[..., k, None].long() - 1)
    return order


@decomposes(aten.linalg_lu.default)
def _lu(a: Tensor, *, pivot: bool = True) -> Any:
    if not pivot or _large(a):
        return NotImplemented
    found = Factors(a)
    return _unpacked(found.packed, found.order)


@decomposes(aten.lu_unpack.default)
def _lu_unpack(packed: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    return NotImplemented if _large(packed) else _unpacked(packed, _order(packed, pivots))


@decomposes(aten.linalg_lu_solve.default)
def _lu_solve(packed: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Any:
    if _large(packed):
        return NotImplemented
    order = _order(packed, pivots)
    return _solved(packed, order, b, adjoint) if left else _solved(packed, order, b.mT, not adjoint).mT


@decomposes(aten._linalg_solve_ex.default)
def _solve(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    if _large(a):
        return NotImplemented
    found = Factors(a)
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    right = b[..., None] if vector else b
    if left:
        result = _solved(found.packed, found.order, right, False)
    else:
        result = _solved(found.packed, found.order, right.mT, True).mT
    return result[..., 0] if vector else result, found.packed, found.pivots, _fine(a)


@decomposes(aten.linalg_inv_ex.default)
def _inverse(a: Tensor, *, check_errors: bool = False) -> Any:
    if _large(a):
        return NotImplemented
    found = Factors(a)
    return _solved(found.packed, found.order, torch.eye(a.shape[-1], dtype=a.dtype), False), _fine(a)


@decomposes(aten._linalg_det.default)
def _determinant(a: Tensor) -> Any:
    if _large(a):
        return NotImplemented
    found = _of_determinant(a)
    return found.diagonal.prod(-1) * found.sign, found.packed, found.pivots


@decomposes(aten._linalg_slogdet.default)
def _log_determinant(a: Tensor) -> Any:
    if _large(a):
        return NotImplemented
    found = _of_determinant(a)
    sign = found.diagonal.sign().prod(-1) * found.sign
    return sign, found.diagonal.abs().log().sum(-1), found.packed, found.pivots


@decomposes(aten.linalg_solve_triangular.default)
def _solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    if _large(a):
        return NotImplemented
    if left:
        return substituted(a, b, upper, unitriangular)
    return substituted(a.mT, b.mT, not upper, unitriangular).mT


@decomposes(aten.linalg_cholesky_ex.default)
def _cholesky(a: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    if _large(a):
        return NotImplemented
    left, rows, columns = a.mT if upper else a, torch.arange(a.shape[-1]), []
    for k in range(a.shape[-1]):
        column = torch.where(rows >= k, left[..., k] * left[..., k, k, None].rsqrt(), 0)
        left = left - column[..., :, None] * column[..., None, :]
        columns.append(column)
    return torch.stack(columns, -2 if upper else -1) if columns else a.clone(), _fine(a)


@decomposes(aten.cholesky_solve.default)
def _cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Any:
    if _large(factor):
        return NotImplemented
    lower = factor.mT if upper else factor
    return substituted(lower.mT, substituted(lower, b, False, False), True, False)


@decomposes(aten.cholesky_inverse.default)
def _cholesky_inverse(factor: Tensor, upper: bool = False) -> Any:
    return _cholesky_solve(torch.eye(factor.shape[-1], dtype=factor.dtype), factor, upper)


@decomposes(aten.linalg_qr.default)
def _qr(a: Tensor, mode: str = "reduced") -> Any:
    """By Householder's reflections, with LAPACK's signs."""
    if _large(a):
        return NotImplemented
    height, width = a.shape[-2:]
    rows, size = torch.arange(height), min(height, width)
    q, r = torch.eye(height, dtype=a.dtype).expand(*a.shape[:-1], height), a
    for k in range(size):
        head = r[..., k, k, None]
        below = torch.where(rows > k, r[..., k], 0)
        rest = (below * below).sum(-1, keepdim=True)
        end = torch.where(head < 0, 1, -1) * (head * head + rest).sqrt()
        normal = torch.where(rows == k, head - end, below)
        square = (normal * normal).sum(-1, keepdim=True)
        scale = torch.where(rest > 0, 2 / torch.where(rest > 0, square, 1), 0)[..., None]
        normal = normal[..., None]
        r = r - scale * normal * (normal * r).sum(-2, keepdim=True)
        q = q - scale * (q * normal.mT).sum(-1, keepdim=True) * normal.mT
    if mode == "r":
        return a.new_empty(0), r[..., :size, :].triu()
    return (q, r.triu()) if mode == "complete" else (q[..., :size], r[..., :size, :].triu())


@decomposes(aten.linalg_householder_product.default)
def _householder_product(vectors: Tensor, scales: Tensor) -> Tensor:
    """(I - scale v v^T) .. times the first columns of I; v is 1 in its own row, and what stands below."""
    height, width = vectors.shape[-2:]
    rows = torch.arange(height)
    product = torch.eye(height, width, dtype=vectors.dtype).expand(vectors.shape)
    for k in reversed(range(scales.shape[-1])):
        normal = torch.where(rows == k, 1, torch.where(rows > k, vectors[..., k], 0))[..., None]
        product = product - scales[..., k, None, None] * normal * (normal * product).sum(-2, keepdim=True)
    return product


#: halvings of a matrix whose exponential is asked for, and terms of the series of what is left
HALVINGS, TERMS = 16, {torch.float64: 14}


@decomposes(aten.linalg_matrix_exp.default)
def _matrix_exp(a: Tensor) -> Tensor:
    """exp(A) - 1 of A halved until it is small, and as often doubled: (1 + E)^2 = 1 + (2 E + E^2)."""
    norm = a.abs().sum(-2).amax(-1) if a.numel() else a.new_zeros(a.shape[:-2])
    count = norm.clamp(min=0.5).log2().ceil().add(1).clamp(0, HALVINGS)[..., None, None]
    small = a * torch.exp2(-count)
    terms = TERMS.get(a.dtype, 8)
    more = small / math.factorial(terms)
    one = torch.eye(a.shape[-1], dtype=a.dtype)
    for n in reversed(range(1, terms)):
        more = small @ (more + one / math.factorial(n))
    for n in range(HALVINGS):
        more = torch.where(count > n, 2 * more + more @ more, more)
    return more + one
