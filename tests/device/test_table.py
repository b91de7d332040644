"""The instruction table: every row has a worked example, every mnemonic resolves, and the nearest name is offered."""

from __future__ import annotations

import importlib

import pytest

from mlsdk.device.isa import table

MODULES = ("test_instructions_alu", "test_instructions_mau", "test_instructions_network", "test_instructions_moves")


def test_every_row_has_a_worked_example():
    covered = set().union(*(importlib.import_module(name).COVERS for name in MODULES))
    assert {row.pattern for row in table.ROWS} == covered


def test_patterns_are_unique():
    patterns = [row.pattern for row in table.ROWS]
    assert len(patterns) == len(set(patterns))


@pytest.mark.parametrize(
    "mnemonic,unit,operation,precision,unsigned",
    [
        ("uiadd", "alu", "add", "i", True),
        ("hmax", "alu", "max", "h", False),
        ("fftoi", "alu", "ftoi", "f", False),
        ("ufftoi", "alu", "ftoi", "f", True),
        ("dvfmaur", "mau", "vfma", "d", False),
        ("gmmul", "mau", "mmul", "g", False),
        ("hmread", "mread", "mread", "h", False),
        ("l1bmrffaddr", "l1bm", "l1bmr", "", False),
        ("mvr4lband", "mv", "mvr4", "", False),
    ],
)
def test_mnemonics_resolve(mnemonic, unit, operation, precision, unsigned):
    opcode = table.lookup(mnemonic)
    assert (opcode.unit, opcode.operation, opcode.precision, opcode.unsigned) == (unit, operation, precision, unsigned)


def test_options_of_mnemonics():
    assert table.lookup("hbfn/7").keep == 7 and table.lookup("hbfn").keep == 9
    assert table.lookup("l1bmm@11").mab == 11
    assert table.lookup("l1bmd-3").shift == -3
    assert table.lookup("l2bmb").l1bs == tuple(range(8)) and table.lookup("l2bmb@1/6").l1bs == (1, 3, 5, 7)
    assert table.lookup("l2bmb@0,1,2,3").l1bs == (0, 1, 2, 3)


@pytest.mark.parametrize(
    "mnemonic,message,hint",
    [
        ("fvfna", "unknown instruction `fvfna`", "did you mean `fvfma`?"),
        ("gvfma", "unknown instruction `gvfma`", "did you mean"),  # there is no g vector mode
        ("hbfn/5", "does not take the option", ""),
        ("l1bmm@16", "outside 0..15", ""),
        ("l2bmb@0,1,2", "not of the form b/i", "@0,1,2,3"),
        ("l2bmi@0/7", "immode 7", ""),
        ("iadd/1", "does not take the option", ""),
    ],
)
def test_wrong_mnemonics(mnemonic, message, hint):
    with pytest.raises(table.UnknownMnemonic) as error:
        table.lookup(mnemonic)
    assert message in str(error.value) and hint in error.value.hint
