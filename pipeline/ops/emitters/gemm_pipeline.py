"""The software pipeline of a matrix product: one *piece* of weights, from L2BM through the matrix registers.

T is the step of a block's first product, G the groups of four rows, P the period:

    mode  block            L1BM -> MAB      block float        matrix write      products
    h     16 x 16 halves   ll T-4, T-3      hbfn T-3, T-2      ll T-2, T-1       T .. T+G-1          P = max(2, G)
    hs    16 x 16 singles  ll T-6 .. T-3    hbfn r T-5..T-2    l  T-4 .. T-1     T .. T+G-1          P = max(4, G)
    hm    16 x 16 singles  l  T-11 .. T-4   hbfn r T-8..T-2    l  T-7 .. T-1     T .. T+G-1          P = max(8, G)
                           (kept in GRF1)
    ht    16 x 16 halves   ll T-7, T-6      hbfn T-3, T-2      ll T-2, T-1       T .. T+G-1          P = max(6, G)
    hx    crossed          (raw to the matrix T-6, T-5, read across T-4, T-3)
    hst   16 x 16 singles  l  T-15 .. T-8   hbfn T-3, T-2      ll T-2, T-1       T .. T+G-1          P = max(8, G)
          crossed          (kept in GRF1; raw to the matrix T-8 .. T-5, read across T-4, T-3)
    f     8 x 8 singles    l  T-6, T-5      fbfn T-5, T-4      x  T-2, T-1       even lanes T ..     P = 2 max(2, G)
                                            (kept in GRF1)     y  T+P/2-2, -1    odd lanes T+P/2 ..
    d     4 x 4 doubles    l  T-3           dbfn T-2           T-1               u, d pairs T ..     P = 2 G

The matrix sides alternate, so that a block is written while the one before computes. Accumulators are singles or doubles
in GRF0; the first step of an output group adds the bias, the last writes to LM1. A block of mode hm or hst lies in the 16
MABs, the first long words of its 16 rows, then the second ones, which meet in GRF1. The rows of a crossed block are lanes of the
contraction: a side of the matrix registers takes them as they are, is read across, and takes them again as block floats.
In mode f only words in even columns take part, so each block is used twice: its even lanes on side x, its odd lanes, read as
odd words, on side y.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.gemm_modes import Mode

ACC, BIAS = 0, 256  # words of GRF0
RING = 4096  # LW of L1BM, from 0 on, that blocks pass through


@dataclass(frozen=True)
class Rows:
    """The rows of one tile in groups of up to four, one row a cycle. Word addresses.

    a       of each group, where its rows of block floats start in LM0
    lane    what is added to them for a block of 16 lanes of the contraction (its number, the output group)
    c       of each group, where its rows of results start in LM1
    out     what is added to them for each output group
    """

    a: tuple[tuple[int, ...], ...]
    lane: Callable[[int, int], int]
    c: tuple[tuple[int, ...], ...]
    out: Callable[[int], int]
    c_dtype: str

    @property
    def groups(self) -> int:
        return len(self.a)


@dataclass
class Timetable:
    """Lines by step; `emit` places them in order, lines of one step in one bundle."""

    lines: dict[int, list[tuple[str, tuple[int, tuple[int, ...]] | None]]] = field(default_factory=dict)

    def at(self, step: int, line: str, operand: int | None = None, strides: tuple[int, ...] = ()) -> None:
        self.lines.setdefault(step, []).append(
            (line, (operand, strides) if operand is not None and any(strides) else None)
        )

    def emit(self, asm: Asm) -> None:
        if not self.lines:
            return
        for step in range(min(self.lines), max(self.lines) + 1):
            found = self.lines.get(step)
            if not found:
                asm.nop(1)
                continue
            strides = [(i, s[0], s[1]) for i, (_, s) in enumerate(found) if s]
            asm.pe("; ".join(line for line, _ in found), *strides)


def emit_piece(
    asm: Asm,
    mode: Mode,
    rows: Rows,
    steps: int,
    first: int,
    last: int,
    lc: int | None,
    l1b_spread: bool,
    bias: tuple[int, tuple[int, ...]] | None,
    c_strides: tuple[int, ...] = (),
    place: Callable[[int], int] | None = None,
) -> None:
    """Products of the steps [first, last) of the sequence (output group, contraction step), `steps` per output group.

    lc: where the piece's blocks lie in L2BM; None: they are in the ring already.
    bias: L1BM address of the first output group's bias and its strides per loop.
    c_strides: words by which C advances per enclosing loop. place: for the piece's first, second, .. block, its number in L2BM;
    None where they lie in that order."""
    table = Timetable()
    g, period = rows.groups, mode.period(rows.groups)
    if lc is not None:
        _feed(table, mode, last - first, period, lc, l1b_spread, place)
    first_group = first // steps
    for index in range(last - first):
        og, s = divmod(first + index, steps)
        t = index * period
        _load(table, mode, index, t, period)
        bias_word = BIAS + (og - first_group) * mode.bias_words if bias is not None else None
        for group in range(g):
            _products(table, mode, rows, group, index, t, period, s, steps, og, bias_word, c_strides)
    if bias is not None:
        _bring_bias(asm, mode, bias, (last - 1) // steps - first_group + 1)
    table.emit(asm)


def _bring_bias(asm: Asm, mode: Mode, bias: tuple[int, tuple[int, ...]], groups: int) -> None:
    address, strides = bias
    for i in range(-(-groups * mode.bias_words // 16)):
        asm.pe(f"l1bmm $llb{address + 32 * i} $llr{BIAS + 16 * i}v", (0, 0, strides))


def _feed(
    table: Timetable,
    mode: Mode,
    blocks: int,
    period: int,
    lc: int,
    l1b_spread: bool,
    place: Callable[[int], int] | None,
) -> None:
    """L2BM -> L1BM, each line at least three steps before the first read of what it brings."""
    op, each, wide = ("l2bmd", 32, 256) if l1b_spread else ("l2bmb", 64, 64)
    count = -(-blocks * mode.block_lw // each)
    latest = None
    for q in range(count - 1, -1, -1):
        block = q * each // mode.block_lw
        inside = q * each % mode.block_lw
        reads = block * period - mode.lead + _first_read(mode, inside)
        latest = reads - 3 if latest is None else min(latest - 1, reads - 3)
        line = q if place is None else (place(block) * mode.block_lw + inside) // each
        table.at(latest, f"{op} $lc{lc + line * wide} $lb{q * each % RING}")


def _first_read(mode: Mode, inside: int) -> int:
    """When a block's long word number `inside` is read, in steps from its first L1BM line on."""
    if mode.name in ("hm", "hst"):
        half, line = divmod(inside // 16, 4)
        return 2 * line + half
    return inside // (mode.block_lw // {"h": 2, "ht": 2, "hx": 2, "hs": 4, "f": 2, "d": 1}[mode.name])


def _load(table: Timetable, mode: Mode, index: int, t: int, period: int) -> None:
    """One block: L1BM -> block float -> matrix register."""
    lb = index * mode.block_lw % RING
    side = "xy"[index % 2]
    start = t - mode.lead
    if mode.name == "h":
        for i in (0, 1):
            table.at(start + i, f"l1bmm $llb{lb + 32 * i} $nowrite")
            table.at(start + 1 + i, "hbfn/9 $lbf $nowrite")
            table.at(start + 2 + i, f"hmwrite $aluf $ll{side}{8 * i}")
    elif mode.name == "hs":
        for i in range(4):
            table.at(start + i, f"l1bmm $llb{lb + 32 * i} $nowrite")
            table.at(start + 1 + i, "hbfn/9 $lbfr $nowrite")
            table.at(start + 2 + i, f"hmwrite $aluf $l{side}{4 * i}")
    elif mode.name in ("hm", "hst"):
        for i in range(4):
            kept = 448 + 16 * i  # words of GRF1
            for half in (0, 1):
                table.at(start + 2 * i + half, f"l1bmm $lb{lb + 64 * half + 16 * i} $ls{kept + 2 * half}v4")
            if mode.crossed:
                table.at(t - 8 + i, f"hmwrite $lls{kept}vr $l{side}{4 * i}")
            else:
                table.at(start + 2 * i + 3, f"hbfn/9 $lls{kept}vr $nowrite")
                table.at(start + 2 * i + 4, f"hmwrite $aluf $l{side}{4 * i}")
    elif mode.name in ("ht", "hx"):
        for i in (0, 1):
            table.at(start + i, f"l1bmm $llb{lb + 32 * i} $nowrite")
            table.at(start + 1 + i, f"hmwrite $lbf $ll{side}{8 * i}")
    elif mode.name == "f":
        kept = 480 + 16 * (index % 2)  # words of GRF1
        for i in (0, 1):
            table.at(start + i, f"l1bmm $lb{lb + 16 * i} $nowrite")
            table.at(start + 1 + i, f"fbfn $lbf $ls{kept + 8 * i}v")
            table.at(t - 2 + i, f"fmwrite $ls{kept + 8 * i}v $lx{4 * i}")
            table.at(t + period // 2 - 2 + i, f"fmwrite $s{kept + 8 * i + 1}v2 $ly{4 * i}")
    else:
        table.at(start, f"l1bmm $lb{lb} $nowrite")
        table.at(start + 1, "dbfn $lbf $nowrite")
        table.at(start + 2, f"dmwrite $aluf $l{side}0")
    if mode.across:
        for i in (0, 1):
            table.at(t - 4 + i, f"hmread $ll{side}{8 * i} $nowrite")
            table.at(t - 3 + i, "hbfn/9 $mreadf $nowrite")
            table.at(t - 2 + i, f"hmwrite $aluf $ll{side}{8 * i}")


def _products(
    table: Timetable,
    mode: Mode,
    rows: Rows,
    group: int,
    index: int,
    t: int,
    period: int,
    s: int,
    steps: int,
    og: int,
    bias_word: int | None,
    c_strides: tuple[int, ...],
) -> None:
    """The products of one block with one group of four rows."""
    starts_a = rows.a[group]
    starts, ends = s == 0, s == steps - 1
    wide = mode.letter == "h"
    acc = f"${'ll' if wide else 'l'}r{ACC + mode.acc_words * group}v"
    bias = f"${'ll' if wide else 'l'}r{bias_word}" if bias_word is not None else None
    half_out = rows.c_dtype == "half"
    width = {True: 2, False: 4}[half_out] if wide else {True: 1, False: 2}[half_out]
    out = vec(m.LM1, [rows.out(og) + word for word in rows.c[group]], width)
    r = "r" if half_out else ""

    def product(step: int, side: str, x: str, starts: bool, ends: bool) -> None:
        target = out if ends else acc
        short = r if ends else ""
        if starts and bias is None:
            line = f"{mode.letter}mmul{short} $l{side} {x} {target}"
        else:
            line = f"{mode.letter}mfma{short} $l{side} {x} {bias if starts else acc} {target}"
        table.at(step, line, line.count("$") - 1, c_strides if ends else ())

    lanes, part = divmod(s, mode.steps)
    base = rows.lane(lanes, og)
    if wide:
        product(t + group, "xy"[index % 2], vec(m.LM0, [w + base for w in starts_a], 2), starts, ends)
    elif mode.name == "f":
        base += 2 * part
        even = vec(m.LM0, [w + base for w in starts_a], 1)
        odd = vec(m.LM0, [w + base + 1 for w in starts_a], 1)
        product(t + group, "x", even, starts, False)
        product(t + period // 2 + group, "y", odd, False, ends)
    else:
        side = "xy"[index % 2]
        x = vec(m.LM0, [w + base + 2 * part for w in starts_a], 2)
        addend = bias if starts else ("$mauf" if rows.groups == 1 else acc)
        first = f"dmmulu $l{side} {x} $nowrite" if addend is None else f"dmfmau $l{side} {x} {addend} $nowrite"
        table.at(t + 2 * group, first)
        table.at(t + 2 * group + 1, f"dmfmad $l{side} {x} $mauf {out if ends else acc}", 3, c_strides if ends else ())
