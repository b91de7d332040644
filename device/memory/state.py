"""Every memory and register of the chip.

PE memories are uint32 [row][4096]: a row is one word of every PE, PEs ordered by group, L2B, L1B, MAB, PE. Each has one row more
than the chip, always zero, which stands for the parts that a narrow access does not have.
"""

from __future__ import annotations

import numpy as np

from .. import spec
from ..isa import model as m
from .dram import Fill, PagedMemory

PES = spec.PES
PE_WORDS = {m.LM0: spec.LM_WORDS, m.LM1: spec.LM_WORDS, m.GRF0: spec.GRF_WORDS, m.GRF1: spec.GRF_WORDS}


class State:
    """The arrays. Nothing here knows about instructions.

    t, forwards   rows 4c + w: word w of the 2LW of cycle c; row 16 is zero
    matrix        rows 2r + w: word w of the LW of matrix row r
    masks         uint8 [4 entry + c][PE]: four bits of each entry and cycle, the first is 8
    """

    def __init__(self, dram: list[PagedMemory] | None = None, pdm: list[PagedMemory] | None = None) -> None:
        self.pe: dict[str, np.ndarray] = {
            space: np.zeros((words + 1, PES), np.uint32) for space, words in PE_WORDS.items()
        }
        self.pe[m.T] = np.zeros((17, PES), np.uint32)
        self.forward: dict[str, np.ndarray] = {
            name: np.zeros((17, PES), np.uint32) for name in (m.ALUF, m.MAUF, m.LBF, m.MREADF)
        }
        self.matrix: dict[str, np.ndarray] = {
            side: np.zeros((2 * spec.MATRIX_ROWS, PES), np.uint32) for side in (m.MAT_X, m.MAT_Y)
        }
        self.masks = np.zeros((4 * spec.MASK_ENTRIES, PES), np.uint8)
        self.reset_masks()
        self.bar: dict[str, np.ndarray] = {m.BAR0: np.zeros(PES, np.int32), m.BAR1: np.zeros(PES, np.int32)}
        self.l1bm = np.zeros((spec.L1BS, spec.L1BM_LW), np.uint64)
        self.turnaround = np.zeros((spec.L1BS, 256), np.uint64)
        self.l2bm = np.zeros((spec.L2BS, spec.L2BM_LW), np.uint64)
        self.dram = dram or [PagedMemory(spec.DRAM_LW, g) for g in range(spec.GROUPS)]
        self.pdm = pdm or [PagedMemory(spec.PDM_LW, 16 + g) for g in range(spec.GROUPS)]
        self.dar = np.zeros((spec.GROUPS, spec.DAR_ENTRIES), np.uint32)
        self.dar_buffer = np.zeros((spec.GROUPS, 512), np.uint32)
        self.dar_position = [0, 0]  # next entry of the buffer, first DAR entry it goes to
        self.fixed = _fixed_values()

    def reset_masks(self) -> None:
        """Entry 0 and the writable entries all ones; 16..31 hold the low 4 bits of their number, one per cycle."""
        self.masks[:64] = 15
        for entry in range(16, 32):
            for c in range(4):
                self.masks[4 * entry + c] = 15 if entry >> (3 - c) & 1 else 0

    def fill(self, fill: Fill) -> None:
        """What `gpfn3-smi clear` does: every memory, DRAM by record; mask registers become all ones."""
        for memory in (*self.dram, *self.pdm):
            memory.clear(fill)
        self.fill_on_chip(fill)

    def fill_on_chip(self, fill: Fill) -> None:
        """The part of `fill` that is inside the chip."""
        generator = np.random.Generator(np.random.Philox(key=np.array([fill.value & (2**64 - 1), 1 << 48], np.uint64)))
        words = [*((a, True) for a in self.pe.values()), *((a, False) for a in self.matrix.values())]
        for array, padded in words:
            body = array[:-1] if padded else array
            if fill.kind == "random":
                body[:] = generator.integers(0, 2**32, body.shape, dtype=np.uint32)
            else:
                body[0::2] = fill.value >> 32 if fill.kind == "pattern" else 0
                body[1::2] = fill.value & 0xFFFFFFFF if fill.kind == "pattern" else 0
        for array in (self.l1bm, self.l2bm):
            if fill.kind == "random":
                array[:] = generator.integers(0, 2**64, array.shape, dtype=np.uint64)
            else:
                array[:] = fill.value if fill.kind == "pattern" else 0
        for bar in self.bar.values():
            bar[:] = 0
        self.dar[:] = 0
        for forward in self.forward.values():
            forward[:] = 0
        self.turnaround[:] = 0
        self.reset_masks()


def _fixed_values() -> dict[str, np.ndarray]:
    """Fixed-value inputs as uint32 [row][PE]: row 0 zero, row 1 the value, row 2 the value in both halves."""
    pe = np.arange(PES, dtype=np.uint32)
    values = {
        m.L2BID: pe // (PES // spec.L2BS),
        m.L1BID: pe // spec.PE_PER_L1B % spec.L1B_PER_L2B,
        m.MABID: pe // spec.PE_PER_MAB % spec.MAB_PER_L1B,
        m.PEID: pe % spec.PE_PER_L1B,
        m.SUBPEID: pe % spec.PE_PER_MAB,
    }
    fixed = {}
    for name, value in values.items():
        value = value.astype(np.uint32)
        fixed[name] = np.stack([np.zeros_like(value), value, value | value << np.uint32(16)])
    top = np.full(PES, 0x80000000, np.uint32)
    fixed[m.MSB1] = np.stack([np.zeros_like(top), top, top | np.uint32(0x8000)])
    return fixed
