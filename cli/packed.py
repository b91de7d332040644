"""Files that may be packed by zstd."""

from __future__ import annotations

from mlsdk.errors import OptionError

_MAGIC = b"\x28\xb5\x2f\xfd"
LARGEST = 1 << 30
_STEP = 1 << 16


def is_packed(data: bytes) -> bool:
    return data.startswith(_MAGIC)


def unpacked(data: bytes, name: str) -> bytes:
    """The bytes, unpacked where they are a zstd frame. OptionError when they are damaged, or more than LARGEST."""
    if not is_packed(data):
        return data
    import zstandard

    reader, parts, size = zstandard.ZstdDecompressor().decompressobj(), [], 0
    try:
        for start in range(0, len(data), _STEP):
            parts.append(reader.decompress(data[start : start + _STEP]))
            size += len(parts[-1])
            if size > LARGEST:
                raise OptionError(f"{name}: unpacked it has more than {LARGEST:,} bytes; use `zstd -d`")
            if reader.eof:
                return b"".join(parts)
    except zstandard.ZstdError as error:
        raise OptionError(f"{name}: it is damaged (zstd: {error})") from None
    raise OptionError(f"{name}: it is damaged (zstd: it ends too early)")
