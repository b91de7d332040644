"""More listings of elementary functions: those that are put together from parts, and the shorter ones for halves.

As in listings.py: input in `$lr0v` (second input `$lm0v`), result in `$ln0v`, `{s:c}` a constant in GRF1 and so on.
"""

from __future__ import annotations

_SIGN_LOG = {
    "q": 0x3F3504F3, "em": 0xFF800000, "sh": 23, "one": 0x3F800000, "M": 0x4B400000, "h": 0x3F317218,
}  # fmt: skip
_LOG = _SIGN_LOG | {
    "l8": 0xBD9C1DC0, "l7": 0x3E042EDB, "l6": 0xBE07A028, "l5": 0x3E113737, "l4": 0xBE2A12E0, "l3": 0x3E4CD20B,
    "l2": 0xBE800219, "l1": 0x3EAAAAA8, "l0": 0xBEFFFFFC,
}  # fmt: skip
_EXP = {
    "lo": 0xC2B00A3D, "hi": 0x42B175C3, "L": 0x3FB8AA3B, "M": 0x4B400000, "sh": 23, "h": 0x3F317218, "l": 0xB102E308,
    "c6": 0x3AB51EBD, "c5": 0x3C091CF0, "c4": 0x3D2AAC60, "c3": 0x3E2AAA49, "c2": 0x3EFFFFFE, "one": 0x3F800000,
}  # fmt: skip
_SEED = {"mg": 0x7EF33400, "a": 0x3FC01F88, "b": 0x3F3FC0F6}
_ERF = _SEED | {
    "lo": 0xC07B851F, "hi": 0x407B851F, "one": 0x3F800000, "p0": 0x3F906EBA, "p1": 0x3E435CEC, "p2": 0x3D583A61,
    "p3": 0x3B77B460, "p4": 0x39955192, "p5": 0x36090C21, "q1": 0x3F009DFA, "q2": 0x3DE9FFDA, "q3": 0x3C75B7D2,
    "q4": 0x3A98BA11, "q5": 0x381F6695,
}  # fmt: skip

_LOG_POLYNOMIAL = """fvfma $lr8v {m:l8} {s:l7} $nowrite
fvfma $mauf $lr8v {s:l6} $nowrite
fvfma $mauf $lr8v {s:l5} $nowrite
fvfma $mauf $lr8v {s:l4} $nowrite
fvfma $mauf $lr8v {s:l3} $nowrite
fvfma $mauf $lr8v {s:l2} $nowrite
fvfma $mauf $lr8v {s:l1} $nowrite
fvfma $mauf $lr8v {s:l0} $lt
fvadd $ls8v -{m:M} $ls16v
fvfma $lt $lr16v $ls24v $nowrite
"""
_LOG_HEAD = """isub $lr0v {s:q} $nowrite
iand $aluf {s:em} $lt
isub $lr0v $aluf $nowrite
fvadd $aluf -{s:one} $lr8v $ls24v; ilsr $lt {m:sh} $nowrite
"""
_EXP_TAIL = """fmin $aluf {s:hi} $lr8v
fvfma $aluf {m:L} {s:M} $nowrite
fvadd $mauf -{s:M} $lt; ilsl $mauf {m:sh} $ls8v
fvfma -$mauf {s:h} $lr8v $nowrite
fvfma -$lt {s:l} $mauf $lr16v
fvfma $mauf {m:c6} {s:c5} $nowrite
fvfma $mauf $lr16v {s:c4} $nowrite
fvfma $mauf $lr16v {s:c3} $nowrite
fvfma $mauf $lr16v {s:c2} $nowrite
fvfma $mauf $lr16v {s:one} $nowrite
fvfma $mauf $lr16v {s:one} $nowrite
"""
#: x clamped in $ls40v and in $aluf -> R = erf(x) / x in $mauf
_ERF_RATIO = """fvmul $aluf $aluf $lr8v
fvfma $mauf {m:q5} {s:q4} $nowrite
fvfma $mauf $lr8v {s:q3} $nowrite
fvfma $mauf $lr8v {s:q2} $nowrite
fvfma $mauf $lr8v {s:q1} $nowrite
fvfma $mauf $lr8v {s:one} $lr16v
fvfma $lr8v {m:p5} {n:p4} $nowrite; isub {s:mg} $mauf $ls8v
fvfma $mauf $lr8v {s:p3} $nowrite
fvfma $mauf $lr8v {s:p2} $nowrite
fvfma $mauf $lr8v {s:p1} $nowrite
fvfma $mauf $lr8v {s:p0} $lt
fvfma -$lr16v $ls8v {m:a} $nowrite
fvfma $mauf $mauf {s:b} $nowrite
fvmul $ls8v $mauf $ls16v
fvmul $lt $mauf $lr24v
fvfma -$lr16v $mauf $lt $nowrite
fvfma $ls16v $mauf $lr24v $nowrite
"""

#: name -> (steps of the chain, text, constants)
COOKBOOK: dict[str, tuple[int, str, dict[str, int]]] = {
    "log1p": (
        18,
        """fvadd $lr0v {s:one} $lr8v
isub $mauf {s:q} $nowrite; fvadd $mauf -{m:one} $nowrite
iand $aluf {s:em} $lt; fvadd $lr0v -$mauf $ls32v
isub $lr8v $aluf $nowrite
isub {m:one} $lt $nowrite; fvadd $aluf -{s:one} $nowrite
fvfma $ls32v $aluf $mauf $lr8v $ls24v; ilsr $lt {m:sh} $nowrite
fvmul $mauf $mauf $lr16v; iadd $aluf {s:M} $ls8v
"""
        + _LOG_POLYNOMIAL
        + "fvfma $ls16v {m:h} $mauf $ln0v\n",
        _LOG,
    ),
    "erf": (
        20,
        "fmax $lr0v {s:lo} $nowrite\nfmin $aluf {s:hi} $ls40v\n" + _ERF_RATIO + "fvmul $mauf $ls40v $ln0v\n",
        _ERF,
    ),
    "gelu": (
        22,
        """fvmul $lr0v {s:rs2} $nowrite
fmax $mauf {s:lo} $nowrite; fvmul $lr0v {m:half} $ls24v
fmin $aluf {s:hi} $ls40v
"""
        + _ERF_RATIO
        + "fvmul $mauf $ls40v $nowrite\nfvfma $ls24v $mauf $ls24v $ln0v\n",
        _ERF | {"rs2": 0x3F3504F3, "half": 0x3F000000},
    ),
    "gelu_tanh": (
        24,
        """fvmul $lr0v $lr0v $nowrite; ipassa $lr0v $ls24v
fvfma $mauf {m:g1} {s:g0} $nowrite
fvmul $mauf $lr0v $nowrite
fmax $mauf {s:lo2} $nowrite
fmin $aluf {s:hi2} $lr8v
fvfma $aluf {m:Ln} {s:M} $nowrite
fvadd $mauf -{s:M} $lt; ilsl $mauf {m:sh} $ls8v
fvfma -$mauf {s:h} -$lr8v $nowrite
fvfma -$lt {s:l} $mauf $lr16v
fvfma $mauf {m:c6} {s:c5} $nowrite
fvfma $mauf $lr16v {s:c4} $nowrite
fvfma $mauf $lr16v {s:c3} $nowrite
fvfma $mauf $lr16v {s:c2} $nowrite
fvfma $mauf $lr16v {s:one} $nowrite
fvfma $mauf $lr16v {s:one} $nowrite
iadd $mauf $ls8v $nowrite
fvadd $aluf {s:one} $lr8v
isub {s:mg} $mauf $lt
fvfma -$lr8v $aluf {s:a} $nowrite
fvfma $mauf $mauf {s:b} $nowrite
fvmul $lt $mauf $lt
fvmul $ls24v $mauf $lr16v
fvfma -$lr8v $mauf $ls24v $nowrite
fvfma $lt $mauf $lr16v $ln0v
""",
        _EXP | _SEED | {"g0": 0x3FCC422A, "g1": 0x3D922279, "lo2": 0xC2AE0000, "hi2": 0x42AF0000, "Ln": 0xBFB8AA3B},
    ),
    "pow": (
        30,
        _LOG_HEAD
        + "fvmul $mauf $mauf $lr16v; iadd $aluf {s:M} $ls8v\n"
        + _LOG_POLYNOMIAL
        + "fvfma $ls16v {m:h} $mauf $nowrite\nfvmul $mauf $lm0v $nowrite\nfmax $mauf {s:lo} $nowrite\n"
        + _EXP_TAIL
        + "iadd $mauf $ls8v $ln0v\n",
        _LOG | _EXP,
    ),
    "recip_h": (
        4,
        """isub {s:mg} $lr0v $lt
fvfma -$lr0v $aluf {s:a} $nowrite
fvfma $mauf $mauf {s:b} $nowrite
fvmul $lt $mauf $ln0v
""",
        _SEED,
    ),
    "rsqrt_h": (
        6,
        """frsqrt $lr0v $lt
fvmul $aluf $aluf $nowrite
fvfma -$lr0v $mauf {s:one} $lr8v
fvfma $mauf {m:c2} {s:c1} $nowrite
fvmul $mauf $lr8v $nowrite
fvfma $lt $mauf $lt $ln0v
""",
        {"one": 0x3F800000, "c1": 0x3F002ACC, "c2": 0x3EBF6F43},
    ),
    "exp_h": (
        9,
        """fmax $lr0v {s:lo} $nowrite
fmin $aluf {s:hi} $lr8v
fvfma $aluf {m:L} {s:M} $nowrite
fvadd $mauf -{s:M} $nowrite; ilsl $mauf {m:sh} $ls8v
fvfma -$mauf {s:h} $lr8v $lr16v
fvfma $mauf {m:c3} {s:c2} $nowrite
fvfma $mauf $lr16v {s:c1} $nowrite
fvfma $mauf $lr16v {s:c0} $nowrite
iadd $mauf $ls8v $ln0v
""",
        _EXP | {"c0": 0x3F7FFB3D, "c1": 0x3F800570, "c2": 0x3F0146FB, "c3": 0x3E29A391},
    ),
    "log_h": (
        11,
        _LOG_HEAD
        + """fvfma $mauf {m:c4} {s:c3} $nowrite; iadd $aluf {n:M} $ls8v
fvfma $mauf $lr8v {s:c2} $nowrite
fvfma $mauf $lr8v {s:c1} $nowrite
fvfma $mauf $lr8v {s:c0} $lt
fvadd $ls8v -{m:M} $ls16v
fvmul $lt $lr8v $nowrite
fvfma $ls16v {m:h} $mauf $ln0v
""",
        _SIGN_LOG | {"c0": 0x3F7FFDC9, "c1": 0xBEFFB7FF, "c2": 0x3EAC3B17, "c3": 0xBE8AB96C, "c4": 0x3E34D222},
    ),
}

#: 1/x of four doubles: every product is a pair of steps, for PEs 0 and 1 and for PEs 2 and 3.
DRECIP = """lsub {s:M} $lr0v $lt
dvfmau -$lr0v $aluf {s:a} $nowrite
dvfmad -$lr0v $lt $mauf $lr8v
dvfmau $mauf $mauf {s:b} $nowrite
dvfmad $lr8v $lr8v $mauf $lr16v
dvmulu $lt $mauf $nowrite
dvfmad $lt $lr16v $mauf $ls24v
dvfmau -$lr0v $mauf {s:one} $nowrite
dvfmad -$lr0v $ls24v $mauf $lr32v
dvfmau $ls24v $mauf $ls24v $nowrite
dvfmad $ls24v $lr32v $mauf $ls32v
dvfmau -$lr0v $mauf {s:one} $nowrite
dvfmad -$lr0v $ls32v $mauf $lr40v
dvfmau $ls32v $mauf $ls32v $nowrite
dvfmad $ls32v $lr40v $mauf $ln0v
"""
DRECIP_CONSTANTS = {
    "M": 0x7FDE660000000000,
    "a": 0x3FF803F100000000,
    "b": 0x3FE7F81EC0000000,
    "one": 0x3FF0000000000000,
}
