"""The planner's rules for reading and writing at indices that are computed at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlsdk.errors import LayoutError
from mlsdk.pipeline.ir.graph import Node

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner


def gather(planner: Planner, node: Node) -> None:
    raise LayoutError(f"{node.name}: {node.op} at indices that are computed at run time has no emitter")


def scatter(planner: Planner, node: Node) -> None:
    raise LayoutError(f"{node.name}: {node.op} at indices that are computed at run time has no emitter")
