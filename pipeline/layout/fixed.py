"""Placements of inputs and outputs that were decided earlier, as a file: placements.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mlsdk.pipeline.ir.layout import Layout
from mlsdk.pipeline.ir.placed import scheme_from_json, scheme_to_json
from mlsdk.pipeline.layout.planner import Fixed


def fixed_to_json(fixed: Mapping[str, Fixed | str]) -> bytes:
    """Name -> layout, device dtype and scheme, or the name of the input beside which an output lies; canonical."""
    data = {name: _to_json(place) for name, place in fixed.items()}
    return (json.dumps(data, sort_keys=True, indent=1) + "\n").encode()


def fixed_from_json(data: bytes) -> dict[str, Fixed | str]:
    return {name: _from_json(place) for name, place in json.loads(data).items()}


def _to_json(place: Fixed | str) -> Any:
    if isinstance(place, str):
        return place
    return [str(place.layout), place.device_dtype, scheme_to_json(place.scheme)]


def _from_json(place: Any) -> Fixed | str:
    if isinstance(place, str):
        return place
    layout, dtype, scheme = place
    return Fixed(Layout.parse(layout), dtype, scheme_from_json(scheme))
