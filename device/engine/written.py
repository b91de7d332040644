"""What a program has put somewhere: PE memories and T by PE, L1BM by L1B, L2BM by L2B, mask registers by PE and cycle.

Lanes are bool [4 cycles][PE]. A write counts where its mask lets it through; a word that one half of was written counts as
written. A `d set` counts for every PE, L1B or L2B, whichever it names: a test may set up those that it looks at.
"""

from __future__ import annotations

import numpy as np

from .. import spec
from ..isa import model as m
from ..isa.footprint import SIZES, addresses
from ..isa.table import Opcode
from ..memory.state import State
from ..numerics.fast.rows import ALWAYS
from .decoder import NO_MASK, guards, mask_of
from .network import read_table

PE = np.arange(spec.PES)
SUBPE = PE % spec.PE_PER_MAB
EVERY_LANE = np.ones((4, spec.PES), bool)
FORWARDS = (m.ALUF, m.MAUF, m.LBF, m.MREADF)
#: rotations of a MAB: PE p receives the value of PE p - distance
_ROTATIONS = {"msl": 1, "msr": -1}
_BLOCKS = frozenset({"bfn", "bfe"})


class Written:
    """The marks. `mask_line` is the setting of the latest mask line, as Machine keeps it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.mask_line: tuple[int, str, bool] = (0, "", False)
        self.pe = {space: np.zeros((size, spec.PES), bool) for space, size in SIZES.items()}
        self.t = np.zeros((4, spec.PES), bool)
        self.masks = np.zeros((4 * spec.MASK_ENTRIES, spec.PES), bool)
        self.masks[:4] = self.masks[64:] = True
        self.l1 = np.zeros((spec.L1BS, spec.L1BM_LW), bool)
        self.l2 = np.zeros((spec.L2BS, spec.L2BM_LW), bool)
        self.dar = np.zeros((spec.GROUPS, spec.DAR_ENTRIES), bool)
        #: lanes of a forward register that hold a value; none before its unit has computed anything
        self.forward: dict[str, np.ndarray] = {}

    # --- operands of PE memories -------------------------------------------------------------------------------------
    def rows(self, o: m.Operand) -> np.ndarray:
        """Word addresses [cycle][word of the access][PE, or 1 where all PEs have the same]."""
        base = np.array(addresses(o), np.int64)[:, None]
        if o.space in (m.LM0, m.LM1):
            base = base + self.state.bar[m.BAR0 if o.space == m.LM0 else m.BAR1]
            if o.indirect:
                base = base + self.state.pe[m.T][[1, 5, 9, 13]].astype(np.int64)
            if o.j is not None:
                base = base + np.where(o.j >= SUBPE, o.width, 0)
        start = base % SIZES[o.space] // o.width * o.width
        return (start[:, None, :] + np.arange(o.width)[None, :, None]) % SIZES[o.space]

    def words(self, o: m.Operand) -> np.ndarray:
        """Whether each word that a source reads was written: [cycle][word][PE]."""
        return self.pe[o.space][self.rows(o), PE]

    def lanes(self, o: m.Operand) -> np.ndarray:
        """Lanes in which a destination is written. Long masks let the LSB LW through always: it does not count."""
        words = m.LW2 if o.space == m.T else o.width
        passed = self._passed(mask_of(o, self.mask_line), words)
        return np.asarray((passed if _is_long2(o.mask, self.mask_line) else passed[:, :2]).any(axis=1))

    def unflushed(self, mask: m.Mask | None) -> np.ndarray:
        """Lanes that a zero flush leaves alone."""
        return EVERY_LANE if mask is None else self.lanes(m.Operand(m.NOWRITE, width=m.LW2, mask=mask))

    def _passed(self, setting: tuple, words: int) -> np.ndarray:
        if setting is NO_MASK or setting == ("off",):
            return np.full((4, words, spec.PES), setting is NO_MASK)
        rows, high, low = guards(setting, words, 4)
        nibbles = self.state.masks[rows]
        passed = [
            (shift == ALWAYS)[:, None]
            | (nibbles >> np.where(shift == ALWAYS, 0, 3 - shift)[:, None].astype(np.uint8) & 1 == 1)
            for shift in (high, low)
        ]
        return (passed[0] | passed[1]).reshape(4, words, spec.PES)

    def mark(self, o: m.Operand) -> None:
        """A destination was written."""
        if o.space in SIZES:
            rows, passed = self.rows(o), self._passed(mask_of(o, self.mask_line), o.width)
            for c in range(4):
                self.pe[o.space][rows[c], PE] |= passed[c]
        elif o.space == m.T:
            self.t |= self.lanes(o)
        elif o.space == m.OMR:
            self.masks[4 * o.addr : 4 * o.addr + 4] |= self.lanes(o)

    def mark_set(self, place: m.Place, count: int) -> None:
        """A `d set` of `count` LW."""
        if place.memory in SIZES:
            self.pe[place.memory][(place.addr + np.arange(2 * count)) % SIZES[place.memory]] = True
        elif place.memory == m.T:
            self.t[:] = True
        elif place.memory == m.OMR:
            self.masks[4 * place.addr : 4 * place.addr + 4] = True
        elif place.memory in (m.L1BM, m.L2BM):
            marks = self.l1 if place.memory == m.L1BM else self.l2
            marks[:, (place.addr + np.arange(count)) % marks.shape[1]] = True

    # --- L1BM ----------------------------------------------------------------------------------------------------------
    def from_l1bm(self, o: m.Operand, opcode: Opcode) -> np.ndarray:
        """Lanes for which an L1BM -> PE transfer finds written LW."""
        double = o.width == m.LW2 and opcode.operation != "l1bmd"
        table = (o.addr + read_table(opcode.operation, double, opcode.shift)) % spec.L1BM_LW
        found = np.asarray(self.l1[:, table].reshape(spec.L1BS, 4, -1, spec.PE_PER_L1B).all(axis=2))
        return found.transpose(1, 0, 2).reshape(4, spec.PES)


def _is_long2(mask: m.Mask | None, line: tuple[int, str, bool]) -> bool:
    return line[2] if mask is None else mask.long2


# --- how lanes of results and of sources belong together -------------------------------------------------------------------
def _mabs(lanes: np.ndarray) -> np.ndarray:
    return lanes.reshape(4, -1, spec.PE_PER_MAB)


def sources_of(lanes: np.ndarray, opcode: Opcode, position: int) -> np.ndarray:
    """Lanes of source `position` that the results in `lanes` are made of."""
    if opcode.operation in _ROTATIONS:
        return np.roll(_mabs(lanes), -_ROTATIONS[opcode.operation], axis=2).reshape(lanes.shape)
    if opcode.operation in _BLOCKS or (opcode.matrix and position == 1):
        return _whole_mabs(lanes)
    if opcode.half and not opcode.matrix and position < 2:  # a double product is made on two PEs
        return lanes & ((SUBPE < 2) == (opcode.half == "u"))
    return lanes


def results_of(lanes: np.ndarray, opcode: Opcode, position: int) -> np.ndarray:
    """Lanes of results that lanes of source `position` have a part in."""
    if opcode.operation in _ROTATIONS:
        return np.roll(_mabs(lanes), _ROTATIONS[opcode.operation], axis=2).reshape(lanes.shape)
    return sources_of(lanes, opcode, position)


def _whole_mabs(lanes: np.ndarray) -> np.ndarray:
    return np.repeat(_mabs(lanes).any(axis=2), spec.PE_PER_MAB, axis=1).reshape(lanes.shape)
