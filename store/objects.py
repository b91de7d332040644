"""Bytes under their own digest: `objects/aa/<62 hex digits>`.

A file is a header of 24 bytes and a payload. The header holds the codec and both sizes, so that a cut, a joined or an
exchanged file is found before anything is allocated, and the digest is of the plain bytes, so that nothing that reads
differently is ever handed out.

    magic "OMO1" | codec "z" zstd or "r" raw | 3 zero bytes | size, u64 | payload size, u64      little-endian
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard

from mlsdk.store import digest as digests
from mlsdk.store import files
from mlsdk.store.errors import ObjectDamaged, ObjectMissing

_HEADER = struct.Struct("<4sc3sQQ")
_MAGIC = b"OMO1"
_LEVEL = 3
_WORTH = 0.9  # compressed only when it saves at least a tenth

Stat = tuple[int, int, int, int]  # inode, size, mtime in ns, ctime in ns


@dataclass(frozen=True)
class Stored:
    """An object in its place."""

    digest: str
    size: int
    stored: int  # bytes of the file
    codec: str
    new: bool  # this call wrote it


class Objects:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "objects"
        self.temporary = root / "tmp"
        self.quarantine = root / "quarantine"

    def path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest[2:]

    def stat(self, digest: str) -> Stat | None:
        """What the file system says about the file; None when there is none."""
        try:
            facts = os.lstat(self.path(digest))
        except FileNotFoundError:
            return None
        return (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)

    def put_many(self, contents: Sequence[bytes]) -> list[Stored]:
        """Publish each of `contents`; on return all are on the disk. Equal contents are one object."""
        names = [digests.of_bytes(content) for content in contents]
        results: dict[str, Stored] = {}
        waiting: dict[Path, Path] = {}
        try:
            for digest, content in zip(names, contents):
                if digest in results:
                    continue
                known = self._usable(digest, len(content))
                if known is not None:
                    results[digest] = Stored(digest, len(content), known, "", False)
                    continue
                codec, chunks = encode(content)
                waiting[self.path(digest)] = files.write_aside(self.temporary, chunks, "object")
                results[digest] = Stored(digest, len(content), sum(map(len, chunks)), codec, True)
            for target, temporary in waiting.items():
                files.place(temporary, target, "object")
            # Also for objects that were there: who renamed them may not have come to its own fsync.
            files.fsync_folders((self.path(digest).parent for digest in results), "object")
        except OSError as error:
            raise files.explain(error, self.root, sum(map(len, contents))) from error
        finally:
            for temporary in waiting.values():
                files.remove(temporary)
        return [results[digest] for digest in names]

    def read(self, digest: str, size: int | None = None) -> bytes:
        """The bytes of an object, verified. `size` is what the index says, and the cap."""
        path = self.path(digest)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise ObjectMissing(f"object {digest}: the file is missing", digest) from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EIO):
                raise ObjectDamaged(f"object {digest}: {error.strerror}", digest) from error
            raise
        try:
            with open(descriptor, "rb", buffering=0) as file:
                header, payload = file.read(_HEADER.size), file.read()
        except OSError as error:
            if error.errno in (errno.EIO, errno.EISDIR):
                raise ObjectDamaged(f"object {digest}: {error.strerror}", digest) from error
            raise
        try:
            content = decode(header, payload, size)
        except ValueError as error:
            raise ObjectDamaged(f"object {digest}: {error}", digest) from None
        if digests.of_bytes(content) != digest:
            raise ObjectDamaged(f"object {digest}: its bytes have another digest", digest)
        return content

    def move_to_quarantine(self, digest: str) -> Path | None:
        """Take a bad file out of its place, and keep it; None when there is no file."""
        target = self._quarantine_path(digest)
        try:
            os.rename(self.path(digest), target)
        except FileNotFoundError:
            return None
        return target

    def walk(self) -> Iterator[tuple[str | None, Path]]:
        """(digest, path) of every file below the folder; the digest is None where the name is not one of ours."""
        for folder in sorted(os.scandir(self.folder), key=lambda entry: entry.name):
            if not folder.is_dir(follow_symlinks=False):
                yield None, Path(folder.path)
                continue
            for entry in sorted(os.scandir(folder.path), key=lambda entry: entry.name):
                name = folder.name + entry.name
                plain = entry.is_file(follow_symlinks=False)
                yield (name if plain and digests.is_digest(name) else None), Path(entry.path)

    def _usable(self, digest: str, size: int) -> int | None:
        """Bytes of the file when the object is there and whole. A damaged one is kept in quarantine and replaced.

        It stays in its place until the good one is renamed over it: other rows may name it at this moment.
        """
        try:
            self.read(digest, size)
        except ObjectMissing:
            return None
        except ObjectDamaged:
            keep_copy(self.path(digest), self._quarantine_path(digest))
            return None
        facts = self.stat(digest)
        return facts[1] if facts else None

    def _quarantine_path(self, digest: str) -> Path:
        number = 0
        while (path := self.quarantine / f"{digest}.{number}").exists():
            number += 1
        return path


def keep_copy(path: Path, target: Path) -> None:
    """A second name, or a copy where the file system has no hard links."""
    try:
        os.link(path, target, follow_symlinks=False)
    except FileNotFoundError:
        pass
    except OSError:
        target.write_bytes(files.read_regular(path))


def encode(content: bytes) -> tuple[str, list[files.Buffer]]:
    """The codec and the chunks of the file that holds `content`."""
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=True)
    packed = compressor.compress(content)
    codec, payload = ("z", packed) if len(packed) < _WORTH * len(content) else ("r", content)
    return codec, [_HEADER.pack(_MAGIC, codec.encode(), bytes(3), len(content), len(payload)), payload]


def decode(header: bytes, payload: bytes, size: int | None) -> bytes:
    """The content of a file; ValueError says what is wrong with it."""
    if len(header) < _HEADER.size:
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
        return payload
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


def sizes(path: Path) -> tuple[int, str]:
    """Plain size and codec from the header alone, the content unverified. ValueError: there is no header."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        header = os.read(descriptor, _HEADER.size)
    finally:
        os.close(descriptor)
    if len(header) < _HEADER.size:
        raise ValueError(f"the file is cut after {len(header)} bytes")
    magic, codec, _zeros, declared, _stored = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise ValueError("the header is not one of ours")
    return declared, codec.decode()
