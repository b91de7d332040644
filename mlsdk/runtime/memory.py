"""DRAM of a board, given out in pieces that have the same address in all four groups."""

from __future__ import annotations

from mlsdk.device import spec
from mlsdk.errors import DeviceError

ALIGN = 64  # LW


class Allocator:
    """First fit over the DRAM of a group, in LW."""

    def __init__(self, size: int = spec.DRAM_LW) -> None:
        self.size = size
        self._holes: list[tuple[int, int]] = [(0, size)]
        self._taken: dict[int, int] = {}

    def take(self, size: int, name: str = "") -> int:
        """The address of `size` LW. Raises DeviceError with the room that is left."""
        size = max(ALIGN, -(-size // ALIGN) * ALIGN)
        for i, (start, room) in enumerate(self._holes):
            if room >= size:
                self._holes[i : i + 1] = [(start + size, room - size)] if room > size else []
                self._taken[start] = size
                return start
        raise DeviceError(
            f"no room in DRAM for {name or 'a segment'}: {size * 8:,} bytes are needed in each group, {self.free * 8:,} are "
            f"free, {self.largest * 8:,} in one piece; drop functions or Contexts that are no longer used"
        )

    def give(self, start: int) -> None:
        self._holes.append((start, self._taken.pop(start)))
        self._holes.sort()
        merged: list[tuple[int, int]] = []
        for hole in self._holes:
            if merged and merged[-1][0] + merged[-1][1] == hole[0]:
                merged[-1] = (merged[-1][0], merged[-1][1] + hole[1])
            else:
                merged.append(hole)
        self._holes = merged

    @property
    def free(self) -> int:
        return sum(room for _, room in self._holes)

    @property
    def largest(self) -> int:
        return max((room for _, room in self._holes), default=0)
