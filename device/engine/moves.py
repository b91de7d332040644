"""MV instructions: what each form copies (SDM 3.5.8). The time they take is the clock's business."""

from __future__ import annotations

import numpy as np

from .. import spec, timing
from ..errors import ExecutionError
from ..isa import model as m
from ..isa.table import lookup
from ..memory.state import State
from ..numerics.reduce import reduce_lw


def execute(state: State, move: m.Move, src_addr: int, dst_addr: int) -> None:
    """Performs a move whose addresses (symbols, loops) are resolved."""
    form = timing.known_form_of(move)
    if form is not None:
        if move.size > spec.DRAM_LW:
            raise ExecutionError(f"line {move.line}: a move of {move.size} LW; DRAM has {spec.DRAM_LW}")
        assert move.src is not None and move.dst is not None
        opcode = lookup(move.mnemonic)
        OPERATIONS[form.operation](state, form, move, opcode, src_addr, dst_addr)


# --- one side ------------------------------------------------------------------------------------------------------------
def _indirect(state: State, group: int, entry: int, nd: int, count: int) -> np.ndarray:
    """LW addresses through DAR: piece j of 16 LW is at 16 * DAR[entry + j div nd]; the pieces that share an entry follow on."""
    nd = max(nd, 1)
    pieces = np.arange(-(-count // spec.DAR_UNIT_LW))
    bases = state.dar[group, (entry + pieces // nd) % spec.DAR_ENTRIES].astype(np.int64) * spec.DAR_UNIT_LW
    bases = bases + pieces % nd * spec.DAR_UNIT_LW
    return (bases[:, None] + np.arange(spec.DAR_UNIT_LW)).reshape(-1)[:count] % spec.DRAM_LW


def _read(state: State, o: m.Operand, nd: int, group: int, block: int, addr: int, count: int) -> np.ndarray:
    if o.space == m.L2BM:
        row = state.l2bm[group * spec.L2B_PER_GROUP + block]
        if addr + count <= spec.L2BM_LW:
            return row[addr : addr + count].copy()
        return row[(addr + np.arange(count)) % spec.L2BM_LW]
    if o.space == m.DRAM_INDIRECT:
        at = _indirect(state, group, addr, nd, count)
        return np.concatenate([state.dram[group].read(int(at[i]), min(16, count - i)) for i in range(0, count, 16)])
    return (state.pdm if o.space == m.PDM else state.dram)[group].read(addr, count)


def _write(state: State, o: m.Operand, nd: int, group: int, block: int, addr: int, data: np.ndarray) -> None:
    if o.space == m.L2BM:
        row = state.l2bm[group * spec.L2B_PER_GROUP + block]
        if addr + data.size <= spec.L2BM_LW:
            row[addr : addr + data.size] = data
        else:
            row[(addr + np.arange(data.size)) % spec.L2BM_LW] = data
    elif o.space == m.DRAM_INDIRECT:
        at = _indirect(state, group, addr, nd, data.size)
        for i in range(0, data.size, 16):
            state.dram[group].write(int(at[i]), data[i : i + 16])
    else:
        (state.pdm if o.space == m.PDM else state.dram)[group].write(addr, data)


GROUPS, BLOCKS = range(spec.GROUPS), range(spec.L2B_PER_GROUP)


def _all_l2bm(state: State, move: m.Move, addr: int, count: int) -> np.ndarray:
    """[group, L2B, LW]"""
    assert move.src is not None
    return np.stack([[_read(state, move.src, 0, g, b, addr, count) for b in BLOCKS] for g in GROUPS])


# --- forms ---------------------------------------------------------------------------------------------------------------
def _mvp(state, form, move, opcode, a, d) -> None:
    src, dst = move.src, move.dst
    if form.name.endswith("parallel"):
        for g in GROUPS:
            _write(
                state, dst, move.nd, g, dst.block or 0, d, _read(state, src, move.nd, g, src.block or 0, a, move.size)
            )
    else:
        data = _read(state, src, move.nd, src.group, src.block or 0, a, move.size)
        _write(state, dst, move.nd, dst.group, dst.block or 0, d, data)


def _mvb(state, form, move, opcode, a, d) -> None:
    data = _read(state, move.src, move.nd, move.src.group or 0, 0, a, move.size)
    for g in GROUPS:
        for b in BLOCKS:
            _write(state, move.dst, 0, g, b, d, data)


def _mvb2(state, form, move, opcode, a, d) -> None:
    for g in GROUPS:
        data = _read(state, move.src, move.nd, g, 0, a, move.size)
        for b in BLOCKS:
            _write(state, move.dst, 0, g, b, d, data)


def _mvb4(state, form, move, opcode, a, d) -> None:
    """LC[g'][l][d + 64i + 16g + k] = DRAM_g[a + 32i + 16l + k] for every g'."""
    half = move.size // 2
    data = np.stack([_read(state, move.src, move.nd, g, 0, a, half) for g in GROUPS])  # g, LW
    blocks = data.reshape(4, half // 32, 2, 16).transpose(2, 1, 0, 3).reshape(2, move.size)  # l, (i, g, k)
    for g in GROUPS:
        for b in BLOCKS:
            _write(state, move.dst, 0, g, b, d, blocks[b])


def _mvr(state, form, move, opcode, a, d) -> None:
    """The 2 L2BMs of each group, then the 4 groups (order inferred), a number of the operation's precision in between."""
    data = _all_l2bm(state, move, a, move.size)
    pairs = reduce_lw(opcode.reduction, np.ascontiguousarray(data.transpose(0, 2, 1)))  # g, LW
    out = reduce_lw(opcode.reduction, np.ascontiguousarray(pairs.T))
    if move.dst.space == m.PDM:
        _write(state, move.dst, 0, move.dst.group or 0, 0, d, out)
    else:
        parts = out.reshape(-1, 4, 16)  # i, g, k
        for g in GROUPS:
            _write(state, move.dst, move.nd, g, 0, d, parts[:, g].reshape(-1))


def _mvr2(state, form, move, opcode, a, d) -> None:
    data = _all_l2bm(state, move, a, move.size)
    out = reduce_lw(opcode.reduction, np.ascontiguousarray(data.transpose(0, 2, 1)))
    for g in GROUPS:
        _write(state, move.dst, move.nd, g, 0, d, out[g])


def _mvr4(state, form, move, opcode, a, d) -> None:
    """DRAM_g[d + 32i + 16l + k] = R_l[64i + 16g + k], R_l the reduction over the groups."""
    data = _all_l2bm(state, move, a, move.size)
    out = reduce_lw(opcode.reduction, np.ascontiguousarray(data.transpose(1, 2, 0)))  # l, LW
    parts = out.reshape(2, -1, 4, 16).transpose(2, 1, 0, 3)  # g, i, l, k
    for g in GROUPS:
        _write(state, move.dst, move.nd, g, 0, d, parts[g].reshape(-1))


def _mvd(state, form, move, opcode, a, d) -> None:
    """PDM[128i + 16(2g+l) + k] <-> LC[g][l][16i + k], PDM[64i + 16g + k] <-> DRAM_g[16i + k]."""
    src, dst = move.src, move.dst
    if src.space == m.PDM:
        data = _read(state, src, 0, src.group or 0, 0, a, move.size)
        if dst.space == m.L2BM:
            parts = data.reshape(-1, 8, 16)
            for n in range(8):
                _write(state, dst, 0, n // 2, n % 2, d, parts[:, n].reshape(-1))
        else:
            parts = data.reshape(-1, 4, 16)
            for g in GROUPS:
                _write(state, dst, move.nd, g, 0, d, parts[:, g].reshape(-1))
        return
    if src.space == m.L2BM:
        pieces = [_read(state, src, 0, n // 2, n % 2, a, move.size // 8) for n in range(8)]
    else:
        pieces = [_read(state, src, move.nd, g, 0, a, move.size // 4) for g in GROUPS]
    data = np.stack([p.reshape(-1, 16) for p in pieces], axis=1).reshape(-1)
    _write(state, dst, 0, dst.group or 0, 0, d, data)


OPERATIONS = {
    "mvp": _mvp,
    "mvb": _mvb,
    "mvb2": _mvb2,
    "mvb4": _mvb4,
    "mvr": _mvr,
    "mvr2": _mvr2,
    "mvr4": _mvr4,
    "mvd": _mvd,
}
