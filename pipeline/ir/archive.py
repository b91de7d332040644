"""Bytes in and out: zstd frames and archives of arrays, deterministic and without pickle."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import numpy as np
import zstandard

from mlsdk.errors import GraphError

#: what a damaged or hostile frame may claim at most
MAX_SIZE = 1 << 40
_EPOCH = (1980, 1, 1, 0, 0, 0)


def compress(data: bytes) -> bytes:
    """One zstd frame with content size and checksum."""
    return zstandard.ZstdCompressor(level=3, write_checksum=True, write_content_size=True).compress(data)


def decompress(data: bytes, name: str = "file") -> bytes:
    """Raises GraphError when the frame is damaged, cut off or followed by other bytes."""
    try:
        size = zstandard.frame_content_size(data)
        if size < 0 or size > MAX_SIZE:
            raise GraphError(f"{name} declares no size, or {size} bytes; it is not one of ours")
        decompressor = zstandard.ZstdDecompressor().decompressobj()
        result = decompressor.decompress(data)
        if not decompressor.eof or decompressor.unused_data or len(result) != size:
            raise GraphError(f"{name} is cut off or followed by other bytes; compile the function again")
        return result
    except zstandard.ZstdError as error:
        raise GraphError(f"{name} is damaged ({error}); compile the function again") from error


def pack_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """An .npz archive whose bytes depend on nothing but names and contents."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(arrays):
            member = io.BytesIO()
            np.lib.format.write_array(
                member, np.ascontiguousarray(arrays[name]).reshape(arrays[name].shape), allow_pickle=False
            )
            archive.writestr(zipfile.ZipInfo(name + ".npy", _EPOCH), member.getvalue())
    return buffer.getvalue()


def unpack_arrays(data: bytes, name: str = "arrays") -> dict[str, np.ndarray]:
    """Raises GraphError when the archive is damaged."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            found = {}
            for member in archive.namelist():
                found[member.removesuffix(".npy")] = np.lib.format.read_array(
                    io.BytesIO(archive.read(member)), allow_pickle=False
                )
            return found
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, OSError) as error:
        raise GraphError(f"{name} is damaged ({error}); build it again") from error
