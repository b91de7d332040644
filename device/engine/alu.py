"""ALU instructions: operands, kernel, flags (SDM 3.6.12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import ExecutionError
from ..isa import model as m
from ..isa.operands import immediate_word
from ..isa.table import Opcode
from ..numerics.fast import alu as kernels
from ..numerics.fast import blockfloat
from ..numerics.fast import rows as row_kernels
from .views import View

if TYPE_CHECKING:
    from .decoder import Decoder, Result

OPS = kernels.OPS
#: operation -> kernel operation, where unsigned or float forms differ: (signed, unsigned, float)
FORMS = {
    "max": ("max", "umax", "fmax"), "min": ("min", "umin", "fmin"), "lsr": ("lsr", "ulsr", ""), "ftoi": ("", "uftoi", "ftoi"),
    "relu": ("", "", "relu0"),
}  # fmt: skip
#: unsigned operation -> what its flag looks at
CARRIES = {"inc": "zero_carry", "dec": "zero_borrow", "add": "carry", "sub": "borrow"}


def kernel_operation(opcode: Opcode) -> str:
    name = opcode.operation
    if name not in FORMS:
        return name
    if opcode.unsigned:
        return FORMS[name][1]
    return FORMS[name][2] if opcode.precision in "dfh" else FORMS[name][0]


def decode(d: Decoder, instruction: m.Instruction, opcode: Opcode) -> tuple[Result, int]:
    """The result and the index of the first destination."""
    from .decoder import Result

    name, operands = opcode.operation, instruction.operands
    if name == "zero":
        return Result(opcode, 4, [], lambda v: d.call(row_kernels.fill, v.mem, v.words(4), np.zeros(16, np.uint32))), 0
    if name in ("imm", "immu"):
        assert isinstance(operands[0], m.Immediate)
        word = immediate_word(operands[0])
        values = np.array([word, word if name == "imm" else 0] * 8, np.uint32)
        return Result(opcode, 4, [], lambda v: d.call(row_kernels.fill, v.mem, v.words(4), values)), 1
    bits = opcode.element_bits
    sources = [_source(d, o, bits) for o in _inputs(opcode, operands)]
    first = len(sources)
    x = sources[0]
    if name in ("passa", "bfe") or (name == "bfn" and opcode.precision == "h"):
        words = 2 if x.low_zero else 4
    else:
        words = 2 if x.low_zero else 4
    reads = [(x.mem, x.words(words)), *((s.mem, s.words(2)) for s in sources[1:])]

    if name == "passa":
        emit = lambda v: d.call(row_kernels.copy, x.mem, x.words(words), v.mem, v.words(words))  # noqa: E731
    elif name in ("msl", "msr"):
        distance = 1 if name == "msl" else -1

        def emit(v: View) -> None:
            d.call(row_kernels.rotate_mab, x.mem, x.words(2), v.mem, v.words(2), distance)
            _copy_low(d, x, v, words)
    elif name in ("bfn", "bfe"):

        def emit(v: View) -> None:
            _block_float(d, opcode, x, v, words)
    else:
        op = OPS[kernel_operation(opcode)]
        y = sources[1] if len(sources) > 1 else x
        kernel = kernels.kernel_of(op, bits)

        def emit(v: View) -> None:
            d.call(kernel, op, x.mem, x.words(2), y.mem, y.words(2), v.mem, v.words(2))
            _copy_low(d, x, v, words)

    result = Result(opcode, words, reads, emit)
    result.inputs = sources
    return result, first


def _inputs(opcode: Opcode, operands: tuple) -> tuple:
    return operands[: 2 if " y" in opcode.row.operands else 1]


def _source(d: Decoder, o: m.Operand, bits: int) -> View:
    view = d.source(o, bits)
    if o.reduce:  # 2LW of singles -> LW of halves, LSB LW 0
        out = d.buffer(2)
        d.call(row_kernels.reduce_single, view.mem, view.words(4), out.mem, out.words(2), np.uint32(0))
        return out
    return view


def _copy_low(d: Decoder, x: View, v: View, words: int) -> None:
    """The LSB LW of the output is the LSB LW of x."""
    if words == 4 and not (x.mem is v.mem and bool((x.low().array == v.low().array).all())):
        d.call(row_kernels.copy, x.mem, x.low(), v.mem, v.low())


def _block_float(d: Decoder, opcode: Opcode, x: View, v: View, words: int) -> None:
    precision = opcode.precision
    if precision == "h":
        d.call(
            blockfloat.halves,
            x.mem,
            x.words(words),
            v.mem,
            v.words(words),
            np.int32(9 - opcode.keep),
            opcode.operation == "bfe",
        )
        return
    if precision == "d":
        d.call(blockfloat.doubles, x.mem, x.words(2), v.mem, v.words(2))
    else:
        d.call(blockfloat.singles, x.mem, x.words(2), v.mem, v.words(2), precision == "g")
    _copy_low(d, x, v, words)


def emit_flags(d: Decoder, instruction: m.Instruction, result: Result, out: np.ndarray) -> None:
    """Nibbles of the flags of an ALU operation into out [4][PE]."""
    opcode = result.opcode
    if not opcode.row.flags:
        raise ExecutionError(f"`{instruction.mnemonic}` gives no flags to write to $omr; ALU and MAU instructions do")
    kind, bits, name = opcode.row.flags, opcode.element_bits, opcode.operation
    x = result.inputs[0]
    y = result.inputs[1] if len(result.inputs) > 1 else x
    view, mode, position = result.view, row_kernels.BIT, 0
    assert view is not None
    if kind == "zero":
        mode = row_kernels.ZERO
    elif kind == "sign" and opcode.unsigned:
        view = _aside(d, OPS[CARRIES[name]], bits, x, y)
    elif kind == "choice":
        view = _aside(d, OPS["chose_" + kernel_operation(opcode)], bits, x, y)
    elif kind == "msb_x":
        view, position = x, int(name[-1]) if name[-1].isdigit() else 0
    elif kind == "msb_y":
        view = y
    d.call(row_kernels.flags, mode, bits, position, view.mem, view.words(2), out, 2, batchable=False)


def _aside(d: Decoder, op: int, bits: int, x: View, y: View) -> View:
    """A second calculation whose MSBs are the inverted flags."""
    out = d.buffer(2)
    d.call(kernels.kernel_of(op, bits), op, x.mem, x.words(2), y.mem, y.words(2), out.mem, out.words(2))
    return out
