from __future__ import annotations

import os
import struct

import pytest
import zstandard
from invariants import flip, overwrite, positions

from mlsdk.store import ObjectDamaged, ObjectLost, ObjectMissing, digest_of

TEXT = b"a line of a program\n" * 500
NOISE = os.urandom(3000)


def put(store, data):
    return store.objects.put_many([data])[0]


@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, bytes(100_000), TEXT + NOISE])
def test_an_object_reads_back(store, data):
    stored = put(store, data)
    assert stored.digest == digest_of(data)
    assert store.objects.read(stored.digest, len(data)) == data


def test_compressed_only_when_it_saves_a_tenth(store):
    assert put(store, TEXT).codec == "z"
    assert put(store, NOISE).codec == "r"
    assert put(store, TEXT[:0]).codec == "r"


def test_equal_contents_are_one_object(store):
    first, second, other = store.objects.put_many([TEXT, TEXT, NOISE])
    assert first == second != other
    assert not put(store, TEXT).new
    assert len(list(store.objects.walk())) == 2


@pytest.mark.parametrize("data", [TEXT, NOISE], ids=["zstd", "raw"])
@pytest.mark.parametrize("bit", [0, 7])
def test_every_flipped_bit_is_found(store, data, bit):
    path = store.objects.path(put(store, data).digest)
    good = path.read_bytes()
    for offset in positions(len(good)):
        flip(path, offset, bit)
        with pytest.raises(ObjectDamaged):
            store.objects.read(digest_of(data), len(data))
        overwrite(path, good)
    assert store.objects.read(digest_of(data), len(data)) == data


@pytest.mark.parametrize("data", [TEXT, NOISE], ids=["zstd", "raw"])
def test_every_truncation_is_found(store, data):
    path = store.objects.path(put(store, data).digest)
    good = path.read_bytes()
    for length in [0, *positions(len(good))]:
        overwrite(path, good[:length])
        with pytest.raises(ObjectDamaged):
            store.objects.read(digest_of(data), len(data))


@pytest.mark.parametrize("data", [TEXT, NOISE], ids=["zstd", "raw"])
@pytest.mark.parametrize("tail", [b"\0", b"x" * 100])
def test_trailing_bytes_are_found(store, data, tail):
    path = store.objects.path(put(store, data).digest)
    overwrite(path, path.read_bytes() + tail)
    with pytest.raises(ObjectDamaged, match="payload has"):
        store.objects.read(digest_of(data), len(data))


def test_two_objects_exchanged_are_found(store):
    one, other = (store.objects.path(put(store, data).digest) for data in (TEXT, TEXT[::-1]))
    first, second = one.read_bytes(), other.read_bytes()
    overwrite(one, second)
    overwrite(other, first)
    for data in (TEXT, TEXT[::-1]):
        with pytest.raises(ObjectDamaged, match="another digest"):
            store.objects.read(digest_of(data), len(data))


def test_a_bomb_is_refused_before_it_is_unpacked(store):
    digest = put(store, TEXT).digest
    path = store.objects.path(digest)
    compress = zstandard.ZstdCompressor(write_checksum=True, write_content_size=True).compress
    bomb = compress(bytes(1 << 30))
    header = path.read_bytes()[:8] + struct.pack("<QQ", len(TEXT), len(bomb))
    overwrite(path, header + bomb)
    with pytest.raises(ObjectDamaged, match="zstd frame's header"):
        store.objects.read(digest, len(TEXT))


@pytest.mark.parametrize(
    "options",
    [
        {"write_checksum": False, "write_content_size": True},
        {"write_checksum": True, "write_content_size": False},
    ],
)
def test_a_frame_without_checksum_or_size_is_refused(store, options):
    digest = put(store, TEXT).digest
    path = store.objects.path(digest)
    frame = zstandard.ZstdCompressor(**options).compress(TEXT)
    overwrite(path, path.read_bytes()[:8] + struct.pack("<QQ", len(TEXT), len(frame)) + frame)
    with pytest.raises(ObjectDamaged):
        store.objects.read(digest, len(TEXT))


def test_two_frames_are_refused(store):
    digest = put(store, TEXT).digest
    path = store.objects.path(digest)
    frame = path.read_bytes()[24:]
    overwrite(path, path.read_bytes()[:8] + struct.pack("<QQ", len(TEXT), 2 * len(frame)) + frame * 2)
    with pytest.raises(ObjectDamaged, match="unused data"):
        store.objects.read(digest, len(TEXT))


def test_another_size_in_the_index_is_found(store):
    digest = put(store, TEXT).digest
    with pytest.raises(ObjectDamaged, match="the index says"):
        store.objects.read(digest, len(TEXT) - 1)


def test_a_link_is_not_followed(store, tmp_path):
    digest = put(store, TEXT).digest
    path = store.objects.path(digest)
    os.rename(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ObjectDamaged):
        store.objects.read(digest, len(TEXT))


def test_a_missing_object_is_told_from_a_damaged_one(store):
    with pytest.raises(ObjectMissing, match="missing"):
        store.objects.read("0" * 64)
    assert issubclass(ObjectMissing, ObjectLost)


def test_a_damaged_object_is_replaced_when_it_is_published_again(store):
    digest = put(store, TEXT).digest
    flip(store.objects.path(digest), 40)
    assert put(store, TEXT).new
    assert store.objects.read(digest, len(TEXT)) == TEXT
    assert len(list(store.tree.names("quarantine"))) == 1
