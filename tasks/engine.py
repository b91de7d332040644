"""Two ways to complete tasks: directly, or through Luigi's scheduler. The tasks are the same.

Directly is what a compile inside a user's program takes: no threads, no signal handlers, no logging set up, and an
exception arrives as it was raised. Luigi's scheduler is what the command line takes: in one process, or with several
workers, or with those of other machines through a central scheduler (`luigid`).

Worker processes are forked, and a fork hangs after torch has computed. With several workers the first process computes
nothing, so that is safe for it; a program that has used torch takes one.
"""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import luigi

from mlsdk.tasks.channel import Channel
from mlsdk.tasks.content import in_order
from mlsdk.tasks.errors import WorkflowError
from mlsdk.tasks.session import Session

SCHEDULERS = ("direct", "luigi")


@dataclass(frozen=True)
class Engine:
    """`scheduler`: direct, luigi, or the URL of a central scheduler. `jobs`: how many tasks at once."""

    scheduler: str = "direct"
    jobs: int = 1


def complete(goals: Sequence[luigi.Task], session: Session, engine: Engine | str = "direct") -> None:
    """Complete all goals; raises what the failed task raised."""
    engine = Engine(engine) if isinstance(engine, str) else engine
    if engine.scheduler == "direct":
        for goal in goals:
            session.drive(goal)
    elif engine.scheduler == "luigi" or "://" in engine.scheduler:
        _by_luigi(goals, session, engine)
    else:
        raise WorkflowError(f"scheduler {engine.scheduler!r}: give {', '.join(SCHEDULERS)}, or the URL of a luigid")


def _by_luigi(goals: Sequence[luigi.Task], session: Session, engine: Engine) -> None:
    from luigi.worker import Worker

    # Luigi's own log repeats each failure with a traceback; ours is the one line, and --debug.
    log = logging.getLogger("luigi-interface")
    before, log.disabled = log.disabled, True
    if engine.jobs > 1:
        session.channel = Channel()
    scheduler = _scheduler(engine)
    try:
        # The worker asks complete() again after run(), and leaves the user's signal handlers alone.
        worker = Worker(
            scheduler=scheduler,
            worker_processes=engine.jobs,
            check_complete_on_run=True,
            no_install_shutdown_handler=True,
            send_failure_email=False,
            wait_interval=0.05,
            wait_jitter=0.0,
            keep_alive=engine.scheduler != "luigi",  # other machines may be computing what is wanted here
        )
        with worker:
            good = all([worker.add(goal) for goal in goals])
            good = worker.run() and good
    finally:
        log.disabled = before
        session.hear(in_order(list(goals)), lambda task: _how_it_ended(scheduler, task))
        if session.channel is not None:
            session.channel.close()
            session.channel = None
    if not good:
        if session.failure is not None:
            raise session.failure.error
        raise WorkflowError(
            "not everything could be completed: a worker was killed, or another one still computes it; run it again"
        )


def _how_it_ended(scheduler: Any, task: str) -> str:
    """What Luigi says of a worker process that told nothing."""
    match = re.search(r"exit code (-?\d+)", str(scheduler.fetch_error(task_id=task).get("error", "")))
    if match is None:
        return "has ended"
    code = int(match[1])
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"has ended with code {code}"


def _scheduler(engine: Engine) -> Any:
    if engine.scheduler == "luigi":
        from luigi.scheduler import Scheduler

        return Scheduler(prune_on_get_work=True, record_task_history=False)
    from luigi.rpc import RemoteScheduler, RPCError

    scheduler: Any = RemoteScheduler(engine.scheduler)
    attempts, scheduler._rpc_retry_attempts = (
        scheduler._rpc_retry_attempts,
        1,
    )  # later calls may wait for it, the first not
    try:
        scheduler.ping(worker="mlsdk")
    except RPCError as error:
        raise WorkflowError(f"no scheduler answers at {engine.scheduler} ({error}); start one with `luigid`") from None
    scheduler._rpc_retry_attempts = attempts
    return scheduler
