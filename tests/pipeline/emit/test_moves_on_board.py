"""Moves: any two layouts can be connected, and operators that only rearrange give exactly what numpy gives."""

import numpy as np
import pytest
from emulated import graph_of, move_between, run
from hypothesis import given
from hypothesis import strategies as st

from mlsdk.pipeline.ir.layout import EXTENT, PER_LW, Layout, Sub


@st.composite
def layouts(draw, shape, dtype):
    """Any sound layout of a shape: each axis is cut into digits that go to any level that still has room."""
    free = {**EXTENT, "W": PER_LW[dtype]}
    step = {level: 1 for level in (*free, "Addr")}
    axes = []
    for size in shape:
        rest, subs = size, []
        for level in draw(st.permutations(sorted(free))):
            n = draw(st.integers(1, min(free[level], rest))) if rest > 1 else 1
            if n > 1:
                subs.append(Sub(n, level, step[level]))
                free[level] //= n
                step[level] *= n
                rest = -(-rest // n)
        if rest > 1:
            subs.insert(draw(st.integers(0, len(subs))), Sub(rest, "Addr", step["Addr"]))
            step["Addr"] *= rest
        axes.append(tuple(subs))
    used = {s.level for axis in axes for s in axis}
    copies = tuple(
        Sub(0, level) for level in ("L2B", "L1B", "MAB", "PE", "W") if level not in used and draw(st.booleans())
    )
    return Layout(tuple(axes), copies)


@given(data=st.data(), dtype=st.sampled_from(["single", "half", "double"]), seed=st.integers(0, 2**31))
def test_any_two_layouts_can_be_connected(data, dtype, seed):
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 5, 8, 12, 20]), min_size=0, max_size=3)))
    source, target = data.draw(layouts(shape, dtype)), data.draw(layouts(shape, dtype))
    source.check(shape, dtype)
    target.check(shape, dtype)
    x = np.random.default_rng(seed).integers(-500, 500, shape).astype(np.float32)
    assert np.array_equal(move_between(x, dtype, source, target), x), (source, target)


@pytest.mark.parametrize("dtype", ["float", "half", "double"])
@pytest.mark.parametrize("shape", [(3, 7), (1, 5), (100, 70), (64, 64), (2, 3, 5), (1000, 33)])
def test_slices(shape, dtype):
    x = np.random.default_rng(8).integers(-500, 500, shape).astype(np.float32)
    cut = np.s_[1::2] if shape[0] > 1 else np.s_[:]
    want = x[cut][..., ::-1]
    constants = {"starts": np.array([1 if shape[0] > 1 else 0, -1]), "ends": np.array([10**6, -(10**6)]),
                 "axes": np.array([0, len(shape) - 1]), "steps": np.array([2 if shape[0] > 1 else 1, -1])}  # fmt: skip
    result, _ = run(
        graph_of("Slice", {"x": ("float32", shape)}, {"y": ("float32", want.shape)}, {}, constants), {"x": x}, dtype
    )
    assert np.array_equal(result["y"], want)


@pytest.mark.parametrize("dtype", ["float", "half", "double"])
@pytest.mark.parametrize("axis", [0, 1])
def test_concat(axis, dtype):
    rng = np.random.default_rng(9)
    shapes = [(3, 17), (5, 17), (1, 17)] if axis == 0 else [(9, 3), (9, 40), (9, 1)]
    parts = {f"x{i}": rng.integers(-500, 500, s).astype(np.float32) for i, s in enumerate(shapes)}
    want = np.concatenate(list(parts.values()), axis)
    graph = graph_of(
        "Concat", {k: ("float32", v.shape) for k, v in parts.items()}, {"y": ("float32", want.shape)}, {"axis": axis}
    )
    result, _ = run(graph, parts, dtype)
    assert np.array_equal(result["y"], want)


@pytest.mark.parametrize(
    ("shape", "new"),
    [
        ((6, 4), (24,)),
        ((6, 4), (4, 6)),
        ((2, 3, 4), (6, 4)),
        ((64, 64), (8, 8, 64)),
        ((35,), (5, 7)),
        ((128, 48), (48, 128)),
        ((1, 1), ()),
    ],
)
def test_reshape(shape, new):
    x = np.random.default_rng(10).integers(-500, 500, shape).astype(np.float32)
    graph = graph_of(
        "Reshape", {"x": ("float32", shape)}, {"y": ("float32", new)}, {}, {"shape": np.array(new, np.int64)}
    )
    result, _ = run(graph, {"x": x})
    assert np.array_equal(result["y"], x.reshape(new))


@pytest.mark.parametrize(
    ("shape", "perm"), [((6, 4), (1, 0)), ((2, 3, 4), (2, 0, 1)), ((100, 33), (1, 0)), ((1, 5), (1, 0))]
)
def test_transpose_is_a_view(shape, perm):
    x = np.random.default_rng(11).integers(-500, 500, shape).astype(np.float32)
    want = x.transpose(perm)
    graph = graph_of("Transpose", {"x": ("float32", shape)}, {"y": ("float32", want.shape)}, {"perm": perm})
    result, _ = run(graph, {"x": x})
    assert np.array_equal(result["y"], want)
