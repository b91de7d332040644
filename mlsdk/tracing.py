"""trace_scope and trace_event: one file with what host and device did, and when."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlsdk.errors import ContextError
from mlsdk.runtime import events

__all__ = ["trace_event", "trace_scope"]


@contextmanager
def trace_scope(filename: str | os.PathLike[str] | None) -> Iterator[None]:
    """Record what happens in the `with`, and write it to a file at its end; None records nothing.

    `.json` gives Chrome's JSON, everything else Perfetto's protobuf (`.pb`, `.perfetto-trace`): ui.perfetto.dev reads
    both. It holds compile phases, transfers, executions with the layers in them (placed in the wall time of the emulated
    run in proportion to their simulated cycles), and the program's own `trace_event`s. The end of the scope waits for
    the device. Raises ContextError when the file cannot be written, before the `with` where that can be known.
    """
    if filename is None:
        yield
        return
    path = _checked(filename)
    recording = events.Recording()
    events.start(recording)
    try:
        yield
    finally:
        for session in _sessions():
            session.loader.barrier()
            session.runner.barrier()
        events.stop(recording)
        _write(path, recording)


@contextmanager
def trace_event(name: str) -> Iterator[None]:
    """A span of the program's own, by the name that it has in the file of the surrounding `trace_scope`; may be nested."""
    with events.span("user", str(name)):
        yield


def _checked(filename: str | os.PathLike[str]) -> Path:
    try:
        path = Path(filename).absolute()  # the program may go to another folder
        if path.is_dir() or "\0" in str(path):
            raise ContextError(f"trace_scope: {str(path)!r} is no file name; give a path that ends in .pb or .json")
        path.parent.mkdir(parents=True, exist_ok=True)
    except TypeError:
        raise ContextError(f"trace_scope takes a path or None, not {type(filename).__name__}") from None
    except OSError as error:
        raise ContextError(f"trace_scope: {filename}: {error.strerror}; give a path that can be written") from None
    return path


def _write(path: Path, recording: events.Recording) -> None:
    from mlsdk.runtime import timeline_files

    data = (
        timeline_files.chrome(recording.events) if path.suffix == ".json" else timeline_files.perfetto(recording.events)
    )
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(data)
        os.replace(aside, path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise ContextError(f"trace_scope: {path}: {error.strerror}; give a path that can be written") from error


def _sessions() -> list:
    import sys

    # A program that has not used a device has nothing to wait for, and need not load what would.
    module = sys.modules.get("mlsdk.runtime.session")
    return module.open_sessions() if module is not None else []
