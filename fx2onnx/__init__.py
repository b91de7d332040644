"""fx2onnx: the names that programs import from the exporter's package.

`set_tensor_name` is that of mlsdk. `fx2onnx.linter` says before a compile what cannot be exported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlsdk.naming import get_tensor_name, set_tensor_name, set_tensor_name_in_module

__all__ = ["get_tensor_name", "set_tensor_name", "set_tensor_name_in_module"]


def __getattr__(name: str) -> Any:
    if name == "linter":
        import importlib

        return importlib.import_module("fx2onnx.linter")
    if name in __all__:
        from mlsdk import naming

        return getattr(naming, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
