"""PE kernels of the elementwise operators: rows of lines for one group of four accesses.

In a line stand {0} {1} {2} for the inputs, {out} for the result, {r8} {s8} for temporaries (GRF0, GRF1, word offset from the
scratch area, an access wide), {t} for T and {c:name} for a constant in GRF1, {k:name} for one in LM0. `alu` kernels take and
give values of the compute dtype itself; in the others a half input is read with suffix e and a half result is written with
suffix r, which `{r}` in the last line's mnemonic stands for.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Kernel:
    lines: tuple[str, ...]
    places: tuple[str, ...]  # memory of each input, and of the result last: m n (LM0, LM1) or r s (GRF0, GRF1)
    alu: bool = False
    constants: dict[str, int] = field(default_factory=dict)  # name -> 32-bit word (64-bit for double)


def _mau(*lines: str, places: tuple[str, ...] = ("m", "n", "r")) -> Kernel:
    return Kernel(lines, places)


def _alu(*lines: str, places: tuple[str, ...] = ("m", "n", "r"), **constants: int) -> Kernel:
    return Kernel(lines, places, True, constants)


UNARY = ("m", "n")

#: (operator, compute dtype) -> kernel
KERNELS: dict[tuple[str, str], Kernel] = {
    ("Add", "single"): _mau("fvadd{r} {0} {1} {out}"),
    ("Sub", "single"): _mau("fvadd{r} {0} -{1} {out}"),
    ("Mul", "single"): _mau("fvmul{r} {0} {1} {out}"),
    ("Neg", "single"): _mau("fvpassa{r} -{0} {out}", places=UNARY),
    ("Identity", "single"): _mau("fvpassa{r} {0} {out}", places=UNARY),
    ("Relu", "single"): _alu("fmax {0} {c:zero} {out}", places=UNARY, zero=0),
    ("Add", "double"): _mau("dvadd {0} {1} {out}"),
    ("Sub", "double"): _mau("dvadd {0} -{1} {out}"),
    ("Mul", "double"): _mau("dvmulu {0} {1} $nowrite", "dvfmad {0} {1} $mauf {out}"),
    ("Neg", "double"): _mau("dvpassa -{0} {out}", places=UNARY),
    ("Identity", "double"): _mau("dvpassa {0} {out}", places=UNARY),
    ("Relu", "double"): _alu("dmax {0} {c:zero} {out}", places=UNARY, zero=0),
    ("Add", "int"): _alu("iadd {0} {1} {out}"),
    ("Sub", "int"): _alu("isub {0} {1} {out}"),
    ("Neg", "int"): _alu("isub {c:zero} {0} {out}", places=UNARY, zero=0),
    ("Identity", "int"): _alu("ipassa {0} {out}", places=UNARY),
    ("Relu", "int"): _alu("imax {0} {c:zero} {out}", places=UNARY, zero=0),
}
