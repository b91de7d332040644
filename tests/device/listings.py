"""Assembly listings of elementary functions, one dependent chain each, with their constants.

Input in `$lr0v` (second input `$lm0v`), result in `$ln0v`. `{s:c}` is the constant c as a long word (both words
equal) in GRF1, `r`, `m` and
`n` name GRF0, LM0 and LM1. Error bounds in units in the last place were measured on an independent model of the machine.
"""

LISTINGS: dict[str, tuple[str, dict[str, int]]] = {
    "recip": (
        """
isub {s:mg} $lr0v $lt
fvfma -$lr0v $aluf {s:a} $nowrite
fvfma $mauf $mauf {s:b} $nowrite
fvmul $lt $mauf $lr8v
fvfma -$lr0v $mauf {s:one} $nowrite
fvfma $lr8v $mauf $lr8v $ln0v
""",
        {"a": 0x3FC01F88, "b": 0x3F3FC0F6, "mg": 0x7EF33400, "one": 0x3F800000},
    ),
    "div": (
        """
isub {s:mg} $lr0v $lt
fvfma -$lr0v $aluf {s:a} $nowrite
fvfma $mauf $mauf {s:b} $nowrite
fvmul $lt $mauf $lt
fvmul $lm0v $mauf $lr16v
fvfma -$lr0v $mauf $lm0v $nowrite
fvfma $lt $mauf $lr16v $ln0v
""",
        {"a": 0x3FC01F88, "b": 0x3F3FC0F6, "mg": 0x7EF33400},
    ),
    "rsqrt": (
        """
frsqrt $lr0v $lt
fvmul $aluf $aluf $nowrite
fvfma -$lr0v $mauf {s:one} $lr8v
fvfma $mauf {m:c4} {s:c3} $nowrite
fvfma $mauf $lr8v {s:c2} $nowrite
fvfma $mauf $lr8v {s:c1} $nowrite
fvmul $mauf $lr8v $nowrite
fvfma $lt $mauf $lt $ln0v
""",
        {"c1": 0x3EFFFFED, "c2": 0x3EC00090, "c3": 0x3EA06ED7, "c4": 0x3E8B086B, "one": 0x3F800000},
    ),
    "sqrt": (
        """
frsqrt $lr0v $nowrite
fvmul $lr0v $aluf $lr8v; isub $aluf {s:d} $ls8v
fvfma -$mauf $aluf {s:half} $lr16v
fvfma $mauf {m:c2} {s:c1} $nowrite
fvmul $mauf $lr16v $lt
fvfma $ls8v $mauf $ls8v $ls16v
fvfma $lr8v $lt $lr8v $lr24v
fvfma -$mauf $mauf $lr0v $nowrite
fvfma $mauf $ls16v $lr24v $ln0v
""",
        {"c1": 0x3F802AB2, "c2": 0x3FBF7845, "d": 0x00800000, "half": 0x3F000000},
    ),
    "exp": (
        """
fmax $lr0v {s:lo} $nowrite
fmin $aluf {s:hi} $lr8v
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
iadd $mauf $ls8v $ln0v
""",
        {
            "L": 0x3FB8AA3B,
            "M": 0x4B400000,
            "c2": 0x3EFFFFFE,
            "c3": 0x3E2AAA49,
            "c4": 0x3D2AAC60,
            "c5": 0x3C091CF0,
            "c6": 0x3AB51EBD,
            "h": 0x3F317218,
            "hi": 0x42B175C3,
            "l": 0xB102E308,
            "lo": 0xC2B00A3D,
            "one": 0x3F800000,
            "sh": 0x00000017,
        },
    ),
    "expm1": (
        """
fmax $lr0v {s:lo} $nowrite
fmin $aluf {s:hi} $lr8v
fvfma $aluf {m:L} {s:M} $nowrite
fvadd $mauf -{s:M} $lt; ilsl $mauf {m:sh} $nowrite
fvfma -$mauf {s:h} $lr8v $nowrite; iadd $aluf {m:one} $ls8v
fvfma -$lt {s:l} $mauf $lr16v $ls16v
fvmul $mauf $mauf $lr24v
fvfma $lr16v {m:c4} {s:c3} $nowrite
fvfma $mauf $lr16v {s:c2} $nowrite
fvfma $mauf $lr16v {s:c1} $nowrite
fvfma $mauf $lr16v {s:c0} $lt
fvadd $ls8v -{m:one} $lr8v
fvfma $lt $lr24v $ls16v $nowrite
fvfma $ls8v $mauf $lr8v $ln0v
""",
        {
            "L": 0x3FB8AA3B,
            "M": 0x4B400000,
            "c0": 0x3EFFFFFF,
            "c1": 0x3E2AAA59,
            "c2": 0x3D2AAB79,
            "c3": 0x3C09136C,
            "c4": 0x3AB5CEEC,
            "h": 0x3F317218,
            "hi": 0x42B0BD71,
            "l": 0xB102E308,
            "lo": 0xC1A00000,
            "one": 0x3F800000,
            "sh": 0x00000017,
        },
    ),
    "sigmoid": (
        """
fmax $lr0v {s:lo2} $nowrite
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
fvmul $lt $mauf $lr16v
fvfma -$lr8v $mauf {s:one} $nowrite
fvfma $lr16v $mauf $lr16v $ln0v
""",
        {
            "Ln": 0xBFB8AA3B,
            "M": 0x4B400000,
            "a": 0x3FC01F88,
            "b": 0x3F3FC0F6,
            "c2": 0x3EFFFFFE,
            "c3": 0x3E2AAA49,
            "c4": 0x3D2AAC60,
            "c5": 0x3C091CF0,
            "c6": 0x3AB51EBD,
            "h": 0x3F317218,
            "hi2": 0x42AF0000,
            "l": 0xB102E308,
            "lo2": 0xC2AE0000,
            "mg": 0x7EF33400,
            "one": 0x3F800000,
            "sh": 0x00000017,
        },
    ),
    "softplus": (
        """
ior $lr0v {s:sg} $nowrite
fmax $aluf {s:lo} $lr8v
fvfma $aluf {m:L} {s:M} $nowrite; frelu $lr0v $lr0v $ls16v
fvadd $mauf -{s:M} $lt; ilsl $mauf {m:sh} $ls8v
fvfma -$mauf {s:h} $lr8v $nowrite
fvfma -$lt {s:l} $mauf $lr16v
fvfma $mauf {m:c6} {s:c5} $nowrite
fvfma $mauf $lr16v {s:c4} $nowrite
fvfma $mauf $lr16v {s:c3} $nowrite
fvfma $mauf $lr16v {s:c2} $nowrite
fvfma $mauf $lr16v {s:one} $nowrite
fvfma $mauf $lr16v {s:one} $nowrite
iadd $mauf $ls8v $lr8v
fvfma $aluf {m:d9} {s:d8} $nowrite
fvfma $mauf $lr8v {s:d7} $nowrite
fvfma $mauf $lr8v {s:d6} $nowrite
fvfma $mauf $lr8v {s:d5} $nowrite
fvfma $mauf $lr8v {s:d4} $nowrite
fvfma $mauf $lr8v {s:d3} $nowrite
fvfma $mauf $lr8v {s:d2} $nowrite
fvfma $mauf $lr8v {s:d1} $nowrite
fvfma $mauf $lr8v {s:one} $nowrite
fvfma $mauf $lr8v $ls16v $ln0v
""",
        {
            "L": 0x3FB8AA3B,
            "M": 0x4B400000,
            "c2": 0x3EFFFFFE,
            "c3": 0x3E2AAA49,
            "c4": 0x3D2AAC60,
            "c5": 0x3C091CF0,
            "c6": 0x3AB51EBD,
            "d1": 0xBEFFFFE9,
            "d2": 0x3EAAA6EC,
            "d3": 0xBE7F928C,
            "d4": 0x3E49A9F9,
            "d5": 0xBE1D3155,
            "d6": 0x3DDA9625,
            "d7": 0xBD6BE7C7,
            "d8": 0x3CA537EB,
            "d9": 0xBB58F71F,
            "h": 0x3F317218,
            "l": 0xB102E308,
            "lo": 0xC2B00A3D,
            "one": 0x3F800000,
            "sg": 0x80000000,
            "sh": 0x00000017,
        },
    ),
    "log": (
        """
isub $lr0v {s:q} $nowrite
iand $aluf {s:em} $lt
isub $lr0v $aluf $nowrite
fvadd $aluf -{s:one} $lr8v $ls24v; ilsr $lt {m:sh} $nowrite
fvmul $mauf $mauf $lr16v; iadd $aluf {s:M} $ls8v
fvfma $lr8v {m:c8} {s:c7} $nowrite
fvfma $mauf $lr8v {s:c6} $nowrite
fvfma $mauf $lr8v {s:c5} $nowrite
fvfma $mauf $lr8v {s:c4} $nowrite
fvfma $mauf $lr8v {s:c3} $nowrite
fvfma $mauf $lr8v {s:c2} $nowrite
fvfma $mauf $lr8v {s:c1} $nowrite
fvfma $mauf $lr8v {s:c0} $lt
fvadd $ls8v -{m:M} $ls16v; isub $lr0v {n:mn} $omr1
fvfma $lt $lr16v $ls24v $nowrite; ipassa {m:ninf} $ln0v
fvfma $ls16v {m:h} $mauf $ln0v/$imr1
""",
        {
            "M": 0x4B400000,
            "c0": 0xBEFFFFFC,
            "c1": 0x3EAAAAA8,
            "c2": 0xBE800219,
            "c3": 0x3E4CD20B,
            "c4": 0xBE2A12E0,
            "c5": 0x3E113737,
            "c6": 0xBE07A028,
            "c7": 0x3E042EDB,
            "c8": 0xBD9C1DC0,
            "em": 0xFF800000,
            "h": 0x3F317218,
            "mn": 0x00800000,
            "ninf": 0xFF800000,
            "one": 0x3F800000,
            "q": 0x3F3504F3,
            "sh": 0x00000017,
        },
    ),
    "sin": (
        """
fvfma $lr0v {s:ip} {m:M} $nowrite
fvadd $mauf -{m:M} $lt; ilsl $mauf {s:sh} $ls8v
fvfma -$mauf {s:p1} $lr0v $nowrite
fvfma -$lt {s:p2} $mauf $nowrite
fvfma -$lt {s:p3} $mauf $lr8v
fvmul $mauf $mauf $lr16v; ixor $mauf $ls8v $ls16v
fvfma $mauf {m:c3} {s:c2} $nowrite
fvfma $mauf $lr16v {s:c1} $nowrite
fvfma $mauf $lr16v {s:c0} $nowrite
fvmul $mauf $lr16v $nowrite
fvfma $mauf $ls16v $ls16v $ln0v
""",
        {
            "M": 0x4B400000,
            "c0": 0xBE2AAAA6,
            "c1": 0x3C08876D,
            "c2": 0xB94FB875,
            "c3": 0x362EE425,
            "ip": 0x3EA2F983,
            "p1": 0x40490FDB,
            "p2": 0xB3BBBD2E,
            "p3": 0xA7772CED,
            "sh": 0x0000001F,
        },
    ),
    "tanh": (
        """
fmax $lr0v {s:lo} $nowrite
fmin $aluf {s:hi} $ls40v
fvmul $aluf $aluf $lr8v
fvfma $mauf {m:q4} {s:q3} $nowrite
fvfma $mauf $lr8v {s:q2} $nowrite
fvfma $mauf $lr8v {s:q1} $nowrite
fvfma $mauf $lr8v {s:one} $lr16v
fvfma $lr8v {m:p4} {n:p3} $nowrite; isub {s:mg} $mauf $ls8v
fvfma $mauf $lr8v {s:p2} $nowrite
fvfma $mauf $lr8v {s:p1} $nowrite
fvfma $mauf $lr8v {s:p0} $lt
fvfma -$lr16v $ls8v {m:a} $nowrite
fvfma $mauf $mauf {s:b} $nowrite
fvmul $ls8v $mauf $ls16v
fvmul $lt $mauf $lr24v
fvfma -$lr16v $mauf $lt $nowrite
fvfma $ls16v $mauf $lr24v $nowrite
fvmul $mauf $ls40v $ln0v
""",
        {
            "a": 0x3FC01F88,
            "b": 0x3F3FC0F6,
            "hi": 0x411051EC,
            "lo": 0xC11051EC,
            "mg": 0x7EF33400,
            "one": 0x3F800000,
            "p0": 0x3F800000,
            "p1": 0x3E090220,
            "p2": 0x3B64FC2B,
            "p3": 0x37ACAAB6,
            "p4": 0x3264D0E6,
            "q1": 0x3EEF2BB5,
            "q2": 0x3CD3EF92,
            "q3": 0x39AC20EB,
            "q4": 0x35505C2C,
        },
    ),
    "tanh_acc": (
        """
ior $lr0v {s:sg} $nowrite
fmax $aluf {s:lo} $lr8v
fvfma $aluf {m:L2} {s:M} $nowrite
fvadd $mauf -{s:M} $nowrite; ilsl $mauf {m:sh} $nowrite
fvfma -$mauf {s:h} $lr8v $lr16v; iadd $aluf {m:one} $ls8v
fvmul $mauf $mauf $lt
fvfma $ls8v {m:half} {n:mh} $lr8v
fvfma $lr16v {m:c4} {s:c3} $nowrite
fvfma $mauf $lr16v {s:c2} $nowrite
fvfma $mauf $lr16v {s:c1} $nowrite
fvfma $mauf $lr16v {s:c0} $nowrite
fvfma $mauf $lt $lr16v $nowrite
fvfma $ls8v $mauf $lr8v $nowrite
fvadd $mauf {s:one} $lr24v; ipassa $mauf $ls32v
isub {s:mg} $mauf $lt
fvfma -$lr24v $aluf {s:a} $nowrite
fvfma $mauf $mauf {s:b} $nowrite; iand $lr0v {m:sg} $nowrite
fvmul $lt $mauf $lr32v
fvfma -$lr24v $mauf {s:one} $nowrite
fvfma $lr32v $mauf $lr32v $nowrite; ixor $aluf $ls32v $nowrite
fvmul -$aluf $mauf $ln0v
""",
        {
            "L2": 0x4038AA3B,
            "M": 0x4B400000,
            "a": 0x3FC01F88,
            "b": 0x3F3FC0F6,
            "c0": 0x3F7FFFFF,
            "c1": 0x3F2AAA59,
            "c2": 0x3EAAAB79,
            "c3": 0x3E09136C,
            "c4": 0x3D35CEEC,
            "h": 0x3EB17218,
            "half": 0x3F000000,
            "lo": 0xC111999A,
            "mg": 0x7EF33400,
            "mh": 0xBF000000,
            "one": 0x3F800000,
            "sg": 0x80000000,
            "sh": 0x00000017,
        },
    ),
    "cos": (
        """
fvfma $lr0v {s:ip} {m:mh} $nowrite
fvadd $mauf {m:M1} $nowrite
fvadd $mauf -{m:M1} $nowrite; ilsl $mauf {s:sh} $ls8v
fvadd $mauf {s:half} $lt
fvfma -$mauf {s:p1} $lr0v $nowrite
fvfma -$lt {s:p2} $mauf $nowrite
fvfma -$lt {s:p3} $mauf $lr8v
fvmul $mauf $mauf $lr16v; ixor $mauf $ls8v $ls16v
fvfma $mauf {m:c3} {s:c2} $nowrite
fvfma $mauf $lr16v {s:c1} $nowrite
fvfma $mauf $lr16v {s:c0} $nowrite
fvmul $mauf $lr16v $nowrite
fvfma $mauf $ls16v $ls16v $ln0v
""",
        {
            "M1": 0x4B400001,
            "c0": 0xBE2AAAA6,
            "c1": 0x3C08876D,
            "c2": 0xB94FB875,
            "c3": 0x362EE425,
            "half": 0x3F000000,
            "ip": 0x3EA2F983,
            "mh": 0xBF000000,
            "p1": 0x40490FDB,
            "p2": 0xB3BBBD2E,
            "p3": 0xA7772CED,
            "sh": 0x0000001F,
        },
    ),
    "int_to_single": (
        """
ilsr $lr0v {s:s16} $nowrite
iadd $aluf {s:mg} $nowrite
iand $lr0v {s:lm} $nowrite; fvfma $aluf {m:s64} {n:cc} $nowrite
ior $aluf {s:m2} $nowrite
fvadd $aluf $mauf $ln0v
""",
        {"cc": 0xD3400080, "lm": 0x0000FFFF, "m2": 0x4B000000, "mg": 0x4B400000, "s16": 0x00000010, "s64": 0x47800000},
    ),
    "round_half_even": (
        """
iand $lr0v {s:sg} $nowrite
ior $aluf {s:mg} $ls8v
fvadd $lr0v $aluf $nowrite; iand $lr0v {m:ab} $nowrite
fvadd $mauf -$ls8v $ln0v; isub $aluf {m:mg} $omr1
ipassa $lr0v $ln0v/$imr1
""",
        {"ab": 0x7FFFFFFF, "mg": 0x4B000000, "sg": 0x80000000},
    ),
    "low_product": (
        """
iand $lr0v {s:lo} $nowrite
ior $aluf {s:m2} $nowrite
uilsr $lr0v {s:s11} $nowrite; fvadd $aluf -{m:t23} $lr8v
iand $aluf {s:lo} $nowrite
ior $aluf {s:m2} $nowrite
uilsr $lr0v {s:s22} $nowrite; fvadd $aluf -{m:t23} $lr16v
ior $aluf {s:m2} $nowrite
iand $lm0v {s:lo} $nowrite; fvadd $aluf -{n:t23} $lr24v
ior $aluf {s:m2} $nowrite
uilsr $lm0v {s:s11} $nowrite; fvadd $aluf -{n:t23} $ls8v
iand $aluf {s:lo} $nowrite; fvmul $lr8v $mauf $nowrite
ior $aluf {s:m2} $nowrite; fvadd $mauf {m:t23} $nowrite
iand $mauf {s:mt} $lt; fvadd $aluf -{m:t23} $ls16v
uilsr $lm0v {s:s22} $nowrite; fvmul $lr8v $mauf $nowrite
ior $aluf {m:m2} $nowrite; fvfma $lr16v $ls8v $mauf $nowrite
fftoi $mauf $nowrite; fvadd $aluf -{m:t23} $nowrite
fvmul $lr8v $mauf $nowrite; ilsl $aluf {s:s11} $lr40v
fvfma $lr16v $ls16v $mauf $nowrite
fvfma $lr24v $ls8v $mauf $nowrite
fftoi $mauf $nowrite
ilsl $aluf {s:s22} $nowrite
iadd $aluf $lr40v $nowrite
iadd $aluf $lt $ln0v
""",
        {"lo": 0x000007FF, "m2": 0x4B000000, "mt": 0x007FFFFF, "s11": 0x0000000B, "s22": 0x00000016, "t23": 0x4B000000},
    ),
}
