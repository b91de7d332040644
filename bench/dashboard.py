"""The Codegen Dashboard on folders of every size: start, pages, memory; with chromium also a trace of 100,000 events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LAYERS, NODES, EVENTS = 10_000, 100_000, 100_000
LAYOUT = "((8_L2B:1,8_L1B:1),(4:2,4_PE:1,2:1,2_W:1);B@[MAB])"
CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"


def measure(note: Callable[..., None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        synthetic(root / "layers", LAYERS, LAYERS, EVENTS)
        synthetic(root / "nodes", NODES, NODES, 1000)
        note("imports before the first answer", len(imported()), "modules")
        with served(root / "layers") as (address, process, seconds):
            bound = f"{used(process.pid):.2f} s computing"
            note("start until the first answer", seconds, "s", "< 1", bound)
            note("index of 10,000 layers", ready(f"{address}/summary"), "s")
            page(note, "Summary, 10,000 layers", f"{address}/summary", process, "< 150")
            query = "layers.q=gemm&layers.sort=-steps"
            page(note, "Summary, sorted and filtered", f"{address}/summary?{query}", process)
            page(note, "Memory, 10,000 layers", f"{address}/memory", process)
            page(note, "Advice, 10,000 layers", f"{address}/advice", process)
            if os.path.exists(CHROMIUM):
                seconds, computing = perfetto(address)
                bound = f"{computing:.1f} s computing"
                note("Perfetto, 100,000 events, until its slices are there", seconds, "s", "< 8", bound)
            note("memory of the server after these", resident(process.pid), "MB", "< 200")
        with served(root / "nodes") as (address, process, _seconds):
            note("index of 100,000 nodes, in a process of its own", ready(f"{address}/node"), "s")
            page(note, "Node, first page of 100,000", f"{address}/node", process, "< 100")
            page(note, "Node, last page", f"{address}/node?nodes.page=999", process, "< 100")
            page(note, "Node, search", f"{address}/node?nodes.q=gemm_99", process, "< 100")
            page(note, "Node, one node", f"{address}/node/view?name=gemm_99990", process, "< 100")
            page(note, "Summary, 100,000 layers", f"{address}/summary", process)
            note("memory of the server after these", resident(process.pid), "MB", "< 200")


def imported() -> list[str]:
    code = "import sys, mlsdk.cli.dashboard.server; assert 'torch' not in sys.modules; print(*sys.modules)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str], float]]:
    """A dashboard of a folder: its address, its process, and the seconds until it answered."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "mlsdk.cli.main", "dashboard", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[3]
        get(f"{address}/static/style.css")
        yield address, process, time.perf_counter() - start
    finally:
        process.terminate()
        process.wait(10)


def get(address: str) -> int:
    with urllib.request.urlopen(address, timeout=60) as answer:
        answer.read()
        return int(answer.status)


def ready(address: str) -> float:
    """Seconds until a page no longer says that the index is being made."""
    start = time.perf_counter()
    while True:
        try:
            get(address)
            return time.perf_counter() - start
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
        time.sleep(0.1)


def page(note: Callable[..., None], what: str, address: str, process: subprocess.Popen[str], reach: str = "") -> None:
    """The median of nine requests; `bound` says how much of a request the server computed, whatever else ran meanwhile."""
    get(address)
    times, before = [], used(process.pid)
    for _ in range(9):
        start = time.perf_counter()
        get(address)
        times.append(time.perf_counter() - start)
    spent = (used(process.pid) - before) / 9 * 1e3
    note(what, sorted(times)[4] * 1e3, "ms", reach, f"{spent:.0f} ms computing")


def used(pid: int) -> float:
    """Seconds of the processor that a process took."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1000


def perfetto(address: str) -> tuple[float, float]:
    """Seconds until the Perfetto UI has loaded the trace in headless chromium, and those that its processes computed."""
    with browser() as driver:
        before, start = family(driver.service.process.pid), time.perf_counter()
        driver.get(f"{address}/perfetto?file=trace.json")
        driver.switch_to.frame(driver.find_element("css selector", "iframe.viewer"))
        while not driver.execute_script("return document.body.innerText.includes('MN-Core 2 (emulated)')"):
            if time.perf_counter() - start > 60:
                return float("inf"), float("inf")
            time.sleep(0.05)
        return time.perf_counter() - start, family(driver.service.process.pid) - before


def family(pid: int) -> float:
    """Seconds of the processor that a process and those that it started took."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            children.setdefault(int((entry / "stat").read_text().rpartition(")")[2].split()[1]), []).append(
                int(entry.name)
            )
    total, found = 0.0, [pid]
    for one in found:
        found += children.get(one, [])
        with suppress(OSError):
            total += used(one)
    return total


@contextmanager
def browser():
    """Headless chromium; selenium comes with the extra `dev`."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    with tempfile.TemporaryDirectory() as profile:
        for argument in (
            "--headless=new", "--hide-scrollbars", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--window-size=1400,900", f"--user-data-dir={profile}",
        ):  # fmt: skip
            options.add_argument(argument)
        driver = webdriver.Chrome(options, Service(DRIVER))
        try:
            yield driver
        finally:
            driver.quit()


# -- folders of any size -------------------------------------------------------------------------------------------------


def synthetic(root: Path, layers: int, nodes: int, events: int) -> None:
    """A codegen_dir with the files and forms of a compile, as large as is asked for."""
    root.mkdir()
    names = [f"{('gemm', 'relu', 'softmax')[i % 3]}_{i}" for i in range(layers)]
    placed_nodes, values, rows, slots, vsm = [], [], [], {}, []
    for i, name in enumerate(names):
        op = ("Gemm", "Relu", "Softmax")[i % 3]
        before = names[i - 1] if i else "x"
        inputs = [before, "w"] if op == "Gemm" else [before]
        placed_nodes.append(
            {"name": name, "op": op, "inputs": inputs, "outputs": [name], "attrs": {"alpha": {"float": "0x1p+0"}},
             "emitter": op.lower(), "kernel": "hs" if op == "Gemm" else "", "batches": 1}
        )  # fmt: skip
        values.append(value(name))
        steps = 100 + i % 97
        rows.append(
            {"node": name, "op": op, "start": 800 * i, "end": 800 * i + 4 * steps, "pe_steps": steps // 2, "stall": 2 * steps,
             "moves": 6, "dram_lw": 6400}
        )  # fmt: skip
        slots[name] = ["work", 512 * (i % 4)]
        vsm += [f"#@ {name}", "mvp/n256i01 $d0 $lc0", "wait i01", "hmfma $lx $lm0 $llr256v $ln0v", "nop/2"]
    values += [value("x"), value("w")]
    slots |= {"x": ["in:x", 0], "w": ["in:w", 0]}
    total = 200 * layers
    write(root / "placed.json", {"name": "synthetic", "inputs": ["x", "w"], "outputs": [names[-1]], "values": values,
                                 "nodes": placed_nodes, "literals": {}})  # fmt: skip
    segments = [["in:x", "input", 512], ["in:w", "input", 512], ["work", "work", 2048]]
    steps = [[name, ""] for name in names]
    write(root / "plan.json", {"scheduler": "always_from_dram", "segments": segments, "slots": slots, "steps": steps})
    sums = {
        "steps": total,
        "pe_steps": total // 2,
        "stall_steps": total // 2,
        "moves": 6 * layers,
        "dram_bytes": 51200 * layers,
    }
    write(root / "simulation_result.json", {"rows": rows, **sums, "flows": []})
    write(root / "report.json", {**sums, "simulated_us": total * 4 / 750, "assumed": {}})
    write(
        root / "sources.json",
        {name: {"scope": f"Net.block{i % 12}", "source": f"net.py:{i}"} for i, name in enumerate(names)},
    )
    write(root / "option.json", {"options": {"float_dtype": "mixed"}, "origins": {"float_dtype": "direct"}})
    (root / "model.vsm").write_text("\n".join(vsm) + "\n")
    (root / "l3ir.txt").write_text(
        "".join(f"MNCoreUpload({name})  # half[64, 64] ... at work+0, 512 LW\n" for name in names)
    )
    (root / "l3ir_stripped.onnx").write_bytes(onnx(nodes))
    # in one line, as the simulation writes it
    (root / "trace.json").write_text(json.dumps({"traceEvents": list(trace(events)), "displayTimeUnit": "ns"}) + "\n")


def value(name: str) -> dict:
    return {"name": name, "dtype": "float32", "device_dtype": "half", "shape": [64, 64], "layout": LAYOUT, "origin": "node",
            "pad": "zero", "data": "", "scheme": None}  # fmt: skip


def write(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=1))


def trace(events: int) -> Iterator[dict]:
    yield {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "MN-Core 2 (emulated)"}}
    for i in range(events):
        yield {
            "ph": "X",
            "name": f"gemm_{i % 1000}",
            "cat": "Gemm",
            "pid": 1,
            "tid": 1 + i % 4,
            "ts": i // 4 * 2.0,
            "dur": 1.5,
        }


def onnx(nodes: int) -> bytes:
    """A chain of nodes in the wire format."""

    def field(number: int, data: bytes) -> bytes:
        size, out = len(data), bytearray()
        while size > 127:
            out.append(size & 127 | 128)
            size >>= 7
        out.append(size)
        return bytes([number << 3 | 2]) + bytes(out) + data

    graph = bytearray()
    for i in range(nodes):
        name = f"{('gemm', 'relu', 'softmax')[i % 3]}_{i}".encode()
        before = f"{('gemm', 'relu', 'softmax')[(i - 1) % 3]}_{i - 1}".encode() if i else b"x"
        op = (b"Gemm", b"Relu", b"Softmax")[i % 3]
        graph += field(1, field(1, before) + field(2, name) + field(3, name) + field(4, op))
    graph += field(2, b"synthetic")
    return field(7, bytes(graph)) + field(8, b"\x10\x14")
