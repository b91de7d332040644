"""A loaded application: its segments have addresses, its constants lie in DRAM, and it can run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from mlsdk.device import spec
from mlsdk.pipeline.ir.application import Application
from mlsdk.pipeline.ir.bits import from_bits, to_bits
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


class Loaded:
    """`application` in the DRAM of `board`. `shared`: addresses of segments that others own (registered state, inputs)."""

    def __init__(
        self, application: Application, board: Board, memory: Allocator, shared: Mapping[str, int] | None = None
    ):
        self.application, self.board, self.memory = application, board, memory
        self.addresses: dict[str, int] = dict(shared or {})
        self._variants: dict[tuple[tuple[str, int], ...], tuple[Any, ...]] = {}
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
        place = self.application.values[value]
        write_image(self.board, self.address_of(value), place.image.pack(to_bits(array, place.device_dtype, value)))

    def read(self, value: str) -> np.ndarray:
        place = self.application.values[value]
        image = place.image
        return from_bits(
            image.unpack(read_image(self.board, self.address_of(value), image.group_size)),
            place.device_dtype,
            place.dtype,
        )

    def run(self, moved: Mapping[str, int] | None = None) -> Any:
        """Execute once; `moved` gives other addresses for some segments (inputs that lie elsewhere). RunStats."""
        statements = self.application.program.statements
        if not moved:
            return self.board.run(statements, self.addresses)
        # The machine keeps a decoded form for each tuple of statements, with its addresses in it: a program that is
        # called with inputs in turn at a few places gets a tuple for each of them.
        key = tuple(sorted(moved.items()))
        variant = self._variants.pop(key, None) or (*statements,)
        self._variants[key] = variant
        if len(self._variants) > VARIANTS:
            self._variants.pop(next(iter(self._variants)))
        return self.board.run(variant, {**self.addresses, **moved})

    def unload(self) -> None:
        """Give the DRAM back."""
        for address in self.own:
            self.memory.give(address)
        self.own.clear()
