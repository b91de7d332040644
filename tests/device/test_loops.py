"""A loop leaves the machine in the state that its unrolled form leaves it in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsdk.device.engine.machine import Machine
from mlsdk.device.isa import model as m
from mlsdk.device.isa.checks import check_bundle

ROWS = 320  # rows of PE memories that the bodies reach


@pytest.fixture(scope="module")
def pair():
    return Machine(), Machine()


def seed_state(machine: Machine, seed: int) -> None:
    rng = np.random.default_rng(seed)
    state = machine.state
    for space in (m.LM0, m.LM1, m.GRF0, m.GRF1):
        state.pe[space][256:ROWS] = 0
        state.pe[space][:256] = rng.normal(size=(256, 4096)).astype(np.float32).view(np.uint32)
    state.pe[m.T][:16] = rng.integers(0, 2**31, (16, 4096), dtype=np.uint32)
    if seed % 2:
        state.pe[m.T][[2, 3, 6, 7, 10, 11, 14, 15]] = 0
    for forward in state.forward.values():
        forward[:16] = rng.integers(0, 2**30, (16, 4096), dtype=np.uint32)
    for array in (state.l1bm, state.l2bm):
        array[:, :2048] = rng.integers(0, 2**62, (array.shape[0], 2048), dtype=np.uint64)
    for array in state.matrix.values():
        array[:] = 0
    for decoded in machine._decoded.values():
        decoded.dirty()
    state.reset_masks()
    state.turnaround[:] = 0
    machine.mask_setting = (0, "", False)
    for memory in state.dram:
        memory.pages.clear()


def same_state(a: Machine, b: Machine) -> None:
    for name in a.state.pe:
        np.testing.assert_array_equal(a.state.pe[name][:ROWS], b.state.pe[name][:ROWS], err_msg=name)
    for name in a.state.forward:
        np.testing.assert_array_equal(a.state.forward[name][:16], b.state.forward[name][:16], err_msg=name)
    for name in ("l1bm", "l2bm", "turnaround", "masks"):
        np.testing.assert_array_equal(getattr(a.state, name)[:, :2048], getattr(b.state, name)[:, :2048], err_msg=name)
    for x, y in zip(a.state.dram, b.state.dram):
        np.testing.assert_array_equal(x.read(0, 4096), y.read(0, 4096))


SPACES = (m.LM0, m.LM1, m.GRF0, m.GRF1)
strides = st.sampled_from([(), (0,), (8,), (8,), (2,), (4,)])


@st.composite
def operands(draw, destination: bool = False, width: int = 2):
    choice = draw(st.integers(0, 9))
    if not destination and choice < 2:
        return m.Operand(draw(st.sampled_from([m.MAUF, m.ALUF])))
    if choice < 4:
        return m.Operand(m.T)
    if destination and choice == 4:
        return m.Operand(m.NOWRITE)
    w = draw(st.sampled_from([1, 2, 2, 2, 4]))
    mask = None
    if destination and draw(st.integers(0, 5)) == 0:
        mask = m.Mask(pattern=tuple(draw(st.sampled_from([0, 15])) for _ in range(4)))
    inc = draw(st.sampled_from([w, w, w, 0]))
    step = draw(strides)
    if step and step[0] % w:
        step = ()
    return m.Operand(draw(st.sampled_from(SPACES)), 8 * draw(st.integers(0, 8)), w, inc, strides=step, mask=mask)


@st.composite
def bundles(draw):
    instructions = []
    kind = draw(st.integers(0, 9))
    if kind < 7:
        name, count = draw(st.sampled_from([("fvfma", 3), ("fvadd", 2), ("fvmul", 2), ("fvpassa", 1)]))
        instructions.append(
            m.Instruction(name, (*[draw(operands()) for _ in range(count)], draw(operands(destination=True))))
        )
    if kind > 3:
        name, count = draw(
            st.sampled_from(
                [("iadd", 2), ("ixor", 2), ("fmax", 2), ("ipassa", 1), ("msr", 1), ("lbsl", 2), ("gbfn", 1)]
            )
        )
        instructions.append(
            m.Instruction(name, (*[draw(operands()) for _ in range(count)], draw(operands(destination=True))))
        )
    if draw(st.integers(0, 6)) == 0:
        instructions.append(m.Instruction("l1bmm", (m.Operand(m.L1BM, 64, 2, strides=(16,)), m.Operand(m.NOWRITE))))
    return m.Bundle(tuple(instructions))


def legal(bundle: m.Bundle) -> bool:
    return not any(d.rule in ("port", "mask", "alignment") for d in check_bundle(bundle))


def as_unrolled(pair, body, count: int, seed: int) -> None:
    looped, unrolled = pair
    program = (m.Loop(count, tuple(body)),)
    for machine in pair:
        seed_state(machine, seed)
    a, b = looped.run(program), unrolled.run(tuple(m.unroll(program)))
    assert a.pe_steps == b.pe_steps == count * len(body)
    same_state(looped, unrolled)


BODIES = (st.lists(bundles().filter(legal), min_size=1, max_size=4), st.integers(1, 9), st.integers(0, 3))


@settings(max_examples=12, deadline=None)
@given(*BODIES)
def test_random_bodies(pair, body, count, seed):
    as_unrolled(pair, body, count, seed)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(*BODIES)
def test_many_random_bodies(pair, body, count, seed):
    as_unrolled(pair, body, count, seed)


def test_nested_loops_with_moves_and_masks(pair):
    looped, unrolled = pair
    lm = m.Operand(m.LM0, 0, 2, 2, strides=(64, 8))
    inner = m.Loop(
        4,
        (
            m.Bundle(
                (m.Instruction("fvadd", (lm, m.Operand(m.GRF0, 0, 2, 2), m.Operand(m.LM1, 0, 2, 2, strides=(64, 8)))),)
            ),
        ),
    )
    move = m.Move(
        "mvp", m.Operand(m.L2BM, 0, block=0, strides=(64,)), m.Operand(m.DRAM, 128, strides=(256,)), 64, tag=1
    )
    wait = m.Bundle((m.Instruction("nop"), m.wait(1)))
    mask = m.Bundle((m.Instruction("isub", (m.Operand(m.PEID), m.Operand(m.GRF1, 16, 2), m.Operand(m.OMR, 1))),))
    write = m.Bundle(
        (
            m.Instruction(
                "ipassa",
                (m.Operand(m.GRF1, 0, 2, 2), m.Operand(m.GRF0, 32, 2, 2, mask=m.Mask(register=1), strides=(8,))),
            ),
        )
    )
    program = (m.Loop(3, (inner, move, wait, mask, m.MaskLine(1, "m"), write, m.MaskLine(0))),)
    for machine in pair:
        seed_state(machine, 5)
    looped.run(program)
    unrolled.run(tuple(m.unroll(program)))
    same_state(looped, unrolled)


def test_an_accumulator_is_not_batched(pair):
    looped, unrolled = pair
    body = (
        m.Bundle(
            (
                m.Instruction(
                    "fvfma",
                    (
                        m.Operand(m.LM0, 0, 2, 2, strides=(8,)),
                        m.Operand(m.LM1, 0, 2, 2),
                        m.Operand(m.GRF0, 0, 2, 2),
                        m.Operand(m.GRF0, 0, 2, 2),
                    ),
                ),
            )
        ),
    )
    program = (m.Loop(16, body),)
    for machine in pair:
        seed_state(machine, 2)
    looped.run(program)
    unrolled.run(tuple(m.unroll(program)))
    same_state(looped, unrolled)
