"""Arithmetic on 32-bit integers that the ALU does not have."""

from __future__ import annotations

from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.indices import SCRATCH, Constants

_LOW, _MAGIC = 0x7FF, 0x4B000000  # 11 bits; 2^23, whose sum with an integer below it shows the integer in its bits


def product(asm: Asm, c: Constants, a: str, b: str, out: str, keep: int = 0xFFFFFFFF) -> None:
    """out = the low 32 bits of a times b, and-ed with `keep`. a and b lie in GRF0, LM0 or LM1; the temporaries in GRF0 and
    GRF1 from SCRATCH on are used up to 32 words. The factors are cut into 11 bits, whose products are exact as singles."""
    c.ready(_LOW, _MAGIC, 11, 22, keep)
    digits: dict[str, list[str]] = {"r": [], "s": []}
    for x, letter in ((a, "r"), (b, "s")):
        for k, shift in enumerate((0, 11, 22)):
            digit = f"$l{letter}{SCRATCH + 8 * k}v"
            if shift:
                asm.pe(f"uilsr {x} {c(shift)} $nowrite")
                asm.pe(f"iand $aluf {c(_LOW)} $nowrite")
            else:
                asm.pe(f"iand {x} {c(_LOW)} $nowrite")
            asm.pe(f"ior $aluf {c(_MAGIC)} $nowrite")
            asm.pe(f"fvadd $aluf -{c(_MAGIC)} {digit}")
            digits[letter].append(digit)
    (a0, a1, a2), (b0, b1, b2) = digits["r"], digits["s"]
    total = f"$lr{SCRATCH + 24}v"
    asm.pe(f"fvmul {a0} {b0} $nowrite")
    asm.pe(f"fftoi $mauf {total}")
    asm.pe(f"fvmul {a0} {b1} $nowrite")
    asm.pe(f"fvfma {a1} {b0} $mauf $nowrite")
    asm.pe("fftoi $mauf $nowrite")
    asm.pe(f"ilsl $aluf {c(11)} $nowrite")
    asm.pe(f"iadd $aluf {total} {total}")
    asm.pe(f"fvmul {a0} {b2} $nowrite")
    asm.pe(f"fvfma {a1} {b1} $mauf $nowrite")
    asm.pe(f"fvfma {a2} {b0} $mauf $nowrite")
    asm.pe("fftoi $mauf $nowrite")
    asm.pe(f"ilsl $aluf {c(22)} $nowrite")
    if keep == 0xFFFFFFFF:
        asm.pe(f"iadd $aluf {total} {out}")
    else:
        asm.pe(f"iadd $aluf {total} $nowrite")
        asm.pe(f"iand $aluf {c(keep)} {out}")
