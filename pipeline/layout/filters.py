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
from mlsdk.pipeline.layout.windows import plane_of, window_attributes
from mlsdk.pipeline.ops.convolution import window_of
from mlsdk.pipeline.ops.emitters import filter_ways
from mlsdk.pipeline.ops.table import attributes

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner


def filter_gradient(planner: Planner, node: Node) -> None:
    x, g = node.inputs
    shape, out = planner.shape(x), planner.shape(node.outputs[0])
    groups = int(attributes(node)["group"])
    if len(shape) > 4 or groups > 1:
        by_convolution(planner, node)
        return
    half = planner.halves and planner.device_dtype(x) != "double"
    places = []
    for name in (x, g):
        name, _ = plane_of(planner, name, "half" if half else "")
        if half and planner.device_dtype(name) == "single":
            name = planner.rounded(name)
        places.append(name)
    planes = [Plane.of(planner.shape(name), planner.scheme_of(name)) for name in places]  # type: ignore[arg-type]
    found = window_attributes(window_of(node, shape[2:], out[2:]))
    letter = {"half": "h", "single": "f", "double": "d"}[planner.device_dtype(places[0])]
    sizes = filter_ways.sizes_of(planes[0], planes[1], found, groups)  # type: ignore[arg-type]
    if filter_ways.choose(sizes, letter, planner.device_dtype(places[0])) is None:
        by_convolution(planner, replace(node, inputs=tuple(places)))
        return
    dtype = "double" if letter == "d" else "single"
    want = planner.device_dtype(node.outputs[0])
    name = node.outputs[0] if want == dtype else planner.temporary(node.outputs[0], out)
    part = replace(node, outputs=(name,), attrs={**node.attrs, **found, "groups": groups})
    if name != node.outputs[0]:
        part = replace(part, name=planner.fresh(f"{node.name}.sum"))
    zero = [planner.values[p].pad in (ZERO, LANES) or planner.shape(p)[1] % BLOCK == 0 for p in places]
    planner.put(
        part, "filters", places, [scheme_of(out)], dtypes=[dtype], kernel=letter, pad=ZERO if all(zero) else ANY
    )
    if name != node.outputs[0]:
        cast = replace(node, op="Cast", inputs=(name,), attrs={})
        scheme = planner.scheme_of(name)
        assert scheme is not None
        kernel = f"Cast:{dtype}:{want}"
        planner.put(cast, "elementwise", [name], [scheme], dtypes=[want], kernel=kernel, pad=planner.values[name].pad)


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
