"""The planner's rule for the gradient of a convolution's filters, which is a product along the places of the images."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ir.placed import ANY, LANES, ZERO
from mlsdk.pipeline.ir.planes import Plane
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL, Digit, Scheme
from mlsdk.pipeline.layout.windows import plane_of, together, window_attributes
from mlsdk.pipeline.ops.convolution import window_of
from mlsdk.pipeline.ops.emitters import filter_ways
from mlsdk.pipeline.ops.table import attributes

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner


def filter_gradient(planner: Planner, node: Node) -> None:
    x, g = node.inputs
    out = planner.shape(node.outputs[0])
    groups = int(attributes(node)["group"])
    fits = len(out) <= 4 and (
        _product(planner, node, x, g, 1, node.outputs[0]) if groups == 1 else _of_groups(planner, node, x, g, groups)
    )
    if not fits:
        by_convolution(planner, node)


def _product(planner: Planner, node: Node, x: str, g: str, groups: int, out: str, clean: bool = False) -> bool:
    """The gradient of all filters of so many groups, as the value `out`, if it fits. `clean`: there are none beyond those of g,
    so what lies behind its channels has to be zero."""
    shape = planner.shape(out)
    half = planner.halves and planner.device_dtype(x) != "double"
    places = []
    for name in (x, g):
        name, _ = plane_of(planner, name, "half" if half else "")
        if half and planner.device_dtype(name) == "single":
            name = planner.rounded(name)
        places.append(planner.clean(name) if clean else name)
    planes = [Plane.of(planner.shape(name), planner.scheme_of(name)) for name in places]  # type: ignore[arg-type]
    found = window_attributes(window_of(node, planner.shape(x)[2:], shape[2:]))
    letter = {"half": "h", "single": "f", "double": "d"}[planner.device_dtype(places[0])]
    sizes = filter_ways.sizes_of(planes[0], planes[1], found, groups)  # type: ignore[arg-type]
    if all(filter_ways.choose(each, letter, planner.device_dtype(places[0])) is None for each in sizes):
        return False
    dtype = "double" if letter == "d" else "single"
    want = planner.device_dtype(out)
    name = out if want == dtype else planner.temporary(out, shape)
    part = replace(node, outputs=(name,), attrs={**node.attrs, **found, "groups": groups})
    if name != node.outputs[0]:
        part = replace(part, name=planner.fresh(f"{node.name}.sum"))
    zero = [planner.values[p].pad in (ZERO, LANES) or planner.shape(p)[1] % BLOCK == 0 for p in places]
    scheme = scheme_of(shape)
    planner.put(part, "filters", places, [scheme], dtypes=[dtype], kernel=letter, pad=ZERO if all(zero) else ANY)
    if name != out:
        cast = replace(part, name=planner.fresh(f"{node.name}.cast"), op="Cast", outputs=(out,), attrs={})
        pad, kernel = planner.values[name].pad, f"Cast:{dtype}:{want}"
        planner.put(cast, "elementwise", [name], [scheme], dtypes=[want], kernel=kernel, pad=pad)
    return True


def _of_groups(planner: Planner, node: Node, x: str, g: str, groups: int) -> bool:
    """Groups are gathered until they have whole blocks of channels; of what is multiplied then, each filter's own group stays."""
    outputs, each, *kernel = planner.shape(node.outputs[0])
    times = together((outputs, each), groups)
    if times == 1:
        return _product(planner, node, x, g, groups, node.outputs[0])
    alone = each == 1 and outputs == groups and times == BLOCK
    dense = (-(-outputs // BLOCK) * BLOCK if alone else outputs, each * times, *kernel)
    whole = planner.temporary(node.outputs[0], dense)
    if not _product(planner, node, x, g, -(-groups // times), whole, alone and outputs % BLOCK != 0):
        return False
    if alone:  # lanes are channels; the filters of a block, of which each has one, are added
        split = (dense[0] // BLOCK, BLOCK, BLOCK, *kernel)
        own = np.eye(BLOCK)[None]
    else:
        split = (outputs, times, each, *kernel)
        own = np.equal.outer(np.arange(outputs) * groups // outputs % times, np.arange(times))[..., None]
    dtype = planner.value(whole).dtype
    factor = planner.new_constant(f"{node.name}.own", own.reshape(*own.shape, *(1 for _ in kernel)).astype(dtype))
    parts = planner.apply(node, "Reshape", (whole,), split)
    parts = planner.apply(node, "Mul", (parts, factor), split)
    axes = planner.new_constant(f"{node.name}.axes", np.array([1], np.int64))
    total = planner.apply(node, "ReduceSum", (parts, axes), (split[0], *split[2:]), keepdims=0)
    if alone and dense[0] != outputs:
        total = planner.apply(node, "Reshape", (total,), (dense[0], *kernel))
        numbers = [planner.new_constant(f"{node.name}.cut", np.array([n], np.int64)) for n in (0, outputs, 0)]
        total = planner.apply(node, "Slice", (total, *numbers), (outputs, *kernel))
    planner.apply(node, "Reshape", (total,), planner.shape(node.outputs[0]), out=node.outputs[0])
    return True


def scheme_of(out: tuple[int, ...]) -> Scheme:
    """Output block, tap, channel block, output: as singles that stream to products lie (`gemm_modes`), so that filters, their
    gradients and the state of an optimizer meet without a switch."""
    outputs, channels, *kernel = out
    rank = len(out)

    def digits(n: int, place: int) -> tuple[Digit, ...]:
        return (Digit(n, LOCAL, place),) if n > 1 else ()

    of_outputs = (*digits(-(-outputs // BLOCK), rank + 1), Digit(BLOCK, LOCAL, 0))
    taps = [digits(n, rank - at) for at, n in enumerate(kernel)]
    return Scheme((of_outputs, digits(-(-channels // BLOCK), 1), *taps), 1)


def by_convolution(planner: Planner, node: Node) -> None:
    """A convolution over the batch axis: of x [N, C, ...] with the gradient [N, O, ...] as filters, strides and dilations
    swapped, cut to the kernel's size."""
    x, g = node.inputs
    shape, of_g, out = planner.shape(x), planner.shape(g), planner.shape(node.outputs[0])
    window, groups = window_of(node, shape[2:], out[2:]), int(attributes(node)["group"])
    n, space, each = shape[0], tuple(range(2, len(shape))), shape[1] // groups

    def apply(op: str, name: str, size: tuple[int, ...], **attrs: Any) -> str:
        return planner.apply(node, op, (name,), size, **attrs)

    # [N, G I, ...] -> [I, G N, ...]: each group convolves its own channels
    data = apply("Reshape", x, (n, groups, each, *shape[2:]))
    data = apply("Transpose", data, (each, groups, n, *shape[2:]), perm=(2, 1, 0, *(axis + 1 for axis in space)))
    data = apply("Reshape", data, (each, groups * n, *shape[2:]))
    weights = apply("Transpose", g, (of_g[1], n, *of_g[2:]), perm=(1, 0, *space))
    reach = [
        (extent + b + a - ((count - 1) * stride + 1)) // dilation + 1
        for extent, b, a, count, stride, dilation in zip(
            shape[2:], window.before, window.after, of_g[2:], window.strides, window.dilations
        )
    ]
    attrs: dict[str, Any] = {"strides": window.dilations, "dilations": window.strides, "group": groups}
    attrs["pads"] = (*window.before, *window.after)
    full = (each, of_g[1], *reach)
    result = planner.apply(node, "Conv", (data, weights), full, **attrs)
    if tuple(reach) != out[2:]:
        numbers = [np.array(v, np.int64) for v in ([0] * len(space), out[2:], space)]
        constants = [planner.new_constant(f"{node.name}.number", number) for number in numbers]
        result = planner.apply(node, "Slice", (result, *constants), (*full[:2], *out[2:]))
    assert prod(planner.shape(result)) == prod(out)
    planner.apply(node, "Transpose", (result,), out, out=node.outputs[0], perm=(1, 0, *space))


RULES = {"ConvFilterGrad": filter_gradient}
