"""The runtime: what a call costs beyond the emulated board, transfers, their overlap with executions, loading."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


def measure(note: Callable[..., None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(MLSDK_STORE=f"{folder}/store", MLSDK_STATE=f"{folder}/state")
        from mlsdk import Context, MNDevice

        with Context(MNDevice("mncore2:auto")) as context:
            _calls(note, context, Path(folder))
            _transfers(note, context, Path(folder))
            _overlap(note, context, Path(folder))
            _loading(note, context, Path(folder))


def _median(work: Callable[[], object], count: int) -> float:
    times = []
    for _ in range(count):
        clock = time.perf_counter()
        work()
        times.append(time.perf_counter() - clock)
    return statistics.median(times)


def _calls(note: Callable[..., None], context, folder: Path) -> None:
    import torch

    sample = {"a": torch.randn(3, 4), "b": torch.randn(3, 4)}
    add = context.compile(lambda i: {"y": i["a"] + i["b"]}, sample, folder / "add")
    program = add._program
    bound = {entry.value: program.buffers[entry.value] for entry in program.signature.inputs}
    for _ in range(10):
        add(sample)["y"].cpu()
    emulated = _median(lambda: program.run(bound), 200)
    whole = _median(lambda: add(sample)["y"].cpu(), 200)
    note("call of a compiled add and .cpu()", whole * 1e3, "ms", "", f"emulation alone {emulated * 1e3:.3f}")
    note("  beyond emulation", (whole - emulated) * 1e3, "ms", "< 1")
    begun = _median(lambda: add(sample), 50)
    note("  until the call returns", begun * 1e3, "ms")
    context.synchronize()


def _transfers(note: Callable[..., None], context, folder: Path) -> None:
    import torch

    for dtype in ("float", "half"):
        x = torch.randn(4096, 4096)
        f = context.compile(
            lambda i: {"y": i["x"][:1, :16] * 2}, {"x": x}, folder / f"large_{dtype}", options={"float_dtype": dtype}
        )
        proxy = f.allocate_input_proxy()["x"]

        def load(proxy=proxy, x=x):
            proxy.load_from(x, clone=False)
            context._session.barrier()

        def pack(value=proxy._value, x=x):
            value.buffer.pack(x.numpy(), "x")

        copied = _median(x.clone, 5)
        load()
        note(
            f"H2D of 64 MiB as {dtype}",
            x.nbytes / _median(load, 5) / 1e9,
            "GB/s",
            ">= 1",
            f"copy {x.nbytes / copied / 1e9:.1f}",
        )
        note("  of which into the layout", x.nbytes / _median(pack, 5) / 1e9, "GB/s")
        note("D2H of 64 MiB", x.nbytes / _median(proxy.cpu, 3) / 1e9, "GB/s")


def _overlap(note: Callable[..., None], context, folder: Path) -> None:
    """Step 2 of the next iteration between 3 and 4 of this one, against one after the other.

    The program is one that the emulator executes on one core (large loops take two), so that the other one is free.
    """
    import torch

    def chain(inputs):
        y = inputs["s"]
        for _ in range(24):
            y = y.softmax(1) + inputs["s"]
        return {"y": y}

    small, large = torch.randn(40, 40), torch.randn(4096, 4096)
    f = context.compile(chain, {"x": large, "s": small}, folder / "overlap")
    inputs = [f.allocate_input_proxy() for _ in range(2)]
    for proxies in inputs * 3:
        proxies["s"].load_from(small)
        proxies["x"].load_from(large)
        f(proxies)["y"].cpu()

    def transfer(number):
        inputs[number % 2]["x"].load_from(large, clone=False)

    def both():
        transfer(0)
        context._session.barrier()

    moving, running = _median(both, 5), _median(lambda: f(inputs[0])["y"].cpu(), 5)
    # as many transfers for each execution as take about as long
    times = max(1, round(running / moving))
    rounds = 6

    def serial():
        for number in range(rounds):
            for _ in range(times):
                transfer(number)
            context._session.barrier()
            f(inputs[number % 2])["y"].cpu()

    def early():
        for _ in range(times):
            transfer(0)
        for number in range(rounds):
            result = f(inputs[number % 2])["y"]
            if number + 1 < rounds:
                for _ in range(times):
                    transfer(number + 1)
            result.cpu()

    pairs = [(_median(serial, 1), _median(early, 1)) for _ in range(3)]
    ratio = statistics.median(other / one for one, other in pairs)
    bound = max(times * moving, running) / (times * moving + running)
    facts = f"{bound:.2f} ({times} transfers of {moving * 1e3:.0f} ms, execution {running * 1e3:.0f} ms)"
    note("loop with early load_from / serial loop", ratio, "", "<= 0.85", facts)


def _loading(note: Callable[..., None], context, folder: Path) -> None:
    import torch

    from mlsdk.workflows.resnet_model import seeded

    model = seeded(0, 1000)
    context.registry.register("model", model)
    context.compile(
        lambda i: {"y": model(i["x"])},
        {"x": torch.zeros(1, 3, 224, 224)},
        folder / "resnet18",
        options={"float_dtype": "mixed"},
        quiet=True,
    )
    note("load_codegen_dir of ResNet-18", _median(lambda: context.load_codegen_dir(folder / "resnet18"), 5), "s", "< 1")
