"""Boards: names, locks, generations, memory that outlives the process, and what happens when something goes wrong."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mlsdk.device import spec
from mlsdk.device.board import names, open_board
from mlsdk.device.board.files import BoardFiles
from mlsdk.device.errors import (
    DeviceBusy,
    DeviceClosed,
    DeviceError,
    DeviceNotFound,
    DeviceReset,
    DeviceStateError,
    ExecutionError,
)
from mlsdk.device.isa.parser import parse
from mlsdk.device.memory.dram import Fill, PagedMemory

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MLSDK_STATE", str(tmp_path))
    monkeypatch.delenv("MLSDK_BOARDS", raising=False)
    return tmp_path


def files(name: str = "mnc2p27s0") -> BoardFiles:
    return BoardFiles(names.state_directory(), name)


def smi(*words: str, **more) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "mlsdk.cli.smi", *words], capture_output=True, text=True, cwd=ROOT, **more
    )


def on_terminal(*words: str) -> list[str]:
    """What gpfn3-smi prints where standard output is a terminal."""
    master, slave = pty.openpty()
    subprocess.run([sys.executable, "-m", "mlsdk.cli.smi", *words], stdout=slave, cwd=ROOT, check=True)
    os.close(slave)
    text = b""
    try:
        while piece := os.read(master, 1 << 16):
            text += piece
    except OSError:  # the end of a terminal
        pass
    os.close(master)
    return text.decode().splitlines()


def child(code: str) -> subprocess.Popen:
    """A Python process that has run `code` once it prints a line, and then waits for a line."""
    code = f"import sys\nfrom mlsdk.device.board import open_board\n{code}\nprint('ready', flush=True)\nsys.stdin.readline()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen) -> None:
    process.communicate("\n", timeout=60)


# --- names -----------------------------------------------------------------------------------------------------------------
def test_eight_boards_by_default():
    assert names.board_names() == (
        "mnc2p27s0", "mnc2p28s0", "mnc2p42s0", "mnc2p43s0", "mnc2p171s0", "mnc2p172s0", "mnc2p187s0", "mnc2p188s0",
    )  # fmt: skip


def test_boards_from_the_environment(monkeypatch):
    monkeypatch.setenv("MLSDK_BOARDS", "one, two")
    assert names.board_names() == ("one", "two")
    with open_board("mncore2:1") as board:
        assert board.name == "two"
    monkeypatch.setenv("MLSDK_BOARDS", "../evil")
    with pytest.raises(DeviceNotFound, match="not a board name"):
        names.board_names()
    monkeypatch.setenv("MLSDK_BOARDS", "a,a")
    with pytest.raises(DeviceNotFound, match="twice"):
        names.board_names()


@pytest.mark.parametrize(
    "device",
    ["mncore2:99", "mncore2:-1", "mncore2:", "MNCORE2:0", "pfvm:gpu", "", None, "mncore2:²", "emu3", "mncore2:auto2"],
)
def test_unknown_devices_list_the_valid_ones(device):
    with pytest.raises(DeviceNotFound, match="0: mnc2p27s0"):
        open_board(device)


# --- memory ----------------------------------------------------------------------------------------------------------------
def test_memory_outlives_the_board():
    data = np.arange(100_000, dtype=np.uint64)
    with open_board("mncore2:0") as board:
        board.write_dram(2, 12345, data)
        board.write_pdm(0, 7, data[:100])
        board.run(parse("mvp/n64i01 $d12345@2 $p640@1"))
    with open_board("mncore2:0") as board:
        np.testing.assert_array_equal(board.read_dram(2, 12345, 100_000), data)
        np.testing.assert_array_equal(board.read_pdm(0, 7, 100), data[:100])
        np.testing.assert_array_equal(board.read_pdm(1, 640, 64), data[:64])
    with open_board("mncore2:1") as board:
        assert not board.read_dram(2, 12345, 10).any()


def test_memory_outlives_a_killed_process():
    process = child("import numpy as np\nb = open_board('mncore2:0')\nb.write_dram(0, 5, np.array([42], np.uint64))")
    process.send_signal(signal.SIGKILL)
    process.wait()
    with open_board("mncore2:0") as board:
        assert board.read_dram(0, 5, 1).tolist() == [42]


def test_emu2_keeps_nothing():
    with open_board("emu2") as board:
        board.write_dram(0, 0, np.array([1], np.uint64))
    with open_board("emu2") as a, open_board("emu2") as b:  # and is not locked
        assert a.read_dram(0, 0, 1).tolist() == b.read_dram(0, 0, 1).tolist() == [0]


@pytest.mark.parametrize(
    "call,message",
    [
        (lambda b: b.read_dram(4, 0, 1), "group 4"),
        (lambda b: b.read_dram(0, spec.DRAM_LW - 1, 2), "outside"),
        (lambda b: b.write_dram(0, -1, np.zeros(1, np.uint64)), "outside"),
        (lambda b: b.write_dram(0, 0, np.zeros(1, np.int64)), "uint64"),
        (lambda b: b.read_pdm(0, spec.PDM_LW, 1), "outside"),
    ],
)
def test_addresses_outside_are_named(call, message):
    with open_board("emu2") as board, pytest.raises(ExecutionError, match=message):
        call(board)


def test_a_fill_is_a_record():
    memory = PagedMemory(spec.DRAM_LW, 0, Fill("random", 7))
    a = memory.read(1_000_000, 10)
    assert memory.touched == 0 and len(set(a.tolist())) == 10
    memory.write(1_000_003, np.array([5], np.uint64))
    b = memory.read(1_000_000, 10)
    assert b[3] == 5 and (np.delete(a, 3) == np.delete(b, 3)).all() and memory.touched == 65536
    assert (PagedMemory(spec.DRAM_LW, 0, Fill("random", 7)).read(1_000_000, 10) == a).all()
    assert not (PagedMemory(spec.DRAM_LW, 1, Fill("random", 7)).read(1_000_000, 10) == a).any()
    assert (PagedMemory(64, 0, Fill("pattern", 9)).read(60, 8) == 9).all()


# --- locks -----------------------------------------------------------------------------------------------------------------
def test_a_busy_board_names_its_holder():
    process = child("b = open_board('mncore2:0')")
    with pytest.raises(DeviceBusy) as error:
        open_board("mncore2:0")
    assert f"process {process.pid}" in str(error.value) and "since" in str(error.value) and "\n" not in str(error.value)
    with open_board("mncore2:auto") as board:
        assert board.index == 1
    end(process)
    open_board("mncore2:0").close()


def test_waiting_as_long_as_asked():
    process = child("b = open_board('mncore2:0')")
    start = time.monotonic()
    with pytest.raises(DeviceBusy):
        open_board("mncore2:0", timeout=0.5)
    assert 0.5 <= time.monotonic() - start < 5
    process.stdin.write("\n")
    process.stdin.flush()
    open_board("mncore2:0", timeout=30).close()
    process.wait()


def test_a_second_board_in_this_process_is_busy():
    with open_board("mncore2:0"), pytest.raises(DeviceBusy, match="this process"):
        open_board("mncore2:0")
    open_board("mncore2:0").close()


def test_the_lock_of_a_killed_process_is_free_at_once():
    process = child("b = open_board('mncore2:0')")
    process.send_signal(signal.SIGKILL)
    process.wait()
    open_board("mncore2:0").close()


def test_a_reused_process_number_is_not_blamed():
    with open_board("mncore2:0"):
        path = files().lock_path()
        record = json.loads(path.read_text())
        record["pid"], record["start"] = os.getppid(), "1"
        path.write_text(json.dumps(record))
        with pytest.raises(DeviceBusy, match="did not leave its name") as error:
            open_board("mncore2:0")
        assert str(os.getppid()) not in str(error.value)
        path.write_text("garbage")
        with pytest.raises(DeviceBusy, match="did not leave its name"):
            open_board("mncore2:0")


def test_a_forked_child_cannot_use_the_board():
    board = open_board("mncore2:0")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            board.read_dram(0, 0, 1)
            answer = b"used"
        except DeviceClosed:
            answer = b"refused"
        os.write(write, answer)
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 20) == b"refused"
    assert board.read_dram(0, 0, 1).tolist() == [0]  # the parent still can
    with pytest.raises(DeviceBusy):
        open_board("mncore2:0")
    board.close()
    open_board("mncore2:0").close()


def test_a_subprocess_does_not_inherit_the_lock():
    board = open_board("mncore2:0")
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    board.close()
    open_board("mncore2:0").close()
    process.communicate(b"\n")


def test_retry_after_a_failed_open():
    process = child("b = open_board('mncore2:0')")
    for _ in range(3):
        with pytest.raises(DeviceBusy):
            open_board("mncore2:0")
    end(process)
    open_board("mncore2:0").close()


def test_a_deleted_lock_file_does_not_admit_a_second_holder():
    with open_board("mncore2:0"):
        files().lock_path().unlink()
        with pytest.raises(DeviceBusy):
            open_board("mncore2:0")
    open_board("mncore2:0").close()


def test_a_planted_link_is_refused(state):
    files().prepare()
    (state / "elsewhere").write_text("x")
    files().lock_path().symlink_to(state / "elsewhere")
    with pytest.raises(DeviceStateError, match="lock file"):
        open_board("mncore2:0")


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_a_directory_that_is_not_writable(state):
    files().prepare()
    os.chmod(state, 0o755)
    code = (
        "from mlsdk.device.board import open_board\n"
        "from mlsdk.device.errors import DeviceStateError\n"
        "try: open_board('mncore2:0')\n"
        "except DeviceStateError as e: print(e)"
    )
    path = files().lock_path()
    path.touch(0o600)
    out = subprocess.run(
        ["setpriv", "--reuid", "65534", "--clear-groups", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    if "ermission denied" in out.stderr and not out.stdout:
        pytest.skip("the interpreter cannot be read by another user")
    assert "Permission denied" in out.stdout and "MLSDK_STATE" in out.stdout


def test_a_state_directory_that_is_a_file(state, monkeypatch):
    (state / "file").write_text("")
    monkeypatch.setenv("MLSDK_STATE", str(state / "file"))
    with pytest.raises(DeviceStateError, match="MLSDK_STATE"):
        open_board("mncore2:0")


def test_a_full_disk_is_an_error_and_not_a_crash(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with open_board("mncore2:0") as board:
        monkeypatch.setattr(os, "posix_fallocate", full)
        with pytest.raises(DeviceStateError, match="No space left"):
            board.write_dram(0, 0, np.ones(4, np.uint64))
        monkeypatch.undo()


# --- reset and clear ---------------------------------------------------------------------------------------------------------
def test_a_reset_voids_the_open_board():
    board = open_board("mncore2:0")
    board.write_dram(0, 0, np.array([9], np.uint64))
    files().begin_generation({"kind": "zero", "value": 0, "on_chip": False})
    with pytest.raises(DeviceReset, match="was reset"):
        board.read_dram(0, 0, 1)
    with pytest.raises(DeviceClosed):
        board.read_dram(0, 0, 1)
    with open_board("mncore2:0") as again:
        assert again.read_dram(0, 0, 1).tolist() == [0]


def test_a_reset_during_a_run_returns_no_data():
    board = open_board("mncore2:0")
    text = "nop\n" * 10 + "#@ here\n" + "nop\n" * 10

    def reset(_: str) -> None:
        assert smi("reset", "--force", "0").returncode == 0

    with pytest.raises(DeviceReset):
        board.run(parse(text), on_marker=reset)
    open_board("mncore2:0").close()  # the next one works


def test_old_and_new_holder_do_not_disturb_each_other():
    old = open_board("mncore2:0")
    page = old.machine.state.dram[0]
    page.write(0, np.array([1], np.uint64))
    files().begin_generation({"kind": "zero", "value": 0, "on_chip": False})
    with open_board("mncore2:0") as new:
        page.write(0, np.array([2], np.uint64))  # what a running program may still do
        assert new.read_dram(0, 0, 1).tolist() == [0]
    old.close()


def test_smi_list():
    out = smi("list")
    assert out.stdout.splitlines()[0] == "0: mnc2p27s0" and len(out.stdout.splitlines()) == 8
    with open_board("mncore2:1") as board:
        board.write_dram(0, 0, np.ones(1, np.uint64))
        rows = json.loads(smi("list", "-json").stdout)
        lines = on_terminal("list")
        assert smi("list").stdout == out.stdout  # what scripts read stays as it is
        assert "mnc2p28s0 is locked" in smi("reset", *smi("list").stdout.splitlines()[1].split()).stderr
    assert lines[1].startswith(f"1: mnc2p28s0  held by process {os.getpid()} (") and lines[2] == "2: mnc2p42s0"
    assert rows[0]["locked"] is False and rows[0]["holder"] is None
    assert rows[1]["locked"] is True and rows[1]["holder"]["pid"] == os.getpid() and rows[1]["memory_in_use"] == 65536


def test_smi_list_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from mlsdk.cli import smi\n"
        "smi.run(['list'])\n"
        "print([m for m in ('torch', 'sqlalchemy', 'numpy', 'numba', 'rich', 'click') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.splitlines()[-1] == "[]"


def test_smi_reset():
    for arguments in (("0",), ("--force", "mnc2p27s0")):
        process = child("b = open_board('mncore2:0')")
        out = smi("reset", *arguments, stdin=subprocess.DEVNULL)
        assert out.returncode == 0 and f"warning: mnc2p27s0 is locked by process {process.pid}" in out.stderr
        open_board("mncore2:0").close()  # although the old holder lives
        end(process)
    assert smi("reset", "0:", "mnc2p27s0").returncode == 0  # as `reset $(gpfn3-smi list | head -1)` says it


def test_smi_clear():
    value = 0x5555555555555555
    assert smi("clear", "--pattern", hex(value), "0").returncode == 0
    with open_board("mncore2:0") as board:
        assert board.read_dram(3, spec.DRAM_LW - 2, 2).tolist() == [value] * 2 and board.read_pdm(0, 0, 1).tolist() == [
            value
        ]
        assert (board.machine.read("lm0", 4000, 2) == 0x55555555).all() and (board.machine.state.masks[:64] == 15).all()
    assert files().memory_in_use() == 0
    assert smi("clear", "-seed", "5", "0").returncode == 0
    with open_board("mncore2:0") as board:
        a = board.read_dram(0, 0, 4).tolist()
    assert smi("clear", "-seed=5", "1").returncode == 0
    with open_board("mncore2:1") as board:
        assert board.read_dram(0, 0, 4).tolist() == a
    assert smi("clear", "0").returncode == 0
    with open_board("mncore2:0") as board:
        assert board.read_dram(0, 0, 4).tolist() != a
    assert smi("clear", "-zero", "0").returncode == 0
    with open_board("mncore2:0") as board:
        assert not board.read_dram(0, 0, 4).any()
        assert "busy" in smi("clear", "-zero", "0").stderr


@pytest.mark.parametrize(
    "words,message",
    [
        (("clear", "-pattern", "-1", "0"), "-1 is outside"),
        (("clear", "-pattern", "0x1_0000_0000_0", "0"), ""),
        (("clear", "-pattern", "0x10000000000000000", "0"), "outside"),
        (("clear", "-seed", "abc", "0"), "'abc' is not an integer"),
        (("clear", "-pattern", "1", "-zero", "0"), "exclude each other"),
        (("clear", "-zero", "99"), "no board `99`"),
        (("clear", "-zer", "0"), "did you mean -zero?"),
        (("clear", "-pattern"), "needs a value"),
        (("clear",), "name one device"),
        (("reset", "0", "1"), "name one device"),
        (("lst",), "did you mean list?"),
        (("config", "0"), "clock"),
        (("load", "0"), "-config is missing"),
    ],
)
def test_smi_bad_arguments(words, message):
    out = smi(*words)
    if words[2:3] == ("0x1_0000_0000_0",):  # Python accepts the underscores: 2^44 is a pattern
        assert out.returncode == 0
        return
    assert out.returncode != 0 and message in out.stderr and out.stderr.count("\n") == 1
    assert files().epoch() == 0  # nothing was touched


@pytest.mark.parametrize("command", ["list", "reset", "clear", "load", "save", "config", "mtest"])
def test_smi_help(command):
    for flag in ("--help", "-h", "-help"):
        out = smi(command, flag)
        assert out.returncode == 0 and "Usage: gpfn3-smi " + command in out.stdout


def test_smi_load_and_save(tmp_path):
    data = np.arange(1, 65, dtype=np.uint64)
    (tmp_path / "in.bin").write_bytes(data.astype(">u8").tobytes())
    (tmp_path / "cfg.json").write_text(
        json.dumps(
            {
                "load": [{"region": "dram0,dram2", "offset": 100, "length": 64}],
                "save": [{"region": "dram2", "offset": 100, "length": 64}],
            }
        )
    )
    assert smi("load", "-config", str(tmp_path / "cfg.json"), "-file", str(tmp_path / "in.bin"), "0").returncode == 0
    with open_board("mncore2:0") as board:
        assert board.read_dram(0, 100, 64).tolist() == board.read_dram(2, 100, 64).tolist() == data.tolist()
    assert smi("save", "--config", str(tmp_path / "cfg.json"), "--file", str(tmp_path / "out.bin"), "0").returncode == 0
    assert (tmp_path / "out.bin").read_bytes() == (tmp_path / "in.bin").read_bytes()
    (tmp_path / "bad.json").write_text('{"load": [{"region": "dram9", "offset": 0, "length": 1}]}')
    assert "dram9" in smi("load", "-config", str(tmp_path / "bad.json"), "-file", str(tmp_path / "in.bin"), "0").stderr


def test_smi_config_and_mtest():
    assert smi("config", "0", "clock").stdout == "core: 750 MHz\ngddr6: 15000 Mbps\n"
    assert smi("config", "0", "clock", "--core=600").stdout.startswith("core: 600 MHz")
    assert "1024 of 1024" in smi("config", "0", "mab").stdout
    with open_board("mncore2:0") as board:
        board.write_dram(0, spec.DRAM_LW - 100, np.arange(100, dtype=np.uint64))
    out = smi("mtest", "--forward", "--dmode", "h", "--l1", "64", "--l2", "2048", "--l3", "64", "--dram", "3968", "0")
    assert out.returncode == 0 and "all tests passed" in out.stdout, out.stdout + out.stderr
    with open_board("mncore2:0") as board:
        assert board.read_dram(0, spec.DRAM_LW - 100, 100).tolist() == list(range(100))  # put back


def test_times_follow_the_clock_of_the_board():
    smi("config", "0", "clock", "--core=375")
    with open_board("mncore2:0") as slow, open_board("mncore2:1") as usual:
        program = parse("nop/1000")
        assert slow.run(program).seconds == pytest.approx(4000 / 375e6)
        assert usual.run(program).seconds == pytest.approx(4000 / 750e6)


def test_errors_have_one_line():
    assert issubclass(DeviceReset, DeviceError) and issubclass(ExecutionError, DeviceError)
