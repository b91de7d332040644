"""What is written down as canonical JSON and known by its digest."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any


class Written:
    """`_data`: what there is to write."""

    def _data(self) -> dict[str, Any]:
        raise NotImplementedError

    def to_json(self) -> bytes:
        """Canonical: equal values give equal bytes."""
        return (json.dumps(self._data(), indent=1, sort_keys=True, allow_nan=False) + "\n").encode()

    @cached_property
    def digest(self) -> str:
        """Of what `to_json` holds."""
        return hashlib.sha256(json.dumps(self._data(), sort_keys=True).encode()).hexdigest()
