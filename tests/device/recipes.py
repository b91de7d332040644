"""Listings: the rest of the elementary functions for halves, singles and doubles, conversions, and programs over rows.

As in listings.py: input in `$lr0v` (second input `$lm0v`), result in `$ln0v`, `{s:c}` a constant in GRF1 and so on.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction

from cookbook import _EXP, _EXP_TAIL, _LOG, _LOG_HEAD, _LOG_POLYNOMIAL, _SEED

M, ONE, HALF, SIGN, MAGNITUDE, TWO23 = 0x4B400000, 0x3F800000, 0x3F000000, 0x80000000, 0x7FFFFFFF, 0x4B000000
_RECIPROCAL = """isub {s:mg} $lr0v $lt
fvfma -$lr0v $aluf {s:a} $nowrite
fvfma $mauf $mauf {s:b} $nowrite
fvmul $lt $mauf $lr8v
fvfma -$lr0v $mauf {s:one} $nowrite
fvfma $lr8v $mauf $lr8v $nowrite
"""
_CLAMPED = "fmax $lr0v {s:lo} $nowrite\nfmin $aluf {s:hi} $lr8v\n"
#: x clamped in $ls40v and in $aluf, with its square in $mauf and $lr8v and the denominator of degree 2 in $lr16v
_HALF_RATIO = """fvmul $aluf $aluf $lr8v
fvfma $mauf {m:q2} {s:q1} $nowrite
fvfma $mauf $lr8v {s:one} $lr16v
"""
_HALF_QUOTIENT = """fvfma -$lr16v $ls8v {m:a} $nowrite
fvfma $mauf $mauf {s:b} $nowrite
fvmul $ls8v $mauf $nowrite
fvmul $lt $mauf $nowrite
"""
_HALF_ERF = (
    _HALF_RATIO
    + "fvfma $lr8v {m:p3} {n:p2} $nowrite; isub {s:mg} $mauf $ls8v\n"
    + "fvfma $mauf $lr8v {s:p1} $nowrite\nfvfma $mauf $lr8v {s:p0} $lt\n"
    + _HALF_QUOTIENT
)
_ERF_H = _SEED | {
    "one": ONE, "p0": 0x3F906C21, "p1": 0x3E4AD06F, "p2": 0x3CAFB0C7, "p3": 0xB9ED3CB3, "q1": 0x3F01F9C9, "q2": 0x3DBAD5A7,
    "lo": 0xC039999A, "hi": 0x4039999A,
}  # fmt: skip

#: name -> (steps of the chain, text, constants)
SINGLES: dict[str, tuple[int, str, dict[str, int]]] = {
    "div_full": (7, _RECIPROCAL + "fvmul $lm0v $mauf $ln0v\n", _SEED | {"one": ONE}),
    "sqrt_full": (
        9,
        """frsqrt $lr0v $nowrite
fvmul $lr0v $aluf $lr8v; isub $aluf {s:d} $ls8v
fvfma -$mauf $aluf {s:half} $lr16v
fvfma $mauf {m:c2} {s:c1} $nowrite
fvmul $mauf $lr16v $lt
fvfma $ls8v $mauf $ls8v $ls16v
fvfma $lr8v $lt $lr8v $lr24v
fvfma -$mauf $ls16v {m:half} $nowrite
fvfma $lr24v $mauf $lr24v $ln0v
""",
        {"d": 0x00800000, "half": HALF, "c2": 0x3FBF7845, "c1": 0x3F802AB2},
    ),
    "exp_fast": (
        11,
        _CLAMPED
        + """fvfma $aluf {m:L} {s:M} $nowrite
fvadd $mauf -{s:M} $nowrite; ilsl $mauf {m:sh} $ls8v
fvfma -$mauf {s:h} $lr8v $lr16v
fvfma $mauf {m:c5} {s:c4} $nowrite
fvfma $mauf $lr16v {s:c3} $nowrite
fvfma $mauf $lr16v {s:c2} $nowrite
fvfma $mauf $lr16v {s:one} $nowrite
fvfma $mauf $lr16v {s:one} $nowrite
iadd $mauf $ls8v $ln0v
""",
        _EXP | {"c2": 0x3EFFFEFC, "c3": 0x3E2AABDC, "c4": 0x3D2B9610, "c5": 0x3C082FD5},
    ),
    # log as hi + lo, y hi with its error, exp of the high part with the sum of the low ones added to r
    "pow_dd": (
        42,
        _LOG_HEAD
        + "fvmul $mauf $mauf $lr16v; iadd $aluf {s:M} $ls8v\n"
        + _LOG_POLYNOMIAL.replace("fvfma $lt $lr16v $ls24v $nowrite\n", "")
        + """fvmul $lt $lr16v $lr16v
nop
fvadd $lr16v $ls24v $lr24v $ls32v
fvadd $mauf -$ls24v $nowrite
fvadd $lr16v -$mauf $lr32v
fvfma $ls16v {m:h} $lr24v $lr40v
fvfma $ls16v {m:h} -$mauf $nowrite
fvadd $mauf $ls32v $nowrite
fvfma $ls16v {m:l} $mauf $nowrite
fvadd $mauf $lr32v $nowrite
fvmul $mauf $lm0v $nowrite
fvmul $lr40v $lm0v $lr48v; ipassa $mauf $ls32v
fvfma $lr40v $lm0v -$mauf $nowrite
fvadd $mauf $ls32v $ls32v
fmax $lr48v {s:lo} $nowrite
"""
        + _EXP_TAIL.replace("$mauf $lr16v\nfvfma $mauf {m:c6}", "$mauf $nowrite\nfvadd $mauf $ls32v $lr16v\nfvfma $mauf {m:c6}")
        + "iadd $mauf $ls8v $ln0v\n",
        _LOG | _EXP,
    ),
    "sigmoid_h": (
        14,
        """fmax $lr0v {s:lo2} $nowrite
fmin $aluf {s:hi2} $lr8v
fvfma $aluf {m:Ln} {s:M} $nowrite
fvadd $mauf -{s:M} $nowrite; ilsl $mauf {m:sh} $ls8v
fvfma -$mauf {s:h} -$lr8v $lr16v
fvfma $mauf {m:c3} {s:c2} $nowrite
fvfma $mauf $lr16v {s:c1} $nowrite
fvfma $mauf $lr16v {s:c0} $nowrite
iadd $mauf $ls8v $nowrite
fvadd $aluf {s:one} $lr8v
isub {s:mg} $mauf $lt
fvfma -$lr8v $aluf {s:a} $nowrite
fvfma $mauf $mauf {s:b} $nowrite
fvmul $lt $mauf $ln0v
""",
        _SEED | {
            "lo2": 0xC2AE0000, "hi2": 0x42AF0000, "Ln": 0xBFB8AA3B, "M": M, "sh": 23, "h": 0x3F317218, "one": ONE,
            "c0": 0x3F7FFB3D, "c1": 0x3F800570, "c2": 0x3F0146FB, "c3": 0x3E29A391,
        },
    ),
    "tanh_h": (
        12,
        "fmax $lr0v {s:lo} $nowrite\nfmin $aluf {s:hi} $ls40v\n"
        + _HALF_RATIO
        + "fvfma $lr8v {m:p2} {n:p1} $nowrite; isub {s:mg} $mauf $ls8v\nfvfma $mauf $lr8v {s:p0} $lt\n"
        + _HALF_QUOTIENT
        + "fvmul $mauf $ls40v $ln0v\n",
        _SEED | {
            "lo": 0xC0A00000, "hi": 0x40A00000, "one": ONE, "p0": 0x3F7FFC98, "p1": 0x3DD1C05F, "p2": 0x3A2FC8E0,
            "q1": 0x3EDEF102, "q2": 0x3C520A82,
        },
    ),
    "erf_h": (
        13,
        "fmax $lr0v {s:lo} $nowrite\nfmin $aluf {s:hi} $ls40v\n" + _HALF_ERF + "fvmul $mauf $ls40v $ln0v\n",
        _ERF_H,
    ),
    "gelu_h": (
        15,
        """fvmul $lr0v {s:rs2} $nowrite
fmax $mauf {s:lo} $nowrite; fvmul $lr0v {m:half} $ls24v
fmin $aluf {s:hi} $ls40v
"""
        + _HALF_ERF
        + "fvmul $mauf $ls40v $nowrite\nfvfma $ls24v $mauf $ls24v $ln0v\n",
        _ERF_H | {"rs2": 0x3F3504F3, "half": HALF},
    ),
    # conversions and rounding
    "uint_to_single": (
        5,
        """uilsr $lr0v {s:s16} $nowrite
ior $aluf {s:m2} $nowrite
iand $lr0v {s:lm} $nowrite; fvfma $aluf {m:s64} {n:cc} $nowrite
ior $aluf {s:m2} $nowrite
fvadd $aluf $mauf $ln0v
""",
        {"s16": 16, "m2": TWO23, "lm": 0xFFFF, "s64": 0x47800000, "cc": 0xD3000080},
    ),
    "small_int_to_single": (2, "iadd $lr0v {s:M} $nowrite\nfvadd $aluf -{s:M} $ln0v\n", {"M": M}),
    "small_uint_to_single": (2, "ior $lr0v {s:t} $nowrite\nfvadd $aluf -{s:t} $ln0v\n", {"t": TWO23}),
    "ceil": (3, "fvpassa -$lr0v $nowrite\nffloor $mauf $nowrite\nfvpassa -$aluf $ln0v\n", {}),
    "trunc": (
        4,
        "iand $lr0v {s:ab} $nowrite\nffloor $aluf $nowrite\nfvpassa $aluf $nowrite; iand $lr0v {s:sg} $nowrite\n"
        "ior $aluf $mauf $ln0v\n",
        {"ab": MAGNITUDE, "sg": SIGN},
    ),
    "round_half_away": (
        5,
        "iand $lr0v {s:ab} $nowrite\nfvadd $aluf {s:half} $nowrite\nffloor $mauf $nowrite\n"
        "fvpassa $aluf $nowrite; iand $lr0v {s:sg} $nowrite\nior $aluf $mauf $ln0v\n",
        {"ab": MAGNITUDE, "sg": SIGN, "half": 0x3EFFFFFF},
    ),
    # comparisons: 0 or 1 as singles
    "ge": (2, "fvadd $lr0v -$lm0v $nowrite\nfrelu $mauf {s:one} $ln0v\n", {"one": ONE}),
    "gt": (3, "fvadd $lm0v -$lr0v $omr1\nipassa {s:one} $ln0v\nzero $ln0v/$imr1\n", {"one": ONE}),
    "eq": (2, "ixor $lr0v $lm0v $omr1\nipassa/$imr1 {s:one} $ln0v\n", {"one": ONE}),
    "sign": (
        3, "fvmul $lr0v {s:big} $nowrite\nfmin $mauf {s:one} $nowrite\nfmax $aluf {s:less} $ln0v\n",
        {"big": 0x7F000000, "one": ONE, "less": 0xBF800000},
    ),
    "where": (2, "fvpassa $lr0v $omr1; ipassa {s:other} $ln0v\nipassa $lm0v $ln0v/$imr1\n", {"other": 0x41200000}),
}  # fmt: skip


def _bits(x: float) -> int:
    return struct.unpack(">Q", struct.pack(">d", x))[0]


def _wide(single: int) -> int:
    """A single as a double."""
    return _bits(struct.unpack(">f", struct.pack(">I", single))[0])


def _pairs(*products: tuple[str, str, str, str, str]) -> str:
    """Steps of double products x*y + z, two each: (x, y, z or nothing, copy of what `$mauf` held, destinations).

    The second step reads the factor that the first one took from `$mauf` from its copy.
    """
    lines = []
    for x, y, z, copy, target in products:
        second = f"{x} {y}".replace("$mauf", copy)
        lines.append(f"dvfmau {x} {y} {z} $nowrite" if z else f"dvmulu {x} {y} $nowrite")
        lines.append(f"dvfmad {second} $mauf {target}")
    return "\n".join(lines) + "\n"


_DSEED = (
    "lsub {s:M} $lr0v $lt\ndvfmau -$lr0v $aluf {s:a} $nowrite\ndvfmad -$lr0v $lt $mauf $lr8v\n"
    "dvfmau $mauf $mauf {s:b} $nowrite\ndvfmad $lr8v $lr8v $mauf $lr16v\n"
    "dvmulu $lt $mauf $nowrite\ndvfmad $lt $lr16v $mauf $ls24v\n"
)
_LN2_HIGH = math.ldexp(round(Fraction(math.log(2)) * 2**40), -40)
#: log 2 to 80 bits, less its first 40
_LN2_LOW = float(Fraction(0xB17217F7D1CF79ABC9E3, 1 << 80) - Fraction(_LN2_HIGH))
_DEXP_HORNER = "".join(
    f"dvfmau $mauf $lr40v {{s:c{k}}} $nowrite\ndvfmad $ls48v $lr40v $mauf $ls48v\n" for k in range(11, -1, -1)
)

#: name -> (steps for four doubles, text, constants)
DOUBLES: dict[str, tuple[int, str, dict[str, int]]] = {
    "ddiv": (
        17,
        _DSEED
        + _pairs(
            ("-$lr0v", "$mauf", "{s:one}", "$ls24v", "$lr32v"),  # e
            ("$ls24v", "$mauf", "$ls24v", "$lr32v", "$ls32v"),  # y2
            ("$lm0v", "$mauf", "", "$ls32v", "$ls40v $lt"),  # q0 = n y2
            ("-$lr0v", "$mauf", "$lm0v", "$ls40v", "$lr48v"),  # n - d q0
            ("$ls32v", "$mauf", "$lt", "$lr48v", "$ln0v"),
        ),
        {"M": 0x7FDE660000000000, "a": 0x3FF803F100000000, "b": 0x3FE7F81EC0000000, "one": _bits(1.0)},
    ),
    # half of y1 is made beside the product x y1, which saves a step of the 22
    "drsqrt": (
        21,
        "drsqrt $lr0v $lt\ndvmulu $aluf $aluf $nowrite\ndvfmad $lt $lt $mauf $ls16v\n"  # the square of the seed is exact
        + _pairs(
            ("-$lr0v", "$mauf", "{s:one}", "$ls16v", "$lr8v"),  # r
            ("$mauf", "{m:c4}", "{s:c3}", "$lr8v", "$ls32v"),
            ("$mauf", "$lr8v", "{s:c2}", "$ls32v", "$ls32v"),
            ("$mauf", "$lr8v", "{s:c1}", "$ls32v", "$ls32v"),
            ("$mauf", "$lr8v", "", "$ls32v", "$ls40v"),
            ("$lt", "$mauf", "$lt", "$ls40v", "$lr16v $ls48v"),  # y1
            ("$lr0v", "$mauf", "", "$ls48v", "$lr24v"),  # x y1
            ("-$mauf", "$ls48v", "{m:one}", "$lr24v", "$lr32v"),  # e
            ("$lt", "$mauf", "$lr16v", "$lr32v", "$ln0v"),
        ).replace("dvmulu $lr0v $mauf $nowrite", "dvmulu $lr0v $mauf $nowrite; lsub $mauf {m:tiny} $lt"),
        {
            "c4": _wide(0x3E8B086B), "c3": _wide(0x3EA06ED7), "c2": _wide(0x3EC00090), "c1": _wide(0x3EFFFFED),
            "one": _bits(1.0), "tiny": 0x0010000000000000,
        },
    ),
    "dexp": (
        36,
        """dmax $lr0v {s:lo} $nowrite
dmin $aluf {s:hi} $lr8v
dvfmau $aluf {m:L} {s:M} $nowrite
dvfmad $lr8v {m:L} $mauf $lr16v
dvadd $mauf -{s:M} $lr24v $lt; llsl $mauf {m:sh} $ls8v
dvfmau -$mauf {s:h} $lr8v $nowrite
dvfmad -$lr24v {s:h} $mauf $nowrite
dvfmau -$lt {m:l} $mauf $nowrite
dvfmad -$lt {m:l} $mauf $lr40v
dvfmau $mauf {m:c13} {s:c12} $nowrite
dvfmad $lr40v {m:c13} $mauf $ls48v
"""
        + _DEXP_HORNER
        + "ladd $mauf $ls8v $ln0v\n",
        {
            "lo": _bits(-708.0), "hi": _bits(709.5), "L": _bits(1 / math.log(2)), "M": 0x4338000000000000, "sh": 52,
            "h": _bits(_LN2_HIGH), "l": _bits(_LN2_LOW), **{f"c{k}": _bits(1 / math.factorial(k)) for k in range(14)},
        },
    ),
}  # fmt: skip


#: quotients of unsigned words by a constant d: below 2^22 (8 elements), any (4 words, in double)
def quotient_small(d: int) -> tuple[int, str, dict[str, int]]:
    inverse, half = (struct.unpack(">I", struct.pack(">f", x))[0] for x in (1 / d, 0.5 / d))
    text = """ior $lr0v {s:m2} $nowrite
fvadd $aluf -{s:m2} $nowrite
fvfma $mauf {m:inverse} {s:half} $nowrite
fftoi $mauf $ln0v
"""
    return 4, text, {"m2": TWO23, "inverse": inverse, "half": half}


def quotient(d: int) -> tuple[int, str, dict[str, int]]:
    text = """ullsr $r0v {s:s32} $nowrite
lor $aluf {s:m2} $nowrite
dvadd $aluf -{s:m2} $lr8v
dvfmau $mauf {m:inverse} {s:half} $nowrite
dvfmad $lr8v {m:inverse} $mauf $nowrite
dftoi $mauf $nowrite
llsl $aluf {s:s32} $n0v
"""
    return 7, text, {"s32": 32, "m2": 0x4330000000000000, "inverse": _bits(1 / d), "half": _bits(0.5 / d)}


# --- rows: four a MAB, one a cycle; 8 lanes (4 PEs, 2 words) times n vectors -------------------------------------------------
#: once: the matrix register of ones that sums over lanes
ONES_MATRIX = "fbfn {s:one} $nowrite\nfmwrite $aluf $lx0\nfmwrite $aluf $lx4\n"
_LANE_SUM = "fbfn $mauf $nowrite\nfmmul $lx $aluf $nowrite; lbsl $aluf {m:w} $nowrite\n"
ROW_CONSTANTS = {
    "one": ONE, "w": 32, "L": 0x3FB8AA3B, "M": M, "M2": 0x4BC00000, "sh": 23, "h": 0x3F317218, "lo": 0xC2B00A3D,
    "c2": 0x3EFFFEFC, "c3": 0x3E2AABDC, "c4": 0x3D2B9610, "c5": 0x3C082FD5, **_SEED,
}  # fmt: skip


def softmax(n: int) -> str:
    """Rows in `$lm<2i>v<2n>`, i < n; the result replaces them. round(max log2 e) is folded into the magic constant: C = M - K."""
    x = [f"$lm{2 * i}v{2 * n}" for i in range(n)]
    y = [f"$ln{2 * i}v{2 * n}" for i in range(n)]
    lines = [f"ipassa {x[0]} $nowrite", *(f"fmax $aluf {v} $nowrite" for v in x[1:-1]), f"fmax $aluf {x[-1]} $lr0v"]
    lines += [
        "lbsl $aluf {m:w} $nowrite", "fmax $lr0v $aluf $lr480v", "msr $aluf $nowrite", "fmax $lr480v $aluf $lr488v",
        "msr $aluf $nowrite", "msr $aluf $nowrite", "fmax $lr488v $aluf $nowrite; fvpassa {s:one} $nowrite",
        "fvfma $aluf {m:L} {s:M} $nowrite; zero $lr72v",  # M + K
        "fvadd {s:M2} -$mauf $lr64v $ls64v",  # C
        "fvadd {s:M} -$mauf $nowrite",  # K
        "fvfma $mauf {m:h} {s:lo} $lr80v",
        f"fmax {x[0]} $mauf $lt",
        "nop",
    ]  # fmt: skip
    for i in range(n):
        last = f"; iadd $mauf $ls8v {y[i - 1]}" if i else ""
        ahead = f"; fmax {x[i + 1]} $lr80v $lt" if i + 1 < n else ""
        lines += [
            "fvfma $lt {m:L} $lr64v $lr16v" + last,
            "fvadd $lr72v $aluf $lr72v" if i else "nop",
            "fvadd $lr16v -$ls64v $nowrite; ilsl $lr16v {m:sh} $ls8v",
            "fvfma -$mauf {s:h} $lt $lr24v" + ahead,
            "fvfma $mauf {m:c5} {s:c4} $nowrite",
            *(f"fvfma $mauf $lr24v {{s:{c}}} $nowrite" for c in ("c3", "c2", "one", "one")),
        ]
    lines += [f"iadd $mauf $ls8v {y[-1]}", "fvadd $lr72v $aluf $nowrite"]
    tail = (
        _LANE_SUM
        + "fmfma $lx $aluf $mauf $lr0v\n"
        + _RECIPROCAL.replace("isub {s:mg} $lr0v", "isub {s:mg} $mauf").replace(
            "$mauf $lr8v $nowrite", "$mauf $lr8v $lr96v"
        )
    )
    return "\n".join(lines) + "\n" + tail + "nop\n" + "".join(f"fvmul {b} $lr96v {a}\n" for a, b in zip(x, y))


def layer_norm(n: int) -> str:
    """Rows as in softmax; gamma in `$ls<2i>`, beta in `$lr<128 + 2i>`, 1/(8n) in {s:inverse}."""
    x = [f"$lm{2 * i}v{2 * n}" for i in range(n)]
    y = [f"$ln{2 * i}v{2 * n}" for i in range(n)]
    lines = [f"fvpassa {x[0]} $nowrite", *(f"fvadd $mauf {v} $nowrite" for v in x[1:])]
    text = "\n".join(lines) + "\n" + _LANE_SUM + "fmfma $lx $aluf $mauf $nowrite\n"
    text += "fvmul $mauf {s:inverse} $lr8v\nzero $lr16v\n"
    text += "".join(f"fvadd {a} -$lr8v {b}\nfvfma $mauf $mauf $lr16v $lr16v\n" for a, b in zip(x, y))
    text += _LANE_SUM + "fmfma $lx $aluf $mauf $nowrite\n"
    text += """fvfma $mauf {s:inverse} {m:eps} $lr0v
frsqrt $mauf $lt
fvmul $aluf $aluf $nowrite
fvfma -$lr0v $mauf {s:one} $lr8v
fvfma $mauf {m:c4} {s:c3} $nowrite
fvfma $mauf $lr8v {s:c2} $nowrite
fvfma $mauf $lr8v {s:c1} $nowrite
fvmul $mauf $lr8v $nowrite
fvfma $lt $mauf $lt $lr32v
nop
"""
    return text + "".join(
        f"fvmul {b} $lr32v $nowrite\nfvfma $mauf $ls{2 * i} $lr{128 + 2 * i} {a}\n"
        for i, (a, b) in enumerate(zip(x, y))
    )


def exp_stream(chunks: int) -> str:
    """exp of `$lm<8k>v` to `$ln<8k>v`, 10 steps a chunk: clamps and exponents of its neighbours run beside its products."""
    lines = ["fmax $lm0v {r:lo} $nowrite", "fmin $aluf {r:hi} $lt", "nop"]
    for k in range(chunks):
        last = f"; iadd $mauf $ls8v $ln{8 * k - 8}v" if k else ""
        ahead = k + 1 < chunks
        lines += [
            "fvfma $lt {m:L} {r:M} $nowrite" + last,
            "fvadd $mauf -{s:M} $lr8v; ilsl $mauf {m:sh} $ls8v",
            "fvfma -$mauf {s:h} $lt $nowrite" + f"; fmax $lm{8 * k + 8}v {{r:lo}} $nowrite" * ahead,
            "fvfma -$lr8v {s:l} $mauf $lr16v",
            "fvfma $mauf {m:c6} {s:c5} $nowrite" + "; fmin $aluf {r:hi} $lt" * ahead,
            *(f"fvfma $mauf $lr16v {{s:{c}}} $nowrite" for c in ("c4", "c3", "c2", "one", "one")),
        ]
    return "\n".join([*lines, f"iadd $mauf $ls8v $ln{8 * chunks - 8}v"]) + "\n"


EXP_CONSTANTS = _EXP
LAYER_NORM_CONSTANTS = {
    "one": ONE, "w": 32, "eps": 0x3727C5AC, "c1": 0x3EFFFFED, "c2": 0x3EC00090, "c3": 0x3EA06ED7, "c4": 0x3E8B086B,
}  # fmt: skip
