"""Transfers between PEs, L1BM and L2BM (SDM 3.6.7, 3.6.8), and their reductions."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import spec
from ..errors import ExecutionError
from ..isa import model as m
from ..isa.table import Opcode
from ..numerics.fast import network as kernels
from ..numerics.fast import rows as row_kernels
from ..numerics.reduce import reduce_lw, unit
from .loops import Per
from .mau import NONE, Fetched

if TYPE_CHECKING:
    from .decoder import Decoder, Result

Q = np.arange(spec.PE_PER_L1B)
MAB, PE = Q >> 2, Q & 3


@cache
def read_table(operation: str, double: bool, shift: int) -> np.ndarray:
    """LW offset [cycle * accesses + k][PE of the L1B] of an L1BM -> PE transfer."""
    rows = []
    for c in range(4):
        for k in range(2 if double else 1):
            if operation == "l1bmp":
                rows.append(np.full(spec.PE_PER_L1B, c + 4 * k))
            elif operation == "l1bmm":
                rows.append(8 * c + 4 * k + PE if double else 4 * c + PE)
            elif operation == "l1bmm4":
                rows.append(32 * c + 8 * (MAB >> 2) + 4 * k + PE if double else 16 * c + 4 * (MAB >> 2) + PE)
            elif k == 0:  # l1bmd: LW only, the LSB LW has no data
                rows.append(64 * c + 4 * ((MAB - shift) % 16) + PE)
    return np.stack(rows)


def decode_to_pe(d: Decoder, instruction: m.Instruction, opcode: Opcode) -> tuple[Result, int]:
    from .decoder import Result

    source = instruction.operands[0]
    assert isinstance(source, m.Operand)
    double = source.width == m.LW2 and opcode.operation != "l1bmd"
    table = read_table(opcode.operation, double, opcode.shift)
    words = 4 if double else 2
    rows: Any
    if source.space == m.L1BM_TURN:
        # What the latest PE -> L1BM instruction of this kind left; l1bmd+n leaves it in unshifted order, so that reading it
        # with the same n gives what a plain l1bmd would read back from L1BM.
        memory, rows = d.state.turnaround, table
    else:
        memory, rows = d.state.l1bm, d.lw_table(source, table, spec.L1BM_LW)
    from_l1bm = source.space == m.L1BM
    if d.lanes and isinstance(rows, np.ndarray):
        rows = Per([rows] * d.count)
    kernel = kernels.to_mabs if opcode.operation in ("l1bmm", "l1bmp") else kernels.to_pes
    emit = lambda v: d.call(kernel, memory, rows, v.mem, v.words(words), batchable=from_l1bm)  # noqa: E731
    return Result(opcode, words, [], emit), 1


def decode_from_pe(d: Decoder, instruction: m.Instruction, opcode: Opcode, forwarding: bool) -> Fetched:
    """PE -> L1BM: the data goes to the turnaround register (unless noforward) and, without `$lbi`, to L1BM."""
    source, target = instruction.operands
    assert isinstance(source, m.Operand) and isinstance(target, m.Operand)
    name = opcode.operation
    double = target.width == m.LW2 and name != "l1bmd"
    accesses = 2 if double else 1
    view = d.source(source)
    short = opcode.result_reduced
    if source.extend:
        out = d.buffer(4)
        d.call(row_kernels.extend_half, view.mem, view.words(2), out.mem, out.words(4), NONE)
        view = out
    state = d.state
    if name in ("l1bmr", "l1bmr4"):
        base = _target_table(name, double)
        rows = view.words(4 if double or short else 2)
        arguments = (view.mem, rows, opcode.reduction, name == "l1bmr4", short, double)
        addresses = None if target.space == m.L1BM_TURN else d.lw_table(target, base, spec.L1BM_LW)

        def emit_reduction() -> None:
            d.call(
                _reduce,
                *arguments,
                base if forwarding else None,
                state.turnaround,
                addresses,
                state.l1bm,
                batchable=False,
            )

        return Fetched(emit_reduction)
    pes, table = _scatter_table(name, double, opcode.mab)
    rows = view.words(2 * accesses)
    plain = table
    if name == "l1bmd" and opcode.shift:
        table = np.stack([64 * c + 4 * ((MAB + opcode.shift) % 16) + PE for c in range(4)])

    def emit() -> None:
        if forwarding:
            d.call(kernels.from_pes, view.mem, rows, plain, pes, state.turnaround, batchable=False)
        if target.space == m.L1BM:
            d.call(
                kernels.from_pes,
                view.mem,
                rows,
                d.lw_table(target, table, spec.L1BM_LW),
                pes,
                state.l1bm,
                batchable=False,
            )

    return Fetched(emit)


@cache
def _scatter_table(name: str, double: bool, mab: int) -> tuple[np.ndarray, np.ndarray]:
    """PEs of an L1B that send, and the offset of each for every access."""
    if name == "l1bmd":
        return Q, np.stack([64 * c + Q for c in range(4)])
    if name == "l1bmm":
        pes = 4 * mab + np.arange(4)
    else:
        pes = np.array([4 * (4 * quarter + mab) + p for quarter in range(4) for p in range(4)])
    whole = read_table(name, double, 0)
    return pes, np.ascontiguousarray(whole[:, pes])


@cache
def _target_table(name: str, double: bool) -> np.ndarray:
    """Offsets [access][values] of a reduction's results, in the order (quarter,) PE."""
    if name == "l1bmr":
        return np.ascontiguousarray(read_table("l1bmm", double, 0)[:, :4])
    whole = read_table("l1bmm4", double, 0)
    return np.ascontiguousarray(whole[:, [16 * quarter + p for quarter in range(4) for p in range(4)]])


def _reduce(
    mem: np.ndarray,
    rows: np.ndarray,
    reduction: str,
    quarters: bool,
    short: bool,
    double: bool,
    turn: Any,
    turnaround: np.ndarray,
    addresses: Any,
    l1bm: np.ndarray,
) -> None:
    sources = 4 if quarters else spec.MAB_PER_L1B
    values = np.empty((rows.size // 2 * spec.PES // sources, sources), np.uint64)
    kernels.gather_mabs(mem, rows, quarters, values)
    # [access, L1B, (quarter and) PE]
    out = reduce_lw(reduction, values, 1 if quarters else 2, short, reduction == "hfadd")
    out = out.reshape(rows.size // 2, spec.L1BS, -1, *out.shape[1:])
    if short:
        # the 4 words of a PE become the 4 halves of one LW
        pairs = out.reshape(4, 2, *out.shape[1:])
        out = (
            (pairs[:, 0, ..., 0] << np.uint64(48))
            | (pairs[:, 0, ..., 1] << np.uint64(32))
            | (pairs[:, 1, ..., 0] << np.uint64(16))
            | pairs[:, 1, ..., 1]
        )
    results = out.reshape(out.shape[0], spec.L1BS, -1)
    if short and double:  # the LW of halves is the MSB LW of the 2LW
        results = np.stack([results, np.zeros_like(results)], 1).reshape(-1, *results.shape[1:])
    for n in range(results.shape[0]):
        if turn is not None:
            turnaround[:, turn[n]] = results[n]
        if addresses is not None:
            l1bm[:, addresses[n]] = results[n]


# --- L2BM <-> L1BM -------------------------------------------------------------------------------------------------------
def decode_l2(d: Decoder, instruction: m.Instruction, opcode: Opcode) -> None:
    source, target = instruction.operands
    assert isinstance(source, m.Operand) and isinstance(target, m.Operand)
    state, name = d.state, opcode.operation
    if name == "l2bmdars":
        if (source.block or 0) >= spec.L2B_PER_GROUP:
            raise ExecutionError(f"`{name}`: L2B {source.block} is outside 0..{spec.L2B_PER_GROUP - 1}")
        d.call(_dars, d.state, d.lw_address(source), source.block or 0, target.addr, batchable=False)
        return
    key = "l2bmu" if name == "l2bmd" and source.space == m.L1BM else name
    d.call(
        L2_TRANSFERS[key], state.l2bm, state.l1bm.reshape(spec.L2BS, spec.L1B_PER_L2B, spec.L1BM_LW), d.lw_address(source),
        d.lw_address(target), opcode, batchable=False,
    )  # fmt: skip


def decode_darw(d: Decoder) -> None:
    d.call(_darw, d.state, batchable=False)


def _range(start: int, count: int, size: int) -> Any:
    if start + count <= size:
        return slice(start, start + count)
    return (start + np.arange(count)) % size


def _l2bmb(lc, lb, a, d, opcode) -> None:
    data = lc[:, _range(a, 64, spec.L2BM_LW)]
    if len(opcode.l1bs) == 8:
        lb[:, :, _range(d, 64, spec.L1BM_LW)] = data[:, None]
    else:
        for b in opcode.l1bs:
            lb[:, b, _range(d, 64, spec.L1BM_LW)] = data


def _l2bmb2(lc, lb, a, d, opcode) -> None:
    data = lc[:, _range(a, 256, spec.L2BM_LW)].reshape(8, 4, 4, 16)
    for b in opcode.l1bs:
        lb[:, b, _range(d, 64, spec.L1BM_LW)] = data[:, :, b >> 1].reshape(8, 64)


def _l2bmd(lc, lb, a, d, opcode) -> None:
    data = lc[:, _range(a, 256, spec.L2BM_LW)].reshape(8, 4, 8, 8)
    for b in opcode.l1bs:
        lb[:, b, _range(d, 32, spec.L1BM_LW)] = data[:, :, b].reshape(8, 32)


def _l2bmu(lc, lb, a, d, opcode) -> None:
    data = lb[:, :, _range(a, 32, spec.L1BM_LW)].reshape(8, 8, 4, 8).transpose(0, 2, 1, 3)
    if len(opcode.l1bs) == 8:
        lc[:, _range(d, 256, spec.L2BM_LW)] = data.reshape(8, 256)
    else:
        target = lc[:, _range(d, 256, spec.L2BM_LW)].reshape(8, 4, 8, 8).copy()
        target[:, :, list(opcode.l1bs)] = data[:, :, list(opcode.l1bs)]
        lc[:, _range(d, 256, spec.L2BM_LW)] = target.reshape(8, 256)


def _l2bm(lc, lb, a, d, opcode) -> None:
    lc[:, _range(d, 64, spec.L2BM_LW)] = lb[:, opcode.l1bs[0], _range(a, 64, spec.L1BM_LW)]


def _l2bmr(lc, lb, a, d, opcode) -> None:
    data = lb[:, :, _range(a, 64, spec.L1BM_LW)]
    if len(opcode.l1bs) < 8:
        data = data.copy()
        others = [b for b in range(8) if b not in opcode.l1bs]
        data[:, others] = np.uint64(unit(opcode.reduction))
    lc[:, _range(d, 64, spec.L2BM_LW)] = reduce_lw(opcode.reduction, np.ascontiguousarray(data.transpose(0, 2, 1)))


def _l2bmr2(lc, lb, a, d, opcode) -> None:
    data = lb[:, :, _range(a, 64, spec.L1BM_LW)].reshape(8, 4, 2, 4, 16)  # L2B, pair, of the pair, cycle, i
    out = reduce_lw(opcode.reduction, np.ascontiguousarray(data.transpose(0, 3, 1, 4, 2)))  # L2B, cycle, pair, i
    lc[:, _range(d, 256, spec.L2BM_LW)] = out.reshape(8, 256)


def _l2bmi(lc, lb, a, d, opcode) -> None:
    data = lb[:, :, _range(a, 64, spec.L1BM_LW)].copy()
    for b in opcode.l1bs:
        for other in range(8):
            if other & opcode.immode == b & opcode.immode:
                lb[:, other, _range(d, 64, spec.L1BM_LW)] = data[:, b]


L2_TRANSFERS = {
    "l2bmb": _l2bmb, "l2bmb2": _l2bmb2, "l2bmd": _l2bmd, "l2bmu": _l2bmu, "l2bm": _l2bm, "l2bmr": _l2bmr, "l2bmr2": _l2bmr2,
    "l2bmi": _l2bmi,
}  # fmt: skip


def _dars(state, a: int, block: int, dar: int) -> None:
    """256 LW of L2B `block` of each group to the group's DAR buffer, upper word first; the next l2bmdarw starts at `dar`."""
    data = state.l2bm.reshape(spec.GROUPS, spec.L2B_PER_GROUP, -1)[:, block, _range(a, 256, spec.L2BM_LW)]
    state.dar_buffer[:, 0::2] = (data >> np.uint64(32)).astype(np.uint32)
    state.dar_buffer[:, 1::2] = (data & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    state.dar_position = [0, dar]


def _darw(state) -> None:
    """One word a cycle: the next 4 entries of the buffer go to the next 4 DAR entries."""
    at, dar = state.dar_position
    n = np.arange(4)
    state.dar[:, (dar + at + n) % spec.DAR_ENTRIES] = state.dar_buffer[:, (at + n) % 512]
    state.dar_position = [at + 4, dar]
