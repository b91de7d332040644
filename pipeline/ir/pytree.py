"""Nested containers of tensors, flattened to a list of leaves and a spec that is JSON, not pickle.

Known containers: dict (any Mapping), list, tuple, and the named tuples and dataclasses that were registered by class.
None, bool, int, float and str are static: they stand in the spec. Everything else is a leaf.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlsdk.errors import GraphError

STATIC = (type(None), bool, int, float, str)


@dataclass(frozen=True)
class Spec:
    """One node of the tree.

    kind: leaf | static | dict | list | tuple | namedtuple | dataclass. `tag` is a leaf's path, a static's value, or the
    registered name of a class; `keys` are a dict's keys or a class's fields; `children` the specs below.
    """

    kind: str
    tag: Any = None
    keys: tuple[Any, ...] = ()
    children: tuple[Spec, ...] = ()


_CLASSES: dict[str, type] = {}


def class_name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def register_class(cls: type) -> type:
    """Let instances of a NamedTuple or dataclass be containers; returns the class. GraphError for other classes."""
    if not (dataclasses.is_dataclass(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))):
        raise GraphError(f"class {cls.__qualname__} is neither a NamedTuple nor a dataclass; register one of these")
    _CLASSES[class_name(cls)] = cls
    return cls


def flatten(tree: Any, path: str = "") -> tuple[list[tuple[str, Any]], Spec]:
    """Leaves as (path, leaf) in order, and the spec. A path joins keys and indices by dots: `args.0.x`. Raises GraphError
    for containers that are not known, or contain themselves."""
    leaves: list[tuple[str, Any]] = []
    return leaves, _flatten(tree, path, leaves, ())


def _flatten(tree: Any, path: str, leaves: list[tuple[str, Any]], above: tuple[int, ...]) -> Spec:
    def below(key: Any, child: Any) -> Spec:
        return _flatten(child, f"{path}.{key}" if path else str(key), leaves, (*above, id(tree)))

    if isinstance(tree, STATIC):
        return Spec("static", tree)
    if id(tree) in above:
        raise GraphError(f"{path} is a {type(tree).__name__} that contains itself; give arguments that end")
    if isinstance(tree, Mapping):
        for key in tree:
            if not isinstance(key, (str, int)):
                raise GraphError(f"{path or 'the value'} has a key of type {type(key).__name__}; keys are str or int")
        return Spec("dict", None, tuple(tree), tuple(below(key, child) for key, child in tree.items()))
    cls = type(tree)
    if class_name(cls) in _CLASSES and _CLASSES[class_name(cls)] is cls:
        fields = _fields(cls)
        kind = "dataclass" if dataclasses.is_dataclass(cls) else "namedtuple"
        return Spec(kind, class_name(cls), fields, tuple(below(name, getattr(tree, name)) for name in fields))
    if isinstance(tree, tuple) and hasattr(tree, "_fields") and cls.__module__ != "torch.return_types":
        raise GraphError(f"{path or 'the value'} is a {cls.__qualname__}, which is not registered; decorate the class")
    if isinstance(tree, (list, tuple)):
        kind = "list" if isinstance(tree, list) else "tuple"
        return Spec(kind, None, (), tuple(below(index, child) for index, child in enumerate(tree)))
    if dataclasses.is_dataclass(cls):
        raise GraphError(f"{path or 'the value'} is a {cls.__qualname__}, which is not registered; decorate the class")
    leaves.append((path, tree))
    return Spec("leaf", path)


def _fields(cls: type) -> tuple[str, ...]:
    if dataclasses.is_dataclass(cls):
        return tuple(entry.name for entry in dataclasses.fields(cls))
    return tuple(cls._fields)  # type: ignore[attr-defined]


def unflatten(spec: Spec, leaf: Callable[[str], Any]) -> Any:
    """The tree of `spec`, with `leaf(path)` at each leaf. Raises GraphError when a class is not registered here."""
    if spec.kind == "leaf":
        return leaf(spec.tag)
    if spec.kind == "static":
        return spec.tag
    children = [unflatten(child, leaf) for child in spec.children]
    if spec.kind == "dict":
        return dict(zip(spec.keys, children))
    if spec.kind == "list":
        return children
    if spec.kind == "tuple":
        return tuple(children)
    cls = _CLASSES.get(spec.tag)
    if cls is None:
        raise GraphError(f"class {spec.tag} is not registered in this process; import and decorate it before the call")
    return cls(**dict(zip(spec.keys, children)))


def spec_to_json(spec: Spec) -> list[Any]:
    """A JSON value; `spec_from_json` reads it back. Infinities and NaN among static floats become strings."""
    tag = spec.tag
    if isinstance(tag, float):
        tag = ["float", repr(tag)]
    return [spec.kind, tag, list(spec.keys), [spec_to_json(child) for child in spec.children]]


_KINDS = ("leaf", "static", "dict", "list", "tuple", "namedtuple", "dataclass")


def spec_from_json(document: Sequence[Any]) -> Spec:
    kind, tag, keys, children = document
    if kind not in _KINDS:
        raise ValueError(f"{kind!r} is not a kind of container")
    if isinstance(tag, list):
        tag = float(tag[1])
    return Spec(kind, tag, tuple(keys), tuple(spec_from_json(child) for child in children))
