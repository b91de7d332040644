"""`mlsdk vsm` with files as they come: pipes, devices, other line ends, odd characters, outputs that cannot be written."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from mlsdk.device import spec
from mlsdk.device.isa.parser import read

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "mlsdk.cli.main", "vsm"]
GET = "d getf $lm0n0c0b0m0p0 1\n"
LOOSE = ' imm   f"1"  $lr0 # one\n'
NEAT = 'imm f"1" $lr0 # one\n'
HAZARD = "ipassa $lr0v $lm0v\nipassa $lm0v $ls0v\n"


def vsm(*words: object, text: str | bytes = "", **more) -> subprocess.CompletedProcess:
    data = text.encode() if isinstance(text, str) else text
    out = subprocess.run([*COMMAND, *map(str, words)], input=data, capture_output=True, cwd=ROOT, timeout=120, **more)
    out.stdout, out.stderr = out.stdout.decode(), out.stderr.decode()
    return out


def fails(out: subprocess.CompletedProcess, told: str, code: int = 1) -> None:
    assert out.returncode == code and told in out.stderr and "Traceback" not in out.stderr, (out.returncode, out.stderr)


@pytest.fixture
def file(tmp_path):
    def write(data: str | bytes, name: str = "a.vsm") -> Path:
        (tmp_path / name).write_bytes(data.encode() if isinstance(data, str) else data)
        return tmp_path / name

    return write


# --- a file is read once -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "text", "code", "out"),
    [
        (("fmt",), LOOSE, 0, NEAT), (("fmt", "--check"), NEAT, 0, ""), (("fmt", "--check"), LOOSE, 1, ""),
        (("check", "--insert-nops"), HAZARD, 0, HAZARD.replace("\n", "\nnop/2\n", 1)), (("run",), "nop\n" + GET, 0, None),
        (("stats",), NEAT, 0, None), (("check",), HAZARD, 1, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", ["-", "/dev/stdin", "fifo"])
def test_pipes(tmp_path, words, text, code, out, way):
    if way != "fifo":
        found = vsm(*words, way, text=text)
    else:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_text, args=(text,), daemon=True)
        writer.start()
        found = vsm(*words, pipe)
        writer.join(10)
    assert found.returncode == code, found.stderr
    assert out is None or found.stdout == out


def test_columns_of_a_mended_program_from_a_pipe():
    found = vsm("check", "--insert-nops", "--json", "-o", "/dev/null", "-", text=HAZARD + "  iadd $lr0 $lm9v $lr0\n")
    (finding,) = json.loads(found.stdout)["diagnostics"]
    assert (finding["line"], finding["column"]) == (3, 13)


# --- what a text is ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "data", ["", "\n\n", "nop", "nop\r\n", "\ufeffnop\n", "\tnop\t#\thi\t\n", "# only\n", "nop \u00a0# \u00e9\n"]
)
def test_texts_that_are_programs(file, data):
    for verb in ("check", "fmt", "stats", "run"):
        assert vsm(verb, file(data)).returncode == 0
    neat = vsm("fmt", file(data)).stdout
    assert "\r" not in neat and "\ufeff" not in neat
    assert vsm("fmt", "--check", file(data)).returncode == (0 if data == neat else 1)
    assert vsm("fmt", "-w", file(data)).returncode == 0
    assert file(neat).read_text() == neat and vsm("fmt", "--check", file(neat)).returncode == 0


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("nop\rnop", "a carriage return inside the line"), ("nop\x0cnop", "U+000C"), ("nop\x1b[31m", "U+001B"),
        ("nop/\u0663", "U+0663"), ("ipassa\u00a0$lr0 $ls0", "U+00A0"), ("\ufeffnop", "U+FEFF"), ("d get $lm0n\u0662 1", "U+0662"),
    ],
)  # fmt: skip
def test_other_characters_stand_in_comments_only(line, told):
    _, (problem,) = read("nop # \u00e9\x1b\n" + line + "\nnop")
    assert told in problem.message and (problem.line, problem.rule) == (2, "syntax")
    assert str(problem).isprintable() and problem.column == 1 + next(
        i for i, c in enumerate(line) if not (c.isascii() and c.isprintable())
    )


@pytest.mark.parametrize("data", [b"\0", b"\xff\xfen\0o\0p\0", bytes(range(255, -1, -1)), b"nop\n" * 10 + b"\0"])
def test_binary_files(file, data):
    for verb in ("check", "fmt", "stats", "run"):
        fails(vsm(verb, file(data)), "this is a binary file")


def test_files_without_an_end(tmp_path):
    fails(vsm("check", "/dev/zero"), "/dev/zero: this is a binary file")
    with subprocess.Popen(["yes", "nop"], stdout=subprocess.PIPE) as yes:
        code = (
            "import sys\nimport mlsdk.cli.vsm as v\nv.LARGEST = 1 << 24\nfrom mlsdk.cli.main import run\n"
            "sys.exit(run(['vsm', 'check', '-']))"
        )
        out = subprocess.run(
            [sys.executable, "-c", code], stdin=yes.stdout, capture_output=True, text=True, cwd=ROOT, timeout=60
        )
        yes.kill()
    fails(out, "-: it has more than 16,777,216 bytes")


def test_a_closed_standard_input():
    out = subprocess.run(
        ["sh", "-c", "exec " + " ".join([*COMMAND, "check", "-", "<&-"])], capture_output=True, text=True, cwd=ROOT
    )
    fails(out, "-: standard input is closed")


@pytest.mark.parametrize("words", [("fmt",), ("check",), ("stats",), ("run",)])
def test_a_full_standard_output(file, words):
    with open("/dev/full", "w") as full:
        out = subprocess.run(
            [*COMMAND, *words, file("nop\n" + GET)], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    fails(out, "No space left on device")
    assert "a bug" not in out.stderr


# --- fmt --write ---------------------------------------------------------------------------------------------------------
def test_rewriting_keeps_mode_and_link(file, tmp_path):
    target = file(LOOSE)
    target.chmod(0o640)
    link = tmp_path / "link.vsm"
    link.symlink_to(target)
    assert vsm("fmt", "-w", link).returncode == 0
    assert link.is_symlink() and target.read_text() == NEAT and stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.vsm", "link.vsm"]


def test_rewriting_that_fails_leaves_the_program(file):
    """A limit on file sizes stands for a full disk."""
    text = LOOSE * 1000
    target = file(text)
    limited = f"ulimit -f 1; exec {' '.join(COMMAND)} fmt -w {target}"
    out = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, cwd=ROOT)
    fails(out, "it was not rewritten")
    assert target.read_text() == text and len(list(target.parent.iterdir())) == 1


@pytest.mark.parametrize("way", ["-", "fifo", "directory", "packed"])
def test_what_is_not_rewritten(tmp_path, file, way):
    import zstandard

    target: object = "-"
    if way == "fifo":
        os.mkfifo(tmp_path / "pipe")
        target = tmp_path / "pipe"
    elif way == "directory":
        target = tmp_path
    elif way == "packed":
        target = file(zstandard.ZstdCompressor().compress(LOOSE.encode()), "a.vsm.zst")
    fails(vsm("fmt", "-w", target, text=LOOSE), "--write", 2)
    fails(vsm("fmt", "-w", "--check", file(LOOSE)), "exclude each other", 2)
    fails(vsm("fmt", "-w", tmp_path / "missing"), "No such file")


# --- run -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("option", [("-d",), ("--trace",), ("--save-dram", "0:0:4:")])
@pytest.mark.parametrize(("path", "told"), [("/no/where", "no directory /no"), ("/tmp", "Is a directory")])
def test_outputs_are_looked_at_before_the_run(file, option, path, told):
    words = (option[0], option[1] + path) if len(option) > 1 else (option[0], path)
    out = vsm("run", *words, file("nop\n" + GET))
    fails(out, told)
    assert out.stdout == ""


def test_dumps_are_not_lost_when_another_output_fails(file):
    for words in (("--trace", "/dev/full"), ("--save-dram", "0:0:4:/dev/full")):
        out = vsm("run", *words, file("nop\n" + GET))
        fails(out, "/dev/full: No space left on device")
        assert out.stdout.startswith("DEBUG-LM0")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--save-dram", "4:0:1:x"), "--save-dram 4:0:1:x: group 4"), (("--save-dram", "0:-1:1:x"), "DRAM -1..0 is outside"),
        (("--save-dram", f"0:{spec.DRAM_LW}:1:x"), "is outside"), (("--save-dram", "0:0:x"), "write GROUP"),
        (("--save-dram", "0:0:-1:x"), "is outside"), (("--save-dram", "a:0:1:x"), "not integers"),
        (("--dram-image", f"0:{spec.DRAM_LW}:IMAGE"), "is outside"), (("--dram-image", "-1:0:IMAGE"), "group -1"),
        (("--dram-image", "0:x:IMAGE"), "not integers"), (("--steps", "-1"), "-1"), (("--steps", "x"), "'x'"),
    ],
)  # fmt: skip
def test_numbers_outside_are_wrong_command_lines(file, words, told):
    image = file(bytes(8), "image")
    fails(vsm("run", *(word.replace("IMAGE", str(image)) for word in words), file(GET)), told, 2)


def test_a_large_image_goes_in_pieces(file, tmp_path):
    from mlsdk.cli.vsm import CHUNK_BYTES

    data = np.arange(CHUNK_BYTES // 8 + 77, dtype="<u8")
    image = file(data.tobytes(), "image")
    saved = f"3:64:{data.size}:{tmp_path / 'out'}"
    assert vsm("run", "--dram-image", f"3:64:{image}", "--save-dram", saved, file("nop\n")).returncode == 0
    assert (tmp_path / "out").read_bytes() == data.tobytes()


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 10**30])
def test_steps(file, steps):
    out = vsm("run", "--json", "--steps", steps, file('imm f"1" $r0\nnop/2\n' + GET))
    assert json.loads(out.stdout)["pe_steps"] == min(steps, 3)


def test_a_program_of_hazards_only_names_what_mends_it(file):
    fails(vsm("run", file(HAZARD)), "not run (--insert-nops mends them, --no-check runs it anyway)")
    assert "--insert-nops" not in vsm("run", file(HAZARD + "iadd $lr0 $lr0 $lm0; isub $lr0 $lr0 $lm0\n")).stderr


# --- programs that the checks refuse and --no-check lets through ---------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mvp/n64i01 $lc64@0.0 $lc0@0.0", "line 1: `mvp` cannot move from l2bm to l2bm"),
        ("nop\nmvp/n64i01 $d0 $lc0@0.0", "line 2: mvp names a group on both sides"),
    ],
)
def test_moves_that_do_not_exist(file, text, told):
    for words in (("stats",), ("run", "--no-check"), ("run", "--no-check", "--strict")):
        fails(vsm(*words, file(text)), told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("d getbh $lx1n0 16", "mat_x 1 with 16 LW is outside 0..15"), ("d get $t7n0 2", "t 7 with 2 LW is outside 0..7"),
        ("d get $omr31n0 2", "omr 31 with 2 LW is outside 0..31"), ("imm f\"3\" $omr1", "`imm` gives no flags"),
        ("l1bmm $lb64 $omr3", "`l1bmm` gives no flags"), ("mvp/n64i01 $p0@80 $lc0@0.0", "group 80 is outside 0..3"),
        ("mvp/n64i02 $d0 $lc0@.80", "L2B 80 is outside 0..1"), ("l2bmdars $lc0@.11 $dar16", "L2B 11 is outside 0..1"),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_said_without_checks(file, text, told):
    fails(vsm("run", "--no-check", file(text)), told)
    assert vsm("check", file(text)).returncode == 1
