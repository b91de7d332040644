"""Classes whose instances `compile_automap` may find among arguments and results."""

from __future__ import annotations

from typing import TypeVar

from mlsdk.pipeline.ir.pytree import register_class

__all__ = ["register_pytree_dataclass", "register_pytree_namedtuple"]

T = TypeVar("T", bound=type)


def register_pytree_namedtuple(cls: T) -> T:
    """Decorator of a NamedTuple: its fields may hold tensors. Returns the class; GraphError for other classes."""
    register_class(cls)
    return cls


def register_pytree_dataclass(cls: T) -> T:
    """Decorator of a dataclass, above `@dataclass`: its fields may hold tensors. Returns the class; GraphError for
    other classes."""
    register_class(cls)
    return cls
