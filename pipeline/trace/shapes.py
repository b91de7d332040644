"""Shapes of the most frequent operations, without torch's Python meta functions.

Those import torch._dynamo and sympy on their first call (1.1 s in a cold process) and take 100 to 600 µs each. A rule
here gives the result's shape and dtype for contiguous operands, or None when anything is unusual: then torch decides,
and torch words the error when the user's shapes do not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from mlsdk.pipeline.trace.shadow import META, Shadow

aten = torch.ops.aten

Type = tuple[tuple[int, ...], torch.dtype]
Rule = Callable[..., "Sequence[Type | None] | None"]

RULES: dict[Any, Rule] = {}


def quick_shapes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results of `func` as meta tensors, or None when no rule applies. Operands are Shadows."""
    rule = RULES.get(func)
    if rule is None:
        return None
    elems: list[Any] = [item.elem if isinstance(item, Shadow) else item for item in args]
    operands = [elem for elem in elems if isinstance(elem, torch.Tensor)]
    contiguous = all(operand.is_contiguous() for operand in operands)
    if not contiguous and not (func in ANY_STRIDES or func in POINTWISE or func in IN_PLACE):
        return None
    try:
        types = rule(*elems, **kwargs)
    except (TypeError, IndexError, ValueError, RuntimeError):
        return None
    if types is None:
        return None
    if func in IN_PLACE:
        return elems[0] if types[0] == (tuple(elems[0].shape), elems[0].dtype) else None
    if not contiguous and func in POINTWISE:
        ((shape, dtype),) = (kind for kind in types if kind is not None)
        strides = elementwise_strides(shape, [operand.expand(shape).stride() for operand in operands])
        return torch.empty_strided(shape, strides, dtype=dtype, device=META)
    results = [None if kind is None else torch.empty(kind[0], dtype=kind[1], device=META) for kind in types]
    return results[0] if len(func._schema.returns) == 1 else tuple(results)


def rule(*funcs: Any) -> Callable[[Rule], Rule]:
    def add(function: Rule) -> Rule:
        for func in funcs:
            RULES[func] = function
        return function

    return add


USUAL_FORMATS = (None, torch.preserve_format, torch.contiguous_format)

IN_PLACE: set[Any] = set()
POINTWISE: set[Any] = set()


def elementwise_strides(shape: Sequence[int], operands: Sequence[Sequence[int]]) -> list[int]:
    """The strides that torch gives an elementwise result: the order of axes of its operands, the first one first."""

    def before(a: int, b: int) -> bool:
        """Whether axis a has to lie inside of axis b."""
        for strides in operands:
            if strides[a] and strides[b] and strides[a] != strides[b]:
                return strides[a] < strides[b]
        return False

    order: list[int] = []  # from the innermost axis to the outermost
    for axis in reversed(range(len(shape))):
        place = len(order)
        while place and before(axis, order[place - 1]):
            place -= 1
        order.insert(place, axis)
    strides, step = [0] * len(shape), 1
    for axis in order:
        strides[axis] = step
        step *= max(shape[axis], 1)
    return strides


def overloads(names: Iterable[str], *suffixes: str) -> list[Any]:
    """The overloads `aten.<name>.<suffix>` that exist."""
    found = []
    for name in names:
        packet = getattr(aten, name, None)
        for suffix in suffixes:
            if packet is not None and suffix in packet.overloads():
                found.append(getattr(packet, suffix))
    return found


# --- elementwise ---

# fmt: off
TO_FLOAT = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid", "silu", "gelu", "mish",
    "softplus", "elu", "leaky_relu", "hardtanh", "hardsigmoid", "hardswish", "ceil", "floor", "round", "trunc", "frac",
    "logit", "threshold", "div", "pow", "fmod", "remainder", "threshold_backward", "sigmoid_backward", "tanh_backward",
    "silu_backward", "gelu_backward", "leaky_relu_backward", "hardtanh_backward", "hardsigmoid_backward",
    "hardswish_backward", "elu_backward", "softplus_backward", "mish_backward", "addcmul", "addcdiv", "lerp", "atan2",
)
KEEPS_INTEGERS = (
    "abs", "neg", "relu", "sign", "square", "add", "sub", "rsub", "mul", "maximum", "minimum", "clamp", "clamp_min",
    "clamp_max", "fill",
)
TO_BOOL = (
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf",
)
# fmt: on


def _elementwise(keeps_integers: bool, result: torch.dtype | None) -> Rule:
    def types(*args: Any, **kwargs: Any) -> list[Type] | None:
        operands = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.Tensor)]
        dtype = operands[0].dtype
        numbers = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, (float, complex))]
        complex_too = dtype.is_complex or any(isinstance(number, complex) for number in numbers)
        if any(operand.dtype is not dtype for operand in operands) or complex_too:
            return None
        if result is None and not dtype.is_floating_point and (not keeps_integers or dtype is torch.bool or numbers):
            return None
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        return [(tuple(shape), result or dtype)]

    return types


def _add_elementwise() -> None:
    suffixes = ("default", "Tensor", "Scalar", "Tensor_Tensor", "Tensor_Scalar")
    for names, keeps_integers, result in (
        (TO_FLOAT, False, None),
        (KEEPS_INTEGERS, True, None),
        (TO_BOOL, False, torch.bool),
    ):
        types = _elementwise(keeps_integers, result)
        functional = overloads(names, *suffixes)
        in_place = [] if result else overloads([f"{name}_" for name in names], *suffixes)
        rule(*functional, *in_place)(types)
        POINTWISE.update(functional)
        IN_PLACE.update(in_place)


_add_elementwise()


@rule(aten.where.self)
def _where(condition: Any, a: Any, b: Any) -> list[Type] | None:
    if a.dtype is not b.dtype:
        return None
    return [(np.broadcast_shapes(condition.shape, a.shape, b.shape), a.dtype)]


@rule(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(x: Any, mask: Any, value: Any) -> list[Type] | None:
    return [(np.broadcast_shapes(x.shape, mask.shape), x.dtype)]


@rule(aten.clone.default)
def _clone(x: Any, *, memory_format: Any = None) -> list[Type] | None:
    return [(tuple(x.shape), x.dtype)] if memory_format in USUAL_FORMATS else None


@rule(aten.zeros_like.default, aten.ones_like.default, aten.full_like.default)
def _like(x: Any, value: Any = None, dtype: Any = None, memory_format: Any = None, **rest: Any) -> list[Type] | None:
    if memory_format not in USUAL_FORMATS:
        return None
    return [(tuple(x.shape), dtype or x.dtype)]


# --- matrix products ---


def _mm(a: Any, b: Any) -> list[Type] | None:
    fits = a.ndim == 2 and b.ndim == 2 and a.shape[1] == b.shape[0] and a.dtype is b.dtype
    return [((a.shape[0], b.shape[1]), a.dtype)] if fits else None


rule(aten.mm.default)(_mm)


@rule(aten.bmm.default)
def _bmm(a: Any, b: Any) -> list[Type] | None:
    fits = a.ndim == 3 and b.ndim == 3 and a.shape[0] == b.shape[0] and a.shape[2] == b.shape[1]
    return [((a.shape[0], a.shape[1], b.shape[2]), a.dtype)] if fits and a.dtype is b.dtype else None


@rule(aten.addmm.default)
def _addmm(c: Any, a: Any, b: Any, **scalars: Any) -> list[Type] | None:
    types = _mm(a, b)
    if types is None or c.dtype is not a.dtype:
        return None
    shape = types[0][0]
    return types if np.broadcast_shapes(c.shape, shape) == shape else None


# torch has no meta functions for these
FAKE_QUANTIZE = (
    aten.fake_quantize_per_tensor_affine_cachemask.default,
    aten.fake_quantize_per_channel_affine_cachemask.default,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default,
)


@rule(*FAKE_QUANTIZE)
def _fake_quantize(x: Any, *parameters: Any) -> list[Type] | None:
    return [(tuple(x.shape), x.dtype), (tuple(x.shape), torch.bool)]


# products read operands in any order of their axes
ANY_STRIDES = {aten.mm.default, aten.bmm.default, aten.addmm.default, aten.native_layer_norm.default, *FAKE_QUANTIZE}


# --- reductions and what is along an axis ---


def _folded(x: Any, dims: Any, keepdim: bool) -> tuple[int, ...]:
    named = range(x.ndim) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    axes = {axis if axis >= 0 else axis + x.ndim for axis in named}
    if not all(0 <= axis < max(x.ndim, 1) for axis in axes):
        raise IndexError
    kept = ((1 if axis in axes else extent) if keepdim else extent for axis, extent in enumerate(x.shape))
    return tuple(extent for axis, extent in enumerate(kept) if keepdim or axis not in axes)


@rule(aten.sum.dim_IntList, aten.mean.dim, aten.sum.default, aten.mean.default)
def _sum(x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> list[Type] | None:
    return [(_folded(x, dims, keepdim), dtype or x.dtype)] if x.dtype.is_floating_point else None


@rule(aten.amax.default, aten.amin.default)
def _amax(x: Any, dims: Any = (), keepdim: bool = False) -> list[Type] | None:
    return [(_folded(x, list(dims), keepdim), x.dtype)] if x.numel() else None


@rule(aten.var.correction)
def _var(x: Any, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> list[Type] | None:
    return [(_folded(x, dims, keepdim), x.dtype)] if x.dtype.is_floating_point else None


@rule(aten.argmax.default, aten.argmin.default)
def _argmax(x: Any, dim: Any = None, keepdim: bool = False) -> list[Type] | None:
    return [(_folded(x, dim, keepdim), torch.int64)] if x.numel() else None


@rule(aten._softmax.default, aten._log_softmax.default, aten._safe_softmax.default)
def _softmax(x: Any, dim: int, half_to_float: bool = False) -> list[Type] | None:
    return [(tuple(x.shape), x.dtype)] if x.dtype.is_floating_point and not half_to_float else None


@rule(aten._softmax_backward_data.default, aten._log_softmax_backward_data.default)
def _softmax_backward(grad: Any, output: Any, dim: int, dtype: torch.dtype) -> list[Type] | None:
    return [(tuple(grad.shape), grad.dtype)] if grad.dtype is dtype else None


@rule(aten.cumsum.default)
def _cumsum(x: Any, dim: int, *, dtype: Any = None) -> list[Type] | None:
    return [(tuple(x.shape), dtype or (x.dtype if x.dtype.is_floating_point else torch.int64))]


# --- joining, indexing ---


@rule(aten.cat.default)
def _cat(parts: Any, dim: int = 0) -> list[Type] | None:
    elems = [part.elem for part in parts]
    first = elems[0]
    axis = dim if dim >= 0 else dim + first.ndim
    for elem in elems:
        beside = elem.ndim == first.ndim and all(
            here == there for i, (here, there) in enumerate(zip(elem.shape, first.shape)) if i != axis
        )
        if not beside or elem.dtype is not first.dtype or not elem.is_contiguous():
            return None
    shape = list(first.shape)
    shape[axis] = sum(elem.shape[axis] for elem in elems)
    return [(tuple(shape), first.dtype)]


@rule(aten.stack.default)
def _stack(parts: Any, dim: int = 0) -> list[Type] | None:
    elems = [part.elem for part in parts]
    first = elems[0]
    if any(e.shape != first.shape or e.dtype is not first.dtype or not e.is_contiguous() for e in elems):
        return None
    axis = dim if dim >= 0 else dim + first.ndim + 1
    if not 0 <= axis <= first.ndim:
        raise IndexError
    return [((*first.shape[:axis], len(elems), *first.shape[axis:]), first.dtype)]


@rule(aten.embedding.default)
def _embedding(weight: Any, indices: Any, *rest: Any) -> list[Type] | None:
    return [((*indices.shape, weight.shape[1]), weight.dtype)] if weight.ndim == 2 else None


@rule(aten.gather.default)
def _gather(x: Any, dim: int, index: Any, **rest: Any) -> list[Type] | None:
    return [(tuple(index.shape), x.dtype)] if x.ndim == index.ndim else None


# --- convolution, pooling, normalisation ---


def _taps(extent: int, size: int, stride: int, pad: int, dilation: int) -> int:
    count = (extent + 2 * pad - dilation * (size - 1) - 1) // stride + 1
    if count <= 0:
        raise ValueError
    return count


@rule(aten.convolution.default)
def _convolution(
    x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, extra: Any, groups: int
) -> list[Type] | None:
    rank = w.ndim - 2
    channels = w.shape[0] if transposed else w.shape[1] * groups
    if x.ndim != w.ndim or x.shape[1] != channels or x.dtype is not w.dtype:
        return None
    stride, padding, dilation, extra = (
        list(item) * (rank if len(item) == 1 else 1) for item in (stride, padding, dilation, extra)
    )
    if transposed:
        extents = [
            (n - 1) * step - 2 * pad + gap * (size - 1) + more + 1
            for n, size, step, pad, gap, more in zip(x.shape[2:], w.shape[2:], stride, padding, dilation, extra)
        ]
        return [((x.shape[0], w.shape[1] * groups, *extents), x.dtype)] if min(extents) > 0 else None
    extents = [_taps(*item) for item in zip(x.shape[2:], w.shape[2:], stride, padding, dilation)]
    return [((x.shape[0], w.shape[0], *extents), x.dtype)]


@rule(aten.max_pool2d_with_indices.default)
def _max_pool(
    x: Any, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,), ceil_mode: bool = False
) -> list[Type] | None:
    if ceil_mode or x.ndim != 4:
        return None
    kernel, stride, padding, dilation = (
        list(item) * (2 if len(item) == 1 else 1) for item in (kernel, stride or kernel, padding, dilation)
    )
    extents = [_taps(*item) for item in zip(x.shape[2:], kernel, stride, padding, dilation)]
    shape = (*x.shape[:2], *extents)
    return [(shape, x.dtype), (shape, torch.int64)]


@rule(aten._adaptive_avg_pool2d.default)
def _adaptive(x: Any, size: Any) -> list[Type] | None:
    return [((*x.shape[:2], *size), x.dtype)] if x.ndim == 4 else None


@rule(aten.native_layer_norm.default)
def _layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> list[Type] | None:
    if not x.dtype.is_floating_point or tuple(x.shape[x.ndim - len(shape) :]) != tuple(shape):
        return None
    wide = torch.float32 if x.dtype is torch.float16 else x.dtype
    statistics = (*x.shape[: x.ndim - len(shape)], *(1 for _ in shape))
    return [(tuple(x.shape), x.dtype), (statistics, wide), (statistics, wide)]


@rule(aten.native_group_norm.default)
def _group_norm(
    x: Any, weight: Any, bias: Any, batch: int, channels: int, plane: int, groups: int, eps: float
) -> list[Type] | None:
    if x.dtype not in (torch.float32, torch.float64) or x.numel() != batch * channels * plane:
        return None
    return [(tuple(x.shape), x.dtype), ((batch, groups), x.dtype), ((batch, groups), x.dtype)]


@rule(aten._native_batch_norm_legit_no_training.default)
def _batch_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> list[Type] | None:
    return [(tuple(x.shape), x.dtype), ((0,), x.dtype), ((0,), x.dtype)]


@rule(aten._native_batch_norm_legit.default)
def _batch_norm_training(x: Any, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> list[Type] | None:
    return [(tuple(x.shape), x.dtype), ((x.shape[1],), x.dtype), ((x.shape[1],), x.dtype)]


@rule(aten._native_batch_norm_legit_functional.default)
def _batch_norm_functional(x: Any, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> list[Type] | None:
    channels = (x.shape[1],)
    return [(tuple(x.shape), x.dtype), *((channels, t.dtype) for t in (x, x, mean, var))]


# --- backward ---


def wanted(types: Sequence[Type], mask: Sequence[bool]) -> list[Type | None]:
    """The types, with None for the gradients that nobody asks for."""
    return [kind if asked else None for kind, asked in zip(types, mask)]


@rule(aten.convolution_backward.default)
def _convolution_backward(
    grad: Any, x: Any, w: Any, bias: Any, s: Any, p: Any, d: Any, t: bool, o: Any, g: int, mask: Any
) -> list[Type | None]:
    channels = w.shape[1] * g if t else w.shape[0]
    return wanted([(tuple(x.shape), x.dtype), (tuple(w.shape), w.dtype), ((channels,), w.dtype)], mask)


@rule(aten.native_layer_norm_backward.default)
def _layer_norm_backward(
    grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any
) -> list[Type | None]:
    return wanted([(tuple(x.shape), x.dtype), (tuple(shape), x.dtype), (tuple(shape), x.dtype)], mask)


@rule(aten.native_batch_norm_backward.default)
def _batch_norm_backward(grad: Any, x: Any, weight: Any, *rest: Any) -> list[Type | None]:
    return wanted([(tuple(x.shape), x.dtype), ((x.shape[1],), x.dtype), ((x.shape[1],), x.dtype)], rest[-1])


@rule(aten.max_pool2d_with_indices_backward.default)
def _max_pool_backward(grad: Any, x: Any, *rest: Any) -> list[Type] | None:
    return [(tuple(x.shape), x.dtype)]


@rule(aten._adaptive_avg_pool2d_backward.default)
def _adaptive_backward(grad: Any, x: Any) -> list[Type] | None:
    return [(tuple(x.shape), x.dtype)]


@rule(aten.nll_loss_forward.default)
def _nll(x: Any, target: Any, weight: Any, reduction: int, ignore: int) -> list[Type] | None:
    if x.ndim != 2:
        return None
    return [((x.shape[0],) if reduction == 0 else (), x.dtype), ((), x.dtype)]


@rule(aten.nll_loss_backward.default, aten.mse_loss_backward.default, aten.smooth_l1_loss_backward.default)
def _loss_backward(grad: Any, x: Any, *rest: Any) -> list[Type] | None:
    return [(tuple(x.shape), x.dtype)]


@rule(aten.mse_loss.default, aten.smooth_l1_loss.default)
def _loss(x: Any, target: Any, reduction: int = 1, *rest: Any) -> list[Type] | None:
    if x.dtype is not target.dtype:
        return None
    shape = np.broadcast_shapes(x.shape, target.shape)
    return [(shape if reduction == 0 else (), x.dtype)]


@rule(aten.embedding_dense_backward.default)
def _embedding_backward(grad: Any, indices: Any, count: int, *rest: Any) -> list[Type] | None:
    return [((count, grad.shape[-1]), grad.dtype)]


@rule(aten._ctc_loss.Tensor)
def _ctc_loss(log_probs: Any, targets: Any, *ignored: Any) -> list[Type] | None:
    (steps, count, _), labels = log_probs.shape, 2 * targets.shape[1] + 1
    return [((count,), log_probs.dtype), ((count, steps, labels), log_probs.dtype)]


@rule(aten._ctc_loss_backward.Tensor)
def _ctc_loss_backward(grad: Any, log_probs: Any, *ignored: Any) -> list[Type]:
    return [(tuple(log_probs.shape), log_probs.dtype)]
