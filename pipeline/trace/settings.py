"""torch's global switches while a function is traced: plain operators instead of fused ones."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributions import Distribution

from mlsdk.errors import TraceError
from mlsdk.pipeline.ir.graph import type_text
from mlsdk.pipeline.trace.frames import user_line
from mlsdk.pipeline.trace.scalars import TensorsForNumbers
from mlsdk.pipeline.trace.shadow import Shadow, array_of
from mlsdk.pipeline.trace.stand_ins import standing_in


@contextlib.contextmanager
def tracing_settings() -> Iterator[None]:
    """Set the switches, and put them back as they were.

    - attention in its mathematical form: the gradient of the fused ones is wrong when they are traced;
    - no mkldnn kernels (`mkldnn_rnn_layer`, ...), no fused transformer layers;
    - distributions do not check their arguments, which would need their values;
    - `torch.compiler.is_compiling()` is true, which lets optimizers keep their step count a tensor;
    - `x.data = y` writes y into x, and `x.numpy()` of a tensor of the closure gives its content, see below;
    - `ctc_loss` gets its lengths as tensors, and its targets by sequence;
    - anomaly detection does not look for NaN, which would need the values.
    """
    get, set_ = torch._C, torch._C
    flash, efficient, cudnn = (
        get._get_flash_sdp_enabled(),
        get._get_mem_efficient_sdp_enabled(),
        get._get_cudnn_sdp_enabled(),
    )
    math, mkldnn = get._get_math_sdp_enabled(), get._get_mkldnn_enabled()
    fast_path = torch.backends.mha.get_fastpath_enabled()
    compiling, anomaly = torch.compiler._is_compiling_flag, torch.is_anomaly_check_nan_enabled()
    checked = Distribution._validate_args
    try:
        Distribution.set_default_validate_args(False)
        set_._set_sdp_use_flash(False)
        set_._set_sdp_use_mem_efficient(False)
        set_._set_sdp_use_cudnn(False)
        set_._set_sdp_use_math(True)
        set_._set_mkldnn_enabled(False)
        torch.backends.mha.set_fastpath_enabled(False)
        torch.compiler._is_compiling_flag = True
        torch.set_anomaly_enabled(torch.is_anomaly_enabled(), False)
        with _eager(), _data_written(), _numpy_read(), _lengths_are_tensors(), standing_in(), TensorsForNumbers():
            yield
    finally:
        set_._set_sdp_use_flash(flash)
        set_._set_sdp_use_mem_efficient(efficient)
        set_._set_sdp_use_cudnn(cudnn)
        set_._set_sdp_use_math(math)
        set_._set_mkldnn_enabled(mkldnn)
        torch.backends.mha.set_fastpath_enabled(fast_path)
        torch.compiler._is_compiling_flag = compiling
        torch.set_anomaly_enabled(torch.is_anomaly_enabled(), anomaly)
        Distribution.set_default_validate_args(checked)


@contextlib.contextmanager
def _eager() -> Iterator[None]:
    """What torch.compile made runs as it was written."""
    if "torch._dynamo" not in sys.modules:  # then nothing is compiled, and loading it takes a second
        yield
    else:
        with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "Using `torch.compile", UserWarning
            )  # about our hooks, which see modules called
            yield


_DATA: Any = torch._C.TensorBase.data


def _set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    if not isinstance(value, Shadow):
        _DATA.__set__(tensor, value)
        return
    if tensor.shape != value.shape or tensor.dtype != value.dtype:
        raise TraceError(
            f"at {user_line()} the .data of a tensor ({_type_of(tensor)}) is replaced by another type ({_type_of(value)}); "
            "make a new tensor"
        )
    with torch.no_grad():
        tensor.detach().copy_(value)


def _type_of(tensor: torch.Tensor) -> str:
    return type_text(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


@contextlib.contextmanager
def _data_written() -> Iterator[None]:
    """torch gives no notice of `x.data = y`, and a real tensor with the data of a traced one ends the process."""
    outer = torch.Tensor.__dict__.get("data")
    torch.Tensor.data = property(_DATA.__get__, _set_data)  # type: ignore[assignment]
    try:
        yield
    finally:
        if outer is None:
            del torch.Tensor.data
        else:
            torch.Tensor.data = outer


@contextlib.contextmanager
def _numpy_read() -> Iterator[None]:
    """torch detaches a tensor before it gives its memory, which a recorder sees: the array would show nothing."""
    outer = torch.Tensor.__dict__.get("numpy")

    def numpy(tensor: torch.Tensor, *, force: bool = False) -> Any:
        recorded = torch._C._len_torch_dispatch_stack() > 0 and (force or not tensor.requires_grad)
        return array_of(tensor, ".numpy()", force) if recorded else torch._C.TensorBase.numpy(tensor, force=force)

    torch.Tensor.numpy = numpy  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        if outer is None:
            del torch.Tensor.numpy
        else:
            torch.Tensor.numpy = outer  # type: ignore[method-assign]


@contextlib.contextmanager
def _lengths_are_tensors() -> Iterator[None]:
    """torch writes lengths that are Python numbers into memory that a traced tensor does not have."""
    outer = torch.ctc_loss

    def ctc_loss(log_probs: torch.Tensor, targets: torch.Tensor, given: Any, lengths: Any, *rest: Any) -> torch.Tensor:
        if targets.ndim == 1 and log_probs.ndim == 3:
            counts = lengths.tolist() if isinstance(lengths, torch.Tensor) else list(lengths)
            parts = targets[: sum(counts)].split(counts)
            targets = torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True)
        given, lengths = (
            item if isinstance(item, torch.Tensor) else torch.tensor(item, dtype=torch.int64)
            for item in (given, lengths)
        )
        return outer(log_probs, targets, given, lengths, *rest)

    torch.ctc_loss = ctc_loss  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.ctc_loss = outer
