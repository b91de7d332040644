"""Running sums, products, and reductions that are made of others, against the reference functions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import DTYPES, agree, numbers

INTS = [("float", "int32"), ("float", "int64"), ("float", "uint8")]
FLOATS = [("float", "float32"), ("half", "float32"), ("double", "float64")]


def close(scale):
    def compare(got, want):
        assert np.abs(got.astype(np.float64) - want).max(initial=0) <= scale

    return compare


def small(shape, dtype, seed=0):
    """Numbers whose sums every device dtype holds exactly."""
    return numbers(np.random.default_rng(seed), shape, dtype, -2, 3)


@pytest.mark.parametrize(("float_dtype", "dtype"), FLOATS + INTS)
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((7, 17), 0), ((7, 17), 1), ((100,), 0), ((3, 5, 40), 1), ((1, 1), 0), ((2, 3, 5), -1)],
)
def test_running_sums(shape, axis, exclusive, reverse, float_dtype, dtype):
    attrs = {"exclusive": exclusive, "reverse": reverse}
    agree("CumSum", {"x": (small(shape, dtype),), "a": np.array(axis)}, 1, attrs, float_dtype)


@pytest.mark.parametrize(("float_dtype", "dtype"), [("float", "float32"), ("float", "int32"), ("half", "float32")])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("shape", [(9000,), (2, 5001)])
def test_long_running_sums(shape, exclusive, reverse, float_dtype, dtype):
    x = np.zeros(shape, dtype)
    x[..., ::97] = 1
    attrs = {"exclusive": exclusive, "reverse": reverse}
    agree("CumSum", {"x": (x,), "a": np.array(-1)}, 1, attrs, float_dtype)


def test_sequences_that_do_not_fit_lm():
    for reverse in (0, 1):
        x = small((1500, 70), "int32")
        agree("CumSum", {"x": (x,), "a": np.array(0)}, 1, {"exclusive": reverse, "reverse": reverse})


@pytest.mark.parametrize(("float_dtype", "dtype"), FLOATS + INTS)
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((3, 4), (1,)), ((7, 17), (0,)), ((2, 3, 5), (0, 2)), ((5,), (0,)), ((4, 1), (1,)), ((40, 3), (0, 1))],
)
def test_products(shape, axes, float_dtype, dtype):
    x = np.where(np.random.default_rng(3).random(shape) < 0.8, 1, small(shape, dtype)).astype(dtype)
    agree("ReduceProd", {"x": (x,), "a": np.array(axes)}, 1, {"keepdims": 0}, float_dtype)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin", "ReduceSum"])
@pytest.mark.parametrize(("shape", "axes"), [((7, 17), (1,)), ((1000, 33), (0, 1)), ((3, 5000), (1,)), ((3000,), (0,))])
def test_reductions_of_integers(op, shape, axes, dtype):
    if dtype == "bool" and op == "ReduceSum":
        return
    x = numbers(np.random.default_rng(5), shape, dtype, -(2**20), 2**20)
    if dtype == "int32":
        x.reshape(-1)[:2] = [-(2**31), 2**31 - 1] if op != "ReduceSum" else [5, 5]
    agree(op, {"x": (x,), "a": np.array(axes)}, 1, {"keepdims": 0})


@given(data=st.data(), shape=st.lists(st.sampled_from([1, 2, 3, 5, 16, 17, 40]), min_size=1, max_size=3))
def test_any_running_sum(data, shape):
    kind = data.draw(st.sampled_from(DTYPES[:4]))
    attrs = {"exclusive": data.draw(st.integers(0, 1)), "reverse": data.draw(st.integers(0, 1))}
    axis = data.draw(st.integers(0, len(shape) - 1))
    agree("CumSum", {"x": (small(tuple(shape), kind[1]),), "a": np.array(axis)}, 1, attrs, kind[0])


@pytest.mark.parametrize(("float_dtype", "dtype"), FLOATS + INTS)
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(
    ("shape", "axis", "k"),
    [
        ((7, 17), 1, 3),
        ((7, 17), 0, 7),
        ((100,), 0, 100),
        ((3, 5, 40), 1, 2),
        ((1, 1), 0, 1),
        ((300, 64), 1, 5),
        ((5, 1000), -1, 4),
    ],
)
def test_the_k_largest(shape, axis, k, largest, float_dtype, dtype):
    x = numbers(np.random.default_rng(6), shape, dtype, -20, 20)
    agree("TopK", {"x": (x,), "k": np.array([k])}, 2, {"axis": axis, "largest": largest}, float_dtype)


@pytest.mark.parametrize("largest", [0, 1])
def test_the_k_largest_of_extreme_numbers(largest):
    x = np.array([[0.0, -np.inf, np.inf, -0.0, 1e-30, -1e-30, 3e38, -np.inf, np.inf] * 3], np.float32)
    agree("TopK", {"x": (x,), "k": np.array([27])}, 2, {"largest": largest})
    x = np.array([[-(2**31), 2**31 - 1, 0, -1, -(2**31), 5] * 5], np.int32)
    agree("TopK", {"x": (x,), "k": np.array([30])}, 2, {"largest": largest})


@pytest.mark.parametrize(("shape", "k"), [((2, 20000), 5), ((1, 5000), 50), ((2, 3000, 3), 2)])
def test_the_k_largest_of_long_rows(shape, k):
    x = numbers(np.random.default_rng(6), shape, "float32", -2000, 2000)
    agree("TopK", {"x": (x,), "k": np.array([k])}, 2, {"axis": 1})
