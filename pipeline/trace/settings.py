"""torch's global switches while a function is traced: plain operators instead of fused ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def tracing_settings() -> Iterator[None]:
    """Set the switches, and put them back as they were.

    - attention in its mathematical form: the gradient of the fused ones is wrong when they are traced;
    - no mkldnn kernels (`mkldnn_rnn_layer`, ...), no fused transformer layers;
    - `torch.compiler.is_compiling()` is true, which lets optimizers keep their step count a tensor.
    """
    get, set_ = torch._C, torch._C
    flash, efficient, cudnn = (
        get._get_flash_sdp_enabled(),
        get._get_mem_efficient_sdp_enabled(),
        get._get_cudnn_sdp_enabled(),
    )
    math, mkldnn = get._get_math_sdp_enabled(), get._get_mkldnn_enabled()
    fast_path = torch.backends.mha.get_fastpath_enabled()
    compiling = torch.compiler._is_compiling_flag
    try:
        set_._set_sdp_use_flash(False)
        set_._set_sdp_use_mem_efficient(False)
        set_._set_sdp_use_cudnn(False)
        set_._set_sdp_use_math(True)
        set_._set_mkldnn_enabled(False)
        torch.backends.mha.set_fastpath_enabled(False)
        torch.compiler._is_compiling_flag = True
        yield
    finally:
        set_._set_sdp_use_flash(flash)
        set_._set_sdp_use_mem_efficient(efficient)
        set_._set_sdp_use_cudnn(cudnn)
        set_._set_sdp_use_math(math)
        set_._set_mkldnn_enabled(mkldnn)
        torch.backends.mha.set_fastpath_enabled(fast_path)
        torch.compiler._is_compiling_flag = compiling
