"""Indices that are computed at run time: from tensors of integers to word addresses of rows in LM0.

An index names a row of the data: one number, or several that name one place along neighbouring axes. A negative one counts
from the end. A row lies `row` words behind the one before it. Prepared indices are long words of GRF0 that hold the address
twice, so that they may be loaded into T and compared whatever the width of an access.

Where an index lies outside, a read takes the nearest row, and a write is left out (its address is -1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ir.scheme import Scheme
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.rows import download_units
from mlsdk.pipeline.ops.emitters.seen import unit_map
from mlsdk.pipeline.ops.emitters.transfer import Tensor

CONSTANTS = 384  # first word of GRF1 for constants, up to the temporaries
SCRATCH = 448  # words of GRF0 and GRF1 that hold temporaries; below lie prepared indices
CAPACITY = 220  # long words of prepared indices
RAW_LW = 900  # long words of LM1 for indices as they are


class Constants:
    """Long words of GRF1 that hold a 32-bit constant twice (or a 64-bit one), made when first asked for.

    Making one takes the ALU, so that what stands in $aluf is lost: ask for the constants of a chain before it (`ready`)."""

    def __init__(self, asm: Asm, first: int = CONSTANTS, last: int = SCRATCH - 2):
        self.asm, self.first, self.last = asm, first, last
        self.known: dict[tuple[int, int], int] = {}
        self.free = list(range(first, last - 1, 2))
        self.lane = ""  # the operand that holds 4 times the PE's number, once it is made

    def __call__(self, value: int) -> str:
        """The operand of a word, given as a signed or unsigned number."""
        word = value & 0xFFFFFFFF
        return f"$ls{self.word(word, word)}"

    def ready(self, *values: int) -> None:
        """Make these constants now, if they are not there."""
        for value in values:
            self(value)

    def wide(self, value: int) -> str:
        """The operand of a long word."""
        value &= 0xFFFFFFFFFFFFFFFF
        return f"$ls{self.word(value >> 32, value & 0xFFFFFFFF)}"

    def word(self, high: int, low: int) -> int:
        key = high, low
        if key in self.known:
            self.known[key] = self.known.pop(key)
            return self.known[key]
        if self.free:
            at = self.free.pop(0)
        else:  # the one that was asked for longest ago
            at = self.known.pop(next(iter(self.known)))
        self.known[key] = at
        if high == low:
            self.asm.pe(f'imm ui"{high}" $ls{at}')
        else:
            self.asm.pe(f'imm ui"{high}" $s{at}')
            self.asm.pe(f'imm ui"{low}" $s{at + 1}')
        return at


def units_of(result: Scheme, operand: Scheme, axes: Sequence[int]) -> np.ndarray:
    """For each unit of a tensor in scheme `result`, the unit of an operand whose axis i is axis axes[i] of the result (-1:
    none; there the index is 0)."""
    others = [digits for digits, a in zip(operand.axes, axes) if a < 0]
    aligned = [operand.axes[axes.index(a)] if a in axes else () for a in range(result.rank)]
    return unit_map(result, Scheme((*others, *aligned)))


@dataclass(frozen=True)
class Component:
    """One of the numbers of an index: its axis has `extent` rows, one index further is `stride` words further."""

    extent: int
    stride: int


def signed_digits(value: int) -> list[tuple[int, int]]:
    """(sign, shift) of a sum of as few powers of two as possible."""
    digits, shift = [], 0
    while value:
        if value & 1:
            sign = 2 - (value & 3)
            digits.append((sign, shift))
            value -= sign
        value >>= 1
        shift += 1
    return digits[::-1]


def nearest(asm: Asm, c: Constants, x: str, extent: int, out: str, kept: str = "$nowrite") -> None:
    """The row that an index names, or the nearest one; `kept`: the index, counted from the first row, as it is."""
    c.ready(31, extent, 0, extent - 1)
    asm.pe(f"ilsr {x} {c(31)} $nowrite")
    asm.pe(f"iand $aluf {c(extent)} $nowrite")
    asm.pe(f"iadd $aluf {x} {kept}")
    asm.pe(f"imax $aluf {c(0)} $nowrite")
    asm.pe(f"imin $aluf {c(extent - 1)} {out}")


def scaled(asm: Asm, c: Constants, x: str, factor: int, total: str, more: bool = False) -> None:
    """total = x * factor, or with `more` total + x * factor."""
    digits = signed_digits(factor)
    c.ready(*(shift for _, shift in digits))
    for sign, shift in digits:
        if not more:
            asm.pe(f"ilsl {x} {c(shift)} {total}")
        else:
            asm.pe(f"ilsl {x} {c(shift)} $nowrite")
            asm.pe(f"{'iadd' if sign > 0 else 'isub'} {total} $aluf {total}")
        more = True


class Indices:
    """The index tensor of a node. Without lanes a unit is one index; with lanes it is a quad of them."""

    def __init__(self, asm: Asm, constants: Constants, tensor: Tensor, components: Sequence[Component], writes: bool):
        assert tensor.scheme is not None
        self.asm, self.constants, self.tensor = asm, constants, tensor
        self.components, self.writes = tuple(components), writes
        self.lanes = tensor.scheme.lane is not None
        self.each = 4 if self.lanes else 1  # long words of a prepared unit
        self.ready: tuple[int, ...] = ()

    def fits(self, units: int) -> bool:
        """Whether so many units can be prepared at a time."""
        raw = units * len(self.components) * (2 if self.lanes else 1)
        return units * self.each <= CAPACITY and raw <= RAW_LW

    def prepare(self, units: Sequence[int], lm1: int, lc: int, lb: int) -> dict[int, int]:
        """Bring units (numbered without their components) to GRF0; gives the word of each. LM1 is used from `lm1` on."""
        wanted = tuple(sorted(set(units)))
        assert self.fits(len(wanted))
        places = {unit: 2 * self.each * i for i, unit in enumerate(wanted)}
        if wanted == self.ready:
            return places
        count = len(self.components)
        raw = np.array([unit * count + k for unit in wanted for k in range(count)])
        found = download_units(self.asm, self.tensor, raw, m.LM1, lm1, lc, lb)
        words = 2 if self.lanes else 1  # long words of a raw unit
        items = [(unit, part) for unit in wanted for part in range(words)]
        for at in range(0, len(items), 4):
            group = items[at : at + 4]
            sources = [[found[u * count + k] + 2 * part for u, part in group] for k in range(count)]
            self._group(sources, [places[u] + 4 * part for u, part in group])
        self.ready = wanted
        return places

    def _group(self, sources: list[list[int]], targets: list[int]) -> None:
        asm, c, n = self.asm, self.constants, len(targets)
        total, bad = f"$lr{SCRATCH}v", f"$lr{SCRATCH + 8}v"
        kept = f"$ls{SCRATCH}v"
        c.ready(31, 0, -1)
        for component in self.components:
            c.ready(component.extent, component.extent - 1, *(shift for _, shift in signed_digits(component.stride)))
        for k, component in enumerate(self.components):
            x = f"$lr{SCRATCH + 16}v"
            nearest(asm, c, vec(m.LM1, sources[k], 2), component.extent, x, kept if self.writes else "$nowrite")
            if self.writes:
                asm.pe(f"ixor $aluf {kept} {bad if not k else '$nowrite'}")
                if k:
                    asm.pe(f"ior $aluf {bad} {bad}")
            scaled(asm, c, x, component.stride, total, more=k > 0)
        if not self.writes:
            self._spread(total, targets, n)
            return
        asm.pe(f"ipassa {bad} $omr1")
        asm.pe(f"ipassa {c(-1)} {f'$lr{SCRATCH + 16}v'}")
        asm.pe(f"ipassa {total} $lr{SCRATCH + 16}v/$imr1")
        self._spread(f"$lr{SCRATCH + 16}v", targets, n)

    def _spread(self, total: str, targets: list[int], n: int) -> None:
        """To the prepared places; the two words of a long word of lanes become a long word each."""
        if not self.lanes:
            self.asm.pe(f"ipassa {total} {vec(m.GRF0, targets, 2)}")
            return
        first = int(total[3:].rstrip("v"))
        for half in (0, 1):
            source = vec(m.GRF0, [first + 2 * i + half for i in range(n)], 1)
            for word in (0, 1):
                self.asm.pe(f"ipassa {source} {vec(m.GRF0, [t + 2 * half + word for t in targets], 1)}")
