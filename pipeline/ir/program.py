"""Program: the instructions of a whole function, and the DRAM segments that they name.

Statements keep loops and symbolic DRAM addresses; the text form (`vsm`) is unrolled and resolved. A program is stored as
JSON lines of assembly with the strides and symbols beside them, so that it stays readable and holds no pickle.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from mlsdk.device import spec
from mlsdk.device.isa import model as m
from mlsdk.device.isa.parser import Parser
from mlsdk.device.isa.printer import format_lines, format_statement
from mlsdk.errors import GraphError
from mlsdk.pipeline.ir.plan import PDM, Segment, Slot

#: segments start on this many LW
ALIGN = 64


@dataclass(frozen=True)
class Program:
    """`statements` name segments by symbol; `segments` in the order of their default addresses."""

    statements: tuple[m.Statement, ...]
    segments: Mapping[str, Segment]

    def __post_init__(self) -> None:
        object.__setattr__(self, "segments", MappingProxyType(dict(self.segments)))

    def addresses(self) -> dict[str, int]:
        """Default addresses: one segment behind the other from 0."""
        found, at = {}, 0
        for segment in self.segments.values():
            found[segment.name] = at
            at += -(-segment.size // ALIGN) * ALIGN
        return found

    def vsm(self) -> str:
        """The assembly text, unrolled, at the default addresses."""
        return "\n".join(format_lines(self.statements, self.addresses())) + "\n"

    def to_data(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "segments": [[s.name, s.kind, s.size] for s in self.segments.values()],
            "statements": [_encode(s) for s in self.statements],
        }

    def to_json(self) -> bytes:
        global _last
        text = _text(self.to_data())
        _last = hashlib.sha256(text).digest(), self
        return text + b"\n"

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Program:
        """The program of JSON data; the last one that was written is not read anew."""
        last = _last
        if last is not None and hashlib.sha256(_text(data)).digest() == last[0]:
            return last[1]
        parser = Parser()
        segments = [Segment(*s) for s in data["segments"]]
        return cls(tuple(_decode(parser, s) for s in data["statements"]), {s.name: s for s in segments})

    @classmethod
    def from_json(cls, data: bytes) -> Program:
        return cls.from_data(json.loads(data))


def _text(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()


#: the program that was written last, with the digest of its text: who compiles packs, loads and runs it next
_last: tuple[bytes, Program] | None = None


class _Zero(dict):
    def __missing__(self, key: str) -> int:
        return 0

    def __contains__(self, key: object) -> bool:
        return True


_NO_BASE = _Zero()


def _plain(operand: Any) -> Any:
    if isinstance(operand, m.Operand) and (operand.strides or operand.symbol):
        return replace(operand, strides=(), symbol="")
    if isinstance(operand, m.Immediate) and operand.symbol:
        return replace(operand, symbol="")
    return operand


def _encode(s: m.Statement) -> Any:
    if isinstance(s, m.Loop):
        return ["loop", s.count, [_encode(x) for x in s.body]]
    if isinstance(s, m.Marker):
        return ["node", s.name]
    if isinstance(s, m.Nop):
        return s.count
    if isinstance(s, m.Bundle):
        beside = [
            [i, j, o.symbol if isinstance(o, m.Immediate) else list(o.strides)]
            for i, ins in enumerate(s.instructions)
            for j, o in enumerate(ins.operands)
            if (o.symbol if isinstance(o, m.Immediate) else o.strides)
        ]
        return ["pe", format_statement(s.with_operands(_plain)), beside] if beside else format_statement(s)
    if isinstance(s, m.Move):
        plain_move = replace(
            s,
            src=_plain(s.src) if s.src else None,
            dst=_plain(s.dst) if s.dst else None,
        )
        sides = [[o.symbol, list(o.strides)] if o is not None else ["", []] for o in (s.src, s.dst)]
        return ["mv", format_statement(plain_move), *sides]
    return format_statement(s)


def _decode(parser: Parser, d: Any) -> m.Statement:
    if isinstance(d, int):
        return m.Nop(d)
    if isinstance(d, str):
        return _line(parser, d)
    kind = d[0]
    if kind == "loop":
        return m.Loop(d[1], tuple(_decode(parser, x) for x in d[2]))
    if kind == "node":
        return m.Marker(d[1])
    statement = _line(parser, d[1])
    if kind == "pe":
        assert isinstance(statement, m.Bundle)
        instructions = list(statement.instructions)
        for i, j, beside in d[2]:
            operands = list(instructions[i].operands)
            operand = operands[j]
            operands[j] = (
                replace(operand, symbol=beside)
                if isinstance(operand, m.Immediate)
                else replace(operand, strides=tuple(beside))
            )
            instructions[i] = replace(instructions[i], operands=tuple(operands))
        return m.Bundle(tuple(instructions), statement.note)
    assert isinstance(statement, m.Move)
    sides = []
    for operand, (symbol, strides) in zip((statement.src, statement.dst), d[2:]):
        sides.append(replace(operand, symbol=symbol, strides=tuple(strides)) if operand is not None else None)
    return replace(statement, src=sides[0], dst=sides[1])


def _line(parser: Parser, text: str) -> m.Statement:
    problems: list = []
    found = list(parser.statements((text,), problems))
    if problems or len(found) != 1:
        raise GraphError(f"a stored program holds `{text}`, which is not a statement: {problems[:1]}")
    return found[0]


def mapped(
    statements: Iterable[m.Statement],
    operand: Callable[[m.Operand], m.Operand],
    tag: Callable[[int], int] = lambda tag: tag,
) -> Iterator[m.Statement]:
    """The statements, those in loops too, with other operands, and moves with other tags (a `wait` has its tag as an operand).
    What `operand` and `tag` give back as it is stays the same object."""

    def side(o: m.Operand | None) -> m.Operand | None:
        return o and operand(o)

    for s in statements:
        if isinstance(s, m.Loop):
            yield m.Loop(s.count, tuple(mapped(s.body, operand, tag)))
        elif isinstance(s, m.Move):
            found = side(s.src), side(s.dst), tag(s.tag)
            same = found[0] is s.src and found[1] is s.dst and found[2] == s.tag
            yield s if same else replace(s, src=found[0], dst=found[1], tag=found[2])
        elif isinstance(s, m.Bundle):
            instructions = tuple(_instruction(i, operand) for i in s.instructions)
            same = all(a is b for a, b in zip(instructions, s.instructions))
            yield s if same else replace(s, instructions=instructions)
        else:
            yield s


def _instruction(i: m.Instruction, operand: Callable[[m.Operand], m.Operand]) -> m.Instruction:
    operands = tuple(operand(o) if isinstance(o, m.Operand) else o for o in i.operands)
    return i if all(a is b for a, b in zip(operands, i.operands)) else replace(i, operands=operands)


def renamed(statements: Sequence[m.Statement], names: Mapping[str, Slot]) -> Iterator[m.Statement]:
    """The statements with each symbol replaced by its slot. Moves have symbols, and addresses as immediates."""

    def operand(o: m.Operand | None) -> m.Operand | None:
        if o is None or not o.symbol:
            return o
        segment, address = names[o.symbol].at(o.addr)
        if segment == PDM:
            return replace(o, space=m.PDM, symbol="", addr=address)
        return replace(o, symbol=segment, addr=address)

    def immediate(o: m.Operand | m.Immediate) -> m.Operand | m.Immediate:
        if not isinstance(o, m.Immediate) or not o.symbol:
            return o
        slot = names[o.symbol]
        return replace(o, symbol=slot.segment, text=str(int(o.text) + slot.offset // spec.DAR_UNIT_LW))

    for s in statements:
        if isinstance(s, m.Loop):
            yield m.Loop(s.count, tuple(renamed(s.body, names)))
        elif isinstance(s, m.Bundle):
            named = any([type(o) is m.Immediate and o.symbol for i in s.instructions for o in i.operands])
            yield s.with_operands(immediate) if named else s
        elif isinstance(s, m.Move):
            yield replace(s, src=operand(s.src), dst=operand(s.dst))
        else:
            yield s
