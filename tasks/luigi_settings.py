"""Settings of Luigi that make it tell the truth: by default it exits 0 after a failed task.

They hold where the user's own configuration says nothing.

    0 done or nothing to do   10 already running   20 missing data   25 not run   30 a task failed
    35 scheduling error       40 unhandled exception
"""

from __future__ import annotations

from luigi import configuration

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
