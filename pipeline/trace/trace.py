"""Trace: a Python function over tensors -> Graph and Signature.

    function + sample
      --run once on Shadows-->  tape of aten operations, writes included     recorder.py
      --functionalize------->   tape without writes, and what was written    functionalize.py
      --lower--------------->   nodes of a Graph                             lower.py, aten/

Registered tensors are found by identity wherever the function reaches them, so nothing of the user's model is replaced.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from mlsdk.errors import (
    WHAT_TO_DO,
    DataDependentControlFlow,
    InputMismatch,
    Misuse,
    TraceError,
    TraceWarning,
    UnregisteredTensor,
    UnregisteredTensorWarning,
    UnsupportedOperator,
)
from mlsdk.pipeline.ir import pytree
from mlsdk.pipeline.ir.graph import Graph, Value
from mlsdk.pipeline.ir.signature import RANDOM_STATE, Input, Output, Signature, State
from mlsdk.pipeline.trace.builder import Builder
from mlsdk.pipeline.trace.draws import Draws
from mlsdk.pipeline.trace.dtypes import ALLOWED, DTYPE_OF_TORCH, dense_array
from mlsdk.pipeline.trace.frames import user_line, warn_user
from mlsdk.pipeline.trace.functionalize import functionalize
from mlsdk.pipeline.trace.instead import ROUNDS
from mlsdk.pipeline.trace.lower import Lowering
from mlsdk.pipeline.trace.recorder import Capture, Recorder, Tape, storage_of
from mlsdk.pipeline.trace.restore import Replacement, Snapshot, report_lost
from mlsdk.pipeline.trace.scopes import Scopes
from mlsdk.pipeline.trace.settings import tracing_settings
from mlsdk.pipeline.trace.shadow import Shadow, shadow_like

# What torch says where it needs the data of a tensor that has none.
NO_DATA = "its data is not allocated yet"

Modules = Mapping[str, torch.nn.Module]


@dataclass(frozen=True)
class Traced:
    """The result of a trace."""

    graph: Graph
    signature: Signature


_LISTED = 8  # tensors that a warning names


def trace(
    function: Callable[[Any], Mapping[str, Any]],
    sample: Mapping[str, torch.Tensor],
    *,
    state: Mapping[str, torch.Tensor] | None = None,
    modules: Modules | None = None,
    optimizers: Mapping[str, torch.optim.Optimizer] | None = None,
) -> Traced:
    """The graph of a function from a mapping of tensors to a mapping of tensors.

    `state` holds the registered tensors by name: they become live inputs, and what the function writes into them
    becomes outputs. Other tensors of the closure become constants, with one UnregisteredTensorWarning. `modules` and
    `optimizers` only give names to what they hold. The function gets a copy of the mapping; model, gradients and
    optimizers are as before afterwards, also when this fails.

    Raises InputMismatch for a sample that cannot be an input, DataDependentControlFlow, UnsupportedOperator (all places
    at once), UnregisteredTensor, TraceError; an exception of the function itself comes through as it is.
    """
    _check_takes_one(function)
    for key, tensor in sample.items():
        if not isinstance(key, str):
            raise InputMismatch(f"input key {key!r} is {type(key).__name__}; keys are strings")
        _check_sample(key, tensor)
    keys = list(sample)

    def call(shadows: Sequence[Shadow]) -> Any:
        result = function(_copy_of(sample, dict(zip(keys, shadows))))
        if not isinstance(result, Mapping):
            raise TraceError(
                f"{_name(function)} returns {_kind(result)}; return a mapping of names to tensors, "
                "or compile it with compile_automap"
            )
        for key in result:
            if not isinstance(key, str):
                raise TraceError(
                    f"{_name(function)} returns a result with the key {key!r:.60}, which is {_kind(key)}; keys are strings"
                )
        return dict(result)

    leaves = [(key, sample[key]) for key in keys]
    return _traced(_Trace(_name(function), leaves, state or {}, modules or {}, optimizers or {}), call, None)


def trace_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    state: Mapping[str, torch.Tensor] | None = None,
    modules: Modules | None = None,
    optimizers: Mapping[str, torch.optim.Optimizer] | None = None,
) -> Traced:
    """The graph of a function with any signature: tensors may be nested in tuples, lists, dicts and registered classes.

    Input keys are paths into (args, kwargs): `args.0.x`, `kwargs.scale`. Everything else is as for `trace`.
    """
    leaves, spec = pytree.flatten({"args": tuple(args), "kwargs": dict(kwargs or {})})
    for key, tensor in leaves:
        _check_sample(key, tensor)

    def call(shadows: Sequence[Shadow]) -> Any:
        by_key = dict(zip((key for key, _ in leaves), shadows))
        tree = pytree.unflatten(spec, by_key.__getitem__)
        return function(*tree["args"], **tree["kwargs"])

    return _traced(_Trace(_name(function), leaves, state or {}, modules or {}, optimizers or {}), call, spec)


def _traced(run: _Trace, call: Callable[[Sequence[Shadow]], Any], spec: pytree.Spec | None) -> Traced:
    """Run a trace, and warn about traced tensors that the function stored somewhere."""
    try:
        with _disable_current_modes():  # of a trace around this one
            traced = run.run(call, spec)
    finally:
        Shadow.now = run.outer
    run.recorder.watch_results()
    name, made = run.name, run.recorder.made
    # without the cycles through the recorder, what is left is what the function kept
    run.recorder.tape, run.recorder.registered, run.registered = Tape(), {}, {}
    del run, call
    lines = _outliving(made)
    if lines:
        import gc

        gc.collect()  # a cycle may hold them a little longer
        lines = _outliving(made)
    if lines:
        warn_user(
            f"{name} stores tensors that it computes at {', '.join(lines)} outside of itself (a list, an attribute, a "
            "cache); they hold no data and are not part of the program: return them instead",
            TraceWarning,
        )
    return traced


def _outliving(made: Sequence[tuple[Any, str]]) -> list[str]:
    return list(dict.fromkeys(source for reference, source in made if reference() is not None))


def _name(function: Any) -> str:
    if isinstance(function, torch.nn.Module):
        name = type(function).__name__
    else:
        name = getattr(inspect.unwrap(function), "__name__", "") if callable(function) else ""
    return re.sub(r"\W+", "_", name).strip("_") or "graph"


def _kind(value: Any) -> str:
    """What a value is, in the words of a user."""
    return "a tensor" if isinstance(value, torch.Tensor) else type(value).__name__


def _check_takes_one(function: Any) -> None:
    """Raise TraceError for a function that cannot be called with one mapping."""
    try:
        wanted = inspect.signature(function.forward if isinstance(function, torch.nn.Module) else function)
    except (TypeError, ValueError):
        return  # it does not tell
    try:
        wanted.bind({})
    except TypeError:
        names = ", ".join(wanted.parameters)
        raise TraceError(
            f"{_name(function)}({names}) is compiled as a function of one mapping of names to tensors; write it as one "
            "of `inputs`, with inputs['x'] for x, or compile it with compile_automap"
        ) from None


def _check_sample(key: str, tensor: Any) -> None:
    """Raises InputMismatch when a sample cannot be an input."""
    if not isinstance(tensor, torch.Tensor):
        raise InputMismatch(f"input {key} is {type(tensor).__name__}, not a tensor; wrap it with torch.as_tensor")
    if tensor.dtype not in DTYPE_OF_TORCH:
        parts = "; give torch.view_as_real(x), and take it with torch.view_as_complex" if tensor.is_complex() else ""
        raise InputMismatch(
            f"input {key} has dtype {str(tensor.dtype).removeprefix('torch.')}; allowed are {ALLOWED}{parts}"
        )
    if tensor.device.type == "meta":
        raise InputMismatch(f"input {key} is on the device meta; give a tensor with data")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise InputMismatch(f"input {key} is {tensor.layout} or quantised; make it a dense tensor")


def _copy_of(sample: Mapping[str, Any], shadows: dict[str, Shadow]) -> Any:
    """The function's own mapping; of the sample's type for subclasses of dict and UserDict, whose copies are their own."""
    if type(sample) is dict or not isinstance(sample, (dict, UserDict)):
        return shadows
    twin = copy.copy(sample)
    twin.update(shadows)
    return twin


class _Trace:
    """One trace: what is registered, what the run wrote, and how it becomes a Traced."""

    def __init__(
        self,
        name: str,
        leaves: Sequence[tuple[str, torch.Tensor]],
        state: Mapping[str, torch.Tensor],
        modules: Modules,
        optimizers: Mapping[str, torch.optim.Optimizer],
    ):
        self.outer, Shadow.now = Shadow.now, object()
        self.name = name
        self.leaves = leaves
        self.state = state
        self.names: dict[int, str] = {}
        for key, tensor in state.items():
            if tensor.dtype not in DTYPE_OF_TORCH:
                kind = str(tensor.dtype).removeprefix("torch.")
                raise TraceError(f"registered tensor {key} has dtype {kind}; allowed are {ALLOWED}")
            self.names.setdefault(id(tensor), key)
        self.registered = {id(tensor): shadow_like(tensor) for tensor in state.values()}
        self.snapshot = Snapshot(self.names)
        self.scopes = Scopes(modules, self.snapshot.watch_module)
        self.draws = Draws()
        self.recorder = Recorder(self.registered, self.scopes.current, None, self._on_capture, self.draws)
        for tensor in state.values():
            if tensor.layout == torch.strided and tensor.device.type == "cpu" and tensor.numel():
                self.recorder.by_storage.setdefault(storage_of(tensor), []).append(tensor)
        for tensor in state.values():
            self.snapshot.watch_tensor(tensor)
        for module in modules.values():
            self.snapshot.watch_module(module)
        for optimizer in optimizers.values():
            self.snapshot.watch_optimizer(optimizer)

    def _on_capture(self, tensor: torch.Tensor) -> str:
        self.snapshot.watch_tensor(tensor)
        found = self.names.get(id(tensor)) or self.scopes.name_of(tensor) or self.snapshot.labels.get(id(tensor), "")
        owner = None if found else self.snapshot.owner_of(tensor)
        return found or (f"the gradient of {self.names.get(id(owner)) or 'a parameter'}" if owner is not None else "")

    # --- running the function ---

    def run(self, call: Callable[[Sequence[Shadow]], Any], call_spec: pytree.Spec | None) -> Traced:
        inputs = [shadow_like(tensor, tensor.requires_grad) for _, tensor in self.leaves]
        try:
            result = self._execute(call, inputs)
            outputs, result_spec = pytree.flatten(result)
            flat = call_spec is None and all(child.kind == "leaf" for child in result_spec.children)
            if call_spec is None:
                self._check_static(result)
            wanted = [self._output(key, value) for key, value in outputs]
        except (DataDependentControlFlow, UnsupportedOperator) as error:
            raise self._with_earlier(error, inputs) from error.__cause__
        finally:
            self.draws.restore()
            replaced, lost = self.snapshot.restore()
        report_lost(lost, self.snapshot.numbers)
        self._check_writes(inputs)
        keys = [key or "result" for key, _ in outputs]
        return self._build(inputs, keys, wanted, replaced, call_spec, None if flat else result_spec)

    def _execute(self, call: Callable[[Sequence[Shadow]], Any], inputs: Sequence[Shadow]) -> Any:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
            self.snapshot.watch_optimizer(optimizer)

        hook = register_optimizer_step_pre_hook(before_step)
        outer, Shadow.read = Shadow.read, self.recorder.content
        try:
            with tracing_settings(), self.scopes.watching(), self.recorder:
                return call(inputs)
        except Exception as error:
            place = self.recorder.last_line
            if type(error).__module__ == "torch._dynamo.exc":  # torch.while_loop and its kin compile what they get
                misuse = Misuse("torch.while_loop or another function that compiles", f"or after {place}", "", ROUNDS)
                raise UnsupportedOperator.listing([misuse], WHAT_TO_DO) from error
            if NO_DATA in str(error):
                what = "torch reads the elements of a tensor (torch.tensor([a, b]) of tensors)"
                hint = "they are known only when the program runs; join tensors with torch.stack or torch.cat"
                told = DataDependentControlFlow(str(Misuse(what, f"or after {place}", "", hint)))
                told.place = Misuse(what, place, "", hint)
                raise told from error
            if place:
                error.add_note(f"while tracing {self.name}; the last operation was at {place}")
            raise
        finally:
            Shadow.read = outer
            hook.remove()

    def _with_earlier(self, error: TraceError, inputs: Sequence[Shadow]) -> TraceError:
        """The error that ended the run, which names what cannot be compiled of the operations before it, too."""
        recorder = self.recorder
        stand_ins = [*inputs, *(capture.shadow for capture in recorder.tape.captures.values())]
        ends = [shadow for record in recorder.tape.records for shadow in record.results()]
        builder = Builder()

        def free(shadow: Shadow) -> Value | None:
            known = shadow.dtype in DTYPE_OF_TORCH and any(shadow is one for one in stand_ins)
            return builder.input("free", DTYPE_OF_TORCH[shadow.dtype], shadow.shape) if known else None

        lowering = Lowering(builder, free)
        try:
            if recorder.tape.mutates:
                recorder, stand_ins, ends, _ = functionalize(recorder.tape, stand_ins, ends)
            values = lowering.run(recorder, ends)
            error.partial = builder.graph(self.name, list(dict.fromkeys(values)))
        except Exception:  # half a program may end in any way; the first error is the one that counts
            return error
        return error.besides(lowering.misuses) if lowering.misuses else error

    def _check_static(self, result: Mapping[str, Any]) -> None:
        for key, value in result.items():
            if isinstance(value, pytree.STATIC) and value is not None:
                raise TraceError(f"result {key} is {_kind(value)}, not a tensor; wrap it with torch.as_tensor")

    def _output(self, key: str, value: Any) -> Shadow:
        """A result of the function; it may be a tensor of the closure itself."""
        if not isinstance(value, torch.Tensor):
            raise TraceError(f"result {key or 'of ' + self.name} is {_kind(value)}, not a tensor; return tensors only")
        if value.is_complex():
            raise TraceError(
                f"result {key or 'of ' + self.name} is {str(value.dtype).removeprefix('torch.')}; return its parts: "
                "torch.view_as_real(result)"
            )
        self.recorder.origin = ("", "")
        return self.recorder.shadow(value)

    # --- checks ---

    def _check_writes(self, inputs: Sequence[Shadow]) -> None:
        """Raises UnregisteredTensor for an update that would be lost; warns about inputs written in place."""
        lost = [
            capture
            for capture in self.recorder.tape.captures.values()
            if capture.mutated_at
            and id(capture.tensor) not in self.names
            and not self.snapshot.is_gradient(capture.tensor)
        ]
        if lost:
            listed = _listed([f"{_described(capture)} (at {capture.mutated_at})" for capture in lost])
            of_optimizers = any(id(capture.tensor) in self.snapshot.labels for capture in lost)
            also = " and the optimizer (registry.register, or register_optimizer_buffers)" if of_optimizers else ""
            raise UnregisteredTensor(
                f"{self.name} updates {listed}, which {'is' if len(lost) == 1 else 'are'} not registered, so the "
                f"update would be lost; register the tensor{also} with the Context, or write into a copy"
            )

    def _warn_constants(self, constants: Sequence[Capture]) -> None:
        """`constants`: captures of which the graph has the content; of a gradient that was cleared first it has none."""
        used = {id(capture) for capture in constants}
        captures = [
            capture
            for capture in self.recorder.tape.captures.values()
            if id(capture.tensor) not in self.names
            and (id(capture) in used or not self.snapshot.is_gradient(capture.tensor))
        ]
        if not captures:
            return
        gradients = any(self.snapshot.is_gradient(capture.tensor) for capture in captures)
        hint = ", or clear gradients in the function (optimizer.zero_grad())" if gradients else ""
        listed = _listed([_described(capture) for capture in captures])
        warn_user(
            f"{self.name} uses {len(captures)} tensor{'s' if len(captures) > 1 else ''} that "
            f"{'are' if len(captures) > 1 else 'is'} not registered, and now constant: {listed}; "
            f"register what may change{hint}",
            UnregisteredTensorWarning,
        )

    # --- the graph ---

    def _build(
        self,
        inputs: list[Shadow],
        keys: list[str],
        wanted: list[Shadow],
        replaced: Sequence[Replacement],
        call_spec: pytree.Spec | None,
        result_spec: pytree.Spec | None,
    ) -> Traced:
        captures = list(self.recorder.tape.captures.values())
        recorder = self.recorder
        replacements = [item for item in replaced if item.new is not None]
        ends = wanted + [item.new for item in replacements if item.new is not None]
        sources = inputs + [capture.shadow for capture in captures]
        finals: list[Shadow | None] = [None] * len(sources)
        stand_ins = sources
        if recorder.tape.mutates:
            recorder, stand_ins, ends, finals = functionalize(recorder.tape, sources, ends)
        for (key, _), final in zip(self.leaves, finals):
            if final is not None:
                warn_user(
                    f"{self.name} writes into its input {key}; the caller's tensor does not see it: return the result",
                    TraceWarning,
                )
        builder = Builder()
        values: dict[int, Value] = {}
        for (key, tensor), shadow in zip(self.leaves, stand_ins):
            values[id(shadow)] = builder.input(key, DTYPE_OF_TORCH[tensor.dtype], tensor.shape)
        of_shadow = {id(shadow): capture for shadow, capture in zip(stand_ins[len(inputs) :], captures)}
        read: dict[str, Value] = {}
        constants: list[Capture] = []

        def free(shadow: Shadow) -> Value | None:
            """The graph's value of an input, a registered tensor or a constant of the closure."""
            found = values.get(id(shadow))
            capture = of_shadow.get(id(shadow))
            if found is None and capture is not None:
                name = self.names.get(id(capture.tensor))
                if name is not None:
                    tensor = capture.tensor
                    found = read[name] = builder.input(name, DTYPE_OF_TORCH[tensor.dtype], tensor.shape)
                else:
                    found = _captured_constant(builder, capture)
                    constants.append(capture)
                values[id(shadow)] = found
            return found

        news = {self.names[id(item.old)]: end for item, end in zip(replacements, ends[len(wanted) :])}
        for capture, final in zip(captures, finals[len(inputs) :]):
            name = self.names.get(id(capture.tensor))
            if final is not None and name is not None:
                news.setdefault(name, final)
        zeroed = [self.names[id(item.old)] for item in replaced if item.new is None]
        ordered = [name for name in self.state if name in news]
        lowering = Lowering(builder, free)
        built = lowering.run(recorder, [*ends[: len(wanted)], *(news[name] for name in ordered)])
        if lowering.misuses:
            unsupported = UnsupportedOperator.listing(lowering.misuses, WHAT_TO_DO)
            unsupported.partial = builder.graph(self.name, list(dict.fromkeys(built)))
            raise unsupported
        self._warn_constants(constants)
        builder.source = builder.scope = ""
        results = _Results(builder)
        outputs = [results.add(key, value) for key, value in zip(keys, built)]
        updates: dict[str, Value] = {}
        for name, value in zip(ordered, built[len(wanted) :]):
            if read.get(name) != value:
                updates[name] = results.add(f"{name}.next", value)
        for name in zeroed:
            tensor = self.state[name]
            updates[name] = results.add(f"{name}.next", builder.full(tensor.shape, 0, DTYPE_OF_TORCH[tensor.dtype]))
        state = [
            State(name, DTYPE_OF_TORCH[t.dtype], tuple(t.shape), read[name].name if name in read else "", None)
            for name, t in self.state.items()
            if name in read or name in updates
        ]
        random = builder.random_state
        if random is not None:
            advanced = builder.op("Add", random, builder.constant(np.array([0, 1], np.int32)))
            updates[RANDOM_STATE] = results.add(f"{RANDOM_STATE}.next", advanced)
            state.append(State(RANDOM_STATE, "int32", (2,), random.name, None))
        if not outputs and not updates:
            raise TraceError(
                f"{self.name} returns an empty mapping and changes no registered tensor, so that the program would do "
                "nothing; return what it computes"
            )
        order = {name: place for place, name in enumerate([*self.state, RANDOM_STATE])}
        lead = len(self.leaves)
        builder.inputs[lead:] = sorted(
            builder.inputs[lead:], key=lambda value: order[next(s.name for s in state if s.input == value)]
        )
        graph, renamed = results.graph(self.name)
        used = {value for node in graph.nodes for value in node.inputs}
        signature = Signature(
            tuple(
                Input(key, DTYPE_OF_TORCH[tensor.dtype], tuple(tensor.shape), value, value in used)
                for (key, tensor), value in zip(self.leaves, builder.inputs)
            ),
            tuple(
                Output(key, value.dtype, value.shape, renamed[value.name], result.dtype == torch.bfloat16)
                for key, value, result in zip(keys, outputs, wanted)
            ),
            tuple(
                State(s.name, s.dtype, s.shape, s.input, renamed[updates[s.name].name] if s.name in updates else None)
                for s in state
            ),
            call_spec,
            result_spec,
        )
        return Traced(graph, signature)


class _Results:
    """The graph's outputs: each is the result of a node, and carries the name of its key where that is free."""

    def __init__(self, builder: Builder):
        self.builder = builder
        self.values: dict[str, Value] = {}
        self.wanted: dict[str, str] = {}
        self._copies: dict[str, Value] = {}

    def add(self, key: str, value: Value) -> Value:
        """A graph output with this content; an input or constant gets an Identity of its own."""
        computed = value.name not in self.builder.constants and value.name not in self.builder.inputs
        if not computed:
            if value.name not in self._copies:
                self._copies[value.name] = self.builder.op("Identity", value)
            value = self._copies[value.name]
        if value.name not in self.values:
            self.values[value.name] = value
            self.wanted[value.name] = self.builder.names.take(key)
        return value

    def graph(self, name: str) -> tuple[Graph, dict[str, str]]:
        """The Graph with renamed outputs, and old name -> new name of the outputs."""
        from mlsdk.pipeline.trace.rename import renamed_values

        graph = self.builder.graph(name, list(self.values.values()))
        return renamed_values(graph, self.wanted), self.wanted


def _listed(texts: Sequence[str]) -> str:
    """The first ones, each once, and how many there are besides."""
    texts = list(dict.fromkeys(texts))
    more = len(texts) - _LISTED
    return ", ".join(texts[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def _described(capture: Capture) -> str:
    shape = "x".join(map(str, capture.tensor.shape)) or "0-d"
    name = capture.name or f"a tensor first used at {capture.source or user_line() or 'the return'}"
    return f"{name} ({shape})"


def _captured_constant(builder: Builder, capture: Capture) -> Value:
    tensor = capture.tensor.detach()
    if tensor.dtype not in DTYPE_OF_TORCH:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise TraceError(f"{_described(capture)} has dtype {kind}; allowed are {ALLOWED}")
    # a copy: the graph must not change when the user's tensor does
    return builder.constant(dense_array(tensor.clone()), name=capture.name or "constant")
