"""The machine: runs statements on the state of one board and counts their time.

    machine = Machine()
    stats = machine.run(parse(text))
    machine.read("lm0", 0, 2)          # words 0 and 1 of every PE

Statements are decoded in stretches, executed, and forgotten, so that a program of any length takes bounded memory; a
short program
that runs again is kept decoded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import spec
from ..errors import ExecutionError
from ..isa import model as m
from ..isa.operands import bound
from ..isa.table import UnknownMnemonic
from ..memory.dram import PagedMemory
from ..memory.state import State
from . import moves
from .clock import Clock, Times
from .decoder import Call, Decoder
from .loops import Body, Per
from .loops import decode as decode_loop
from .mau import Decoded
from .views import View

CHUNK = 2048  # statements decoded at a time
KEPT_PROGRAMS = 16
KEPT_STATEMENTS = 40_000


@dataclass(slots=True)
class RunStats:
    """What a run took. steps = PE steps + stall steps; `dumps` holds the lines that `d get` wrote."""

    pe_steps: int = 0
    stall_steps: int = 0
    total_steps: int = 0
    cycles: int = 0
    moves: int = 0
    units: dict[str, int] = field(default_factory=dict)
    dumps: list[str] = field(default_factory=list)
    clock_hz: float = spec.CLOCK_HZ

    @property
    def seconds(self) -> float:
        """Simulated time."""
        return self.cycles / self.clock_hz


@dataclass(slots=True)
class Kept:
    """A decoded program and what its decoding took for granted."""

    statements: tuple
    symbols: dict[str, int]
    assumed: tuple
    calls: list[Callable[[], None]]
    times: Times | None = None


class Machine:
    """One emulated chip. Not thread-safe: a board runs one program at a time."""

    def __init__(
        self,
        dram: list[PagedMemory] | None = None,
        pdm: list[PagedMemory] | None = None,
        strict: bool = False,
        state: State | None = None,
    ) -> None:
        self.state = state or State(dram, pdm)
        self.strict = strict
        self.source = ""  # the text of the program, from which strict mode knows columns
        self.mask_setting: tuple[int, str, bool] = (0, "", False)
        self.dumps: list[str] = []
        self.expectations: list | None = None  # a list here collects the outcome of `# expect=` notes
        self.clock_hz: float = spec.CLOCK_HZ
        self.between: Callable[[], None] | None = None  # called between stretches of a program
        self.buffers: dict[tuple[str, int], list[np.ndarray]] = {}
        self.row_cache: dict[tuple, View] = {}
        self.bundle_cache: dict[tuple, tuple] = {}
        self.forward_cache: dict[tuple, dict[str, View]] = {}
        self.view_cache: dict[tuple, View] = {}
        self._decoded = {side: Decoded(raw) for side, raw in self.state.matrix.items()}
        self._programs: OrderedDict[int, Kept] = OrderedDict()

    # --- facts that the decoder builds on ------------------------------------------------------------------------------
    def decoded(self, side: str, precision: str) -> Decoded:
        return self._decoded[side]

    def t_low_zero(self) -> bool:
        """Whether the LSB LWs of T are zero now."""
        return not self.state.pe[m.T][:16].reshape(4, 4, -1)[:, 2:].any()

    def _bars_used(self) -> bool:
        return any(bar.any() for bar in self.state.bar.values())

    # --- running -------------------------------------------------------------------------------------------------------
    def run(
        self,
        statements: Iterable[m.Statement],
        symbols: Mapping[str, int] | None = None,
        on_marker: Callable[[str], None] | None = None,
        max_steps: int | None = None,
        on_event: Callable[[str, str, int, int, int], None] | None = None,
    ) -> RunStats:
        """Executes a program. `symbols` gives the DRAM address (LW) of each segment; max_steps ends it early."""
        if not isinstance(statements, (tuple, list)):
            statements = tuple(statements)
        symbols = dict(symbols or {})
        stats = RunStats(clock_hz=self.clock_hz)
        if max_steps is not None:
            statements = tuple(cut(statements, max_steps))
        kept = self._kept(statements, symbols) if on_marker is None and not self.strict else None
        if self.strict:
            calls: Iterable[Callable[[], None]] = self._decode_strictly(statements, symbols, on_marker)
        else:
            calls = kept.calls if kept is not None else self._decode(statements, symbols, on_marker)
        self.dumps.clear()
        for call in calls:
            if self.between is not None:
                self.between()
            call()
        stats.dumps = list(self.dumps)
        if kept is not None and kept.times is not None and on_event is None:
            times = kept.times
        else:
            clock = Clock(on_event)
            clock.run(statements)
            times = clock.finish()
            if kept is not None:
                kept.times = times
        stats.pe_steps, stats.cycles, stats.moves, stats.units = (
            times.pe_steps,
            times.cycles,
            times.moves,
            dict(times.units),
        )
        stats.stall_steps, stats.total_steps = times.stall_steps, times.total_steps
        return stats

    def _kept(self, statements: Sequence[m.Statement], symbols: dict[str, int]) -> Kept | None:
        """The decoded form of a short program that has run before under the same assumptions."""
        if not isinstance(statements, tuple) or len(statements) > KEPT_STATEMENTS:
            return None
        assumed = (self.mask_setting, self.t_low_zero(), self._bars_used())
        found = self._programs.get(id(statements))
        if (
            found is not None
            and found.statements is statements
            and found.symbols == symbols
            and found.assumed == assumed
        ):
            self._programs.move_to_end(id(statements))
            return found
        kept = Kept(statements, symbols, assumed, list(self._decode(statements, symbols, None)))
        self._programs[id(statements)] = kept
        while len(self._programs) > KEPT_PROGRAMS:
            self._programs.popitem(last=False)
        return kept

    def _decode(
        self, statements: Sequence[m.Statement], symbols: dict[str, int], on_marker: Callable[[str], None] | None
    ) -> Iterator[Callable[[], None]]:
        """The program, stretch by stretch, ready to be called."""
        dynamic_bar = self._bars_used() or _writes_bar(statements)
        decoder = Decoder(self, dynamic_bar)
        position = 0
        while position < len(statements):
            for statement in statements[position : position + CHUNK]:
                if isinstance(statement, m.Quit):
                    position = len(statements)
                    break
                self._statement(decoder, statement, symbols, on_marker)
            position += CHUNK
            yield Stretch(straight(decoder))
        self._settle(decoder)
        yield Stretch(straight(decoder))
        mask = decoder.mask

        def keep_mask() -> None:
            self.mask_setting = mask

        yield keep_mask

    def _decode_strictly(
        self, statements: Sequence[m.Statement], symbols: dict[str, int], on_marker: Callable[[str], None] | None
    ) -> Iterator[Callable[[], None]]:
        """Statement by statement, each judged before it is executed."""
        from .strict import Watch

        watch = Watch(self)
        for s in m.unroll(tuple(statements)):
            if isinstance(s, m.Quit):
                return
            resolved = resolve(s, symbols)
            watch.judge(resolved)
            yield from self._decode((resolved,), symbols, on_marker)

    def _statement(
        self, decoder: Decoder, s: m.Statement, symbols: dict[str, int], on_marker: Callable[[str], None] | None
    ) -> None:
        try:
            if isinstance(s, m.Bundle):
                decoder.bundle(_bound(s, symbols))
            elif isinstance(s, m.MaskLine):
                decoder.mask = (s.entry, s.targets, s.long2)
            elif isinstance(s, m.Move):
                addresses = [_address(o, symbols, decoder.indices, decoder.count) for o in (s.src, s.dst)]
                decoder.call(moves.execute, self.state, s, *addresses, batchable=False)
            elif isinstance(s, m.Loop):
                self._loop(decoder, s, symbols, on_marker)
            elif isinstance(s, m.Marker):
                if on_marker is not None:
                    decoder.call(on_marker, s.name)
            elif isinstance(s, (m.DebugGet, m.DebugSet, m.Preset)):
                from . import debug

                debug.decode(self, decoder, s)
        except UnknownMnemonic as error:
            raise ExecutionError(f"line {getattr(s, 'line', 0)}: {error}") from None

    def _loop(
        self, decoder: Decoder, loop: m.Loop, symbols: dict[str, int], on_marker: Callable[[str], None] | None
    ) -> None:
        outer = decoder.indices
        body = Body(loop, outer)
        if body.simple and loop.count > 1 and not decoder.count:
            result = decode_loop(decoder, loop, body, lambda s: self._statement(decoder, s, symbols, on_marker))
            if isinstance(result, list):
                decoder.calls += [Call(kernel, args) for kernel, args in result]
                return
            if result is not None:
                decoder.call(result)
                return
        for iteration in range(loop.count):
            decoder.indices = (*outer, iteration)
            decoder.depth = len(decoder.indices)
            for s in loop.body:
                self._statement(decoder, s, symbols, on_marker)
        decoder.indices = outer
        decoder.depth = len(outer)

    def _settle(self, decoder: Decoder) -> None:
        """At the end of a program the forward registers go where the next program looks for them."""
        from ..numerics.fast.rows import copy

        saved = {name: view for name, view in decoder.forward.items() if view.mem is not self.state.forward[name]}
        decoder.forward = dict(decoder.forward)
        for name, view in saved.items():
            home = decoder.home(name)
            decoder.call(copy, view.mem, view.words(4), home.mem, home.words(4))
            decoder.forward[name] = home

    # --- host access to PE memories and the like -----------------------------------------------------------------------
    def read(self, space: str, addr: int, count: int = 1) -> np.ndarray:
        """uint32 [count][4096]: words of a PE memory."""
        mem = self.state.pe[space]
        return mem[(addr + np.arange(count)) % (mem.shape[0] - 1)].copy()

    def write(self, space: str, addr: int, words: np.ndarray) -> None:
        """words: uint32 [count][4096] or [count]."""
        words = np.asarray(words, np.uint32)
        mem = self.state.pe[space]
        rows = (addr + np.arange(words.shape[0])) % (mem.shape[0] - 1)
        mem[rows] = words if words.ndim == 2 else words[:, None]


class Stretch:
    """Calls that are made in order."""

    __slots__ = ("calls",)

    def __init__(self, calls: list) -> None:
        self.calls = calls

    def __call__(self) -> None:
        for kernel, args in self.calls:
            kernel(*args)


def straight(decoder: Decoder) -> list[tuple[Callable, tuple]]:
    """The calls so far, ready to be made, and forgets them."""
    calls = [(c.kernel, c.args) for c in decoder.calls]
    decoder.calls = []
    return calls


def _address(o: m.Operand | None, symbols: Mapping[str, int], indices: tuple[int, ...], count: int) -> Any:
    """LW address of an operand, for each iteration of the loop that is being decoded (count > 0) if it advances there."""
    if o is None:
        return 0
    addr = o.addr + sum(s * i for s, i in zip(o.strides, indices))
    if o.symbol:
        if o.symbol not in symbols:
            raise ExecutionError(f"segment `{o.symbol}` has no address; pass it in symbols")
        addr += symbols[o.symbol]
    depth = len(indices)
    if count and len(o.strides) > depth and o.strides[depth]:
        return Per([addr + o.strides[depth] * i for i in range(count)])
    return addr


def _bound(s: m.Bundle, symbols: Mapping[str, int]) -> m.Bundle:
    """With the addresses of segments in its immediates."""
    if not any(isinstance(o, m.Immediate) and o.symbol for i in s.instructions for o in i.operands):
        return s
    return s.with_operands(lambda o: bound(o, symbols) if isinstance(o, m.Immediate) else o)


def resolve(s: m.Statement, symbols: Mapping[str, int]) -> m.Statement:
    """A move, or an immediate, with the addresses of its segments."""
    if isinstance(s, m.Bundle):
        return _bound(s, symbols)
    if not isinstance(s, m.Move):
        return s
    operands = [
        replace(o, addr=_address(o, symbols, (), 0), symbol="") if o is not None and o.symbol else o
        for o in (s.src, s.dst)
    ]
    return replace(s, src=operands[0], dst=operands[1])


def _writes_bar(statements: Iterable[m.Statement]) -> bool:
    for s in statements:
        if isinstance(s, m.Loop):
            if _writes_bar(s.body):
                return True
        elif isinstance(s, m.Bundle):
            for i in s.instructions:
                for o in i.operands:
                    if isinstance(o, m.Operand) and (o.space == m.BAR0 or o.space == m.BAR1):
                        return True
    return False


def cut(statements: Iterable[m.Statement], steps: int) -> Iterable[m.Statement]:
    """The first `steps` PE steps of a program, unrolled."""
    left = steps
    for s in m.unroll(tuple(statements)):
        if isinstance(s, m.Bundle):
            if left <= 0:
                return
            left -= 1
        elif isinstance(s, m.Nop):
            if left <= 0:
                return
            if s.count > left:
                yield m.Nop(left, s.note, s.line)
                return
            left -= s.count
        yield s
