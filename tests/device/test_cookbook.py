"""The listings of cookbook.py: legal, as many steps as they say, and no worse than they say, on all 4096 PEs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cookbook import COOKBOOK, DRECIP, DRECIP_CONSTANTS
from test_listings import L, bits, placed, ulps, wide

from mlsdk.device.isa import model as m
from mlsdk.device.isa.checks import check, count_steps
from mlsdk.device.isa.parser import parse

erf = np.vectorize(math.erf)
N = 32768


def apply(machine, name: str, x: np.ndarray, second: np.ndarray | None = None) -> np.ndarray:
    steps, text, constants = COOKBOOK[name]
    statements = placed(machine, text, {key: [value] * 2 for key, value in constants.items()})
    assert [str(d) for d in check(statements)] == []
    assert count_steps(statements) == steps
    machine.write(m.GRF0, 0, x.view(np.uint32).reshape(8, 4096))
    if second is not None:
        machine.write(m.LM0, 0, second.view(np.uint32).reshape(8, 4096))
    machine.run(statements)
    return machine.read(m.LM1, 0, 8).reshape(-1)


def test_log1p(machine):
    rng = np.random.default_rng(1)
    x = np.concatenate([-rng.uniform(0, 1, N // 2), wide(rng, -30, 127)[: N // 2]]).astype(np.float32)
    x = np.where(x == -1, np.float32(-0.5), x)
    assert ulps(apply(machine, "log1p", x), np.log1p(x.astype(L))).max() <= 1.357 + 0.03


def test_erf(machine):
    x = bits(np.random.default_rng(2), -5, 5)
    assert ulps(apply(machine, "erf", x), erf(x.astype(float)).astype(L)).max() <= 5.74


def test_gelu(machine):
    x = bits(np.random.default_rng(3), -8, 8)
    true = x.astype(float) / 2 * (1 + erf(x.astype(float) / math.sqrt(2)))
    got = apply(machine, "gelu", x).view(np.float32).astype(float)
    assert (np.abs(got - true) <= 3.2 * 2.0**-24 * np.abs(x)).all()


def test_gelu_by_tanh(machine):
    x = bits(np.random.default_rng(4), -8, 8)
    d = x.astype(float)
    true = d / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (d + 0.044715 * d**3)))
    got = apply(machine, "gelu_tanh", x).view(np.float32).astype(float)
    assert (np.abs(got - true) <= 2.0 * 2.0**-24 * np.abs(x)).all()


def test_pow(machine):
    rng = np.random.default_rng(5)
    x, y = wide(rng, -20, 20), bits(rng, -4, 4)
    y = np.where(np.abs(y * np.log(x)) > 87, np.float32(1), y).astype(np.float32)
    error = ulps(apply(machine, "pow", x, y), x.astype(L) ** y.astype(L))
    assert error.max() <= 129 and error.mean() < 10.5


@pytest.mark.parametrize(
    "name,function,low,high,bound",
    [
        ("recip_h", lambda x: 1 / x, 0.01, 100, 14.9), ("rsqrt_h", lambda x: 1 / np.sqrt(x), 0.01, 100, 16.3),
        ("exp_h", np.exp, -20, 20, 13.7),
    ],
)  # fmt: skip
def test_short_forms_for_halves(machine, name, function, low, high, bound):
    x = bits(np.random.default_rng(6), low, high)
    got = apply(machine, name, x).view(np.float32).astype(float)
    true = function(x.astype(float))
    assert np.abs(got / true - 1).max() <= 2.0 ** -(bound - 0.1)


def test_log_for_halves(machine):
    x = wide(np.random.default_rng(6), -10, 10)
    got = apply(machine, "log_h", x).view(np.float32).astype(float)
    true = np.log(x.astype(float))
    far = np.abs(true) > 1e-3
    assert np.abs(got / true - 1)[far].max() <= 2.0**-14.2


def test_reciprocal_of_doubles(machine):
    constants = {key: [value >> 32, value & 0xFFFFFFFF] for key, value in DRECIP_CONSTANTS.items()}
    statements = placed(machine, DRECIP, constants)
    assert [str(d) for d in check(statements)] == [] and count_steps(statements) == 15
    rng = np.random.default_rng(12)
    x = rng.uniform(1, 2, (4, 4096)) * 2.0 ** rng.integers(-1000, 1000, (4, 4096))
    x = np.where(rng.random(x.shape) < 0.5, -x, x)
    raw = x.view(np.uint64)
    machine.write(m.GRF0, 0, np.stack([raw >> 32, raw & 0xFFFFFFFF], 1).reshape(8, 4096).astype(np.uint32))
    machine.run(statements)
    words = machine.read(m.LM1, 0, 8).astype(np.uint64)
    got = (words[0::2] << np.uint64(32) | words[1::2]).view(np.float64)
    true = 1 / x.astype(L)
    unit = L(2) ** (np.floor(np.log2(np.abs(true))) - 52)
    assert (np.abs(got - true) / unit).max() <= 0.52


def test_lane_sum_by_a_ones_matrix(machine):
    """Three steps: the sum of the 8 words of the 4 PEs of a MAB, in every one of them."""
    rng = np.random.default_rng(13)
    setup = "fbfn $ls0v $nowrite\nfmwrite $aluf $lx0\nfmwrite $aluf $lx4\n"
    text = "fbfn $lr0v $nowrite\nfmmul $lx $aluf $nowrite; lbsl $aluf $lm100 $nowrite\nfmfma $lx $aluf $mauf $ln0v\n"
    machine.write(m.GRF1, 0, np.full(8, 0x3F800000, np.uint32))
    machine.write(m.LM0, 100, np.array([0, 32], np.uint32))
    x = rng.normal(size=(8, 4096)).astype(np.float32)
    machine.write(m.GRF0, 0, x.view(np.uint32))
    program = parse(setup + text)
    assert check(program) == []
    machine.run(program)
    got = machine.read(m.LM1, 0, 8).view(np.float32).reshape(4, 2, 1024, 4)
    # each block (the first words of 4 PEs, the second words) is rounded to 23 bits below its largest exponent
    lanes = x.reshape(4, 2, 1024, 4).astype(float)
    exponent = np.floor(np.log2(np.abs(lanes).max(axis=3, keepdims=True)))
    unit = 2.0 ** (exponent - 22)
    sums = (np.rint(lanes / unit) * unit).sum(axis=3)
    true = (sums[:, 1] + sums[:, 0].astype(np.float32)).astype(np.float32)
    np.testing.assert_array_equal(got, np.broadcast_to(true[:, None, :, None], got.shape))
    assert (got == got[:, :1, :, :1]).all()


def test_lane_max_by_rotations(machine):
    """Seven ALU steps."""
    text = """lbsl $lr0v $lm100 $nowrite
fmax $lr0v $aluf $lr480v
msr $aluf $nowrite
fmax $lr480v $aluf $lr488v
msr $aluf $nowrite
msr $aluf $nowrite
fmax $lr488v $aluf $ln0v
"""
    x = np.random.default_rng(14).normal(size=(8, 4096)).astype(np.float32)
    machine.write(m.GRF0, 0, x.view(np.uint32))
    machine.write(m.LM0, 100, np.array([0, 32], np.uint32))
    program = parse(text)
    assert check(program) == []
    machine.run(program)
    got = machine.read(m.LM1, 0, 8).view(np.float32).reshape(4, 2, 1024, 4)
    np.testing.assert_array_equal(
        got, np.broadcast_to(x.reshape(4, 2, 1024, 4).max(axis=(1, 3), keepdims=True), got.shape)
    )


@pytest.mark.parametrize("blocks", [6])
def test_half_matrix_stream(machine, blocks):
    """Weights stream through l1bmm, hbfn and hmwrite into one side while the other multiplies: 2 steps a block of 8 rows."""
    rng = np.random.default_rng(15)
    weights, x = rng.integers(-8, 9, (blocks, 16, 16)), rng.integers(-8, 9, (blocks, 8, 16))
    halves = weights.astype(float)
    bits_of = np.vectorize(_half)
    # L1BM: row r of a block is 4 LW, LW p = columns 4p..4p+3; l1bmm $llb gives two rows a cycle
    data = [sum(int(h) << (48 - 16 * k) for k, h in enumerate(bits_of(halves[b, r, 4 * p : 4 * p + 4])))
          for b in range(blocks) for r in range(16) for p in range(4)]  # fmt: skip
    machine.state.l1bm[:, : len(data)] = np.array(data, np.uint64)
    program = []
    for b in range(blocks):
        for half in range(2):
            vectors = bits_of(x[b, 4 * half : 4 * half + 4].astype(float)).reshape(4, 4, 4)
            rows = [[sum(int(h) << (48 - 16 * k) for k, h in enumerate(lw)) for lw in vector] for vector in vectors]
            raw = np.array(rows, np.uint64)
            words = np.stack([raw >> 32, raw & 0xFFFFFFFF], 1).reshape(8, 4)
            machine.write(m.LM0, 16 * b + 8 * half, np.tile(words, (1, 1024)).astype(np.uint32))
            program.append(f"hbfn/9 $lm{16 * b + 8 * half}v $ls{16 * b + 8 * half}v")
    program.append("nop/2")
    total = 2 * blocks + 4
    for t in range(total):
        parts = []
        block, half = divmod(t - 4, 2)
        if 0 <= block < blocks:
            side, acc, last = "xy"[block % 2], 16 * half, block == blocks - 1
            name, add = ("hmmul", "") if block == 0 else ("hmfma", f" $llr{acc}v")
            target = f"$lln{acc}v" if last else f"$llr{acc}v"
            parts.append(f"{name} $l{side} $ls{16 * block + 8 * half}v{add} {target}")
        block, half = divmod(t - 2, 2)
        if 0 <= block < blocks:
            parts.append(f"hmwrite $aluf $ll{'xy'[block % 2]}{8 * half}")
        if 1 <= t < 2 * blocks + 1:
            parts.append("hbfn/9 $lbf $nowrite")
        if t < 2 * blocks:
            parts.append(f"l1bmm $llb{32 * t} $nowrite")
        program.append("; ".join(parts))
    statements = parse("\n".join(program))
    assert [str(d) for d in check(statements)] == []
    machine.run(statements)
    got = machine.read(m.LM1, 0, 32).view(np.float32)  # [half][cycle][word]
    true = sum(x[b] @ weights[b].T for b in range(blocks))
    for row in range(8):
        words = got[4 * row : 4 * row + 4, :4]  # word w of PE p is element 4p + w
        np.testing.assert_array_equal(words.T.reshape(-1), true[row].astype(np.float32))


def _half(value: float) -> int:
    from mlsdk.device.numerics.text import half_from_text

    return half_from_text(repr(float(value)))
