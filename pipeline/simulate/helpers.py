"""Processes that count nodes beside this one: `python -m mlsdk.pipeline.simulate.helpers`, one question and one answer a line.

They are started when the first nodes took a while and many are left, and end with the phase. An answer does not depend on who
counts; what a process that died had taken is counted here.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType

from mlsdk.pipeline.ir.placed import Placed
from mlsdk.pipeline.ops.emitters.home import Lives
from mlsdk.pipeline.ops.processes import Process, ask, end, serve, start
from mlsdk.pipeline.ops.simulation import Answer, Count, Question, Values, count, from_data, to_data
from mlsdk.pipeline.simulate.simulate import measure

#: seconds after which others are asked, nodes that have to be left then, and nodes that one takes at a time
PATIENCE, LEAST, PIECE = 0.3, 8, 2
START = 1.0  # seconds of work that have to be left before processes are started: each takes about that to be there
OFTEN = 0.5  # seconds between two words about how far it is


class Processes:
    """`processes` in all, this one among them; None: as many as there are processors that nobody uses. `tell` hears now and then
    how far it is."""

    def __init__(self, processes: int | None = None, tell: Callable[[str], None] | None = None):
        self.tell = tell
        self.most = processes if processes is not None else 1 + idle_processors()
        self._started: list[Process] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        end(self._started)
        self._started.clear()

    def counted(self, questions: Sequence[Question], values: Values, here: Count) -> list[Answer]:
        """The answers. This process takes from the front, the others from the back."""
        found: dict[int, Answer] = {}
        left = deque(range(len(questions)))
        started, threads = time.perf_counter(), list[threading.Thread]()
        told = started
        try:
            while left:
                with contextlib.suppress(IndexError):  # another took the last one
                    at = left.popleft()
                    found[at] = here(questions[at], values)
                if self.tell is not None and time.perf_counter() - told > OFTEN:
                    told = time.perf_counter()
                    self.tell(f"node {len(found)} of {len(questions)} counted")
                spent = time.perf_counter() - started
                others = not threads and self.most > 1 and len(left) >= LEAST and spent > PATIENCE
                if others and (self._started or spent / len(found) * len(left) > START):
                    threads = [
                        threading.Thread(target=_asked, args=(process, questions, values, left, found), daemon=True)
                        for process in self._running()
                    ]
                    for thread in threads:
                        thread.start()
        except BaseException:
            left.clear()
            self.close()
            raise
        finally:
            for thread in threads:
                thread.join()
        return [found[at] if at in found else here(questions[at], values) for at in range(len(questions))]

    def _running(self) -> list[Process]:
        while len(self._started) < self.most - 1:
            self._started.append(start(__name__))
        return self._started


def idle_processors() -> int:
    """Processors beside the one that we run on that were idle during the last minute."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(0, here - max(1, round(os.getloadavg()[0])))


def _asked(
    process: Process,
    questions: Sequence[Question],
    values: Values,
    left: deque[int],
    found: dict[int, Answer],
) -> None:
    """A thread: let a process answer some questions after another. It ends with the questions, or with the process."""
    with contextlib.suppress(OSError, ValueError):  # it died; what it had taken is counted by others
        while left:
            mine: list[int] = []
            with contextlib.suppress(IndexError):
                while len(mine) < PIECE:
                    mine.append(left.pop())
            if not mine:
                return
            answers = json.loads(ask(process, _question([questions[at] for at in mine], values)))
            found.update(zip(mine, map(from_data, answers)))


def _question(questions: Sequence[Question], values: Values) -> str:
    """A line: the nodes as a Placed, and where their operands are."""
    nodes = tuple(node for node, _ in questions)
    names = dict.fromkeys(name for p in nodes for name in (*p.node.inputs, *p.node.outputs) if name)
    placed = Placed("", (), (), nodes, {name: values[name] for name in names})
    lives = [[one.reads, one.keeps, one.stored] for _, one in questions]
    return json.dumps({"placed": placed.to_json().decode(), "lives": lives})


def answer(line: str) -> str:
    """The answer to a line."""
    asked = json.loads(line)
    placed = Placed.from_json(asked["placed"].encode())
    lives = [Lives(*map(tuple, one)) for one in asked["lives"]]
    return json.dumps([to_data(count((p, one), placed.values, measure)) for p, one in zip(placed.nodes, lives)])


if __name__ == "__main__":
    serve(answer)
