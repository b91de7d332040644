"""Complete a workflow: the one entry of `mlsdk build` and `mlsdk run`."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlsdk import store as stores
from mlsdk.errors import MLSDKError, StoreError
from mlsdk.tasks import chain, engine, progress
from mlsdk.tasks import codegen_dir as directories
from mlsdk.tasks import options as option_table
from mlsdk.tasks.content import ContentTask
from mlsdk.tasks.errors import Failure, WorkflowError
from mlsdk.tasks.session import Done, Session
from mlsdk.tasks.workflow import Workflow


@dataclass(frozen=True)
class Completed:
    label: str
    phases: Mapping[str, str]  # name -> built | cached
    times: Mapping[str, float]
    reasons: Mapping[str, str]
    summary: Mapping[str, Any] = field(default_factory=dict)
    report: str = ""


class BuildFailed(MLSDKError):
    """A phase of a workflow failed; the message is one line, `shown` is the error itself."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.phase, self.node, self.shown = failure.phase, failure.node, failure.error


class BuildFailedInStore(BuildFailed, StoreError):
    """It failed because the store cannot be used."""


def workflow(
    task: Workflow,
    *,
    store: str | os.PathLike[str] | None = None,
    listener: progress.Listener | None = None,
    force: Collection[str] = (),
    codegen_dir: str | os.PathLike[str] | None = None,
    with_summary: bool = False,
    scheduler: str = "luigi",
) -> Completed:
    """Complete a workflow; with its summary if wanted. BuildFailed says which phase failed, and why."""
    resolved = option_table.resolve(task.compile_options())
    session = Session(stores.open(store), listener or progress.for_stream(), task.label, force)
    try:
        with session.active():
            engine.complete([task], session, scheduler)
            tasks = [one for one in chain.in_order([task]) if isinstance(one, ContentTask)]
            _check_forced(force, tasks)
            summary = json.loads(json.dumps(task.summary(), allow_nan=False)) if with_summary else {}
            report = task.report(summary) if with_summary else ""
        if codegen_dir is not None:
            _materialise(task, session, resolved, Path(codegen_dir))
    except Exception as error:
        failure = session.failure
        if failure is None or failure.error is not error or failure.phase == "build":
            raise
        kind = BuildFailedInStore if isinstance(error, StoreError) else BuildFailed
        raise kind(failure) from error
    finally:
        session.store.close()
    done = _named([session.done[one.task_id] for one in tasks])
    return Completed(
        task.label,
        {name: one.outcome for name, one in done.items()},
        {name: one.seconds for name, one in done.items() if one.outcome == "built"},
        {name: one.reason for name, one in done.items() if one.outcome == "built"},
        summary,
        report,
    )


def _named(done: list[Done]) -> dict[str, Done]:
    """Results by phase; where a phase stands for several programs, by `program/phase`."""
    count = Counter(one.task.phase_name for one in done)
    named: dict[str, Done] = {}
    for one in done:
        phase = one.task.phase_name
        name = phase if count[phase] == 1 else f"{one.task.label.rpartition('/')[2]}/{phase}"
        number, unique = 1, name
        while unique in named:
            number += 1
            unique = f"{name} {number}"
        named[unique] = one
    return named


def _check_forced(force: Collection[str], tasks: list[ContentTask]) -> None:
    known = {task.phase_name for task in tasks}
    for name in force:
        if name not in known:
            near = option_table.nearest(name, known)
            raise WorkflowError(f"--force {name}: there is no such phase{near}; there are {', '.join(sorted(known))}")


def _materialise(task: Workflow, session: Session, options: option_table.Resolved, root: Path) -> None:
    for program in task.programs:
        folder = root if len(task.programs) == 1 else root / program
        result = chain.collect(session, list(task.compiled(program)), options, task.label_of(program))
        directories.materialise(result, folder)
