"""A self test of a board: data through every level of memory and back, and arithmetic against the plain form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from .. import spec
from ..isa.parser import parse
from .board import Board


def self_test(board: Board, sizes: dict[str, int], mode: str) -> Iterator[tuple[str, bool, str]]:
    """Yields (name, passed, detail). `sizes` are LW: dram and l3 (PDM) of a group, l2 of an L2B, l1 of an L1B. DRAM and
    PDM that are used are put back, also when the test is broken off."""
    rng = np.random.default_rng(20240801)
    yield _host_memory(board, rng, "DRAM, host access", "dram", sizes["dram"])
    yield _host_memory(board, rng, "PDM, host access", "pdm", sizes["l3"])
    yield _l2bm(board, rng, sizes["l2"])
    yield _l1bm(board, rng, sizes["l1"])
    yield _round_trip(board, rng)
    yield _broadcast(board, rng)
    yield _arithmetic(board, rng, mode)
    yield _masks(board)


def _host_memory(board: Board, rng: np.random.Generator, name: str, kind: str, count: int) -> tuple[str, bool, str]:
    read, write = (board.read_dram, board.write_dram) if kind == "dram" else (board.read_pdm, board.write_pdm)
    size = spec.DRAM_LW if kind == "dram" else spec.PDM_LW
    wrong = 0
    with _put_back(board, kind, size - count, count):
        for group in range(spec.GROUPS):
            for data in (
                rng.integers(0, 2**64, count, dtype=np.uint64),
                np.full(count, 2**64 - 1, np.uint64),
                np.zeros(count, np.uint64),
            ):
                write(group, size - count, data)
                wrong += int((read(group, size - count, count) != data).sum())
    return name, wrong == 0, f"{wrong} LW wrong" if wrong else f"{count} LW a group"


@contextmanager
def _put_back(board: Board, kind: str, base: int, count: int) -> Iterator[None]:
    """Around what overwrites `count` LW of DRAM or PDM of every group."""
    read, write = (board.read_dram, board.write_dram) if kind == "dram" else (board.read_pdm, board.write_pdm)
    kept = [read(group, base, count) for group in range(spec.GROUPS)]
    try:
        yield
    finally:
        if board.is_open:  # not after a reset
            for group, data in enumerate(kept):
                write(group, base, data)


def _moved(board: Board, rng: np.random.Generator, count: int, lines: list[str]) -> int:
    """Runs lines that copy `count` LW of DRAM of each group behind themselves; how many arrived wrong."""
    base = spec.DRAM_LW - 2 * count
    data = [rng.integers(0, 2**64, count, dtype=np.uint64) for _ in range(spec.GROUPS)]
    with _put_back(board, "dram", base, 2 * count):
        for group in range(spec.GROUPS):
            board.write_dram(group, base, data[group])
        board.run(parse("\n".join(lines)))
        found = [board.read_dram(group, base + count, count) for group in range(spec.GROUPS)]
    return sum(int((a != b).sum()) for a, b in zip(found, data))


def _to_and_fro(count: int, between: list[str], back: int = 0) -> list[str]:
    """Moves of `count` LW of DRAM to the two L2Bs of each group, half to each, and from $lc`back` to behind them."""
    base, half = spec.DRAM_LW - 2 * count, count // 2
    waits = ["nop; wait i01", "nop; wait i02"]
    there = [f"mvp/n{half}i0{b + 1} $d{base + b * half} $lc0@.{b}" for b in (0, 1)]
    home = [f"mvp/n{half}i0{b + 1} $lc{back}@.{b} $d{base + count + b * half}" for b in (0, 1)]
    return [*there, *waits, *between, *home, *waits]


def _l2bm(board: Board, rng: np.random.Generator, count: int) -> tuple[str, bool, str]:
    """DRAM -> L2BM -> DRAM: other data in each L2B, in whole 64 LW."""
    count = min(-(-count // 64) * 64, spec.L2BM_LW)
    wrong = _moved(board, rng, 2 * count, _to_and_fro(2 * count, []))
    return "DRAM - L2BM", wrong == 0, f"{wrong} LW wrong" if wrong else f"{count} LW an L2B"


def _l1bm(board: Board, rng: np.random.Generator, count: int) -> tuple[str, bool, str]:
    """DRAM -> L2BM -> L1BM -> L2BM -> DRAM: l2bmd gives each L1B 32 LW of its own. L2BM holds half of its L1BMs at a time."""
    count = min(-(-count // 32) * 32, spec.L1BM_LW)
    wrong, most = 0, spec.L2BM_LW // 2 // spec.L1B_PER_L2B
    for first in range(0, count, most):
        steps = range(min(most, count - first) // 32)
        back = spec.L2BM_LW // 2
        lines = [f"l2bmd $lc{256 * i} $lb{first + 32 * i}" for i in steps]
        lines += ["nop/3"]
        lines += [f"l2bmd $lb{first + 32 * i} $lc{back + 256 * i}" for i in steps]
        wrong += _moved(board, rng, 512 * len(steps), _to_and_fro(512 * len(steps), [*lines, "nop"], back))
    return "L2BM - L1BM", wrong == 0, f"{wrong} LW wrong" if wrong else f"{count} LW an L1B"


def _round_trip(board: Board, rng: np.random.Generator) -> tuple[str, bool, str]:
    """DRAM -> L2BM -> L1BM -> LM0 of every PE -> back to another place in DRAM: l2bmd and l1bmd give each PE data of its own."""
    lines = [f"l2bmd $lc{256 * i} $lb{32 * i}" for i in range(8)]
    lines += ["nop/3", "l1bmd $lb0 $lm0v", "nop/3", "l1bmd $lm0v $lb512", "nop/3"]
    lines += [f"l2bmd $lb{512 + 32 * i} $lc{2048 + 256 * i}" for i in range(8)]
    wrong = _moved(board, rng, 4096, _to_and_fro(4096, [*lines, "nop"], 2048))
    return "DRAM - L2BM - L1BM - LM", wrong == 0, f"{wrong} LW wrong" if wrong else "4096 LW a group"


def _broadcast(board: Board, rng: np.random.Generator) -> tuple[str, bool, str]:
    """PDM of group 0 to every PE."""
    data = rng.integers(0, 2**64, 64, dtype=np.uint64)
    with _put_back(board, "pdm", 0, 64):
        board.write_pdm(0, 0, data)
        board.run(parse("mvb/n64i01 $p0@0 $lc0\nnop; wait i01\nl2bmb $lc0 $lb0\nnop\nl1bmp $lb0 $lm0v\nnop/3"))
    words = board.machine.read("lm0", 0, 8).astype(np.uint64)
    got = (words[0::2] << np.uint64(32)) | words[1::2]
    return "PDM to every PE", bool((got == data[:4, None]).all()), ""


def _arithmetic(board: Board, rng: np.random.Generator, mode: str) -> tuple[str, bool, str]:
    """x*y + z of random numbers in every PE; a sample is compared with the plain form of the arithmetic."""
    from ..numerics.formats import FORMATS
    from ..numerics.reference.mau import vector_fma

    words = rng.integers(0, 2**32, (24, spec.PES), dtype=np.uint32)
    board.machine.write("lm0", 0, words[:8])
    board.machine.write("grf0", 0, words[8:16])
    board.machine.write("grf1", 0, words[8:24])
    text = {
        "h": "hvfma $lm0v $lr0v $lls0v $lln0v",
        "f": "fvfma $lm0v $lr0v $ls0v $ln0v",
        "d": "dvfmau $lm0v $lr0v $ls0v $nowrite\ndvfmad $lm0v $lr0v $mauf $ln0v",
    }[mode]
    board.run(parse(text))
    out, wrong, count = board.machine.read("lm1", 0, 16), 0, 0
    bits = FORMATS[mode].bits
    for k in rng.integers(0, spec.PES, 16):
        lanes = [_lanes(words[first : first + 2, k], bits) for first in (0, 8)]
        z = _lanes(words[8 : 12 if mode == "h" else 10, k], 32 if mode == "h" else bits)
        got = _lanes(out[: 4 if mode == "h" else 2, k], 32 if mode == "h" else bits)
        for x, y, c, r in zip(*lanes, z, got):
            wrong += vector_fma(x, y, c, mode) != r
            count += 1
    return f"arithmetic ({mode})", wrong == 0, f"{wrong} of {count} wrong" if wrong else f"{count} values compared"


def _lanes(words: np.ndarray, bits: int) -> list[int]:
    value = 0
    for word in words:
        value = value << 32 | int(word)
    total = 32 * len(words)
    return [value >> shift & ((1 << bits) - 1) for shift in range(total - bits, -1, -bits)]


def _masks(board: Board) -> tuple[str, bool, str]:
    """Every PE finds itself by a mask that it computed."""
    lines = [
        'imm ui"0" $lr0 $ls0',
        "nop/2",
        'imm ui"7" $lr8',
        "nop/2",
        "ixor $peid $lr8 $omr1",
        'imm ui"1" $lr0/$imr1',
        "nop/3",
    ]
    board.run(parse("\n".join(lines)))
    mark = board.machine.read("grf0", 0, 1)[0]
    expected = (np.arange(spec.PES) % spec.PE_PER_L1B == 7).astype(np.uint32)
    return "masks", bool((mark == expected).all()), ""
