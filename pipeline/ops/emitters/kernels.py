"""PE kernels of the elementwise operators: rows of lines for one group of four accesses.

In a line stand {0} {1} {2} for the inputs, {out} for the result, {r8} {s8} for temporaries (GRF0, GRF1, words from the scratch
area on, a long word a cycle), {c:name} for a constant in GRF1 and {k:name} for its copy in LM0. Three sorts:

    mau   a half input is read with suffix e and a half result written with suffix r ({r} in the last mnemonic)
    alu   works on the compute dtype; halves are converted before and after
    raw   takes and gives what lies there
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlsdk.pipeline.ops.emitters.constants import w32


@dataclass(frozen=True)
class Kernel:
    """`places`: the memory of each input and, last, of the result: m n (LM0, LM1) or r s (GRF0, GRF1)."""

    lines: tuple[str, ...]
    places: tuple[str, ...]
    alu: bool = False
    raw: bool = False
    constants: Mapping[str, int] = field(default_factory=dict)  # name -> long word


BINARY = ("m", "n", "r")
UNARY = ("m", "n")


def _mau(*lines: str, places: tuple[str, ...] = BINARY, **constants: int) -> Kernel:
    return Kernel(lines, places, False, False, constants)


def _alu(*lines: str, places: tuple[str, ...] = BINARY, **constants: int) -> Kernel:
    return Kernel(lines, places, True, False, constants)


def _raw(*lines: str, places: tuple[str, ...] = UNARY, **constants: int) -> Kernel:
    return Kernel(lines, places, False, True, constants)


_INT_TO_SINGLE = (
    "ilsr {0} {c:s16} $nowrite",
    "iadd $aluf {c:mg} $nowrite",  # 1.5 2^23 + high half
    "iand {0} {c:lm} $nowrite ; fvfma $aluf {k:s64} {r0} $nowrite",  # high 2^16 - 2^23, exact
    "ior $aluf {c:m2} $nowrite",  # 2^23 + low half
    "fvadd{r} $aluf $mauf {out}",  # one rounding
)
_INT_TO_SINGLE_CONSTANTS = {
    "s16": w32(16), "mg": w32(0x4B400000), "lm": w32(0xFFFF), "s64": w32(0x47800000), "cc": w32(0xD3400080),
    "m2": w32(0x4B000000),
}  # fmt: skip

#: (operator or kernel, compute dtype) -> kernel
KERNELS: dict[tuple[str, str], Kernel] = {
    ("Add", "single"): _mau("fvadd{r} {0} {1} {out}"),
    ("Sub", "single"): _mau("fvadd{r} {0} -{1} {out}"),
    ("Mul", "single"): _mau("fvmul{r} {0} {1} {out}"),
    ("Neg", "single"): _mau("fvpassa{r} -{0} {out}", places=UNARY),
    ("Identity", "single"): _mau("fvpassa{r} {0} {out}", places=UNARY),
    ("Relu", "single"): _alu("fmax {0} {c:zero} {out}", places=UNARY, zero=0),
    ("Add", "double"): _mau("dvadd{r} {0} {1} {out}"),
    ("Sub", "double"): _mau("dvadd{r} {0} -{1} {out}"),
    ("Mul", "double"): _mau("dvmulu {0} {1} $nowrite", "dvfmad{r} {0} {1} $mauf {out}"),
    ("Neg", "double"): _mau("dvpassa{r} -{0} {out}", places=UNARY),
    ("Identity", "double"): _mau("dvpassa{r} {0} {out}", places=UNARY),
    ("Relu", "double"): _alu("dmax {0} {c:zero} {out}", places=UNARY, zero=0),
    ("Add", "int"): _alu("iadd {0} {1} {out}"),
    ("Sub", "int"): _alu("isub {0} {1} {out}"),
    ("Mul", "int"): Kernel(
        (
            "iand {0} {c:lo} $nowrite",
            "ior $aluf {c:m2} $nowrite",
            "uilsr {0} {c:s11} $nowrite ; fvadd $aluf -{k:m2} {r8}",  # a0
            "iand $aluf {c:lo} $nowrite",
            "ior $aluf {c:m2} $nowrite",
            "uilsr {0} {c:s22} $nowrite ; fvadd $aluf -{k:m2} {r16}",  # a1
            "ior $aluf {c:m2} $nowrite",
            "fvadd $aluf -{k:m2} {r24}",  # a2
            "iand {1} {c:lo} $nowrite",
            "ior $aluf {c:m2} $nowrite",
            "uilsr {1} {c:s11} $nowrite ; fvadd $aluf -{k:m2} {s8}",  # b0
            "iand $aluf {c:lo} $nowrite ; fvmul {r8} $mauf $nowrite",  # a0 b0
            "ior $aluf {c:m2} $nowrite ; fvadd $mauf {k:m2} $nowrite",  # a0 b0 as integer bits
            "iand $mauf {c:mt} $lt ; fvadd $aluf -{k:m2} {s16}",  # b1
            "uilsr {1} {c:s22} $nowrite ; fvmul {r8} $mauf $nowrite",  # a0 b1
            "ior $aluf {k:m2} $nowrite ; fvfma {r16} {s8} $mauf $nowrite",  # a0 b1 + a1 b0
            "fftoi $mauf $nowrite ; fvadd $aluf -{k:m2} $nowrite",  # b2
            "fvmul {r8} $mauf $nowrite ; ilsl $aluf {c:s11} {r40}",  # a0 b2
            "fvfma {r16} {s16} $mauf $nowrite",
            "fvfma {r24} {s8} $mauf $nowrite",  # a0 b2 + a1 b1 + a2 b0
            "fftoi $mauf $nowrite",
            "ilsl $aluf {c:s22} $nowrite",
            "iadd $aluf {r40} $nowrite",
            "iadd $aluf $lt {out}",
        ),
        ("n", "n", "m"),
        raw=True,
        constants={"lo": w32(0x7FF), "m2": w32(0x4B000000), "s11": w32(11), "s22": w32(22), "mt": w32(0x7FFFFF)},
    ),
    ("Neg", "int"): _alu("isub {c:zero} {0} {out}", places=UNARY, zero=0),
    ("Identity", "int"): _alu("ipassa {0} {out}", places=UNARY),
    ("Relu", "int"): _alu("imax {0} {c:zero} {out}", places=UNARY, zero=0),
    # casts: Cast:<device dtype>:<device dtype>, with :bool or :uint8 where the result is narrower than its device dtype
    ("Cast:single:int", "single"): _alu("fftoi {0} {out}", places=UNARY),
    ("Cast:half:int", "single"): _alu("fftoi {0} {out}", places=UNARY),
    ("Cast:double:int", "double"): _raw("dftoi {0} $nowrite", "llsl $aluf {c:s} {out}", s=32),
    ("Cast:int:single", "single"): _raw(
        "lpassa {c:cc} {r0}", *_INT_TO_SINGLE, places=("n", "n"), **_INT_TO_SINGLE_CONSTANTS
    ),
    ("Cast:int:half", "single"): _raw(
        "lpassa {c:cc} {r0}", *_INT_TO_SINGLE, places=("n", "n"), **_INT_TO_SINGLE_CONSTANTS
    ),
    ("Cast:int:double", "double"): _raw(
        "llsr {0} {c:s} $nowrite", "ladd $aluf {c:mg} $nowrite", "dvadd $aluf -{c:mg} {out}", s=32, mg=0x4338 << 48
    ),
    ("Cast:int:int", "int"): _alu("ipassa {0} {out}", places=UNARY),
    ("Cast:int:int:uint8", "int"): _alu("iand {0} {c:m} {out}", places=UNARY, m=w32(255)),
    ("Cast:int:int:bool", "int"): _alu("ilnot {0} $nowrite", "ixor $aluf {c:one} {out}", places=UNARY, one=w32(1)),
    ("Cast:single:int:uint8", "single"): _alu("fftoi {0} $nowrite", "iand $aluf {c:m} {out}", places=UNARY, m=w32(255)),
    ("Cast:half:int:uint8", "single"): _alu("fftoi {0} $nowrite", "iand $aluf {c:m} {out}", places=UNARY, m=w32(255)),
    ("Cast:single:int:bool", "single"): _raw(
        "fvpassa {0} $nowrite", "ilnot $mauf $nowrite", "ixor $aluf {c:one} {out}", one=w32(1)
    ),
    ("Cast:half:int:bool", "single"): _raw(
        "fvpassa {0}e $nowrite", "ilnot $mauf $nowrite", "ixor $aluf {c:one} {out}", one=w32(1)
    ),
    ("Cast:double:int:uint8", "double"): _raw(
        "dftoi {0} $nowrite", "land $aluf {c:m} $nowrite", "llsl $aluf {c:s} {out}", m=255, s=32
    ),
    ("Cast:double:int:bool", "double"): _raw(
        "dvpassa {0} $nowrite",
        "llnot $mauf $nowrite",
        "lxor $aluf {c:one} $nowrite",
        "llsl $aluf {c:s} {out}",
        one=1,
        s=32,
    ),
}

for _a in ("half", "single"):
    for _b in ("half", "single"):
        KERNELS[f"Cast:{_a}:{_b}", "single"] = KERNELS["Identity", "single"]
for _a, _b in (("double", "double"), ("double", "single"), ("single", "double")):
    KERNELS[f"Cast:{_a}:{_b}", "double"] = KERNELS["Identity", "double"]


def kernels_of(name: str) -> list[str]:
    """The compute dtypes in which a kernel exists."""
    return [dtype for op, dtype in KERNELS if op == name]
