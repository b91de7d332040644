"""What a program gives as an array, and whether its values exist in the dtype that is wanted of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from mlsdk.errors import InputMismatch, TraceError
from mlsdk.pipeline.ir.graph import DTYPES
from mlsdk.pipeline.trace.shadow import Shadow

__all__ = ["array_of", "cast_to", "given_array", "refuse_traced"]

# What numpy knows of torch's floats.
_FLOATS = (torch.float16, torch.float32, torch.float64)


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """A view of a tensor's elements, whatever its strides; a copy when it lies on another device, or is a bfloat16."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.is_floating_point() and tensor.dtype not in _FLOATS:
        tensor = tensor.float()
    array: np.ndarray = tensor.numpy()
    return array


def refuse_traced(tensor: torch.Tensor, name: str) -> None:
    """Raise TraceError for a tensor that a function has while it is traced: it holds nothing that a device could get."""
    if isinstance(tensor, Shadow):
        raise TraceError(
            f"{name} is a traced tensor: while a function is compiled, nothing runs on the device. In it, call the Python "
            "function instead of the compiled one; or compile the parts apart, and call them one after the other"
        )


def given_array(given: Any, name: str) -> np.ndarray:
    """A tensor, an array or a number as an array of real numbers. InputMismatch for everything else, TraceError for a
    traced tensor."""
    if isinstance(given, torch.Tensor):
        refuse_traced(given, name)
        if given.layout != torch.strided or given.is_quantized or given.is_complex() or given.device.type == "meta":
            place = " without data (device meta)" if given.device.type == "meta" else f" of layout {given.layout}"
            raise InputMismatch(f"{name} is {given.dtype}{place}; give a dense real tensor")
        return array_of(given)
    if not isinstance(given, (np.ndarray, np.generic, int, float, bool)):
        raise InputMismatch(f"{name} is {type(given).__name__}; give a torch.Tensor or a TensorProxy")
    array = np.asarray(given)
    if array.dtype.kind not in "biuf":
        what = f"{given!r:.40}" if isinstance(given, int) else f"an array of {array.dtype}"
        raise InputMismatch(f"{name} is {what}; give real numbers of at most 64 bits")
    return array


def cast_to(array: np.ndarray, dtype: str, name: str) -> np.ndarray:
    """`array` in a dtype of a Graph. InputMismatch for a value that the dtype does not have: an integer out of its range,
    NaN or infinity as an integer, a finite number that would become infinite. Fractions are cut off, as torch does."""
    kind = np.dtype(DTYPES[dtype])
    if array.dtype == kind:
        return array
    wrong = _wrong(array, kind)
    if wrong is not None and wrong.any():
        value = array[wrong].reshape(-1)[0]
        raise InputMismatch(f"{name} holds {value}, which is no {dtype} ({_range(kind)}); change it before the call")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return array.astype(kind)


def _wrong(array: np.ndarray, kind: np.dtype[Any]) -> np.ndarray | None:
    """Where `kind` has no value for an element; None when it has one for each."""
    if kind.kind == "b" or np.can_cast(array.dtype, kind, "safe"):
        return None
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            return np.isfinite(array) & ~np.isfinite(array.astype(kind))
    bounds = np.iinfo(kind)
    if array.dtype.kind != "f":
        if not array.size or (bounds.min <= int(array.min()) and int(array.max()) <= bounds.max):
            return None
        low, high = np.iinfo(array.dtype).min, np.iinfo(array.dtype).max
        return (array < max(low, bounds.min)) | (array > min(high, bounds.max))
    whole = np.trunc(array.astype(np.float64))
    return ~((whole >= float(bounds.min)) & (whole < float(bounds.max) + 1))


def _range(kind: np.dtype[Any]) -> str:
    bounds: Any = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    return f"{bounds.min} to {bounds.max}"
