"""Bytes under their own digest: `objects/aa/<62 hex digits>`.

A file is a header of 24 bytes and a payload. The header holds the codec and both sizes, so that a cut, a joined or an
exchanged file is found before anything is allocated, and the digest is of the plain bytes, so that nothing that reads
differently is ever handed out.

    magic "OMO1" | codec "z" zstd or "r" raw | 3 zero bytes | size, u64 | payload size, u64      little-endian
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard

from mlsdk.store import digest as digests
from mlsdk.store import files
from mlsdk.store.errors import ObjectDamaged, ObjectMissing
from mlsdk.store.tree import BAD_FILE, Stat, Tree, plain_files

_HEADER = struct.Struct("<4sc3sQQ")
HEADER_SIZE = _HEADER.size
_MAGIC = b"OMO1"
_LEVEL = 3
_WORTH = 0.9  # compressed only when it saves at least a tenth


@dataclass(frozen=True)
class Stored:
    """An object in its place."""

    digest: str
    size: int
    stored: int  # bytes of the file
    codec: str
    new: bool  # this call wrote it


class Objects:
    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def name(self, digest: str) -> str:
        """Its name inside the store."""
        return f"objects/{digest[:2]}/{digest[2:]}"

    def path(self, digest: str) -> Path:
        """Its file, where the store is a folder."""
        return self.tree.path(self.name(digest))

    def stat(self, digest: str) -> Stat | None:
        """What is known of the file without reading it; None when there is none."""
        return self.tree.stat(self.name(digest))

    def put_many(self, contents: Sequence[bytes]) -> list[Stored]:
        """Publish each of `contents`; on return all are on the disk. Equal contents are one object."""
        names = [digests.of_bytes(content) for content in contents]
        results: dict[str, Stored] = {}
        places: list[str] = []

        def fresh() -> Iterator[tuple[str, list[files.Buffer]]]:
            for digest, content in zip(names, contents):
                if digest in results:
                    continue
                places.append(self.name(digest))
                known = self._usable(digest, len(content))
                if known is not None:
                    results[digest] = Stored(digest, len(content), known, "", False)
                    continue
                codec, chunks = encode(content)
                results[digest] = Stored(digest, len(content), sum(map(len, chunks)), codec, True)
                yield self.name(digest), chunks

        try:
            self.tree.write(fresh(), "object", places)
        except OSError as error:
            raise self.tree.explain(error, sum(map(len, contents))) from error
        return [results[digest] for digest in names]

    def put_encoded(self, digest: str, data: bytes, size: int) -> Stored:
        """Publish the bytes of an object's file that came from another store; ObjectDamaged when they are not whole."""
        return self.put_many([decoded(digest, data, size)])[0]

    def read(self, digest: str, size: int | None = None) -> bytes:
        """The bytes of an object, verified. `size` is what the index says, and the cap."""
        return decoded(digest, self.read_encoded(digest), size)

    def read_encoded(self, digest: str) -> bytes:
        """The bytes of an object's file, as they are."""
        try:
            return self.tree.read(self.name(digest))
        except FileNotFoundError:
            raise ObjectMissing(f"object {digest}: the file is missing", digest) from None
        except OSError as error:
            if error.errno in BAD_FILE:
                raise ObjectDamaged(f"object {digest}: {error.strerror}", digest) from error
            raise

    def move_to_quarantine(self, digest: str) -> str | None:
        """Take a bad file out of its place, and keep it; None when there is no file."""
        target = self._quarantine_name(digest)
        return target if self.tree.move(self.name(digest), target) else None

    def walk(self) -> Iterator[tuple[str | None, str]]:
        """(digest, name) of every file in `objects`; the digest is None where the name is not one of ours."""
        for name, digest in plain_files(self.tree, "objects"):
            yield (digest if digests.is_digest(digest) else None), name

    def _usable(self, digest: str, size: int) -> int | None:
        """Bytes of the file when the object is there and whole. A damaged one is kept in quarantine and replaced.

        It stays in its place until the good one is written over it: other rows may name it at this moment.
        """
        try:
            self.read(digest, size)
        except ObjectMissing:
            return None
        except ObjectDamaged:
            self.tree.keep_copy(self.name(digest), self._quarantine_name(digest))
            return None
        facts = self.stat(digest)
        return facts[1] if facts else None

    def _quarantine_name(self, digest: str) -> str:
        number = 0
        while self.tree.stat(name := f"quarantine/{digest}.{number}") is not None:
            number += 1
        return name


def encode(content: bytes) -> tuple[str, list[files.Buffer]]:
    """The codec and the chunks of the file that holds `content`."""
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=True)
    packed = compressor.compress(content)
    codec, payload = ("z", packed) if len(packed) < _WORTH * len(content) else ("r", content)
    return codec, [_HEADER.pack(_MAGIC, codec.encode(), bytes(3), len(content), len(payload)), payload]


def decode(header: bytes, payload: memoryview, size: int | None) -> bytes:
    """The content of a file; ValueError says what is wrong with it."""
    if len(header) < HEADER_SIZE:
        raise ValueError(f"the file is cut after {len(header)} bytes")
    magic, codec, zeros, declared, stored = _HEADER.unpack(header)
    if magic != _MAGIC or zeros != bytes(3) or codec not in (b"z", b"r"):
        raise ValueError("the header is not one of ours")
    if size is not None and declared != size:
        raise ValueError(f"the index says {size:,} bytes, the header {declared:,}")
    if stored != len(payload):
        raise ValueError(f"the payload has {len(payload):,} bytes, the header says {stored:,}")
    if codec == b"r":
        if declared != stored:
            raise ValueError("the sizes in the header differ")
        return bytes(payload)
    try:
        # The frame's own size decides what zstd allocates, so it is compared before anything is unpacked.
        frame = zstandard.get_frame_parameters(payload)
        if frame.content_size != declared or not frame.has_checksum:
            raise ValueError("the zstd frame's header differs from ours")
        content = zstandard.ZstdDecompressor().decompress(payload, read_across_frames=False, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(f"zstd: {error}") from None
    if len(content) != declared:
        raise ValueError(f"unpacked {len(content):,} bytes instead of {declared:,}")
    return content


def decoded(digest: str, data: bytes, size: int | None) -> bytes:
    """The content of an object's file; ObjectDamaged unless it is what the digest names, and of that size."""
    try:
        content = decode(data[:HEADER_SIZE], memoryview(data)[HEADER_SIZE:], size)
    except ValueError as error:
        raise ObjectDamaged(f"object {digest}: {error}", digest) from None
    if digests.of_bytes(content) != digest:
        raise ObjectDamaged(f"object {digest}: its bytes have another digest", digest)
    return content


def size_in_header(tree: Tree, name: str) -> int:
    """Plain size from the header alone, the content unverified. ValueError: there is no header."""
    header = tree.read(name, HEADER_SIZE)
    if len(header) < HEADER_SIZE:
        raise ValueError(f"the file is cut after {len(header)} bytes")
    magic, _codec, _zeros, declared, _stored = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise ValueError("the header is not one of ours")
    return int(declared)
