"""Contents of artifacts: `.zst` opened transparently, everything with a limit, and one sentence for each way to be damaged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from mlsdk.cli.dashboard.problems import Missing, Problem
from mlsdk.cli.dashboard.sources import Source

MIB = 1 << 20
#: most of a file that a page reads; the index, in a process of its own, may read more
PAGE_LIMIT = 64 * MIB
INDEX_LIMIT = 1024 * MIB
DOWNLOAD_LIMIT = 4096 * MIB
CHUNK = 1 << 18

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def stored_name(source: Source, name: str) -> str | None:
    """The name under which `name` is stored: itself, or with `.zst` behind it."""
    entries = source.entries()
    return next((stored for stored in (name, name + ".zst") if stored in entries), None)


def chunks(source: Source, stored: str, plain: bool = True, limit: int = PAGE_LIMIT) -> Iterator[bytes]:
    """The content piece by piece, decompressed if it is `.zst` and `plain`. Never silently cut: a Problem is raised."""
    with source.open(stored) as handle:
        if not (plain and stored.endswith(".zst")):
            yield from _raw(handle, stored, limit)
            return
        yield from _decompressed(handle, stored, limit)


def _raw(handle: Any, name: str, limit: int) -> Iterator[bytes]:
    total = 0
    while chunk := handle.read(CHUNK):
        total += len(chunk)
        if total > limit:
            raise too_large(name, total, limit)
        yield chunk


def _decompressed(handle: Any, name: str, limit: int) -> Iterator[bytes]:
    import zstandard

    context = zstandard.ZstdDecompressor(max_window_size=128 * MIB).decompressobj()
    read = total = 0
    try:
        while data := handle.read(CHUNK // 16):
            if context.eof:
                break
            read += len(data)
            plain = context.decompress(data)
            total += len(plain)
            if total > limit:
                raise too_large(name, total, limit)
            if plain:
                yield plain
    except zstandard.ZstdError as error:
        raise Problem(f"{name} is damaged after {total:,} bytes: {error}", 422) from None
    if not context.eof:
        raise Problem(f"{name} is truncated at {read:,} bytes, or still being written", 422)


def too_large(name: str, size: int, limit: int) -> Problem:
    return Problem(f"{name} has more than {size:,} bytes, this page takes {limit:,}; download it instead", 413)


def read(source: Source, name: str, limit: int = PAGE_LIMIT) -> bytes:
    """The plain content of an artifact, stored plainly or as `.zst`."""
    stored = stored_name(source, name)
    if stored is None:
        raise Missing(f"this codegen_dir has no {name}")
    return b"".join(chunks(source, stored, limit=limit))


def read_json(source: Source, name: str, limit: int = PAGE_LIMIT) -> Any:
    """A JSON artifact; numbers that JSON does not have are refused like any other damage."""
    data = read(source, name, limit)
    if not data:
        raise Problem(f"{name} is empty, or still being written", 422)
    try:
        return json.loads(data, parse_constant=_refuse)
    except RecursionError:
        raise Problem(f"{name} is nested too deeply", 422) from None
    except ValueError as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise Problem(
            f"{name} is not JSON, or still being written{where}: {getattr(error, 'msg', error)}", 422
        ) from None


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def mapping(source: Source, name: str, limit: int = PAGE_LIMIT) -> dict[str, Any]:
    """A JSON artifact that has to be an object."""
    data = read_json(source, name, limit)
    if not isinstance(data, dict):
        raise Problem(f"{name} holds {type(data).__name__}, not an object", 422)
    return data


def printable(text: str) -> str:
    """Text without control characters: ANSI colours go, everything else that steers is shown as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else f"\\x{ord(c):02x}" for c in _ANSI.sub("", text))
