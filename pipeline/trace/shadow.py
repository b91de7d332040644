"""Shadow: a tensor without data, which stands for a value of the program while a function is traced.

A Shadow looks like a CPU tensor to torch and to the user's code. Behind it lies a meta tensor (`elem`), on which torch
computes shapes, dtypes and strides. Where the content does not depend on the program's inputs it is `known`, so that
`.item()` on it, or a mask made by it, costs nothing at run time.

torch has FakeTensor for this, but that imports torch._dynamo and sympy (1.1 s in a cold process) and costs about five
times as much for each operation; all it adds are dynamic shapes and other devices.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves as pytree_leaves

from mlsdk.errors import DataDependentControlFlow, Misuse, TraceError
from mlsdk.pipeline.trace.frames import user_line

META = torch.device("meta")
CPU = torch.device("cpu")


class Shadow(torch.Tensor):
    """A traced tensor. `elem`: its meta tensor; `known`: its content, where it is known at trace time, else None.

    `viewed`: the Shadow whose elements it shows, if it is a view; weak, since autograd keeps views of what it made, out
    of the garbage collector's sight. `made_at`: the user's line that made it. `era`: the trace
    that it belongs to; it means nothing in any other one.
    """

    elem: torch.Tensor
    known: torch.Tensor | None
    viewed: weakref.ref[Shadow] | None
    made_at: str
    era: object

    # the trace that goes on
    now: ClassVar[object] = None

    # gives the content of a tensor that is known, while a function is traced
    read: ClassVar[Callable[[torch.Tensor], torch.Tensor | None] | None] = None

    # Python subclasses go through __torch_function__ unless it is switched off; a Shadow has nothing to add there.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, elem: torch.Tensor, known: torch.Tensor | None = None, requires_grad: bool = False) -> Shadow:
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            layout=elem.layout,
            device=CPU,
            requires_grad=requires_grad,
        )
        self.elem = elem
        self.known = known
        self.viewed = None
        self.made_at = ""
        self.era = Shadow.now
        return self

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def whole(self) -> Shadow:
        """The Shadow that this one is a view of; itself when it is none."""
        found = self.viewed() if self.viewed is not None else None
        return self if found is None else found

    def origin(self) -> str:
        """Which tensor it is, for errors about one that got out of its trace."""
        return f"a tensor that {f'{self.made_at} made' if self.made_at else 'was an input'} in a traced function"

    def __repr__(self, **ignored: Any) -> str:  # type: ignore[override]
        return f"traced tensor(shape={tuple(self.elem.shape)}, dtype={self.elem.dtype})"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"torch.Tensor has no attribute {name!r}", name=name, obj=self)

    # --- what takes the content out of torch ---

    def numpy(self, *, force: bool = False) -> Any:
        return array_of(self, ".numpy()", force).copy()

    def tolist(self) -> Any:
        return content_of(self, ".tolist()").tolist()

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return array_of(self, "a numpy function").copy().__array__(*args, **kwargs)

    def __format__(self, spec: str) -> str:
        return content_of(self, "a format specification").__format__(spec) if spec else repr(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        twin = memo[id(self)] = self.detach().clone().requires_grad_(self.requires_grad)
        return twin

    def __copy__(self) -> torch.Tensor:
        return self.detach().requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TraceError(
            f"{self.origin()} cannot be saved or sent: it holds no data; save what the compiled function gives"
        )

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        leaked = next((item for item in pytree_leaves((args, kwargs or {})) if isinstance(item, Shadow)), None)
        raise TraceError(
            f"{leaked.origin() if leaked is not None else 'a traced tensor'} met {func} outside of it; it holds no data: "
            "keep nothing of what the function computes beyond its return value"
        )


def content_of(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """What a tensor holds, for Python code outside of torch. Raises DataDependentControlFlow when it is not known."""
    with _disable_current_modes():
        content = Shadow.read(tensor) if Shadow.read is not None else None
    if content is None:
        _refuse(what)
    return content


def array_of(tensor: torch.Tensor, what: str, force: bool = False) -> Any:
    """The same as an array over its memory. A recorder would see torch's own way there, and give a tensor without data."""
    content = content_of(tensor, what)
    with _disable_current_modes():
        return torch._C.TensorBase.numpy(content, force=force)


def _refuse(what: str) -> NoReturn:
    hint = "it is known only when the program runs; do this outside of the function, on what it returns"
    raise DataDependentControlFlow.at(Misuse(f"{what} needs the value of a tensor", user_line(), "", hint))


def shadow_like(tensor: torch.Tensor, requires_grad: bool = False) -> Shadow:
    """A fresh Shadow with the shape, strides and dtype of `tensor`, and storage of its own."""
    elem = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)
    return Shadow(elem, None, requires_grad)
