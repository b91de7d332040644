"""Figures of the store and of cached builds. Ratios are measured in one run."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlsdk import store as stores
from mlsdk.store import Recipe, Store, fsck, gc, query, schema
from mlsdk.tasks import adapters, complete
from mlsdk.tasks.chain import build_chain
from mlsdk.tasks.phases import PHASES, TASKS
from mlsdk.tasks.session import Session
from mlsdk.tasks.workflow import Artifact, Program, Step, Workflow

TRACED = {"exported.onnx": b"graph " * 2000, "signature.json": b"{}\n", "sources.json": b"{}\n"}


def measure(note: Callable[..., None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        processes(note)
        publishing(root / "publish", note)
        chains(root / "chain", note)
        memories(root / "memory", note)
        many(root / "many", note)
        checking(root / "check", note)
        writers(root / "writers", note)


def processes(note: Callable[..., None]) -> None:
    base = wall([sys.executable, "-c", "pass"])
    note("python -c pass", base, "s")
    note("mlsdk --help", wall([sys.executable, "-m", "mlsdk.cli.main", "--help"]), "s", "< 0.15")
    note("import mlsdk.store, process", wall([sys.executable, "-c", "import mlsdk.store"]) - base, "s", "< 0.35")
    note("import mlsdk.tasks.chain, process", wall([sys.executable, "-c", "import mlsdk.tasks.chain"]) - base, "s")


def publishing(root: Path, note: Callable[..., None]) -> None:
    """A publication against the fsyncs that it cannot do without: file, its folder, manifest, its folder, the row."""
    with stores.open(root) as store:
        for number in range(256):  # as in a store that is in use
            for name in ("objects", "manifests"):
                (root / name / f"{number:02x}").mkdir()
        data = [os.urandom(65536) for _ in range(40)]
        ours, bare, objects = [], [], []
        for number, content in enumerate(data):
            bare.append(timed(lambda content=content: fsyncs(root, [content, b"x" * 600])))
            row = timed(lambda: touch_row(store))
            bare[-1] += row
            recipe = Recipe("Bench", 1, {"number": number})
            ours.append(timed(lambda recipe=recipe, content=content: store.publish(recipe, {"out": content})))
        for content in (os.urandom(65536) for _ in range(40)):
            pair = timed(lambda content=content: fsyncs(root, [content]))
            objects.append(timed(lambda content=content: store.objects.put_many([content[::-1]])) / pair)
    note("publish 64 KiB: object, manifest and row", statistics.median(ours) * 1e3, "ms")
    note("the same writes and fsyncs alone", statistics.median(bare) * 1e3, "ms")
    note("ratio", statistics.median(ours) / statistics.median(bare), "", "< 2")
    note("object of 64 KiB alone, ratio to its two fsyncs", statistics.median(objects), "", "< 2")


def fsyncs(root: Path, contents: list[bytes]) -> None:
    for content in contents:
        folder = root / "tmp" / "bare"
        folder.mkdir(exist_ok=True)
        path = folder / str(time.perf_counter_ns())
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, content)
        os.fsync(descriptor)
        os.close(descriptor)
        os.rename(path, f"{path}.renamed")
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def touch_row(store: Store) -> None:
    with store.index.write() as connection:
        connection.exec_driver_sql("INSERT INTO tag VALUES (hex(randomblob(8)), 'bench')")


def stand_in(phase: str) -> Callable[..., dict[str, bytes]]:
    def function(inputs: Any, options: Any, services: Any) -> dict[str, bytes]:
        of = sorted(inputs) if isinstance(inputs, dict) else []  # a tracer takes a program
        text = json.dumps([phase, of, repr(sorted(options.items()))]).encode()
        return {one.name: (one.name.encode() + text) * 200 for one in PHASES[phase].gives if not one.optional}

    return function


def chains(root: Path, note: Callable[..., None]) -> None:
    for phase in PHASES.values():
        setattr(adapters, phase.function.partition(":")[2], stand_in(phase.name))
    with stores.open(root) as store:
        note("build of a chain of 7 phases, stand-ins", timed(lambda: build_chain(TRACED, store=store)), "s")
        note("the same, cached", best(lambda: build_chain(TRACED, store=store)), "s", "< 0.3")
        cached = best(lambda: build_chain(TRACED, store=store, scheduler="luigi"))
        note("the same, cached, through Luigi's scheduler", cached, "s", "< 0.3")
        result = build_chain(TRACED, store=store)
        load = TASKS["Load"](source=result.givers["exported.onnx"], options={})
        note("complete() of the chain", best(lambda: Session(store).resolve(load)) * 1e3, "ms", "< 10")
    complete.workflow(Bench(), store=root)
    note(
        "cached build of a workflow with 8 phases, process time",
        best(lambda: complete.workflow(Bench(), store=root), clock=time.process_time),
        "s",
        "< 1",
    )


class Inputs(Step):
    artifacts = (Artifact("inputs.npz", "arrays"),)

    def compute(self, inputs: Any, services: Any) -> dict[str, bytes]:
        return {"inputs.npz": b"rows"}


class Bench(Workflow):
    """Trace to Load, and Run."""

    def program(self, name: str, inputs: Any) -> Program:
        return Program(lambda given: given, {})

    def requires(self) -> list[Any]:
        return [*self.compiled(), self.executed(Inputs())]


def memories(root: Path, note: Callable[..., None]) -> None:
    keys = [{"op": "Add", "shape": (number, 64), "layout": "((16_MAB:1, 4_PE:1); B@[L1B])"} for number in range(3000)]
    with stores.open(root) as store:
        with store.memory("bench") as memory:
            note("3,000 simulations remembered", timed(lambda: remember(memory, keys)), "s")
        note("3,000 recalled in one call", best(lambda: store.memory("bench").recall_many(keys)), "s")
        note("3,000 recalled one by one", best(lambda: one_by_one(store.memory("bench"), keys)), "s")


def remember(memory: Any, keys: list[Any]) -> None:
    memory.remember_many((key, {"steps": number}) for number, key in enumerate(keys))
    memory.flush()


def one_by_one(memory: Any, keys: list[Any]) -> None:
    for key in keys:
        memory.recall(key)


def many(root: Path, note: Callable[..., None]) -> None:
    """100,000 artifacts in 25,000 results, chained by five."""
    with stores.open(root) as store:
        actions, artifacts, inputs = [], [], []
        before = ""
        for number in range(25_000):
            taken = {"in": before} if number % 5 else {}
            recipe = Recipe("Phase", 1, {"number": number}, taken)
            actions.append(
                {"id": number + 1, "recipe": recipe.digest, "phase": f"P{number % 5}", "label": f"w{number % 50}",
                 "parts": recipe.text, "created": float(number), "seconds": 0.0, "host": "h", "pid": 1, "product": "0",
                 "epoch": number % 3}
            )  # fmt: skip
            digests = [stores.digest_of(f"{number} {index}".encode()) for index in range(4)]
            artifacts += [
                {"action_id": number + 1, "name": f"a{index}", "kind": "json", "digest": digest, "size": 10,
                 "volatile": False}
                for index, digest in enumerate(digests)
            ]  # fmt: skip
            if taken:
                inputs.append({"action_id": number + 1, "name": "in", "digest": before})
            before = digests[0]
        with store.index.write() as connection:
            connection.execute(schema.actions.insert(), actions)
            connection.execute(schema.artifacts.insert(), artifacts)
            connection.execute(schema.inputs.insert(), inputs)
            connection.exec_driver_sql("UPDATE fact SET value = 2 WHERE name = 'epoch'")
        last = actions[-1]["recipe"]
        note("100,000 artifacts: ls of the newest 50", best(lambda: query.ls(store)), "s", "< 0.2")
        note("100,000 artifacts: deps", best(lambda: query.deps(store, last)), "s", "< 0.1")
        note("100,000 artifacts: gc --dry-run", timed(lambda: gc.collect(store, dry_run=True)), "s", "< 5")


def writers(root: Path, note: Callable[..., None]) -> None:
    """Four processes that publish at once."""
    code = (
        "import sys, os; from mlsdk import store as stores; from mlsdk.store import Recipe\n"
        "with stores.open(sys.argv[1]) as store:\n"
        "    for number in range(50):\n"
        "        store.publish(Recipe('W', 1, {'writer': sys.argv[2], 'n': number}), {'out': os.urandom(65536)})\n"
    )
    clock = time.perf_counter()
    children = [subprocess.Popen([sys.executable, "-c", code, str(root), str(writer)]) for writer in range(4)]
    failed = sum(child.wait() != 0 for child in children)
    seconds = time.perf_counter() - clock
    with stores.open(root) as store:
        count = len(store.ls(limit=None))
    note("four concurrent writers, 50 results each: errors", failed + (200 - count), "", "< 1")
    note("the same", 200 / seconds, "results/s")


def checking(root: Path, note: Callable[..., None]) -> None:
    with stores.open(root) as store:
        for number in range(12):
            text = os.urandom(4 << 20) + b"a layout of a value\n" * 400_000
            store.publish(Recipe("Big", 1, {"number": number}), {"out": text})
        report = fsck.check(store)
        note("fsck", report.size / report.seconds / 1e6, "MB/s", "> 300")


def timed(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    work()
    return clock() - start


def best(work: Callable[[], object], times: int = 7, clock: Callable[[], float] = time.perf_counter) -> float:
    return min(timed(work, clock) for _ in range(times))


def wall(command: list[str]) -> float:
    return best(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL), 5)
