"""Complete a workflow: the one entry of `mlsdk build` and `mlsdk run`."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlsdk import store as stores
from mlsdk.errors import MLSDKError, StoreError
from mlsdk.store import compare
from mlsdk.store.codec import plain
from mlsdk.tasks import chain, engine, progress
from mlsdk.tasks import codegen_dir as directories
from mlsdk.tasks import options as option_table
from mlsdk.tasks.content import ContentTask, in_order
from mlsdk.tasks.errors import Failure, WorkflowError, cause, place_in
from mlsdk.tasks.phases import machine_of
from mlsdk.tasks.preview import Planned
from mlsdk.tasks.preview import preview as planned
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
    steps: Mapping[str, float] = field(default_factory=dict)  # simulated, by the phase that said so


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
    scheduler: engine.Engine | str = "luigi",
) -> Completed:
    """Complete a workflow; with its summary if wanted. BuildFailed says which phase failed, and why."""
    return workflows(
        {"": task},
        store=store,
        listener=listener,
        force=force,
        codegen_dir=codegen_dir,
        with_summary=with_summary,
        scheduler=scheduler,
    )[""]


def workflows(
    tasks: Mapping[str, Workflow],
    *,
    store: str | os.PathLike[str] | None = None,
    listener: progress.Listener | None = None,
    force: Collection[str] = (),
    codegen_dir: str | os.PathLike[str] | None = None,
    with_summary: bool = False,
    scheduler: engine.Engine | str = "luigi",
) -> dict[str, Completed]:
    """Complete several workflows by name, as one build each in the history. What they share is computed once."""
    opened = stores.open(store)
    try:
        sessions = {
            name: _session(opened, task, listener or progress.for_stream(), force) for name, task in tasks.items()
        }
        if len(tasks) > 1:
            _together(tasks, opened, sessions, scheduler)
        return {
            name: _completed(task, sessions[name], Path(codegen_dir) / _folder(name) if codegen_dir else None,
                             with_summary, scheduler)
            for name, task in tasks.items()
        }  # fmt: skip
    finally:
        opened.close()


def _session(store: stores.Store, task: Workflow, listener: progress.Listener, force: Collection[str]) -> Session:
    machine_of(task.device)  # before the store is asked: it may have everything
    resolved = option_table.resolve(task.compile_options())
    option_table.tell(resolved)
    facts = {"options": plain(resolved.given()), "preset": resolved.preset, "device": task.device}
    return Session(store, listener, task.label, force, facts=facts)


def _together(
    tasks: Mapping[str, Workflow],
    store: stores.Store,
    sessions: Mapping[str, Session],
    scheduler: engine.Engine | str,
) -> None:
    """One run of the scheduler over all, so that several workers find enough to do. Then each session reports its own."""
    first = next(iter(sessions.values()))
    # In the history it is the first workflow's build until that one's own session takes over.
    both = Session(
        store, first.listener, first.label, first.force, facts=first.facts, began=first.began, may_cut_short=False
    )
    try:
        with both.active(last=False):
            for task in tasks.values():
                _check_forced(first.force, task)
            engine.complete(list(tasks.values()), both, scheduler)
    except Exception as error:
        failure = both.failure
        if failure is None or failure.error is not error or failure.phase == "build":
            raise
        raise _failed(failure) from error
    for session in sessions.values():
        # What was forced or built is built now: each workflow's own session finds it, and says who built it.
        session.force = ()
        session.done.update(both.done)
        session.told.update(both.told)


def _completed(
    task: Workflow, session: Session, codegen_dir: Path | None, with_summary: bool, scheduler: engine.Engine | str
) -> Completed:
    try:
        with session.active():
            _check_forced(session.force, task)
            engine.complete([task], session, scheduler)
            tasks = [one for one in in_order([task]) if isinstance(one, ContentTask)]
            for one in tasks:
                session.resolve(one)  # what another worker has computed was not noted here
            session.keep(tasks)
            summary = json.loads(json.dumps(task.summary(), allow_nan=False)) if with_summary else {}
            report = task.report(summary) if with_summary else ""
        if codegen_dir is not None:
            _materialise(task, session, option_table.resolve(task.compile_options()), codegen_dir)
    except Exception as error:
        failure = session.failure
        if failure is None or failure.error is not error or failure.phase == "build":
            place = "" if isinstance(error, MLSDKError) else place_in(error, _file_of(task))
            if place:  # its summary(), requires() or another of its own methods
                raise WorkflowError(f"{place}: {cause(error)}") from error
            raise
        raise _failed(failure) from error
    done = _named([session.done[one.task_id] for one in tasks])
    return Completed(
        task.label,
        {name: one.outcome for name, one in done.items()},
        {name: one.seconds for name, one in done.items() if one.outcome == "built"},
        {name: one.reason for name, one in done.items() if one.outcome == "built"},
        summary,
        report,
        _steps(session, done),
    )


def preview(
    tasks: Mapping[str, Workflow], *, store: str | os.PathLike[str] | None = None, force: Collection[str] = ()
) -> dict[str, list[Planned]]:
    """What `workflows` would do, and why."""
    with stores.open(store) as opened:
        found = {}
        for name, task in tasks.items():
            session = _session(opened, task, progress.quiet, force)
            _check_forced(force, task)
            found[name] = planned([task], session)
        return found


def _file_of(task: Workflow) -> Path:
    return Path(getattr(sys.modules.get(type(task).__module__), "__file__", None) or ".")


def _failed(failure: Failure) -> BuildFailed:
    return (BuildFailedInStore if isinstance(failure.error, StoreError) else BuildFailed)(failure)


def _steps(session: Session, done: Mapping[str, Done]) -> dict[str, float]:
    """Simulated steps of each program that was simulated, by its name in `done`."""
    found = compare.steps(session.store, [one.action.digest for one in done.values()])
    return {name: found[one.action.digest] for name, one in done.items() if one.action.digest in found}


def _folder(name: str) -> str:
    """A variant's folder below the codegen_dir."""
    return "".join(char if char.isalnum() or char in "=._-" else "_" for char in name)


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


def _check_forced(force: Collection[str], task: Workflow) -> None:
    """Raise WorkflowError for a phase that this workflow has not; before anything is built."""
    known = {one.phase_name for one in in_order([task]) if isinstance(one, ContentTask)} if force else set()
    for name in force:
        if name not in known:
            near = option_table.nearest(name, known)
            raise WorkflowError(f"--force {name}: there is no such phase{near}; there are {', '.join(sorted(known))}")


def _materialise(task: Workflow, session: Session, options: option_table.Resolved, root: Path) -> None:
    for program in task.programs:
        folder = root if len(task.programs) == 1 else root / program
        result = chain.collect(session, list(task.compiled(program)), options, task.label_of(program))
        directories.materialise(result, folder)
