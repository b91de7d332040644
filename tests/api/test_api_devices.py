"""Devices: names, locks, sharing, and what happens when processes end, fork or are stopped."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from conftest import add

from mlsdk import Context, MNDevice
from mlsdk.errors import ContextError, DeviceBusy, DeviceError, DeviceNotFound, DeviceReset

HOLDER = """
import sys, time, torch
from mlsdk import Context, MNDevice
context = Context(MNDevice(sys.argv[1]))
print("open", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds a board until it reads a line."""
    file = tmp_path / "holder.py"
    file.write_text(HOLDER)
    started = []

    def start(device):
        process = subprocess.Popen(
            [sys.executable, str(file), device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout.readline() == "open\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.mark.parametrize(
    "name", ["mncore2:99", "mncore2:-1", "mncore2:", "MNCORE2:0", "", "cuda", None, 0, "mncore2:x"]
)
def test_names_that_are_no_device(name):
    with pytest.raises(DeviceNotFound, match="no device"):
        MNDevice(name)


@pytest.mark.parametrize("name", ["pfvm:cuda", "pfvm:gpu"])
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(name):
    with pytest.raises(DeviceNotFound, match=f"{name}: torch finds no GPU on this machine; use pfvm:cpu"):
        MNDevice(name)


def test_comparison_with_text():
    device = MNDevice("pfvm:cpu")
    assert (device == "cuda") is False and (device != "cuda") is True
    assert device not in ["cpu", "cuda"] and (device == "pfvm:cpu") is False
    assert str(device) == "pfvm:cpu" and device == device


def test_a_board_by_index_and_by_name():
    with Context(MNDevice("mncore2:2")) as one:
        name = one._session.name
        with Context(MNDevice(f"mncore2:{name}")) as other:
            assert one._session is other._session


def test_a_busy_board_names_its_holder(holder):
    process = holder("mncore2:1")
    with pytest.raises(DeviceBusy, match=rf"is busy: held by process {process.pid} \(.*holder.py mncore2:1\) since"):
        Context(MNDevice("mncore2:1"))
    with Context(MNDevice("mncore2:auto")) as context:
        assert context._session.board.index == 0
    process.stdin.write("\n")
    process.stdin.flush()
    process.wait()
    with Context(MNDevice("mncore2:1")):
        pass


def test_auto_takes_the_next_free_board(monkeypatch):
    monkeypatch.setenv("MLSDK_BOARDS", "left,right")
    with Context(MNDevice("mncore2:auto")) as one, Context(MNDevice("mncore2:auto")) as other:
        assert (one._session.name, other._session.name) == ("left", "right")
        with pytest.raises(DeviceBusy, match="no board is free: .*this process.*this process"):
            Context(MNDevice("mncore2:auto"))
    with Context(MNDevice("mncore2:auto")) as again:
        assert again._session.name == "left"


def test_a_context_that_nobody_uses_gives_its_board_up(monkeypatch):
    monkeypatch.setenv("MLSDK_BOARDS", "only")
    context = Context(MNDevice("mncore2:auto"))
    context.me = context  # garbage in a cycle, which only the collector finds
    gc.disable()
    try:
        del context
        with Context(MNDevice("mncore2:auto")) as another:
            assert another._session.name == "only"
    finally:
        gc.enable()


def test_two_contexts_on_one_device(tmp_path, pair):
    device = MNDevice("mncore2:auto")
    train, evaluate = Context(device), Context(device)
    Context.switch_context(evaluate)
    assert Context.current() is evaluate
    functions = [context.compile(add, pair, tmp_path / str(n)) for n, context in enumerate((train, evaluate))]
    results = [function(pair)["sum"] for function in functions]
    train.invalidate()
    assert torch.equal(results[1].cpu(), pair["a"] + pair["b"])
    assert torch.equal(functions[1](pair)["sum"].cpu(), pair["a"] + pair["b"])
    with pytest.raises(ContextError, match="invalidated"):
        functions[0](pair)
    evaluate.invalidate()
    with pytest.raises(ContextError, match="invalidated"):
        Context.switch_context(evaluate)
    with Context(device) as again:
        assert torch.equal(again.load_codegen_dir(tmp_path / "0")(pair)["sum"].cpu(), pair["a"] + pair["b"])


def test_context_takes_a_device():
    with pytest.raises(ContextError, match="Context takes an MNDevice, not str"):
        Context("mncore2:auto")
    with pytest.raises(ContextError, match="switch_context takes a Context, not MNDevice"):
        Context.switch_context(MNDevice("pfvm:cpu"))


def test_memory_is_given_back(context, tmp_path, pair):
    session = context._session
    with session.allocating() as memory:
        before = memory.free
    added = context.compile(add, pair, tmp_path / "add")
    kept = [added(pair) for _ in range(4)]
    proxies = added.allocate_input_proxy()
    context.synchronize()
    with session.allocating() as memory:
        assert memory.free < before
    del added, kept, proxies
    gc.collect()
    with session.allocating() as memory:
        assert memory.free == before


def test_memory_that_does_not_suffice(context, tmp_path, pair):
    added = context.compile(add, pair, tmp_path / "add")
    with context._session.allocating() as memory:
        taken = memory.take(memory.largest - 128)
    with pytest.raises(DeviceError, match="no room in DRAM for add input .*: .* bytes are needed in each group"):
        kept = []
        for _ in range(3):
            kept.append(added.allocate_input_proxy())
    gc.collect()
    with context._session.allocating() as memory:
        before = memory.free
    for _ in range(2):
        with pytest.raises(DeviceError, match="no room in DRAM"):
            context.compile(lambda i: {"y": i["x"] + 1}, {"x": torch.zeros(64, 64)}, tmp_path / "more")
    with context._session.allocating() as memory:
        assert memory.free == before
        memory.give(taken)
    assert torch.equal(added(pair)["sum"].cpu(), pair["a"] + pair["b"])


def test_a_reset_voids_everything(tmp_path, pair):
    from mlsdk.device.board.files import BoardFiles
    from mlsdk.device.board.names import state_directory

    device = MNDevice("mncore2:3")
    context = Context(device)
    added = context.compile(add, pair, tmp_path / "add")
    result = added(pair)
    result["sum"].cpu()
    BoardFiles(state_directory(), context._session.name).begin_generation(
        {"kind": "zero", "value": 0, "on_chip": False}
    )
    with pytest.raises(DeviceReset, match="was reset while this program used it; its data is void"):
        added(pair)["sum"].cpu()
    for use in (lambda: added(pair), lambda: context.synchronize(), lambda: added.allocate_input_proxy()):
        with pytest.raises(DeviceReset, match="make a new Context"):
            use()
    with Context(device) as again:
        assert torch.equal(again.load_codegen_dir(tmp_path / "add")(pair)["sum"].cpu(), pair["a"] + pair["b"])


def test_a_forked_child_is_told(tmp_path, pair):
    with Context(MNDevice("mncore2:0")) as context:
        added = context.compile(add, pair, tmp_path / "add")
        result = added(pair)["sum"]
        result.cpu()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:  # no assertion and no exception may leave the child: it would run the other tests
            told = []
            for use in (lambda: added(pair), lambda: result.cpu(), lambda: context.synchronize()):
                try:
                    use()
                except ContextError as error:
                    told.append(str(error))
                except BaseException as error:
                    told.append(repr(error))
            context.invalidate()
            try:
                Context(MNDevice("mncore2:0"))
            except DeviceBusy:
                told.append("busy")
            with Context(MNDevice("mncore2:1")) as own:
                own_result = own.load_codegen_dir(tmp_path / "add")(pair)["sum"].cpu()
                told.append("equal" if torch.equal(own_result, pair["a"] + pair["b"]) else "different")
            os.write(write, "\n".join(told).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            told = pipe.read().split("\n")
        os.waitpid(child, 0)
        assert told[3:] == ["busy", "equal"]
        for message in told[:3]:
            assert f"was opened by process {os.getpid()}, and this is its child {child}" in message
        assert torch.equal(added(pair)["sum"].cpu(), pair["a"] + pair["b"])  # the parent goes on


def test_a_program_without_with_leaves_the_board_free(run_program):
    run_program(
        """
import torch
from mlsdk import Context, MNDevice
context = Context(MNDevice("mncore2:0"))
f = context.compile(lambda i: {"y": i["x"] + 1}, {"x": torch.zeros(4)}, __file__ + ".dir")
results = [f({"x": torch.zeros(4)}) for _ in range(3)]   # nobody waits for them
"""
    )
    with Context(MNDevice("mncore2:0")):
        pass


def test_ctrl_c_stops_at_once_and_leaves_the_board_free(tmp_path):
    file = tmp_path / "long.py"
    file.write_text(
        """
import sys, torch
from mlsdk import Context, MNDevice
context = Context(MNDevice("mncore2:0"))
f = context.compile(lambda i: {"y": i["x"] @ i["x"]}, {"x": torch.zeros(64, 64)}, sys.argv[1])
f({"x": torch.zeros(64, 64)})["y"].cpu()
print("running", flush=True)
results = [f({"x": torch.zeros(64, 64)}) for _ in range(3000)]
"""
    )
    process = subprocess.Popen(
        [sys.executable, str(file), str(tmp_path / "f")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "running\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    clock = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    # Python forgets that it was an interrupt, and gives 1, when another thread was just compiling something.
    assert process.returncode in (-signal.SIGINT, 1)
    assert time.monotonic() - clock < 10
    with Context(MNDevice("mncore2:0")):
        pass


def test_a_killed_holder_does_not_block(holder):
    process = holder("mncore2:0")
    process.kill()
    process.wait()
    with Context(MNDevice("mncore2:0")):
        pass


def test_work_after_a_failure_is_not_done(context, tmp_path):
    """A step that fails must not be followed by steps on what it should have computed."""
    total = torch.zeros(4)
    from mlsdk import set_tensor_name

    set_tensor_name(total, "total")
    context.register_buffer(total)
    step = context.compile(lambda i: {"y": total.add_(i["x"])}, {"x": torch.zeros(4)}, tmp_path / "step")
    step({"x": torch.ones(4)})
    context.synchronize()
    program, run = step._program, step._program.run
    program.run = lambda bound: (_ for _ in ()).throw(DeviceError("the board is on fire"))
    failed = step({"x": torch.ones(4)})
    with pytest.raises(DeviceError, match="on fire"):
        failed["y"].cpu()
    program.run = run
    step({"x": torch.ones(4)})
    context.synchronize()
    assert total.tolist() == [2, 2, 2, 2]


def test_an_error_that_nobody_fetched_comes_with_the_next_call(context, tmp_path, pair):
    added = context.compile(add, pair, tmp_path / "add")
    run = added._program.run
    added._program.run = lambda bound: (_ for _ in ()).throw(DeviceError("the board is on fire"))
    added(pair)
    context._session.runner.barrier()
    added._program.run = run
    with pytest.raises(DeviceError, match="on fire"):
        added(pair)
    assert torch.equal(added(pair)["sum"].cpu(), pair["a"] + pair["b"])


def test_synchronous_mode_raises_in_the_call(context, tmp_path, pair, monkeypatch):
    monkeypatch.setenv("MLSDK_SYNCHRONOUS", "1")
    added = context.compile(add, pair, tmp_path / "add")
    assert torch.equal(added(pair)["sum"].cpu(), pair["a"] + pair["b"])
    added._program.run = lambda bound: (_ for _ in ()).throw(DeviceError("the board is on fire"))
    with pytest.raises(DeviceError, match="on fire"):
        added(pair)
