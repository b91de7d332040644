"""Boards under attack: damaged and newer state, full disks, resets in the middle, races, and the command line of
gpfn3-smi. The first part of each name says what is attacked."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mlsdk.device import spec
from mlsdk.device.board import names, open_board
from mlsdk.device.board import selftest as tests_of_a_board
from mlsdk.device.board.files import BoardFiles
from mlsdk.device.board.lock import read_holder
from mlsdk.device.errors import DeviceBusy, DeviceNotFound, DeviceReset, DeviceStateError
from mlsdk.device.isa.parser import parse

ROOT = Path(__file__).parents[2]
ZERO = {"kind": "zero", "value": 0, "on_chip": False}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MLSDK_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("MLSDK_BOARDS", raising=False)
    return tmp_path / "state"


def files(name: str = "mnc2p27s0") -> BoardFiles:
    return BoardFiles(names.state_directory(), name)


def smi(*words: str, **more) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "mlsdk.cli.smi", *words], capture_output=True, text=True, cwd=ROOT, timeout=120, **more
    )


def one_line(out: subprocess.CompletedProcess, *told: str) -> None:
    """It failed with one line that says all this."""
    assert out.returncode in (1, 2) and out.stderr.startswith("gpfn3-smi: ") and out.stderr.count("\n") == 1, out.stderr
    for part in told:
        assert part in out.stderr


def used_board(values: int = 1) -> None:
    with open_board("mncore2:0") as board:
        board.write_dram(0, 0, np.arange(1, values + 1, dtype=np.uint64))


# --- damaged state -----------------------------------------------------------------------------------------------------
def truncate(path: Path) -> None:
    os.truncate(path, 5)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(7, 256)))


def nested(path: Path) -> None:
    path.write_text("[" * 100_000)


def wrong(path: Path) -> None:
    path.write_text('{"kind": "pattern", "value": 18446744073709551616, "on_chip": false}')


def odd(path: Path) -> None:
    path.write_text('{"kind": ["zero"], "value": true}')


DAMAGE = [
    ("epoch", truncate), ("epoch", empty), ("epoch", garbage), ("g1/fill.json", truncate), ("g1/fill.json", empty),
    ("g1/fill.json", garbage), ("g1/fill.json", nested), ("g1/fill.json", wrong), ("g1/fill.json", odd),
    ("g1/fill.json", Path.unlink), ("g1/dram0.bin", truncate), ("g1/dram0.bin", Path.unlink), ("g1/dram0.pages", truncate),
    ("g1/dram0.pages", empty), ("g1/dram0.pages", lambda path: path.write_bytes(b"\7" * (spec.DRAM_LW // 8192))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "damage"), DAMAGE)
def test_damage_is_said_and_a_reset_mends_it(name, damage):
    files().begin_generation(ZERO)
    used_board()
    damage(files().root / name)
    with pytest.raises(DeviceStateError) as error:
        open_board("mncore2:0")
    assert str(files().root / name) in str(error.value) and "is damaged" in str(error.value)
    assert "gpfn3-smi reset mnc2p27s0" in str(error.value) and "\n" not in str(error.value)
    out = smi("list")
    assert out.returncode == 0 and len(out.stdout.splitlines()) == 8, out.stderr
    rows = json.loads(smi("list", "-json").stdout)
    assert len(rows) == 8 and rows[1]["fill"] == "zero"
    assert smi("reset", "--force", "mnc2p27s0").returncode == 0
    with open_board("mncore2:0") as board:
        assert board.read_dram(0, 0, 1).tolist() == [0]
        board.write_dram(0, 0, np.ones(1, np.uint64))
    with open_board("mncore2:0") as board:
        assert board.read_dram(0, 0, 1).tolist() == [1]


def test_damage_of_the_epoch_does_not_bring_old_generations_back():
    for _ in range(5):
        files().begin_generation(ZERO)
    used_board()
    empty(files().epoch_file)
    assert files().begin_generation(ZERO) == 6
    assert sorted(path.name for path in files().root.glob("g*")) == ["g6"]


def test_what_a_killed_reset_left_is_removed_by_the_next():
    used_board()
    (files().root / "g7").mkdir()
    (files().root / "g7" / "dram0.pages").write_bytes(b"\1" * 65536)
    assert files().begin_generation(ZERO) == 8
    with open_board("mncore2:0") as board:
        assert board.read_dram(0, 0, 1).tolist() == [0]
    assert sorted(path.name for path in files().root.glob("g*")) == ["g8"]


def test_a_newer_format_is_refused_untouched():
    files().begin_generation(ZERO)
    used_board()
    path = files().generation() / "fill.json"
    path.write_text(json.dumps({**ZERO, "format": 2}))
    with pytest.raises(DeviceStateError, match="has format 2, this version reads 1"):
        open_board("mncore2:0")
    one_line(smi("save", "-config", "x", "-file", "y", "0"), "x: ")
    path.write_text(json.dumps({**ZERO, "format": 1}))
    with open_board("mncore2:0") as board:
        assert board.read_dram(0, 0, 1).tolist() == [1]


@pytest.mark.parametrize("text", ["", "[]", '{"core": true}', '{"core": 1e9}', "\xff", "[" * 100_000])
def test_damaged_clocks_are_not_taken_for_the_defaults(text):
    files().prepare()
    (files().root / "config.json").write_text(text, encoding="latin-1")
    one_line(smi("config", "0", "clock"), "config.json is damaged", "delete it")
    with pytest.raises(DeviceStateError, match="delete it"):
        open_board("mncore2:0")
    (files().root / "config.json").unlink()
    open_board("mncore2:0").close()


def test_an_epoch_file_is_never_empty(monkeypatch):
    """A process that is killed while it makes a board leaves a board that works."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "link", killed)
        files().prepare()
    open_board("mncore2:0").close()


def test_two_that_make_a_board_do_not_undo_a_reset(monkeypatch):
    """Between the look for an epoch file and its creation, another process resets."""
    link = os.link

    def late(*paths: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        files().begin_generation(ZERO)
        link(*paths)

    monkeypatch.setattr(os, "link", late)
    files().prepare()
    assert files().epoch() == 1


@pytest.mark.parametrize(
    "record",
    [
        '{"pid": 1, "since": Infinity, "start": "", "boot": ""}', '{"pid": 1e400, "since": 0}', "[" * 70_000,
        '{"pid": 99999999999999999999999999, "since": 1, "start": ""}', "\0" * 1000, '{"pid": [], "since": {}}',
    ],
)  # fmt: skip
def test_a_damaged_lock_file_blocks_nobody_and_blames_nobody(record):
    files().prepare()
    files().lock_path().write_text(record)
    with open_board("mncore2:0"):
        files().lock_path().write_text(record)
        with pytest.raises(DeviceBusy, match="did not leave its name"):
            open_board("mncore2:0")


def test_a_missing_process_is_not_alive():
    """A start time that is missing on both sides proves nothing."""
    files().prepare()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    files().lock_path().write_text(json.dumps({"pid": 2**31 - 1, "since": 1, "start": "", "boot": boot}))
    holder = read_holder(files().lock_path())
    assert holder is not None and not holder.alive


def test_a_holder_with_a_wild_command_line_takes_one_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["a\nb", "\x1b[31m"])
    with open_board("mncore2:0"), pytest.raises(DeviceBusy) as error:
        open_board("mncore2:0")
    assert "a?b ?[31m" in str(error.value)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_a_lock_that_is_no_file_is_refused(make):
    files().prepare()
    make(files().lock_path())
    with pytest.raises(DeviceStateError, match="lock file"):
        open_board("mncore2:0")
    assert smi("list").returncode == 0


# --- space and permissions -----------------------------------------------------------------------------------------------
def test_a_full_disk_kills_nobody(tmp_path, monkeypatch):
    """On a file system of 2 MiB: an error for what does not fit, and what fitted stays readable."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        code = (
            "import numpy as np\nfrom mlsdk.device.board import open_board\n"
            "from mlsdk.device.errors import DeviceStateError\n"
            "board, done = open_board('mncore2:0'), 0\n"
            "try:\n"
            "    for group in range(4):\n"
            "        for start in range(0, 1 << 20, 8192):\n"
            "            board.write_dram(group, start, np.full(8192, 7, np.uint64)); done += 1\n"
            "except DeviceStateError as error: print(error)\n"
            "print(done, int(board.read_dram(0, 0, done * 8192).sum()) == 7 * 8192 * done)\n"
            "board.close()\n"
        )
        environment = {**os.environ, "MLSDK_STATE": str(disk)}
        for _ in range(2):
            out = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment
            )
            assert out.returncode == 0, (out.returncode, out.stderr)
            told, count = out.stdout.splitlines()
            assert "No space left on device; free space or set MLSDK_STATE" in told
            assert int(count.split()[0]) >= 16 and count.endswith(" True")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_does_not_take_the_lock_away(monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    files().prepare()
    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", full)
        board = open_board("mncore2:0")
    with pytest.raises(DeviceBusy):
        open_board("mncore2:0")
    board.close()


def test_the_state_directory_does_not_move_with_the_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLSDK_STATE", "here")
    with open_board("mncore2:0") as board:
        monkeypatch.chdir("/")
        board.write_dram(0, 0, np.array([3], np.uint64))
    monkeypatch.chdir(tmp_path)
    with open_board("mncore2:0") as board:
        assert board.read_dram(0, 0, 1).tolist() == [3]


# --- resets --------------------------------------------------------------------------------------------------------------
MOVES = "mvp/n64i01 $lc0@0.0 $d{}@0\nnop; wait i01\n"


@pytest.mark.parametrize("touched", [False, True])
def test_a_reset_is_what_a_run_ends_with_whatever_it_meets(touched):
    """After a reset the files are gone: a run that needs new pages of DRAM says DeviceReset and not what it met."""
    board = open_board("mncore2:0")
    if touched:
        board.write_dram(0, 0, np.ones(1, np.uint64))
    text = "nop\n#@ here\n" + "".join(MOVES.format(64 + (i << 18)) for i in range(40))

    def reset(_: str) -> None:
        files().begin_generation(ZERO)

    with pytest.raises(DeviceReset, match="was reset while this program used it"):
        board.run(parse(text), on_marker=reset)
    assert not board.is_open
    open_board("mncore2:0").close()


def test_a_reset_between_writes_is_told_by_the_write():
    board = open_board("mncore2:0")
    files().begin_generation(ZERO)
    with pytest.raises(DeviceReset):
        board.write_dram(0, 0, np.ones(1, np.uint64))


def running(program):
    """`mlsdk vsm run` of a long program, which has its board by now."""
    command = [
        sys.executable,
        "-m",
        "mlsdk.cli.main",
        "vsm",
        "run",
        "--no-check",
        "--device",
        "mncore2:0",
        str(program),
    ]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    end = time.monotonic() + 60
    while not files().locked() and time.monotonic() < end:
        time.sleep(0.01)
    return run


def test_a_reset_ends_vsm_run_in_the_middle(tmp_path):
    """From a second shell: the run ends with the message and code 1, and no output."""
    program = tmp_path / "long.vsm"
    line = 'imm ui"1" $lr0\nd set $lm0n0c0b0m0p0 1 0000000000000001\n'
    program.write_text("d get $lm0n0c0b0m0p0 1\n" + line * 60_000 + "d get $lm0n0c0b0m0p0 1\n")
    run = running(program)
    assert smi("reset", "--force", "0").returncode == 0
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (1, "") and "was reset while this program used it" in err and err.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_the_board_free(tmp_path, number):
    program = tmp_path / "long.vsm"
    program.write_text("d set $lm0n0c0b0m0p0 1 0000000000000001\n" * 100_000)
    run = running(program)
    assert run.poll() is None
    run.send_signal(number)
    _, err = run.communicate(timeout=60)
    assert run.returncode in (130, -number) and "Traceback" not in err
    open_board("mncore2:0").close()


def test_only_one_of_many_gets_a_board():
    """Eight processes open one new board at once: one has it, the others name it."""
    code = (
        "import sys\nfrom mlsdk.device.board import open_board\nfrom mlsdk.device.errors import DeviceBusy\n"
        "print('ready', flush=True)\nsys.stdin.readline()\n"
        "try: board = open_board('mncore2:0'); print('mine', flush=True)\n"
        "except DeviceBusy as error: print(error, flush=True)\n"
        "sys.stdin.readline()\n"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        for _ in range(8)
    ]
    try:
        assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * 8
        for racer in racers:
            racer.stdin.write("\n")
            racer.stdin.flush()
        told = [racer.stdout.readline() for racer in racers]
    finally:
        for racer in racers:
            racer.communicate("\n", timeout=60)
    winner = racers[told.index("mine\n")].pid
    assert told.count("mine\n") == 1 and sum(f"held by process {winner} " in line for line in told) == 7, told


def test_clear_does_not_take_a_board_that_a_reset_gave_to_another(monkeypatch):
    """A reset between the choice of the lock and its acquisition: the lock of the new generation counts."""
    from mlsdk.device.board import files as module

    acquire, opened = module.acquire, []

    def late(path: Path, *rest: object):
        monkeypatch.setattr(module, "acquire", acquire)
        files().begin_generation(ZERO)
        opened.append(open_board("mncore2:0"))
        return acquire(path, *rest)

    monkeypatch.setattr(module, "acquire", late)
    with pytest.raises(DeviceBusy):
        files().hold()
    opened[0].close()


def test_where_none_is_free_each_holder_is_named(monkeypatch):
    monkeypatch.setenv("MLSDK_BOARDS", "one,two")
    with open_board("mncore2:auto") as first, open_board("mncore2:auto") as second:
        assert (first.name, second.name) == ("one", "two")
        with pytest.raises(DeviceBusy, match="no board is free") as error:
            open_board("mncore2:auto")
    assert "one is busy: held by process" in str(error.value) and "two is busy: held by process" in str(error.value)


# --- names ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["9" * 5000, "²", "0x0", "1_0", "+1", " ", "0::", "mnc2p27s0:"])
def test_words_that_are_no_board(name):
    with pytest.raises(DeviceNotFound):
        names.find(name)
    with pytest.raises(DeviceNotFound):
        names.check_device(f"mncore2:{name}")


@pytest.mark.parametrize("boards", ["1,0", "auto", "a,07"])
def test_board_names_that_mean_something_else_already(boards, monkeypatch):
    monkeypatch.setenv("MLSDK_BOARDS", boards)
    with pytest.raises(DeviceNotFound, match="means a board already"):
        names.board_names()


# --- the command line of gpfn3-smi ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("-pattern", "0xffffffffffffffff"), 2**64 - 1), (("-pattern=010",), 8), (("--pattern", "0b11"), 3),
        (("-pattern", "0o17"), 15), (("--pattern=1_000",), 1000), (("-pattern", "+5"), 5), (("-pattern", "0"), 0),
        (("-seed", "-5"), -5), (("--seed=0x7fffffffffffffff",), 2**63 - 1), (("-seed", "-9223372036854775808"), -(2**63)),
    ],
)  # fmt: skip
def test_clear_takes_numbers_as_go_writes_them(words, value):
    assert smi("clear", *words, "0").returncode == 0
    assert files().fill()["value"] == value
    open_board("mncore2:0").close()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("clear", "-pattern", "-1"), "-1 is outside"), (("clear", "-pattern", "18446744073709551616"), "outside"),
        (("clear", "-pattern", " 5"), "not an integer"), (("clear", "-pattern", "٥"), "not an integer"),
        (("clear", "-pattern", "1__0"), "not an integer"), (("clear", "-pattern", "9" * 5000), "not an integer"),
        (("clear", "-pattern", "1e3"), "not an integer"), (("clear", "-pattern="), "not an integer"),
        (("clear", "-pattern", "08"), "not an integer"), (("clear", "-seed", "9223372036854775808"), "outside"),
        (("clear", "---zero"), "unknown option ---zero"), (("clear", "-zero", "-seed", "1"), "exclude each other"),
        (("clear", "-pattern", "1", "--zero"), "exclude each other"), (("clear", "-zero=maybe"), "takes no value"),
        (("config", "mab", "--core", "5"), "write `config"), (("mtest", "-dmode", "x"), "not h, f or d"),
        (("mtest", "-dram", "0"), "outside 1.."), (("reset", "1"), "name one device"),
    ],
)  # fmt: skip
def test_wrong_words_touch_nothing(words, told):
    one_line(smi(*words, "0"), told)
    assert not files().root.exists()


def test_config_refuses_what_it_does_not_use():
    one_line(smi("config", "0", "mab", "--core", "600"), "takes no options")


def test_help_of_a_command():
    assert smi("help", "clear").stdout == smi("clear", "--help").stdout != ""


def test_standard_output_that_is_full_or_closed():
    with open("/dev/full", "w") as full:
        out = subprocess.run(
            [sys.executable, "-m", "mlsdk.cli.smi", "list"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
    one_line(out, "standard output: No space left on device")
    shell = f"exec {sys.executable} -m mlsdk.cli.smi list >&-"
    out = subprocess.run(["sh", "-c", shell], stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert (out.returncode, out.stderr) == (0, "")


def test_it_starts_quickly_and_light():
    times = []
    for _ in range(5):  # time of the processor, which other processes do not change
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert smi("list").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.15
    code = (
        "import sys\nfrom mlsdk.cli import smi\n"
        "for words in (['list'], ['list', '-json'], ['clear', '-zero', '0'], ['config', '0', 'clock'], ['reset', '0']):\n"
        "    assert smi.run(words) == 0\n"
        "print([m for m in ('torch', 'sqlalchemy', 'numpy', 'numba', 'click') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.splitlines()[-1] == "[]"


REGION = {"region": "dram0", "offset": 5, "length": 4}


def configured(path: Path, key: str, *regions: object) -> str:
    path.write_text(json.dumps({key: list(regions)}))
    return str(path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"offset": True}, "are needed"), ({"region": ""}, "region ''"), ({"region": "DRAM0"}, "region 'DRAM0'"),
        ({"region": "dram0,"}, "region ''"), ({"region": "dram00"}, "region 'dram00'"), ({"region": "dram²"}, "region"),
        ({"region": "dram4"}, "region 'dram4'"), ({"offset": -1}, "outside dram0"), ({"length": -1}, "outside dram0"),
        ({"offset": spec.DRAM_LW}, "outside dram0"), ({"region": "pdm3", "length": spec.PDM_LW}, "outside pdm3"),
        ({"length": 4.0}, "are needed"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("verb", ["load", "save"])
def test_wrong_regions_touch_nothing(tmp_path, verb, change, told):
    (tmp_path / "data").write_bytes(bytes(64))
    config = configured(tmp_path / "c.json", verb, {**REGION, **change})
    one_line(smi(verb, "-config", config, "-file", str(tmp_path / "data"), "0"), told)
    assert not files().root.exists() and (tmp_path / "data").read_bytes() == bytes(64)


@pytest.mark.parametrize("text", ["", "[", "[" * 100_000, "\xff\xfe", '"load"', '{"load": {}}'])
def test_a_configuration_that_is_none(tmp_path, text):
    (tmp_path / "c.json").write_text(text, encoding="latin-1")
    one_line(smi("load", "-config", str(tmp_path / "c.json"), "-file", "x", "0"), "c.json")


@pytest.mark.parametrize(
    ("size", "told"), [(0, "0 LW"), (31, "whole long words"), (24, "3 LW"), (33, "whole long words")]
)
def test_a_data_file_of_the_wrong_size(tmp_path, size, told):
    (tmp_path / "data").write_bytes(bytes(size))
    config = configured(tmp_path / "c.json", "load", REGION)
    one_line(smi("load", "-config", config, "-file", str(tmp_path / "data"), "0"), told)
    assert not files().root.exists()


def test_data_through_pipes(tmp_path):
    data = np.arange(1, 5, dtype=">u8").tobytes()
    config = configured(tmp_path / "c.json", "load", REGION)
    out = subprocess.run(
        [sys.executable, "-m", "mlsdk.cli.smi", "load", "-config", config, "-file", "/dev/stdin", "0"],
        input=data, capture_output=True, cwd=ROOT,
    )  # fmt: skip
    assert out.returncode == 0, out.stderr
    config = configured(tmp_path / "c.json", "save", REGION)
    out = subprocess.run(
        [sys.executable, "-m", "mlsdk.cli.smi", "save", "-config", config, "-file", "/dev/stdout", "0"],
        capture_output=True, cwd=ROOT,
    )  # fmt: skip
    assert out.stdout == data
    one_line(smi("load", "-config", config, "-file", str(tmp_path), "0"), "load")


def test_a_save_that_fails_leaves_the_file_as_it_was(tmp_path):
    (tmp_path / "data").write_text("old")
    config = configured(tmp_path / "c.json", "save", REGION)
    with open_board("mncore2:0"):
        one_line(smi("save", "-config", config, "-file", str(tmp_path / "data"), "0"), "busy")
    assert (tmp_path / "data").read_text() == "old"
    one_line(smi("save", "-config", config, "-file", "/dev/full", "0"), "/dev/full: No space left")
    one_line(smi("save", "-config", config, "-file", str(tmp_path / "no" / "x"), "0"), "No such file")
    assert smi("save", "-config", config, "-file", str(tmp_path / "data"), "0").returncode == 0
    assert (tmp_path / "data").read_bytes() == bytes(32)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "state") == ["c.json", "data"]


def test_more_than_one_piece_is_loaded_and_saved(tmp_path):
    from mlsdk.cli.smi import CHUNK_LW

    count = CHUNK_LW + 77
    np.arange(count, dtype=">u8").tofile(tmp_path / "data")
    region = {"region": "dram1,dram3", "offset": 11, "length": count}
    config = configured(tmp_path / "c.json", "load", region)
    assert smi("load", "-config", config, "-file", str(tmp_path / "data"), "0").returncode == 0
    config = configured(tmp_path / "c.json", "save", {**region, "region": "dram3"})
    assert smi("save", "-config", config, "-file", str(tmp_path / "back"), "0").returncode == 0
    assert (tmp_path / "back").read_bytes() == (tmp_path / "data").read_bytes()


def test_seeds_below_zero_and_far_above_are_told_apart():
    found = set()
    for seed in (-1, -2, -3, -1000, 2**63 - 1, 2**63 - 2, -(2**63), 0, 1):
        files().begin_generation({"kind": "random", "value": seed, "on_chip": True})
        with open_board("mncore2:0") as board:
            found.add((*board.read_dram(0, 0, 2).tolist(), *board.machine.read("lm0", 0, 2)[:, 0].tolist()))
    assert len({words[:2] for words in found}) == len({words[2:] for words in found}) == 9


# --- the self test -------------------------------------------------------------------------------------------------------
SIZES = {"l1": 64, "l2": 128, "l3": 64, "dram": 64}


def results(board, sizes: dict[str, int] = SIZES) -> dict[str, bool]:
    return {name: good for name, good, _ in tests_of_a_board.self_test(board, sizes, "h")}


@pytest.mark.parametrize(
    ("place", "sizes", "failing"),
    [
        (("l2bm", 3, 100), {}, "DRAM - L2BM"), (("l2bm", 3, 300), {}, "DRAM - L2BM - L1BM - LM"),
        (("l2bm", 3, 32767), {"l2": 32768}, "DRAM - L2BM"), (("l1bm", 9, 40), {}, "L2BM - L1BM"),
        (("l1bm", 63, 8191), {"l1": 8192}, "L2BM - L1BM"),
    ],
)  # fmt: skip
def test_mtest_finds_a_word_that_is_stuck(monkeypatch, place, sizes, failing):
    """The sizes of the options are what is tested."""
    from mlsdk.device.engine import machine as module

    memory, block, word = place
    with open_board("mncore2:0") as board:
        assert all(results(board, {**SIZES, **sizes}).values())
        usual = module.Stretch.__call__

        def stuck(stretch) -> None:
            for kernel, args in stretch.calls:
                kernel(*args)
                getattr(board.machine.state, memory)[block, word] = np.uint64(12345)

        monkeypatch.setattr(module.Stretch, "__call__", stuck)
        found = results(board, {**SIZES, **sizes})
        monkeypatch.setattr(module.Stretch, "__call__", usual)
    assert not found[failing], found


def test_mtest_puts_back_what_it_used_when_it_is_broken_off(monkeypatch):
    data = np.arange(1, 10_001, dtype=np.uint64)
    with open_board("mncore2:0") as board:
        board.write_dram(0, spec.DRAM_LW - 10_000, data)
        board.write_pdm(0, 0, data[:64])
        run = board.run
        for broken in range(6):
            runs = []

            def stopped(*words, broken=broken, runs=runs):
                runs.append(words)
                if len(runs) > broken:
                    raise KeyboardInterrupt
                return run(*words)

            monkeypatch.setattr(board, "run", stopped)
            with pytest.raises(KeyboardInterrupt):
                results(board)
            assert (board.read_dram(0, spec.DRAM_LW - 10_000, 10_000) == data).all()
            assert (board.read_pdm(0, 0, 64) == data[:64]).all()
