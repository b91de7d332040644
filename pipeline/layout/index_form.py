"""The one form to which operators are brought that read or write at indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlsdk.pipeline.ir.graph import Attr

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner


@dataclass(frozen=True)
class Form:
    """`shape`: of the result of a read, or of the updates of a write. `data_axes`, `index_axes`: for each axis of the data
    and of the indices, the axis of `shape` (-1: the rows; the components of an index). `components`: (extent, stride)."""

    data: str
    index: str
    shape: tuple[int, ...]
    row_axis: int
    rows: int
    data_axes: tuple[int, ...]
    index_axes: tuple[int, ...]
    components: tuple[tuple[int, int], ...]

    @property
    def columns(self) -> list[int]:
        return [a for a in self.data_axes if a >= 0]

    @property
    def shared(self) -> list[int]:
        """Columns that have indices of their own."""
        return [a for a in self.columns if a in self.index_axes]

    @property
    def free(self) -> list[int]:
        """Axes of places (or updates) that the data do not have."""
        return [a for a in range(len(self.shape)) if a not in self.data_axes]

    def attrs(self) -> dict[str, Attr]:
        return {
            "row_axis": self.row_axis,
            "data_axes": self.data_axes,
            "index_axes": self.index_axes,
            "components": tuple(x for pair in self.components for x in pair),
        }


def viewed(planner: Planner, name: str, shape: tuple[int, ...]) -> str:
    """The value in another shape."""
    seen = planner.temporary(name, shape)
    planner.seen_as(name, seen)
    return seen
