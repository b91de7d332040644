"""A loaded application: its segments have addresses, its constants lie in DRAM, and it can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mlsdk.device import spec
from mlsdk.device.isa import model as m
from mlsdk.pipeline.ir.application import Application, HostNode, Placement
from mlsdk.pipeline.ir.bits import from_bits, to_bits
from mlsdk.pipeline.ir.graph import Node
from mlsdk.runtime.memory import Allocator


class Board(Protocol):
    """What the runtime needs of a board."""

    def write_dram(self, group: int, address: int, data: np.ndarray) -> None: ...

    def read_dram(self, group: int, address: int, count: int) -> np.ndarray: ...

    def run(self, statements: Any, symbols: Mapping[str, int]) -> Any: ...


def write_image(board: Board, address: int, image: np.ndarray) -> None:
    """uint64[4][n] (or [1][n], the same for all) to the same address in all groups."""
    for group in range(spec.GROUPS):
        board.write_dram(group, address, image[group if image.shape[0] > 1 else 0])


def read_image(board: Board, address: int, count: int) -> np.ndarray:
    return np.stack([board.read_dram(group, address, count) for group in range(spec.GROUPS)])


#: places of inputs for which a program is kept decoded
VARIANTS = 6


#: computes one node on the host: its operands -> its results
HostRun = Callable[[Node, "list[np.ndarray | None]"], "list[np.ndarray]"]


@dataclass
class Steps:
    """What a run took."""

    total_steps: int = 0
    pe_steps: int = 0


@dataclass(frozen=True)
class Stretch:
    """Statements that run without a stop; before them the host computes a node, if there is one."""

    host: HostNode | None
    statements: tuple[m.Statement, ...]


def stretches(statements: Sequence[m.Statement], host: Mapping[str, HostNode]) -> Iterator[Stretch]:
    """A program, cut at the markers of the nodes that the host computes."""
    node, start = None, 0
    for i, s in enumerate(statements):
        if isinstance(s, m.Marker) and s.name in host:
            yield Stretch(node, tuple(statements[start:i]))
            node, start = host[s.name], i
    yield Stretch(node, tuple(statements[start:]))


class Loaded:
    """`application` in the DRAM of `board`. `shared`: addresses of segments that others own (registered state, inputs).
    `host_run` computes the nodes of `application.host`."""

    def __init__(
        self,
        application: Application,
        board: Board,
        memory: Allocator,
        shared: Mapping[str, int] | None = None,
        host_run: HostRun | None = None,
    ):
        self.application, self.board, self.memory, self.host_run = application, board, memory, host_run
        self.addresses: dict[str, int] = dict(shared or {})
        self._stretches = list(stretches(application.program.statements, application.host))
        self._variants: dict[tuple[tuple[str, int], ...], list[Stretch]] = {}
        self.own: list[int] = []  # addresses of the segments that nobody else owns
        try:
            for segment in application.program.segments.values():
                if segment.name not in self.addresses:
                    self.addresses[segment.name] = memory.take(segment.size, segment.name)
                    self.own.append(self.addresses[segment.name])
            for name, image in application.data.items():
                if not shared or name not in shared:
                    write_image(board, self.addresses[name], image)
        except BaseException:
            self.unload()
            raise

    def address_of(self, value: str) -> int:
        place = self.application.values[value]
        return self.addresses[place.segment] + place.offset

    def write(self, value: str, array: np.ndarray) -> None:
        """Transpose an array into the layout of a graph value, and write it."""
        self._write(self.application.values[value], self.addresses, array, value)

    def read(self, value: str) -> np.ndarray:
        return self._read(self.application.values[value], self.addresses)

    def _write(self, place: Placement, addresses: Mapping[str, int], array: np.ndarray, name: str) -> None:
        address = addresses[place.segment] + place.offset
        write_image(self.board, address, place.image.pack(to_bits(array, place.device_dtype, name)))

    def _read(self, place: Placement, addresses: Mapping[str, int]) -> np.ndarray:
        image = place.image
        found = image.unpack(read_image(self.board, addresses[place.segment] + place.offset, image.group_size))
        return from_bits(found, place.device_dtype, place.dtype)

    def run(self, moved: Mapping[str, int] | None = None) -> Steps:
        """Execute once; `moved` gives other addresses for some segments (inputs that lie elsewhere)."""
        if not moved:
            return self._run(self._stretches, self.addresses)
        # The machine keeps a decoded form for each tuple of statements, with its addresses in it: a program that is
        # called with inputs in turn at a few places gets a tuple for each of them.
        key = tuple(sorted(moved.items()))
        variant = self._variants.pop(key, None) or [Stretch(s.host, (*s.statements,)) for s in self._stretches]
        self._variants[key] = variant
        if len(self._variants) > VARIANTS:
            self._variants.pop(next(iter(self._variants)))
        return self._run(variant, {**self.addresses, **moved})

    def _run(self, parts: Sequence[Stretch], addresses: Mapping[str, int]) -> Steps:
        total = Steps()
        for part in parts:
            if part.host is not None:
                self._on_host(part.host, addresses)
            stats = self.board.run(part.statements, addresses)
            total.total_steps += int(stats.total_steps)
            total.pe_steps += int(stats.pe_steps)
        return total

    def _on_host(self, call: HostNode, addresses: Mapping[str, int]) -> None:
        """Compute a node from what the program left in DRAM so far."""
        assert self.host_run is not None, f"{call.node.name} is computed on the host, and nobody says how"
        operands = [self._read(place, addresses) if place else None for place in call.inputs]
        for name, place, array in zip(call.node.outputs, call.outputs, self.host_run(call.node, operands)):
            if place is not None:
                self._write(place, addresses, array, name)

    def unload(self) -> None:
        """Give the DRAM back."""
        for address in self.own:
            self.memory.give(address)
        self.own.clear()
