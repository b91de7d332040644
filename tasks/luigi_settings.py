"""Settings of Luigi that make it tell the truth: by default it exits 0 after a failed task.

They hold where the user's own configuration says nothing.

    0 done or nothing to do   10 already running   20 missing data   25 not run   30 a task failed
    35 scheduling error       40 unhandled exception
"""

from __future__ import annotations

import logging

from luigi import configuration

from mlsdk.errors import MLSDKError

SETTINGS: dict[str, dict[str, str]] = {
    "retcode": {
        "already_running": "10",
        "missing_data": "20",
        "not_run": "25",
        "task_failed": "30",
        "scheduling_error": "35",
        "unhandled_exception": "40",
    },
    # Ask complete() after run(), and do not wait for a scheduler that nobody started.
    "worker": {"check_complete_on_run": "true", "wait_interval": "0.05", "wait_jitter": "0.0"},
}


def apply() -> None:
    """Fill in what the user's configuration leaves open."""
    config = configuration.get_config()
    for section, values in SETTINGS.items():
        for name, value in values.items():
            if not config.has_option(section, name):
                config.set(section, name, value)
    log = logging.getLogger("luigi-interface")
    if _in_one_line not in log.filters:
        log.addFilter(_in_one_line)


def _in_one_line(record: logging.LogRecord) -> bool:
    """What speaks for itself is told without a traceback, also where Luigi has wrapped it in an error of its own."""
    told, error = [], record.exc_info[1] if record.exc_info else None
    while error is not None:
        told.append(str(error))
        if isinstance(error, MLSDKError):
            record.msg, record.args = f"{record.getMessage()}: {': '.join(told)}", ()
            record.exc_info = record.exc_text = None
            break
        error = error.__cause__
    return True
