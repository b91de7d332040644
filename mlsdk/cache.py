"""CacheOptions: where results of a compile are kept, and which of them may be used again."""

from __future__ import annotations

import os
from dataclasses import dataclass

from mlsdk.errors import OptionError

__all__ = ["CacheOptions"]

# What each switch governs: phases that are computed again when it is off.
_PHASES = {
    "enable_onnx_cache": ("OptimizeOnnx",),
    "enable_codegen_cache": ("LayoutPlan", "Schedule", "Simulate"),
    "enable_gpfn2obj_cache": ("Emit",),
    "enable_app_cache": ("Load",),
}


@dataclass(frozen=True)
class CacheOptions:
    """A compile with these options keeps its results in an artifact store of its own, at `cache_dir`, instead of the
    default one (`$MLSDK_STORE` or `~/.cache/open-mlsdk`). The folder is made when it is missing; it may be a sibling of
    the codegen_dir or stand in it, can be moved, and `MLSDK_STORE=<cache_dir> mlsdk store ls` shows what is there.

    A switch that is False computes its phases again, whatever is in the store: `enable_onnx_cache` the optimized ONNX,
    `enable_codegen_cache` layouts, schedule and simulation, `enable_gpfn2obj_cache` the instructions,
    `enable_app_cache` the application. The function is traced each time.

    Raises OptionError when `cache_dir` is no path, or a switch no bool.
    """

    cache_dir: str | os.PathLike[str]
    enable_app_cache: bool = True
    enable_onnx_cache: bool = True
    enable_codegen_cache: bool = True
    enable_gpfn2obj_cache: bool = True

    def __post_init__(self) -> None:
        try:
            text = os.fspath(self.cache_dir)
        except TypeError:
            kind = type(self.cache_dir).__name__
            raise OptionError(f"CacheOptions: cache_dir is {kind}; give the path of a folder") from None
        if not text or (isinstance(text, str) and "\0" in text):
            raise OptionError(f"CacheOptions: cache_dir {text!r} is no path; give the path of a folder")
        for name in _PHASES:
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"CacheOptions: {name} is {getattr(self, name)!r}; give True or False")

    @property
    def again(self) -> tuple[str, ...]:
        """Names of the phases that are computed again."""
        return tuple(phase for name, phases in _PHASES.items() if not getattr(self, name) for phase in phases)
