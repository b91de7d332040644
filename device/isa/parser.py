"""From `.vsm` text to statements.

`parse` raises AssemblyError with every finding; `read` returns statements and findings side by side. Expressions and
operands are cached by their text, since programs repeat them: a line that was seen before costs one dictionary look-up.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..errors import AssemblyError
from . import model as m
from . import table
from .diagnostics import ERROR, Diagnostic
from .operands import OperandError, format_operand, immediate_word, parse_immediate, parse_mask, parse_operand

#: After this many errors the rest of the text is not read.
MAX_ERRORS = 1000
#: A longer line is not a program text.
MAX_LINE = 1 << 20


class Problem(Exception):
    """Something is wrong with a part of the line; `part` is where the column points to."""

    def __init__(self, rule: str, message: str, hint: str = "", part: str = "") -> None:
        super().__init__(message)
        self.rule, self.hint, self.part = rule, hint, part


_LONG_NUMBER = re.compile(r"\d{1000,}")
_TAG = re.compile(r"i([0-9a-fA-F]{2})\Z")
_TOKEN = re.compile(r'\s*([a-z]*"[^"]*"?|[^\s"]+)')
_FLUSH = re.compile(r"/((?:ll)?[01]{4}[tp]*|\$(?:ll|l)?imr\d+[tp]*)\Z")
_NOP = re.compile(r"nop(?:/(\d+))?\Z")
_MASK_LINE = re.compile(r"mask(ll|l)?([rstmnk]*)\s+(\d+)\Z")
_MOVE_OPTION = re.compile(r"nd(\d+)|n(\d+)|i([0-9a-fA-F]{2})|p(\d)")
_PLACE = re.compile(r"\$(lm|ln|lr|ls|lt|t|omr|lx|ly|lb|lc|d|p)(\d*)((?:[ncbmp]\d+)*)\Z")
_COORDINATE = re.compile(r"([ncbmp])(\d+)")
_DEBUG = re.compile(r"d\s+(get|set)(bd|bf|bg|bh|d|f|h)?\s+(\S+)\s+(\d+)(?:\s+(.*))?\Z")
_PRESET = re.compile(r"r\s+(\d+)\s+([0-9a-fA-F]+)\s+([0-9a-fA-F]+)\s+(.*)\Z")

PLACES = {
    "lm": m.LM0, "ln": m.LM1, "lr": m.GRF0, "ls": m.GRF1, "lt": m.T, "t": m.T, "omr": m.OMR, "lx": m.MAT_X, "ly": m.MAT_Y,
    "lb": m.L1BM, "lc": m.L2BM, "d": m.DRAM, "p": m.PDM,
}  # fmt: skip
COORDINATES = {"n": 4, "c": 2, "b": 8, "m": 16, "p": 4}
MARKER_PREFIX = "@ "  # a comment `#@ name` is a Marker


def _too_long(error: ValueError, code: str) -> Problem:
    """Python reads no numbers of thousands of digits; everything else that int() refuses, a pattern has refused before."""
    found = _LONG_NUMBER.search(code)
    if found is None:
        raise error
    return Problem("operand", f"a number of {len(found[0])} digits", "numbers have at most 64 bits", found[0])


def _foreign(code: str) -> Problem:
    """Only comments hold other characters than printable ASCII and tabs."""
    char = next(c for c in code if c != "\t" and not (c.isascii() and c.isprintable()))
    what, hint = f"the character U+{ord(char):04X}", "instructions are ASCII text; comments may hold any character"
    if char == "\r":
        what, hint = "a carriage return inside the line", "lines end with a line feed"
    return Problem("syntax", what, hint, char)


class Parser:
    """Holds the caches. One parser may read any number of texts."""

    def __init__(self) -> None:
        self._operands: dict[str, m.Operand] = {}
        self._expressions: dict[str, m.Instruction] = {}
        self._bundles: dict[str, tuple[m.Instruction, ...] | m.Nop] = {}

    # --- lines -------------------------------------------------------------------------------------------------------
    def statements(self, lines: Iterable[str], problems: list[Diagnostic], source: str = "") -> Iterator[m.Statement]:
        """Reads line by line, appending to `problems`; ends at `quit`."""
        bundles = self._bundles
        for number, raw in enumerate(lines, 1):
            if len(raw) > MAX_LINE:
                problems.append(
                    Diagnostic(
                        ERROR, "syntax", f"line of {len(raw)} characters", number, 1, "is this a text file?", source
                    )
                )
                return
            code, _, comment = raw.partition("#")
            code = code.strip()
            note = comment.strip() if comment else ""
            if not code:
                yield self._comment(raw, comment, number)
                continue
            found = bundles.get(code)
            if found is not None:
                if type(found) is tuple:
                    yield m.Bundle(found, note, number)
                else:
                    assert isinstance(found, m.Nop)
                    yield m.Nop(found.count, note, number)
                continue
            try:
                if not (code.isascii() and code.replace("\t", "").isprintable()):
                    raise _foreign(code)
                statement = self._statement(code, note, number)
            except (Problem, ValueError) as error:
                problem = error if isinstance(error, Problem) else _too_long(error, code)
                part = problem.part or code
                column = raw.find(part) + 1 or 1
                problems.append(Diagnostic(ERROR, problem.rule, str(problem), number, column, problem.hint, source))
                if len(problems) >= MAX_ERRORS:
                    problems.append(
                        Diagnostic(
                            ERROR,
                            "syntax",
                            f"stopped after {MAX_ERRORS} errors",
                            number,
                            1,
                            "is this a .vsm file?",
                            source,
                        )
                    )
                    return
                continue
            yield statement
            if type(statement) is m.Quit:
                return

    def _comment(self, raw: str, comment: str, number: int) -> m.Statement:
        if "#" not in raw:
            return m.Comment(None, number)
        if comment.startswith(MARKER_PREFIX):
            return m.Marker(comment[len(MARKER_PREFIX) :].strip(), number)
        return m.Comment(comment.strip(), number)

    def _statement(self, code: str, note: str, number: int) -> m.Statement:
        head = code.split(None, 1)[0]
        if ";" not in code:
            found = _NOP.match(code)
            if found:
                count = int(found[1]) if found[1] else 1
                if count < 1:
                    raise Problem("syntax", f"`{code}` has no steps", "nop/1 or more")
                nop = m.Nop(count, note, number)
                if len(self._bundles) < 1 << 20:
                    self._bundles[code] = nop
                return nop
            if head.startswith("mv"):
                return self._move(code, note, number)
            if head.startswith("mask"):
                return self._mask_line(code, note, number)
            if head == "quit":
                if code != "quit":
                    raise Problem("syntax", "`quit` takes no operands", "it ends the program", code)
                return m.Quit(note, number)
            if head == "d":
                return self._debug(code, note, number)
            if head == "r":
                return self._preset(code, note, number)
            if head == "c":
                return m.HostCommand(code[1:].strip() + (f" # {note}" if note else ""), number)
        instructions = tuple(self._instruction(part) for part in code.split(";"))
        if len(self._bundles) < 1 << 20:
            self._bundles[code] = instructions
        return m.Bundle(instructions, note, number)

    # --- PE instructions ---------------------------------------------------------------------------------------------
    def _instruction(self, text: str) -> m.Instruction:
        text = text.strip()
        found = self._expressions.get(text)
        if found is None:
            found = self._expressions[text] = self._new_instruction(text)
        return found

    def _new_instruction(self, text: str) -> m.Instruction:
        if not text:
            raise Problem("syntax", "empty expression beside a semicolon", "take the semicolon away", ";")
        tokens = _TOKEN.findall(text) if '"' in text else text.split()
        head, flush = tokens[0], None
        masked = _FLUSH.search(head)
        if masked:
            try:
                flush = parse_mask(masked[1])
            except OperandError as error:
                raise Problem("mask", str(error), error.hint, head) from None
            head = head[: masked.start()]
        try:
            opcode = table.lookup(head)
        except table.UnknownMnemonic as error:
            if _NOP.match(head):
                raise Problem(
                    "parallel", f"`{head}` stands alone on its line", "write it on a line of its own", text
                ) from None
            if head.startswith(("mv", "mask", "quit")):
                raise Problem(
                    "syntax", f"`{head}` stands alone on its line", "write it on a line of its own", text
                ) from None
            raise Problem("mnemonic", str(error), error.hint, tokens[0]) from None
        if opcode.unit == "mv":
            raise Problem("syntax", f"`{head}` stands alone on its line", "write it on a line of its own", text)
        operands = tuple(self._operand(token, opcode) for token in tokens[1:])
        check_operands(opcode, operands, tokens)
        check_flush(opcode, operands, flush, tokens[0])
        return m.Instruction(head, operands, flush)

    def _operand(self, token: str, opcode: table.Opcode) -> m.Operand | m.Immediate:
        try:
            if '"' in token or opcode.operation in ("imm", "immu") and not token.startswith(("$", "-$")):
                immediate = parse_immediate(token)
                immediate_word(immediate)
                return immediate
            if opcode.operation == "wait":
                tag = _TAG.match(token)
                if not tag or not 1 <= int(tag[1], 16) <= 0x3F:
                    raise OperandError(f"`{token}` is not a tag", "tags are i01..i3f, two hex digits")
                return m.Operand(m.TAG, int(tag[1], 16))
            found = self._operands.get(token)
            if found is None:
                found = self._operands[token] = parse_operand(token)
            return found
        except OperandError as error:
            raise Problem("operand", str(error), error.hint, token) from None

    # --- the other statements ----------------------------------------------------------------------------------------
    def _move(self, code: str, note: str, number: int) -> m.Move:
        head, *rest = code.split()
        mnemonic, _, options = head.partition("/")
        try:
            opcode = table.lookup(mnemonic)
        except table.UnknownMnemonic as error:
            raise Problem("mnemonic", str(error), error.hint, head) from None
        if opcode.unit != "mv":
            raise Problem("mnemonic", f"unknown instruction `{mnemonic}`", "", head)
        size, tag, nd, priority, at = 0, 0, 0, None, 0
        seen: set[int] = set()
        while at < len(options):
            found = _MOVE_OPTION.match(options, at)
            if not found:
                raise Problem(
                    "operand",
                    f"`/{options}`: `{options[at:]}` is not a move option",
                    "n<size> i<tag> nd<N> p<0..3>",
                    head,
                )
            option = next(number for number in range(1, 5) if found[number])
            if option in seen:
                raise Problem("operand", f"`/{options}` gives an option twice", "n<size> i<tag> nd<N> p<0..3>", head)
            seen.add(option)
            if found[1]:
                nd = int(found[1])
            elif found[2]:
                size = int(found[2])
            elif found[3]:
                tag = int(found[3], 16)
                if not 1 <= tag <= 0x3F:
                    raise Problem("operand", f"tag i{found[3]} is outside i01..i3f", "two hex digits, not 00", head)
            else:
                priority = int(found[4])
                if priority > 3:
                    raise Problem("operand", f"priority {priority} is outside 0..3", "p0..p3", head)
            at = found.end()
        operands = []
        for token in rest:
            operand = self._operands.get(token)
            try:
                operand = operand or parse_operand(token)
            except OperandError as error:
                raise Problem("operand", str(error), error.hint, token) from None
            self._operands[token] = operand
            operands.append(operand)
        check_operands(opcode, tuple(operands), [head, *rest])
        if operands and not size:
            raise Problem("operand", f"`{head}` has no size", "write /n<LW>", head)
        src, dst = (operands + [None, None])[:2]
        return m.Move(mnemonic, src, dst, size, tag, nd, priority, note, number)

    def _mask_line(self, code: str, note: str, number: int) -> m.MaskLine:
        found = _MASK_LINE.match(code)
        if not found:
            raise Problem(
                "syntax", f"`{code}` is not a mask line", "mask[l|ll][rstmnk] <entry>, for instance `maskr 1`"
            )
        entry = int(found[3])
        if entry > 31:
            raise Problem(
                "mask", f"mask entry {entry} is outside 0..31", "1..15 are set by $omrN, 16..31 are fixed", found[3]
            )
        targets = "".join(letter for letter in "rstmnk" if letter in found[2])
        return m.MaskLine(entry, targets, found[1] == "ll", note, number)

    def _place(self, text: str) -> m.Place:
        found = _PLACE.match(text)
        if not found:
            raise Problem("operand", f"`{text}` is not a debug place", "for instance $lm0n0c0b0m0p0 or $d16n0", text)
        memory, addr, tail = PLACES[found[1]], found[2], found[3]
        coordinates: dict[str, int] = {}
        for letter, value in _COORDINATE.findall(tail):
            if letter in coordinates:
                raise Problem("operand", f"`{text}` names {letter} twice", "", text)
            if int(value) >= COORDINATES[letter]:
                raise Problem("operand", f"`{text}`: {letter}{value} is outside 0..{COORDINATES[letter] - 1}", "", text)
            coordinates[letter] = int(value)
        if not addr and memory != m.T:
            raise Problem("operand", f"`{text}`: the address is missing", "", text)
        return m.Place(memory, int(addr or 0), **coordinates)

    def _debug(self, code: str, note: str, number: int) -> m.Statement:
        found = _DEBUG.match(code)
        if not found:
            raise Problem(
                "syntax",
                f"`{code}` is not a debug statement",
                "d get[<type>] $<place> <count> or d set $<place> <count> <hex>",
            )
        verb, kind, place_text, count_text, payload = found.groups()
        place, count = self._place(place_text), int(count_text)
        if verb == "get":
            if payload:
                raise Problem("syntax", "`d get` takes no payload", "d set writes", payload)
            if place.memory in (m.MAT_X, m.MAT_Y) and not kind:
                raise Problem("operand", "matrix registers need a type", "d getbh, getbg, getbf or getbd", place_text)
            return m.DebugGet(place, count, kind or "", note, number)
        if kind:
            raise Problem("syntax", "`d set` takes no type", "d set $<place> <count> <hex>", code)
        return m.DebugSet(place, _payload(payload or "", count, place_text), note, number)

    def _preset(self, code: str, note: str, number: int) -> m.Preset:
        found = _PRESET.match(code)
        if not found:
            raise Problem("syntax", f"`{code}` is not a preset", "r <group> <address, hex> <count, hex> <payload>")
        group, addr, count = int(found[1]), int(found[2], 16), int(found[3], 16)
        if group > 3:
            raise Problem(
                "operand", f"group {group} is outside 0..3", "r <group> <address, hex> <count, hex> <payload>", found[1]
            )
        return m.Preset(group, addr, _payload(found[4], count, code), note, number)


def _payload(text: str, count: int, part: str) -> tuple[int, ...]:
    """LW values of a hex payload: 16 digits each, optionally each with an `l` in front."""
    digits = text.replace("l", "").replace(" ", "").replace("\t", "").replace("_", "")
    if len(digits) != 16 * count:
        raise Problem(
            "operand",
            f"payload has {len(digits)} hex digits, {count} LW need {16 * count}",
            "16 digits a LW, without 0x",
            text or part,
        )
    try:
        return tuple(int(digits[i : i + 16], 16) for i in range(0, len(digits), 16))
    except ValueError:
        raise Problem("operand", "payload is not hexadecimal", "16 digits a LW, without 0x", text) from None


def check_operands(opcode: table.Opcode, operands: tuple, tokens: list[str] | None = None) -> None:
    """The operands fit one of the row's forms; raises a problem that names the first that does not."""
    best = None
    for classes, repeats in table.forms(opcode.row):
        if len(operands) < len(classes) or (len(operands) > len(classes) and not repeats):
            best = best or Problem(
                "operand",
                f"`{opcode.mnemonic}` has {len(operands)} operand{'' if len(operands) == 1 else 's'} and takes "
                f"{_forms_text(opcode)}",
                "operands are separated by blanks; docs/isa.md lists them",
            )
            continue
        for index, operand in enumerate(operands):
            wanted = classes[min(index, len(classes) - 1)]
            if isinstance(operand, m.Immediate):
                if wanted == "imm":
                    continue
            elif operand.space in table.CLASSES[wanted]:
                continue
            text = _written(operand, index, tokens)
            best = Problem(
                "operand",
                f"`{text}` cannot be operand {index + 1} of `{opcode.mnemonic}`",
                _HINTS.get(wanted, ""),
                text,
            )
            break
        else:
            _check_form(opcode, operands, classes, tokens)
            return
    if best:
        raise best


def check_flush(opcode: table.Opcode, operands: tuple, flush: m.Mask | None, part: str = "") -> None:
    """A zero flush stands behind an instruction that brings a result to the PEs; raises a Problem."""
    if flush is None:
        return
    upwards = opcode.unit == "l1bm" and operands[0].space not in table.CLASSES["lb"]
    if upwards or not opcode.row.flush:
        hint = "ALU, MAU, mread and L1BM -> PE instructions do"
        raise Problem("mask", f"`{opcode.mnemonic}` takes no zero flush{' on its way to L1BM' * upwards}", hint, part)


def _forms_text(opcode: table.Opcode) -> str:
    """How many operands an instruction takes, and which: `3 or more (x, y, dst ...)`."""
    told = [
        f"{len(classes)}{' or more' if repeats else ''} ({', '.join(classes)}{' ...' if repeats else ''})"
        for classes, repeats in table.forms(opcode.row)
        if classes
    ]
    return ", or ".join(told) or "none"


_HINTS = {
    "x": "a PE memory, $t, a forward register or a fixed value",
    "y": "a PE memory, $t, $aluf, $mauf or $lbf",
    "dst": "a PE memory, $t, $omrN, $mb, $nb or $nowrite",
    "reg": "$lx or $ly",
    "row": "$lx<row> or $ly<row>",
    "lb": "$lb<addr>, $llb<addr>, $lbi or $llbi",
    "lbm": "$lb<addr>",
    "lc": "$lc<addr>",
    "imm": 'a quoted payload: f"1.0"',
    "mvl": "$lc<addr>",
    "dram": "$d<addr>",
    "mvs": "$p<addr> or $d<addr>",
}


def _written(operand: m.Operand | m.Immediate, index: int, tokens: list[str] | None) -> str:
    """The text of an operand, as it was written if that is known."""
    if tokens and index + 1 < len(tokens):
        return tokens[index + 1]
    if isinstance(operand, m.Immediate):
        return f'{operand.kind}"{operand.text}"'
    return format_operand(replace(operand, strides=(), symbol=""))


#: Sources (by position) that take suffix e, for what asks for normal singles or doubles (SDM 3.6.9.23): by unit and
#: operation, for half operations and for the others. Block floats never do.
_EXTENDED: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "vfma": ((2,), (0, 1, 2)), "vmul": ((), (0, 1)), "vadd": ((1,), (0, 1)), "vpassa": ((), (0,)),
    "mfma": ((2,), (2,)), "mwrite": ((), (0,)),
}  # fmt: skip
#: Sources of half operations of MAU and mwrite that take suffix r (SDM 3.6.9.24); those of the ALU all do.
_REDUCED: dict[str, tuple[int, ...]] = {
    "vfma": (0, 1), "vmul": (0, 1), "vadd": (0,), "vpassa": (0,), "mwrite": (0,),
}  # fmt: skip


def _may_extend(opcode: table.Opcode, index: int) -> bool:
    if opcode.unit == "l1bm":
        return index == 0 and opcode.reduction.startswith("f")
    half, others = _EXTENDED.get(opcode.operation, ((), ()))
    return index in (half if opcode.precision == "h" else others)


def _may_reduce(opcode: table.Opcode, index: int) -> bool:
    return opcode.precision == "h" and (opcode.unit == "alu" or index in _REDUCED.get(opcode.operation, ()))


def _check_form(opcode: table.Opcode, operands: tuple, classes: tuple[str, ...], tokens: list[str] | None) -> None:
    """Options that only some operands take."""
    for index, operand in enumerate(operands):
        if isinstance(operand, m.Immediate):
            continue
        wanted = classes[min(index, len(classes) - 1)]
        is_source = wanted in ("x", "y")
        wrong: tuple[str, str, str] | None = None
        if operand.mask is not None and wanted != "dst":
            wrong = "mask", "only destinations in a PE take a mask", "write it behind the instruction for a zero flush"
        elif operand.negate and not (is_source and opcode.unit == "mau"):
            wrong = (
                "operand",
                "only MAU sources take a sign",
                "change the sign in a MAU instruction, or xor the sign bit",
            )
        elif operand.extend and not (is_source and _may_extend(opcode, index)):
            wrong = (
                "operand",
                "suffix e is for inputs of the MAU, of mwrite and of single reductions that are normal singles or doubles",
                "half and block-float inputs cannot be extended; convert with fvpassa or dvpassa",
            )
        elif operand.reduce and not (is_source and _may_reduce(opcode, index)):
            wrong = (
                "operand",
                "suffix r is for half inputs",
                "of the ALU, of hv... and of hmwrite; block floats take it on hbfn",
            )
        if wrong:
            text = _written(operand, index, tokens)
            raise Problem(wrong[0], f"`{text}`: {wrong[1]}", wrong[2], text)
        if operand.space == m.NOWRITE and wanted == "dst" and len(operands) > len(classes):
            raise Problem("operand", "$nowrite must be the only destination", "leave it out", "$nowrite")


# --- entry points ------------------------------------------------------------------------------------------------------
def lines_of(text: str) -> list[str]:
    """Lines as an editor counts them: only line feeds (with or without carriage return) end a line. A byte order mark
    is no part of the first one."""
    return [line.rstrip("\r") for line in text.removeprefix("\ufeff").split("\n")]


def read(text: str, name: str = "<vsm>") -> tuple[tuple[m.Statement, ...], list[Diagnostic]]:
    """Statements and findings. Blank lines at the end are dropped."""
    problems: list[Diagnostic] = []
    lines = lines_of(text)
    while lines and not lines[-1].strip():
        lines.pop()
    collects = gc.isenabled()
    gc.disable()  # statements hold no cycles, and looking for some again and again costs a third of the time
    try:
        return tuple(Parser().statements(lines, problems, name)), problems
    finally:
        if collects:
            gc.enable()


def parse(text: str, name: str = "<vsm>") -> tuple[m.Statement, ...]:
    """The statements of a text; raises AssemblyError with all findings."""
    statements, problems = read(text, name)
    if problems:
        raise AssemblyError(problems)
    return statements
