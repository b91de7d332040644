"""Operands in PDM: the memory of each group beside its DRAM, on the chip, with ports of its own.

A move between L2BM and DRAM has a twin that names PDM, where the chip has that form and it moves the same data as fast. An
operand all of whose moves have one may lie in either; linking puts it where the plan says (`pipeline/ir/program.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mlsdk.device import spec
from mlsdk.device.isa import model as m
from mlsdk.device.timing import MoveForm, Side, UnknownMove, form_of
from mlsdk.pipeline.ops.traffic import span

#: LW of each group's PDM that values may take: behind the window of the host (1 MiB), which reductions pass through
PDM_FIRST, PDM_SIZE = 1 << 17, spec.PDM_LW - (1 << 17)


def dram_only(statements: Iterable[m.Statement]) -> frozenset[str]:
    """The symbols of operands that have to lie in DRAM."""
    return frozenset(_dram_only(statements))


def _dram_only(statements: Iterable[m.Statement]) -> Iterable[str]:
    for s in statements:
        if isinstance(s, m.Loop):
            yield from _dram_only(s.body)
        elif isinstance(s, m.Move):
            for side in (s.src, s.dst):
                if side is not None and side.symbol and not _has_twin(s, side):
                    yield side.symbol
        elif isinstance(s, m.Bundle):  # entries of the DAR
            yield from (o.symbol for i in s.instructions for o in i.operands if isinstance(o, m.Immediate) and o.symbol)


def extents(statements: Iterable[m.Statement]) -> dict[str, frozenset[tuple[int, int]]]:
    """What each move takes of the operand with a symbol, in all iterations of its loops: LW [first, last)."""
    found: dict[str, set[tuple[int, int]]] = {}
    _extents(statements, (), found)
    return {symbol: frozenset(spans) for symbol, spans in found.items()}


def _extents(
    statements: Iterable[m.Statement], counts: tuple[int, ...], found: dict[str, set[tuple[int, int]]]
) -> None:
    for s in statements:
        if isinstance(s, m.Loop):
            _extents(s.body, (*counts, s.count), found)
        elif isinstance(s, m.Move):
            for o in (s.src, s.dst):
                if o is not None and o.symbol:
                    found.setdefault(o.symbol, set()).add(span(o.addr, s.size, o.strides, counts))


def _has_twin(move: m.Move, side: m.Operand) -> bool:
    if side.space != m.DRAM:
        return False
    there = replace(side, space=m.PDM)
    other = replace(move, src=there) if side is move.src else replace(move, dst=there)
    try:
        form, twin = form_of(move), form_of(other)
    except UnknownMove:
        return False
    return form is not None and twin is not None and _rows(form) == _rows(twin)


def _rows(form: MoveForm) -> tuple:
    """What a form moves, and how fast."""

    def of(side: Side) -> tuple:
        return side.share, side.rate, side.scope == "all"

    return of(form.source), of(form.destination), form.unit
