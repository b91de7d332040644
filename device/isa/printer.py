"""From statements to `.vsm` text. Loops are printed unrolled; DRAM symbols are resolved through a mapping."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from . import model as m
from . import table
from .operands import bound, format_mask, format_operand
from .parser import MARKER_PREFIX, PLACES

_PLACE_NAME = {space: text for text, space in PLACES.items() if text != "t"}


def format_instruction(instruction: m.Instruction, symbols: Mapping[str, int] | None = None) -> str:
    parts = [instruction.mnemonic + (format_mask(instruction.flush) if instruction.flush else "")]
    bare = table.lookup(instruction.mnemonic).matrix
    for index, operand in enumerate(instruction.operands):
        if isinstance(operand, m.Immediate):
            parts.append(f'{operand.kind}"{bound(operand, symbols or {}).text}"')
        else:
            parts.append(format_operand(operand, symbols, bare and index == 0))
    return " ".join(parts)


def format_place(place: m.Place) -> str:
    text = "$" + _PLACE_NAME[place.memory] + ("" if place.memory == m.T and place.addr == 0 else str(place.addr))
    for letter in "ncbmp":
        value = getattr(place, letter)
        if value is not None:
            text += f"{letter}{value}"
    return text


def format_statement(statement: m.Statement, symbols: Mapping[str, int] | None = None) -> str:
    """One line without its line end. A Loop is several lines: use `format_program`."""
    text = _format(statement, symbols)
    note = getattr(statement, "note", "")
    return f"{text} # {note}" if note else text


def _format(s: m.Statement, symbols: Mapping[str, int] | None) -> str:
    if isinstance(s, m.Bundle):
        return "; ".join(format_instruction(i, symbols) for i in s.instructions)
    if isinstance(s, m.Nop):
        return "nop" if s.count == 1 else f"nop/{s.count}"
    if isinstance(s, m.Move):
        options = f"n{s.size}" if s.size else ""
        options += f"i{s.tag:02x}" if s.tag else ""
        options += f"nd{s.nd}" if s.nd else ""
        options += f"p{s.priority}" if s.priority is not None else ""
        head = s.mnemonic + ("/" + options if options else "")
        return " ".join([head, *(format_operand(o, symbols) for o in (s.src, s.dst) if o is not None)])
    if isinstance(s, m.MaskLine):
        return f"mask{'ll' if s.long2 else ''}{s.targets} {s.entry}"
    if isinstance(s, m.Marker):
        return f"#{MARKER_PREFIX}{s.name}"
    if isinstance(s, m.Comment):
        return "" if s.text is None else f"# {s.text}".rstrip()
    if isinstance(s, m.DebugGet):
        return f"d get{s.kind} {format_place(s.place)} {s.count}"
    if isinstance(s, m.DebugSet):
        return f"d set {format_place(s.place)} {len(s.values)} " + "".join(f"{v:016x}" for v in s.values)
    if isinstance(s, m.Preset):
        return f"r {s.group} {s.addr:09x} {len(s.values):03x} " + "".join(f"{v:016x}" for v in s.values)
    if isinstance(s, m.HostCommand):
        return f"c {s.text}"
    if isinstance(s, m.Quit):
        return "quit"
    raise TypeError(f"a {type(s).__name__} is not one line; use format_program")


def format_lines(statements: Iterable[m.Statement], symbols: Mapping[str, int] | None = None) -> Iterator[str]:
    """The lines of a program, without line ends. Repeated statements are formatted once."""
    known: dict[m.Statement, str] = {}
    for statement in m.unroll(statements):  # type: ignore[arg-type]
        if isinstance(statement, (m.Bundle, m.Nop)):
            text = known.get(statement)
            if text is None:
                text = format_statement(statement, symbols)
                if len(known) < 1 << 16:
                    known[statement] = text
            yield text
        else:
            yield format_statement(statement, symbols)


def format_program(statements: Iterable[m.Statement], symbols: Mapping[str, int] | None = None) -> str:
    """The whole text; every line ends with a line feed."""
    return "".join(line + "\n" for line in format_lines(statements, symbols))
