"""MAU instructions: vector and matrix operations, matrix writes and transposed reads (SDM 3.6.9 to 3.6.11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import spec
from ..isa import model as m
from ..isa.table import Opcode
from ..numerics.fast import matrix, mau_double, mau_half, mau_single
from ..numerics.fast import rows as row_kernels
from .views import Rows, View

if TYPE_CHECKING:
    from .decoder import Decoder, Result

SIGN = {"f": np.uint32(0x80000000), "g": np.uint32(0x80000000), "h": np.uint32(0x80008000), "d": np.uint32(0x80000000)}
PES_OF = {"": mau_double.ALL, "u": mau_double.UPPER, "d": mau_double.LOWER}
NONE = np.uint32(0)
ONE, ZERO = np.uint64(1), np.uint64(0)


def decode(d: Decoder, instruction: m.Instruction, opcode: Opcode) -> tuple[Result, int]:
    from .decoder import Result

    operands = instruction.operands
    name, precision, short = opcode.operation, opcode.precision, opcode.result_reduced
    first = {"vfma": 3, "vmul": 2, "vadd": 2, "vpassa": 1, "mfma": 3, "mmul": 2}[name]
    sources = operands[:first]
    words = (2 if short else 4) if precision == "h" else (1 if short else 2)
    if opcode.matrix:
        x = _input(d, sources[1], precision)
        z = _input(d, sources[2], precision) if name == "mfma" else None
        reads = [
            (v.mem, v.words(2 if i == 0 or precision != "h" else 4)) for i, v in enumerate([x, z]) if v is not None
        ]
        emit = lambda v: _emit_matrix(d, opcode, sources, x, z, v, words)  # noqa: E731
        return Result(opcode, words, reads, emit), first
    x = _input(d, sources[0], precision)
    y = _input(d, sources[1], precision) if name in ("vfma", "vmul") else None
    z = _input(d, sources[-1], precision) if name in ("vfma", "vadd") else None
    reads = [(v.mem, v.words(2)) for v in (x, y) if v is not None]
    if z is not None:
        reads.append((z.mem, z.words(4 if precision == "h" else 2)))
    if short or precision in "hd":
        # results lie elsewhere than their sources, or are read again: no writing in place
        reads += [(mem, Rows(np.roll(rows.array, 1, -1), rows.kind)) for mem, rows in reads]
    emit = lambda v: _emit_vector(d, opcode, sources, x, y, z, v, words)  # noqa: E731
    return Result(opcode, words, reads, emit), first


def _input(d: Decoder, o: m.Operand | m.Immediate, precision: str) -> View:
    """The view of a MAU source after its suffix: e widens, r narrows (half factors only)."""
    assert isinstance(o, m.Operand)
    view = d.source(o)
    if o.extend:
        if precision == "d":
            out = d.buffer(2)
            d.call(row_kernels.extend_single, view.mem, view.words(1), out.mem, out.words(2), NONE)
        elif precision == "h":
            out = d.buffer(4)
            d.call(row_kernels.extend_half, view.mem, view.words(2), out.mem, out.words(4), NONE)
        else:
            out = d.buffer(2)
            d.call(row_kernels.extend_half, view.mem, view.words(1), out.mem, out.words(2), NONE)
        return out
    if o.reduce:
        out = d.buffer(2)
        d.call(row_kernels.reduce_single, view.mem, view.words(4), out.mem, out.words(2), NONE)
        return out
    return view


def _sign(o: m.Operand, precision: str) -> np.uint32:
    return SIGN[precision] if o.negate else NONE


def _flip(o: m.Operand) -> np.uint64:
    return ONE if o.negate else ZERO


def _emit_vector(
    d: Decoder, opcode: Opcode, sources: tuple, x: View, y: View | None, z: View | None, v: View, words: int
) -> None:
    precision, short = opcode.precision, opcode.result_reduced
    out = v.words(words)
    with_product, with_sum = y is not None, z is not None
    y, z = y or x, z or x
    oy, oz = sources[1] if with_product else sources[0], sources[-1]
    if precision == "d" and with_sum and not with_product and not short:
        flips = (_flip(sources[0]) << np.uint64(63), _flip(oz) << np.uint64(63))
        d.call(mau_double.add_rows, x.mem, x.words(2), z.mem, z.words(2), v.mem, out, *flips)
        return
    if precision == "d":
        d.call(
            mau_double.calculate,
            x.mem,
            x.words(2),
            y.mem,
            y.words(2),
            z.mem,
            z.words(2),
            v.mem,
            out,
            _flip(sources[0]),
            _flip(oy),
            _flip(oz),
            with_product,
            with_sum,
            PES_OF[opcode.half],
            short,
        )
        return
    sx, sy = _sign(sources[0], precision), _sign(oy, precision)
    if precision == "h":
        sz = SIGN["f"] if oz.negate else NONE
        d.call(
            mau_half.calculate,
            x.mem,
            x.words(2),
            y.mem,
            y.words(2),
            z.mem,
            z.words(4),
            v.mem,
            out,
            sx,
            sy,
            sz,
            with_product,
            with_sum,
            short,
        )
        return
    sz = _sign(oz, precision)
    if short:
        d.call(
            mau_single.short_result,
            x.mem,
            x.words(2),
            y.mem,
            y.words(2),
            z.mem,
            z.words(2),
            v.mem,
            out,
            sx,
            sy,
            sz,
            with_product,
            with_sum,
        )
    elif with_product and with_sum:
        d.call(mau_single.fma, x.mem, x.words(2), y.mem, y.words(2), z.mem, z.words(2), v.mem, out, sx, sy, sz)
    elif with_product:
        d.call(mau_single.mul, x.mem, x.words(2), y.mem, y.words(2), v.mem, out, sx, sy)
    elif with_sum:
        d.call(mau_single.add, x.mem, x.words(2), z.mem, z.words(2), v.mem, out, sx, sz)
    else:
        d.call(mau_single.passa, x.mem, x.words(2), v.mem, out, sx)


def _emit_matrix(d: Decoder, opcode: Opcode, sources: tuple, x: View, z: View | None, v: View, words: int) -> None:
    precision, short = opcode.precision, opcode.result_reduced
    side, with_sum = sources[0].space, z is not None
    z = z or x
    out = v.words(words)
    sx = _sign(sources[1], precision)
    oz = sources[2] if with_sum else sources[1]
    raw = d.state.matrix[side]
    if precision == "d":
        d.call(
            matrix.double,
            raw,
            x.mem,
            x.words(2),
            z.mem,
            z.words(2),
            v.mem,
            out,
            _flip(sources[1]),
            _flip(oz),
            with_sum,
            PES_OF[opcode.half],
            short,
        )
        return
    decoded = d.machine.decoded(side, precision)
    sz = SIGN["f"] if oz.negate else NONE
    if precision == "h":
        d.call(
            _half, decoded, x.mem, x.words(2), z.mem, z.words(4 if with_sum else 2), v.mem, out, sx, sz, with_sum, short
        )
    else:
        d.call(
            _single,
            decoded,
            precision == "f",
            x.mem,
            x.words(2),
            z.mem,
            z.words(2),
            v.mem,
            out,
            sx,
            sz,
            with_sum,
            short,
        )


def _half(decoded, xm, xr, zm, zr, om, orow, sx, sz, with_sum, short) -> None:
    if not with_sum:
        zr = _FIRST_ROWS if 2 * xr.size <= _FIRST_ROWS.size else np.zeros(2 * xr.size, np.int64)
    matrix.half(*decoded.half(), xm, xr, zm, zr, om, orow, sx, sz, with_sum, short)


def _single(decoded, omits, xm, xr, zm, zr, om, orow, sx, sz, with_sum, short) -> None:
    values, lows, scales = decoded.single(omits)
    matrix.single(values, lows, scales, omits, xm, xr, zm, zr, om, orow, sx, sz, with_sum, short)


_FIRST_ROWS = np.zeros(64, np.int64)


class Decoded:
    """A matrix register side in the form that the matrix kernels read, decoded when it is used after a write."""

    def __init__(self, raw: np.ndarray) -> None:
        self.raw, self.forms = raw, set[str]()
        self._arrays: dict[str, tuple] = {}
        self._special = 0

    def dirty(self) -> None:
        self.forms.clear()

    def _array(self, name: str, *shapes: tuple[int, type]) -> tuple:
        if name not in self._arrays:
            self._arrays[name] = tuple(np.zeros(size, dtype) for size, dtype in shapes)
        return self._arrays[name]

    def half(self) -> tuple:
        packed, extended, scales = self._array(
            "h",
            (spec.L1BS * matrix.PACKED_STEP, np.uint32),
            (spec.L1BS * matrix.PACKED_STEP, np.uint32),
            (spec.MABS * 16, np.float32),
        )
        if "h" not in self.forms:
            self._special = matrix.decode_half(self.raw, packed, extended, scales)
            self.forms.add("h")
        return packed, extended, scales, self._special

    def single(self, omits: bool) -> tuple:
        form = "f" if omits else "g"
        arrays = (
            self._array(form, *[(spec.MABS * 64, np.float64)] * 3)
            if omits
            else self._array(form, (spec.MABS * 64, np.float64), (1, np.float64), (1, np.float64))
        )
        if form not in self.forms:
            matrix.decode_single(self.raw, *arrays, omits)
            self.forms.add(form)
        return arrays


# --- mwrite, mread -------------------------------------------------------------------------------------------------------
class Fetched:
    """An instruction that only reads PE memories: its call is made before any write of the step."""

    def __init__(self, emit) -> None:
        self.emit = emit


def decode_write(d: Decoder, instruction: m.Instruction, opcode: Opcode) -> Fetched:
    """Cycle c writes row addr + c; `$ll` (half only) rows addr + 2c (MSB LW) and addr + 2c + 1 (LSB LW)."""
    source, target = instruction.operands
    assert isinstance(source, m.Operand) and isinstance(target, m.Operand)
    view = _input(d, source, opcode.precision)
    count = spec.MATRIX_SIZE[opcode.precision]
    if target.width == m.LW2:
        rows = [(target.addr + 2 * c + half) % count for c in range(4) for half in (0, 1)]
        words = 4
    else:
        rows, words = [(target.addr + c) % count for c in range(4)], 2
    target_rows = np.array([2 * r + w for r in rows for w in (0, 1)])
    raw, decoded = d.state.matrix[target.space], d.machine.decoded(target.space, opcode.precision)
    taken = view.words(words)

    def emit() -> None:
        d.call(row_kernels.copy, view.mem, taken, raw, target_rows, batchable=False)
        d.call(decoded.dirty, batchable=False)

    return Fetched(emit)


def decode_read(d: Decoder, instruction: m.Instruction, opcode: Opcode) -> tuple[Result, int]:
    from .decoder import Result

    source = instruction.operands[0]
    assert isinstance(source, m.Operand)
    size = spec.MATRIX_SIZE[opcode.precision]
    raw = d.state.matrix[source.space]
    if opcode.precision == "h":
        columns, words = [(source.addr + 2 * c + half) % size for c in range(4) for half in (0, 1)], 4
    else:
        columns, words = [(source.addr + c) % size for c in range(4)], 2
    table = np.array(columns)
    emit = lambda v: d.call(matrix.read_columns, raw, table, size, v.mem, v.words(words), batchable=False)  # noqa: E731
    return Result(opcode, words, [], emit), 1


def emit_flags(d: Decoder, result: Result, out: np.ndarray) -> None:
    """Flags of MAU results: 1 where the sign of the output is 0."""
    opcode, view = result.opcode, result.view
    assert view is not None
    if opcode.precision == "h":
        bits, words = (16, 2) if opcode.result_reduced else (128, 4)
    elif opcode.precision == "d":
        bits, words = 64, 2
    else:
        bits, words = (31, 1) if opcode.result_reduced else (32, 2)
    if opcode.precision == "d" and opcode.result_reduced:
        words = 1
    d.call(row_kernels.flags, row_kernels.BIT, bits, 0, view.mem, view.words(words), out, words, batchable=False)
