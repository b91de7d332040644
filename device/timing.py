"""The MV table: for each form of a move the LW a cycle on each of its sides, and the ports that it holds.

This is data for the machine's clock and for anyone who predicts it. The rules that use it:

- MV lines issue in order, each at max(now, issue of the previous MV + spec.MV_ISSUE_CYCLES).
- A move starts at the earliest time >= its issue at which all its ports are free, and holds all of them for its duration,
  which is the larger of ceil(size on the side / LW per cycle of the side) over its two sides.
- It completes at start + duration + spec.MV_LATENCY_CYCLES.
- `wait` stalls to the completion of the tagged move, in whole steps of 4 cycles; then its own step takes 4 cycles.
- At the end of a program the time is at least the completion of every move. steps = ceil(cycles / 4).
"""

from __future__ import annotations

from dataclasses import dataclass

from . import spec
from .errors import ExecutionError
from .isa import model as m
from .isa.table import UnknownMnemonic, lookup


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a move.

    port     dram, pdm or l2bm
    scope    named: the instance that the operand names; all: every instance; block: L2B l of every group;
             pdm0: the PDM of the named group, group 0 when none is named
    share    (numerator, denominator): the part of the written size that each instance on this side sees
    rate     LW per cycle of each instance
    """

    port: str
    scope: str
    share: tuple[int, int]
    rate: int

    def size(self, size: int) -> int:
        return size * self.share[0] // self.share[1]


@dataclass(frozen=True, slots=True)
class MoveForm:
    """A row of the MV table. `unit`: the size is a multiple of it. `mark`: certainty of the throughput."""

    name: str
    operation: str
    source: Side
    destination: Side
    unit: int
    mark: str


_WHOLE = (1, 1)


def _form(name: str, source: tuple, destination: tuple, unit: int, mark: str) -> MoveForm:
    return MoveForm(name, name.split()[0], Side(*source), Side(*destination), unit, mark)


_L, _R = spec.MVP_PDM_LOCAL_LW_PER_CYCLE, spec.MVP_PDM_REMOTE_LW_PER_CYCLE
_DL, _DR = spec.MVP_DRAM_LOCAL_LW_PER_CYCLE, spec.MVP_DRAM_REMOTE_LW_PER_CYCLE
_PL, _PR = spec.MVP_PDM_DRAM_LOCAL_LW_PER_CYCLE, spec.MVP_PDM_DRAM_REMOTE_LW_PER_CYCLE
_PP = spec.MVP_PDM_COPY_LW_PER_CYCLE
_D, _B, _B2 = spec.DRAM_LW_PER_CYCLE, spec.MVB_LW_PER_CYCLE, spec.MVB2_LW_PER_CYCLE


def _both(name: str, a: str, b: str, scope: tuple[str, str], rate: int, mark: str) -> list[MoveForm]:
    return [_form(name, (a, scope[0], _WHOLE, rate), (b, scope[1], _WHOLE, rate), 64, mark)]


#: name -> row. Names read "<mnemonic> <source>><destination> <locality>".
FORMS: dict[str, MoveForm] = {
    form.name: form
    for form in [
        *_both("mvp pdm>l2bm local", "pdm", "l2bm", ("named", "named"), _L, "D"),
        *_both("mvp pdm>l2bm remote", "pdm", "l2bm", ("named", "named"), _R, "D"),
        *_both("mvp l2bm>pdm local", "l2bm", "pdm", ("named", "named"), _L, "A"),
        *_both("mvp l2bm>pdm remote", "l2bm", "pdm", ("named", "named"), _R, "A"),
        *_both("mvp pdm>dram local", "pdm", "dram", ("named", "named"), _PL, "A"),
        *_both("mvp pdm>dram remote", "pdm", "dram", ("named", "named"), _PR, "A"),
        *_both("mvp dram>pdm local", "dram", "pdm", ("named", "named"), _PL, "A"),
        *_both("mvp dram>pdm remote", "dram", "pdm", ("named", "named"), _PR, "A"),
        *_both("mvp pdm>pdm local", "pdm", "pdm", ("named", "named"), _PP, "A"),
        *_both("mvp pdm>pdm remote", "pdm", "pdm", ("named", "named"), _PR, "A"),
        *_both("mvp dram>l2bm local", "dram", "l2bm", ("named", "named"), _DL, "A"),
        *_both("mvp dram>l2bm remote", "dram", "l2bm", ("named", "named"), _DR, "A"),
        *_both("mvp l2bm>dram local", "l2bm", "dram", ("named", "named"), _DL, "A"),
        *_both("mvp l2bm>dram remote", "l2bm", "dram", ("named", "named"), _DR, "A"),
        *_both("mvp dram>l2bm parallel", "dram", "l2bm", ("all", "block"), _D, "D"),
        *_both("mvp l2bm>dram parallel", "l2bm", "dram", ("block", "all"), _D, "D"),
        *_both("mvp pdm>l2bm parallel", "pdm", "l2bm", ("all", "block"), _L, "A"),
        *_both("mvp l2bm>pdm parallel", "l2bm", "pdm", ("block", "all"), _L, "A"),
        *_both("mvp pdm>dram parallel", "pdm", "dram", ("all", "all"), _PL, "A"),
        *_both("mvp dram>pdm parallel", "dram", "pdm", ("all", "all"), _PL, "A"),
        *_both("mvb pdm>l2bm", "pdm", "l2bm", ("pdm0", "all"), _B, "D"),
        *_both("mvb dram>l2bm", "dram", "l2bm", ("named", "all"), _B, "D"),
        *_both("mvb2 dram>l2bm", "dram", "l2bm", ("all", "all"), _B2, "A"),
        _form("mvb4 dram>l2bm", ("dram", "all", (1, 2), spec.MVB4_DRAM_LW_PER_CYCLE),
              ("l2bm", "all", _WHOLE, spec.MVB4_L2BM_LW_PER_CYCLE), 64, "D"),
        _form("mvr l2bm>pdm", ("l2bm", "all", _WHOLE, spec.MVR_L2BM_LW_PER_CYCLE),
              ("pdm", "pdm0", _WHOLE, spec.MVR_L2BM_LW_PER_CYCLE), 64, "D"),
        _form("mvr l2bm>dram", ("l2bm", "all", _WHOLE, spec.MVR_L2BM_LW_PER_CYCLE),
              ("dram", "all", (1, 4), spec.MVR_L2BM_LW_PER_CYCLE // 4), 64, "D"),
        _form("mvr2 l2bm>dram", ("l2bm", "all", _WHOLE, spec.MVR2_LW_PER_CYCLE),
              ("dram", "all", _WHOLE, spec.MVR2_LW_PER_CYCLE), 64, "A"),
        _form("mvr2 l2bm>pdm", ("l2bm", "all", _WHOLE, spec.MVR2_LW_PER_CYCLE),
              ("pdm", "all", _WHOLE, spec.MVR2_LW_PER_CYCLE), 64, "A"),
        _form("mvr4 l2bm>dram", ("l2bm", "all", _WHOLE, spec.MVR4_L2BM_LW_PER_CYCLE),
              ("dram", "all", (1, 2), spec.MVR4_DRAM_LW_PER_CYCLE), 64, "D"),
        _form("mvd pdm>l2bm", ("pdm", "pdm0", _WHOLE, spec.MVD_PDM_LW_PER_CYCLE),
              ("l2bm", "all", (1, 8), spec.MVD_PDM_LW_PER_CYCLE // 8), 128, "D"),
        _form("mvd l2bm>pdm", ("l2bm", "all", (1, 8), spec.MVD_PDM_LW_PER_CYCLE // 8),
              ("pdm", "pdm0", _WHOLE, spec.MVD_PDM_LW_PER_CYCLE), 128, "D"),
        _form("mvd pdm>dram", ("pdm", "pdm0", _WHOLE, spec.MVD_PDM_LW_PER_CYCLE),
              ("dram", "all", (1, 4), spec.MVD_PDM_LW_PER_CYCLE // 4), 64, "D"),
        _form("mvd dram>pdm", ("dram", "all", (1, 4), spec.MVD_PDM_LW_PER_CYCLE // 4),
              ("pdm", "pdm0", _WHOLE, spec.MVD_PDM_LW_PER_CYCLE), 64, "D"),
    ]
}  # fmt: skip

_PORT = {m.DRAM: "dram", m.DRAM_INDIRECT: "dram", m.PDM: "pdm", m.L2BM: "l2bm"}


class UnknownMove(ValueError):
    """The operands do not make a form of this move; the message says what is missing."""


def known_form_of(move: m.Move) -> MoveForm | None:
    """The row for a move that is executed or timed, None for mvnop. Raises ExecutionError, which names the line."""
    try:
        form = form_of(move)
    except UnknownMove as error:
        raise ExecutionError(f"line {move.line}: {error}") from None
    for operand in (move.src, move.dst):
        for what, number, count in (
            ("group", operand and operand.group, spec.GROUPS),
            ("L2B", operand and operand.block, spec.L2B_PER_GROUP),
        ):
            if number and number >= count:
                raise ExecutionError(f"line {move.line}: {what} {number} is outside 0..{count - 1}")
    return form


def form_of(move: m.Move) -> MoveForm | None:
    """The row for a move, None for mvnop. Raises UnknownMove."""
    try:
        operation = lookup(move.mnemonic).operation
    except UnknownMnemonic as error:
        raise UnknownMove(str(error)) from None
    if operation == "mvnop":
        return None
    src, dst = move.src, move.dst
    if src is None or dst is None:
        raise UnknownMove(f"`{move.mnemonic}` needs a source and a destination")
    name = f"{operation} {_PORT.get(src.space, src.space)}>{_PORT.get(dst.space, dst.space)}"
    if operation == "mvp":
        explicit = [_is_explicit(o) for o in (src, dst)]
        if all(explicit):
            name += " local" if src.group == dst.group else " remote"
        elif any(explicit) or not all(_is_parallel(o) for o in (src, dst)):
            raise UnknownMove(
                "mvp names a group on both sides (@g, $lc@g.l) or on none ($lc@.l: all groups in parallel)"
            )
        else:
            name += " parallel"
    form = FORMS.get(name)
    if form is None:
        raise UnknownMove(f"`{move.mnemonic}` cannot move from {src.space} to {dst.space}")
    if operation != "mvp":
        for side, operand in ((form.source, src), (form.destination, dst)):
            if side.scope == "all" and (operand.group is not None or operand.block is not None):
                raise UnknownMove(f"`{move.mnemonic}` uses every {side.port}: write it without @")
            if side.scope == "named" and operand.group is None:
                raise UnknownMove(f"`{move.mnemonic}` needs the group of its {side.port}: write @<group>")
    return form


def _is_explicit(o: m.Operand) -> bool:
    return o.group is not None and (o.space != m.L2BM or o.block is not None)


def _is_parallel(o: m.Operand) -> bool:
    return o.group is None and (o.space != m.L2BM or o.block is not None)


def ports_of(move: m.Move, form: MoveForm) -> tuple[str, ...]:
    """The ports that a move holds: dram<g>, pdm<g>, l2bm<g>.<l>."""
    ports: dict[str, None] = {}
    for side, operand in ((form.source, move.src), (form.destination, move.dst)):
        assert operand is not None
        groups = range(spec.GROUPS) if side.scope in ("all", "block") else [operand.group or 0]
        blocks = range(spec.L2B_PER_GROUP) if side.scope == "all" else [operand.block or 0]
        for group in groups:
            if side.port == "l2bm":
                ports.update((f"l2bm{group}.{block}", None) for block in blocks)
            else:
                ports[f"{side.port}{group}"] = None
    return tuple(ports)


def duration_of(move: m.Move, form: MoveForm) -> int:
    """Cycles for which a move holds its ports."""
    return cycles_of(move.size, form)


def cycles_of(size: int, form: MoveForm) -> int:
    """Cycles for which a move of so many LW holds its ports."""
    return max(-(-side.size(size) // side.rate) for side in (form.source, form.destination))
