"""Packed files: what is damaged, cut off or lies about its size is refused, and takes no memory."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Iterator

import pytest
import zstandard

from mlsdk.errors import GraphError
from mlsdk.pipeline.ir import archive

CONTENT = b"a layout of a value " * 500 + bytes(range(256))


@contextlib.contextmanager
def at_most(size: int) -> Iterator[None]:
    """The block takes no more than `size` bytes of memory."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


def claiming(size: int) -> bytes:
    """A frame of ours whose header declares another size."""
    frame = bytearray(archive.compress(bytes(1 << 20)))  # 1 MiB: the size stands in 4 bytes
    at = frame.index((1 << 20).to_bytes(4, "little"), 4)
    frame[at : at + 4] = size.to_bytes(4, "little")
    assert zstandard.frame_content_size(bytes(frame)) == size
    return bytes(frame)


@pytest.mark.parametrize("content", [b"", b"x", CONTENT, bytes(1 << 20)], ids=len)
def test_what_was_packed_comes_back(content):
    assert archive.decompress(archive.compress(content)) == content


def test_every_cut_and_every_addition_is_refused():
    frame = archive.compress(CONTENT)
    for length in range(len(frame)):
        with pytest.raises(GraphError, match="^it "):
            archive.decompress(frame[:length], "it")
    for more in (b"x", frame):
        with pytest.raises(GraphError, match="followed by other bytes"):
            archive.decompress(frame + more, "it")


def test_every_flipped_bit_of_the_content_is_refused():
    frame = archive.compress(CONTENT)
    for at in range(len(frame)):
        damaged = bytearray(frame)
        damaged[at] ^= 1 << at % 8
        try:
            found = archive.decompress(bytes(damaged))
        except GraphError:
            continue
        assert found == CONTENT  # a bit of the header that says nothing of the content


@pytest.mark.parametrize("size", [(1 << 32) - 1, 1 << 30, (1 << 20) + 1, (1 << 20) - 1, 0])
def test_a_size_that_is_not_true_is_refused(size):
    frame = claiming(size)
    with at_most(4 << 20), pytest.raises(GraphError, match="compile the function again"):
        archive.decompress(frame, "it")


def test_a_true_bomb_is_refused_by_its_limit_before_it_is_unpacked():
    bomb = archive.compress(bytes(64 << 20))
    assert len(bomb) < 8192
    told = pytest.raises(GraphError, match=r"declares 67,108,864 bytes in .*, 1,000,000 are the most")
    with at_most(1 << 20), told:
        archive.decompress(bomb, "it", 1_000_000)
    assert archive.MAX_SIZE == 16 << 30  # the DRAM of a board
