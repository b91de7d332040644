"""Figures of the emulated board: steps a second of typical streams, with what the host itself can do beside them.

First run: decoded and executed from parsed statements that were not seen before. Kept: the same program again. All are medians.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from mlsdk.device.engine.machine import Machine
from mlsdk.device.isa import model as m
from mlsdk.device.isa.checks import check
from mlsdk.device.isa.parser import parse
from mlsdk.device.isa.printer import format_program

ROUNDS = 5
STEPS = 2000


def measure(note: Callable[..., None]) -> None:
    ceilings(note)
    machine = filled()
    streams(machine, note)
    loops(machine, note)
    texts(note)
    memory(note)


def median(function: Callable[[], object], rounds: int = ROUNDS) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def filled() -> Machine:
    """Ordinary singles in LM and GRF, block floats in L1BM."""
    machine = Machine()
    rng = np.random.default_rng(0)
    for space in (m.LM0, m.LM1, m.GRF0, m.GRF1):
        machine.write(space, 0, rng.normal(size=(512, 4096)).astype(np.float32).view(np.uint32))
    halves = rng.integers(0x3C00, 0x4000, (64, 2048, 4), dtype=np.uint64)
    machine.state.l1bm[:, :2048] = halves[..., 0] << 48 | halves[..., 1] << 32 | halves[..., 2] << 16 | halves[..., 3]
    return machine


def ceilings(note: Callable[..., None]) -> None:
    a, b = np.ones((1024, 1024), np.float32), np.ones((1024, 1024), np.float32)
    note("host: np.matmul, float32 1024^3", 2 * 1024**3 / median(lambda: a @ b) / 1e9, "GFLOP/s")
    small = np.ones((1024, 16, 16), np.float32), np.ones((1024, 16, 4), np.float32)
    note("host: np.matmul, 1024 x (16x16 @ 16x4)", 1 / median(lambda: small[0] @ small[1]), "steps/s")
    x, y = np.ones(1 << 22, np.float32), np.ones(1 << 22, np.float32)
    note("host: memory, a + b of 16 MiB", 3 * x.nbytes / median(lambda: np.add(x, x, out=y)) / 1e9, "GB/s")


def stream(lines: Callable[[int], str]) -> tuple[m.Statement, ...]:
    return parse("\n".join(lines(i) for i in range(STEPS)))


def fma(i: int) -> str:
    a = 8 * (i % 4)
    return f"fvfma $lm{a}v $lr{a}v $ls{a}v $ln{a}v"


def add(i: int) -> str:
    a = 8 * (i % 4)
    return f"fvadd $lm{a}v $lr{a}v $ln{a}v"


def mixed(i: int) -> str:
    """A chain of the kind that elementary functions are: multiply-adds through $mauf, with integer work beside some of them."""
    a = 8 * (i // 6 % 4)
    return (
        f"fvfma $lm{a}v $ls64v $ls72v $nowrite",
        "fvadd $mauf -$ls64v $lt; ilsl $mauf $lm256 $ls8v",
        "fvfma -$mauf $ls80v $lr8v $lr16v",
        "fvfma $mauf $lr24v $ls88v $nowrite; fmax $lm264v $lr24v $nowrite",
        "fvfma $mauf $lr24v $ls96v $nowrite",
        f"iadd $mauf $ls8v $ln{a}v; fvmul $mauf $lr24v $nowrite",
    )[i % 6]


def half_blocks(i: int) -> str:
    """All five units: load a block from L1BM, convert it, write it to one matrix side, multiply with the other."""
    side, other = "xy"[i // 2 % 2], "yx"[i // 2 % 2]
    low = 8 * (i % 2)
    return (
        f"hmfma $l{side} $ls{128 + 2 * low}v $llr{128 + 2 * low}v "
        f"$llr{128 + 2 * low}v; hmwrite $aluf $ll{other}{low}; hbfn/9 $lbf $nowrite; "
        f"l1bmm $llb{32 * (i % 32)} $nowrite"
    )


def half_pairs(i: int) -> str:
    side, other = "xy"[i // 2 % 2], "yx"[i // 2 % 2]
    low = 8 * (i % 2)
    return f"hmfma $l{side} $ls128v $llr128v $llr128v; hmwrite $lls128v $ll{other}{low}"


def streams(machine: Machine, note: Callable[..., None]) -> None:
    prepare = "\n".join(f"l1bmm $lb{16 * i} $nowrite\nhbfn/9 $lbf $ls{128 + 8 * i}v" for i in range(8))
    for name, lines, reach in (
        ("fvfma", fma, ""),
        ("fvadd", add, ""),
        ("mixed single-precision chain", mixed, "40,000"),
        ("half matrix, mfma + mwrite", half_pairs, "8,000"),
        ("half matrix, five units", half_blocks, "8,000"),
    ):
        machine.run(parse(prepare))
        program = stream(lines)
        machine.run(program[:64])  # compiles kernels, fills caches
        machine.state.pe[m.GRF0][128:192] = 0
        start = time.perf_counter()
        machine.run(program)
        note(f"{name}, first run", STEPS / (time.perf_counter() - start), "steps/s", reach)
        note(f"{name}, kept", STEPS / median(lambda program=program: machine.run(program)), "steps/s", reach)
    nops = (m.Nop(1),) * 100_000
    note("nop, one statement each", 100_000 / median(lambda: machine.run(nops)), "steps/s", "100,000")
    long = (m.Nop(10**9),)
    note("nop/1000000000", median(lambda: machine.run(long)), "s")


def loops(machine: Machine, note: Callable[..., None]) -> None:
    """64 iterations of one bundle with strided addresses, against the same unrolled; both decoded anew each time."""

    def program(name: str, inputs: int) -> tuple[m.Statement, ...]:
        sources = [m.Operand(m.LM0, 0, 2, 2, strides=(8,)), m.Operand(m.GRF0, 0, 2, 2), m.Operand(m.GRF1, 0, 2, 2)][
            :inputs
        ]
        bundle = m.Bundle((m.Instruction(name, (*sources, m.Operand(m.LM1, 0, 2, 2, strides=(8,)))),))
        return (m.Loop(64, (bundle,)),)

    for name, inputs in (("fvadd", 2), ("fvfma", 3), ("iadd", 2)):
        machine.run(program(name, inputs))
        looped = median(lambda name=name, inputs=inputs: machine.run(program(name, inputs)), 30)
        unrolled = median(lambda name=name, inputs=inputs: machine.run(tuple(m.unroll(program(name, inputs)))), 30)
        kept = program(name, inputs)
        again = median(lambda kept=kept: machine.run(kept), 30)
        note(f"loop of 64 {name}", 64 / looped, "steps/s")
        note(f"loop of 64 {name}, kept", 64 / again, "steps/s")
        note(f"unrolled / loop, {name}", unrolled / looped, "x", "3")


def texts(note: Callable[..., None]) -> None:
    lines = "\n".join(mixed(i).replace("$lm256", f"$lm{256 + 2 * (i % 500)}") for i in range(50_000))
    note("parse, 3,000 different lines", 50_000 / median(lambda: parse(lines), 3), "lines/s", "30,000")
    program = parse(lines)
    note("check", 50_000 / median(lambda: check(program), 3), "lines/s")
    note("print", 50_000 / median(lambda: format_program(program), 3), "lines/s")


def memory(note: Callable[..., None]) -> None:
    code = (
        "import resource\nfrom mlsdk.device.engine.machine import Machine\nfrom mlsdk.device.isa.parser import parse\n"
        "mc = Machine()\nfor s in ('lm0','lm1','grf0','grf1'): mc.state.pe[s][:] = 1\n"
        "mc.state.l1bm[:] = 1; mc.state.l2bm[:] = 1\n"
        "mc.run(parse('fvfma $lm0v $lr0v $ls0v $ln0v'))\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    note("peak memory, all on-chip memories touched", int(out) / 2**20, "GiB", "1")
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "mlsdk.cli.smi", "list"], capture_output=True, check=True)
    note("gpfn3-smi list, process", time.perf_counter() - start, "s", "0.15")
