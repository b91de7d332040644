"""Functions of one variable as lines: exp and the reciprocal, in single and double.

In a line, {c:name} is a constant in GRF1 and {k:name} one in LM0, {r8} and {s8} a temporary in GRF0 and GRF1 (words from the
scratch area on), {x} the argument and {out} the result; the last line leaves the result in the forward register of its unit
too. The error bounds were measured on the emulated board against long double.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.constants import f32, f64, load_table, w32

SCRATCH = 448  # words of GRF0 and GRF1
GRF_TABLE, LM_TABLE = 384, 4000  # words where a table of constants stands in GRF1 and in LM0
TABLE_LIMIT = 32  # long words


@dataclass(frozen=True)
class Function:
    lines: tuple[str, ...]
    constants: Mapping[str, int]  # name -> long word
    unit: str  # forward register that holds the result behind the last line: aluf or mauf


EXP_SINGLE = Function(
    (
        "fmax {x} {c:lo} {r8}",
        "fvfma $aluf {k:L} {c:M} $nowrite",
        "fvadd $mauf -{c:M} $lt ; ilsl $mauf {k:sh} {s8}",
        "fvfma -$mauf {c:h} {r8} $nowrite",
        "fvfma -$lt {c:l} $mauf {r16}",
        "fvfma $mauf {k:c6} {c:c5} $nowrite",
        "fvfma $mauf {r16} {c:c4} $nowrite",
        "fvfma $mauf {r16} {c:c3} $nowrite",
        "fvfma $mauf {r16} {c:c2} $nowrite",
        "fvfma $mauf {r16} {c:one} $nowrite",
        "fvfma $mauf {r16} {c:one} $nowrite",
        "iadd $mauf {s8} {out}",
    ),
    {
        "lo": w32(0xC2B00A3D), "M": w32(0x4B400000), "L": w32(0x3FB8AA3B), "sh": w32(23), "h": w32(0x3F317218),
        "l": w32(0xB102E308), "c6": w32(0x3AB51EBD), "c5": w32(0x3C091CF0), "c4": w32(0x3D2AAC60), "c3": w32(0x3E2AAA49),
        "c2": w32(0x3EFFFFFE), "one": f32(1.0),
    },
    "aluf",
)  # fmt: skip
"""exp(x) for x <= 88.7 (no upper clamp), 0.88 ulp; -inf -> 0."""

_LN2_HIGH = 0x3FE62E42FEFA39EF
_LN2_LOW = 0x3C7ABC9E3B39803F


def _factorial(n: int) -> float:
    value = 1.0
    for i in range(2, n + 1):
        value *= i
    return value


EXP_DOUBLE = Function(
    (
        "dmax {x} {c:lo} {r8}",
        "dvfmau $aluf {k:L} {c:M} $nowrite",
        "dvfmad {r8} {k:L} $mauf {r16}",
        "dvadd $mauf -{c:M} {s8} ; llsl $mauf {k:sh} $lt",
        "dvfmau -$mauf {c:h} {r8} $nowrite",
        "dvfmad -{s8} {k:h} $mauf {r24}",
        "dvfmau -{s8} {k:l} $mauf $nowrite",
        "dvfmad -{s8} {k:l} $mauf {r32}",
        "dvfmau $mauf {k:c13} {c:c12} $nowrite",
        "dvfmad {r32} {k:c13} $mauf {s24}",
        *(
            line
            for i in range(11, -1, -1)
            for line in (f"dvfmau $mauf {{r32}} {{k:c{i}}} $nowrite", "dvfmad {s24} {r32} $mauf {s24}")
        ),
        "ladd $mauf $lt {out}",
    ),
    {
        "lo": f64(-708.0), "M": f64(6755399441055744.0), "L": f64(1.4426950408889634), "sh": 52, "h": _LN2_HIGH,
        "l": _LN2_LOW, **{f"c{i}": f64(1 / _factorial(i)) for i in range(14)},
    },
    "aluf",
)  # fmt: skip
"""exp(x) for x <= 709.7, below 1 ulp."""

RECIP_SINGLE = Function(
    (
        "isub {c:mg} {x} $lt",
        "fvfma -{x} $aluf {c:a} $nowrite",
        "fvfma $mauf $mauf {c:b} $nowrite",
        "fvmul $lt $mauf {r8}",
        "fvfma -{x} $mauf {c:one} $nowrite",
        "fvfma {r8} $mauf {r8} {out}",
    ),
    {"mg": w32(0x7EF33400), "a": w32(0x3FC01F88), "b": w32(0x3F3FC0F6), "one": f32(1.0)},
    "mauf",
)
"""1/x for 2^-126 <= |x| <= 1.9 2^125, 0.52 ulp. {x} is in GRF0."""

RECIP_DOUBLE = Function(
    (
        "lsub {c:mg} {x} $lt",
        "dvfmau -{x} $aluf {c:a} $nowrite",
        "dvfmad -{x} $aluf $mauf {r8}",
        "dvfmau $mauf $mauf {c:b} $nowrite",
        "dvfmad {r8} {r8} $mauf {r16}",
        "dvmulu $lt $mauf $nowrite",
        "dvfmad $lt {r16} $mauf {s24}",
        "dvfmau -{x} $mauf {c:one} $nowrite",
        "dvfmad -{x} {s24} $mauf {r32}",
        "dvfmau {s24} $mauf {s24} $nowrite",
        "dvfmad {s24} {r32} $mauf {s32}",
        "dvfmau -{x} $mauf {c:one} $nowrite",
        "dvfmad -{x} {s32} $mauf {r32}",
        "dvfmau {s32} $mauf {s32} $nowrite",
        "dvfmad {s32} {r32} $mauf {out}",
    ),
    {"mg": 0x7FDE660000000000, "a": f64(1.50096), "b": f64(0.749038), "one": f64(1.0)},
    "mauf",
)
"""1/x in double, 0.51 ulp. {x} is in GRF0."""

EXP = {"single": EXP_SINGLE, "double": EXP_DOUBLE}
RECIP = {"single": RECIP_SINGLE, "double": RECIP_DOUBLE}

_NAME = re.compile(r"\{([ck]):(\w+)\}|\{([rs])(\d+)\}")


class Table:
    """The constants of some functions, in GRF1 and LM0."""

    def __init__(self, functions: list[Function], more: Mapping[str, int] | None = None):
        self.values: dict[str, int] = dict(more or {})
        for function in functions:
            for name, value in function.constants.items():
                assert self.values.setdefault(name, value) == value, name
        assert len(self.values) <= TABLE_LIMIT
        self.place = {name: 2 * i for i, name in enumerate(self.values)}

    def load(self, asm: Asm, symbol: str, lc: int = 0, lb: int = 0):
        """Bring the table; gives the data of the constant `symbol`."""
        return load_table(asm, symbol, list(self.values.values()), [(m.GRF1, GRF_TABLE), (m.LM0, LM_TABLE)], lc, lb)

    def grf(self, name: str) -> str:
        return f"$ls{GRF_TABLE + self.place[name]}"

    def run(self, asm: Asm, function: Function, x: str, out: str) -> None:
        for line in function.lines:
            asm.pe(self.fill(line.replace("{x}", x).replace("{out}", out)))

    def fill(self, line: str) -> str:
        def name(match: re.Match[str]) -> str:
            if match[1] == "c":
                return self.grf(match[2])
            if match[1] == "k":
                return f"$lm{LM_TABLE + self.place[match[2]]}"
            return f"$l{match[3]}{SCRATCH + int(match[4])}v"

        return _NAME.sub(name, line)
