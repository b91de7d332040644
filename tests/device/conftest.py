"""Helpers of the device tests: a machine that is shared and cleared, and corner bit patterns."""

from __future__ import annotations

import numpy as np
import pytest

from mlsdk.device.engine.machine import Machine
from mlsdk.device.isa.parser import parse


@pytest.fixture(scope="session")
def one_machine() -> Machine:
    return Machine()


@pytest.fixture
def machine(one_machine: Machine) -> Machine:
    """A machine whose registers and on-chip memories are zero."""
    state = one_machine.state
    for array in (*state.pe.values(), *state.forward.values(), *state.matrix.values()):
        array[:] = 0
    for decoded in one_machine._decoded.values():
        decoded.dirty()
    for array in (state.l1bm, state.l2bm, state.turnaround, state.dar, *state.bar.values()):
        array[:] = 0
    for memory in (*state.dram, *state.pdm):
        memory.pages.clear()
    state.reset_masks()
    one_machine.mask_setting = (0, "", False)
    return one_machine


@pytest.fixture
def run(machine: Machine):
    """run(text) -> RunStats"""
    return lambda text: machine.run(parse(text))


def corner_patterns(exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    """Every exponent with mantissas 0, 1, just below and above half, all ones, both signs."""
    mantissas = [
        0,
        1,
        2,
        31,
        32,
        (1 << mantissa_bits) - 1,
        (1 << mantissa_bits) - 2,
        1 << (mantissa_bits - 1),
        (1 << (mantissa_bits - 1)) - 1,
        (1 << (mantissa_bits - 1)) + 1,
    ]
    out = []
    for sign in (0, 1):
        for e in range(1 << exponent_bits):
            for mantissa in mantissas:
                out.append(
                    sign << (exponent_bits + mantissa_bits) | e << mantissa_bits | mantissa % (1 << mantissa_bits)
                )
    return np.array(out, np.uint64)
