"""Loaded programs: an application in a board's DRAM, or a graph that the reference functions execute."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from mlsdk.pipeline.ir.application import Application, Placement
from mlsdk.pipeline.ir.graph import Graph
from mlsdk.pipeline.ir.signature import Signature
from mlsdk.runtime.buffers import BoardBuffer, Buffer, HostBuffer
from mlsdk.runtime.iospec import IOSpec
from mlsdk.runtime.loaded import HostRun, Loaded
from mlsdk.runtime.session import BoardSession


class Program(Protocol):
    """`specs` and `buffers` hold the graph's inputs and outputs by value name; a buffer may be somebody else's."""

    @property
    def signature(self) -> Signature: ...

    @property
    def specs(self) -> Mapping[str, IOSpec]: ...

    @property
    def buffers(self) -> Mapping[str, Buffer]: ...

    def run(self, bound: Mapping[str, Buffer]) -> int:
        """Execute once, reading the inputs from `bound`; the outputs are in `buffers`. The steps that it took."""
        ...


def spec_of(place: Placement) -> IOSpec:
    return IOSpec(place.dtype, place.shape, place.device_dtype, place.layout, place.scheme, place.clean)


class BoardProgram:
    """An application with addresses. `shared`: buffers of others, by the value that lies there; `host_run` computes the
    nodes that the host has."""

    def __init__(
        self,
        application: Application,
        session: BoardSession,
        shared: Mapping[str, BoardBuffer],
        host_run: HostRun | None = None,
    ) -> None:
        self.signature = application.signature
        self.specs = {name: spec_of(place) for name, place in application.values.items()}
        addresses = {application.values[name].segment: buffer.address for name, buffer in shared.items()}
        with session.allocating() as memory:
            self._loaded = Loaded(application, session.board, memory, addresses, host_run)
        # A result may outlive the program, and lies in the program's memory.
        weakref.finalize(self._loaded, session.given_up.extend, self._loaded.own).atexit = False
        self.buffers = {
            name: shared.get(name) or BoardBuffer(session, spec, self._loaded.address_of(name), keeper=self._loaded)
            for name, spec in self.specs.items()
        }
        # The images are on the board now; what is needed from here on is the program alone.
        self._loaded.application = replace(application, data={})

    def run(self, bound: Mapping[str, Buffer]) -> int:
        moved = {}
        for name, buffer in bound.items():
            if buffer is not self.buffers[name]:
                assert isinstance(buffer, BoardBuffer)
                moved[self._loaded.application.values[name].segment] = buffer.address
        return self._loaded.run(moved).total_steps


#: executes a graph: inputs by value name -> outputs by value name
Execute = Callable[[Graph, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


class HostProgram:
    """A graph that `execute` runs on the host."""

    def __init__(self, graph: Graph, signature: Signature, execute: Execute, shared: Mapping[str, HostBuffer]) -> None:
        self.graph, self.signature, self.execute = graph, signature, execute
        self.specs = {
            name: IOSpec(graph.values[name].dtype, graph.values[name].shape) for name in (*graph.inputs, *graph.outputs)
        }
        self.buffers = {name: shared.get(name) or HostBuffer(spec) for name, spec in self.specs.items()}

    def run(self, bound: Mapping[str, Buffer]) -> int:
        # Inputs that nothing reads are not bound; what lies in their buffers does not matter.
        buffers = {**self.buffers, **bound}
        results = self.execute(self.graph, {name: buffers[name].read() for name in self.graph.inputs})
        for name, array in results.items():
            self.buffers[name].write(array)
        return 0
