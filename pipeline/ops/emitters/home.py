"""Operands that live in LM: their places, and what a fragment touches of LM.

A fragment is emitted before anybody knows where in LM its operands will lie. So each has a place of its own behind the end of
LM: operand i (inputs first, then results) lies from word PLACE * (i + 1) on, and linking puts the true words in (`settled`).
What a fragment writes below that is its scratch; a value that lives on while it runs has to lie elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mlsdk.device import spec
from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.plan import Home, Step
from mlsdk.pipeline.ir.program import mapped
from mlsdk.pipeline.ops.emitters.asm import Asm, cycle_addresses, source_count, vec

PLACE = 2 * spec.LM_WORDS  # words
#: values start on this many LW, and take a multiple of it
GRAIN = 8
LM = (m.LM0, m.LM1)


@dataclass(frozen=True)
class Lives:
    """Where the operands of a node are, for its fragment: `reads[i]` is the LM in which input i is read ("": DRAM), `keeps[o]`
    the LM in which result o is left ("": none), and `stored[o]` whether it goes to DRAM. Empty: all in DRAM."""

    reads: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    stored: tuple[bool, ...] = ()

    @classmethod
    def of(cls, step: Step, inputs: int, outputs: int) -> Lives:
        """What a step of a plan says, for a node of so many operands."""
        if step.in_dram:
            return IN_DRAM
        reads, keeps = dict(step.reads), dict(step.keeps)
        return cls(
            tuple(reads[i].space if i in reads else "" for i in range(inputs)),
            tuple(keeps[o].space if o in keeps else "" for o in range(outputs)),
            tuple(o not in step.only for o in range(outputs)),
        )

    def place(self, index: int) -> Home | None:
        """Of operand `index`, inputs first."""
        spaces = (*self.reads, *self.keeps)
        if index >= len(spaces) or not spaces[index]:
            return None
        return Home(spaces[index], PLACE * (index + 1))


IN_DRAM = Lives()


def size_of(addresses: int, granule: int) -> int:
    """LW of LM for a value of so many addresses: what a download of whole granules may write."""
    whole = -(-addresses // granule) * granule
    return -(-whole // GRAIN) * GRAIN


def copy(
    asm: Asm,
    source: str,
    at: int,
    target: str,
    to: int,
    count: int,
    from_strides: Sequence[int] = (),
    to_strides: Sequence[int] = (),
) -> None:
    """`count` LW from word `at` of a PE memory to word `to` of another, four a step. EmitError within one LM: it has one port."""
    if source == target and source in LM:
        raise EmitError(f"{source} cannot be copied to itself; the operand should live in the other LM")
    for first in range(0, count, 4):
        words = range(2 * first, 2 * min(first + 4, count), 2)
        strides = [(0, i, tuple(s)) for i, s in enumerate((from_strides, to_strides)) if any(s)]
        asm.pe(f"lpassa {vec(source, [at + w for w in words], 2)} {vec(target, [to + w for w in words], 2)}", *strides)


# ---- what a fragment touches --------------------------------------------------------------------------------------


def written(statements: Iterable[m.Statement]) -> dict[tuple[str, int], int]:
    """(LM, place) -> the LW that are written there, a bit each. Place 0 is LM itself, i + 1 that of operand i. A write through
    T may go anywhere in LM."""
    found: dict[tuple[str, int], int] = {}
    _written(statements, (), found)
    return found


def _written(statements: Iterable[m.Statement], loops: tuple[int, ...], found: dict[tuple[str, int], int]) -> None:
    for s in statements:
        if isinstance(s, m.Loop):
            _written(s.body, (*loops, s.count), found)
        elif isinstance(s, m.Bundle):
            for instruction in s.instructions:
                for operand in instruction.operands[source_count(instruction.mnemonic) :]:
                    if isinstance(operand, m.Operand) and operand.space in LM:
                        place, bits = _bits(operand, loops)
                        key = operand.space, place
                        found[key] = found.get(key, 0) | bits


def _bits(operand: m.Operand, loops: tuple[int, ...]) -> tuple[int, int]:
    if operand.indirect:
        return 0, (1 << spec.LM_WORDS // 2) - 1
    addresses = cycle_addresses(operand)
    place, bits = addresses[0] // PLACE, 0
    for word in addresses:
        for w in range(word - place * PLACE, word - place * PLACE + operand.width):
            bits |= 1 << (w >> 1)
    for stride, count in zip(operand.strides, loops):
        if stride:
            once = bits
            for turn in range(1, count):
                bits |= once << (stride * turn >> 1)
    return place, bits


# ---- linking ------------------------------------------------------------------------------------------------------


def settled(statements: Iterable[m.Statement], words: Mapping[int, int]) -> Iterator[m.Statement]:
    """The statements with operands at their true places: operand -> word of LM."""

    def operand(o: m.Operand) -> m.Operand:
        place = cycle_addresses(o)[0] // PLACE if o.space in LM else 0
        if not place:
            return o
        by = words[place - 1] - place * PLACE
        if o.flat is None:
            return replace(o, addr=o.addr + by)
        a, b, c, d = o.flat
        return replace(o, addr=o.addr + by if o.addr else 0, flat=(a + by, b + by, c + by, d + by))

    return mapped(statements, operand)
