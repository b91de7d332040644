"""The pieces of a pass from L2BM to LM0 of the PEs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mlsdk.device import spec
from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.pieces import BY_SHARE, GROUP, LB_SIZE, LINE, OWN, Load, Part
from mlsdk.pipeline.ops.emitters.transfer import pipeline


def bring(asm: Asm, load: Load, lc: int, lb: int) -> None:
    """From L2BM, where the buffer starts at `lc` (its moves awaited), through L1BM at `lb` to LM0. Lists of L1Bs stay in L1BM
    until they are complete."""
    part = load.part
    if part.given is not None:
        given = [(slot, b, r) for (b, r), slot in np.ndenumerate(part.given) if load.first <= slot < load.last]
        lines = _given(sorted(given), lc + load.lc - load.first * LINE, lb, part)
        reads = _into_lm0(part, part.first, part.last, lb) if load.done else []
        pipeline(asm, lines, [(text, len(lines)) for text, _ in reads], distance=2)
        return
    step = LB_SIZE // part.kind.lb
    for first in range(part.first, part.last, step):
        last = min(first + step, part.last)
        lines, done = [], []  # lines after which round first + i is in L1BM
        for i, r in enumerate(range(first, last)):
            lines += _into_l1bm(part, lc + load.lc + (r - part.first) * part.kind.unit, lb + i * part.kind.lb)
            done.append(len(lines))
        reads = _into_lm0(part, first, last, lb)
        pipeline(asm, lines, [(text, done[min(i, len(done) - 1)]) for text, i in reads], distance=2)


def _given(given: list[tuple[int, int, int]], lc: int, lb: int, part: Part) -> list[str]:
    """Slots to the rounds of L1Bs, (slot, L1B, round); each to as many L1Bs at once as one instruction reaches."""
    wanted: dict[tuple[int, int], set[int]] = {}
    for slot, b, r in given:
        wanted.setdefault((slot, r), set()).add(b)
    return [
        f"l2bmb{target} $lc{lc + slot * LINE} $lb{lb + r * LINE}"
        for (slot, r), blocks in wanted.items()
        for target in targets(blocks)
    ]


def targets(blocks: Iterable[int]) -> list[str]:
    """L1Bs as few targets of an instruction that are none of others: "" is all, "@5" one, "@4/3" those that differ from 4 in bits
    of 3."""
    rest, found = set(blocks), []
    for free in sorted(range(spec.L1B_PER_L2B), key=lambda bits: -bits.bit_count()):
        for first in sorted(rest):
            reached = {first ^ bits for bits in range(spec.L1B_PER_L2B) if not bits & ~free}
            if reached <= rest:
                rest -= reached
                found.append("" if len(reached) == spec.L1B_PER_L2B else f"@{first}/{free}" if free else f"@{first}")
    return found


def _into_l1bm(part: Part, lc: int, lb: int) -> list[str]:
    """A round."""
    if part.kind.name == OWN:
        return [f"l2bmd $lc{lc} $lb{lb}", f"l2bmd $lc{lc + 256} $lb{lb + 32}"]
    return [f"{'l2bmd' if part.kind.name == BY_SHARE else 'l2bmb'} $lc{lc} $lb{lb}"]


def _into_lm0(part: Part, a: int, b: int, lb: int) -> list[tuple[str, int]]:
    """(instruction, the last round, counted from a, that it needs)."""
    kind, first, slot = part.kind, part.first, part.slot
    if kind.own:
        return [(f"l1bmd $lb{lb + (r - a) * 64} $lm{2 * (slot + r - first)}v", r - a + 3) for r in range(a, b, 4)]
    reads = []
    if kind.by_lane:
        each = kind.lb // 4
        for r in range(a, b):
            for g in range(0, each, GROUP):
                if kind.used[r, g // 2 : g // 2 + 4].any():
                    to = slot + (r - first) * each + g
                    reads.append((f"l1bmm $llb{lb + (r - a) * kind.lb + 4 * g} $llm{2 * to}v", r - a))
        return reads
    to = slot + GROUP * int(kind.used[first:a].sum())
    for r in range(a, b):
        for g in np.flatnonzero(kind.used[r]).tolist():
            reads.append((f"l1bmp $llb{lb + (r - a) * kind.lb + GROUP * g} $llm{2 * to}v", r - a))
            to += GROUP
    return reads
