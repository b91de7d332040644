"""Moves: any two layouts can be connected, and operators that only rearrange give exactly what numpy gives."""

from math import prod

import numpy as np
import pytest
from emulated import graph_of, move_between, run
from hypothesis import given
from hypothesis import strategies as st

from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import EXTENT, PER_LW, Layout, Sub
from mlsdk.pipeline.ir.planes import Split, plane_scheme
from mlsdk.pipeline.ir.scheme import choose_lane, spread
from mlsdk.pipeline.ops.clock import Clock
from mlsdk.pipeline.ops.emitters.move import emit_move, ring
from mlsdk.pipeline.ops.emitters.pick import ALIKE, columns, table_image
from mlsdk.pipeline.ops.emitters.places import Move, Take
from mlsdk.pipeline.ops.emitters.repeats import repeats
from mlsdk.pipeline.ops.emitters.transfer import Tensor

DTYPES = ["single", "half", "double"]


def default(shape):
    return spread(shape, choose_lane(shape))


def numbers(shape, seed=0):
    return np.random.default_rng(seed).integers(-500, 500, shape).astype(np.float32)


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


def connected(data, dtype, shape, seed):
    """Bit-identical from any layout to any other."""
    source, target = data.draw(layouts(shape, dtype)), data.draw(layouts(shape, dtype))
    source.check(shape, dtype)
    target.check(shape, dtype)
    x = numbers(shape, seed)
    assert np.array_equal(move_between(x, dtype, source, target), x), (source, target)


@given(data=st.data(), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 2**31))
def test_any_two_layouts_can_be_connected(data, dtype, seed):
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 5, 8, 12, 20]), min_size=0, max_size=3)))
    connected(data, dtype, shape, seed)


@pytest.mark.slow
@given(data=st.data(), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 2**31))
def test_any_two_layouts_of_larger_tensors(data, dtype, seed):
    sizes = st.sampled_from([2, 3, 5, 16, 17, 31, 64, 100, 128, 256, 333, 777])
    shape = tuple(data.draw(st.lists(sizes, min_size=1, max_size=4).filter(lambda s: prod(s) <= 300_000)))
    connected(data, dtype, shape, seed)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "perm"),
    [
        ((256, 512), (1, 0)),
        ((8, 128, 16, 64), (0, 2, 1, 3)),  # in loops
        ((201, 377), (1, 0)),  # odd lists of lines
        ((16, 3, 13, 9), (2, 0, 3, 1)),
    ],
)
def test_a_transposed_tensor_comes_to_its_own_layout(shape, perm, dtype):
    x = numbers(shape).transpose(perm)
    assert np.array_equal(
        move_between(x, dtype, default(shape).permute(perm).layout(dtype), default(x.shape).layout(dtype)), x
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "perm"),
    [((1024, 1024), (1, 0)), ((1001, 777), (1, 0)), ((16, 33, 130, 9), (2, 0, 3, 1)), ((777, 8, 48), (1, 2, 0))],
)
def test_large_transposed_tensors(shape, perm, dtype):
    test_a_transposed_tensor_comes_to_its_own_layout(shape, perm, dtype)


def test_lots_that_come_at_once_do_not_meet_in_lm():
    """Long lists of one L2B's lines for L2Bs of all groups, by lanes."""
    source = Layout.parse("((6_L2B:1,3:4),(4_L1B:1),(4_PE:1,4:1);B@[MAB])")
    target = Layout.parse("((17:4),(4:68),(4_PE:1,4:1);B@[L2B,L1B,MAB])")
    x = numbers((17, 4, 13))
    assert np.array_equal(move_between(x, "double", source, target), x)


def test_lots_that_fill_lm_leave_zeros_to_later_ones():
    """Two lots take all of LM0; one comes in passes, and what they do not hold is picked from a zero."""
    source = Layout.parse("((2_W:1,16_MAB:1,8_L2B:1,2_L1B:1),(4_L1B:2,2:1,4_PE:1))")
    target = Layout.parse("((8_L1B:1,4:2,4_PE:1,2:1,2_W:1),(6_L2B:1,3:8);B@[MAB])")
    x = numbers((500, 17))
    assert np.array_equal(move_between(x, "single", source, target), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "splits"), [((3, 20, 9, 14), [(2, 1, 4), (3, 2, 1)]), ((64, 100), None)])
def test_layouts_with_copies_in_all_l1bs(shape, splits, dtype):
    """Their data are seen as spread, so that all PEs share in moving them."""
    if splits:
        one, other = (plane_scheme(shape, Split(*split)).layout(dtype) for split in splits)
    else:
        one, other = (Layout.parse(f"((8_{level}:1,8:104),(100:1);B@[PE,W])") for level in ("L1B", "MAB"))
    x = numbers(shape)
    for source, target in ((one, other), (other, one), (one, default(shape).layout(dtype)),
                           (default(shape).layout(dtype), one)):  # fmt: skip
        assert np.array_equal(move_between(x, dtype, source, target), x)


# ---- how long they take -------------------------------------------------------------------------------------------


def emitted(source, target, dtype, shape):
    asm, _ = emit_move([Tensor(Image(source, dtype, shape), "in0")], Tensor(Image(target, dtype, shape), "out0"),
                       [Take.same(shape)])  # fmt: skip
    return asm.statements


@pytest.mark.parametrize(
    ("shape", "perm", "dtype", "bound"),
    [
        ((1024, 1024), (1, 0), "single", 2.0),
        ((1024, 1024), (1, 0), "half", 2.3),
        ((4096, 4096), (1, 0), "single", 3.3),
        ((8, 128, 16, 64), (0, 2, 1, 3), "single", 1.2),
        ((1001, 777), (1, 0), "single", 4.0),
    ],
)
def test_transposes_take_a_few_times_what_dram_takes(shape, perm, dtype, bound):
    """`bound`: of the steps in which each group's DRAM reads and writes its part once (64 LW a step)."""
    new = tuple(shape[p] for p in perm)
    source, target = default(shape).permute(perm).layout(dtype), default(new).layout(dtype)
    statements = emitted(source, target, dtype, new)
    least = sum(Image(layout, dtype, new).group_size for layout in (source, target)) / 64
    assert Clock().run(statements) <= bound * least
    assert len(statements) < 8000


# ---- parts --------------------------------------------------------------------------------------------------------


def test_tables_of_addresses_lie_as_an_image_of_theirs():
    rng = np.random.default_rng(0)
    held = [np.arange(n) for n in (8, 8, 16, 4)]
    for same in range(8):  # levels over which they are the same
        long = rng.integers(0, 1 << 62, (8, 8, 16, 4, 3)).astype(np.uint64)
        for dim in range(3):
            if same >> dim & 1:
                long[:] = long.take([0], axis=dim)
        image, data = table_image(long.reshape(4096, 3), held)
        once = long[tuple(slice(1) if same >> dim & 1 else slice(None) for dim in range(3))]
        words = np.stack([once >> np.uint64(32), once & np.uint64(0xFFFFFFFF)], axis=-1).astype(np.uint32)
        assert np.array_equal(image.pack(words.reshape(-1)), data)


def test_addresses_are_vectors_and_offsets():
    rng = np.random.default_rng(0)
    of_pe, of_place = rng.integers(0, 900, 40), rng.integers(0, 900, 9)
    both = np.concatenate([of_pe[:, None] + of_place, rng.integers(0, 900, 40)[:, None] + of_place], axis=1)
    for address in (both[:, :9], both, np.where(rng.random(both.shape) < 0.2, -1, both), both[:1].repeat(40, 0)):
        found = columns(address)
        vectors = np.concatenate([found.vectors, np.zeros((1, 40), np.int64)])  # ALIKE is the last
        assert (((vectors[found.which].T + found.offset) == address) | (address < 0)).all()
    assert (found.which == ALIKE).all() and len(columns(both).vectors) == 2


@pytest.mark.parametrize("count", range(2, 30))
def test_stages_under_way_have_buffers_of_their_own(count):
    ahead, buffers = ring(count)
    assert len(buffers) == count and set(buffers) <= set(range(4)) and ahead < count
    assert all(len({buffers[(i + k) % count] for k in range(ahead + 1)}) == ahead + 1 for i in range(count))


def test_repetitions_shift_every_place_alike():
    shape, dtype = (1024, 1024), "single"
    new = (1024, 1024)
    source, target = (Image(layout, dtype, new) for layout in
                      (default(shape).permute((1, 0)).layout(dtype), default(new).layout(dtype)))  # fmt: skip
    move = Move([source], target, [Take.same(new)])
    addresses, loops = repeats(move, False)
    assert loops and len(addresses) * prod(loop.count for loop in loops) == target.addresses
    place, good = move.at(addresses)
    for loop in loops:
        other, _ = move.at(addresses + loop.addresses)
        steps = (other - place)[good]
        assert (steps == steps[0]).all() and steps[0] != 0


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
