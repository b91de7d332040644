"""Open MLSDK: an open, inspectable MLSDK for MN-Core 2 (unofficial).

Names of the public API are loaded on first use, so that `import mlsdk.store` or a command line does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlsdk import errors, storage
    from mlsdk.cache import CacheOptions
    from mlsdk.compiled import CompiledFunction
    from mlsdk.containers import register_pytree_dataclass, register_pytree_namedtuple
    from mlsdk.context import Context
    from mlsdk.mndevice import MNDevice
    from mlsdk.naming import (
        get_tensor_name,
        set_buffer_name_in_optimizer,
        set_tensor_name,
        set_tensor_name_in_module,
    )
    from mlsdk.optimizers import MNCoreAdam, MNCoreAdamW, MNCoreLRScheduler, MNCoreOptimizer, MNCoreSGD
    from mlsdk.proxy import TensorLike, TensorProxy
    from mlsdk.runtime.iospec import IOSpec
    from mlsdk.storage import path
    from mlsdk.tracing import trace_event, trace_scope

# Name -> the module of this package that defines it; an empty module: the name is a module itself.
_HOME = {
    "CacheOptions": "cache",
    "CompiledFunction": "compiled",
    "Context": "context",
    "IOSpec": "runtime.iospec",
    "MNCoreAdam": "optimizers",
    "MNCoreAdamW": "optimizers",
    "MNCoreLRScheduler": "optimizers",
    "MNCoreOptimizer": "optimizers",
    "MNCoreSGD": "optimizers",
    "MNDevice": "mndevice",
    "TensorLike": "proxy",
    "TensorProxy": "proxy",
    "errors": "",
    "get_tensor_name": "naming",
    "path": "storage",
    "register_pytree_dataclass": "containers",
    "register_pytree_namedtuple": "containers",
    "set_buffer_name_in_optimizer": "naming",
    "set_tensor_name": "naming",
    "set_tensor_name_in_module": "naming",
    "storage": "",
    "trace_event": "tracing",
    "trace_scope": "tracing",
}

__all__ = [
    "CacheOptions",
    "CompiledFunction",
    "Context",
    "IOSpec",
    "MNCoreAdam",
    "MNCoreAdamW",
    "MNCoreLRScheduler",
    "MNCoreOptimizer",
    "MNCoreSGD",
    "MNDevice",
    "TensorLike",
    "TensorProxy",
    "errors",
    "get_tensor_name",
    "path",
    "register_pytree_dataclass",
    "register_pytree_namedtuple",
    "set_buffer_name_in_optimizer",
    "set_tensor_name",
    "set_tensor_name_in_module",
    "storage",
    "trace_event",
    "trace_scope",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if name == "__version__":
        from importlib.metadata import version

        return version("open-mlsdk")
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not home:
        return importlib.import_module(f"{__name__}.{name}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value  # the next time it is found without this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
