"""Matrix products on the board: every mode, transposes, bias, batches, odd sizes."""

import numpy as np
import pytest
from emulated import TOLERANCE, compiled, execute_plan, graph_of, run, steps_of
from hypothesis import given
from hypothesis import strategies as st

from mlsdk.device.isa.model import L2BM, Move, unroll
from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.ops.clock import Clock
from mlsdk.pipeline.ops.emitters import gemm_stream

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
        ((20, 2, 9, 33), (20, 2, 33, 18)), ((3, 4), (9, 4, 4)), ((3, 4), (3, 5, 4, 4)), ((9, 3, 3), (9, 3, 3)),
        ((32, 1, 16), (32, 16, 8)), ((3, 1, 3, 4), (3, 5, 4, 4)), ((5, 3, 4), (3, 5, 4, 4)), ((40, 2, 5), (40, 5, 3)),
        ((3, 100, 20), (3, 20, 17)), ((2, 130, 16), (2, 16, 20)), ((1, 33, 16), (12, 16, 40)), ((2, 2, 37, 33), (2, 2, 33, 18)),
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


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize(("a", "b"), [((4, 6), (6, 3)), ((2, 5, 7), (7, 9)), ((5,), (5, 4)), ((3, 2, 8), (3, 8, 1))])
def test_products_of_integers_are_exact(a, b, dtype):
    """They came out as zeros once: the matrix registers know floats only."""
    rng = np.random.default_rng(3)
    low, high = (0, 256) if dtype == "uint8" else (-(2**20), 2**20)
    x, y = (rng.integers(low, high, s).astype(dtype) for s in (a, b))
    wide = np.matmul(x.astype(np.int64), y.astype(np.int64))
    want = wide.astype(np.uint8 if dtype == "uint8" else np.int32).astype(dtype)  # modulo 2^32
    graph = graph_of("MatMul", {"a": (dtype, a), "b": (dtype, b)}, {"y": (dtype, want.shape)})
    result, _ = run(graph, {"a": x, "b": y}, "float")
    np.testing.assert_array_equal(result["y"], want)


def test_integer_gemm_adds_its_bias():
    rng = np.random.default_rng(4)
    a, b, c = (rng.integers(-9, 9, s) for s in ((7, 4), (5, 7), (5,)))
    graph = graph_of(
        "Gemm", {"a": ("int64", (7, 4)), "b": ("int64", (5, 7)), "c": ("int64", (5,))}, {"y": ("int64", (4, 5))},
        {"transA": 1, "transB": 1},
    )  # fmt: skip
    result, _ = run(graph, {"a": a, "b": b, "c": c}, "mixed")
    np.testing.assert_array_equal(result["y"], a.T @ b.T + c)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "k", "n"), [(1, 100, 257), (16, 33, 130), (130, 16, 300), (1, 17, 1000)])
def test_few_rows_share_columns(m, k, n, dtype):
    rng = np.random.default_rng(5)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (n,)))
    graph = graph_of("Gemm", {"a": ("float32", a.shape)}, {"y": ("float32", (m, n))}, {}, {"b": b, "c": c})
    result, _ = run(graph, {"a": a}, dtype)
    check(result["y"], a, b, c, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("lead", "k", "n"), [((64,), 32, 270), ((3, 50), 33, 300), ((18,), 30, 2050), ((150,), 256, 140)]
)
def test_every_way_to_share_out_a_product_gives_it(lead, k, n, dtype):
    """Rows over groups, columns over the L2Bs of a group; either over the L1Bs; k over the L2Bs; each with weights in an order
    of its own."""
    rng = np.random.default_rng(8)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((*lead, k), (k, n), (n,)))
    op, constants = ("Gemm", {"b": b, "c": c}) if lead == (64,) else ("MatMul", {"b": b})
    graph = graph_of(op, {"a": ("float32", a.shape)}, {"y": ("float32", (*lead, n))}, {}, constants)
    found = {}
    for way in range(5):
        plan = compiled(graph, dtype, ways={"y": way}, implementations={op: "Grid"})
        found.setdefault(str(plan[0].values["y"].layout), plan)
    assert len(found) >= (3 if k == 256 else 2)
    for plan in found.values():
        if Clock().run(plan[2].statements) < 1500:  # ways that no planner takes may be long
            result, _ = execute_plan(graph, {"a": a}, *plan)
            check(result["y"], a, b, c if op == "Gemm" else np.zeros(1), dtype)


@pytest.mark.parametrize(("dtype", "m", "k", "n", "implementation", "way", "loops"), [
    ("half", 300, 64, 2990, "Grid", 0, False), ("mixed", 600, 60, 1300, "Rows", 0, False),
    ("float", 100, 64, 4200, "Grid", 2, False), ("float", 97, 50, 4190, "Grid", 1, True),
])  # fmt: skip
def test_columns_go_to_dram_while_others_are_computed(dtype, m, k, n, implementation, way, loops, monkeypatch):
    """In several parts, so with the same tags again and again; in a loop they are raised before it, where no pieces came before
    that, as inside of another loop."""
    if loops:
        monkeypatch.setattr(gemm_stream, "EARLY", 0)
    rng = np.random.default_rng(9)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    graph = graph_of("MatMul", {"a": ("float32", a.shape)}, {"y": ("float32", (m, n))}, {}, {"b": b})
    plan = compiled(graph, dtype, ways={"y": way}, implementations={"MatMul": implementation})
    moves = [s for s in unroll(plan[2].statements) if isinstance(s, Move)]
    up = [s.tag for s in moves if s.src is not None and s.src.space == L2BM]
    assert len(set(up)) < len(up) and loops == any(s.mnemonic == "mvnop" for s in moves)
    result, _ = execute_plan(graph, {"a": a}, *plan)
    check(result["y"], a, b, np.zeros(1), dtype)


@pytest.mark.parametrize(("m", "k", "n", "dtype", "most"), [
    (4096, 4096, 4096, "half", 93_000), (1024, 1024, 1024, "half", 4_800), (128, 768, 768, "half", 1_310),
    (16, 4096, 4096, "float", 34_000), (1, 4096, 4096, "half", 16_700), (64, 8192, 512, "float", 9_700),
])  # fmt: skip
def test_large_products_take_no_more_steps_than_they_did(m, k, n, dtype, most):
    graph = graph_of(
        "MatMul", {"a": ("float32", (m, k))}, {"y": ("float32", (m, n))}, {}, {"b": np.zeros((k, n), np.float32)}
    )
    assert steps_of(graph, dtype) <= most


def test_a_factor_of_few_columns_is_as_wide_as_the_result():
    """Whose rows end where an image may be cut; blocks beyond the factor's ended in moves of nothing."""
    from mlsdk.device.isa.checks import check as problems

    shapes = {"a": ("float32", (9, 16384)), "b": ("float32", (16384, 32))}
    program = compiled(graph_of("MatMul", shapes, {"y": ("float32", (9, 32))}), "mixed")[2]
    assert not [d for d in problems(program.statements) if d.severity == "error"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("m", "k", "n", "dtype"), [(5, 17000, 3, "float"), (2, 33000, 17, "mixed"), (1030, 70, 8200, "half")]
)
def test_rows_that_do_not_fit_lm_are_cut(m, k, n, dtype):
    rng = np.random.default_rng(6)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (n,)))
    graph = graph_of("Gemm", {"a": ("float32", a.shape)}, {"y": ("float32", (m, n))}, {}, {"b": b, "c": c})
    if m * n > 10**6:  # its emission and its steps; running it takes long
        assert compiled(graph, dtype)
        return
    result, _ = run(graph, {"a": a}, dtype)
    check(result["y"], a, b, c, dtype)


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 2.0), (3.0, 0.25), (1.0, 0.0)])
def test_gemm_with_factors(alpha, beta):
    rng = np.random.default_rng(7)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((5, 7), (7, 9), (5, 1)))
    shapes = {key: ("float32", v.shape) for key, v in (("a", a), ("b", b), ("c", c))}
    graph = graph_of("Gemm", shapes, {"y": ("float32", (5, 9))}, {"alpha": alpha, "beta": beta})
    result, _ = run(graph, {"a": a, "b": b, "c": c}, "float")
    check(result["y"], alpha * a, b, beta * c, "float")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 300, 257), (130, 130, 300), pytest.param(200, 1000, 140, marks=pytest.mark.slow), (7, 131, 200)],
)
def test_columns_of_one_product_are_lanes_of_the_next(m, k, n, dtype):
    """The L2Bs share the columns of the first result; the second product brings each part to all of them."""
    rng = np.random.default_rng(7)
    x, a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((m, 20), (20, k), (k, n), (n,)))
    shapes = {"x": x.shape, "h": (m, k), "y": (m, n), "a": a.shape, "b": b.shape, "c": c.shape}
    nodes = (Node("first", "Gemm", ("x", "a"), ("h",), {}), Node("second", "Gemm", ("h", "b", "c"), ("y",), {}))
    values = {name: Value(name, "float32", shape) for name, shape in shapes.items()}
    graph = Graph("g", ("x",), ("y",), nodes, values, {"a": a, "b": b, "c": c})
    if m == 1:  # more rows may do better in L2Bs of their own
        assert not any(p.node.op == "MNCoreLayoutSwitch" for p in compiled(graph, dtype)[0].nodes)
    result, _ = run(graph, {"x": x}, dtype)
    middle = (x.astype(np.float64) @ a).astype(np.float16 if dtype == "half" else np.float64)
    check(result["y"], middle, b, c, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("m", "k", "n", "tiles"),
    [(100, 128, 40, 1), (300, 256, 33, 1), pytest.param(1100, 128, 2000, 2, marks=pytest.mark.slow)],
)
def test_parts_of_a_product_are_summed_between_l2bs(m, k, n, tiles, dtype):
    """The L2Bs share the columns of the first result and the k of the second product; a quarter of the sum goes to each group."""
    rng = np.random.default_rng(10)
    x, a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((m, 20), (20, k), (k, n), (n,)))
    shapes = {"x": x.shape, "h": (m, k), "y": (m, n), "a": a.shape, "b": b.shape, "c": c.shape}
    bias = (c,) if n != 40 else ()
    nodes = (
        Node("first", "Gemm", ("x", "a"), ("h",), {}),
        Node("second", "Gemm", ("h", "b", *("c" for _ in bias)), ("y",), {}),
    )
    values = {name: Value(name, "float32", shape) for name, shape in shapes.items() if name != "c" or bias}
    graph = Graph("g", ("x",), ("y",), nodes, values, {"a": a, "b": b, **({"c": c} if bias else {})})
    plan = compiled(graph, dtype, implementations={"Gemm": "Columns"})
    sums = [s.size for s in unroll(plan[2].statements) if isinstance(s, Move) and s.mnemonic.startswith("mvr")]
    wide = 4 if dtype == "double" else 2  # LW of a quad
    assert sum(sums) == 256 * -(-m // 128) * -(-n // 16) * wide * (2 if m > 64 else 1) and len(sums) >= tiles
    result, _ = execute_plan(graph, {"x": x}, *plan)
    middle = (x.astype(np.float64) @ a).astype(np.float16 if dtype == "half" else np.float64)
    check(result["y"], middle, b, c if bias else np.zeros(1), dtype)


@pytest.mark.parametrize("dtype", ["float", "mixed", "half", "double"])
@pytest.mark.parametrize("rows", [7, 17, 33, 65])
def test_batches_that_share_a_mab_are_not_padded_beyond_what_images_need(rows, dtype):
    """The scores of 16 heads. Batches of 16 rows a MAB, as without any L1B or MAB to themselves, take above 5,000 steps at 65."""
    rng = np.random.default_rng(6)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((16, rows, 20), (16, 20, rows)))
    values = {"a": ("float32", a.shape), "b": ("float32", b.shape)}
    graph = graph_of("MatMul", values, {"c": ("float32", (16, rows, rows))})
    result, stats = run(graph, {"a": a, "b": b}, dtype)
    want = a.astype(np.float64) @ b.astype(np.float64)
    limit = {"float": 1e-6, "double": 1e-7}.get(dtype, 1e-2)
    assert np.linalg.norm(result["c"] - want) <= limit * np.linalg.norm(want)
    assert stats.total_steps <= (2000 if dtype == "double" else 1100)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "heads", "way"), [(128, 6, 0), (200, 12, 0), (200, 12, 1)])
def test_l2bs_that_have_no_head_add_nothing_to_a_sum(m, heads, way, dtype):
    """Columns of 6 heads lie in 6 L2Bs; what the others hold is not part of the sum. Two heads of an L2B lie apart, each with all
    its rows, where there are several."""
    rng = np.random.default_rng(11)
    k = 16 * heads
    x, a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((m, 20), (20, k), (k, 40), (k,)))
    nodes = (
        Node("first", "Gemm", ("x", "a", "c"), ("h",), {}),
        Node("cut", "Reshape", ("h", "heads"), ("h6",), {}),
        Node("relu", "Relu", ("h6",), ("r6",), {}),
        Node("join", "Reshape", ("r6", "rows"), ("r",), {}),
        Node("second", "Gemm", ("r", "b"), ("y",), {}),
    )
    constants = {"a": a, "b": b, "c": c, "heads": np.array([m, heads, 16]), "rows": np.array([m, k])}
    shapes = {"x": (m, 20), "h": (m, k), "h6": (m, heads, 16), "r6": (m, heads, 16), "r": (m, k), "y": (m, 40)}
    values = {name: Value(name, "float32", shape) for name, shape in shapes.items()}
    values |= {name: Value(name, str(data.dtype), data.shape) for name, data in constants.items()}
    graph = Graph("g", ("x",), ("y",), nodes, values, constants)
    plan = compiled(graph, dtype, implementations={"Gemm": "Columns"}, ways={"y": way})
    assert [d.n for d in plan[0].values["h"].scheme.axes[1]] == ([6] if m == 128 else [6, 2])
    moves = {s.mnemonic[:3] for s in unroll(plan[2].statements) if isinstance(s, Move)}
    assert ("mvr" in moves) == (way == 0)
    assert not any(p.node.op == "MNCoreLayoutSwitch" for p in plan[0].nodes)
    result, _ = execute_plan(graph, {"x": x}, *plan)
    middle = np.maximum(x.astype(np.float64) @ a + c, 0).astype(np.float16 if dtype == "half" else np.float64)
    check(result["y"], middle, b, np.zeros(1), dtype)


@pytest.mark.parametrize("dtype", ["half", "mixed"])
@pytest.mark.parametrize(("a", "b"), [((40, 50), (50, 20)), ((3, 5, 40), (3, 40, 33)), ((16, 1, 70), (16, 70, 20))])
def test_computed_weights_are_transposed_as_they_are_read(a, b, dtype):
    rng = np.random.default_rng(12)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in (a, b))
    nodes = (Node("soft", "Softmax", ("b",), ("r",), {"axis": -1}), Node("product", "MatMul", ("a", "r"), ("c",), {}))
    weights = np.exp(y.astype(np.float64)) / np.exp(y.astype(np.float64)).sum(-1, keepdims=True)
    out = (*a[:-1], b[-1])
    values = {n: Value(n, "float32", s) for n, s in (("a", a), ("b", b), ("r", b), ("c", out))}
    graph = Graph("g", ("a", "b"), ("c",), nodes, values, {})
    plans = [compiled(graph, dtype, ways={"c weights": way}) for way in (0, 1)]
    assert {p.kernel for plan in plans for p in plan[0].nodes if p.emitter == "gemm"} == {"h", "hx"}
    for plan in plans:
        result, _ = execute_plan(graph, {"a": x, "b": y}, *plan)
        check(result["c"], x, weights, np.zeros(1), dtype)


def test_heads_of_one_query_are_not_padded_to_rows():
    """A MAB has two heads of one row each; padded to 16 rows the scores took 5,100 steps in the softmax behind them."""
    graph = graph_of(
        "MatMul", {"a": ("float32", (12, 1, 64)), "b": ("float32", (12, 64, 256))}, {"c": ("float32", (12, 1, 256))}
    )
    assert compiled(graph, "mixed")[0].values["c"].scheme.extents == (12, 1, 256)
