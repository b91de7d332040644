from __future__ import annotations

import importlib.metadata
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from mlsdk import store as stores
from mlsdk.cli import exit_codes
from mlsdk.store import query


def test_the_version(mlsdk):
    answer = mlsdk("--version")
    assert (answer.code, answer.out.split()[1]) == (0, importlib.metadata.version("open-mlsdk"))


def test_help_lists_every_command(mlsdk):
    answer = mlsdk("--help")
    assert answer.code == 0
    for name in ("build", "run", "store", "vsm"):
        assert f"\n  {name}" in answer.out
    assert "ls " in mlsdk("store", "--help").out


def _commands(command, path=()):
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from _commands(command.get_command(click.Context(command), name), (*path, name))
    if path:
        yield " ".join(path), command


def test_every_help_has_examples_that_can_be_typed(mlsdk, tmp_path, monkeypatch):
    """Each line parses: its options exist, and take such values."""
    from mlsdk.cli import examples, main

    monkeypatch.chdir(tmp_path)
    for name in ("batch.npz", "program.vsm", "digits.parcel"):
        (tmp_path / name).touch()
    commands = dict(_commands(main.cli))
    assert set(examples.EXAMPLES) == set(commands)
    for path, command in commands.items():
        shown = mlsdk(*path.split(), "--help").out
        for arguments, what in examples.EXAMPLES[path]:
            assert f"mlsdk {path} {arguments}\n" in shown and what in shown
            words = shlex.split(arguments.replace("/tmp/linear_o3", ".").replace("/tmp/linear", "."))
            command.make_context(path, words)


def test_help_imports_nothing_heavy():
    code = "import sys\nfrom mlsdk.cli import main\nmain.run(['--help'])\nprint(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(eval(done.stdout.splitlines()[-1]))
    assert not loaded & {"torch", "numpy", "onnx", "sqlalchemy", "luigi", "rich", "zstandard", "numba"}


def test_a_wrong_command_names_the_nearest(mlsdk):
    answer = mlsdk("buld")
    assert answer.code == exit_codes.USAGE
    assert "no command 'buld'; did you mean 'build'?" in answer.err


@pytest.mark.parametrize("arguments", [("build",), ("store", "ls", "--nothing"), ("store", "gc", "--grace", "-1")])
def test_a_wrong_command_line_is_usage(mlsdk, arguments):
    assert mlsdk(*arguments).code == exit_codes.USAGE


def test_an_interrupt_is_130(mlsdk, monkeypatch):
    from mlsdk.tasks import complete

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(complete, "workflows", interrupt)
    answer = mlsdk("build", "example_workflow")
    assert (answer.code, answer.err.strip()) == (exit_codes.INTERRUPTED, "interrupted")


def test_a_real_interrupt_stops_a_build_at_once(root, tmp_path):
    tasks = Path(__file__).parent.parent / "tasks"
    command = [sys.executable, "-m", "mlsdk.cli.main", "build", f"{tasks}/failing_workflow.py:Slow"]
    child = subprocess.Popen([*command, "--param", f"mark={tmp_path / 'mark'}"], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 30
    while not (tmp_path / "mark").exists() and time.monotonic() < until:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _out, err = child.communicate(timeout=10)
    assert (child.returncode, err.strip()) == (exit_codes.INTERRUPTED, "interrupted")
    with stores.open(root) as store:
        assert query.log(store)[0]["status"] == "interrupted"


def test_a_bug_is_one_line_and_a_traceback_on_demand(mlsdk, monkeypatch):
    from mlsdk.tasks import complete

    def bug(*_, **__):
        raise IndexError("list index\nout of range")

    monkeypatch.setattr(complete, "workflows", bug)
    answer = mlsdk("build", "example_workflow")
    assert answer.code == exit_codes.BUG
    assert answer.err.splitlines() == [
        "mlsdk: IndexError: list index out of range (a bug of Open MLSDK? see it with --debug)"
    ]
    assert "Traceback" in mlsdk("build", "example_workflow", "--debug").err


def test_a_reader_that_leaves_is_no_error(root, store):
    command = f"{sys.executable} -m mlsdk.cli.main --help | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=Path(__file__).parent)
    assert done.returncode in (0, 141)
    assert "Traceback" not in done.stderr
    assert os.path.exists(root)


def test_too_little_memory_is_no_bug(mlsdk, monkeypatch):
    from mlsdk.tasks import complete

    def fails(*_, **__):
        raise MemoryError("Unable to allocate 8 EiB")

    monkeypatch.setattr(complete, "workflows", fails)
    answer = mlsdk("build", "example_workflow")
    assert answer.code == exit_codes.FAILED
    assert answer.err == "mlsdk: not enough memory (Unable to allocate 8 EiB); ask for less at once\n"
