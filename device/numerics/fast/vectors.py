"""Vector code that LLVM does not find by itself, written as vector IR, which is portable: it becomes whatever the host has.

One L1B is 64 PEs: 16 MABs of 4. PE order is MAB-major (k = 4m + p); the matrix kernels want all MABs of one PE
number next to each other. `spread` and `scaled_interleave` go from one order to the other, 64 words at a time, and
`block_scales` takes one word of each MAB. `block_half` converts 16 PEs' halves to block floats.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_intrinsic: Any = intrinsic
I32, I16, F32 = ir.IntType(32), ir.IntType(16), ir.FloatType()


def _pointer(context: Any, builder: Any, signature: Any, args: Any, position: int, vector: Any) -> Any:
    """Address of element args[position + 1] of the array args[position], as a pointer to vectors."""
    array = context.make_array(signature.args[position])(context, builder, args[position])
    return builder.bitcast(builder.gep(array.data, [args[position + 1]]), vector.as_pointer())


def _load(builder: Any, base: Any, number: int, align: int = 4) -> Any:
    value = builder.load(builder.gep(base, [I32(number)]))
    value.align = align
    return value


def _store(builder: Any, value: Any, base: Any, number: int, align: int = 4) -> None:
    builder.store(value, builder.gep(base, [I32(number)])).align = align


def _indices(numbers: list[int]) -> Any:
    return ir.Constant(ir.VectorType(I32, len(numbers)), numbers)


def _join(builder: Any, parts: list[Any]) -> Any:
    """One vector out of several of the same length."""
    while len(parts) > 1:
        size = 2 * parts[0].type.count
        parts = [builder.shuffle_vector(a, b, _indices(list(range(size)))) for a, b in zip(parts[::2], parts[1::2])]
    return parts[0]


@_intrinsic
def row_products(typingctx: Any, a: Any, ai: Any, x: Any, xi: Any, out: Any, oi: Any) -> Any:
    """out[oi + 16 c + m] = sum over 16 columns of a[ai + .., m] * x[xi + .., c, m] as 32-bit integers.

    a holds 8 pairs of 16-bit columns for 16 MABs, x the same for each of 4 cycles. A pair of products and their sum become one
    machine instruction where there is one.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pairs, wide, sums = ir.VectorType(I16, 32), ir.VectorType(I32, 32), ir.VectorType(I32, 16)
        pa, px, po = (_pointer(context, builder, sig, args, i, v) for i, v in ((0, pairs), (2, pairs), (4, sums)))
        even, odd = _indices([2 * i for i in range(16)]), _indices([2 * i + 1 for i in range(16)])
        nothing = ir.Constant(wide, ir.Undefined)
        totals: list = [None] * 4
        for j in range(8):
            row = builder.sext(_load(builder, pa, j), wide)
            for c in range(4):
                product = builder.mul(row, builder.sext(_load(builder, px, 4 * j + c), wide))
                term = builder.add(
                    builder.shuffle_vector(product, nothing, even), builder.shuffle_vector(product, nothing, odd)
                )
                totals[c] = term if totals[c] is None else builder.add(totals[c], term)
        for c in range(4):
            _store(builder, totals[c], po, c)
        return context.get_dummy_value()

    return types.void(a, ai, x, xi, out, oi), codegen


def _spread(context: Any, builder: Any, sig: Any, args: Any, mantissas: bool) -> Any:
    """Code of the two functions below; arguments row, k, out, first, distance and perhaps flip."""
    words, halves = ir.VectorType(I32, 16), ir.VectorType(I16, 128)
    source = _pointer(context, builder, sig, args, 0, words)
    whole = _join(builder, [_load(builder, source, i) for i in range(4)])
    if mantissas:

        def constant(value: int) -> Any:
            return ir.Constant(halves, [value] * 128)

        sign = builder.select(builder.trunc(args[5], ir.IntType(1)), constant(0x8000), constant(0))
        h = builder.xor(builder.bitcast(whole, halves), sign)
        ordinary = builder.icmp_unsigned("!=", builder.and_(h, constant(0x7E00)), constant(0))
        m = builder.select(ordinary, builder.and_(h, constant(511)), constant(0))
        negative = builder.icmp_signed("<", h, constant(0))
        whole = builder.bitcast(builder.select(negative, builder.sub(constant(0), m), m), whole.type)
    nothing = ir.Constant(whole.type, ir.Undefined)
    array = context.make_array(sig.args[2])(context, builder, args[2])
    for p in range(4):
        part = builder.shuffle_vector(whole, nothing, _indices([4 * m + p for m in range(16)]))
        offset = builder.add(args[3], builder.mul(args[4], ir.Constant(args[4].type, p)))
        _store(builder, part, builder.bitcast(builder.gep(array.data, [offset]), words.as_pointer()), 0)
    return context.get_dummy_value()


@_intrinsic
def spread(typingctx: Any, row: Any, k: Any, out: Any, first: Any, distance: Any) -> Any:
    """out[first + distance p + m] = row[k + 4m + p] for 4 p and 16 m, 32-bit words."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _spread(context, builder, sig, args, False)

    return types.void(row, k, out, types.int64, types.int64), codegen


@_intrinsic
def spread_mantissas(typingctx: Any, row: Any, k: Any, out: Any, first: Any, distance: Any, flip: Any) -> Any:
    """The same of the signed mantissas of the two halves in each word: 0 where the exponent field is 0, negated if `flip`."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _spread(context, builder, sig, args, True)

    return types.void(row, k, out, types.int64, types.int64, types.boolean), codegen


@_intrinsic
def block_scales(typingctx: Any, common: Any, k: Any, out: Any, first: Any) -> Any:
    """out[first + m] = 2^(e - bias - 8) as a single, e = common[k + 4m] the exponent field of a block of halves, for 16 m.

    Infinite blocks count from 2^128.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        words = ir.VectorType(I32, 16)

        def constant(value: int) -> Any:
            return ir.Constant(words, [value] * 16)

        source = _pointer(context, builder, sig, args, 0, words)
        whole = _join(builder, [_load(builder, source, i) for i in range(4)])
        e = builder.shuffle_vector(whole, ir.Constant(whole.type, ir.Undefined), _indices([4 * m for m in range(16)]))
        infinite = builder.icmp_signed("==", e, constant(63))
        e = builder.select(infinite, constant(63 + 128 - 32), e)
        bits = builder.shl(builder.add(e, constant(127 - 31 - 8)), constant(23))
        _store(builder, bits, _pointer(context, builder, sig, args, 2, words), 0)
        return context.get_dummy_value()

    return types.void(common, k, out, first), codegen


@_intrinsic
def scaled_interleave(typingctx: Any, sums: Any, s: Any, scales: Any, f: Any, xs: Any, t: Any, out: Any, k: Any) -> Any:
    """out[k + 4m + p] = sums[s + 256 p + m] * scales[f + 64 p + m] * xs[t + m] as singles."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        words, singles = ir.VectorType(I32, 16), ir.VectorType(F32, 16)
        ps = _pointer(context, builder, sig, args, 0, words)
        pf, px, po = (_pointer(context, builder, sig, args, i, singles) for i in (2, 4, 6))
        y = _load(builder, px, 0)
        parts = [
            builder.fmul(
                builder.sitofp(_load(builder, ps, 16 * p), singles), builder.fmul(_load(builder, pf, 4 * p), y)
            )
            for p in range(4)
        ]
        whole = _join(builder, parts)
        nothing = ir.Constant(whole.type, ir.Undefined)
        for i in range(4):
            order = [16 * (q % 4) + q // 4 for q in range(16 * i, 16 * i + 16)]
            _store(builder, builder.shuffle_vector(whole, nothing, _indices(order)), po, i)
        return context.get_dummy_value()

    return types.void(sums, s, scales, f, xs, t, out, k), codegen


@_intrinsic
def block_half(typingctx: Any, x: Any, xi: Any, y: Any, yi: Any, a: Any, ai: Any, b: Any, bi: Any) -> Any:
    """hbfn/9 of 16 PEs: words x[xi..] (MSB) and y[yi..] (LSB) of an LW to a[ai..] and b[bi..]; blocks are 4 PEs."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        halves = ir.VectorType(I16, 32)

        def constant(value: int) -> Any:
            return ir.Constant(halves, [value] * 32)

        def larger(u: Any, v: Any) -> Any:
            return builder.select(builder.icmp_unsigned(">", u, v), u, v)

        zero, one = constant(0), constant(1)
        inputs = [_load(builder, _pointer(context, builder, sig, args, i, halves), 0) for i in (0, 2)]
        outputs = [_pointer(context, builder, sig, args, i, halves) for i in (4, 6)]
        exponents, wishes = [], []
        for h in inputs:
            e = builder.and_(builder.lshr(h, constant(9)), constant(63))
            full = builder.icmp_unsigned("==", builder.and_(h, constant(511)), constant(511))
            carries = builder.and_(full, builder.icmp_unsigned("!=", e, zero))
            exponents.append(e)
            wishes.append(builder.add(e, builder.select(carries, one, zero)))
        common = larger(*wishes)
        nothing = ir.Constant(halves, ir.Undefined)
        for distance in (1, 2, 4):  # the largest of 8 neighbours: two halves of 4 PEs
            order = _indices([i // 8 * 8 + (i % 8 ^ distance) for i in range(32)])
            common = larger(common, builder.shuffle_vector(common, nothing, order))
        infinite = builder.icmp_unsigned(">", common, constant(62))
        field = builder.shl(common, constant(9))
        for h, e, target in zip(inputs, exponents, outputs):
            distance = builder.add(builder.sub(common, e), one)
            far = builder.icmp_unsigned(">", distance, constant(12))
            distance = builder.select(far, constant(12), distance)
            m = builder.or_(builder.and_(h, constant(511)), constant(512))
            odd = builder.and_(builder.lshr(m, distance), one)
            half = builder.sub(builder.shl(one, builder.sub(distance, one)), one)
            r = builder.lshr(builder.add(builder.add(m, half), odd), distance)
            r = builder.select(builder.icmp_unsigned("==", e, zero), zero, r)
            sign = builder.and_(h, constant(0x8000))
            v = builder.select(infinite, constant(63 << 9), builder.or_(field, r))
            _store(builder, builder.or_(sign, v), target, 0)
        return context.get_dummy_value()

    return types.void(x, xi, y, yi, a, ai, b, bi), codegen
