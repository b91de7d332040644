"""One compile from its source to its artifacts: the one entry for Context.compile, the command line and tests.

source, _action, _new = ...                      # or any Trace task, or the bytes that a tracer gave
result = build_chain({"exported.onnx": ..., "signature.json": ..., "sources.json": ...}, {"float_dtype": "mixed"})
result.phases                                    # {"Trace": "built", "OptimizeOnnx": "cached", ...}
application = result.read("model.app.zst")
codegen_dir.materialise(result, directory)
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import luigi

from mlsdk import store as stores
from mlsdk.store import Action, Output, Store
from mlsdk.store.codec import plain
from mlsdk.tasks import engine
from mlsdk.tasks import options as option_table
from mlsdk.tasks.content import ContentTask, in_order
from mlsdk.tasks.phases import COMPILE, TASKS
from mlsdk.tasks.progress import Listener, quiet
from mlsdk.tasks.session import Done, Session
from mlsdk.tasks.traced import Trace, publish_traced


@dataclass(frozen=True)
class BuildResult:
    """What a build found and did, phase by phase in the order of the chain."""

    label: str
    phases: Mapping[str, str]  # name -> built | cached
    times: Mapping[str, float]  # seconds of the phases that were built
    reasons: Mapping[str, str]  # why they were built
    actions: Mapping[str, Action]
    outputs: Mapping[str, Output]  # every artifact of the chain, by name
    seconds: float
    options: option_table.Resolved
    store: Store
    session: Session = field(repr=False)
    givers: Mapping[str, ContentTask] = field(repr=False, default_factory=dict)

    def read(self, name: str) -> bytes:
        """An artifact, verified; one that was damaged since the build is built again."""
        if name not in self.givers:
            raise KeyError(f"no artifact {name}; there are {', '.join(sorted(self.outputs))}")
        with self.session.resumed():
            return self.session.read(self.givers[name], name)

    @property
    def built(self) -> list[str]:
        return [name for name, outcome in self.phases.items() if outcome == "built"]


def build_chain(
    source: Trace | Mapping[str, bytes],
    options: Mapping[str, Any] | None = None,
    *,
    phases: Collection[str] = COMPILE,
    store: Store | None = None,
    listener: Listener = quiet,
    label: str = "",
    force: Collection[str] = (),
    scheduler: engine.Engine | str = "direct",
) -> BuildResult:
    """Complete the phases for a source: a Trace task, or the artifacts of a function that was traced already.

    `phases` names the goals; what they need comes along. `force` names phases that are computed again. `scheduler` is
    "direct", or "luigi" for Luigi's own local scheduler: the same tasks either way.
    """
    clock = time.perf_counter()
    resolved = option_table.resolve(options)
    option_table.tell(resolved)
    # Resolved once: a preset's values are given like direct ones, and its file is not read again.
    given = resolved.given()
    facts = {"options": plain(given), "preset": resolved.preset}
    session = Session(store or stores.open(), listener, label, force, facts=facts)
    with session.active():
        if not isinstance(source, Trace):
            source, action, reason = publish_traced(session.store, source, label)
            session.note(Done(source, action, "built" if reason else "cached", reason=reason))
        goals: list[luigi.Task] = [TASKS[name](source=source, options=given) for name in phases]
        engine.complete(goals or [source], session, scheduler)
    return collect(session, goals or [source], resolved, label or source.label, time.perf_counter() - clock)


def collect(
    session: Session, goals: list[Any], options: option_table.Resolved, label: str, seconds: float = 0.0
) -> BuildResult:
    """What a session knows about completed goals and everything above them."""
    with session.resumed():
        tasks = [task for task in in_order(goals) if isinstance(task, ContentTask)]
        for task in tasks:
            session.resolve(task)
    done = [session.done[task.task_id] for task in tasks]
    built = [one for one in done if one.outcome == "built"]
    return BuildResult(
        label=label,
        phases={one.task.phase_name: one.outcome for one in done},
        times={one.task.phase_name: one.seconds for one in built},
        reasons={one.task.phase_name: one.reason for one in built},
        actions={one.task.phase_name: one.action for one in done},
        outputs={name: output for one in done for name, output in one.action.outputs.items()},
        seconds=seconds,
        options=options,
        store=session.store,
        session=session,
        givers={name: one.task for one in done for name in one.action.outputs},
    )
