"""How long a program takes: steps, stalls at `wait`, and moves that share ports. Time does not depend on data.

The rules stand in device/timing.py. A PE line takes 4 cycles, `nop/n` takes 4n, everything else nothing; a move takes no PE time
except that MV lines issue in order at a limited rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .. import spec, timing
from ..isa import model as m
from ..isa.table import lookup

CYCLES = spec.CYCLES_PER_STEP


@dataclass(slots=True)
class Times:
    """Totals of a program. `units` counts instructions per unit."""

    pe_steps: int = 0
    cycles: int = 0
    moves: int = 0
    units: dict[str, int] = field(default_factory=dict)

    @property
    def total_steps(self) -> int:
        return -(-self.cycles // CYCLES)

    @property
    def stall_steps(self) -> int:
        return self.total_steps - self.pe_steps


class Clock:
    """Advances with each statement. `event(unit, name, start cycle, cycles, line)` is called for a trace."""

    def __init__(self, event: Callable[[str, str, int, int, int], None] | None = None) -> None:
        self.now = 0
        self.times = Times()
        self.event = event
        self._last_issue = -spec.MV_ISSUE_CYCLES
        self._free: dict[str, int] = {}
        self._done: dict[int, int] = {}
        self._end = 0
        self._plain: dict[int, tuple[object, int, dict[str, int]]] = {}
        self._bundles: dict[int, tuple[object, tuple[str, ...], tuple[int, ...]]] = {}

    def run(self, statements: Iterable[m.Statement]) -> None:
        for statement in statements:
            if isinstance(statement, m.Loop):
                self._loop(statement)
            else:
                self.statement(statement)
                if isinstance(statement, m.Quit):
                    return

    def _loop(self, loop: m.Loop) -> None:
        if self.event is None:
            found = self._plain.get(id(loop))
            if found is None:
                steps, units = _plain_steps(loop.body)
                found = self._plain[id(loop)] = (loop, steps, units)
            _, steps, units = found
            if steps >= 0:
                self.now += CYCLES * steps * loop.count
                self.times.pe_steps += steps * loop.count
                for unit, count in units.items():
                    self._count(unit, count * loop.count)
                return
        for _ in range(loop.count):
            self.run(loop.body)

    def statement(self, s: m.Statement) -> None:
        if type(s) is m.Bundle:
            found = self._bundles.get(id(s.instructions))
            if found is None:
                found = self._known(s)
            _, units, tags = found
            for tag in tags:
                self._wait(tag, s.line)
            counts = self.times.units
            for unit in units:
                counts[unit] = counts.get(unit, 0) + 1
            if self.event:
                for unit, instruction in zip(units, s.instructions):
                    if unit not in ("nop", "noforward", "wait"):
                        self.event(unit, instruction.mnemonic, self.now, CYCLES, s.line)
            self.now += CYCLES
            self.times.pe_steps += 1
        elif isinstance(s, m.Nop):
            self.now += CYCLES * s.count
            self.times.pe_steps += s.count
            self._count("nop", s.count)
        elif isinstance(s, m.Move):
            self._move(s)

    def _known(self, s: m.Bundle) -> tuple[object, tuple[str, ...], tuple[int, ...]]:
        """Units and awaited tags of a bundle; lines that repeat share their instructions."""
        units = tuple(lookup(i.mnemonic).unit for i in s.instructions)
        tags = tuple(
            o.addr
            for i, unit in zip(s.instructions, units)
            if unit == "wait"
            for o in i.operands
            if isinstance(o, m.Operand)
        )
        if len(self._bundles) > 50_000:
            self._bundles.clear()
        found = self._bundles[id(s.instructions)] = (s.instructions, units, tags)
        return found

    def _wait(self, tag: int, line: int) -> None:
        done = self._done.pop(tag, 0)
        if done > self.now:
            stall = -(-(done - self.now) // CYCLES) * CYCLES
            if self.event:
                self.event("wait", f"wait i{tag:02x}", self.now, stall, line)
            self.now += stall

    def _count(self, unit: str, count: int = 1) -> None:
        self.times.units[unit] = self.times.units.get(unit, 0) + count

    def _move(self, move: m.Move) -> None:
        self.now = max(self.now, self._last_issue + spec.MV_ISSUE_CYCLES)
        self._last_issue = self.now
        self.times.moves += 1
        form = timing.known_form_of(move)
        if form is None:
            done = self.now
        else:
            ports = timing.ports_of(move, form)
            start = max([self.now, *(self._free.get(port, 0) for port in ports)])
            duration = timing.duration_of(move, form)
            for port in ports:
                self._free[port] = start + duration
            done = start + duration + spec.MV_LATENCY_CYCLES
            if self.event:
                self.event("mv", move.mnemonic, start, done - start, move.line)
        self._end = max(self._end, done)
        if move.tag:
            self._done[move.tag] = done

    def finish(self) -> Times:
        """The totals: the program ends when its last step and all its moves are done."""
        self.times.cycles = max(self.now, self._end)
        return self.times


def _plain_steps(statements: Iterable[m.Statement]) -> tuple[int, dict[str, int]]:
    """Steps and instruction counts of statements without moves and waits; (-1, {}) if there are any."""
    steps, units = 0, {}  # type: ignore[var-annotated]
    for s in statements:
        if isinstance(s, m.Bundle):
            steps += 1
            for instruction in s.instructions:
                unit = lookup(instruction.mnemonic).unit
                if unit == "wait":
                    return -1, {}
                units[unit] = units.get(unit, 0) + 1
        elif isinstance(s, m.Nop):
            steps += s.count
            units["nop"] = units.get("nop", 0) + s.count
        elif isinstance(s, m.Move):
            return -1, {}
        elif isinstance(s, m.Loop):
            inner, counts = _plain_steps(s.body)
            if inner < 0:
                return -1, {}
            steps += inner * s.count
            for unit, count in counts.items():
                units[unit] = units.get(unit, 0) + count * s.count
    return steps, units
