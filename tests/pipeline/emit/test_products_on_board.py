"""Matrix products on the board: every mode, transposes, bias, batches, odd sizes."""

import numpy as np
import pytest
from emulated import TOLERANCE, compiled, graph_of, run
from hypothesis import given
from hypothesis import strategies as st

DTYPES = ("float", "half", "mixed", "double")
sizes = st.sampled_from([1, 2, 3, 4, 7, 15, 16, 17, 31, 33, 64, 65, 100])
GEMM = {"float": 4e-6, "double": 3e-7, "mixed": 2**-7, "half": 2**-7}


def check(result, a, b, bias, dtype):
    """Block floats round relative to the largest of 16, so the error is measured against |a| |b|."""
    exact = np.matmul(a.astype(np.float64), b.astype(np.float64)) + bias
    largest = np.abs(a).max() * np.abs(b).max() * a.shape[-1] ** 0.5 + np.abs(bias).max() + 1e-30
    assert np.abs(result - exact).max() <= GEMM[dtype] * largest


@given(m=sizes, k=sizes, n=sizes, dtype=st.sampled_from(DTYPES), trans_a=st.booleans(), trans_b=st.booleans(),
       bias=st.booleans(), constant=st.booleans(), seed=st.integers(0, 2**31))  # fmt: skip
def test_gemm_matches_numpy(m, k, n, dtype, trans_a, trans_b, bias, constant, seed):
    rng = np.random.default_rng(seed)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (n,)))
    given_a, given_b = (a.T.copy() if trans_a else a), (b.T.copy() if trans_b else b)
    inputs, constants = {"a": given_a}, {}
    (constants if constant else inputs)["b"] = given_b
    if bias:
        constants["c"] = c
    graph = graph_of(
        "Gemm", {key: ("float32", v.shape) for key, v in inputs.items()}, {"y": ("float32", (m, n))},
        {"transA": int(trans_a), "transB": int(trans_b)}, constants,
    )  # fmt: skip
    result, _ = run(graph, inputs, dtype)
    check(result["y"], a, b, c if bias else np.zeros(1), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((7,), (7,)), ((7,), (7, 3)), ((3, 7), (7,)), ((2, 3, 7), (7,)), ((2, 3, 4), (2, 4, 5)), ((10, 33, 20), (10, 20, 17)),
        ((10, 3, 20), (20, 7)), ((2, 3, 5, 6), (2, 3, 6, 9)), ((2, 3, 5, 6), (1, 3, 6, 9)), ((5, 6), (3, 6, 2)),
        ((20, 2, 9, 33), (20, 2, 33, 18)),
    ],
)  # fmt: skip
def test_matmul_broadcasts_as_numpy_does(a, b, dtype):
    rng = np.random.default_rng(3)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in (a, b))
    want = np.matmul(x, y)
    graph = graph_of("MatMul", {"a": ("float32", a), "b": ("float32", b)}, {"y": ("float32", want.shape)})
    result, _ = run(graph, {"a": x, "b": y}, dtype)
    check(result["y"], x, y, np.zeros(1), dtype)


def test_infinity_in_the_padding_of_a_does_not_reach_the_result():
    """A's lanes beyond k may hold anything; a block that held an infinity there would poison its neighbours."""
    a, b = np.ones((4, 20), np.float32), np.ones((20, 16), np.float32)
    from mlsdk.pipeline.ir.placed import ANY

    graph = graph_of("MatMul", {"a": ("float32", a.shape)}, {"y": ("float32", (4, 16))}, constants={"b": b})
    placed, *_ = compiled(graph)
    assert placed.values["a"].pad != ANY  # an input comes with zeros
    assert TOLERANCE


@pytest.mark.parametrize(("m", "k", "n"), [(1500, 40, 24), (64, 1100, 40), (8, 20, 3000), (300, 700, 500)])
def test_products_that_need_several_tiles_or_pieces(m, k, n):
    rng = np.random.default_rng(4)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (n,)))
    graph = graph_of("Gemm", {"a": ("float32", a.shape)}, {"y": ("float32", (m, n))}, {}, {"b": b, "c": c})
    result, _ = run(graph, {"a": a}, "mixed")
    check(result["y"], a, b, c, "mixed")
