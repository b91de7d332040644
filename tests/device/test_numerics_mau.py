"""The fast form of the MAU equals the plain form, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patterns import LANES, elements, lws_of, words_of

from mlsdk.device.numerics.fast import matrix, mau_double, mau_half, mau_single
from mlsdk.device.numerics.formats import DOUBLE, FORMATS, HALF, SINGLE, convert
from mlsdk.device.numerics.reference import blockfloat, mau

U = np.uint32
SIGN = U(0x80000000)
seeds = st.integers(0, 2**32 - 1)
kinds = st.integers(0, 4)
few = settings(max_examples=3, deadline=None)


def row(values) -> np.ndarray:
    return np.asarray(values, np.uint64).astype(np.uint32)[None]


@few
@given(seeds, kinds, kinds, kinds)
def test_single_fma_mul_add(seed, a, b, c):
    rng = np.random.default_rng(seed)
    x, y, z = (elements(rng, SINGLE, kind=k) for k in (a, b, c))
    # a quarter of the sums cancel, or nearly
    p = np.array([mau.vector_fma(int(u), int(v), None, "f") for u, v in zip(x, y)], np.uint64)
    z = np.where(
        rng.random(LANES) < 0.25, (p ^ np.uint64(0x80000000)) + rng.integers(0, 2, LANES, dtype=np.uint64), z
    ) & np.uint64(0xFFFFFFFF)
    one, out = np.arange(1), np.zeros((1, LANES), U)
    mau_single.mul(row(x), one, row(y), one, out, one, U(0), U(0))
    np.testing.assert_array_equal(out[0], p.astype(U))
    mau_single.fma(row(x), one, row(y), one, row(z), one, out, one, SIGN, U(0), SIGN)
    flip = 0x80000000
    expected = [mau.vector_fma(int(u) ^ flip, int(v), int(w) ^ flip, "f") for u, v, w in zip(x, y, z)]
    np.testing.assert_array_equal(out[0], np.array(expected, U))
    mau_single.add(row(x), one, row(z), one, out, one, U(0), U(0))
    np.testing.assert_array_equal(
        out[0], np.array([mau.vector_fma(int(u), None, int(w), "f") for u, w in zip(x, z)], U)
    )
    mau_single.passa(row(x), one, out, one, U(0))
    np.testing.assert_array_equal(out[0], np.array([mau.vector_fma(int(u), None, None, "f") for u in x], U))


def test_single_results_around_the_smallest_number():
    """Sums and products of 2^-126 and a little less or more, zeros of both signs, each in a row that is ordinary elsewhere.

    Everything within half a unit below 2^-126 counts up to it; a host rounds less of that up, and keeps denormals and -0.
    """
    one, smallest = 0x3F800000, 0x00800000
    below_one = [one, one - 1, one - 2, one + 1, 0x3F7FFFF0, 0x3F000000]
    products = [(smallest + k, v) for k in (0, 1, 2) for v in below_one]
    products += [(0x1F800000 + k, 0x20000000 - j) for k in (0, 1, 3) for j in (0, 1, 2, 31)]  # 2^-64 and about 2^-63
    products += [
        (0x10000000, 0x10000000),
        (0x10000000, 0x90000000),
        (0x80000000, one),
        (smallest - 1, one),
        (0x7F800000, 1),
    ]
    addends = [
        0,
        0x80000000,
        smallest,
        0x80000000 | smallest,
        smallest - 1,
        smallest + 1,
        0x01000000,
        0x80FFFFFF,
        0x04000000,
    ]
    cases = np.array([(x, y, z) for x, y in products for z in addends], np.uint64)
    count = len(cases)
    rng = np.random.default_rng(0)
    memories = [rng.normal(size=(count, LANES)).astype(np.float32).view(U) for _ in range(3)]
    rows, lanes = np.arange(count), rng.integers(0, LANES, count)
    for memory, values in zip(memories, cases.T):
        memory[rows, lanes] = values
    (x, y, z), minus, out = memories, 0x80000000, np.zeros((count, LANES), U)

    def check(expected) -> None:
        np.testing.assert_array_equal(out[rows, lanes], np.array(expected, U))

    mau_single.fma(x, rows, y, rows, z, rows, out, rows, U(0), U(0), U(0))
    check([mau.vector_fma(int(a), int(b), int(c), "f") for a, b, c in cases])
    mau_single.mul(x, rows, y, rows, out, rows, U(0), SIGN)
    check([mau.vector_fma(int(a), int(b) ^ minus, None, "f") for a, b, _ in cases])
    mau_single.add(x, rows, z, rows, out, rows, SIGN, U(0))
    check([mau.vector_fma(int(a) ^ minus, None, int(c), "f") for a, _, c in cases])


@few
@given(seeds, kinds, kinds, kinds, st.booleans(), st.booleans())
def test_single_with_half_results(seed, a, b, c, with_product, with_sum):
    rng = np.random.default_rng(seed)
    x, y, z = (np.stack([elements(rng, SINGLE, kind=k) for _ in range(2)]) for k in (a, b, c))
    two, one, out = np.arange(2), np.arange(1), np.zeros((1, LANES), U)
    mau_single.short_result(
        x.astype(U), two, y.astype(U), two, z.astype(U), two, out, one, U(0), U(0), U(0), with_product, with_sum
    )
    halves = np.array(
        [
            [
                mau.vector_fma(int(u), int(v) if with_product else None, int(w) if with_sum else None, "f", HALF)
                for u, v, w in zip(x[i], y[i], z[i])
            ]
            for i in range(2)
        ]
    )
    np.testing.assert_array_equal(out[0], (halves[0] << 16 | halves[1]).astype(U))


@few
@given(seeds, kinds, kinds, kinds, st.booleans(), st.booleans(), st.booleans())
def test_half_vectors(seed, a, b, c, with_product, with_sum, short):
    rng = np.random.default_rng(seed)
    x, y = (np.stack([elements(rng, HALF, kind=k) for _ in range(4)]).astype(np.int64) for k in (a, b))
    z = np.stack([elements(rng, SINGLE, kind=c) for _ in range(4)]).astype(np.int64)
    pack = lambda h: np.stack([h[0] << 16 | h[1], h[2] << 16 | h[3]]).astype(U)  # noqa: E731
    rows2, rows4 = np.arange(2), np.arange(4)
    out = np.zeros((4, LANES), U)
    mau_half.calculate(
        pack(x),
        rows2,
        pack(y),
        rows2,
        z.astype(U),
        rows4,
        out,
        rows2 if short else rows4,
        U(0),
        U(0),
        U(0),
        with_product,
        with_sum,
        short,
    )
    expected = np.array(
        [
            [
                mau.vector_fma(
                    int(x[i, k]),
                    int(y[i, k]) if with_product else None,
                    int(z[i, k]) if with_sum else None,
                    "h",
                    HALF if short else None,
                )
                for k in range(LANES)
            ]
            for i in range(4)
        ]
    )
    np.testing.assert_array_equal(out[:2] if short else out, pack(expected) if short else expected.astype(U))


@few
@given(seeds, kinds, kinds, kinds, st.booleans(), st.booleans(), st.booleans())
def test_double_vectors(seed, a, b, c, with_product, with_sum, short):
    rng = np.random.default_rng(seed)
    x, y, z = (elements(rng, DOUBLE, kind=k) for k in (a, b, c))
    p = np.array([mau.vector_fma(int(u), int(v), None, "d") for u, v in zip(x, y)], np.uint64)
    z = np.where(rng.random(LANES) < 0.25, (p ^ np.uint64(1 << 63)) + rng.integers(0, 2, LANES, dtype=np.uint64), z)
    rows, out = np.arange(2), np.zeros((2, LANES), U)
    mau_double.calculate(
        words_of(x[None]),
        rows,
        words_of(y[None]),
        rows,
        words_of(z[None]),
        rows,
        out,
        rows[:1] if short else rows,
        np.uint64(0),
        np.uint64(0),
        np.uint64(0),
        with_product,
        with_sum,
        mau_double.ALL,
        short,
    )
    expected = [
        mau.vector_fma(
            int(u), int(v) if with_product else None, int(w) if with_sum else None, "d", SINGLE if short else None
        )
        for u, v, w in zip(x, y, z)
    ]
    np.testing.assert_array_equal(out[0] if short else lws_of(out)[0], np.array(expected, np.uint64))


@few
@given(seeds, kinds, kinds)
def test_double_sums(seed, a, b):
    rng = np.random.default_rng(seed)
    x, z = (elements(rng, DOUBLE, kind=k) for k in (a, b))
    z = np.where(rng.random(LANES) < 0.2, x ^ np.uint64(1 << 63), z)
    rows, out, flip = np.arange(2), np.zeros((2, LANES), U), np.uint64(1 << 63)
    mau_double.add_rows(words_of(x[None]), rows, words_of(z[None]), rows, out, rows, flip, np.uint64(0))
    expected = [mau.vector_fma(int(u ^ flip), None, int(w), "d") for u, w in zip(x, z)]
    np.testing.assert_array_equal(lws_of(out)[0], np.array(expected, np.uint64))


def blocks(rng: np.random.Generator, precision: str, kind: int, extended: bool = False, keep: int = 9) -> np.ndarray:
    """int64 [1024 MABs][elements] of valid block floats; any bits for half blocks of kind 0."""
    fmt, count = FORMATS[precision], {"h": 16, "f": 8, "g": 8, "d": 4}[precision]
    if precision == "h" and kind == 0:
        return elements(rng, fmt, 1024 * count, 0).reshape(1024, count)
    raw = elements(rng, fmt, 1024 * count, kind).reshape(1024, count)
    if kind != 1:
        raw[::3, : count // 2] = 0
    out = []
    for block in raw:
        values = [int(v) for v in block]
        if precision == "f":  # two blocks, even and odd columns
            even, odd = (blockfloat.convert(values[i::2], "f") for i in (0, 1))
            out.append([v for pair in zip(even, odd) for v in pair])
        else:
            out.append(blockfloat.convert(values, precision, keep, extended))
    return np.array(out, np.uint64)


def rows_of(b: np.ndarray, precision: str) -> np.ndarray:
    """Elements [MAB][n] -> the two word rows of an LW [2][4096]."""
    b = b.astype(np.uint64)
    if precision == "d":
        lw = b.reshape(-1)
    elif precision == "h":
        e = b.reshape(-1, 4)
        lw = e[:, 0] << np.uint64(48) | e[:, 1] << np.uint64(32) | e[:, 2] << np.uint64(16) | e[:, 3]
    else:
        e = b.reshape(-1, 2)
        lw = e[:, 0] << np.uint64(32) | e[:, 1]
    return words_of(lw[None])


PRODUCTS = (seeds, kinds, kinds, st.booleans(), st.booleans(), st.booleans())


@pytest.mark.parametrize("precision", "hgfd")
@settings(max_examples=1, deadline=None)
@given(*PRODUCTS)
def test_matrix_products(precision, seed, kind, zkind, with_sum, short, extended):
    as_reference(precision, seed, kind, zkind, with_sum, short, extended)


@pytest.mark.slow
@pytest.mark.parametrize("precision", "hgfd")
@settings(max_examples=10, deadline=None)
@given(*PRODUCTS)
def test_many_matrix_products(precision, seed, kind, zkind, with_sum, short, extended):
    as_reference(precision, seed, kind, zkind, with_sum, short, extended)


def as_reference(precision, seed, kind, zkind, with_sum, short, extended):
    rng = np.random.default_rng(seed)
    size, fmt = {"h": 16, "g": 8, "f": 8, "d": 4}[precision], FORMATS[precision]
    accumulator = SINGLE if precision == "h" else fmt
    extended = extended and precision == "h"
    raw = np.zeros((32, LANES), U)
    a = [blocks(rng, precision, kind, extended) for _ in range(size)]
    for i in range(size):
        raw[2 * i : 2 * i + 2] = rows_of(a[i], precision)
    xs = [blocks(rng, precision, kind, extended) for _ in range(4)]
    x = np.concatenate([rows_of(v, precision) for v in xs])
    words = 4 if precision == "h" else 2
    zs = [elements(rng, accumulator, 1024 * size, zkind).reshape(1024, size) for _ in range(4)]
    if precision == "h":  # PE p holds rows 4p..4p+3 in its four words
        z = np.concatenate([v.reshape(1024, 4, 4).transpose(2, 0, 1).reshape(4, LANES) for v in zs]).astype(U)
    else:
        z = np.concatenate([rows_of(v, precision) for v in zs])
    xr, zr = np.arange(8), np.arange(4 * words)
    out_words = words // 2 if short else words
    out, orow = np.zeros((16, LANES), U), np.arange(4 * out_words)
    halves = [mau_double.UPPER, mau_double.LOWER] if precision == "d" else [None]
    for half in halves:
        if precision == "h":
            packed, ext, scales = (
                np.zeros(64 * matrix.PACKED_STEP, U),
                np.zeros(64 * matrix.PACKED_STEP, U),
                np.zeros(1024 * 16, np.float32),
            )
            special = matrix.decode_half(raw, packed, ext, scales)
            matrix.half(packed, ext, scales, special, x, xr, z, zr, out, orow, U(0), U(0), with_sum, short)
        elif precision == "d":
            matrix.double(raw, x, xr, z, zr, out, orow, np.uint64(0), np.uint64(0), with_sum, half, short)
        else:
            arrays = [np.zeros(1024 * 64) for _ in range(3)]
            matrix.decode_single(raw, *arrays, precision == "f")
            matrix.single(*arrays, precision == "f", x, xr, z, zr, out, orow, U(0), U(0), with_sum, short)
        target = {"h": HALF, "g": HALF, "f": HALF, "d": SINGLE}[precision] if short else None
        for mab in rng.integers(0, 1024, 12):
            for c in range(4):
                got = result_elements(out, c, mab, precision, short)
                for i in range(size):
                    zz = int(zs[c][mab, i]) if with_sum else None
                    if half is not None and (i < 2) != (half == mau_double.UPPER):
                        expected = mau.vector_fma(zz, None, None, precision, target) if with_sum else 0
                    else:
                        expected = mau.matrix_row(
                            [int(v) for v in a[i][mab]], [int(v) for v in xs[c][mab]], zz, precision, target
                        )
                    assert got[i] == expected, (precision, mab, c, i)


def result_elements(out: np.ndarray, c: int, mab: int, precision: str, short: bool) -> list[int]:
    pes = out[:, 4 * mab : 4 * mab + 4].astype(np.uint64)
    if precision == "h":
        if short:
            w = pes[2 * c : 2 * c + 2]
            return [
                int(w[i // 2, p] >> np.uint64(16 if i % 2 == 0 else 0)) & 0xFFFF for p in range(4) for i in range(4)
            ]
        return [int(pes[4 * c + i, p]) for p in range(4) for i in range(4)]
    if precision == "d":
        return (
            [int(pes[c, p]) for p in range(4)]
            if short
            else [int(pes[2 * c, p] << np.uint64(32) | pes[2 * c + 1, p]) for p in range(4)]
        )
    if short:
        return [int(pes[c, p]) >> s & 0xFFFF for p in range(4) for s in (16, 0)]
    return [int(pes[2 * c + w, p]) for p in range(4) for w in range(2)]


@pytest.mark.parametrize(
    "precision,keep,extended",
    [("d", 9, False), ("f", 9, False), ("g", 9, False)] + [("h", k, e) for k in (6, 7, 8, 9) for e in (False, True)],
)
@settings(max_examples=4, deadline=None)
@given(seeds, kinds)
def test_block_float_conversion(precision, keep, extended, seed, kind):
    from mlsdk.device.numerics.fast import blockfloat as fast

    rng = np.random.default_rng(seed)
    fmt, count = FORMATS[precision], {"h": 16, "f": 8, "g": 8, "d": 4}[precision]
    raw = elements(rng, fmt, 1024 * count, kind).reshape(1024, count)
    source, rows, out = rows_of(raw, precision), np.arange(2), np.zeros((2, LANES), U)
    if precision == "d":
        fast.doubles(source, rows, out, rows)
    elif precision == "h":
        fast.halves(source, rows, out, rows, np.int32(9 - keep), extended)
    else:
        fast.singles(source, rows, out, rows, precision == "g")
    expected = []
    for block in raw:
        values = [int(v) for v in block]
        if precision == "f":
            even, odd = (blockfloat.convert(values[i::2], "f") for i in (0, 1))
            expected.append([v for pair in zip(even, odd) for v in pair])
        else:
            expected.append(blockfloat.convert(values, precision, keep, extended))
    np.testing.assert_array_equal(out, rows_of(np.array(expected, np.uint64), precision))


@few
@given(seeds, kinds)
def test_suffixes_change_formats(seed, kind):
    from mlsdk.device.numerics.fast import rows

    rng = np.random.default_rng(seed)
    halves = np.stack([elements(rng, HALF, kind=kind) for _ in range(2)]).astype(np.int64)
    one, two = np.arange(1), np.arange(2)
    out = np.zeros((2, LANES), U)
    rows.extend_half((halves[0] << 16 | halves[1]).astype(U)[None], one, out, two, U(0))
    np.testing.assert_array_equal(out, np.array([[convert(int(v), HALF, SINGLE) for v in r] for r in halves], U))
    singles = np.stack([elements(rng, SINGLE, kind=kind) for _ in range(2)])
    rows.extend_single(singles[:1].astype(U), one, out, two, U(0))
    np.testing.assert_array_equal(
        lws_of(out)[0], np.array([convert(int(v), SINGLE, DOUBLE) for v in singles[0]], np.uint64)
    )
    rows.reduce_single(singles.astype(U), two, out, one, U(0))
    short = np.array([[convert(int(v), SINGLE, HALF) for v in r] for r in singles])
    np.testing.assert_array_equal(out[0], (short[0] << 16 | short[1]).astype(U))
