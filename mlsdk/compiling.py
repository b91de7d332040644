"""What Context.compile does: check, trace, build, write the codegen_dir, load."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mlsdk import loading
from mlsdk.cache import CacheOptions
from mlsdk.compiled import CompiledFunction
from mlsdk.errors import (
    InputMismatch,
    Misuse,
    OptionError,
    StoreError,
    TraceError,
    TraceWarning,
    UnsupportedOperator,
)
from mlsdk.labels import label_of, short
from mlsdk.live_settings import live_in_a_trace
from mlsdk.pipeline.ir.signature import Input, Output, Signature
from mlsdk.pipeline.ops.garbage import rarely_collected
from mlsdk.pipeline.trace.frames import warn_user
from mlsdk.proxy import TensorProxy
from mlsdk.runtime import events
from mlsdk.runtime.iospec import IOSpec
from mlsdk.values import version_of

if TYPE_CHECKING:
    from mlsdk.context import Context
    from mlsdk.pipeline.ir.graph import Graph
    from mlsdk.pipeline.trace import Traced
    from mlsdk.tasks.chain import BuildResult
    from mlsdk.tasks.options import Resolved

# A trace sets switches of torch that hold for the whole process.
_TRACING = threading.RLock()

# Device dtype of a float32 value by the option float_dtype.
_FLOAT = {"float": "single", "mixed": "single", "half": "half", "double": "double"}

_EXPORT_KEYWORDS = ("use_fx2onnx",)

# Keyword argument -> the classes of its values besides None, and what to give.
_KINDS: dict[str, tuple[Any, str]] = {
    "options": (Mapping, "a mapping of names to values"),
    "cache_options": (CacheOptions, "CacheOptions(directory)"),
    "num_compiler_threads": (int, "a whole number, or None"),
    "export_kwargs": (Mapping, "a mapping of names to values"),
    "io_spec_constraints": (Mapping, "a mapping of inputs' and outputs' keys to IOSpecs"),
    "optimizers": ((list, tuple), "a list of torch optimizers"),
}


@dataclass(frozen=True)
class Request:
    """The keyword arguments of a compile. OptionError and InputMismatch for those that cannot be meant."""

    options: Mapping[str, Any] | None
    cache_options: CacheOptions | None
    num_compiler_threads: int | None
    export_kwargs: Mapping[str, Any] | None
    io_spec_constraints: Mapping[str, IOSpec] | None
    quiet: bool
    optimizers: Sequence[torch.optim.Optimizer] | None = None
    training: bool = False

    def __post_init__(self) -> None:
        for name, (allowed, wanted) in _KINDS.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, allowed):
                raise OptionError(f"{name} is {type(value).__name__}; give {wanted}")
        for name in ("quiet", "training"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} is {getattr(self, name)!r:.60}; give True or False")
        threads = self.num_compiler_threads
        if isinstance(threads, bool) or threads == 0 or (threads or 0) < -1:
            raise OptionError(
                f"num_compiler_threads is {threads!r}; give a whole number from 1, or None or -1 for an automatic choice"
            )
        for key, spec in (self.io_spec_constraints or {}).items():
            if not isinstance(spec, IOSpec):
                raise OptionError(f"io_spec_constraints: {key} is {type(spec).__name__}; give an IOSpec")
        for place, optimizer in enumerate(self.optimizers or ()):
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise OptionError(f"optimizers: number {place} is {type(optimizer).__name__}; give torch optimizers")

    def resolved(self) -> tuple[dict[str, Any], Resolved]:
        """The options as given, with what other arguments add to them; and all of them with their values."""
        from mlsdk.tasks import options as table

        for name in self.export_kwargs or {}:
            if name not in _EXPORT_KEYWORDS:
                near = table.nearest(name, _EXPORT_KEYWORDS)
                raise OptionError(
                    f"export_kwargs: there is no {name!r}{near}; allowed is {', '.join(_EXPORT_KEYWORDS)}"
                )
        given = dict(self.options or {})
        if self.num_compiler_threads is not None:
            given.setdefault("num_threads", self.num_compiler_threads)
        return given, table.resolve(given)


def compile_function(
    context: Context,
    function: Callable[[Mapping[str, torch.Tensor]], Mapping[str, torch.Tensor]],
    inputs: Mapping[str, torch.Tensor],
    codegen_dir: str | os.PathLike[str],
    request: Request,
) -> CompiledFunction:
    from mlsdk.pipeline.trace import trace

    if not isinstance(inputs, Mapping):
        raise InputMismatch(f"inputs is {type(inputs).__name__}; give a mapping of names to tensors")
    if not callable(function):
        raise InputMismatch(f"function is {type(function).__name__}; give something that can be called")
    sample, label = inputs, label_of(function)
    defaults: dict[str, Callable[[], torch.Tensor]] = {}
    if any(isinstance(value, TensorProxy) for value in inputs.values()):
        sample = {key: _sample(value) for key, value in inputs.items()}
    if request.optimizers:
        from mlsdk.backprop import with_backward

        function, sample, defaults = with_backward(context, function, sample, request.optimizers)

    def traced(**keywords: Any) -> Traced:
        return trace(function, sample, **keywords)

    compiled = _compile(context, traced, codegen_dir, request, label)
    compiled._defaults = defaults
    return compiled


def compile_call(
    context: Context,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    codegen_dir: str | os.PathLike[str],
    request: Request,
) -> CompiledFunction:
    from mlsdk.pipeline.trace import trace_call

    if not callable(function):
        raise InputMismatch(f"function is {type(function).__name__}; give something that can be called")
    if not isinstance(args, (tuple, list)) or not isinstance(kwargs, Mapping):
        raise InputMismatch("compile_automap takes a tuple of positional and a mapping of keyword arguments")

    def traced(**keywords: Any) -> Traced:
        return trace_call(function, args, kwargs, **keywords)

    return _compile(context, traced, codegen_dir, request, label_of(function))


@rarely_collected()
def _compile(
    context: Context, traced: Callable[..., Traced], codegen_dir: str | os.PathLike[str], request: Request, label: str
) -> CompiledFunction:
    name = short(label)
    directory = _directory(codegen_dir)
    given, resolved = request.resolved()
    with context._using():
        context._session.check()
        for entry in context.registry:
            entry.check_not_replaced()
        # A transfer that is still to read its source must not see the marks that a trace leaves on tensors.
        context._session.loader.barrier()
        with _TRACING, events.span("compile", f"{name}: trace"), _versions_kept(context):
            registry = context.registry
            registry.follow_optimizers()
            live = live_in_a_trace(registry.optimizers.values(), lambda tensor: registry.find(tensor) is not None)
            try:
                with live:
                    found = traced(state=registry.state(), modules=registry.modules, optimizers=registry.optimizers)
            except TraceError as error:
                on_board = context._session.kind == "board"
                misuses = refused(error.partial, resolved.values["float_dtype"]) if on_board else ()
                if not misuses:
                    raise
                raise error.besides(misuses) from error
        if resolved.values["backprop"] and all(state.output is None for state in found.signature.state):
            warn_user(
                f"the option backprop is given, but {name} changes no registered tensor, so that nothing is trained; give "
                "optimizers=[optimizer], or call backward() and step() in the function",
                TraceWarning,
            )
        constraints = request.io_spec_constraints or {}
        artifacts = _artifacts(context, found, _fixed(context, found.signature, constraints, resolved))
    # The phases need nothing of the Context: other threads may use it meanwhile.
    result = _build(context, artifacts, given, request, label)
    try:
        _write(result, directory, resolved)
        with context._using():
            return loading.from_build(context, result, directory, name)
    finally:
        result.store.close()


def refused(graph: Graph | None, float_dtype: str = "float") -> tuple[Misuse, ...]:
    """What the planner would refuse of a graph, which may be one that could be traced in part only."""
    from mlsdk.pipeline.layout import LayoutOptions, plan
    from mlsdk.pipeline.optimize import optimize

    if graph is None:
        return ()
    try:
        plan(optimize(graph), LayoutOptions(float_dtype))
    except UnsupportedOperator as error:
        return error.misuses
    except Exception:  # half a program may fail in any way; the tracer's error is the one that counts
        pass
    return ()


@contextmanager
def _versions_kept(context: Context) -> Iterator[None]:
    """Registered tensors that the function writes in place are not changed by the trace."""
    versions = [(entry, version_of(entry.tensor)) for entry in context.registry]
    try:
        yield
    finally:
        for entry, version in versions:
            entry.keep_version(version)


def _artifacts(context: Context, found: Traced, fixed: Mapping[str, Any]) -> dict[str, bytes]:
    """What the tracer found, with the present values of the state, and places that are decided already."""
    from mlsdk.pipeline.layout import fixed_to_json
    from mlsdk.tasks.adapters import traced_artifacts

    values = {}
    for state in found.signature.state:
        entry = context._state_entry(state.name)
        assert entry is not None, f"the tracer found a state {state.name} that nobody registered"
        values[state.name] = entry.value()
    artifacts = traced_artifacts(found, values)
    if fixed:
        artifacts["placements.json"] = fixed_to_json(fixed)
    return artifacts


def _fixed(
    context: Context, signature: Signature, constraints: Mapping[str, IOSpec], resolved: Resolved
) -> dict[str, Any]:
    """Graph value -> where it lies already: registered tensors that another function placed, and constraints. What the
    program writes into a registered tensor lies like what it reads of it, so that a copy of memory brings it there."""
    from mlsdk.pipeline.layout import Fixed

    wanted = _constraints(signature, constraints)
    if context._session.kind != "board":
        return {}
    specs: dict[str, IOSpec] = {}
    alike = {state.output: state.input for state in signature.state if state.output and state.input}
    base = _FLOAT[resolved.values["float_dtype"]]
    for state in signature.state:
        entry = context._state_entry(state.name)
        if not state.input or entry is None or entry.buffer is None:
            continue
        # Where precisions differ the value is converted for each call: the planner can only place what it computes in.
        if state.dtype != "float32" or entry.spec.device_dtype == base:
            specs[state.input] = entry.spec
    specs.update(wanted)
    places = {v: Fixed(s.layout, s.device_dtype, s.scheme) for v, s in specs.items() if s.layout is not None}
    return {**alike, **places}


def _constraints(signature: Signature, constraints: Mapping[str, IOSpec]) -> dict[str, IOSpec]:
    """Graph value -> how it has to lie. A key that an input and an output have, as a cache that goes round does, means
    both."""
    from mlsdk.tasks.options import nearest

    known: dict[str, list[Input | Output]] = {}
    for entries in (signature.outputs, signature.inputs):
        for entry in entries:
            known.setdefault(entry.key, []).append(entry)
    found = {}
    for key, spec in constraints.items():
        if key not in known:
            raise InputMismatch(
                f"io_spec_constraints: there is no input or output {key!r}{nearest(key, known)}; there are {', '.join(known)}"
            )
        fitting = [io for io in known[key] if (io.shape, io.dtype) == (spec.shape, spec.dtype)]
        if not fitting:
            kinds = " and ".join(dict.fromkeys(f"{io.dtype} {list(io.shape)}" for io in known[key]))
            raise InputMismatch(
                f"io_spec_constraints: {key} is {kinds}, and the given IOSpec is for "
                f"{spec.dtype} {list(spec.shape)}; take the spec of an input or output of the same dtype and shape"
            )
        found.update({io.value: spec for io in fitting})
    return found


def _build(
    context: Context, artifacts: Mapping[str, bytes], given: Mapping[str, Any], request: Request, label: str
) -> BuildResult:
    from mlsdk import store as stores
    from mlsdk.tasks.chain import build_chain
    from mlsdk.tasks.phases import COMPILE

    cache = request.cache_options
    listener = _Listener(request.quiet)
    store = None
    try:
        store = stores.open(cache.cache_dir if cache is not None else None)
        return build_chain(
            artifacts,
            given,
            # On pfvm the compiled graph is executed, so that functions without emitters run there too.
            phases=COMPILE if context._session.kind == "board" else ("OptimizeOnnx",),
            store=store,
            listener=listener,
            label=label,
            force=cache.again if cache is not None else (),
        )
    except BaseException as error:
        if store is not None:
            store.close()
        if cache is not None and isinstance(error, StoreError):
            error.add_note(
                f"here the store is the cache_dir {cache.cache_dir} of cache_options: give another one there"
            )
        raise
    finally:
        listener.stop()


def _write(result: BuildResult, directory: Path, resolved: Resolved) -> None:
    from mlsdk.tasks import codegen_dir

    with events.span("compile", f"{short(result.label)}: codegen_dir"):
        codegen_dir.materialise(result, directory)
        copy = resolved.values["out_onnx"]
        if copy:
            try:
                target = Path(copy)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(result.read("model.onnx"))
            except OSError as error:
                raise OptionError(
                    f"option out_onnx: {copy}: {error.strerror}; give a path that can be written"
                ) from error


class _Listener:
    """Progress for the terminal, and spans for trace_scope."""

    def __init__(self, quiet: bool) -> None:
        from mlsdk.tasks import progress

        self._show: Any = progress.quiet if quiet else progress.for_stream()

    def __call__(self, progress: Any) -> None:
        progress = replace(progress, label=short(progress.label))
        self._show(progress)
        if progress.state == "built" and events.listening():
            end = events.now()
            begin = end - int(progress.seconds * 1e9)
            events.add(f"{progress.label}: {progress.phase}", "compile", events.thread_track(), begin, end)

    def stop(self) -> None:
        stop = getattr(self._show, "stop", None)
        if stop is not None:
            stop()


def _directory(codegen_dir: Any) -> Path:
    from mlsdk.storage import path
    from mlsdk.tasks.codegen_dir import check_place

    if not codegen_dir:
        raise InputMismatch("codegen_dir is missing; give the folder for the artifacts, storage.path('/tmp/add')")
    directory = path(codegen_dir)
    check_place(directory)
    return directory


def _sample(value: Any) -> Any:
    """A proxy among the sample inputs stands for its shape and dtype."""
    return torch.empty(value.shape, dtype=value.dtype) if isinstance(value, TensorProxy) else value
