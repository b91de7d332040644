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
    """Step 2 of the next iteration between 3 and 4 of this one, against one after the other."""
    import torch

    small = torch.randn(96, 96)
    best = None
    for size in (2048, 4096, 8192):
        large = torch.randn(size, 4096)
        f = context.compile(
            lambda i: {"y": (i["s"] @ i["s"]) @ i["s"]},
            {"x": large, "s": small},
            folder / f"over{size}",
        )
        inputs = [f.allocate_input_proxy() for _ in range(2)]
        for proxies in inputs:
            proxies["s"].load_from(small)
            proxies["x"].load_from(large)
            f(proxies)["y"].cpu()

        def transfer(proxies=inputs[0], large=large):
            proxies["x"].load_from(large, clone=False)
            context._session.barrier()

        moving, running = _median(transfer, 3), _median(lambda f=f, p=inputs[0]: f(p)["y"].cpu(), 3)
        if best is None or abs(moving / running - 1) < abs(best[0] / best[1] - 1):
            best = moving, running, f, inputs, large
    moving, running, f, inputs, large = best
    rounds = 10

    def serial():
        for _ in range(rounds):
            inputs[0]["x"].load_from(large, clone=False)
            context._session.barrier()
            f(inputs[0])["y"].cpu()

    def early():
        inputs[0]["x"].load_from(large, clone=False)
        for number in range(rounds):
            result = f(inputs[number % 2])["y"]
            if number + 1 < rounds:
                inputs[(number + 1) % 2]["x"].load_from(large, clone=False)
            result.cpu()

    one, other = _median(serial, 3), _median(early, 3)
    bound = max(moving, running) / (moving + running)
    facts = f"{bound:.2f} (transfer {moving * 1e3:.0f} ms, execution {running * 1e3:.0f} ms)"
    note("loop with early load_from / serial loop", other / one, "", "<= 0.85", facts)


def _loading(note: Callable[..., None], context, folder: Path) -> None:
    import torch

    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(11)))
    context.registry.register("model", model)
    context.compile(
        lambda i: {"y": model(i["x"])}, {"x": torch.zeros(64, 1024)}, folder / "mlp", options={"float_dtype": "mixed"}
    )
    note(
        "load_codegen_dir of 11 M parameters",
        _median(lambda: context.load_codegen_dir(folder / "mlp"), 3),
        "s",
        "< 1",
        "as many as a ResNet-18 has",
    )
