"""Rules of one instruction, one step and one move: operands, alignment, parallel issue (SDM 3.6.4), masks.

Rules that look at the shape of a step only (mnemonics and kinds of operands) are applied once for each shape; the others
are applied where the shape has something for them to look at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .. import spec, timing
from . import model as m
from .diagnostics import ERROR, UNKNOWN, WARNING, Diagnostic
from .footprint import ALL_CYCLES, SIZES, PeAccess, Shape, Use, is_turnaround, use_of
from .operands import format_operand
from .parser import check_flush, check_operands

NAMES = {m.LM0: "LM0", m.LM1: "LM1", m.GRF0: "GRF0", m.GRF1: "GRF1", m.T: "T", m.BAR0: "LM0 BAR", m.BAR1: "LM1 BAR"}
_WIDTH_NAME = {m.W: "word", m.LW: "long word", m.LW2: "2-long word"}


def fixed_mask_cycles(entry: int) -> tuple[bool, bool, bool, bool] | None:
    """Which cycles a fixed mask entry enables; None for the writable entries. 24 = 1000 [order inferred]."""
    if entry == 0:
        return ALL_CYCLES
    if entry < 16:
        return None
    return tuple(bool(entry >> (3 - c) & 1) for c in range(4))  # type: ignore[return-value]


# --- one instruction, one step ------------------------------------------------------------------------------------------
def check_instruction(instruction: m.Instruction) -> None:
    """The operands fit the instruction's row; raises UnknownMnemonic or a Problem."""
    from .table import lookup

    opcode = lookup(instruction.mnemonic)
    check_operands(opcode, instruction.operands)
    check_flush(opcode, instruction.operands, instruction.flush)


def check_bundle(bundle: m.Bundle, use: Use | None = None) -> list[Diagnostic]:
    """Operands, alignment and parallel-issue rules of one step. Raises UnknownMnemonic or a Problem."""
    use = use or use_of(bundle)
    shape = use.shape
    found: list[Diagnostic] = []

    def error(rule: str, message: str, hint: str = "", at: object = None, severity: str = ERROR) -> None:
        found.append(Diagnostic(severity, rule, message, bundle.line, 0, hint, "", place_of(bundle, at)))

    if shape.verdict is None:
        for instruction in bundle.instructions:
            check_instruction(instruction)
        for rule in SHAPE_RULES:
            rule(bundle, use, error)
        legal, found = tuple(found), []
        shape.verdict = (legal, tuple(r.judge for r in ADDRESS_RULES if r.concerns(shape)))
    verdict: Any = shape.verdict
    legal, judges = verdict
    for judge in judges:
        judge(bundle, use, error)
    return [replace(d, line=bundle.line) for d in legal] + found


def place_of(bundle: m.Bundle, at: object) -> tuple[int, int]:
    """(instruction, word of it) of an operand or an instruction of the bundle; the first word if it is neither."""
    for i, instruction in enumerate(bundle.instructions):
        if instruction is at:
            return i, 0
        for k, operand in enumerate(instruction.operands):
            if operand is at:
                return i, k + 1
    return 0, 0


Report = Callable[..., None]


@dataclass(frozen=True, slots=True)
class AddressRule:
    """A rule that looks at addresses, and the shapes that it concerns."""

    judge: Callable[[m.Bundle, Use, Report], None]
    concerns: Callable[[Shape], bool]


def _alignment(bundle: m.Bundle, use: Use, error: Report) -> None:
    """LW addresses are even, 2LW addresses multiples of 4, in every cycle."""
    for access in (*use.reads, *use.writes):
        if not access.sound:
            _aligned(access, error)


def _aligned(access: PeAccess, error: Report) -> None:
    size, width, o, a = SIZES[access.space], access.width, access.operand, access.addrs
    base = o.flat or (o.addr,)
    if any(not 0 <= address < size for address in base):
        error("address", f"{NAMES[access.space]} address {max(base, key=abs)} is outside 0..{size - 1}",
              f"{NAMES[access.space]} has {size} words", o)  # fmt: skip
    bad = next((address for address in a if address % width), None)
    if bad is not None:
        error(
            "alignment",
            f"{NAMES[access.space]} address {bad} is not aligned to a {_WIDTH_NAME[width]}",
            f"use a multiple of {width}",
            o,
        )


def _network_addresses(bundle: m.Bundle, use: Use, error: Report) -> None:
    """L1BM and L2BM addresses inside their memory, and aligned where the instruction says so."""
    for kind, ranges, size in (
        ("L1BM", (*use.l1_reads, *use.l1_writes), spec.L1BM_LW),
        ("L2BM", (*use.l2_reads, *use.l2_writes), spec.L2BM_LW),
    ):
        for touched in ranges:
            if not 0 <= touched.start < size:
                error("address", f"{kind} address {touched.start} is outside 0..{size - 1}",
                      f"{kind} has {size} long words", touched.operand)  # fmt: skip
    for instruction, opcode in zip(bundle.instructions, use.opcodes):
        for operand, unit in zip(instruction.operands, L_ALIGNMENT.get(opcode.operation, ())):
            if not isinstance(operand, m.Operand) or operand.space not in (m.L1BM, m.L2BM):
                continue
            if opcode.operation == "l1bmr4":
                unit = 32 if operand.width == m.LW2 else 16
            if operand.addr % unit:
                error(
                    "alignment",
                    f"`{instruction.mnemonic}`: address {operand.addr} is not a multiple of {unit}",
                    f"use {operand.addr // unit * unit} or {operand.addr // unit * unit + unit}",
                    operand,
                )
        if opcode.unit == "l2bm":
            _l2bm_place(instruction, opcode.operation == "l2bmdars", error)
        if opcode.operation == "l2bmdars":
            source = instruction.operands[0]
            if isinstance(source, m.Operand) and source.block is not None and source.block >= spec.L2B_PER_GROUP:
                error("address", f"L2B {source.block} is outside 0..{spec.L2B_PER_GROUP - 1}", "", source)
            entry = instruction.operands[1]
            assert isinstance(entry, m.Operand)
            if not 0 <= entry.addr < spec.DAR_ENTRIES:
                error("address", f"DAR entry {entry.addr} is outside 0..{spec.DAR_ENTRIES - 1}", "", entry)


def _l2bm_place(instruction: m.Instruction, names_block: bool, error: Report) -> None:
    """L2BM instructions run in every L2B; l2bmdars reads L2B l of every group (`$lc0@.l`)."""
    for operand in instruction.operands:
        if not isinstance(operand, m.Operand) or operand.space != m.L2BM:
            continue
        if operand.group is not None or (operand.block is not None) != names_block:
            written = f"$lc{operand.addr}{'@.0' if names_block else ''}"
            where = "reads one L2B of every group" if names_block else "runs in every L2B"
            error("operand", f"`{instruction.mnemonic}` {where}", f"write {written}", operand)


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
            error("address", f"`{name}`: row {operand.addr} is outside 0..{rows - 1}", "", operand)
        if operand.width == m.LW2:
            if name != "hmwrite" and name != "hmread":
                error(
                    "operand", f"`{name}` takes $l{_side(operand)}, not $ll{_side(operand)}", "one row a cycle", operand
                )
            elif operand.addr % 2:
                error(
                    "alignment",
                    f"`{name}`: row {operand.addr} is not even, and two rows are accessed a cycle",
                    "0 or 8",
                    operand,
                )
        elif name == "hmread":
            error("operand", f"`hmread` takes $ll{_side(operand)} only", "two columns a cycle", operand)


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
                f"`{taken[group]}` and `{instruction.mnemonic}` both need the {GROUPNAMES.get(group, group)}",
                "one of each group a step",
                instruction,
            )
        taken.setdefault(group, instruction.mnemonic)
    if "nop" in taken and len(bundle.instructions) > 1 + ("wait" in taken):
        error("parallel", "nop may only stand beside wait", "leave it out")
    math = [(i.mnemonic, o) for i, o in zip(bundle.instructions, use.opcodes) if o.unit in ("mau", "mwrite", "mread")]
    if len(math) > 2:
        error("parallel", f"at most two of MAU calculation, mwrite and mread a step, here {len(math)}",
              "move one to another step")  # fmt: skip
    if len({o.precision for _, o in math}) > 1:
        error(
            "parallel",
            f"`{math[0][0]}` and `{math[1][0]}` have different precisions",
            "MAU, mwrite and mread of a step share one",
        )


GROUPNAMES = {"mau": "MAU", "alu": "ALU", "l1bm": "L1BM port", "l2bm": "L2BM port", "dar": "DAR writer"}


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
                "exchange the factors, or copy the operand",
                instruction.operands[1],
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
        if len(reads) > 1 and len({a.key for a in reads}) > 1:
            texts = sorted({_text(a.operand) for a in reads})
            other = next(a for a in reads if a.key != reads[0].key)
            error(
                "port",
                f"{NAMES[space]} is read at different addresses: {', '.join(texts)}",
                "one address per memory and cycle; copy one operand elsewhere",
                other.operand,
            )
        if len(writes) > 1:
            error(
                "port",
                f"{NAMES[space]} is written twice: {', '.join(_text(a.operand) for a in writes)}",
                "one write per memory and step",
                writes[1].operand,
            )
        if space in (m.LM0, m.LM1) and reads and writes and any(r.key != w.key for r in reads for w in writes):
            error(
                "port",
                f"{NAMES[space]} is read at {_text(reads[0].operand)} and written at {_text(writes[0].operand)}",
                "an LM has one port: use the same addresses, or the other LM",
                writes[0].operand,
            )


def _shares_a_port(shape: Shape) -> bool:
    """Two reads or two writes of a memory, or a read and a write of an LM."""
    return shape.crowded


def _register_writes(bundle: m.Bundle, use: Use, error: Report) -> None:
    """Each mask register and each base address is written once."""
    for entry in sorted(set(use.omr_writes)):
        if use.omr_writes.count(entry) > 1:
            error("port", f"mask entry {entry} is written twice", "use another entry")
    for bar in sorted(set(use.bar_writes)):
        if use.bar_writes.count(bar) > 1:
            error("port", f"{NAMES[bar]} is written twice", "one write a step")


def _text(operand: m.Operand) -> str:
    return format_operand(replace(operand, mask=None, negate=False, extend=False, reduce=False, strides=()))


def _immediate(bundle: m.Bundle, use: Use, error: Report) -> None:
    """imm cannot share a step with any access of LM0."""
    if not any(o.operation in ("imm", "immu") for o in use.opcodes):
        return
    access = next((a for a in (*use.reads, *use.writes) if a.space == m.LM0), None)
    if access is not None:
        hint = "write it to a GRF, T or LM1"
        error("parallel", "imm cannot share a step with an access of LM0", hint, access.operand)


def _reductions(bundle: m.Bundle, use: Use, error: Report) -> None:
    """Reductions of 2LW exist for the single-precision ones and for bor (of l1bmr4; of l1bmr not settled)."""
    for instruction, opcode in zip(bundle.instructions, use.opcodes):
        if opcode.operation not in ("l1bmr", "l1bmr4") or opcode.result_reduced:
            continue
        source, target = instruction.operands
        assert isinstance(source, m.Operand) and isinstance(target, m.Operand)
        wide = target.width == m.LW2
        if wide and opcode.reduction not in _WIDE_REDUCTIONS:
            error(
                "operand",
                f"`{instruction.mnemonic}`: a reduction of 2LW is for ffadd, fmax, fmin, lbor, ibor and sbor",
                "use $l sources and $lb",
                target,
                ERROR if opcode.operation == "l1bmr4" else UNKNOWN,
            )


_WIDE_REDUCTIONS = frozenset({"ffadd", "fmax", "fmin", "lbor", "ibor", "sbor"})


def _shifts(bundle: m.Bundle, use: Use, error: Report) -> None:
    """l1bmd reads L1BM with a shift of one MAB at most, `$lbi` with the shift that it was written with."""
    for instruction, opcode in zip(bundle.instructions, use.opcodes):
        source = instruction.operands[0] if instruction.operands else None
        if abs(opcode.shift) > 1 and isinstance(source, m.Operand) and source.space == m.L1BM:
            message = f"`{instruction.mnemonic}` from L1BM: only +1 and -1 are documented"
            error("operand", message, "send with the shift, or shift twice", source, UNKNOWN)


def _pe_offsets(bundle: m.Bundle, use: Use, error: Report) -> None:
    """The PE-dependent offset j moves addresses of LM0 and LM1."""
    for access in (*use.reads, *use.writes):
        if access.operand.j is not None and access.space not in (m.LM0, m.LM1):
            message = f"j is not documented for addresses of {NAMES[access.space]}, and changes nothing"
            error("operand", message, "use LM0 or LM1", access.operand, UNKNOWN)


def _masks(bundle: m.Bundle, use: Use, error: Report) -> None:
    """Masks of one step agree in length and entry; one flush; legal entries; width assertions hold."""
    for mask, _ in use.masks:
        if mask.pattern is not None and any(bits not in (0, 15) for bits in mask.pattern):
            error(
                "mask",
                f"mask pattern {mask.pattern}: values are 0 or 15 per cycle",
                "another one needs a mask register",
            )
        if mask.register is not None and not 0 <= mask.register < spec.MASK_ENTRIES:
            error("mask", f"mask entry {mask.register} is outside 0..31", "16..31 are fixed patterns")
    if len({mask.long2 for mask, _ in use.masks}) > 1:
        error("mask", "masks of different length in one step", "all /... or all /ll...")
    elif len({mask_entry(mask) for mask, _ in use.masks}) > 1:
        error("mask", "different masks in one step", "all single-line masks of a step name the same entry")
    if sum(kind == "flush" for _, kind in use.masks) > 1:
        error("mask", "more than one zero flush in a step", "flush in another step, or mask the write")
    for instruction, opcode in zip(bundle.instructions, use.opcodes):
        for operand in instruction.operands:
            if isinstance(operand, m.Operand):
                if operand.space == m.OMR:
                    if operand.addr not in spec.WRITABLE_MASKS:
                        error("mask", f"$omr{operand.addr} cannot be written", "entries 1..15 can", operand)
                    if not opcode.row.flags:
                        error(
                            "mask",
                            f"`{instruction.mnemonic}` makes no flag for $omr{operand.addr}",
                            "ipassa makes one from a value",
                            operand,
                        )
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
        error("mask", f"`{_text(operand)}`: the access is not as wide as its mask (assertion t)", "", operand)
    if "p" in mask.assertion and covered:
        error("mask", f"`{_text(operand)}`: the access is as wide as its mask (assertion p)", "", operand)


SHAPE_RULES = (_groups, _matrix_sides, _immediate, _reductions, _shifts, _pe_offsets)
ADDRESS_RULES = (
    AddressRule(_alignment, lambda s: bool(s.reads or s.writes)),
    AddressRule(_network_addresses, lambda s: bool(s.networks)),
    AddressRule(_matrix_rows, lambda s: any(o.unit in ("mwrite", "mread") for o in s.opcodes)),
    AddressRule(_second_factor, lambda s: any(o.unit == "mwrite" for o in s.opcodes) and len(s.opcodes) > 1),
    AddressRule(_ports, _shares_a_port),
    AddressRule(_register_writes, lambda s: len(s.omr_writes) + len(s.bar_writes) > 1),
    AddressRule(_masks, lambda s: bool(s.masked or s.flushed or s.omr_writes)),
)
BUNDLE_RULES = (*(rule.judge for rule in ADDRESS_RULES), *SHAPE_RULES)


_MOVE_NAMES = {m.DRAM: "DRAM", m.PDM: "PDM", m.L2BM: "L2BM", m.DRAM_INDIRECT: "DAR entry"}
_MOVE_SIZE = {m.DRAM: spec.DRAM_LW, m.PDM: spec.PDM_LW, m.L2BM: spec.L2BM_LW, m.DRAM_INDIRECT: spec.DAR_ENTRIES}


def check_move(move: m.Move) -> list[Diagnostic]:
    """What is wrong with an MV line."""
    found: list[Diagnostic] = []

    def error(rule: str, message: str, hint: str = "", word: int = 0, severity: str = ERROR) -> None:
        found.append(Diagnostic(severity, rule, message, move.line, 0, hint, "", (0, word)))

    try:
        form = timing.form_of(move)
    except timing.UnknownMove as unknown:
        error("operand", str(unknown), "docs/isa.md lists the forms of moves")
        return found
    if move.tag and not 1 <= move.tag <= 0x3F:
        error("tag", f"tag {move.tag:#x} is outside i01..i3f")
    if move.priority is not None and not 0 <= move.priority <= 3:
        error("operand", f"priority {move.priority} is outside 0..3")
    if form is None:
        return found
    if move.size <= 0 or move.size % form.unit:
        error(
            "alignment",
            f"`{move.mnemonic}` of {move.size} LW: the size is a positive multiple of {form.unit}",
            f"/n{max(1, -(-move.size // form.unit)) * form.unit}",
        )
    for word, operand, side in ((1, move.src, form.source), (2, move.dst, form.destination)):
        assert operand is not None
        if operand.group is not None and not 0 <= operand.group < spec.GROUPS:
            error("address", f"group {operand.group} is outside 0..3", "", word)
        if operand.block is not None and not 0 <= operand.block < spec.L2B_PER_GROUP:
            error("address", f"L2B {operand.block} is outside 0..1", "", word)
        if operand.symbol:
            continue
        name, size = _MOVE_NAMES[operand.space], _MOVE_SIZE[operand.space]
        length = side.size(move.size)
        if not 0 <= operand.addr < size:
            error("address", f"{name} address {operand.addr} is outside 0..{size - 1}", "", word)
        elif operand.space != m.DRAM_INDIRECT and length > size:
            error("address", f"{length} LW do not fit in {name} ({size} LW)", "", word)
        elif operand.space != m.DRAM_INDIRECT and operand.addr + length > size:
            hint = "addresses wrap: the rest goes to address 0"
            error("address", f"{name} {operand.addr} with {length} LW passes its end", hint, word, WARNING)
    return found
