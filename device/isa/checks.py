"""Static checks: operands, alignment, parallel issue (SDM 3.6.4), hazards (SDM 3.6.3), masks, moves and tags.

`check` looks at statements and gives every finding; it reads loops without unrolling them where their iterations look alike
and unrolls them where not. `insert_nops` mends hazards by empty steps. The machine itself executes in order whatever
the checks say: on the chip a hazard reads old data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .. import spec, timing
from . import model as m
from .diagnostics import ERROR, UNKNOWN, WARNING, Diagnostic
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
    use_of,
)
from .parser import _Problem, check_operands
from .table import UnknownMnemonic

#: A loop whose iterations differ is unrolled up to this many statements, beyond it only its ends are looked at.
MAX_UNROLLED = 200_000
_NAMES = {m.LM0: "LM0", m.LM1: "LM1", m.GRF0: "GRF0", m.GRF1: "GRF1", m.T: "T", m.BAR0: "LM0 BAR", m.BAR1: "LM1 BAR"}
_WIDTH_NAME = {m.W: "word", m.LW: "long word", m.LW2: "2-long word"}


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
_WINDOW = 4  # steps back that any rule looks
LM_DISTANCE = 3  # write => read of the same LM: two full steps between
GRF_CYCLES = 7  # write cycle => read cycle of the same GRF word
T_DISTANCE = 2
BAR_DISTANCE = 2


def fixed_mask_cycles(entry: int) -> tuple[bool, bool, bool, bool] | None:
    """Which cycles a fixed mask entry enables; None for the writable entries. 24 = 1000 [order inferred]."""
    if entry == 0:
        return ALL_CYCLES
    if entry < 16:
        return None
    return tuple(bool(entry >> (3 - c) & 1) for c in range(4))  # type: ignore[return-value]


class Checker:
    """Goes through a program in order. `report` receives (diagnostic, path, missing steps)."""

    def __init__(self, source: str = "", mend: bool = False, mend_unknown: bool = True) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []
        self.mend, self.mend_unknown = mend, mend_unknown
        self.nops: dict[tuple[int, ...], int] = {}
        self.now = 0
        self._mask = (0, "", False)
        self._tags: dict[int, m.Move] = {}
        self._moves: dict[int, list[tuple[Range, bool]]] = {}  # tag -> L2BM ranges with "is written"
        self._uses: dict[int, tuple[object, Use, list[Diagnostic]]] = {}
        self._seen: set[tuple] = set()
        self._forget()

    def _forget(self) -> None:
        """Start of a stretch whose predecessors are not known."""
        self._lm: dict[str, int] = {}
        self._bar: dict[str, int] = {}
        self._writes: list[tuple[int, PeAccess, tuple[bool, ...]]] = []
        self._l1: list[tuple[int, Range]] = []

    # --- walking -----------------------------------------------------------------------------------------------------
    def run(self, statements: Sequence[m.Statement]) -> None:
        self._walk(statements, (), ())

    def _walk(self, statements: Sequence[m.Statement], path: tuple[int, ...], indices: tuple[int, ...]) -> None:
        for position, statement in enumerate(statements):
            here = (*path, position)
            if isinstance(statement, m.Loop):
                self._loop(statement, here, indices)
            else:
                self._statement(statement, here, indices)
                if isinstance(statement, m.Quit):
                    return

    def _loop(self, loop: m.Loop, path: tuple[int, ...], indices: tuple[int, ...]) -> None:
        if loop.count < 1:
            self._add(Diagnostic(ERROR, "loop", f"a loop runs {loop.count} times", source=self.source), path)
            return
        steps = max(1, count_steps(loop.body))
        some = -(-_WINDOW // steps) + 1
        alike = _iterations_alike(loop, len(indices))
        if loop.count <= 2 * some or (not alike and loop.count * _size(loop.body) <= MAX_UNROLLED):
            for iteration in range(loop.count):
                self._walk(loop.body, path, (*indices, iteration))
            return
        if not alike:
            self._add(
                Diagnostic(
                    WARNING, "loop", f"a loop of {loop.count} iterations is too long to check whole", source=self.source
                ),
                path,
            )
        for iteration in range(some):
            self._walk(loop.body, path, (*indices, iteration))
        self.now += (loop.count - 2 * some) * steps
        self._forget()
        for iteration in range(loop.count - some, loop.count):
            self._walk(loop.body, path, (*indices, iteration))

    def _add(self, diagnostic: Diagnostic, path: tuple[int, ...]) -> None:
        # The same finding in another iteration of a loop is the same finding.
        key = (path, diagnostic.rule, diagnostic.message)
        if key not in self._seen:
            self._seen.add(key)
            self.diagnostics.append(diagnostic)

    def _error(
        self, path: tuple[int, ...], line: int, rule: str, message: str, hint: str = "", severity: str = ERROR
    ) -> None:
        self._add(Diagnostic(severity, rule, message, line, 0, hint, self.source), path)

    # --- one statement -----------------------------------------------------------------------------------------------
    def _statement(self, statement: m.Statement, path: tuple[int, ...], indices: tuple[int, ...]) -> None:
        if isinstance(statement, m.Bundle):
            if indices:
                statement = m._at(statement, indices)
            self._bundle(statement, path)  # type: ignore[arg-type]
        elif isinstance(statement, m.Nop):
            if statement.count < 1:
                self._error(path, statement.line, "syntax", f"nop/{statement.count} has no steps")
            self.now += statement.count
        elif isinstance(statement, m.MaskLine):
            self._mask_line(statement, path)
        elif isinstance(statement, m.Move):
            if indices:
                statement = m._at(statement, indices)
            self._move(statement, path)  # type: ignore[arg-type]
        elif isinstance(statement, (m.DebugGet, m.DebugSet)):
            self._debug(statement, path)
        elif isinstance(statement, m.Preset) and statement.addr + len(statement.values) > spec.DRAM_LW:
            self._error(path, statement.line, "address", f"DRAM address {statement.addr:#x} is outside 4 GiB")

    def _bundle(self, bundle: m.Bundle, path: tuple[int, ...]) -> None:
        known = self._uses.get(id(bundle.instructions))
        if known is None:
            try:
                for instruction in bundle.instructions:
                    check_instruction(instruction)
                use = use_of(bundle)
                findings = check_bundle(bundle, use)
            except UnknownMnemonic as error:
                self._error(path, bundle.line, "mnemonic", str(error), error.hint)
                self.now += 1
                return
            except _Problem as problem:
                self._error(path, bundle.line, problem.rule, str(problem), problem.hint)
                self.now += 1
                return
            if len(self._uses) > 50_000:
                self._uses.clear()
            self._uses[id(bundle.instructions)] = (bundle.instructions, use, findings)
        else:
            _, use, findings = known
        for finding in findings:
            self._error(path, bundle.line, finding.rule, finding.message, finding.hint, finding.severity)
        for tag in use.tags:
            self._tags.pop(tag, None)
            self._moves.pop(tag, None)
        self.now += self.nops.get(path, 0)
        self._hazards(use, bundle, path)
        self._races(use, bundle, path)
        self._record(use)
        self.now += 1

    # --- hazards -----------------------------------------------------------------------------------------------------
    def _hazards(self, use: Use, bundle: m.Bundle, path: tuple[int, ...]) -> None:
        worst = 0
        for missing, rule, message, severity in self._missing(use):
            if self.mend and (severity == ERROR or self.mend_unknown):
                worst = max(worst, missing)
            else:
                steps = f"{missing} step{'s' if missing != 1 else ''}"
                self._error(
                    path,
                    bundle.line,
                    rule,
                    f"{message}: {steps} missing",
                    f"insert nop{f'/{missing}' if missing > 1 else ''} before this line",
                    severity,
                )
        if worst:
            self.nops[path] = self.nops.get(path, 0) + worst
            self.now += worst

    def _missing(self, use: Use) -> list[tuple[int, str, str, str]]:
        found = []
        now = self.now
        for access in use.reads:
            if access.space in (m.LM0, m.LM1):
                since = now - self._lm.get(access.space, -99)
                if since < LM_DISTANCE:
                    found.append(
                        (
                            LM_DISTANCE - since,
                            "hazard.9",
                            f"{_NAMES[access.space]} is read {since} step{'s' if since > 1 else ''} after a write of it (2 "
                            f"steps between)",
                            ERROR,
                        )
                    )
            else:
                found += self._grf(access, now)
        if use.reads_t:
            for step, written, enabled in self._writes:
                if written.space == m.T and any(enabled) and now - step < T_DISTANCE:
                    found.append(
                        (
                            T_DISTANCE - (now - step),
                            "hazard.9",
                            "T is read in the step after its write (1 step between)",
                            ERROR,
                        )
                    )
        for space, bar in ((m.LM0, m.BAR0), (m.LM1, m.BAR1)):
            since = now - self._bar.get(bar, -99)
            if since < BAR_DISTANCE and any(a.space == space for a in (*use.reads, *use.writes)):
                found.append(
                    (
                        BAR_DISTANCE - since,
                        "hazard.bar",
                        f"{_NAMES[space]} is accessed in the step after a write of its base address (1 step between)",
                        ERROR,
                    )
                )
        for touched in (*use.l1_reads, *use.l1_writes):
            for rule in L1_RULES:
                if rule.consumer != touched.kind:
                    continue
                if rule.same_address and touched in use.l1_writes:
                    continue
                for step, earlier in self._l1:
                    since = now - step
                    if (
                        earlier.kind == rule.producer
                        and since < rule.distance
                        and (not rule.same_address or earlier.overlaps(touched, spec.L1BM_LW))
                    ):
                        found.append(
                            (
                                rule.distance - since,
                                rule.name,
                                f"{rule.producer} => {rule.consumer} needs {rule.distance - 1} "
                                f"step{'s' if rule.distance > 2 else ''} between",
                                rule.severity,
                            )
                        )
        return found

    def _grf(self, read: PeAccess, now: int) -> list[tuple[int, str, str, str]]:
        worst, text = 0, ""
        size = SIZES[read.space]
        for step, write, enabled in self._writes:
            if write.space != read.space or now - step > 2:
                continue
            for c in range(4):
                if not enabled[c]:
                    continue
                for k in range(4):
                    delta = 4 * (now - step) + k - c
                    if delta >= GRF_CYCLES:
                        continue
                    gap = (read.addrs[k] - write.addrs[c]) % size
                    if gap < write.width or size - gap < read.width:
                        missing = -(-(GRF_CYCLES - delta) // 4)
                        if missing > worst:
                            worst = missing
                            text = (
                                f"{_NAMES[read.space]} word {read.addrs[k] % size} is read in cycle {k}, {delta} cycles after "
                                f"its write in "
                                f"cycle {c} of {_ago(now - step)} (6 idle cycles between)"
                            )
        return [(worst, "hazard.9", text, ERROR)] if worst else []

    def _enabled(self, access: PeAccess) -> tuple[bool, ...]:
        """Cycles in which a write may happen."""
        if access.mask is not None:
            if access.mask.pattern is not None:
                return tuple(bool(bits) for bits in access.mask.pattern)
            return fixed_mask_cycles(access.mask.register or 0) or ALL_CYCLES
        entry, targets, _ = self._mask
        if entry == 0 and not targets:
            return ALL_CYCLES
        if MASK_LETTER[access.space] not in targets:
            return (False, False, False, False)
        return fixed_mask_cycles(entry) or ALL_CYCLES

    def _record(self, use: Use) -> None:
        now = self.now
        if self._writes and now - self._writes[0][0] > 2:
            self._writes = [w for w in self._writes if now - w[0] <= 2]
        for access in use.writes:
            if access.space in (m.LM0, m.LM1):
                self._lm[access.space] = now
            else:
                self._writes.append((now, access, self._enabled(access)))
        for bar in use.bar_writes:
            self._bar[bar] = now
        if use.l1_reads or use.l1_writes:
            self._l1 = [(step, r) for step, r in self._l1 if now - step < _WINDOW]
            self._l1 += [(now, r) for r in use.l1_writes]
            self._l1 += [(now, r) for r in use.l1_reads if r.kind == L1_TO_L2]

    # --- moves -------------------------------------------------------------------------------------------------------
    def _races(self, use: Use, bundle: m.Bundle, path: tuple[int, ...]) -> None:
        """Steps against moves that nobody has waited for."""
        if not self._moves or not (use.l2_reads or use.l2_writes):
            return
        for tag, ranges in self._moves.items():
            for moved, written in ranges:
                for touched, writes in ((r, False) for r in use.l2_reads):
                    if (written or writes) and moved.overlaps(touched, spec.L2BM_LW):
                        self._error(
                            path,
                            bundle.line,
                            "wait",
                            f"L2BM {touched.start}.. is read while move i{tag:02x} writes it",
                            f"wait i{tag:02x} first",
                        )
                for touched in use.l2_writes:
                    if moved.overlaps(touched, spec.L2BM_LW):
                        self._error(
                            path,
                            bundle.line,
                            "wait",
                            f"L2BM {touched.start}.. is written while move i{tag:02x} uses it",
                            f"wait i{tag:02x} first",
                        )

    def _move(self, move: m.Move, path: tuple[int, ...]) -> None:
        for rule, message, hint in check_move(move):
            self._error(path, move.line, rule, message, hint)
        if move.tag:
            if move.tag in self._tags:
                self._error(
                    path,
                    move.line,
                    "tag",
                    f"tag i{move.tag:02x} is used again before anything waited for it",
                    f"wait i{move.tag:02x} first, or use another tag",
                )
            self._tags[move.tag] = move
            ranges = []
            try:
                form = timing.form_of(move)
            except timing.UnknownMove:
                form = None
            if form is not None:
                for operand, side, written in ((move.src, form.source, False), (move.dst, form.destination, True)):
                    if operand is not None and operand.space == m.L2BM:
                        ranges.append((Range("MV", operand.addr, side.size(move.size)), written))
            self._moves[move.tag] = ranges

    # --- masks and debug lines ---------------------------------------------------------------------------------------
    def _mask_line(self, line: m.MaskLine, path: tuple[int, ...]) -> None:
        if not 0 <= line.entry < spec.MASK_ENTRIES:
            self._error(path, line.line, "mask", f"mask entry {line.entry} is outside 0..31")
        if line.entry and not line.targets:
            self._error(
                path,
                line.line,
                "mask",
                f"`mask {line.entry}` names no memory: every write is switched off",
                "name the memories: maskr, masks, maskt, maskm, maskn, maskk",
                WARNING,
            )
        self._mask = (line.entry, line.targets, line.long2)

    def _debug(self, statement: m.DebugGet | m.DebugSet, path: tuple[int, ...]) -> None:
        place = statement.place
        count = statement.count if isinstance(statement, m.DebugGet) else len(statement.values)
        limit, unit = DEBUG_SIZES[place.memory]
        if place.addr >= limit or count < 1 or place.addr + count * unit > limit:
            self._error(
                path,
                statement.line,
                "address",
                f"{place.memory} {place.addr} with {count} LW is outside 0..{limit - 1}",
            )


#: What debug statements may name: memory -> (size in address units, units per LW).
DEBUG_SIZES = {
    m.LM0: (spec.LM_WORDS, 2), m.LM1: (spec.LM_WORDS, 2), m.GRF0: (spec.GRF_WORDS, 2), m.GRF1: (spec.GRF_WORDS, 2),
    m.T: (spec.T_LW, 1), m.OMR: (spec.MASK_ENTRIES, 1), m.MAT_X: (spec.MATRIX_ROWS, 1), m.MAT_Y: (spec.MATRIX_ROWS, 1),
    m.L1BM: (spec.L1BM_LW, 1), m.L2BM: (spec.L2BM_LW, 1), m.DRAM: (spec.DRAM_LW, 1), m.PDM: (spec.PDM_LW, 1),
}  # fmt: skip


def _ago(steps: int) -> str:
    return "the step before" if steps == 1 else f"{steps} steps before"


def count_steps(statements: Iterable[m.Statement]) -> int:
    """PE steps of statements, loops included."""
    total = 0
    for s in statements:
        if isinstance(s, m.Bundle):
            total += 1
        elif isinstance(s, m.Nop):
            total += s.count
        elif isinstance(s, m.Loop):
            total += s.count * count_steps(s.body)
    return total


def _size(statements: Iterable[m.Statement]) -> int:
    return sum(s.count * _size(s.body) if isinstance(s, m.Loop) else 1 for s in statements)


def _iterations_alike(loop: m.Loop, depth: int) -> bool:
    """All operands of one memory advance by the same stride at this depth, so that their distances never change."""
    strides: dict[str, int] = {}
    alike = True

    def visit(statements: Iterable[m.Statement]) -> None:
        nonlocal alike
        for s in statements:
            if isinstance(s, m.Loop):
                visit(s.body)
                continue
            if isinstance(s, m.Bundle):
                operands = [o for i in s.instructions for o in i.operands if isinstance(o, m.Operand)]
            elif isinstance(s, m.Move):
                operands = [o for o in (s.src, s.dst) if o is not None]
            else:
                continue
            for o in operands:
                # LM hazards do not look at addresses; DRAM, PDM and registers are not checked by address.
                if o.space in (m.GRF0, m.GRF1, m.L1BM, m.L2BM):
                    stride = o.strides[depth] if depth < len(o.strides) else 0
                    if strides.setdefault(o.space, stride) != stride:
                        alike = False

    visit(loop.body)
    return alike


# --- rules for one instruction, one bundle, one move -------------------------------------------------------------------
def check_instruction(instruction: m.Instruction) -> None:
    """The operands fit the instruction's row; raises UnknownMnemonic or a problem."""
    from .table import lookup

    opcode = lookup(instruction.mnemonic)
    check_operands(opcode, instruction.operands)
    if instruction.flush is not None and not opcode.row.flush:
        raise _Problem("mask", f"`{instruction.mnemonic}` takes no zero flush")


def check_bundle(bundle: m.Bundle, use: Use | None = None) -> list[Diagnostic]:
    """Alignment and parallel-issue rules of one step."""
    use = use or use_of(bundle)
    found: list[Diagnostic] = []

    def error(rule: str, message: str, hint: str = "") -> None:
        found.append(Diagnostic(ERROR, rule, message, bundle.line, 0, hint))

    for rule in BUNDLE_RULES:
        rule(bundle, use, error)
    return found


Report = Callable[..., None]


def _alignment(bundle: m.Bundle, use: Use, error: Report) -> None:
    """LW addresses are even, 2LW addresses multiples of 4, in every cycle."""
    for access in (*use.reads, *use.writes):
        if access.space == m.T:
            continue
        size = SIZES[access.space]
        base = access.operand.flat or (access.operand.addr,)
        if any(not 0 <= a < size for a in base):
            error("address", f"{_NAMES[access.space]} address {max(base, key=abs)} is outside 0..{size - 1}")
        if access.width > 1 and any(a % access.width for a in access.addrs):
            bad = next(a for a in access.addrs if a % access.width)
            error(
                "alignment",
                f"{_NAMES[access.space]} address {bad} is not aligned to a {_WIDTH_NAME[access.width]}",
                f"use a multiple of {access.width}",
            )
    for kind, ranges, size in (
        ("L1BM", (*use.l1_reads, *use.l1_writes), spec.L1BM_LW),
        ("L2BM", (*use.l2_reads, *use.l2_writes), spec.L2BM_LW),
    ):
        for touched in ranges:
            if not 0 <= touched.start < size:
                error("address", f"{kind} address {touched.start} is outside 0..{size - 1}")
    for instruction, opcode in zip(bundle.instructions, use.opcodes):
        for operand, unit in zip(instruction.operands, L_ALIGNMENT.get(opcode.operation, ())):
            if not isinstance(operand, m.Operand) or operand.space not in (m.L1BM, m.L2BM):
                continue
            if opcode.operation == "l1bmr4":
                unit = 32 if operand.width == m.LW2 else 16
            if operand.addr % unit:
                error("alignment", f"`{instruction.mnemonic}`: address {operand.addr} is not a multiple of {unit}")


#: operation -> alignment of each operand's L1BM or L2BM address, in LW (SDM 3.6.7, 3.6.8).
L_ALIGNMENT = {"l2bmb2": (64, 16), "l2bmr2": (16, 64), "l2bmi": (16, 16), "l1bmr4": (1, 32)}


def _matrix_rows(bundle: m.Bundle, use: Use, error: Report) -> None:
    """Matrix rows: within the precision's count, aligned; `$ll` only for hmwrite, and always for hmread."""
    for instruction, opcode in zip(bundle.instructions, use.opcodes):
        if opcode.unit not in ("mwrite", "mread"):
            continue
        operand = next(o for o in instruction.operands if isinstance(o, m.Operand) and o.space in (m.MAT_X, m.MAT_Y))
        name, rows = instruction.mnemonic, spec.MATRIX_SIZE[opcode.precision]
        if not 0 <= operand.addr < rows:
            error("address", f"`{name}`: row {operand.addr} is outside 0..{rows - 1}")
        if operand.width == m.LW2:
            if name != "hmwrite" and name != "hmread":
                error("operand", f"`{name}` takes $l{_side(operand)}, not $ll{_side(operand)}")
            elif operand.addr % 2:
                error("alignment", f"`{name}`: row {operand.addr} is not even, and two rows are accessed a cycle")
        elif name == "hmread":
            error("operand", f"`hmread` takes $ll{_side(operand)} only")


def _side(operand: m.Operand) -> str:
    return "x" if operand.space == m.MAT_X else "y"


def _groups(bundle: m.Bundle, use: Use, error: Report) -> None:
    """At most one instruction of each issue group."""
    taken: dict[str, str] = {}
    for instruction, opcode in zip(bundle.instructions, use.opcodes):
        group = opcode.unit
        if group == "l1bm" and is_turnaround(instruction):
            group = "l1bm turnaround"
        if group in taken:
            error(
                "parallel",
                f"`{taken[group]}` and `{instruction.mnemonic}` both need the {GROUP_NAMES.get(group, group)}",
                "one of each group a step",
            )
        taken.setdefault(group, instruction.mnemonic)
    if "nop" in taken and len(bundle.instructions) > 1 + ("wait" in taken):
        error("parallel", "nop may only stand beside wait")
    math = [(i.mnemonic, o) for i, o in zip(bundle.instructions, use.opcodes) if o.unit in ("mau", "mwrite", "mread")]
    if len(math) > 2:
        error("parallel", f"at most two of MAU calculation, mwrite and mread a step, here {len(math)}")
    if len({o.precision for _, o in math}) > 1:
        error(
            "parallel",
            f"`{math[0][0]}` and `{math[1][0]}` have different precisions",
            "MAU, mwrite and mread of a step share one",
        )


GROUP_NAMES = {"mau": "MAU", "alu": "ALU", "l1bm": "L1BM port", "l2bm": "L2BM port", "dar": "DAR writer"}


def _second_factor(bundle: m.Bundle, use: Use, error: Report) -> None:
    """vfma/vmul beside mwrite: the second factor and the source of mwrite are one operand."""
    write = next((i for i, o in zip(bundle.instructions, use.opcodes) if o.unit == "mwrite"), None)
    for instruction, opcode in zip(bundle.instructions, use.opcodes):
        if (
            write
            and opcode.unit == "mau"
            and opcode.operation in ("vfma", "vmul")
            and instruction.operands[1] != write.operands[0]
        ):
            error(
                "parallel",
                f"`{instruction.mnemonic}` beside `{write.mnemonic}`: its second factor must be the operand that "
                f"is written to the matrix",
            )


def _matrix_sides(bundle: m.Bundle, use: Use, error: Report) -> None:
    """Each matrix register side at most once."""
    for side in (m.MAT_X, m.MAT_Y):
        users = [bundle.instructions[index].mnemonic for space, index in use.matrix if space == side]
        if len(users) > 1:
            error(
                "parallel",
                f"`{users[0]}` and `{users[1]}` both use $l{'x' if side == m.MAT_X else 'y'}",
                "each matrix register side once a step",
            )


def _ports(bundle: m.Bundle, use: Use, error: Report) -> None:
    """One read address and one write address per memory and cycle; LM reads and writes share theirs."""
    for space in (m.GRF0, m.GRF1, m.LM0, m.LM1, m.T):
        reads = [a for a in use.reads if a.space == space]
        writes = [a for a in use.writes if a.space == space]
        if space != m.T and len({a.key for a in reads}) > 1:
            texts = sorted({_text(a.operand) for a in reads})
            error(
                "port",
                f"{_NAMES[space]} is read at different addresses: {', '.join(texts)}",
                "one address per memory and cycle; copy one operand elsewhere",
            )
        if len(writes) > 1:
            error(
                "port",
                f"{_NAMES[space]} is written twice: {', '.join(_text(a.operand) for a in writes)}",
                "one write per memory and step",
            )
        if space in (m.LM0, m.LM1) and reads and writes and any(r.key != w.key for r in reads for w in writes):
            error(
                "port",
                f"{_NAMES[space]} is read at {_text(reads[0].operand)} and written at {_text(writes[0].operand)}",
                "an LM has one port: use the same addresses, or the other LM",
            )
    for entry in set(use.omr_writes):
        if use.omr_writes.count(entry) > 1:
            error("port", f"mask entry {entry} is written twice")
    for bar in set(use.bar_writes):
        if use.bar_writes.count(bar) > 1:
            error("port", f"{_NAMES[bar]} is written twice")


def _text(operand: m.Operand) -> str:
    from dataclasses import replace

    from .operands import format_operand

    return format_operand(replace(operand, mask=None, negate=False, extend=False, reduce=False, strides=()))


def _immediate(bundle: m.Bundle, use: Use, error: Report) -> None:
    """imm cannot share a step with any access of LM0."""
    if any(o.operation in ("imm", "immu") for o in use.opcodes) and any(
        a.space == m.LM0 for a in (*use.reads, *use.writes)
    ):
        error("parallel", "imm cannot share a step with an access of LM0", "write it to a GRF, T or LM1")


def _masks(bundle: m.Bundle, use: Use, error: Report) -> None:
    """Masks of one step agree in length and entry; one flush; legal entries; width assertions hold."""
    for mask, _ in use.masks:
        if mask.pattern is not None and any(bits not in (0, 15) for bits in mask.pattern):
            error("mask", f"mask pattern {mask.pattern}: values are 0 or 15 per cycle")
        if mask.register is not None and not 0 <= mask.register < spec.MASK_ENTRIES:
            error("mask", f"mask entry {mask.register} is outside 0..31")
    if len({mask.long2 for mask, _ in use.masks}) > 1:
        error("mask", "masks of different length in one step", "all /... or all /ll...")
    elif len({mask_entry(mask) for mask, _ in use.masks}) > 1:
        error("mask", "different masks in one step", "all single-line masks of a step name the same entry")
    if sum(kind == "flush" for _, kind in use.masks) > 1:
        error("mask", "more than one zero flush in a step")
    for instruction, opcode in zip(bundle.instructions, use.opcodes):
        for operand in instruction.operands:
            if isinstance(operand, m.Operand):
                if operand.space == m.OMR:
                    if operand.addr not in spec.WRITABLE_MASKS:
                        error("mask", f"$omr{operand.addr} cannot be written", "entries 1..15 can")
                    if not opcode.row.flags:
                        error("mask", f"`{instruction.mnemonic}` makes no flag for $omr{operand.addr}")
                if operand.mask is not None and operand.mask.assertion:
                    _assertion(operand, operand.mask, error)


def mask_entry(mask: m.Mask) -> int | tuple[int, ...]:
    """The entry that a mask reads: /1000 is the fixed entry 24."""
    if mask.pattern is None:
        return mask.register or 0
    if any(bits not in (0, 15) for bits in mask.pattern):
        return mask.pattern
    return 16 + sum(bool(bits) << (3 - c) for c, bits in enumerate(mask.pattern))


def _assertion(operand: m.Operand, mask: m.Mask, error: Report) -> None:
    """Trailing t: the mask covers the whole access; trailing p: it covers a part [reading of the letters inferred]."""
    covered = operand.width == m.LW2 if mask.long2 else operand.width in (m.W, m.LW)
    if "t" in mask.assertion and not covered:
        error("mask", f"`{_text(operand)}`: the access is not as wide as its mask (assertion t)")
    if "p" in mask.assertion and covered:
        error("mask", f"`{_text(operand)}`: the access is as wide as its mask (assertion p)")


BUNDLE_RULES = (_alignment, _matrix_rows, _groups, _second_factor, _matrix_sides, _ports, _immediate, _masks)


_MOVE_SIZE = {m.DRAM: spec.DRAM_LW, m.PDM: spec.PDM_LW, m.L2BM: spec.L2BM_LW, m.DRAM_INDIRECT: spec.DAR_ENTRIES}


def check_move(move: m.Move) -> list[tuple[str, str, str]]:
    """(rule, message, hint) for each thing that is wrong with an MV line."""
    found = []
    try:
        form = timing.form_of(move)
    except timing.UnknownMove as error:
        return [("operand", str(error), "")]
    if move.tag and not 1 <= move.tag <= 0x3F:
        found.append(("tag", f"tag {move.tag:#x} is outside i01..i3f", ""))
    if move.priority is not None and not 0 <= move.priority <= 3:
        found.append(("operand", f"priority {move.priority} is outside 0..3", ""))
    if form is None:
        return found
    if move.size <= 0 or move.size % form.unit:
        found.append(
            ("alignment", f"`{move.mnemonic}` of {move.size} LW: the size is a positive multiple of {form.unit}", "")
        )
    for operand, side in ((move.src, form.source), (move.dst, form.destination)):
        assert operand is not None
        if operand.group is not None and not 0 <= operand.group < spec.GROUPS:
            found.append(("address", f"group {operand.group} is outside 0..3", ""))
        if operand.block is not None and not 0 <= operand.block < spec.L2B_PER_GROUP:
            found.append(("address", f"L2B {operand.block} is outside 0..1", ""))
        size = _MOVE_SIZE[operand.space]
        if not operand.symbol and not 0 <= operand.addr < size:
            found.append(("address", f"{operand.space} address {operand.addr} is outside 0..{size - 1}", ""))
        elif not operand.symbol and operand.space != m.DRAM_INDIRECT and side.size(move.size) > size:
            found.append(("address", f"{side.size(move.size)} LW do not fit in {operand.space} ({size} LW)", ""))
    return found


# --- entry points ------------------------------------------------------------------------------------------------------
def check(statements: Sequence[m.Statement], source: str = "") -> list[Diagnostic]:
    """Every finding about a program, in program order."""
    checker = Checker(source)
    checker.run(statements)
    return checker.diagnostics


def insert_nops(statements: Sequence[m.Statement], unknown: bool = True) -> tuple[m.Statement, ...]:
    """The program with empty steps where hazards need them, in loop bodies too.

    `unknown`: also where the documents do not settle the distance.
    """
    checker = Checker(mend=True, mend_unknown=unknown)
    checker.run(statements)
    return _with_nops(statements, checker.nops, ()) if checker.nops else tuple(statements)


def _with_nops(
    statements: Sequence[m.Statement], nops: dict[tuple[int, ...], int], path: tuple[int, ...]
) -> tuple[m.Statement, ...]:
    result: list[m.Statement] = []
    for position, statement in enumerate(statements):
        here = (*path, position)
        count = nops.get(here, 0)
        if count:
            result.append(m.Nop(count))
        if isinstance(statement, m.Loop):
            result.append(m.Loop(statement.count, _with_nops(statement.body, nops, here)))
        else:
            result.append(statement)
    return tuple(result)
