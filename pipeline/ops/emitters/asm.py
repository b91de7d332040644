"""The emitters' assembler: takes instructions in program order and puts in the waits that the hardware asks for.

Emitters write lines as in a `.vsm` file (`asm.pe("fvadd $lm0v $ls0v $ln0v")`); a line is one step and its instructions issue
together. Before a line is placed, as many empty steps are inserted as its operands need:

    LM0/LM1     read at least 3 steps after a write to the same LM, whatever the address (one port)
    GRF0/GRF1   a word is readable 7 cycles after the cycle that wrote it
    T           read 2 steps after a write
    L1BM        read by PEs 2 steps after L2BM->L1BM, 3 steps after PE->L1BM; by L2BM 3 steps after PE->L1BM
    L2BM unit   4 steps between the directions L1BM->L2BM and L2BM->L1BM
    MV          reads L2BM 2 steps after L1BM->L2BM

Forward registers, matrix registers and masks are readable in the next step, which program order gives. What may issue
together in one line is the emitter's own care; `device.isa` checks the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from mlsdk.device.isa import model as m
from mlsdk.device.isa.parser import Parser
from mlsdk.errors import EmitError

_PARSER = Parser()
_NO_SOURCE = {"zero", "imm", "immu", "wait", "noforward", "nop"}
_BINARY = re.compile(
    r"u?[dfgihls](and|or|xor|add|sub|lsl|lsr|bsl|bsr|packbit|max|min|relu[0-3]?|lrelud|lreluo|ilrelud)$"
)
_MAU = re.compile(r"[dfgh](v|m)(fma|mul|add|passa)[ud]?r?$")


@cache
def source_count(mnemonic: str) -> int:
    """How many of an instruction's operands, from the left, are read."""
    name = mnemonic.split("/")[0].split("@")[0]
    if name in _NO_SOURCE:
        return 0
    mau = _MAU.match(name)
    if mau:
        kind = {"fma": 3, "mul": 2, "add": 2, "passa": 1}[mau[2]]
        return kind if mau[1] == "v" else {"fma": 3, "mul": 2}.get(mau[2], kind)
    return 2 if _BINARY.match(name) else 1


_LM = (m.LM0, m.LM1)
_GRF = (m.GRF0, m.GRF1)
_NEVER = -1000


def cycle_addresses(operand: m.Operand) -> list[int]:
    """First word of the access in each of the four cycles."""
    if operand.flat is not None:
        return list(operand.flat)
    return [operand.addr + operand.inc * c for c in range(4)]


@dataclass(frozen=True, slots=True)
class _Step:
    """A step, and what it touches: spaces, (space, word, cycle) of the register files (of reads of a word the first cycle, of
    writes the last), (chunk of 16 LW of L1BM, whether the other side is L2BM), directions between L1BM and L2BM."""

    bundle: m.Bundle
    lm_reads: tuple[str, ...] = ()
    lm_writes: tuple[str, ...] = ()
    grf_reads: tuple[tuple[str, int, int], ...] = ()
    grf_writes: tuple[tuple[str, int, int], ...] = ()
    t_reads: bool = False
    t_writes: bool = False
    lb_reads: tuple[tuple[int, bool], ...] = ()
    lb_writes: tuple[tuple[int, bool], ...] = ()
    up: bool = False
    down: bool = False

    @classmethod
    def of(cls, bundle: m.Bundle) -> _Step:
        spaces: tuple[set[str], set[str]] = (set(), set())
        words: tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]] = ({}, {})
        chunks: tuple[dict[tuple[int, bool], None], dict[tuple[int, bool], None]] = ({}, {})
        indirect = up = down = False
        for instruction in bundle.instructions:
            name = instruction.mnemonic
            sources, l2 = source_count(name), name.startswith("l2bm")
            if l2:
                up, down = (True, down) if _is_upward(instruction) else (up, True)
            for position, operand in enumerate(instruction.operands):
                if not isinstance(operand, m.Operand):
                    continue
                writes, space = position >= sources, operand.space
                indirect |= operand.indirect
                spaces[writes].add(space)
                if space in _GRF:
                    for cycle, first in enumerate(cycle_addresses(operand)):
                        for word in range(first, first + operand.width):
                            if writes:
                                words[1][space, word] = cycle
                            else:
                                words[0][space, word] = min(cycle, words[0].get((space, word), cycle))
                elif space == m.L1BM:
                    last = operand.addr + _lb_length(name, operand) + 15
                    chunks[writes].update(dict.fromkeys((chunk, l2) for chunk in range(operand.addr >> 4, last >> 4)))
        grf_reads, grf_writes = (tuple((*key, cycle) for key, cycle in found.items()) for found in words)
        return cls(
            bundle,
            tuple(space for space in _LM if space in spaces[0]),
            tuple(space for space in _LM if space in spaces[1]),
            grf_reads,
            grf_writes,
            indirect or m.T in spaces[0],
            m.T in spaces[1],
            tuple(chunks[0]),
            tuple(chunks[1]),
            up,
            down,
        )


@lru_cache(maxsize=1 << 14)
def _step(line: str) -> _Step:
    """The step of a line, which is the same wherever it is written."""
    problems: list = []
    found = list(_PARSER.statements((line,), problems))
    if problems or len(found) != 1 or not isinstance(found[0], m.Bundle):
        raise EmitError(f"emitter wrote `{line}`: {problems[0] if problems else 'not one step'}")
    return _Step.of(m.Bundle(found[0].instructions))


class Asm:
    """Collects statements; `step` is the number of steps placed so far in the current straight line."""

    def __init__(self) -> None:
        self.statements: list[m.Statement] = []
        self.step = 0
        self._depth = 0
        self._lm = {m.LM0: _NEVER, m.LM1: _NEVER}
        self._grf: dict[str, dict[int, int]] = {m.GRF0: {}, m.GRF1: {}}
        self._t = _NEVER
        self._lb_from_l2: dict[int, int] = {}  # L1BM chunk of 16 LW -> step
        self._lb_from_pe: dict[int, int] = {}
        self._l2_up = self._l2_down = self._lc_written = _NEVER
        self._latest_grf = self._latest_lb_l2 = self._latest_lb_pe = _NEVER
        self._tags: set[int] = set()  # in flight
        self._reserved: set[int] = set()
        self._next_tag = 0

    # ---- lines ------------------------------------------------------------------------------------------------

    def pe(self, line: str, *strides: tuple[int, int, tuple[int, ...]]) -> None:
        """One step. `strides`: (instruction, operand, strides per enclosing loop) for operands that advance."""
        step = _step(line)
        if not strides:
            self._put(step)
            return
        instructions = list(step.bundle.instructions)
        for index, position, stride in strides:
            old = instructions[index]
            operands = list(old.operands)
            operand = operands[position]
            assert isinstance(operand, m.Operand)
            operands[position] = replace(operand, strides=stride)
            instructions[index] = replace(old, operands=tuple(operands))
        self._put(replace(step, bundle=m.Bundle(tuple(instructions))))

    def bundle(self, instructions: Sequence[m.Instruction]) -> None:
        """One step of instructions that issue together, after the empty steps that their operands need."""
        self._put(_Step.of(m.Bundle(tuple(instructions))))

    def _put(self, step: _Step) -> None:
        self.nop(self._ready(step) - self.step)
        self.statements.append(step.bundle)
        now = self.step
        for space in step.lm_writes:
            self._lm[space] = now
        if step.grf_writes:
            self._latest_grf = now
            for space, word, cycle in step.grf_writes:
                self._grf[space][word] = 4 * now + cycle
        if step.t_writes:
            self._t = now
        if step.lb_writes:
            for chunk, from_l2 in step.lb_writes:
                (self._lb_from_l2 if from_l2 else self._lb_from_pe)[chunk] = now
                if from_l2:
                    self._latest_lb_l2 = now
                else:
                    self._latest_lb_pe = now
        if step.up:
            self._l2_up = self._lc_written = now
        if step.down:
            self._l2_down = now
        self.step += 1

    def _ready(self, step: _Step) -> int:
        """The first step in which the operands can be read."""
        ready = self.step
        for space in step.lm_reads:
            ready = max(ready, self._lm[space] + 3)
        if step.grf_reads and self._latest_grf + 3 > ready:
            for space, word, cycle in step.grf_reads:
                at = self._grf[space].get(word)
                if at is not None and at + 7 - cycle > 4 * ready:
                    ready = -(-(at + 7 - cycle) // 4)
        if step.t_reads:
            ready = max(ready, self._t + 2)
        for chunk, to_l2 in step.lb_reads:
            if not to_l2:
                ready = max(ready, self._lb_from_l2.get(chunk, _NEVER) + 2)
            ready = max(ready, self._lb_from_pe.get(chunk, _NEVER) + 3)
        if step.up:
            ready = max(ready, self._l2_down + 4)
        if step.down:
            ready = max(ready, self._l2_up + 4)
        return ready

    def nop(self, count: int) -> None:
        if count <= 0:
            return
        last = self.statements[-1] if self.statements else None
        if isinstance(last, m.Nop):
            self.statements[-1] = m.Nop(last.count + count)
        else:
            self.statements.append(m.Nop(count))
        self.step += count

    def quiesce(self) -> None:
        """Empty steps until whatever comes next is free of hazards."""
        ready = max(
            *(step + 3 for step in self._lm.values()),
            self._latest_grf + 3,
            self._t + 2,
            self._latest_lb_l2 + 2,
            self._latest_lb_pe + 3,
            self._l2_up + 4,
            self._l2_down + 4,
            self._lc_written + 2,
        )
        self.nop(ready - self.step)

    # ---- moves ------------------------------------------------------------------------------------------------

    def tag(self) -> int:
        """A tag that no move in flight has and nobody reserved."""
        for _ in range(63):
            self._next_tag = self._next_tag % 63 + 1
            if self._next_tag not in self._tags and self._next_tag not in self._reserved:
                return self._next_tag
        raise EmitError("more than 63 moves in flight; wait for some")

    def tag_reserved(self) -> int:
        """A tag for the caller's own use until `tag_release`."""
        tag = self.tag()
        self._reserved.add(tag)
        return tag

    def tag_release(self, *tags: int) -> None:
        self._reserved.difference_update(tags)

    def move(
        self, mnemonic: str, src: m.Operand, dst: m.Operand, size: int, tag: int | None = None, nd: int = 0
    ) -> int:
        """An MV line; returns its tag, for `wait`. `nd`: pieces of 16 LW for each entry of the DAR. EmitError where it names a
        tensor that is not in DRAM."""
        if any(side.space == m.DRAM and not side.symbol for side in (src, dst)):
            raise EmitError("an operand that lives in LM has no place in DRAM")
        if src.space == m.L2BM:
            self.nop(self._lc_written + 2 - self.step)
        tag = tag or self.tag()
        self._tags.add(tag)
        self.statements.append(m.Move(mnemonic, src, dst, size, tag, nd))
        return tag

    def raised(self, tag: int) -> None:
        """A tag that is raised, and no move: who waits for it goes on."""
        self._tags.add(tag)
        self.statements.append(m.Move("mvnop", tag=tag))

    def wait(self, *tags: int) -> None:
        """Stall until these moves are done (one step each)."""
        for tag in tags:
            self._tags.discard(tag)
            self.statements.append(m.Bundle((m.wait(tag),)))
            self.step += 1

    # ---- loops ------------------------------------------------------------------------------------------------

    @contextmanager
    def loop(self, count: int) -> Iterator[int]:
        """The statements inside are repeated; gives the loop's depth. Nothing is pending at either end of the body."""
        self.quiesce()
        outer, self.statements = self.statements, []
        self._depth += 1
        try:
            yield self._depth - 1
            self.quiesce()
        finally:
            self._depth -= 1
            body, self.statements = self.statements, outer
        if count == 1 and not self._depth:  # within another loop the strides of both have to stay
            self.statements += [s for s in m.unroll([m.Loop(1, tuple(body))])]
        elif count:
            self.statements.append(m.Loop(count, tuple(body)))

    @property
    def depth(self) -> int:
        return self._depth


def _is_upward(instruction: m.Instruction) -> bool:
    """From L1BM to L2BM. The writer of the DAR has no operands, and reads nothing but its buffer."""
    first = instruction.operands[0] if instruction.operands else None
    return isinstance(first, m.Operand) and first.space == m.L1BM


def _lb_length(mnemonic: str, operand: m.Operand) -> int:
    """LW of L1BM that an instruction touches from its address on."""
    name = mnemonic.split("@")[0].split("/")[0]
    if name.startswith("l2bmd"):
        return 32
    if name.startswith("l2bm"):
        return 64
    if name.startswith("l1bmd"):
        return 256
    if name.startswith("l1bmp"):
        return 4 * operand.width // 2
    if name.startswith(("l1bmm4", "l1bmr4")):
        return 64 * operand.width // 2
    return 16 * operand.width // 2


# ---- operand text -------------------------------------------------------------------------------------------------

_LETTER = {m.LM0: "m", m.LM1: "n", m.GRF0: "r", m.GRF1: "s"}
_PREFIX = {1: "", 2: "l", 4: "ll"}


def vec(space: str, words: Sequence[int], width: int, suffix: str = "") -> str:
    """The text of an operand that accesses `width` words at these word addresses, one per cycle (the last is repeated
    when there are fewer than four)."""
    a = list(words) + [words[-1]] * (4 - len(words))
    head = f"${_PREFIX[width]}{_LETTER[space]}"
    inc = a[1] - a[0]
    if inc >= 0 and a[2] - a[1] == inc and a[3] - a[2] == inc:
        body = f"{a[0]}" + ("" if inc == 0 else "v" if inc == width else f"v{inc}")
    else:
        body = "[" + ",".join(map(str, a)) + "]"
    return head + body + suffix
