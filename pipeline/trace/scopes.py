"""Which module runs now: the module path of each traced operation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.nn.modules import module as hooks


class Scopes:
    """A stack of the modules whose forward runs. `on_root(module)` is called before an outermost module runs."""

    def __init__(self, named: Mapping[str, torch.nn.Module], on_root: Callable[[torch.nn.Module], None]):
        self._paths: dict[int, str] = {}
        self._on_root = on_root
        self.stack: list[tuple[torch.nn.Module, str]] = []
        for name, module in named.items():
            self._add(name, module)

    def _add(self, root: str, module: torch.nn.Module) -> None:
        for name, part in module.named_modules():
            self._paths.setdefault(id(part), f"{root}.{name}" if name else root)

    def current(self) -> str:
        """The path of the innermost module; empty outside of modules."""
        return self.stack[-1][1] if self.stack else ""

    def path(self, module: torch.nn.Module) -> str:
        if id(module) not in self._paths:
            outer = self.current()
            name = type(module).__name__
            self._add(f"{outer}.{name}" if outer else name, module)
        return self._paths[id(module)]

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Follow all modules while the context is open."""

        def enter(module: torch.nn.Module, args: Any) -> None:
            if not self.stack:
                self._on_root(module)
            self.stack.append((module, self.path(module)))

        def leave(module: torch.nn.Module, args: Any, result: Any) -> None:
            # a hook that failed may have left more than one entry
            while self.stack and self.stack[-1][0] is not module:
                self.stack.pop()
            if self.stack:
                self.stack.pop()

        entering = hooks.register_module_forward_pre_hook(enter)
        leaving = hooks.register_module_forward_hook(leave, always_call=True)
        try:
            yield
        finally:
            entering.remove()
            leaving.remove()
            self.stack.clear()

    def name_of(self, tensor: torch.Tensor) -> str:
        """The path of a parameter or buffer among the modules seen so far; empty when it is none of theirs."""
        for module, path in reversed(self.stack):
            for name, owned in [*module.named_parameters(), *module.named_buffers()]:
                if owned is tensor:
                    return f"{path}.{name}"
        return ""
