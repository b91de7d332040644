"""Two ways to complete tasks: directly, or through Luigi's local scheduler. The tasks are the same.

Directly is what a compile inside a user's program takes: no threads, no signal handlers, no logging set up, and an
exception arrives as it was raised. Luigi's scheduler is what the command line takes, in one process: forked workers
hang after torch was used.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import luigi

from mlsdk.tasks.errors import WorkflowError
from mlsdk.tasks.session import Session

SCHEDULERS = ("direct", "luigi")


def complete(goals: Sequence[luigi.Task], session: Session, scheduler: str = "direct") -> None:
    """Complete all goals; raises what the failed task raised."""
    if scheduler == "direct":
        for goal in goals:
            session.drive(goal)
    elif scheduler == "luigi":
        _by_luigi(goals, session)
    else:
        raise WorkflowError(f"scheduler {scheduler!r}: give one of {', '.join(SCHEDULERS)}")


def _by_luigi(goals: Sequence[luigi.Task], session: Session) -> None:
    from luigi.scheduler import Scheduler
    from luigi.worker import Worker

    # Luigi's own log repeats each failure with a traceback; ours is the one line, and --debug.
    log = logging.getLogger("luigi-interface")
    before, log.disabled = log.disabled, True
    try:
        # One process. The worker asks complete() again after run(), and leaves the user's signal handlers alone.
        scheduler = Scheduler(prune_on_get_work=True, record_task_history=False)
        worker = Worker(
            scheduler=scheduler,
            worker_processes=1,
            check_complete_on_run=True,
            no_install_shutdown_handler=True,
            send_failure_email=False,
            wait_interval=0.05,
            wait_jitter=0.0,
        )
        with worker:
            good = all([worker.add(goal) for goal in goals])
            good = worker.run() and good
    finally:
        log.disabled = before
    if not good:
        if session.failure is not None:
            raise session.failure.error
        raise WorkflowError("Luigi could not complete the tasks; see its log with --debug")
