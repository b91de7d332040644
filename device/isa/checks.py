"""Static checks of a program: every step and move by itself (rules.py), hazards (hazards.py), moves and their tags.

`check` gives every finding; it reads loops without unrolling them where their iterations look alike and unrolls them
where not. `insert_nops` mends hazards by empty steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import spec, timing
from . import expectations
from . import model as m
from .columns import with_columns
from .diagnostics import ERROR, WARNING, Diagnostic
from .footprint import Range, Use, new_use, shape_of
from .hazards import BAR_DISTANCE, GRF_CYCLES, L1_RULES, LM_DISTANCE, T_DISTANCE, WINDOW, Hazards
from .parser import Problem
from .rules import BUNDLE_RULES, check_bundle, check_instruction, check_move, fixed_mask_cycles, place_of
from .table import UnknownMnemonic

__all__ = [
    "BAR_DISTANCE", "BUNDLE_RULES", "GRF_CYCLES", "L1_RULES", "LM_DISTANCE", "T_DISTANCE", "check", "check_bundle",
    "check_instruction", "check_move", "count_steps", "fixed_mask_cycles", "insert_nops",
]  # fmt: skip

#: A loop whose iterations differ is unrolled up to this many statements, beyond it only its ends are looked at.
MAX_UNROLLED = 1_000_000
#: Findings of one severity that are kept; the others are counted.
MAX_FINDINGS = 1000
#: Loops inside each other.
MAX_DEPTH = 100
_KEPT_USES = 65_536


class Checker:
    """Goes through a program in order, collecting findings, or with `mend` the empty steps that mend its hazards."""

    def __init__(self, source: str = "", mend: bool = False, mend_unknown: bool = True) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []
        self.mend, self.mend_unknown = mend, mend_unknown
        self.nops: dict[tuple[int, ...], int] = {}
        self.hazards = Hazards()
        self._tags: dict[int, m.Move] = {}
        self._moves: dict[int, list[tuple[Range, bool]]] = {}  # tag -> L2BM ranges with "is written"
        self._uses: dict[int, tuple[object, Use, list[Diagnostic]]] = {}
        self._seen: set[tuple] = set()
        self._counts: dict[str, int] = {}

    # --- walking -----------------------------------------------------------------------------------------------------
    def run(self, statements: Sequence[m.Statement]) -> None:
        self._walk(statements, (), ())
        for severity, count in self._counts.items():
            if count > MAX_FINDINGS:
                message = f"{count - MAX_FINDINGS} more findings of this severity are not shown"
                self.diagnostics.append(Diagnostic(severity, "limit", message, source=self.source))

    def _walk(self, statements: Sequence[m.Statement], path: tuple[int, ...], indices: tuple[int, ...]) -> None:
        hazards, uses, nops = self.hazards, self._uses, self.nops
        for position, statement in enumerate(statements):
            kind = type(statement)
            if kind is m.Bundle:
                if indices:
                    statement = m.at_iteration(statement, indices)
                known = uses.get(id(statement.instructions)) or self._new_use(statement, (*path, position))  # type: ignore[union-attr, arg-type]
                if known is not None:
                    use = known[1]
                    if nops or known[2] or not use.shape.plain or hazards.blocks(use):
                        self._bundle(statement, use, known[2], (*path, position))  # type: ignore[arg-type]
                    hazards.record(use, statement)  # type: ignore[arg-type]
                hazards.now += 1
            elif kind is m.Loop:
                self._loop(statement, (*path, position), indices)  # type: ignore[arg-type]
            else:
                self._other(statement, (*path, position), indices)
                if kind is m.Quit:
                    return

    def _loop(self, loop: m.Loop, path: tuple[int, ...], indices: tuple[int, ...]) -> None:
        if len(path) > MAX_DEPTH:
            text = f"loops are nested more than {MAX_DEPTH} deep"
            self._add(Diagnostic(ERROR, "loop", text, source=self.source), path)
            return
        if loop.count < 1:
            self._add(Diagnostic(ERROR, "loop", f"a loop runs {loop.count} times", source=self.source), path)
            return
        steps = max(1, count_steps(loop.body))
        some = -(-WINDOW // steps) + 1
        alike = iterations_alike(loop, len(indices))
        if loop.count <= 2 * some or (not alike and loop.count * _size(loop.body) <= MAX_UNROLLED):
            for iteration in range(loop.count):
                self._walk(loop.body, path, (*indices, iteration))
            return
        if not alike:
            text = f"a loop of {loop.count} iterations is too long to check whole"
            self._add(Diagnostic(WARNING, "loop", text, source=self.source), path)
        for iteration in range(some):
            self._walk(loop.body, path, (*indices, iteration))
        self.hazards.now += (loop.count - 2 * some) * steps
        self.hazards.forget()
        for iteration in range(loop.count - some, loop.count):
            self._walk(loop.body, path, (*indices, iteration))

    def _add(self, diagnostic: Diagnostic, path: tuple[int, ...]) -> None:
        if len(path) > 1:  # the same finding in another iteration of a loop is the same finding
            key = (path, diagnostic.rule, diagnostic.message)
            if key in self._seen or len(self._seen) > 100_000:
                return
            self._seen.add(key)
        count = self._counts[diagnostic.severity] = self._counts.get(diagnostic.severity, 0) + 1
        if count <= MAX_FINDINGS:
            self.diagnostics.append(diagnostic)

    def _error(
        self, path: tuple[int, ...], line: int, rule: str, message: str, hint: str = "", severity: str = ERROR,
        place: tuple[int, int] | None = (0, 0),
    ) -> None:  # fmt: skip
        self._add(Diagnostic(severity, rule, message, line, 0, hint, self.source, place), path)

    # --- steps -------------------------------------------------------------------------------------------------------
    def _bundle(self, bundle: m.Bundle, use: Use, findings: list[Diagnostic], path: tuple[int, ...]) -> None:
        hazards = self.hazards
        for f in findings:
            self._error(path, bundle.line, f.rule, f.message, f.hint, f.severity, f.place)
        for tag in use.tags:
            self._tags.pop(tag, None)
            self._moves.pop(tag, None)
        hazards.now += self.nops.get(path, 0)
        missing = hazards.missing(use)
        if missing:
            self._report(missing, bundle, path)
        if use.shape.networks:
            self._turnaround(use, bundle, path)
            if self._moves:
                self._races(use, bundle, path)

    def _new_use(self, bundle: m.Bundle, path: tuple[int, ...]) -> tuple[object, Use, list[Diagnostic]] | None:
        try:
            use = new_use(bundle, shape_of(bundle))
            findings = check_bundle(bundle, use)
        except UnknownMnemonic as error:
            self._error(path, bundle.line, "mnemonic", str(error), error.hint)
            return None
        except Problem as problem:
            self._error(path, bundle.line, problem.rule, str(problem), problem.hint)
            return None
        if len(self._uses) >= _KEPT_USES:
            self._uses.clear()
        known = self._uses[id(bundle.instructions)] = (bundle.instructions, use, findings)
        return known

    def _report(self, missing: list, bundle: m.Bundle, path: tuple[int, ...]) -> None:
        worst = 0
        for hazard in missing:
            if self.mend and (hazard.severity == ERROR or self.mend_unknown):
                worst = max(worst, hazard.steps)
                continue
            steps = f"{hazard.steps} step{'s' if hazard.steps != 1 else ''}"
            nops = f"insert nop{f'/{hazard.steps}' if hazard.steps > 1 else ''} before this line"
            place = place_of(bundle, hazard.at)
            self._error(
                path, bundle.line, hazard.rule, f"{hazard.message}: {steps} missing", nops, hazard.severity, place
            )
        if worst:
            self.nops[path] = self.nops.get(path, 0) + worst
            self.hazards.now += worst

    def _turnaround(self, use: Use, bundle: m.Bundle, path: tuple[int, ...]) -> None:
        found = self.hazards.turnaround(use, bundle)
        if found is not None:
            severity, message, at = found
            hint = "read it with the instruction that wrote it"
            self._error(path, bundle.line, "turnaround", message, hint, severity, place_of(bundle, at))

    def _races(self, use: Use, bundle: m.Bundle, path: tuple[int, ...]) -> None:
        """Steps against moves that nobody has waited for."""
        for tag, ranges in self._moves.items():
            for moved, written in ranges:
                for touched, writes in [(r, False) for r in use.l2_reads] + [(r, True) for r in use.l2_writes]:
                    if not (written or writes) or not moved.overlaps(touched, spec.L2BM_LW):
                        continue
                    what = "is written while move {} uses it" if writes else "is read while move {} writes it"
                    message = f"L2BM {touched.start}.. {what.format(f'i{tag:02x}')}"
                    place = place_of(bundle, touched.operand)
                    self._error(path, bundle.line, "wait", message, f"wait i{tag:02x} first", ERROR, place)

    # --- the other statements ----------------------------------------------------------------------------------------
    def _other(self, statement: m.Statement, path: tuple[int, ...], indices: tuple[int, ...]) -> None:
        if isinstance(statement, m.Nop):
            if statement.count < 1:
                self._error(path, statement.line, "syntax", f"nop/{statement.count} has no steps", "nop/1 or more")
            self.hazards.now += statement.count
        elif isinstance(statement, m.MaskLine):
            self._mask_line(statement, path)
        elif isinstance(statement, m.Move):
            self._move(m.at_iteration(statement, indices) if indices else statement, path)  # type: ignore[arg-type]
        elif isinstance(statement, (m.DebugGet, m.DebugSet)):
            self._debug(statement, path)
        elif isinstance(statement, m.Preset) and statement.addr + len(statement.values) > spec.DRAM_LW:
            end = statement.addr + len(statement.values)
            self._error(
                path,
                statement.line,
                "address",
                f"DRAM address {end - 1:#x} is outside 4 GiB",
                f"below {spec.DRAM_LW:#x}",
            )

    def _move(self, move: m.Move, path: tuple[int, ...]) -> None:
        for found in check_move(move):
            self._error(path, move.line, found.rule, found.message, found.hint, found.severity, found.place)
        if not move.tag:
            return
        if move.tag in self._tags:
            message = f"tag i{move.tag:02x} is used again before anything waited for it"
            self._error(path, move.line, "tag", message, f"wait i{move.tag:02x} first, or use another tag")
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
        self.hazards.mask = (line.entry, line.targets, line.long2)

    def _debug(self, statement: m.DebugGet | m.DebugSet, path: tuple[int, ...]) -> None:
        place = statement.place
        count = statement.count if isinstance(statement, m.DebugGet) else len(statement.values)
        limit, unit = DEBUG_SIZES[place.memory]
        if count < 1:
            self._error(path, statement.line, "address", f"{count} LW are nothing to read or write", "1 or more")
        elif place.addr >= limit or place.addr + count * unit > limit:
            message = f"{place.memory} {place.addr} with {count} LW is outside 0..{limit - 1}"
            hint = f"at most {max(0, limit - place.addr) // unit} LW from there"
            self._error(path, statement.line, "address", message, hint)
        if isinstance(statement, m.DebugGet):
            try:
                expectations.read(statement.note)
            except expectations.BadExpectation as error:
                self._error(path, statement.line, "expect", str(error))


#: What debug statements may name: memory -> (size in address units, units per LW).
DEBUG_SIZES = {
    m.LM0: (spec.LM_WORDS, 2), m.LM1: (spec.LM_WORDS, 2), m.GRF0: (spec.GRF_WORDS, 2), m.GRF1: (spec.GRF_WORDS, 2),
    m.T: (spec.T_LW, 1), m.OMR: (spec.MASK_ENTRIES, 1), m.MAT_X: (spec.MATRIX_ROWS, 1), m.MAT_Y: (spec.MATRIX_ROWS, 1),
    m.L1BM: (spec.L1BM_LW, 1), m.L2BM: (spec.L2BM_LW, 1), m.DRAM: (spec.DRAM_LW, 1), m.PDM: (spec.PDM_LW, 1),
}  # fmt: skip


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


# --- loops ---------------------------------------------------------------------------------------------------------------
def iterations_alike(loop: m.Loop, depth: int) -> bool:
    """Whether what one iteration finds holds for all: distances between accesses of one memory never change.

    They do not where operands advance by the same stride, and they do not matter where the words that two groups of
    operands reach in all iterations are apart.
    """
    reach: dict[str, dict[int, tuple[int, int]]] = {}  # memory -> stride -> lowest and highest word
    for operand, counts in _operands(loop.body, (loop.count,)):
        # LM hazards do not look at addresses; DRAM, PDM and registers are not checked by address.
        if operand.space not in (m.GRF0, m.GRF1, m.L1BM, m.L2BM):
            continue
        strides = operand.strides[depth : depth + len(counts)]
        stride = strides[0] if strides else 0
        moved = [s * (count - 1) for s, count in zip(strides, counts)]
        addrs = [operand.addr + operand.inc * c for c in range(4)] if operand.flat is None else list(operand.flat)
        low = min(addrs) + sum(min(0, d) for d in moved)
        high = max(addrs) + sum(max(0, d) for d in moved) + _MOST_TOUCHED.get(operand.space, 4)
        old = reach.setdefault(operand.space, {}).get(stride, (low, high))
        reach[operand.space][stride] = (min(low, old[0]), max(high, old[1]))
    return all(_apart(sorted(groups.values()), space) for space, groups in reach.items())


_MOST_TOUCHED = {m.L1BM: 256, m.L2BM: 1 << 30}  # LW from the address on; moves take any number


def _apart(ranges: list[tuple[int, int]], space: str) -> bool:
    if len(ranges) == 1:
        return True
    size = {m.L1BM: spec.L1BM_LW, m.L2BM: spec.L2BM_LW}.get(space, spec.GRF_WORDS)
    inside = all(low >= 0 and high <= size for low, high in ranges)
    return inside and all(a[1] <= b[0] for a, b in zip(ranges, ranges[1:]))


def _operands(
    statements: Iterable[m.Statement], counts: tuple[int, ...]
) -> Iterable[tuple[m.Operand, tuple[int, ...]]]:
    for s in statements:
        if isinstance(s, m.Loop):
            yield from _operands(s.body, (*counts, s.count))
        elif isinstance(s, m.Bundle):
            for instruction in s.instructions:
                for o in instruction.operands:
                    if isinstance(o, m.Operand):
                        yield o, counts
        elif isinstance(s, m.Move):
            for operand in (s.src, s.dst):
                if operand is not None:
                    yield operand, counts


# --- entry points ------------------------------------------------------------------------------------------------------
def check(statements: Sequence[m.Statement], source: str = "", text: str | None = None) -> list[Diagnostic]:
    """Every finding about a program, in program order; with its `text` also their columns."""
    checker = Checker(source)
    checker.run(statements)
    return with_columns(checker.diagnostics, text) if text is not None else checker.diagnostics


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
