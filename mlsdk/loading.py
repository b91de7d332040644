"""From artifacts to a CompiledFunction: out of a build, or out of a codegen_dir."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mlsdk.compiled import CompiledAutomap, CompiledFunction
from mlsdk.labels import short
from mlsdk.pipeline.ir.signature import Signature
from mlsdk.pipeline.ops.garbage import rarely_collected
from mlsdk.registry import Entry, Private, bind
from mlsdk.runtime import events
from mlsdk.runtime.iospec import IOSpec
from mlsdk.runtime.loaded import HostRun
from mlsdk.runtime.programs import BoardProgram, HostProgram, Program, spec_of
from mlsdk.runtime.session import BoardSession

if TYPE_CHECKING:
    from mlsdk.context import Context
    from mlsdk.pipeline.ir.application import Application
    from mlsdk.tasks.chain import BuildResult

Read = Callable[[str], bytes]  # artifact -> its bytes

# Kind of device -> the files of a codegen_dir that loading reads; all others are for people.
NEEDED = {"board": ("model.app.zst",), "host": ("model.onnx", "signature.json", "state.npz")}


def from_build(context: Context, result: BuildResult, directory: Path, name: str) -> CompiledFunction:
    return _load(context, lambda one: result.read(one) if one in result.outputs else b"", directory, name)


def load_codegen_dir(context: Context, path: str | os.PathLike[str]) -> CompiledFunction:
    from mlsdk.storage import path as checked
    from mlsdk.tasks import codegen_dir
    from mlsdk.tasks.errors import CodegenDirError

    directory = checked(path)
    with context._using():
        context._check()
        context._session.check()
        needed = NEEDED[context._session.kind]
        files = codegen_dir.verify(directory, needed)
        if needed[0] not in files:
            raise CodegenDirError(
                f"{directory} holds no {needed[0]}: it was compiled for pfvm; compile the function for {context.device}"
            )
        name = short(codegen_dir.read_manifest(directory).get("label") or directory.name)
        return _load(context, lambda one: files[one].read_bytes() if one in files else b"", directory, name)


@rarely_collected()
def _load(context: Context, read: Read, directory: Path, name: str) -> CompiledFunction:
    session = context._session
    with events.span("load", f"{name}: load"):
        if isinstance(session, BoardSession):
            program, state = _on_board(context, session, read, name)
        else:
            program, state = _on_host(context, read, name)
    kind = CompiledFunction if program.signature.call_spec is None else CompiledAutomap
    function = kind(context, name, program, state, directory)
    context._functions.add(function)
    return function


def _on_board(
    context: Context, session: BoardSession, read: Read, name: str
) -> tuple[Program, dict[str, Entry | Private]]:
    from mlsdk.pipeline.ir import archive
    from mlsdk.pipeline.ir.application import Application

    application = Application.from_bytes(archive.decompress(read("model.app.zst"), "model.app.zst"))
    entries = _registered(context, application.signature, name)
    shared = {}
    for state in application.signature.state:
        entry = entries.get(state.name)
        if entry is None:
            continue
        spec = spec_of(application.values[state.input or state.output or ""])
        if entry.buffer is None:
            entry.place(replace(spec, clean=True))
        assert entry.buffer is not None
        if state.input and entry.buffer.spec.is_memcopyable_to(spec):
            shared[state.input] = entry.buffer
    program = BoardProgram(application, session, shared, host_run(application))  # type: ignore[arg-type]
    return program, _all_state(context, program, entries)


def host_run(application: Application) -> HostRun | None:
    """What computes the nodes that the application leaves to the host, if there are any."""
    if not application.host:
        return None
    from mlsdk.pipeline.ops.table import run

    return run


def _on_host(context: Context, read: Read, name: str) -> tuple[Program, dict[str, Entry | Private]]:
    from mlsdk.pipeline.ir import archive
    from mlsdk.pipeline.ir.graph import Graph
    from mlsdk.pipeline.ops.interpreter import run_reference

    graph = Graph.from_onnx(read("model.onnx"))
    signature = Signature.from_json(read("signature.json").decode())
    entries = _registered(context, signature, name)
    for entry in entries.values():
        entry.place(IOSpec(entry.dtype, entry.shape))
    shared = {
        state.input: entries[state.name].buffer for state in signature.state if state.input and state.name in entries
    }
    program = HostProgram(graph, signature, run_reference, shared)  # type: ignore[arg-type]
    if len(entries) < len(signature.state):
        data = read("state.npz")
        values = archive.unpack_arrays(data, "state.npz") if data else {}
        for state in signature.state:
            if state.name in values and state.name not in entries and state.input:
                program.buffers[state.input].write(values[state.name].astype(state.dtype).reshape(state.shape))
    return program, _all_state(context, program, entries)


def _registered(context: Context, signature: Signature, function: str) -> dict[str, Entry]:
    """State name -> registered entry, for those that are registered here."""
    entries = {}
    for state in signature.state:
        entry = context._state_entry(state.name)
        if entry is not None:
            entries[state.name] = bind(entry, state.name, state.dtype, state.shape, function)
    return entries


def _all_state(context: Context, program: Program, entries: Mapping[str, Entry]) -> dict[str, Entry | Private]:
    """Registered entries, and for the rest what came with the application."""
    found: dict[str, Entry | Private] = {}
    for state in program.signature.state:
        entry = entries.get(state.name)
        if entry is None:
            buffer = program.buffers[state.input or state.output or ""]
            found[state.name] = Private(context._session, state.name, state.dtype, state.shape, buffer)
        else:
            found[state.name] = entry
    return found
