"""Complex numbers as pairs of real tensors: the program has real values alone.

A row takes the arguments of its aten operator with a Pair in place of each complex tensor, and gives a Pair for each complex
result. What treats all elements alike (views, moves, sums) is the operator itself on both parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mlsdk.pipeline.trace.registry import Row, registering

aten = torch.ops.aten

#: from this extent on a Fourier transform is made of smaller ones, where the extent has divisors
DIRECT_EXTENT = 128

REAL_OF = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


class Pair(NamedTuple):
    """Real and imaginary part; no imaginary part: it is zero."""

    re: Any
    im: Any = None


PAIRS: dict[Any, Row] = {}


#: registers a function as the row of each of the aten operators
row = registering(PAIRS)


def pair_of(x: Any) -> Pair:
    """An operand as a Pair: complex, real, or a number of Python."""
    if isinstance(x, Pair):
        return x
    return Pair(x.real, x.imag) if isinstance(x, complex) else Pair(x)


def _imaginary(x: Pair) -> Any:
    """The imaginary part, with zeros where there is none."""
    if x.im is not None:
        return x.im
    return torch.zeros_like(x.re) if isinstance(x.re, Tensor) else 0


def _sum(*terms: Any) -> Any:
    """The sum of what is there; None where nothing is."""
    there = [term for term in terms if term is not None]
    return sum(there[1:], there[0]) if there else None


# --- on both parts alike ---

# fmt: off
ALIKE = (
    "alias.default", "cat.default", "clone.default", "constant_pad_nd.default", "copy.default", "cumsum.default",
    "detach.default", "diagonal.default", "diagonal_scatter.default", "expand.default", "flip.default",
    "gather.default", "index.Tensor", "index_add.default", "index_put.default", "index_select.default",
    "lift_fresh_copy.default", "mean.default", "mean.dim", "neg.default", "new_empty.default", "new_zeros.default",
    "permute.default", "repeat.default", "resolve_conj.default", "resolve_neg.default", "roll.default",
    "scatter.src", "scatter_add.default", "select.int", "select_backward.default", "select_scatter.default",
    "slice.Tensor", "slice_backward.default", "slice_scatter.default", "split.Tensor", "split_with_sizes.default",
    "squeeze.default", "squeeze.dim", "squeeze.dims", "sum.default", "sum.dim_IntList", "t.default",
    "transpose.int", "tril.default", "triu.default", "unbind.int", "unfold.default", "unsqueeze.default",
    "zeros_like.default", "empty_like.default",
)
# fmt: on


def _alike(func: Any) -> Row:
    def on_both(*args: Any, **kwargs: Any) -> Any:
        def part(item: Any, place: int) -> Any:
            if isinstance(item, Pair):
                return _imaginary(item) if place else item.re
            if isinstance(item, list):
                mixed = any(isinstance(one, Pair) for one in item)
                return [part(pair_of(one) if mixed else one, place) for one in item]
            return REAL_OF.get(item, item) if isinstance(item, torch.dtype) else item

        # an operand that is written into is complex; what comes into it may be real
        args = tuple(pair_of(a) if func in WRITES and isinstance(a, Tensor) and _floats(a) else a for a in args)
        re, im = (
            func(*(part(a, n) for a in args), **{key: part(value, n) for key, value in kwargs.items()}) for n in (0, 1)
        )
        return Pair(re, im) if isinstance(re, Tensor) else [Pair(*both) for both in zip(re, im)]

    return on_both


def _floats(tensor: Tensor) -> bool:
    return tensor.is_floating_point()


WRITES = {
    aten.copy.default,
    aten.select_scatter.default,
    aten.slice_scatter.default,
    aten.diagonal_scatter.default,
    aten.index_add.default,
    aten.scatter_add.default,
}

for _name in ALIKE:
    _packet, _, _overload = _name.partition(".")
    _func = getattr(getattr(aten, _packet), _overload)
    row(_func)(_alike(_func))


# the parts need not lie as a complex tensor would
for _func in (aten.view.default, aten._unsafe_view.default):
    row(_func)(_alike(torch.reshape))


# --- between real and complex ---


@row(aten.view_as_complex.default)
def _view_as_complex(x: Tensor) -> Pair:
    return Pair(x.select(-1, 0), x.select(-1, 1))


@row(aten.view_as_real.default)
def _view_as_real(z: Pair) -> Tensor:
    return torch.stack([z.re, _imaginary(z)], -1)


@row(aten.complex.default)
def _complex(re: Tensor, im: Tensor) -> Pair:
    return Pair(re, im)


@row(aten.polar.default)
def _polar(size: Tensor, angle: Tensor) -> Pair:
    return Pair(size * angle.cos(), size * angle.sin())


@row(aten._to_copy.default)
def _to_copy(x: Any, *, dtype: torch.dtype | None = None, **ignored: Any) -> Any:
    """Into another precision, from real to complex, or the real part alone."""
    re, im = pair_of(x)
    if dtype in REAL_OF:
        real = REAL_OF[dtype]
        return Pair(re.to(real), torch.zeros_like(re, dtype=real) if im is None else im.to(real))
    return Pair(re, im) if dtype is None else re.to(dtype)


@row(aten.real.default)
def _real(z: Pair) -> Tensor:
    return z.re


@row(aten.imag.default)
def _imag(z: Pair) -> Tensor:
    return _imaginary(z)


@row(aten.new_empty_strided.default)
def _new_empty_strided(z: Pair, size: Sequence[int], stride: Sequence[int], **ignored: Any) -> Pair:
    return Pair(z.re.new_zeros(size), z.re.new_zeros(size))


@row(aten.ones_like.default)
def _ones_like(z: Pair, **ignored: Any) -> Pair:
    return Pair(torch.ones_like(z.re), torch.zeros_like(z.re))


@row(aten.where.self)
def _where(condition: Tensor, a: Any, b: Any) -> Pair:
    a, b = pair_of(a), pair_of(b)
    return Pair(torch.where(condition, a.re, b.re), torch.where(condition, _imaginary(a), _imaginary(b)))


@row(aten.masked_fill.Scalar)
def _masked_fill(z: Pair, mask: Tensor, value: Any) -> Pair:
    return Pair(z.re.masked_fill(mask, pair_of(value).re), z.im.masked_fill(mask, _imaginary(pair_of(value))))


# --- arithmetic ---


@row(aten.add.Tensor, aten.add.Scalar)
def _add(a: Any, b: Any, *, alpha: Any = 1) -> Pair:
    a, b = pair_of(a), pair_of(b)
    b = b if alpha == 1 else _mul(b, alpha)
    return Pair(a.re + b.re, _sum(a.im, b.im))


@row(aten.sub.Tensor, aten.sub.Scalar)
def _sub(a: Any, b: Any, *, alpha: Any = 1) -> Pair:
    return _add(a, _mul(b, -alpha))


@row(aten.rsub.Tensor, aten.rsub.Scalar)
def _rsub(a: Any, b: Any, alpha: Any = 1) -> Pair:
    return _sub(b, a, alpha=alpha)


def _bilinear(product: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Pair]:
    """A product of complex operands by that of their parts."""

    def of(a: Any, b: Any) -> Pair:
        a, b = pair_of(a), pair_of(b)
        re = product(a.re, b.re)
        if a.im is not None and b.im is not None:
            re = re - product(a.im, b.im)
        crossed = None if b.im is None else product(a.re, b.im), None if a.im is None else product(a.im, b.re)
        return Pair(re, _sum(*crossed))

    return of


_mul = _bilinear(lambda a, b: a * b)
row(aten.mul.Tensor, aten.mul.Scalar)(_mul)
for _func in (aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default):
    row(_func)(_bilinear(_func))


@row(aten.addmm.default, aten.baddbmm.default)
def _addmm(c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Pair:
    return _add(_mul(c, beta), _mul(_bilinear(torch.matmul)(a, b), alpha))


@row(aten.conj_physical.default, aten._conj_physical.default)
def _conj(z: Pair) -> Pair:
    return Pair(z.re, -_imaginary(z))


def _square(z: Pair) -> Any:
    """The square of the absolute value."""
    return _sum(z.re * z.re, None if z.im is None else z.im * z.im)


@row(aten.reciprocal.default)
def _reciprocal(z: Pair) -> Pair:
    below = _square(z)
    return Pair(z.re / below, -_imaginary(z) / below)


@row(aten.div.Tensor, aten.div.Scalar)
def _div(a: Any, b: Any) -> Pair:
    a, b = pair_of(a), pair_of(b)
    if b.im is not None:
        if isinstance(b.re, Tensor):
            return _mul(a, _reciprocal(b))
        return _mul(a, 1 / complex(*b))
    return Pair(a.re / b.re, None if a.im is None else a.im / b.re)


@row(aten.abs.default)
def _abs(z: Pair) -> Tensor:
    return _square(z).sqrt()


@row(aten.angle.default)
def _angle(z: Pair) -> Tensor:
    return torch.atan2(_imaginary(z), z.re)


@row(aten.sgn.default)
def _sgn(z: Pair) -> Pair:
    size = _abs(z)
    size = torch.where(size == 0, torch.ones_like(size), size)
    return Pair(z.re / size, _imaginary(z) / size)


@row(aten.exp.default)
def _exp(z: Pair) -> Pair:
    return _polar(z.re.exp(), _imaginary(z))


@row(aten.log.default)
def _log(z: Pair) -> Pair:
    return Pair(_abs(z).log(), _angle(z))


@row(aten.sqrt.default)
def _sqrt(z: Pair) -> Pair:
    return _polar(_abs(z).sqrt(), _angle(z) / 2)


@row(aten.pow.Tensor_Scalar)
def _pow(z: Pair, exponent: Any) -> Any:
    if isinstance(exponent, complex):
        return NotImplemented
    if exponent == int(exponent) and 0 < exponent <= 8:
        result = z
        for _ in range(int(exponent) - 1):
            result = _mul(result, z)
        return result
    return _polar(_abs(z) ** exponent, _angle(z) * exponent)


# --- Fourier transforms: products with the matrix of roots of unity ---


def _roots(n: int, sign: int) -> Pair:
    """exp(sign 2 pi i j k / n) of all j, k below n.

    Those on an axis are exact: the first and the middle element of the transform of a real tensor are real, whose angle a part
    near 0 of any sign would turn round.
    """
    places = torch.arange(n)
    places = places[:, None] * places % n
    angle = places.double() * (sign * 2 * math.pi / n)
    return Pair(angle.cos().where(4 * places % (2 * n) != n, 0.0), angle.sin().where(2 * places % n != 0, 0.0))


def _as(z: Pair, dtype: torch.dtype) -> Pair:
    return Pair(z.re.to(dtype), z.im.to(dtype))


def _transform(z: Pair, sign: int) -> Pair:
    """The transform over the last axis, without a factor."""
    n, dtype = z.re.shape[-1], z.re.dtype
    outer = next((d for d in range(math.isqrt(n), 1, -1) if n % d == 0), 1)
    if n < DIRECT_EXTENT or outer == 1:
        return _bilinear(torch.matmul)(z, _as(_roots(n, sign), dtype))
    # j = inner j1 + j2, k = k1 + outer k2: over j1, by the roots of j2 k1, over j2
    inner = n // outer
    lead = z.re.shape[:-1]
    parts = (None if part is None else part.reshape(*lead, outer, inner).transpose(-1, -2) for part in z)
    first = _transform(Pair(*parts), sign)  # [j2, k1]
    angle = (torch.arange(inner)[:, None] * torch.arange(outer)).double() * (sign * 2 * math.pi / n)
    turned = _mul(first, _as(Pair(angle.cos(), angle.sin()), dtype))
    last = _transform(Pair(turned.re.transpose(-1, -2), turned.im.transpose(-1, -2)), sign)  # [k1, k2]
    return Pair(*(part.transpose(-1, -2).reshape(*lead, n) for part in last))


def _over(z: Pair, dims: Sequence[int], sign: int) -> Pair:
    """Transforms over some axes, one after the other."""
    for dim in dims:
        moved = Pair(*(None if part is None else part.movedim(dim, -1) for part in z))
        z = Pair(*(part.movedim(-1, dim) for part in _transform(moved, sign)))
    return z


def _scaled(z: Any, normalization: int, count: int) -> Any:
    """torch's fft_norm_mode: none, by the root of the count, by the count."""
    factor = (1.0, count**-0.5, 1.0 / count)[normalization]
    return z if factor == 1 else z * factor if isinstance(z, Tensor) else Pair(z.re * factor, z.im * factor)


def _count(shape: Sequence[int], dims: Sequence[int]) -> int:
    return math.prod(shape[dim] for dim in dims)


@row(aten._fft_c2c.default)
def _fft_c2c(z: Pair, dim: Sequence[int], normalization: int, forward: bool) -> Pair:
    return _scaled(_over(z, dim, -1 if forward else 1), normalization, _count(z.re.shape, dim))


@row(aten._fft_r2c.default)
def _fft_r2c(x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Pair:
    z = _over(Pair(x), dim[-1:], -1)
    if onesided:
        z = Pair(*(part.narrow(dim[-1], 0, x.shape[dim[-1]] // 2 + 1) for part in z))
    return _scaled(_over(z, dim[:-1], -1), normalization, _count(x.shape, dim))


@row(aten._fft_c2r.default)
def _fft_c2r(z: Pair, dim: Sequence[int], normalization: int, last_dim_size: int) -> Tensor:
    """What the upper half has is the conjugate of the lower half; of its first element the real part counts."""
    last = dim[-1]
    z = _over(Pair(z.re, _imaginary(z)), dim[:-1], 1)
    z = Pair(*(part.narrow(last, 0, last_dim_size // 2 + 1) for part in z))
    above = last_dim_size - (last_dim_size // 2 + 1)

    def whole(part: Tensor, sign: int) -> Tensor:
        return torch.cat([part, sign * part.narrow(last, 1, above).flip(last)], last) if above else part

    count = _count(z.re.shape, dim[:-1]) * last_dim_size
    return _scaled(_over(Pair(whole(z.re, 1), whole(z.im, -1)), [last], 1).re, normalization, count)
