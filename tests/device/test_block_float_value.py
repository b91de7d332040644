"""Block-float conversion keeps values: 1.0 converted on both sides and multiplied gives 1.0 (16.0 for a row of 16).

The conversion shifts 1.m right by one, so the first bit of a block-float mantissa is worth 1 (not 1/2): the last bit of a half is
worth 2^(exponent - bias - 8), of a single -22, of a double -51. The matrix listings in the kernel tests rest on it.
"""

import numpy as np
import pytest

from mlsdk.device.engine.machine import Machine
from mlsdk.device.isa import model as m
from mlsdk.device.isa.parser import parse


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (
            'imm h"1.0" $llr0\nnop\nhbfn/9 $llr0 $lls0v\nnop\nhmwrite $lls0v $llx0\nhmwrite $lls0v $llx8\n'
            "hmmul $lx $ls0v $llr16v",
            16.0,
        ),
        (
            'imm f"1.0" $lr0\nnop\nfbfn $lr0 $ls0v\nnop\nfmwrite $ls0v $lx0\nfmwrite $ls0v $lx4\nfmmul $lx $ls0v $lr16v',
            4.0,
        ),
        (
            'imm f"1.0" $lr0\nnop\ngbfn $lr0 $ls0v\nnop\ngmwrite $ls0v $lx0\ngmwrite $ls0v $lx4\ngmmul $lx $ls0v $lr16v',
            8.0,
        ),
    ],
)
def test_a_row_of_ones_times_ones_is_their_number(program, expected):
    machine = Machine()
    machine.run(parse(program))
    result = machine.state.pe[m.GRF0][16:18].view(np.float32)
    assert (result == expected).all(), result[0, 0]
