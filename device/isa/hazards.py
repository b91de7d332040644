"""Hazards (SDM 3.6.3): how many steps must lie between a write and what uses it.

`Hazards` follows a program step by step. The machine itself executes in order whatever these rules say: on the chip a
hazard reads old data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from .. import spec
from . import model as m
from .diagnostics import ERROR, UNKNOWN
from .footprint import (
    ALL_CYCLES,
    L1_TO_L1,
    L1_TO_L2,
    L1_TO_PE,
    L2_TO_L1,
    MASK_LETTER,
    PE_TO_L1,
    SIZES,
    PeAccess,
    Range,
    Use,
    is_turnaround,
)
from .rules import NAMES, fixed_mask_cycles


@dataclass(frozen=True, slots=True)
class L1Rule:
    """producer kind => consumer kind: steps needed from issue to issue, over the same addresses or any (ports)."""

    name: str
    producer: str
    consumer: str
    distance: int
    same_address: bool
    severity: str


#: SDM 3.6.3.2 to .8. The rules .2 to .5 exist but their waits are not settled: 3 steps between is safe in all known code.
L1_RULES: tuple[L1Rule, ...] = (
    L1Rule("hazard.2", L1_TO_L2, L2_TO_L1, 4, False, UNKNOWN),
    L1Rule("hazard.3", L2_TO_L1, L1_TO_L2, 4, False, UNKNOWN),
    L1Rule("hazard.3", L2_TO_L1, L1_TO_L1, 4, False, UNKNOWN),
    L1Rule("hazard.4", L1_TO_L1, L1_TO_L2, 4, False, UNKNOWN),
    L1Rule("hazard.4", L1_TO_L1, L1_TO_L1, 4, False, UNKNOWN),
    L1Rule("hazard.5", L1_TO_L1, L1_TO_PE, 4, False, UNKNOWN),
    L1Rule("hazard.6", L2_TO_L1, L1_TO_PE, 2, True, ERROR),
    L1Rule("hazard.7", PE_TO_L1, L1_TO_L2, 3, True, ERROR),
    L1Rule("hazard.7", PE_TO_L1, L1_TO_L1, 3, True, ERROR),
    L1Rule("hazard.8", PE_TO_L1, L1_TO_PE, 3, True, ERROR),
)
WINDOW = 4  # steps back that any rule looks
LM_DISTANCE = 3  # write => read of the same LM: two full steps between
GRF_CYCLES = 7  # write cycle => read cycle of the same GRF word
T_DISTANCE = 2
BAR_DISTANCE = 2
_NEVER = -99
_BAR_OF = ((m.LM0, m.BAR0), (m.LM1, m.BAR1))
#: what an instruction leaves in the turnaround register, by the operation that may read it
_TURN_KIND = {"l1bmr": "l1bmm", "l1bmr4": "l1bmm4"}


@dataclass(frozen=True, slots=True)
class Missing:
    """A hazard: how many steps are missing, the rule, what it says, and the operand that comes too early."""

    steps: int
    rule: str
    message: str
    severity: str
    at: object


class Hazards:
    """What was written lately, in steps. `now` is the number of the coming step."""

    def __init__(self) -> None:
        self.now = 0
        self.mask = (0, "", False)
        self.forget()

    def forget(self) -> None:
        """Start of a stretch whose predecessors are not known."""
        self._lm = {m.LM0: _NEVER, m.LM1: _NEVER}
        self._bar = {m.BAR0: _NEVER, m.BAR1: _NEVER}
        self._last_bar = _NEVER
        self._t = _NEVER
        self._grf: list[tuple[int, PeAccess, tuple[bool, ...]]] = []
        self._l1: list[tuple[int, Range]] = []
        self._turn: tuple[str, int] | None = None

    def blocks(self, use: Use) -> bool:
        """Whether a step of PE memories only may come too early: quick to say no."""
        now, shape = self.now, use.shape
        for space in shape.lm_reads:
            if now - self._lm[space] < LM_DISTANCE:
                return True
        if use.reads_t and now - self._t < T_DISTANCE:
            return True
        for step, write, enabled in self._grf:
            for read in use.reads:
                if write.space != read.space or now - step > 2:
                    continue
                if grf_gap(write.addrs, write.width, enabled, read.addrs, read.width, now - step)[0]:
                    return True
        return now - self._last_bar < BAR_DISTANCE

    # --- what a step misses ------------------------------------------------------------------------------------------
    def missing(self, use: Use) -> list[Missing]:
        found: list[Missing] = []
        now, shape = self.now, use.shape
        for space in shape.lm_reads:
            if now - self._lm[space] < LM_DISTANCE:
                found.append(self._lm_read(space, use))
        if self._grf:
            self._grf_reads(use, found)
        if use.reads_t and now - self._t < T_DISTANCE:
            message = "T is read in the step after its write (1 step between)"
            found.append(Missing(T_DISTANCE - (now - self._t), "hazard.9", message, ERROR, None))
        for space, bar in _BAR_OF:
            since = now - self._bar[bar]
            if since < BAR_DISTANCE:
                self._bar_use(space, since, use, found)
        if shape.networks:
            self._network(use, found)
        return found

    def _lm_read(self, space: str, use: Use) -> Missing:
        since = self.now - self._lm[space]
        message = f"{NAMES[space]} is read {since} step{'s' if since > 1 else ''} after a write of it (2 steps between)"
        at = next(a.operand for a in use.reads if a.space == space)
        return Missing(LM_DISTANCE - since, "hazard.9", message, ERROR, at)

    def _grf_reads(self, use: Use, found: list[Missing]) -> None:
        now = self.now
        for read in use.reads:
            worst = (0, 0, 0, 0)
            ago = 0
            for step, write, enabled in self._grf:
                if write.space != read.space or now - step > 2:
                    continue
                gap = grf_gap(write.addrs, write.width, enabled, read.addrs, read.width, now - step)
                if gap[0] > worst[0]:
                    worst, ago = gap, now - step
            if worst[0]:
                steps, c, k, delta = worst
                word = read.addrs[k] % SIZES[read.space]
                message = (
                    f"{NAMES[read.space]} word {word} is read in cycle {k}, {delta} cycles after its write in cycle {c} of "
                    f"{_ago(ago)} (6 idle cycles between)"
                )
                found.append(Missing(steps, "hazard.9", message, ERROR, read.operand))

    def _bar_use(self, space: str, since: int, use: Use, found: list[Missing]) -> None:
        at = next((a.operand for a in (*use.reads, *use.writes) if a.space == space), None)
        if at is not None:
            message = f"{NAMES[space]} is accessed in the step after a write of its base address (1 step between)"
            found.append(Missing(BAR_DISTANCE - since, "hazard.bar", message, ERROR, at))

    def _network(self, use: Use, found: list[Missing]) -> None:
        for touched in (*use.l1_reads, *use.l1_writes):
            for rule in L1_RULES:
                if rule.consumer != touched.kind or (rule.same_address and touched in use.l1_writes):
                    continue
                for step, earlier in self._l1:
                    since = self.now - step
                    if earlier.kind != rule.producer or since >= rule.distance:
                        continue
                    if rule.same_address and not earlier.overlaps(touched, spec.L1BM_LW):
                        continue
                    between = f"{rule.distance - 1} step{'s' if rule.distance > 2 else ''} between"
                    message = f"{rule.producer} => {rule.consumer} needs {between}"
                    hazard = Missing(rule.distance - since, rule.name, message, rule.severity, touched.operand)
                    if all(known.message != message or known.steps < hazard.steps for known in found):
                        found.append(hazard)

    # --- how far a step has to be from what it uses ------------------------------------------------------------------
    def behind(self, use: Use) -> list[tuple[int, int]]:
        """(step of a write, steps from there to the coming step) for each write that may be too near. Where all steps so far came
        one right after the other, these distances say what `missing` does, however far apart the steps are in the end."""
        now, shape = self.now, use.shape
        found = [(self._lm[space], LM_DISTANCE) for space in shape.lm_reads]
        for step, write, enabled in self._grf:
            gaps = [
                grf_gap(write.addrs, write.width, enabled, read.addrs, read.width, 1)[0]
                for read in use.reads
                if read.space == write.space
            ]
            if any(gaps):
                found.append((step, 1 + max(gaps)))
        if use.reads_t:
            found.append((self._t, T_DISTANCE))
        for space, bar in _BAR_OF:
            if any(a.space == space for a in (*use.reads, *use.writes)):
                found.append((self._bar[bar], BAR_DISTANCE))
        for touched in (*use.l1_reads, *use.l1_writes) if shape.networks else ():
            for rule in L1_RULES:
                if rule.consumer != touched.kind or (rule.same_address and touched in use.l1_writes):
                    continue
                found += [
                    (step, rule.distance)
                    for step, earlier in self._l1
                    if earlier.kind == rule.producer
                    and not (rule.same_address and not earlier.overlaps(touched, spec.L1BM_LW))
                ]
        return [(step, distance) for step, distance in found if now - step < distance]

    def turnaround(self, use: Use, bundle: m.Bundle) -> tuple[str, str, object] | None:
        """(severity, message, instruction) where `$lbi` is read in another form than it was written in."""
        if self._turn is None:
            return None
        kind, shift = self._turn
        for instruction, opcode in zip(bundle.instructions, use.opcodes):
            if opcode.unit != "l1bm" or not is_turnaround(instruction):
                continue
            if opcode.operation != kind:
                return UNKNOWN, f"$lbi is read by {opcode.operation}, but was written for {kind}", instruction
            if shift and opcode.shift != shift:
                return (
                    ERROR,
                    f"$lbi was written with the shift {shift:+d} and is read with {opcode.shift:+d}",
                    instruction,
                )
        return None

    # --- what a step leaves behind -----------------------------------------------------------------------------------
    def record(self, use: Use, bundle: m.Bundle) -> None:
        now, shape = self.now, use.shape
        if self._grf and now - self._grf[0][0] > 1:
            self._grf = [w for w in self._grf if now - w[0] <= 1]
        for space in shape.lm_writes:
            self._lm[space] = now
        for access in use.writes:
            space = access.space
            if space == m.GRF0 or space == m.GRF1:
                self._grf.append((now, access, self._enabled(access)))
            elif space == m.T and any(self._enabled(access)):
                self._t = now
        if shape.plain:
            return
        for bar in use.bar_writes:
            self._bar[bar] = self._last_bar = now
        if shape.networks:
            self._l1 = [(step, r) for step, r in self._l1 if now - step < WINDOW]
            self._l1 += [(now, r) for r in use.l1_writes]
            self._l1 += [(now, r) for r in use.l1_reads if r.kind == L1_TO_L2]
            self._turn = self._turned(use, bundle)

    def _turned(self, use: Use, bundle: m.Bundle) -> tuple[str, int] | None:
        if any(o.unit == "noforward" for o in use.opcodes):
            return self._turn
        for instruction, opcode in zip(bundle.instructions, use.opcodes):
            first = instruction.operands[0] if instruction.operands else None
            if opcode.unit == "l1bm" and isinstance(first, m.Operand) and first.space not in (m.L1BM, m.L1BM_TURN):
                return _TURN_KIND.get(opcode.operation, opcode.operation), opcode.shift
        return self._turn

    def _enabled(self, access: PeAccess) -> tuple[bool, ...]:
        """Cycles in which a write may happen."""
        mask = access.mask
        if mask is not None:
            if mask.pattern is not None:
                return tuple(bool(bits) for bits in mask.pattern)
            return fixed_mask_cycles(mask.register or 0) or ALL_CYCLES
        entry, targets, _ = self.mask
        if entry == 0 and not targets:
            return ALL_CYCLES
        if MASK_LETTER[access.space] not in targets:
            return (False, False, False, False)
        return fixed_mask_cycles(entry) or ALL_CYCLES


Addresses = tuple[int, int, int, int]


@lru_cache(maxsize=1 << 16)
def grf_gap(
    written: Addresses, write_width: int, enabled: tuple[bool, ...], read: Addresses, read_width: int, ago: int
) -> tuple[int, int, int, int]:
    """(steps missing, write cycle, read cycle, cycles between) of the worst pair of a GRF write and a later read."""
    worst = (0, 0, 0, 0)
    size = spec.GRF_WORDS
    for c in range(4):
        if not enabled[c]:
            continue
        for k in range(4):
            delta = 4 * ago + k - c
            if delta >= GRF_CYCLES:
                continue
            gap = (read[k] - written[c]) % size
            if gap < write_width or size - gap < read_width:
                steps = -(-(GRF_CYCLES - delta) // 4)
                if steps > worst[0]:
                    worst = (steps, c, k, delta)
    return worst


def _ago(steps: int) -> str:
    return "the step before" if steps == 1 else f"{steps} steps before"
