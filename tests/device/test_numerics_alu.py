"""The fast form of ALU operations and network reductions equals the plain form, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from patterns import FORMATS, LANES, elements, lws_of, words_of

from mlsdk.device.numerics.fast import alu as fast
from mlsdk.device.numerics.formats import HALF
from mlsdk.device.numerics.reduce import join, reduce_lw, split, unit
from mlsdk.device.numerics.reference import alu, network

U = np.uint32
seeds = st.integers(0, 2**32 - 1)
kinds = st.integers(0, 4)
NAMES = [
    n for n in fast.OPS if not n.startswith("chose_") and n not in ("carry", "borrow", "zero_carry", "zero_borrow")
]


@njit
def any_element(op, family, x, y, bits, mbits, out):
    """Every operation by number: one compilation instead of one for each operation."""
    for k in range(x.size):
        u, v = x[k], y[k]
        if family == fast.SHIFTS:
            out[k] = fast._shift(op, u, v, bits)
        elif family == fast.COMPARISONS:
            out[k] = u if fast._keeps_x(op, u, v, bits, mbits) else v
        elif family == fast.RELUS:
            out[k] = fast._relu(op, u, v, bits, mbits)
        elif family == fast.FLOORS:
            out[k] = fast._floor(u, bits, mbits)
        elif family == fast.INTEGERS_OF:
            out[k] = fast._ftoi(u, bits, mbits, op == fast.UFTOI)
        elif family == fast.SEEDS_OF:
            out[k] = fast._rsqrt(u, bits, mbits)
        else:
            out[k] = fast._integer(op, u, v, bits)


def arguments(rng: np.random.Generator, name: str, bits: int, a: int, b: int, count: int):
    x, y = (elements(rng, FORMATS[bits], count, k) for k in (a, b))
    if name in ("lsl", "lsr", "ulsr", "bsl", "bsr"):  # half of the amounts in the range that matters
        y = np.where(rng.random(count) < 0.5, y % np.uint64(4 * bits), y)
    return x, y


@pytest.mark.parametrize("bits", [64, 32, 16])
@settings(max_examples=3, deadline=None)
@given(seeds, kinds, kinds)
def test_operations_on_elements(bits, seed, a, b):
    rng = np.random.default_rng(seed)
    for name in NAMES:
        x, y = arguments(rng, name, bits, a, b, 400)
        out, op = np.zeros(400, np.uint64), fast.OPS[name]
        any_element(op, fast._family(op), x, y, bits, FORMATS[bits].mantissa_bits, out)
        expected = np.array([alu.operate(name, int(u), int(v), bits) for u, v in zip(x, y)], np.uint64)
        np.testing.assert_array_equal(out, expected, err_msg=f"{name} {bits}")


SOME = {64: ("bsl", "fmax", "floor", "add"), 16: ("lsr", "umin", "relu2", "ftoi"), 32: NAMES}


@pytest.mark.parametrize("bits", [64, 32, 16])
@settings(max_examples=2, deadline=None)
@given(seeds, kinds, kinds)
def test_operations_on_rows(bits, seed, a, b):
    rng = np.random.default_rng(seed)
    per, lanes = 64 // bits, 256
    for name in SOME[bits]:
        x, y = (v.reshape(per, lanes) for v in arguments(rng, name, bits, a, b, per * lanes))
        xl, yl = (np.zeros((1, LANES), np.uint64) for _ in range(2))
        xl[0, :lanes], yl[0, :lanes] = join(x.T, bits), join(y.T, bits)
        out, rows = np.zeros((2, LANES), U), np.arange(2)
        op = fast.OPS[name]
        fast.kernel_of(op, bits)(op, words_of(xl), rows, words_of(yl), rows, out, rows)
        got = split(lws_of(out)[0, :lanes], bits).T
        expected = np.array(
            [[alu.operate(name, int(u), int(v), bits) for u, v in zip(x[i], y[i])] for i in range(per)], np.uint64
        )
        np.testing.assert_array_equal(got.astype(np.uint64), expected, err_msg=f"{name} {bits}")


def test_rsqrt_table_is_what_the_formula_gives():
    for parity in (0, 1):
        for index in range(16):
            low = (1 + index / 16) * 2**parity
            assert fast.SEEDS[16 * parity + index] == min(63, int(64 / low**0.5))


@pytest.mark.parametrize(
    "reduction",
    [
        "dfadd",
        "ffadd",
        "hfadd",
        "dmax",
        "fmax",
        "hmax",
        "dmin",
        "fmin",
        "hmin",
        "liadd",
        "iiadd",
        "siadd",
        "lband",
        "sband",
        "land",
        "iand",
        "sbor",
        "lor",
        "sor",
    ],
)
@settings(max_examples=3, deadline=None)
@given(seeds, kinds)
def test_reductions(reduction, seed, kind):
    rng = np.random.default_rng(seed)
    precision, op = reduction[0], reduction[1:]
    bits = {"d": 64, "l": 64, "f": 32, "i": 32, "h": 16, "s": 16}[precision]
    fmt, per = FORMATS[bits], 64 // bits
    for count, stages in ((16, 2), (8, 1), (4, 1), (2, 1)):
        e = elements(rng, fmt, 24 * count * per, kind).reshape(24, count, per)
        if rng.random() < 0.3:
            e[::2] = 0
        got = split(reduce_lw(reduction, join(e, bits), stages), bits)
        for n in range(24):
            for i in range(per):
                values = [int(v) for v in e[n, :, i]]
                expected = network.add(values, precision, stages) if op == "fadd" else network.reduce(op, values, bits)
                assert int(got[n, i]) == expected, (reduction, count, values)


@settings(max_examples=4, deadline=None)
@given(seeds, kinds)
def test_sums_to_half(seed, kind):
    rng = np.random.default_rng(seed)
    e = elements(rng, FORMATS[32], 20 * 16 * 2, kind).reshape(20, 16, 2)
    got = reduce_lw("ffadd", join(e, 32), 2, short=True)
    h = elements(rng, FORMATS[16], 20 * 16 * 4, kind).reshape(20, 16, 4)
    got_half = split(reduce_lw("hfadd", join(h, 16), 2, single_circuit=True), 16)
    for n in range(20):
        for i in range(2):
            assert int(got[n, i]) == network.add([int(v) for v in e[n, :, i]], "f", 2, HALF)
        for i in range(4):
            assert int(got_half[n, i]) == network.add_halves_on_single([int(v) for v in h[n, :, i]], 2)


def test_unit_values():
    assert unit("ffadd") == 0 and unit("liadd") == 0 and unit("sbor") == 0 and unit("lor") == 0
    assert unit("fmax") == 2**64 - 1 and unit("iband") == 2**64 - 1 and unit("land") == 2**64 - 1
    assert unit("dmin") == 2**63 - 1 and unit("fmin") == 0x7FFFFFFF7FFFFFFF and unit("hmin") == 0x7FFF7FFF7FFF7FFF
