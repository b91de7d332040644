"""The room for host data on its way to a device."""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable

import numpy as np

from mlsdk.errors import OptionError

DEFAULT_BYTES = 512 * 1024 * 1024

# Less than this is not worth keeping.
SMALLEST = 1 << 20


class Staging:
    """At most `size` bytes are under way ($MLSDK_STAGING_BYTES); a single transfer may be larger, then it goes alone."""

    def __init__(self, size: int | None = None) -> None:
        self.size = _size() if size is None else size
        self.used = 0
        self.waits = 0  # how often somebody had to wait for room
        self._room = threading.Condition()
        self._spare: dict[Hashable, list[np.ndarray]] = {}
        self._spare_bytes = 0

    # --- memory that was used before: fresh memory costs about as much as the transfer itself ---

    def reuse(self, image: Hashable) -> np.ndarray | None:
        """Memory that an image of the same kind has lain in."""
        with self._room:
            arrays = self._spare.get(image)
            if not arrays:
                return None
            array = arrays.pop()
            self._spare_bytes -= array.nbytes
            return array

    def keep(self, image: Hashable, array: np.ndarray) -> None:
        """Keep memory for `reuse`, as far as there is room."""
        with self._room:
            if array.nbytes >= SMALLEST and self._spare_bytes + array.nbytes <= self.size // 2:
                self._spare.setdefault(image, []).append(array)
                self._spare_bytes += array.nbytes

    # --- room ---

    def take(self, count: int) -> None:
        """Wait until there is room for `count` bytes."""
        with self._room:
            if self.used and self.used + count > self.size:
                self.waits += 1
                self._room.wait_for(lambda: not self.used or self.used + count <= self.size)
            self.used += count

    def give(self, count: int) -> None:
        with self._room:
            self.used -= count
            self._room.notify_all()


def _size() -> int:
    text = os.environ.get("MLSDK_STAGING_BYTES", "")
    if not text:
        return DEFAULT_BYTES
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise OptionError(f"MLSDK_STAGING_BYTES={text!r:.40}: give a number of bytes above 0")
    return int(text)
