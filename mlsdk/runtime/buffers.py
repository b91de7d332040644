"""Places for one tensor: in a board's DRAM, or in host memory for `pfvm`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mlsdk.pipeline.ir.graph import DTYPES
from mlsdk.runtime import packing
from mlsdk.runtime.iospec import IOSpec
from mlsdk.runtime.loaded import read_image, write_image

if TYPE_CHECKING:
    from mlsdk.runtime.session import BoardSession


class Buffer(Protocol):
    """`pack` and `unpack` may run in any thread; the others touch device memory: hold the session's `memory_lock`."""

    spec: IOSpec

    @property
    def nbytes(self) -> int: ...

    def pack(self, array: np.ndarray, name: str) -> Any: ...

    def unpack(self, packed: Any) -> np.ndarray: ...

    def write(self, packed: Any) -> None: ...

    def sent(self, packed: Any) -> None:
        """Nobody needs what `pack` gave any more."""
        ...

    def read(self) -> Any: ...


class BoardBuffer:
    """The same range of DRAM in all groups. With a `keeper` the range is that one's, else it is given back at the end."""

    def __init__(self, session: BoardSession, spec: IOSpec, address: int, keeper: Any = None) -> None:
        self.session, self.spec, self.address, self.keeper = session, spec, address, keeper

    @property
    def nbytes(self) -> int:
        return 4 * 8 * self.spec.image.group_size

    def pack(self, array: np.ndarray, name: str) -> np.ndarray:
        return packing.pack(self.spec.image, array, name, self.session.staging.reuse(self.spec.image))

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        return packing.unpack(self.spec.image, packed, self.spec.dtype)

    def write(self, packed: np.ndarray) -> None:
        write_image(self.session.board, self.address, packed)

    def sent(self, packed: np.ndarray) -> None:
        self.session.staging.keep(self.spec.image, packed)

    def read(self) -> np.ndarray:
        return read_image(self.session.board, self.address, self.spec.image.group_size)

    def __del__(self) -> None:
        if self.keeper is None:
            self.session.given_up.append(self.address)


class HostBuffer:
    """An array that is replaced, never changed in place."""

    def __init__(self, spec: IOSpec) -> None:
        self.spec = spec
        self.array = np.zeros(spec.shape, DTYPES[spec.dtype])

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    def pack(self, array: np.ndarray, name: str) -> np.ndarray:
        return np.array(array, DTYPES[self.spec.dtype])

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        return packed

    def write(self, packed: np.ndarray) -> None:
        self.array = packed

    def sent(self, packed: np.ndarray) -> None:
        """It is the content now."""

    def read(self) -> np.ndarray:
        return self.array
