"""Rules of operators that slide windows over planes: convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsdk.errors import EmitError, LayoutError
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ir.layout import EXTENT, L1B, L2B, PE, Layout, Sub
from mlsdk.pipeline.ir.placed import ANY, LANES, ZERO
from mlsdk.pipeline.ir.planes import Plane, Split, plane_scheme
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL, QUAD_LW, Digit, Scheme
from mlsdk.pipeline.layout.depth import to_depth
from mlsdk.pipeline.layout.epilogues import Target, follow, realised
from mlsdk.pipeline.layout.maxima import pool_with_places
from mlsdk.pipeline.layout.moving import window_slice
from mlsdk.pipeline.layout.transposed import conv_transpose
from mlsdk.pipeline.layout.volumes import conv_of_volume
from mlsdk.pipeline.layout.window_costs import pays_to_join, pays_to_round, split_for
from mlsdk.pipeline.ops.convolution import Window, window_of
from mlsdk.pipeline.ops.emitters import conv_joined, slide
from mlsdk.pipeline.ops.emitters import window as windows
from mlsdk.pipeline.ops.emitters.conv import CONSTANTS, quartered
from mlsdk.pipeline.ops.emitters.gemm_modes import Mode, in_quarters, mode_of, weights_layout
from mlsdk.pipeline.ops.emitters.gemm_stream import BIAS_WORDS
from mlsdk.pipeline.ops.emitters.slide import WEIGHTS_LW
from mlsdk.pipeline.ops.table import attributes

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner


# ---- which planes -------------------------------------------------------------------------------------------------


def plane_of(planner: Planner, name: str, dtype: str = "") -> tuple[str, Plane]:
    """The value in a plane scheme: as it lies, or brought there; `dtype`: of an input that lies nowhere yet."""
    shape = planner.shape(name)
    scheme = planner.scheme_of(name)
    plane = Plane.of(shape, scheme) if scheme is not None else None
    if plane is None:
        free = planner.free(name) or planner.is_constant(name)
        scheme = plane_scheme(shape, split_for(shape, dtype or planner.device_dtype(name)))
        name = planner.want(name, scheme, (dtype or None) if free else None, reason="input of a window")
        plane = Plane.of(shape, scheme)
    assert plane is not None
    return name, plane


def window_attributes(window: Window) -> dict[str, tuple[int, int]]:
    """The window in two dimensions, as the emitters read it from their node."""

    def pair(values: tuple[int, ...], fill: int) -> tuple[int, int]:
        return (fill, values[0]) if len(values) == 1 else (values[0], values[1])

    return {
        "window": pair(window.kernel, 1),
        "step": pair(window.strides, 1),
        "apart": pair(window.dilations, 1),
        "border": pair(window.before, 0),
    }


def _fits(x: Plane, y: Plane, found: dict, unit: int, dtypes: tuple[str, str], groups: int, own: bool = False) -> bool:
    """Whether the emitters' memory suffices. `unit`: LW of a place in LM0, `groups`: most groups of columns of a MAB."""
    window = windows.Window(x, y, found["window"], found["step"], found["apart"], found["border"], own)
    try:
        windows.choose("", window, unit, *dtypes, groups)
    except EmitError:
        return False
    return True


def _to_depth(planner: Planner, node: Node, window: Window, dtype: str) -> Node | None:
    shape, s = planner.shape(node.inputs[0]), window.strides[0]
    if len(shape) != 4:
        return None
    deep = (shape[0], shape[1] * s * s, -(-shape[2] // s), -(-shape[3] // s))
    return to_depth(planner, node, window, dtype, split_for(deep, dtype))


# ---- convolution --------------------------------------------------------------------------------------------------


def conv(planner: Planner, node: Node) -> None:
    x, w = node.inputs[:2]
    bias = node.inputs[2] if len(node.inputs) > 2 and node.inputs[2] else None
    shape, shape_w, out = planner.shape(x), planner.shape(w), planner.shape(node.outputs[0])
    window = window_of(node, shape[2:], shape_w[2:])
    groups = int(attributes(node)["group"])
    apart = 1  # groups of the filters that are one for the products
    if len(shape) > 4:
        if groups == 1 or shape_w[1] == 1 or planner.is_constant(w):
            conv_of_volume(planner, node, window, groups)
        else:  # as planes of several channels a group they would be products, too
            by_product(planner, node, window)
        return
    if groups > 1 and shape_w[1] == 1 and _depthwise(planner, node, window, x, w, bias):
        return
    if groups > 1:
        times = together(shape_w, groups)
        if times > 1 and planner.is_constant(w):
            w = _dense(planner, w, groups, times)
        elif times > 1:
            apart = times
        groups = -(-groups // times)
    half = planner.halves and planner.device_dtype(x) != "double"
    deep = _to_depth(planner, node, window, "half" if half else planner.device_dtype(x))
    if deep is not None:
        conv(planner, deep)
        return
    found = window_attributes(window)
    source, plane = plane_of(planner, x, "half" if half else "")
    source = planner.clean(source)
    w_dtype = "half" if half and planner.is_constant(w) else planner.device_dtype(w)
    mode = mode_of(planner.device_dtype(source), w_dtype, half)
    dtype = {"d": "double"}.get(mode.name, "half" if half else "single")
    split = split_for(out, dtype)
    if groups > 1:
        split = Split(split.images, 1, min(out[2] if len(out) == 4 else 1, EXTENT[L2B] // split.images))
        if plane.split.channels > 1:
            alone = plane_scheme(shape, Split(split.images, 1, split.rows))
            source = planner.want(source, alone, reason="groups of channels")
            plane = Plane.of(shape, alone)  # type: ignore[assignment]
    scheme = plane_scheme(out, split)
    y = Plane.of(out, scheme)
    assert y is not None
    if mode.name == "h" and planner.device_dtype(source) == "single":
        anyway = any(reader.op == "ConvFilterGrad" for reader in planner.readers.get(x, ()))
        source = planner.rounded(source) if anyway or pays_to_round(plane, y, found, mode) else source
    dtypes = (planner.device_dtype(source), dtype)
    sizes = windows.Window(plane, y, found["window"], found["step"], found["apart"], found["border"])
    joined = groups == apart == 1 and pays_to_join(sizes, mode, dtypes)
    if not joined and not _fits(plane, y, found, mode.floats, dtypes, BIAS_WORDS // mode.acc_words):
        by_product(planner, replace(node, inputs=(source, *node.inputs[1:])), window)
        return
    weights = _weights(planner, node, w, w_dtype, mode, y, scheme, split, plane, groups, apart, joined)
    inputs = [source, weights, ""]
    fused = bias is not None and _fusable(planner, bias, dtype, shape_w[0])
    if bias is not None and fused:
        wanted = "double" if dtype == "double" else "single"
        inputs[2] = planner.want(bias, Scheme((scheme.axes[1],), 0, _copies(scheme, split)), wanted, reason="bias")
    placed = replace(node, attrs={**node.attrs, **found, "groups": groups, "joined": int(joined)})
    if bias is None or fused:
        if joined:
            _, columns = conv_joined.choose("", sizes, mode, *dtypes)
        else:
            _, columns = windows.choose("", sizes, mode.floats, *dtypes, BIAS_WORDS // mode.acc_words)
        target = Target(node.outputs[0], scheme, dtype, CONSTANTS, lambda form: form.fits(sizes, columns, fused))
        _with_epilogue(planner, target, placed, "conv", inputs, mode.name)
        return
    middle = planner.temporary(node.outputs[0], out)
    part = replace(placed, name=planner.fresh(f"{node.name}.product"), outputs=(middle,))
    planner.put(part, "conv", inputs[:2], [scheme], dtypes=[dtype], kernel=mode.name, pad=LANES)
    _add_bias(planner, node, middle, bias, node.outputs[0])


def _with_epilogue(planner: Planner, target: Target, node: Node, emitter: str, inputs: list[str], kernel: str) -> None:
    """A window operation with those of the nodes behind it that it can compute itself. `inputs`: what slides, weights, bias."""
    chain = follow(planner, target)
    if chain.nodes:
        attrs, operands = realised(planner, target, chain)
        node = replace(node, outputs=chain.nodes[-1].outputs, attrs={**node.attrs, **attrs})
        inputs = [*inputs, *operands]
    else:
        inputs = [name for name in inputs if name]
    planner.put(node, emitter, inputs, [target.scheme], dtypes=[target.dtype], kernel=kernel, pad=LANES)


def _add_bias(planner: Planner, node: Node, name: str, bias: str, out: str) -> None:
    shape = planner.shape(name)
    wide = planner.temporary(bias, (1, shape[1], *(1,) * (len(shape) - 2)))
    planner.seen_as(bias, wide)
    planner.apply(node, "Add", (name, wide), shape, out=out)


def _copies(scheme: Scheme, split: Split) -> tuple[Digit, ...]:
    """L2B digits of images and rows, over which a tensor of channels alone is repeated."""
    if split.channels == 1:
        return ()
    return tuple(d for axis in (scheme.axes[0], *scheme.axes[2:]) for d in axis if d.level == L2B and d.n > 1)


def _fusable(planner: Planner, bias: str, dtype: str, channels: int) -> bool:
    """Whether a bias can start the accumulators: singles (doubles), small enough for L1BM."""
    wanted = "double" if dtype == "double" else "single"
    have = planner.device_dtype(bias)
    free = planner.is_constant(bias) or planner.free(bias)
    return (have == wanted or (free and have == "half")) and channels <= (1024 if dtype == "double" else 2048)


def _weights(
    planner: Planner,
    node: Node,
    w: str,
    dtype: str,
    mode: Mode,
    y: Plane,
    scheme: Scheme,
    split: Split,
    plane: Plane,
    groups: int,
    apart: int,
    joined: bool,
) -> str:
    """The weights in the order in which they stream: every channel part of the input padded to whole local blocks. `apart`:
    how many groups of theirs each of the `groups` is made of; `joined`: the L1Bs share the channels of the input."""
    shape = planner.shape(w)
    channels = plane.split.channels * plane.blocks * BLOCK // groups
    copied = [Sub(d.n, d.level, d.stride) for d in _copies(scheme, split)]
    shared = (Digit(EXTENT[L1B], L1B, 1),) if joined else ()
    layout = weights_layout(
        mode,
        channels,
        shape[0],
        n_digits=scheme.axes[1],
        n_first=True,
        taps=shape[2:],
        copied=copied,
        k_digits=shared,
    )
    if quartered(y):
        layout = in_quarters(layout)
    if apart > 1:
        w = _spread_out(planner, node, w, apart, layout, dtype)
        if dtype == "half" and planner.device_dtype(w) == "single":  # a product with the factor
            w = planner.rounded(w)
    return planner.want_layout(w, layout, dtype, reason=f"weights of {node.op}")


def _spread_out(planner: Planner, node: Node, w: str, times: int, layout: Layout, dtype: str) -> str:
    """Filters that live on the board as those of `times` larger groups: repeated, and zero between those that are apart. An
    input lies so that its copies are the repetitions, and nothing has to move."""
    out, each, *taps = planner.shape(w)
    dense = (out, each * times, *taps)
    own = np.arange(out) * int(attributes(node)["group"]) // out % times  # of each filter, its part of the lanes
    mask = np.zeros((out, times, each, *taps), np.float32)
    mask[np.arange(out), own] = 1
    factor = planner.new_constant(f"{w}.apart", mask.reshape(dense))
    small, scheme = _repeating(layout, each), _scheme_of(layout, dtype)
    if small is None or scheme is None or not planner.free(w):
        repeats = planner.new_constant(f"{node.name}.repeats", np.array([1, times, *(1 for _ in taps)], np.int64))
        tiled = planner.apply(node, "Tile", (w, repeats), dense)
        return planner.apply(node, "Mul", (tiled, factor), dense)
    planner.place_input(w, small, None, dtype, f"weights of {node.op}, repeated")
    tiled = planner.temporary(w, dense)
    planner.view(Node(planner.fresh(f"{node.name}.Tile"), "Tile", (w,), (tiled,)), w, scheme)
    return planner.apply(node, "Mul", (tiled, factor), dense)


def _scheme_of(layout: Layout, dtype: str) -> Scheme | None:
    try:
        return Scheme.of(layout, dtype)
    except LayoutError:
        return None


def _repeating(layout: Layout, each: int) -> Layout | None:
    """The layout of weights of which `each` lanes are stored, over and over where others lie in `layout`; None where the copies
    would not be in other PEs."""
    lanes, kept = list(layout.axes[1]), list[Sub]()
    while each > 1:
        digit = lanes.pop()
        if each % digit.n and digit.n % each:
            return None
        inner = min(each, digit.n)
        kept.insert(0, Sub(inner, digit.level, digit.stride))
        if digit.n > inner:
            lanes.append(Sub(digit.n // inner, digit.level, digit.stride * inner))
        each //= inner
    if any(digit.level != PE for digit in lanes):
        return None
    return Layout((layout.axes[0], tuple(kept), *layout.axes[2:]), (*layout.broadcast, *lanes))


def together(shape_w: Sequence[int], groups: int) -> int:
    """How many groups of channels are gathered into one, so that each has whole lane blocks; the last may be less."""
    sizes = (shape_w[1], shape_w[0] // groups)
    for times in range(1, groups):
        merged = -(-groups // times)
        if all(n * times % BLOCK == 0 and -(-groups * n // BLOCK) * BLOCK == merged * times * n for n in sizes):
            return times
    return groups


def _dense(planner: Planner, w: str, groups: int, times: int) -> str:
    """Weights of few channels a group as weights of larger groups, zero between those that were apart."""
    small = planner.data(w)
    assert small is not None
    out, each = small.shape[:2]
    dense = np.zeros((out, each * times, *small.shape[2:]), small.dtype)
    for o in range(out):
        g = o * groups // out % times
        dense[o, g * each : (g + 1) * each] = small[o]
    return planner.new_constant(f"{w}.dense", dense)


def _depthwise(planner: Planner, node: Node, window: Window, x: str, w: str, bias: str | None) -> bool:
    """A convolution in which each channel is on its own; says whether it was one that fits."""
    shape, out = planner.shape(x), planner.shape(node.outputs[0])
    times = out[1] // shape[1]
    half = planner.halves and planner.device_dtype(x) != "double"
    compute = "double" if planner.device_dtype(x) == "double" else "single"
    have = {name: planner.device_dtype(name) for name in (w, bias) if name}
    if any(not planner.free(n) and not planner.is_constant(n) and d != compute for n, d in have.items()):
        return False
    taps = window.kernel[0] * (window.kernel[1] if len(window.kernel) > 1 else 1)
    if taps * QUAD_LW[compute] > WEIGHTS_LW:
        return False
    if times > 1:
        wide = (shape[0], out[1], *shape[2:])
        index = planner.new_constant(f"{node.name}.channels", np.arange(out[1]) // times)
        x = planner.apply(node, "Gather", (x, index), wide, axis=1)
        shape = wide
    source, plane = plane_of(planner, x)
    found = window_attributes(window)
    split, most = split_for(out, "half" if half else compute), EXTENT[L2B] // plane.split.channels
    images = min(split.images, most)
    split = Split(images, plane.split.channels, max(1, min(out[2] if len(out) == 4 else 1, most // images)))
    scheme = plane_scheme(out, split)
    y = Plane.of(out, scheme)
    assert y is not None
    dtype = "half" if half else compute
    dtypes = (planner.device_dtype(source), dtype)
    if not _fits(plane, y, found, QUAD_LW[dtypes[0]], dtypes, 64, True):
        return False
    copies = _copies(scheme, split)
    axes = (scheme.axes[1], (), *((Digit(n, LOCAL, -1 - i),) if n > 1 else () for i, n in enumerate(window.kernel)))
    inputs = [source, planner.want(w, Scheme(axes, 0, copies), compute, reason="weights of each channel"), ""]
    if bias is not None:
        inputs[2] = planner.want(bias, Scheme((scheme.axes[1],), 0, copies), compute, reason="bias")
    kernel = "depthwise" if bias is None else "depthwise+bias"
    sizes = windows.Window(plane, y, found["window"], found["step"], found["apart"], found["border"], True)
    _, columns = windows.choose("", sizes, QUAD_LW[dtypes[0]], *dtypes, 64)
    target = Target(node.outputs[0], scheme, dtype, slide.CONSTANTS, lambda form: form.fits(sizes, columns, False))
    _with_epilogue(planner, target, replace(node, attrs={**node.attrs, **found}), "slide", inputs, kernel)
    return True


def by_product(planner: Planner, node: Node, window: Window) -> None:
    """A convolution as a matrix product with every window written out: for what the emitter has no room or no form for."""
    x, w = node.inputs[:2]
    bias = node.inputs[2] if len(node.inputs) > 2 and node.inputs[2] else None
    n, c, *extents = planner.shape(x)
    out = planner.shape(node.outputs[0])
    o, each, *kernel = planner.shape(w)
    groups, rank, taps, places = c // each, len(kernel), prod(kernel), prod(out[2:])
    x = _bordered(planner, node, x, window, 0.0)
    for axis, (size, step, apart, count) in enumerate(zip(kernel, window.strides, window.dilations, out[2:])):
        index = np.arange(size)[:, None] * apart + np.arange(count) * step
        shape = list(planner.shape(x))
        shape[2 + axis] = size * count
        chosen = planner.new_constant(f"{node.name}.taps", index.reshape(-1))
        x = planner.apply(node, "Gather", (x, chosen), shape, axis=2 + axis)
    split = (n, groups, each, *(v for pair in zip(kernel, out[2:]) for v in pair))
    x = planner.apply(node, "Reshape", (x,), split)
    tap_axes, place_axes = [3 + 2 * i for i in range(rank)], [4 + 2 * i for i in range(rank)]
    order = [1, 0, *place_axes, 2, *tap_axes]
    x = planner.apply(node, "Transpose", (x,), [split[a] for a in order], perm=tuple(order))
    x = planner.apply(node, "Reshape", (x,), (groups, n * places, each * taps))
    if planner.is_constant(w):
        data = planner.data(w)
        assert data is not None
        w = planner.new_constant(
            f"{w}.matrix", data.reshape(groups, o // groups, each * taps).transpose(0, 2, 1).copy()
        )
    else:
        w = planner.apply(node, "Reshape", (w,), (groups, o // groups, each * taps))
        w = planner.apply(node, "Transpose", (w,), (groups, each * taps, o // groups), perm=(0, 2, 1))
    y = planner.apply(node, "MatMul", (x, w), (groups, n * places, o // groups))
    y = planner.apply(node, "Reshape", (y,), (groups, n, places, o // groups))
    y = planner.apply(node, "Transpose", (y,), (n, groups, o // groups, places), perm=(1, 0, 3, 2))
    if bias is None:
        planner.apply(node, "Reshape", (y,), out, out=node.outputs[0])
        return
    y = planner.apply(node, "Reshape", (y,), out)
    _add_bias(planner, node, y, bias, node.outputs[0])


def _bordered(planner: Planner, node: Node, x: str, window: Window, fill: float) -> str:
    """x with the window's borders, wide enough for its last place."""
    shape, out = planner.shape(x), planner.shape(node.outputs[0])
    after = [
        max(0, (count - 1) * step + span - before - extent)
        for count, step, span, before, extent in zip(out[2:], window.strides, window.span, window.before, shape[2:])
    ]
    if not any(window.before) and not any(after):
        return x
    pads = np.array([0, 0, *window.before, 0, 0, *after], np.int64)
    wide = [*shape[:2], *(b + n + a for b, n, a in zip(window.before, shape[2:], after))]
    inputs = [x, planner.new_constant(f"{node.name}.pads", pads)]
    dtype = planner.value(x).dtype
    inputs.append(planner.new_constant(f"{node.name}.fill", np.array(fill, dtype)))
    return planner.apply(node, "Pad", inputs, wide)


# ---- pooling ------------------------------------------------------------------------------------------------------


def pool(planner: Planner, node: Node) -> None:
    """MaxPool and AveragePool."""
    kernel = "max" if node.op == "MaxPool" else "average"
    x, shape, out = node.inputs[0], planner.shape(node.inputs[0]), planner.shape(node.outputs[0])
    window = window_of(node, shape[2:], tuple(attributes(node)["kernel_shape"]))
    if len(node.outputs) > 1 and node.outputs[1]:
        pool_with_places(planner, node, window, _bordered(planner, node, x, window, -np.inf))
        return
    if planner.device_dtype(x) == "int":
        _pool_by_taps(planner, node, window, kernel)
        return
    if all(n == 1 for n in out[2:]) and kernel == "max" and not any(window.before) and window.kernel == shape[2:]:
        global_pool(planner, node)
        return
    if len(shape) > 4:
        _pool_by_taps(planner, node, window, kernel)
        return
    source, plane = plane_of(planner, x)
    have = planner.device_dtype(source)
    dtype = have
    split, most = split_for(out, dtype), EXTENT[L2B] // plane.split.channels
    images = min(split.images, most)
    split = Split(images, plane.split.channels, max(1, min(out[2] if len(out) == 4 else 1, most // images)))
    scheme = plane_scheme(out, split)
    found: dict[str, Any] = window_attributes(window)
    limit = 16 if kernel == "average" else 64
    if not _fits(plane, Plane.of(out, scheme), found, QUAD_LW[have], (have, dtype), limit, True):  # type: ignore[arg-type]
        _pool_by_taps(planner, replace(node, inputs=(source,)), window, kernel)
        return
    if kernel == "average":
        met = [(np.ones(1),)] * (2 - len(window.kernel)) + [(c,) for c in _met(node, window, shape, out)]
        found |= {"rows_met": tuple(met[0][0].tolist()), "columns_met": tuple(met[1][0].tolist())}
    pad = LANES if planner.values[source].pad in (ZERO, LANES) else ANY
    planner.put(
        replace(node, attrs={**node.attrs, **found}),
        "slide",
        [source],
        [scheme],
        dtypes=[dtype],
        kernel=kernel,
        pad=pad,
    )


def _met(node: Node, window: Window, shape: tuple[int, ...], out: tuple[int, ...]) -> list[np.ndarray]:
    """For each spatial axis, how many elements count at each place of the window along it."""
    borders = bool(attributes(node)["count_include_pad"])
    counts = []
    for axis, count in enumerate(out[2:]):
        at = np.arange(count)[:, None] * window.strides[axis] - window.before[axis]
        at = at + np.arange(window.kernel[axis]) * window.dilations[axis]
        low = -window.before[axis] if borders else 0
        high = shape[2 + axis] + (window.after[axis] if borders else 0)
        counts.append(((at >= low) & (at < high)).sum(axis=1))
    return counts


def _pool_by_taps(planner: Planner, node: Node, window: Window, kernel: str) -> None:
    """Axis after axis, the taps of the window as slices that are combined: for what the emitter has no room or form for."""
    shape, out = planner.shape(node.inputs[0]), planner.shape(node.outputs[0])
    dtype = planner.value(node.inputs[0]).dtype
    low = 0.0 if kernel == "average" else -np.inf if dtype.startswith("float") else np.iinfo(dtype).min
    x = _bordered(planner, node, node.inputs[0], window, low)
    for axis, (size, step, apart, count) in enumerate(zip(window.kernel, window.strides, window.dilations, out[2:]), 2):
        total = ""
        cut = [count if a == axis else n for a, n in enumerate(planner.shape(x))]
        steps = [step if a == axis else 1 for a in range(2, len(cut))]
        for tap in range(size):
            starts = [tap * apart if a == axis else 0 for a in range(2, len(cut))]
            part = window_slice(planner, node, x, starts, cut[2:], steps)
            total = planner.apply(node, "Add" if kernel == "average" else "Max", (total, part), cut) if total else part
        x = total
    if kernel == "average":
        share: np.ndarray = np.ones(())
        for met in _met(node, window, shape, out):
            share = np.multiply.outer(share, 1 / met)
        factor = planner.new_constant(f"{node.name}.share", share.astype(dtype)[None, None])
        planner.apply(node, "Mul", (x, factor), out, out=node.outputs[0])
    else:
        planner.apply(node, "Identity", (x,), out, out=node.outputs[0])


def global_pool(planner: Planner, node: Node) -> None:
    """A reduction of all spatial axes."""
    op = "ReduceMean" if "Average" in node.op else "ReduceMax"
    x = node.inputs[0]
    axes = tuple(range(2, len(planner.shape(x))))
    planner.apply(node, op, (x,), planner.shape(node.outputs[0]), out=node.outputs[0], axes=axes, keepdims=1)


RULES = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "MaxPool": pool,
    "AveragePool": pool,
    "GlobalAveragePool": global_pool,
    "GlobalMaxPool": global_pool,
}
