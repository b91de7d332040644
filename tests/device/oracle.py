"""An independent model of the machine's arithmetic, written from the public text and not from the code.

Elements are Python integers, values are Fractions. Nothing here imports the machine. `TestOracle` in test_oracle.py compares
both on corner bit patterns and on patterns that make sums interact.
"""

from __future__ import annotations

import random
from fractions import Fraction

#: format -> (bits, mantissa bits, bias)
FORMATS = {"h": (16, 9, 31), "f": (32, 23, 127), "d": (64, 52, 1023), "g": (32, 23, 127)}
BITS = {"l": 64, "i": 32, "s": 16, "d": 64, "f": 32, "h": 16, "g": 32}


# --- formats -------------------------------------------------------------------------------------------------------------
def fields(x: int, p: str) -> tuple[int, int, int]:
    """Sign, exponent field, mantissa field."""
    n, m, _ = FORMATS[p]
    return x >> (n - 1), x >> m & ((1 << (n - 1 - m)) - 1), x & ((1 << m) - 1)


def ones(p: str) -> int:
    n, m, _ = FORMATS[p]
    return (1 << (n - 1 - m)) - 1


def value(x: int, p: str) -> Fraction:
    """Infinity counts as the power of two above the largest number (of a single, for halves)."""
    s, e, f = fields(x, p)
    _, m, b = FORMATS[p]
    if e == 0:
        return Fraction(0)
    top = Fraction(2) ** (1024 if p == "d" else 128)
    v = top if e == ones(p) else (1 + Fraction(f, 1 << m)) * Fraction(2) ** (e - b)
    return -v if s else v


def nearest(q: Fraction) -> int:
    """Ties to even."""
    return round(q)


def encode(v: Fraction, p: str) -> int:
    """Rounded once with unbounded exponent, then saturated; no denormals, no negative zero."""
    n, m, b = FORMATS[p]
    if v == 0:
        return 0
    sign, v = int(v < 0) << (n - 1), abs(v)
    e = v.numerator.bit_length() - v.denominator.bit_length()
    if Fraction(2) ** e > v:
        e -= 1
    k = nearest(v / Fraction(2) ** (e - m))
    if k == 1 << (m + 1):
        k, e = k >> 1, e + 1
    if e + b >= ones(p):
        return sign | ones(p) << m
    return sign | (e + b) << m | (k - (1 << m)) if e + b > 0 else 0


def converted(x: int, p: str, q: str) -> int:
    """Suffixes e and r: infinity stays infinity, a zero keeps its sign."""
    s, e, _ = fields(x, p)
    sign = s << (BITS[q] - 1)
    if e == ones(p):
        return sign | ones(q) << FORMATS[q][1]
    return encode(value(x, p), q) if e else sign


def split(x: int, bits: int) -> list[int]:
    return [x >> s & ((1 << bits) - 1) for s in range(64 - bits, -1, -bits)]


def join(parts: list[int], bits: int) -> int:
    word = 0
    for part in parts:
        word = word << bits | part
    return word


# --- ALU -----------------------------------------------------------------------------------------------------------------
RSQRT = {
    0: (63, 62, 60, 58, 57, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45),
    1: (45, 43, 42, 41, 40, 39, 38, 37, 36, 36, 35, 34, 34, 33, 33, 32),
}


def signed(x: int, n: int) -> int:
    return x - (1 << n) if x >> (n - 1) else x


def order(x: int, p: str, unsigned: bool) -> int:
    """What max and min compare."""
    n = BITS[p]
    if p in "lis":
        return x if unsigned else signed(x, n)
    s, e, _ = fields(x, p)
    magnitude = x & ((1 << (n - 1)) - 1) if e else 0
    return -magnitude if s else magnitude


def shifted(op: str, unsigned: bool, x: int, y: int, n: int) -> int:
    full, s = (1 << n) - 1, y % (2 * n)
    if op == "lsl":
        return x << s & full if s < n else 0
    if op == "lsr":
        return (x if unsigned else signed(x, n)) >> min(s, n) & full
    s = s % n if op == "bsl" else -s % n
    return (x << s | x >> (n - s)) & full


INTEGER = {
    "not": lambda x, y, n: ~x & ((1 << n) - 1), "lnot": lambda x, y, n: int(x == 0), "and": lambda x, y, n: x & y,
    "or": lambda x, y, n: x | y, "xor": lambda x, y, n: x ^ y,
}  # fmt: skip
STEP = {"inc": lambda x, y: x + 1, "dec": lambda x, y: x - 1, "add": lambda x, y: x + y, "sub": lambda x, y: x - y}


def alu(op: str, p: str, unsigned: bool, x: int, y: int) -> tuple[int | None, bool | None]:
    """(result, flag) of one element; None where the documents leave it open or there is no flag."""
    n = BITS[p]
    full = (1 << n) - 1
    if op == "passa":
        return x, x == 0
    if op in STEP:
        r = STEP[op](x, y)
        return r & full, 0 <= r <= full if unsigned else not (r & full) >> (n - 1)
    if op in INTEGER:
        r = INTEGER[op](x, y, n)
        return r, r == 0
    if op in ("lsl", "lsr", "bsl", "bsr"):
        r = shifted(op, unsigned, x, y, n)
        return r, r == 0
    if op == "packbit":
        return (x << 1 | y >> (n - 1)) & full, not y >> (n - 1)
    if op in ("max", "min"):
        a, b = order(x, p, unsigned), order(y, p, unsigned)
        first = a >= b if op == "max" else a <= b
        return (x, True) if first else (y, False)
    return _float_alu(op, p, unsigned, x, y)


def _float_alu(op: str, p: str, unsigned: bool, x: int, y: int) -> tuple[int | None, bool | None]:
    n, m, b = FORMATS[p]
    full = (1 << n) - 1
    s, e, f = fields(x, p)
    if op.startswith("relu"):
        bit = x >> (n - 1 - int(op[4:] or 0)) & 1
        return (1 << (n - 1)) if bit else y, not bit
    if op in ("lrelud", "lreluo", "ilrelud"):
        if not s:
            return y, True
        ys, ye, yf = fields(y, p)
        if op == "ilrelud":
            return ys << (n - 1) | min(ye + 1, ones(p)) << m | yf, False
        if ye == ones(p):
            return None, False
        ye -= 1 if op == "lrelud" else 3
        return 1 << (n - 1) if ye <= 0 else ys << (n - 1) | ye << m | yf, False
    if op == "floor":
        if e == ones(p):
            return x, None
        whole = value(x, p).__floor__()
        return encode(Fraction(whole), p) if whole else s << (n - 1), None
    if op == "ftoi":
        whole = 1 << 200 if e == ones(p) else abs(value(x, p)).__floor__()
        whole = whole if unsigned or not s else -whole
        low, high = (0, full) if unsigned else (-(1 << (n - 1)), (1 << (n - 1)) - 1)
        return max(low, min(high, whole)) & full, None
    assert op == "rsqrt"
    if e == 0 or e == ones(p):
        return 0 if e else ones(p) << m, not s
    odd = (e - b) & 1
    k = RSQRT[odd][f >> (m - 4)]
    return (b - (e - b - odd) // 2 - 1) << m | (k - 32) << (m - 5), not s


# --- MAU -----------------------------------------------------------------------------------------------------------------
def _omitted(a: int, b: int, p: str) -> int:
    """What the product of two mantissas lacks, and what it gets instead."""
    if p in "gh":
        return 0
    width, constant = (5, 1 << 8) if p == "f" else (16, 1 << 30)
    la, lb = a & ((1 << width) - 1), b & ((1 << width) - 1)
    return constant - la * lb if la and lb else 0


def product(a: int, b: int, p: str) -> Fraction:
    _, m, bias = FORMATS[p]
    (sa, ea, fa), (sb, eb, fb) = fields(a, p), fields(b, p)
    if not ea or not eb:
        return Fraction(0)
    top = 1024 if p == "d" else 128
    ma, xa = (1 << m, top) if ea == ones(p) else (1 << m | fa, ea - bias)
    mb, xb = (1 << m, top) if eb == ones(p) else (1 << m | fb, eb - bias)
    v = (ma * mb + _omitted(ma, mb, p)) * Fraction(2) ** (xa + xb - 2 * m)
    return -v if sa != sb else v


def block_product(a: int, b: int, p: str) -> Fraction:
    """Of two block-float elements: no hidden bit, the first mantissa bit is worth 2^(exponent - bias)."""
    _, m, bias = FORMATS[p]
    (sa, ea, fa), (sb, eb, fb) = fields(a, p), fields(b, p)
    if p == "g":
        fa, fb = fa & ~31, fb & ~31
    v = (fa * fb + _omitted(fa, fb, p)) * Fraction(2) ** (ea + eb - 2 * bias - 2 * (m - 1))
    return -v if sa != sb else v


def block(values: list[int], p: str, keep: int = 9) -> list[int]:
    """Conversion of a block to block float."""
    n, m, _ = FORMATS[p]
    short = 9 - keep if p == "h" else 0
    parts = [fields(v, p) for v in values]
    largest = max(e for _, e, _ in parts)
    if largest == 0:
        return [s << (n - 1) for s, _, _ in parts]
    carries = any(
        nearest(Fraction(1 << m | f, 1 << (1 + short))) >= 1 << (m - short) for _, e, f in parts if e == largest
    )
    common = largest + short + carries
    if common >= ones(p):
        return [s << (n - 1) | ones(p) << m for s, _, _ in parts]
    return [
        s << (n - 1) | common << m | (nearest(Fraction(1 << m | f, 1 << (1 + common - e))) if e else 0)
        for s, e, f in parts
    ]


# --- reductions ----------------------------------------------------------------------------------------------------------
def network_sum(values: list[int], p: str, q: str = "") -> int:
    """One adder: hidden bit and 3 bits below, aligned to the largest exponent with rounding, summed, rounded."""
    _, m, b = FORMATS[p]
    parts = [fields(v, p) for v in values]
    largest = max(e for _, e, _ in parts)
    total = 0
    for s, e, f in parts:
        if e:
            mantissa = (1 << m | (0 if e == ones(p) else f)) << 3
            aligned = nearest(Fraction(mantissa, 1 << (largest - e)))
            total += -aligned if s else aligned
    return encode(total * Fraction(2) ** (largest - b - m - 3), q or p)


def two_stages(values: list[int], p: str, q: str = "") -> int:
    """The 16 MABs of an L1B: four adders of four, then one."""
    return network_sum([network_sum(values[4 * i : 4 * i + 4], p) for i in range(4)], p, q)


def reduction(op: str, p: str, values: list[int]) -> int:
    n = BITS[p]
    full = (1 << n) - 1

    def key(v: int) -> int:
        return -(v & full >> 1) - 1 if v >> (n - 1) else v

    if op == "fadd":
        return network_sum(values, p)
    if op in ("max", "min"):
        return (max if op == "max" else min)(values, key=key)
    if op == "iadd":
        return sum(values) & full
    if op in ("and", "or"):
        return int(all(values) if op == "and" else any(values))
    r = values[0]
    for v in values[1:]:
        r = r & v if op == "band" else r | v
    return r


UNIT = {"fadd": 0, "iadd": 0, "bor": 0, "or": 0, "max": -1, "band": -1, "and": -1}


def unit(op: str, p: str) -> int:
    """What stands for sources outside of a set."""
    n = BITS[p]
    return (1 << (n - 1)) - 1 if op == "min" else UNIT[op] & ((1 << n) - 1)


# --- patterns ------------------------------------------------------------------------------------------------------------
def element(p: str, rng: random.Random) -> int:
    """A bit pattern: corners, any exponent, ties, infinities, zeros with a mantissa; for integers also small and long ones."""
    n = BITS[p]
    kind = rng.random()
    if kind < 0.15:
        return rng.choice([0, 1, (1 << n) - 1, 1 << (n - 1), (1 << (n - 1)) - 1, (1 << (n - 1)) + 1])
    if p not in FORMATS:
        if kind < 0.4:
            return rng.getrandbits(rng.randint(1, n))
        return rng.randint(0, 2 * n + 3) & ((1 << n) - 1) if kind < 0.6 else rng.getrandbits(n)
    _, m, b = FORMATS[p]
    edge = rng.choice([0, 0, ones(p), ones(p), 1, 2, 3, 4, ones(p) - 1, ones(p) - 2, ones(p) - 3])
    e = edge if kind > 0.75 else rng.randint(max(0, b - 20), min(ones(p), b + 20))
    f = rng.choice([0, 1, (1 << m) - 1, (1 << m) - 2, 1 << (m - 1), (1 << (m - 1)) - 1, 31, 16])
    return rng.getrandbits(1) << (n - 1) | e << m | (rng.getrandbits(m) if rng.random() < 0.5 else f)


def long_word(p: str, rng: random.Random) -> int:
    return join([element(p, rng) for _ in range(64 // BITS[p])], BITS[p])


def neighbours(p: str, rng: random.Random, around: int, spread: int) -> int:
    """An LW whose exponents lie at most `spread` below `around`."""
    n, m, _ = FORMATS[p]
    f = [rng.getrandbits(m), (1 << m) - 1, (1 << m) - 2, 0, 1, 1 << (m - 1)]
    return join(
        [
            rng.getrandbits(1) << (n - 1) | max(0, around - rng.randint(0, spread)) << m | rng.choice(f)
            for _ in range(64 // n)
        ],
        n,
    )
