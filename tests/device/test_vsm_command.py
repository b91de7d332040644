"""`mlsdk vsm`: check, fmt, stats and run, with files good and bad."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mlsdk.cli import main

ROOT = Path(__file__).parents[2]


def vsm(*words: object, text: str = "") -> SimpleNamespace:
    """The command in this process, with what it would print where."""
    said, told, given = io.StringIO(), io.StringIO(), io.TextIOWrapper(io.BytesIO(text.encode()))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(told):
        patch.setattr(sys, "stdin", given)
        patch.chdir(ROOT)
        code = main.run(["vsm", *map(str, words)])
    return SimpleNamespace(returncode=code, stdout=said.getvalue(), stderr=told.getvalue())


@pytest.fixture
def program(tmp_path):
    def write(text: str, name: str = "a.vsm") -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_check(program):
    out = vsm("check", program("ipassa $lr0v $lm0v\nnop\nfvfna $lm0v $ls0v\n"))
    assert out.returncode == 1
    assert ":3:1: error: unknown instruction `fvfna` [mnemonic]; did you mean `fvfma`?" in out.stdout
    assert vsm("check", program("nop\n")).returncode == 0


def test_check_reads_standard_input_and_prints_json():
    record = json.loads(vsm("check", "--json", "-", text="ipassa $lr0v $lm0v\nnop\nipassa $lm0v $ls0v\n").stdout)
    assert record["errors"] == 1
    (finding,) = record["diagnostics"]
    assert (finding["line"], finding["rule"], finding["severity"]) == (
        3,
        "hazard.9",
        "error",
    ) and "1 step missing" in finding["message"]


def test_nops_are_inserted(program, tmp_path):
    file = program("ipassa $lr0v $lm0v\nipassa $lm0v $ls0v # why\n")
    assert vsm("check", "--insert-nops", file).stdout == "ipassa $lr0v $lm0v\nnop/2\nipassa $lm0v $ls0v # why\n"
    assert vsm("fmt", "--insert-nops", file).stdout == "ipassa $lr0v $lm0v\nnop/2\nipassa $lm0v $ls0v # why\n"
    assert vsm("check", "--insert-nops", "-o", tmp_path / "b.vsm", file).returncode == 0
    assert vsm("check", tmp_path / "b.vsm").returncode == 0


def test_fmt(program):
    file = program("  ipassa   $lr0v2 $ls0 # x\n" + "mvp/i01n64 $d0 $lc0@.0\n")
    assert vsm("fmt", "--check", file).returncode == 1
    assert vsm("fmt", "-w", file).returncode == 0
    assert file.read_text() == "ipassa $lr0v $ls0 # x\nmvp/n64i01 $d0 $lc0@.0\n"
    assert vsm("fmt", "--check", file).returncode == 0


def test_stats(program):
    file = program(
        "nop/5\nmaskr 0\nfvadd $lr0 $lr0 $ln0; iadd $lr0 $ls0 $lm0\nmvp/n64i01 $d0 $lc0@.0\nnop; wait i01\nd get $lm0n0 1\n"
    )
    record = json.loads(vsm("stats", "--json", file).stdout)
    assert (record["steps"], record["moves"], record["score"]) == (7, 1, 8)
    assert record["total_steps"] == 6 + 17 + 1 and "MV_LATENCY_CYCLES" in record["assumed"]
    assert "= score 8" in vsm("stats", file).stdout


RUN = """\
d set $lm0n0c0b0m0p0 2 3ff0000000000000400000003f800000
imm f"1.5" $ls0
nop/2
fvadd $ls0 $ls0 $ln0
nop/2
d getf $ln0n0c0b0m0p1 1 # expect=[3.0, 3.1] / Float atol=0.2
d get $lm0n0c0b0m0p0 1
d getd $lm0n0c0b0m0p0 1
d getf $lm2n0c0b0m0p0 1
d getbh $ls0n0c0b0m0p0 1
d get $omr1n0c0b0m0p0 1
d get $lb5n1c1b7 1
d get $d3n2 1
"""
DUMPS = """\
DEBUG-LM1(n0c0b0m0p1,0):(3, 3) (0x40400000, 0x40400000) #d getf $ln0n0c0b0m0p1 1
DEBUG-LM0(n0c0b0m0p0,0):(f:1, i:{{0x3FF0,0x0},{0x0,0x0}}, v:0x3FF0000000000000) #d get $lm0n0c0b0m0p0 1
DEBUG-LM0(n0c0b0m0p0,0):(1) (0x3ff0000000000000) #d getd $lm0n0c0b0m0p0 1
DEBUG-LM0(n0c0b0m0p0,2):(2, 1) (0x40000000, 0x3f800000) #d getf $lm2n0c0b0m0p0 1
DEBUG-GREG1(n0c0b0m0p0,0):(1.75, 0, 1.75, 0) (0x3fc0, 0x0000, 0x3fc0, 0x0000) #d getbh $ls0n0c0b0m0p0 1
DEBUG-OMR(n0c0b0m0p0,1):Mask{15} #d get $omr1n0c0b0m0p0 1
DEBUG-OMR(n0c0b0m0p0,1):Mask{15} #d get $omr1n0c0b0m0p0 1
DEBUG-OMR(n0c0b0m0p0,1):Mask{15} #d get $omr1n0c0b0m0p0 1
DEBUG-OMR(n0c0b0m0p0,1):Mask{15} #d get $omr1n0c0b0m0p0 1
DEBUG-L1BM(n1c1b7,5):(f:0, i:{{0x0,0x0},{0x0,0x0}}, v:0x0) #d get $lb5n1c1b7 1
DEBUG-DRAM(n2,3):(f:0, i:{{0x0,0x0},{0x0,0x0}}, v:0x0) #d get $d3n2 1
"""


def test_run_prints_dumps(program, tmp_path):
    file = program(RUN)
    out = vsm("run", file)
    assert out.stdout == DUMPS and out.returncode == 0
    assert vsm("run", "-d", tmp_path / "dump.txt", file).stdout == ""
    assert (tmp_path / "dump.txt").read_text() == DUMPS


def test_run_compares_expectations(program):
    out = vsm("run", program("d get $lr0n0c0b0m0p0 1 # expect=[1, 0] / UInt @[1]\n"))
    assert out.returncode == 1 and ":1: element 1 is 0, expected 1" in out.stderr
    record = json.loads(vsm("run", "--json", program(RUN)).stdout)
    assert (
        record["compared"] == 2 and record["failures"] == [] and record["pe_steps"] == 6 and len(record["dumps"]) == 11
    )


RUN_ONE = "d get $lr0n0c0b0m0p0 1\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("d get $d99999999999999n0 2\n", "line 1: dram 99999999999999 with 2 LW is outside 0.."),
        ("d get $lm0n0c0b0m0p0 99999999999\n", "line 1: lm0 0 with 99999999999 LW is outside 0.."),
        ("mvp/n99999999999i01 $d0@1 $lc0@0.0\nnop; wait i01\n", "line 1: a move of 99999999999 LW"),
        ('imm i"' + "1" * 10_000 + '" $r0\n', "1:7: error: a number of 10000 digits"),
        ("nop/" + "9" * 5000 + "\n", "1:5: error: a number of 5000 digits"),
    ],
)
def test_what_no_memory_has_is_said_without_checks_too(program, text, told):
    out = vsm("run", "--no-check", program(text))
    assert out.returncode == 1 and told in out.stderr and "Traceback" not in out.stderr


@pytest.mark.parametrize(
    ("note", "told"),
    [
        ("expect=[abc] / Float", "expect: 'abc' is no number"),
        ("expect=[1]", "expect: write expect=[1.0, 2.0] / Float"),
        ("expect=[1] / Flaot", "expect: type Flaot is not one of Double, Float"),
        ("expect=[1] / Float @[-1]", "element -1 does not exist"),
        ("expect=[1] / Float atol=1e", "expect: could not convert"),
    ],
)
def test_a_bad_expectation_is_found_before_the_run(program, note, told):
    out = vsm("check", program(RUN_ONE.rstrip() + f" # {note}\nfoo\n"))
    assert out.returncode == 1
    lines = out.stdout.splitlines()
    assert told in lines[0] and "[expect]" in lines[0] and "unknown instruction `foo`" in lines[1]
    assert "did you mean" not in lines[1]


def test_packed_programs_are_read(tmp_path):
    import zstandard

    (tmp_path / "model.vsm.zst").write_bytes(zstandard.ZstdCompressor().compress(b"nop/3\n"))
    for verb in ("check", "stats", "fmt"):
        out = vsm(verb, tmp_path / "model.vsm.zst")
        assert out.returncode == 0, out.stderr
    (tmp_path / "cut.vsm.zst").write_bytes((tmp_path / "model.vsm.zst").read_bytes()[:-3])
    out = vsm("check", tmp_path / "cut.vsm.zst")
    assert out.returncode == 1 and "mlsdk: " in out.stderr and "it is damaged" in out.stderr


def test_run_stops_after_steps(program):
    text = 'imm ui"1" $r0\nnop/10\nimm ui"2" $r0\nd get $lr0n0c0b0m0p0 1\n'
    assert json.loads(vsm("run", "--json", "--steps", 5, program(text)).stdout)["pe_steps"] == 5
    assert json.loads(vsm("run", "--json", program(text)).stdout)["pe_steps"] == 12
    out = vsm("run", "--steps", 4, program("nop/3\n" + RUN_ONE + "nop/3\n" + RUN_ONE))
    assert len(out.stdout.splitlines()) == 1
    assert "stopped after 4 of 6 steps; 1 of 2 `d get` lines were not reached" in out.stderr
    assert "it has no `d get` lines, so there is nothing to print" in vsm("run", program("nop\n")).stderr


def test_dram_images(program, tmp_path):
    np.arange(1, 65, dtype="<u8").tofile(tmp_path / "in.bin")
    text = "mvp/n64i01 $d128@1 $lc0@0.0\nnop; wait i01\nmvp/n64i02 $lc0@0.0 $d0@2\nnop; wait i02\n"
    out = vsm(
        "run",
        "--dram-image",
        f"1:128:{tmp_path / 'in.bin'}",
        "--save-dram",
        f"2:0:64:{tmp_path / 'out.bin'}",
        program(text),
    )
    assert out.returncode == 0, out.stderr
    assert (tmp_path / "out.bin").read_bytes() == (tmp_path / "in.bin").read_bytes()
    assert "whole long words" in vsm("run", "--dram-image", program("abc", "odd"), program("nop")).stderr


def test_trace(program, tmp_path):
    vsm(
        "run",
        "--trace",
        tmp_path / "t.json",
        program("fvadd $lr0 $lr0 $ln0; iadd $ls0 $lr0 $nowrite\nmvp/n64i01 $d0 $lc0@.0\nnop; wait i01\n"),
    )
    events = [e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert [(e["name"], e["cat"]) for e in events] == [
        ("fvadd", "mau"),
        ("iadd", "alu"),
        ("mvp", "mv"),
        ("wait i01", "wait"),
    ]
    assert events[0]["dur"] == pytest.approx(4 / 750)


def test_errors_are_not_run(program):
    out = vsm("run", program("ipassa $lr0v $lm0v\nipassa $lm0v $ls0v\n"))
    assert out.returncode == 1 and "not run" in out.stderr
    assert vsm("run", "--no-check", program("ipassa $lr0v $lm0v\nipassa $lm0v $ls0v\n")).returncode == 0
    assert vsm("run", "--insert-nops", program("ipassa $lr0v $lm0v\nipassa $lm0v $ls0v\n")).returncode == 0


def test_bad_files(tmp_path):
    (tmp_path / "binary").write_bytes(b"\0\1\2")
    (tmp_path / "latin").write_bytes(b"nop # \xe9\n")
    for name, message in (
        ("binary", "binary file"),
        ("latin", "not UTF-8"),
        ("missing", "No such file"),
        (".", "directory"),
    ):
        for verb in ("check", "run", "fmt", "stats"):
            out = vsm(verb, tmp_path / name)
            assert out.returncode == 1 and message in out.stderr and out.stderr.startswith("mlsdk: ")


def test_bad_devices(program):
    out = vsm("run", "--device", "mncore2:99", program("nop"))
    assert out.returncode == 1 and "mnc2p27s0" in out.stderr


def test_it_starts_without_torch():
    code = (
        "import sys\n"
        "from mlsdk.cli.main import run\n"
        "run(['vsm', 'check', '--help'])\n"
        "print([m for m in ('torch', 'sqlalchemy', 'numba', 'luigi') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.splitlines()[-1] == "[]"
