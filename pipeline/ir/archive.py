"""Bytes in and out: zstd frames and archives of arrays, deterministic and without pickle."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import numpy as np
import zstandard

from mlsdk.device import spec
from mlsdk.errors import GraphError

#: what a frame may hold: all DRAM of a board. More cannot be loaded, and is not unpacked
MAX_SIZE = spec.GROUPS * spec.DRAM_LW * 8
_DENSEST = 1 << 15  # bytes that a byte of a frame can stand for: a block of 4 bytes holds 128 KiB at most
_EPOCH = (1980, 1, 1, 0, 0, 0)


def compress(data: bytes) -> bytes:
    """One zstd frame with content size and checksum."""
    return zstandard.ZstdCompressor(level=3, write_checksum=True, write_content_size=True).compress(data)


def decompress(data: bytes, name: str = "file", limit: int = MAX_SIZE) -> bytes:
    """Raises GraphError when the frame is damaged, cut off or followed by other bytes, or declares more than `limit` bytes
    or than its own length can hold: that is refused before memory is taken for it."""
    try:
        size = zstandard.frame_content_size(data)
        if size < 0 or size > min(limit, _DENSEST * len(data)):
            told = "no size" if size < 0 else f"{size:,} bytes in {len(data):,}, {limit:,} are the most"
            raise GraphError(f"{name} declares {told}: it is not one of ours; compile the function again")
        if size == 0 and data != compress(b""):  # the library looks no further then
            raise GraphError(f"{name} declares 0 bytes, and has some; compile the function again")
        reader = zstandard.ZstdDecompressor()
        return reader.decompress(data, read_across_frames=False, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise GraphError(
            f"{name} is damaged, cut off or followed by other bytes ({error}); compile the function again"
        ) from error


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
