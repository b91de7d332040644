"""Processes that compute for this one, one line asked and one answered: `python -m MODULE`, which calls `serve`.

Each is a fresh interpreter: a fork hangs after torch has computed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import IO

from mlsdk.pipeline.ops.garbage import rarely_collected

Process = subprocess.Popen[str]


def start(module: str) -> Process:
    """A process of a module. What fails there is silent: it is done here then, and told here."""
    return subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def ask(process: Process, question: str) -> str:
    """The line that a process answers to a line; empty, or an OSError, where it died."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(question + "\n")
    process.stdin.flush()
    return process.stdout.readline()


def end(processes: Iterable[Process]) -> None:
    """End them, whatever they do."""
    for process in processes:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # what it did not read any more
                pipe.close()  # type: ignore[union-attr]


def serve(answer: Callable[[str], str], questions: IO[str] = sys.stdin, answers: IO[str] = sys.stdout) -> None:
    """Answer until there are no more questions. Ctrl-C is for the process that asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with rarely_collected():
        for line in questions:
            print(answer(line), file=answers, flush=True)
