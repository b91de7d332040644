"""Folding: many accesses combined into one accumulator per cycle, and the lanes of a MAB combined into one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.rows import FULL, Masks
from mlsdk.pipeline.ops.emitters.transfer import Tensor

#: one access: word address, padding pattern of its unit, item of the unit
Place = tuple[int, int, int]


@dataclass(frozen=True)
class Rule:
    """How two values become one in a compute dtype. `neutral`: high word of the neutral element; `network`: the reduction
    that L1BM, L2BM and MV offer for it ("" if none)."""

    mnemonic: str
    mau: bool
    neutral: int
    network: str = ""

    @property
    def forward(self) -> str:
        return "$mauf" if self.mau else "$aluf"


SUM = {
    "single": Rule("fvadd", True, 0, "ffadd"),
    "double": Rule("dvadd", True, 0, "dfadd"),
    "int": Rule("iadd", False, 0, "iiadd"),
}
PRODUCT = {"single": Rule("fvmul", True, 0x3F800000)}
MAX = {
    "single": Rule("fmax", False, 0xFF800000, "fmax"),
    "double": Rule("dmax", False, 0xFFF00000, "dmax"),
    "int": Rule("imax", False, 0x80000000),
}
MIN = {
    "single": Rule("fmin", False, 0x7F800000, "fmin"),
    "double": Rule("dmin", False, 0x7FF00000, "dmin"),
    "int": Rule("imin", False, 0x7FFFFFFF),
}


@dataclass(frozen=True)
class Form:
    """How the values of a tensor are computed with: compute dtype, words of an access, accesses per unit."""

    compute: str
    width: int
    items: int

    @classmethod
    def of(cls, tensor: Tensor) -> Form:
        assert tensor.scheme is not None
        lane = tensor.scheme.lane is not None
        if tensor.dtype == "double":
            return cls("double", 2, 4 if lane else 1)
        if tensor.dtype == "half":
            return cls("single", 1, 2 if lane else 1)
        return cls("int" if tensor.dtype == "int" else "single", 2, 2 if lane else 1)

    @property
    def narrow(self) -> bool:
        """Halves that are computed with as singles."""
        return self.width == 1

    def operand(self, space: str, words: Sequence[int]) -> str:
        return vec(space, words, self.width, "e" if self.narrow else "")

    def load(self, mau: bool) -> str:
        """The mnemonic that brings an operand into the forward register of a unit (halves always on the MAU)."""
        if self.compute == "double":
            return "dvpassa" if mau else "lpassa"
        return "fvpassa" if self.narrow or (mau and self.compute == "single") else "ipassa"


def fold(
    asm: Asm,
    rule: Rule,
    form: Form,
    space: str,
    lists: Sequence[Sequence[Place]],
    acc: str,
    neutral: str,
    masks: Masks | None = None,
    patterns: int = 0,
    goes_on: bool = False,
) -> None:
    """acc = (acc if it goes on) combined with the members of each cycle's list; those that are data in all cycles first.

    `neutral`: the operand of the neutral element. Lists have equal lengths."""
    plain: list[tuple[Place, ...]] = []
    masked: list[tuple[Place, ...]] = []
    for column in zip(*lists):
        (plain if all(p == FULL for _, p, _ in column) else masked).append(column)
    for index, column in enumerate(plain):
        x = form.operand(space, [w for w, _, _ in column])
        ends = index == len(plain) - 1
        target = acc if ends else "$nowrite"
        if index == 0 and not goes_on:
            if form.narrow and not rule.mau:
                asm.pe(f"fvpassa {x} $nowrite")
                asm.pe(f"ipassa $mauf {target}")
            else:
                asm.pe(f"{form.load(rule.mau)} {x} {target}")
            continue
        running = acc if index == 0 else rule.forward
        if form.narrow and not rule.mau:
            asm.pe(f"fvpassa {x} $nowrite")
            x = "$mauf"
        asm.pe(f"{rule.mnemonic} {running} {x} {target}")
    if not plain and not goes_on:
        asm.pe(f"lpassa {neutral} {acc}")
    for column in masked:
        assert masks is not None
        asm.pe(f"ipassa {masks.operand([p for _, p, _ in column], [item for *_, item in column], patterns)} $omr1")
        x = form.operand(space, [w for w, _, _ in column])
        if form.narrow and not rule.mau:
            asm.pe(f"fvpassa {x} $nowrite")
            x = "$mauf"
        asm.pe(f"{rule.mnemonic} {acc} {x} {acc}/$imr1")


def fold_lanes(asm: Asm, rule: Rule, compute: str, acc: str, swap: str, scratch: int) -> None:
    """Combine the lanes of up to four values in `acc`; every lane ends with the same bits. `swap`: the operand 32;
    `scratch`: two groups of words in GRF0."""
    if compute != "double":
        asm.pe(f"lbsl {acc} {swap} $nowrite")
        asm.pe(f"{rule.mnemonic} {acc} $aluf $lr{scratch}v")
        first = rule.forward
    else:
        asm.pe(f"lpassa {acc} $lr{scratch}v")
        first = "$aluf"
    asm.pe(f"msr {first} $nowrite")
    asm.pe("msr $aluf $nowrite")
    asm.pe(f"{rule.mnemonic} $lr{scratch}v $aluf $lr{scratch + 8}v")
    asm.pe(f"msr {rule.forward} $nowrite")
    asm.pe(f"{rule.mnemonic} $lr{scratch + 8}v $aluf {acc}")
