"""Listings of elementary functions pass the static checks and give the errors that they claim, on all 4096 PEs."""

from __future__ import annotations

import re

import numpy as np
import pytest
from listings import LISTINGS

from mlsdk.device.isa import model as m
from mlsdk.device.isa.checks import check
from mlsdk.device.isa.parser import parse

PLACES = {"s": (m.GRF1, "s", 400), "r": (m.GRF0, "r", 400), "m": (m.LM0, "m", 2000), "n": (m.LM1, "n", 2000)}


def placed(machine, text: str, constants: dict[str, list[int]]):
    """The statements of a text; its constants, two words each, are written to the machine."""
    where: dict[tuple[str, str], str] = {}

    def place(found: re.Match) -> str:
        letter, constant = found[1], found[2]
        if (letter, constant) not in where:
            space, prefix, base = PLACES[letter]
            addr = base + 2 * sum(key[0] == letter for key in where)
            machine.write(space, addr, np.array(constants[constant], np.uint32))
            where[letter, constant] = f"$l{prefix}{addr}"
        return where[letter, constant]

    return parse(re.sub(r"\{(\w):(\w+)\}", place, text))


def prepare(machine, name: str):
    """The statements of a listing."""
    text, constants = LISTINGS[name]
    return placed(machine, text, {key: [value] * 2 for key, value in constants.items()})


def apply(machine, name: str, x: np.ndarray, second: np.ndarray | None = None) -> np.ndarray:
    """The function on 32768 words (uint32 or float32)."""
    statements = prepare(machine, name)
    assert [str(d) for d in check(statements)] == []
    machine.write(m.GRF0, 0, x.view(np.uint32).reshape(8, 4096))
    if second is not None:
        machine.write(m.LM0, 0, second.view(np.uint32).reshape(8, 4096))
    machine.run(statements)
    return machine.read(m.LM1, 0, 8).reshape(-1)


def ulps(got: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Error in units in the last place of the true single; true results below the normal range count 0 when flushed."""
    got = got.view(np.float32).astype(np.longdouble)
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log2(np.abs(true)))
    unit = np.where(true == 0, np.longdouble(2) ** -149, np.longdouble(2) ** np.clip(exponent - 23, -149, 104))
    error = np.abs(got - true) / unit
    return np.where((np.abs(true) < 2.0**-126) & (got == 0), 0, error)


def bits(rng, low: float, high: float) -> np.ndarray:
    return rng.uniform(low, high, 32768).astype(np.float32)


def wide(rng, low: int, high: int, signed: bool = False) -> np.ndarray:
    x = (rng.uniform(1, 2, 32768) * 2.0 ** rng.integers(low, high, 32768)).astype(np.float32)
    return np.where(rng.random(32768) < 0.5, -x, x).astype(np.float32) if signed else x


L = np.longdouble
CASES = {
    "recip": (lambda r: wide(r, -126, 125, True), lambda x: 1 / x, 0.517),
    "rsqrt": (lambda r: wide(r, -126, 125), lambda x: 1 / np.sqrt(x), 0.623),
    "sqrt": (lambda r: wide(r, -101, 127), np.sqrt, 0.504),
    "exp": (lambda r: bits(r, -87, 88.5), np.exp, 0.851),
    "expm1": (lambda r: bits(r, -20, 88.3), np.expm1, 1.448),
    "sigmoid": (lambda r: bits(r, -86, 80), lambda x: 1 / (1 + np.exp(-x)), 2.298),
    "softplus": (lambda r: bits(r, -80, 80), lambda x: np.log1p(np.exp(x)), 1.852),
    "log": (lambda r: wide(r, -126, 127), np.log, 0.899),
    "sin": (lambda r: bits(r, -1e4, 1e4), np.sin, 2.19),
    "cos": (lambda r: bits(r, -1e4, 1e4), np.cos, 2.19),
    "tanh": (lambda r: bits(r, -12, 12), np.tanh, 4.91),
    "tanh_acc": (lambda r: bits(r, -12, 12), np.tanh, 2.96),
}


@pytest.mark.parametrize("name", CASES)
def test_error_is_what_the_listing_claims(machine, name):
    make, function, bound = CASES[name]
    x = make(np.random.default_rng(7))
    error = ulps(apply(machine, name, x), function(x.astype(L)))
    assert error.max() <= bound + 0.02


def test_division(machine):
    rng = np.random.default_rng(8)
    n, d = wide(rng, -60, 60, True), wide(rng, -30, 30, True)
    assert ulps(apply(machine, "div", d, n), n.astype(L) / d.astype(L)).max() <= 0.517 + 0.02


def test_integers_become_singles_exactly_rounded(machine):
    x = np.random.default_rng(9).integers(-(2**31), 2**31, 32768).astype(np.int32)
    np.testing.assert_array_equal(apply(machine, "int_to_single", x).view(np.float32), x.astype(np.float32))


def test_round_half_even(machine):
    rng = np.random.default_rng(10)
    x = np.concatenate([rng.integers(-200, 200, 16384) / 2, wide(rng, -20, 40, True)[:16384]]).astype(np.float32)
    got = apply(machine, "round_half_even", x).view(np.float32)
    np.testing.assert_array_equal(got, np.rint(x))


def test_low_product_of_words(machine):
    rng = np.random.default_rng(11)
    a, b = (rng.integers(0, 2**32, 32768).astype(np.uint32) for _ in range(2))
    np.testing.assert_array_equal(apply(machine, "low_product", a, b), (a * b).astype(np.uint32))
