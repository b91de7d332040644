"""The static clock: how many steps a program takes, from its statements alone.

It follows the rules written in `device/timing.py` and reads that table, but shares no code with the board's own clock: a
test holds the two equal for every program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mlsdk.device import spec
from mlsdk.device.isa import model as m
from mlsdk.device.timing import duration_of, form_of, ports_of

#: how searches count a node: statements -> (steps, LW moved from and to DRAM)
Measure = Callable[[Sequence[m.Statement]], tuple[int, int]]


@dataclass
class Transfer:
    """One move as it happened: when it was issued, started and done (cycles), and its size in LW."""

    mnemonic: str
    issue: int
    start: int
    end: int
    size: int
    symbol: str


@dataclass
class Clock:
    """Time in cycles. `observe(node, cycles)` is called at each marker."""

    observe: Callable[[str, int], None] | None = None
    keep_transfers: bool = False
    now: int = 0
    pe_steps: int = 0
    moves: int = 0
    stall: int = 0  # cycles
    dram_lw: int = 0  # long words moved from or to DRAM, all groups
    transfers: list[Transfer] = field(default_factory=list)
    _last_issue: int = -(10**9)
    _free: dict[str, int] = field(default_factory=dict)
    _all_free: dict[tuple[str, ...], int] = field(default_factory=dict)
    _done: dict[int, int] = field(default_factory=dict)
    _latest: int = 0
    _known: dict[int, tuple] = field(default_factory=dict)

    def run(self, statements: Sequence[m.Statement]) -> int:
        """Advance over a program; gives the total of steps so far, with all moves done."""
        self._advance(statements)
        return self.steps

    def free(self, port: str) -> int:
        """The cycle from which on a port is free."""
        return self._free.get(port, 0)

    def all_free(self, ports: tuple[str, ...]) -> int:
        """The cycle from which on all of these ports are free."""
        found = self._all_free.get(ports)
        if found is None:
            free = self._free
            found = self._all_free[ports] = max([0, *[free.get(port, 0) for port in ports]])
        return found

    def done(self, tag: int) -> int:
        """The cycle in which the move with a tag that nobody waited for is done."""
        return self._done.get(tag, 0)

    def pause(self, steps: int) -> None:
        """Steps of the PEs, whatever they do."""
        self.now += spec.CYCLES_PER_STEP * steps
        self.pe_steps += steps

    def wait(self, tag: int) -> None:
        done = self._done.pop(tag, 0)
        if done > self.now:
            waited = -(-(done - self.now) // spec.CYCLES_PER_STEP) * spec.CYCLES_PER_STEP
            self.stall += waited
            self.now += waited

    def move(self, ports: tuple[str, ...], duration: int, tag: int) -> tuple[int, int, int]:
        """A move that holds these ports for so many cycles: when it is issued, started and done."""
        issue = self._issue()
        start = max(issue, self.all_free(ports))
        self._all_free.clear()
        self._free.update(dict.fromkeys(ports, start + duration))
        end = start + duration + spec.MV_LATENCY_CYCLES
        self._latest = max(self._latest, end)
        if tag:
            self._done[tag] = end
        return issue, start, end

    def _issue(self) -> int:
        issue = max(self.now, self._last_issue + spec.MV_ISSUE_CYCLES)
        self.stall += issue - self.now
        self.now = self._last_issue = issue
        self.moves += 1
        return issue

    @property
    def steps(self) -> int:
        return -(-max(self.now, self._latest) // spec.CYCLES_PER_STEP)

    def _advance(self, statements: Sequence[m.Statement]) -> None:
        for s in statements:
            if type(s) is m.Bundle:
                for instruction in s.instructions:
                    if instruction.mnemonic == "wait":
                        self.wait(instruction.operands[0].addr)  # type: ignore[union-attr]
                self.pause(1)
            elif type(s) is m.Nop:
                self.pause(s.count)
            elif type(s) is m.Move:
                self._move(s)
            elif type(s) is m.Loop:
                self._loop(s)
            elif type(s) is m.Marker and self.observe:
                self.observe(s.name, self.now)

    def _loop(self, loop: m.Loop) -> None:
        steps = plain_steps(loop.body)
        if steps is not None:
            self.pause(steps * loop.count)
            return
        for _ in range(loop.count):
            self._advance(loop.body)

    def _move(self, move: m.Move) -> None:
        known = self._known.get(id(move))
        if known is None or known[0] is not move:
            form = form_of(move)
            if form is None:
                known = (move, None, (), 0, 0)
            else:
                known = (move, form, ports_of(move, form), duration_of(move, form), _dram_lw(move, form))
            self._known[id(move)] = known
        _, form, ports, duration, dram = known
        if form is None:
            issue = self._issue()
            if move.tag:
                self._done[move.tag] = issue
            return
        issue, start, end = self.move(ports, duration, move.tag)
        self.dram_lw += dram
        if self.keep_transfers:
            symbol = next(
                (o.symbol or o.space for o in (move.src, move.dst) if o is not None and o.space != m.L2BM), ""
            )
            self.transfers.append(Transfer(move.mnemonic, issue, start, end, move.size, symbol))


def is_wait(s: m.Statement) -> bool:
    """Whether a statement does nothing but wait."""
    if type(s) is not m.Bundle or (s.instructions and s.instructions[0].mnemonic != "wait"):
        return False
    return all(i.mnemonic == "wait" for i in s.instructions)


def _dram_lw(move: m.Move, form) -> int:
    total = 0
    for side in (form.source, form.destination):
        if side.port == "dram":
            total += side.size(move.size) * (spec.GROUPS if side.scope in ("all", "block") else 1)
    return total


def plain_steps(body: Sequence[m.Statement]) -> int | None:
    """Steps of a body without moves, waits and markers; None for others."""
    total = 0
    for s in body:
        if type(s) is m.Bundle:
            if any(i.mnemonic == "wait" for i in s.instructions):
                return None
            total += 1
        elif type(s) is m.Nop:
            total += s.count
        elif type(s) is m.Loop:
            inner = plain_steps(s.body)
            if inner is None:
                return None
            total += inner * s.count
        else:
            return None
    return total
