"""Placements of inputs that were decided earlier, as a file: placements.json."""

from __future__ import annotations

import json
from collections.abc import Mapping

from mlsdk.pipeline.ir.layout import Layout
from mlsdk.pipeline.ir.placed import scheme_from_json, scheme_to_json
from mlsdk.pipeline.layout.planner import Fixed


def fixed_to_json(fixed: Mapping[str, Fixed]) -> bytes:
    """Input name -> layout, device dtype and scheme, canonical."""
    data = {name: [str(f.layout), f.device_dtype, scheme_to_json(f.scheme)] for name, f in fixed.items()}
    return (json.dumps(data, sort_keys=True, indent=1) + "\n").encode()


def fixed_from_json(data: bytes) -> dict[str, Fixed]:
    return {
        name: Fixed(Layout.parse(layout), dtype, scheme_from_json(scheme))
        for name, (layout, dtype, scheme) in json.loads(data).items()
    }
