"""A self test of a board: data through every level of memory and back, and arithmetic against the plain form."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .. import spec
from ..isa.parser import parse
from .board import Board


def self_test(board: Board, sizes: dict[str, int], mode: str) -> Iterator[tuple[str, bool, str]]:
    """Yields (name, passed, detail). DRAM and PDM that are used are put back."""
    rng = np.random.default_rng(20240801)
    yield _host_memory(board, rng, "DRAM, host access", "dram", sizes["dram"])
    yield _host_memory(board, rng, "PDM, host access", "pdm", sizes["l3"])
    yield _round_trip(board, rng, sizes)
    yield _broadcast(board, rng)
    yield _arithmetic(board, rng, mode)
    yield _masks(board)


def _host_memory(board: Board, rng: np.random.Generator, name: str, kind: str, count: int) -> tuple[str, bool, str]:
    read, write = (board.read_dram, board.write_dram) if kind == "dram" else (board.read_pdm, board.write_pdm)
    size = spec.DRAM_LW if kind == "dram" else spec.PDM_LW
    wrong = 0
    for group in range(spec.GROUPS):
        kept = read(group, size - count, count)
        for data in (
            rng.integers(0, 2**64, count, dtype=np.uint64),
            np.full(count, 2**64 - 1, np.uint64),
            np.zeros(count, np.uint64),
        ):
            write(group, size - count, data)
            wrong += int((read(group, size - count, count) != data).sum())
        write(group, size - count, kept)
    return name, wrong == 0, f"{wrong} LW wrong" if wrong else f"{count} LW a group"


def _round_trip(board: Board, rng: np.random.Generator, sizes: dict[str, int]) -> tuple[str, bool, str]:
    """DRAM -> L2BM -> L1BM -> LM0 of every PE -> back to another place in DRAM: l2bmd and l1bmd give each PE data of its own."""
    base = spec.DRAM_LW - 8192
    data = [rng.integers(0, 2**64, 4096, dtype=np.uint64) for _ in range(spec.GROUPS)]
    kept = [board.read_dram(g, base, 8192) for g in range(spec.GROUPS)]
    for g in range(spec.GROUPS):
        board.write_dram(g, base, data[g])
    lines = [
        f"mvp/n2048i01 $d{base} $lc0@.0",
        f"mvp/n2048i02 $d{base + 2048} $lc0@.1",
        "nop; wait i01",
        "nop; wait i02",
    ]
    lines += [f"l2bmd $lc{256 * i} $lb{32 * i}" for i in range(8)]
    lines += ["nop/3", "l1bmd $lb0 $lm0v", "nop/3", "l1bmd $lm0v $lb512", "nop/3"]
    lines += [f"l2bmd $lb{512 + 32 * i} $lc{2048 + 256 * i}" for i in range(8)]
    lines += [
        "nop",
        f"mvp/n2048i03 $lc2048@.0 $d{base + 4096}",
        f"mvp/n2048i04 $lc2048@.1 $d{base + 6144}",
        "nop; wait i03",
        "nop; wait i04",
    ]
    board.run(parse("\n".join(lines)))
    wrong = sum(int((board.read_dram(g, base + 4096, 4096) != data[g]).sum()) for g in range(spec.GROUPS))
    for g in range(spec.GROUPS):
        board.write_dram(g, base, kept[g])
    return "DRAM - L2BM - L1BM - LM", wrong == 0, f"{wrong} LW wrong" if wrong else "4096 LW a group"


def _broadcast(board: Board, rng: np.random.Generator) -> tuple[str, bool, str]:
    """PDM of group 0 to every PE."""
    data = rng.integers(0, 2**64, 64, dtype=np.uint64)
    kept = board.read_pdm(0, 0, 64)
    board.write_pdm(0, 0, data)
    board.run(parse("mvb/n64i01 $p0@0 $lc0\nnop; wait i01\nl2bmb $lc0 $lb0\nnop\nl1bmp $lb0 $lm0v\nnop/3"))
    board.write_pdm(0, 0, kept)
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
