"""The parts of the runtime by themselves."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mlsdk.device import spec
from mlsdk.errors import DeviceError, OptionError
from mlsdk.pipeline.ir.bits import from_bits, to_bits
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.scheme import choose_lane, spread
from mlsdk.runtime import packing
from mlsdk.runtime.memory import ALIGN, Allocator
from mlsdk.runtime.staging import Staging
from mlsdk.runtime.worker import Worker

# --- worker ---


def test_jobs_run_in_order_on_another_thread():
    worker, seen = Worker("test"), []
    futures = [worker.submit(lambda n=n: seen.append((n, threading.current_thread().name))) for n in range(50)]
    futures[-1].result()
    assert seen == [(n, "test") for n in range(50)]


def test_jobs_behind_a_failure_are_not_started():
    worker, seen = Worker("test", stop_at_failure=True), []
    first = worker.submit(lambda: 1 / 0)
    second = worker.submit(lambda: seen.append(2))
    for future in (first, second):
        with pytest.raises(ZeroDivisionError):
            future.result()
    worker.barrier()
    assert isinstance(worker.take_failure(), ZeroDivisionError) and worker.take_failure() is None
    worker.submit(lambda: seen.append(3)).result()
    assert seen == [3]


def test_a_worker_stops_after_everything_else():
    worker, seen = Worker("test"), []
    worker.submit(lambda: time.sleep(0.05))
    worker.submit(lambda: seen.append("job"))
    done = threading.Event()
    worker.stop(lambda: (seen.append("last"), done.set()))
    assert done.wait(5) and seen == ["job", "last"]
    idle = Worker("idle")
    idle.stop(lambda: seen.append("at once"))
    assert seen[-1] == "at once" and not idle.started


def test_a_job_keeps_nothing_alive():
    import weakref

    class Thing:
        pass

    worker, thing = Worker("test"), Thing()
    reference = weakref.ref(thing)
    worker.submit(lambda kept=thing: None).result()
    del thing
    worker.barrier()
    assert reference() is None


# --- staging ---


def test_staging_waits_for_room():
    staging = Staging(100)
    staging.take(60)
    taken = threading.Event()
    thread = threading.Thread(target=lambda: (staging.take(60), taken.set()))
    thread.start()
    assert not taken.wait(0.05)
    staging.give(60)
    assert taken.wait(5) and staging.waits == 1 and staging.used == 60
    thread.join()
    staging.give(60)
    staging.take(1000)  # larger than all there is: alone
    assert staging.used == 1000


@pytest.mark.parametrize("text", ["0", "-1", "many", "1e9"])
def test_the_size_of_staging(monkeypatch, text):
    monkeypatch.setenv("MLSDK_STAGING_BYTES", "1000")
    assert Staging().size == 1000
    monkeypatch.setenv("MLSDK_STAGING_BYTES", text)
    with pytest.raises(OptionError, match="give a number of bytes above 0"):
        Staging()


# --- memory ---


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5000)), max_size=60))
def test_pieces_do_not_overlap_and_all_comes_back(actions):
    memory = Allocator(100 * ALIGN)
    held: dict[int, int] = {}
    for take, size in actions:
        if take or not held:
            try:
                start = memory.take(size, "piece")
            except DeviceError:
                assert memory.largest < -(-size // ALIGN) * ALIGN
                continue
            assert start % ALIGN == 0 and start + size <= memory.size
            assert all(start + size <= other or other + length <= start for other, length in held.items())
            held[start] = size
        else:
            start = sorted(held)[size % len(held)]
            memory.give(start)
            del held[start]
    for start in held:
        memory.give(start)
    assert memory.free == memory.largest == memory.size


# --- packing ---


@given(
    st.lists(st.integers(1, 40), max_size=3).map(tuple),
    st.sampled_from(["half", "single", "double", "int"]),
    st.integers(0, 2**32 - 1),
)
def test_packing_is_the_images_own(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    array = rng.integers(-1000, 1000, shape) if dtype == "int" else rng.standard_normal(shape)
    logical = "int64" if dtype == "int" else "float32"
    array = np.asarray(array, logical)
    image = Image(spread(shape, choose_lane(shape)).layout(dtype), dtype, shape)
    packed = packing.pack(image, array, "x")
    assert packed.shape == (spec.GROUPS, image.group_size) and packed.dtype == np.uint64
    assert (packed == image.pack(to_bits(array, dtype))).all()
    back = packing.unpack(image, packed, logical)
    assert back.dtype == logical and back.shape == shape
    assert np.allclose(back, array, rtol=2e-3, atol=1e-9)


SPECIAL = [
    0.0,
    -0.0,
    1e-45,
    -1e-40,
    2.0**-31,
    2.0**-30,
    1.5 * 2.0**-31,
    4.29e9,
    3.4e38,
    -7e9,
    float("inf"),
    float("nan"),
    -1.0,
]


@pytest.mark.parametrize("dtype", ["half", "single", "double", "int"])
def test_large_tensors_are_packed_without_a_table(monkeypatch, dtype):
    rng = np.random.default_rng(0)
    for shape in ((50, 100), (7, 3, 33), (5000,)):
        array = (rng.standard_normal(shape) * 10.0 ** rng.integers(-12, 12, shape)).astype(np.float32)
        array.reshape(-1)[: len(SPECIAL)] = SPECIAL
        if dtype == "int":
            array = rng.integers(-(2**31), 2**31, shape)
        logical = str(array.dtype)
        for layout in (spread(shape, choose_lane(shape)), spread(shape, None), spread(shape, 0)):
            image = Image(layout.layout(dtype), dtype, shape)
            expected = image.pack(to_bits(array, dtype))
            monkeypatch.setattr(packing, "KEPT_PLACES", 10)
            assert (packing.pack(image, array, "x") == expected).all()
            back = packing.unpack(image, expected, logical)
            monkeypatch.undo()
            assert (packing.pack(image, array, "x") == expected).all()
            np.testing.assert_array_equal(back, from_bits(image.unpack(expected), dtype, logical))
            np.testing.assert_array_equal(back, packing.unpack(image, expected, logical))


def test_memory_of_transfers_is_used_again(context, tmp_path):
    import torch

    f = context.compile(lambda i: {"y": i["x"] + 1}, {"x": torch.zeros(512, 600)}, tmp_path / "f")
    for n in range(4):
        x = torch.full((512, 600), float(n))
        assert torch.equal(f({"x": x})["y"].cpu(), x + 1)
    staging = context._session.staging
    assert len(staging._spare) == 1 and staging._spare_bytes == f._program.buffers["x"].nbytes
    staging.size = 0
    staging.keep("another", np.zeros(1 << 20, np.uint8))
    assert len(staging._spare) == 1


def test_a_program_is_kept_decoded_for_a_few_places(context, tmp_path):
    import torch

    f = context.compile(lambda i: {"y": i["x"] + 1}, {"x": torch.zeros(3, 4)}, tmp_path / "f")
    places = [f.allocate_input_proxy() for _ in range(8)]
    for n, proxies in enumerate(places):
        proxies["x"].load_from(torch.full((3, 4), float(n)))
    for n, proxies in [*enumerate(places), *enumerate(places)]:
        assert f(proxies)["y"].cpu()[0, 0] == n + 1
    assert len(f._program._loaded._variants) == 6


def test_the_next_transfer_is_packed_while_a_program_runs(any_context, tmp_path):
    """An execution that ends only when the next input was packed: it would wait for ever if one came after the other."""
    f = any_context.compile(lambda i: {"y": i["x"] * 2}, {"x": torch.zeros(3, 4)}, tmp_path / "f", quiet=True)
    now, after = (f.allocate_input_proxy() for _ in range(2))
    now["x"].load_from(torch.ones(3, 4))
    packed, execute, buffer = threading.Event(), f._program.run, after["x"]._value.buffer
    waited = []

    def run(bound):
        waited.append(packed.wait(30))
        return execute(bound)

    def pack(array, name, own=buffer.pack):
        image = own(array, name)
        packed.set()
        return image

    f._program.run, buffer.pack = run, pack
    result = f(now)
    after["x"].load_from(torch.full((3, 4), 5.0), clone=False)
    assert result["y"].cpu().tolist() == [[2.0] * 4] * 3 and waited == [True]
    assert f(after)["y"].cpu().tolist() == [[10.0] * 4] * 3
