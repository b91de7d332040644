"""Context: a device, the tensors that live on it, and the functions that are compiled for it."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from mlsdk import compiling, loading
from mlsdk.boundary import boundary
from mlsdk.cache import CacheOptions
from mlsdk.compiled import CompiledFunction
from mlsdk.errors import ContextError, MLSDKWarning
from mlsdk.live_settings import live_settings
from mlsdk.mndevice import MNDevice
from mlsdk.pipeline.ir.signature import RANDOM_STATE
from mlsdk.proxy import TensorProxy
from mlsdk.registry import Entry, Private, Registry
from mlsdk.runtime.counters import Counters
from mlsdk.runtime.iospec import IOSpec
from mlsdk.values import DeviceValue

__all__ = ["Context"]


class Context:
    """Opens a device, and owns what lies on it: registered tensors, shared live by all functions of the Context, and
    the functions themselves. `with Context(device) as context:` invalidates it at the end; without `with`, the device
    is given up when nobody has the Context, its functions and its proxies any more, and at the end of the process.

    A Context may be used from several threads. It cannot be used in a forked child: there it says so.

    Raises DeviceBusy, with the process that holds the board, and DeviceError when the board's state cannot be used.
    """

    _current: weakref.ref[Context] | None = None

    def __init__(self, device: MNDevice) -> None:
        if not isinstance(device, MNDevice):
            raise ContextError(
                f"Context takes an MNDevice, not {type(device).__name__}: Context(MNDevice('mncore2:auto'))"
            )
        self.device = device
        self._session = device._acquire()
        self._release = weakref.finalize(self, self._session.release)
        self._release.atexit = False  # then all sessions are closed together
        self._lock = threading.RLock()
        self._ended = False
        self._functions: weakref.WeakSet[CompiledFunction] = weakref.WeakSet()
        self._random: Entry | None = None
        self.registry = Registry(self)

    # --- life ---

    @staticmethod
    def switch_context(context: Context) -> None:
        """Make `context` the current one. Optional: everything here belongs to the Context that it is called on."""
        if not isinstance(context, Context):
            raise ContextError(f"switch_context takes a Context, not {type(context).__name__}")
        context._check()
        Context._current = weakref.ref(context)

    @staticmethod
    def current() -> Context | None:
        """The Context that `switch_context` chose last, while it lives."""
        return Context._current() if Context._current is not None else None

    def invalidate(self) -> None:
        """End the Context: wait for what runs, and give the device up, so that the next one can open it. Device copies
        are lost: call `synchronize` before. A second call does nothing."""
        if self._ended:
            return
        try:
            if self._session.pid == _pid():
                with self._lock:  # a call of another thread that has begun is still carried out, a later one is refused
                    self._ended = True
                self._session.loader.barrier()
                self._session.runner.barrier()
            for function in list(self._functions):
                function._results = []
        finally:
            self._ended = True
            self._release()
        if self._session.closing:
            self._session.closed.wait()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.invalidate()

    def __repr__(self) -> str:
        state = ", invalidated" if self._ended else ""
        return f"Context({self.device.device_name}, {len(self.registry)} registered tensors{state})"

    # --- registered tensors ---

    @boundary
    def register_param(self, param: torch.Tensor) -> None:
        """Register a parameter, or a gradient, that has a name. From the first call of a function that uses it, its
        live copy is on the device; `synchronize` brings it back. Raises ContextError for a tensor without a name, a
        name that another tensor has, and dtypes that the device does not know."""
        self.registry.add(param)

    @boundary
    def register_buffer(self, buffer: torch.Tensor) -> None:
        """Register a buffer of a module, like `register_param`."""
        self.registry.add(buffer)

    @boundary
    def register_optimizer_buffers(self, optimizer: torch.optim.Optimizer) -> None:
        """Register an optimizer's state, after `set_buffer_name_in_optimizer`."""
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ContextError(f"register_optimizer_buffers takes an optimizer, not {type(optimizer).__name__}")
        self.registry.add_optimizer(optimizer)

    @boundary
    def get_registered_value_proxy(self, tensor: torch.Tensor) -> TensorProxy:
        """The device's copy of a registered tensor, found by identity. Raises ContextError when it is not registered."""
        self._check()
        entry = self.registry.find(tensor)
        if entry is None:
            from mlsdk.naming import get_tensor_name

            name = get_tensor_name(tensor) if isinstance(tensor, torch.Tensor) else None
            same = name is not None and self.registry.get(name) is not None
            hint = (
                "another tensor has its name: was it replaced after it was registered?" if same else "register it first"
            )
            raise ContextError(f"{name or f'this {type(tensor).__name__}'} is not registered in this Context; {hint}")
        return self._proxy(entry, entry.tensor.dtype == torch.bfloat16)

    @boundary
    def synchronize(self) -> None:
        """Wait for everything that was asked for, and bring what changed on the device back into the registered tensors,
        in place. Values that no program changed keep the host's bits. Raises the error at which earlier work stopped."""
        with self._using():
            self._session.barrier()
            for entry in self.registry:
                entry.write_back()

    # --- functions ---

    @boundary
    def compile(
        self,
        function: Callable[[Mapping[str, torch.Tensor]], Mapping[str, torch.Tensor]],
        inputs: Mapping[str, torch.Tensor],
        codegen_dir: str | Path,
        *,
        options: Mapping[str, Any] | None = None,
        cache_options: CacheOptions | None = None,
        num_compiler_threads: int | None = None,
        export_kwargs: Mapping[str, Any] | None = None,
        optimizers: Sequence[torch.optim.Optimizer] | None = None,
        training: bool = False,
        io_spec_constraints: Mapping[str, IOSpec] | None = None,
        quiet: bool = False,
    ) -> CompiledFunction:
        """Compile a function from a mapping of tensors to a mapping of tensors.

        `function` is called once, with traced tensors in place of `inputs`, whose shapes and dtypes become fixed. All
        artifacts land in `codegen_dir`, which may exist; what is in the store already is not built again. Tensors of the
        closure are live when they are registered, constants (with an UnregisteredTensorWarning) when not.

        `options`: compile options, see `mlsdk.tasks.options`. `cache_options`: where results are kept.
        `num_compiler_threads`: processes that count nodes at once; None or -1: as many as processors are idle.
        `export_kwargs`: `use_fx2onnx` is accepted, there is one tracer. `optimizers` with the option `backprop`: the
        function returns a loss, and the program adds its backward pass and the optimizers' step. `training` is a hint
        without effect: the function says what it does.
        `io_spec_constraints`: inputs or outputs by key (both, where both have it) that have to lie as another function
        has them. `quiet`: no progress on the terminal.

        Raises OptionError, InputMismatch, TraceError and its kinds, LayoutError, ScheduleError, StoreError, DeviceError;
        an exception of the function itself comes through as it is. The Context stays usable after each of them.
        """
        request = compiling.Request(
            options,
            cache_options,
            num_compiler_threads,
            export_kwargs,
            io_spec_constraints,
            quiet,
            optimizers,
            training,
        )
        return compiling.compile_function(self, function, inputs, codegen_dir, request)

    @boundary
    def compile_automap(
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        codegen_dir: str | Path = "",
        *,
        options: Mapping[str, Any] | None = None,
        cache_options: CacheOptions | None = None,
        num_compiler_threads: int | None = None,
        export_kwargs: Mapping[str, Any] | None = None,
        io_spec_constraints: Mapping[str, IOSpec] | None = None,
        quiet: bool = False,
    ) -> Callable[..., Any]:
        """Compile a function with an ordinary signature, for arguments like `args` and `kwargs`.

        Tensors may be nested in tuples, lists, dicts, and NamedTuples and dataclasses that were registered; other values
        are constants. The result is called like the function, and gives a TensorProxy for each tensor. Keys of inputs
        are paths: `args.0.x`, `kwargs.scale`. Everything else is as for `compile`.
        """
        request = compiling.Request(
            options, cache_options, num_compiler_threads, export_kwargs, io_spec_constraints, quiet
        )
        return compiling.compile_call(self, function, args, {} if kwargs is None else kwargs, codegen_dir, request)

    @boundary
    def load_codegen_dir(self, path: str | Path) -> CompiledFunction:
        """The function that was compiled into a folder, without the Python function and without tracing.

        Its weights travel with it; a tensor that is registered here under the same name is used instead. Raises
        CodegenDirError naming the file that is missing or was changed, of those that loading needs (the application, or
        the graph, its signature and its state for pfvm), InputMismatch when a registered tensor has another shape or
        dtype, DeviceError when the board's memory does not suffice.
        """
        return loading.load_codegen_dir(self, path)

    @property
    def counters(self) -> Counters:
        """What the device did since it was opened, up to the calls made so far; shared by the Contexts of one device."""
        self._session.settle()
        return self._session.counters

    # --- for the modules beside this one ---

    def _check(self) -> None:
        if self._ended:
            raise ContextError("this Context was invalidated; make a new one")
        self._session.check_open()

    def _using(self) -> AbstractContextManager[bool]:
        """Hold the Context: calls of several threads are put in an order."""
        self._check()  # before the lock: in a forked child it may be locked for ever
        return self._lock

    def _proxy(self, value: DeviceValue, bfloat16: bool = False) -> TensorProxy:
        return TensorProxy(value, self.device.device_name in ("pfvm:cuda", "pfvm:gpu"), self, bfloat16)

    def _state_entry(self, name: str) -> Entry | None:
        """The entry of a state: a registered tensor, or the random state, which every Context has."""
        if name == RANDOM_STATE:
            if self._random is None:
                seed = torch.initial_seed() % 2**31
                self._random = Entry(self._session, RANDOM_STATE, torch.tensor([seed, 0], dtype=torch.int32))
            return self._random
        return self.registry.get(name)

    def _before_call(self, entries: Iterable[Entry | Private]) -> None:
        """Learning rates that were changed on the host go to the device; of other changes nothing is taken over."""
        for optimizer in self.registry.optimizers.values():
            live_settings(optimizer).send(optimizer, self.registry.find)
        names = [entry.name for entry in entries if isinstance(entry, Entry) and entry.overlooked()]
        if names:
            listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
            warnings.warn(
                f"{listed}: changed on the host after the first call, which the program does not see; "
                "get_registered_value_proxy(tensor).load_from(tensor) sends a tensor to the device",
                MLSDKWarning,
                stacklevel=4,
            )


def _pid() -> int:
    import os

    return os.getpid()
