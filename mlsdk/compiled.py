"""CompiledFunction: a program on a device, called like the Python function that it was made of."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mlsdk.boundary import boundary
from mlsdk.device import spec
from mlsdk.errors import InputMismatch, MLSDKError
from mlsdk.fitting import cast_to, given_array
from mlsdk.pipeline.ir import pytree
from mlsdk.pipeline.ir.graph import type_text
from mlsdk.pipeline.ir.signature import Input, Signature
from mlsdk.proxy import TensorProxy
from mlsdk.registry import DEVICE, Entry, Private
from mlsdk.runtime import events
from mlsdk.runtime.buffers import Buffer
from mlsdk.runtime.iospec import IOSpec
from mlsdk.runtime.programs import Program
from mlsdk.structure import difference
from mlsdk.values import DeviceValue, copy_buffer, copy_value

if TYPE_CHECKING:
    from mlsdk.context import Context

__all__ = ["CompiledFunction"]


@dataclass
class _Call:
    """What a call needs when its turn comes: images for plain tensors, values for proxies, by graph value."""

    packed: dict[str, Any] = field(default_factory=dict)
    values: dict[str, DeviceValue] = field(default_factory=dict)


class CompiledFunction:
    """A compiled function of a Context. Made by `compile`, `compile_automap` and `load_codegen_dir`.

    `input_specs` and `output_specs` hold an IOSpec for each key. `codegen_dir` is the folder with its artifacts.
    """

    def __init__(
        self,
        context: Context,
        name: str,
        program: Program,
        state: Mapping[str, Entry | Private],
        codegen_dir: Path,
    ) -> None:
        self.name = name
        self.codegen_dir = codegen_dir.absolute()  # the program may go to another folder
        self._context = context
        self._session = context._session
        self._program = program
        self._state = state
        self._timeline: Any = None  # read when it is shown for the first time
        self._results: list[weakref.ref[DeviceValue]] = []  # of the last call, in the program's own buffers
        self._steps = 0
        self._defaults: Mapping[str, Callable[[], torch.Tensor]] = {}  # inputs that a call may leave out
        signature = program.signature
        self.input_specs: dict[str, IOSpec] = {e.key: program.specs[e.value] for e in signature.inputs}
        self.output_specs: dict[str, IOSpec] = {e.key: program.specs[e.value] for e in signature.outputs}

    # --- the public interface ---

    @boundary
    def __call__(self, inputs: Mapping[str, Any]) -> Any:
        """Run once with a mapping of tensors, and return a dict of TensorProxy; the device computes meanwhile.

        Keys that the function does not use are ignored, and may be missing. A tensor of another dtype is cast, one element
        may have any shape of one element. Values may be proxies, also of other functions of the Context. Raises
        InputMismatch for missing keys, other shapes, and values that the dtype of the input does not have (integers out
        of its range or of 32 bits, NaN as an integer, numbers that would become infinite); the error of an earlier call
        that nobody has seen yet; ContextError after `invalidate`.
        """
        if not isinstance(inputs, Mapping):
            raise InputMismatch(
                f"{self.name} takes a mapping of names to tensors, not {type(inputs).__name__}; "
                f"its inputs are {', '.join(self.input_specs) or 'none'}"
            )
        missing = [entry.key for entry in self._signature.inputs if entry.used and entry.key not in inputs]
        if missing and self._defaults:
            inputs = {**{key: make() for key, make in self._defaults.items() if key in missing}, **inputs}
            missing = [key for key in missing if key not in inputs]
        if missing:
            raise InputMismatch(
                f"{self.name} lacks the input{'s' if len(missing) > 1 else ''} {', '.join(missing)}; "
                f"given are {', '.join(map(str, inputs)) or 'none'}"
            )
        results = self._run(inputs)
        spec = self._signature.result_spec
        return results if spec is None else pytree.unflatten(spec, lambda path: results[path or "result"])

    @boundary
    def allocate_input_proxy(self) -> dict[str, TensorProxy]:
        """New device buffers, one for each input, as a dict of proxies: fill them with `load_from`, and pass the dict
        (or parts of it) to a call. Raises DeviceError when the board's memory does not suffice."""
        self._check()
        proxies = {}
        for entry in self._signature.inputs:
            buffer = self._session.allocate(self._program.specs[entry.value], f"{self.name} input {entry.key}")
            value = DeviceValue(self._session, f"input {entry.key}", entry.dtype, entry.shape, buffer)
            proxies[entry.key] = self._context._proxy(value)
        return proxies

    @property
    def last_steps(self) -> int:
        """Steps of the last call on the board, moves included; 0 before the first one and on pfvm. Waits for it."""
        self._session.barrier()
        return self._steps

    def __repr__(self) -> str:
        inputs = ", ".join(f"{key}: {spec}" for key, spec in self.input_specs.items())
        return f"CompiledFunction({self.name}({inputs}) -> {', '.join(self.output_specs)})"

    # --- a call ---

    def _layers(self) -> Sequence[Any]:
        """When each node has its turn in a run, as the compile simulated it (exact by construction); for timelines."""
        if self._timeline is None:
            from mlsdk.pipeline.ir.timeline import Timeline

            try:
                self._timeline = Timeline.from_json((self.codegen_dir / "simulation_result.json").read_bytes()).rows
            except (OSError, ValueError, KeyError, MLSDKError):
                self._timeline = ()  # the folder is gone or was compiled anew: no layers are shown
        return self._timeline

    @property
    def _signature(self) -> Signature:
        return self._program.signature

    def _check(self) -> None:
        self._context._check()
        self._session.check()

    def _run(self, inputs: Mapping[str, Any]) -> dict[str, TensorProxy]:
        with self._context._using():
            self._check()
            call = _Call()
            with events.span("call", f"{self.name}: inputs"):
                for entry in self._signature.inputs:
                    if entry.used:
                        self._feed(call, entry, inputs[entry.key])
                self._context._before_call(self._state.values())
                for state in self._state.values():
                    state.send()
            self._await_sources(call)
            values = self._result_values()
            job = _Job(self, call, [weakref.ref(value) for value in values.values()])
            ready: Future[None] = self._session.submit_call(job.run)
            for value in values.values():
                value.ready = ready
            for written in self._signature.state:
                if written.output is not None:
                    self._state[written.name].ready = ready
                    self._state[written.name].newest = DEVICE
        return {e.key: self._context._proxy(values[e.value], e.bfloat16) for e in self._signature.outputs}

    def _result_values(self) -> dict[str, DeviceValue]:
        values = {}
        for entry in self._signature.outputs:
            if entry.value not in values:
                buffer = self._program.buffers[entry.value]
                value = DeviceValue(self._session, f"{self.name} {entry.key}", entry.dtype, entry.shape, buffer)
                value.written = value.kept = True
                values[entry.value] = value
        return values

    def _feed(self, call: _Call, entry: Input, given: Any) -> None:
        if isinstance(given, TensorProxy):
            value = given._value
            self._check_shape(entry, value.dtype, value.shape)
            if value.session is self._session and (value.buffer is not None or value.snapshot is not None):
                if not value.written:
                    raise InputMismatch(f"input {entry.key}: its proxy was never loaded; call load_from first")
                call.values[entry.value] = value
                return
            given = given.cpu()
        array = self._array(entry, given)
        call.packed[entry.value] = self._program.buffers[entry.value].pack(array, f"input {entry.key}")

    def _array(self, entry: Input, given: Any) -> np.ndarray:
        """What was given for an input, as an array of its dtype and shape."""
        array = given_array(given, f"input {entry.key}")
        kind = str(given.dtype).removeprefix("torch.") if isinstance(given, torch.Tensor) else str(array.dtype)
        self._check_shape(entry, kind, array.shape)
        return cast_to(array, entry.dtype, f"input {entry.key} of {self.name}").reshape(entry.shape)

    def _check_shape(self, entry: Input, dtype: str, shape: tuple[int, ...]) -> None:
        if shape == entry.shape or (_count(shape) == 1 and _count(entry.shape) == 1):
            return
        raise InputMismatch(
            f"input {entry.key} of {self.name}: expected {type_text(entry.dtype, entry.shape)}, got "
            f"{type_text(dtype, shape)}; give the shape that the function was compiled for, or compile it again"
        )

    def _await_sources(self, call: _Call) -> None:
        """Wait until the transfers that this call needs have read their sources; their errors come with the job."""
        for value in (*call.values.values(), *self._state.values()):
            if value.packed is not None:
                value.packed.exception()
                value.packed = None


class _Job:
    """A call's turn on the device."""

    def __init__(self, function: CompiledFunction, call: _Call, results: list[weakref.ref[DeviceValue]]) -> None:
        self.function, self.call, self.results = function, call, results

    def run(self) -> None:
        function = self.function
        session, program = function._session, function._program
        with session.memory_lock:
            bound = self._bind()
            # What the call holds must not keep results of the last call alive: they would be copied for nobody.
            self.call = _Call()
            self._rescue()
            begin = events.now()
            steps = program.run(bound)
            end = events.now()
            function._steps = steps
            function._results = self.results
            session.counters.runs += 1
            session.counters.steps += steps
            for state in program.signature.state:
                if state.output is not None:
                    entry = function._state[state.name]
                    assert entry.buffer is not None
                    copy_buffer(session, program.buffers[state.output], entry.buffer, state.name)
            if events.listening():
                self._show(begin, end, steps)

    def _bind(self) -> dict[str, Buffer]:
        """Bring every input where the program can read it. No input lies where the program has its outputs: a program may read
        an input after it has stored a result (pipeline/ops/overlap.py)."""
        function = self.function
        session, program = function._session, function._program
        outputs = {id(program.buffers[entry.value]) for entry in program.signature.outputs}
        bound = {}
        for name, packed in self.call.packed.items():
            bound[name] = own = program.buffers[name]
            own.write(packed)
            own.sent(packed)
            session.counters.uploads += 1
            session.counters.uploaded_bytes += own.nbytes
        needed = {state.input: function._state[state.name] for state in program.signature.state if state.input}
        for name, value in {**self.call.values, **needed}.items():
            own, source = program.buffers[name], value.buffer
            alike = source is not None and source.spec.is_memcopyable_to(own.spec)
            if source is own:
                bound[name] = own
            elif source is not None and alike and value.steady and id(source) not in outputs:
                bound[name] = source
                session.counters.relocations += 1
            else:
                copy_value(value, own)
                bound[name] = own
        return bound

    def _rescue(self) -> None:
        """Move results of the last call that somebody still holds out of the way of the new ones."""
        function = self.function
        session = function._session
        for reference in function._results:
            value = reference()
            if value is None or value.buffer is None or value.snapshot is not None:
                if value is not None:
                    value.buffer = None  # the host has it
                continue
            buffer = session.allocate(value.buffer.spec, value.name)
            copy_buffer(session, value.buffer, buffer, value.name)
            value.buffer, value.steady = buffer, False
        function._results = []

    def _show(self, begin: int, end: int, steps: int) -> None:
        function = self.function
        device = function._session.name
        events.add(function.name, "run", f"{device}: executions", begin, end, steps=steps)
        if not steps:
            return
        total = steps * spec.CYCLES_PER_STEP
        for row in function._layers():
            first, last = (begin + (end - begin) * cycle // total for cycle in (row.start, row.end))
            events.add(row.node, "layer", f"{device}: layers", first, last, operator=row.op, cycles=row.end - row.start)


class CompiledAutomap(CompiledFunction):
    """A function with an ordinary signature: tensors may be nested in its arguments and its result."""

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run once. The arguments have the structure of the sample's; tensors in them are treated as those of
        `CompiledFunction`. The result has the structure of the function's, with a TensorProxy for each tensor."""
        leaves, spec = pytree.flatten({"args": tuple(args), "kwargs": dict(kwargs)})
        wanted = self._signature.call_spec
        assert wanted is not None
        found = difference(wanted, spec)
        if found:
            raise InputMismatch(
                f"{self.name} is called with other arguments than it was compiled for: {found}; give arguments of the same "
                "structure with the same plain values, or compile it for these"
            )
        results = self._run(dict(leaves))
        result_spec = self._signature.result_spec
        if result_spec is None:
            return results
        return pytree.unflatten(result_spec, lambda path: results[path or "result"])


def _count(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
