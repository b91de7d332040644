"""Logs: CLOG.log and glog/*, by level and text, following a file that grows. Bounded whatever the file's size."""

from __future__ import annotations

import re
from typing import Any

from mlsdk.cli.dashboard import files
from mlsdk.cli.dashboard.problems import Missing, Problem
from mlsdk.cli.dashboard.view import View

LINES = 1000
#: bytes read for one page; a filter looks at no more than this from the end
WINDOW = 8 * files.MIB
LINE_LIMIT = 2000
LEVELS = ("ERROR", "WARNING", "INFO", "DEBUG")
_GLOG = re.compile(r"^([IWEFD])\d{4} ")
_WORD = re.compile(r"\b(ERROR|CRITICAL|FATAL|WARNING|WARN|INFO|DEBUG)\b")
_FAILED = re.compile(r"\b(failed|Traceback|Error)\b")
_LETTERS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "ERROR", "D": "DEBUG"}
_WORDS = {"CRITICAL": "ERROR", "FATAL": "ERROR", "WARN": "WARNING"}


def log_files(view: View) -> list[dict[str, Any]]:
    return [
        {"name": entry.name, "size": entry.size}
        for entry in view.source.entries().values()
        if entry.name.removesuffix(".zst").endswith(".log") or entry.name.startswith("glog/")
    ]


def logs(view: View) -> dict[str, Any]:
    found = log_files(view)
    if not found:
        if view.is_build:
            raise Missing("a build in the store has no log: it is written when a codegen_dir is")
        raise Missing("this codegen_dir has no CLOG.log and no glog/")
    wanted = view.query.get("file") or found[0]["name"]
    if wanted not in {one["name"] for one in found}:
        raise Problem("this codegen_dir has no such log")
    level = view.query.get("level", "")
    level = level if level in LEVELS else ""
    q = view.query.get("q", "")[:200]
    after = view.query.get("after", "")
    troubles: list[str] = []
    try:
        part = _read(view, wanted, int(after) if after.isdigit() and len(after) < 16 else None)
    except Problem as error:
        part = {"lines": [], "size": 0, "next": 0, "skipped": 0}
        troubles.append(str(error))
    lines = [line for line in part.pop("lines") if _fits(line, level, q)]
    return {
        "troubles": troubles,
        "files": found,
        "file": wanted,
        "level": level,
        "levels": LEVELS,
        "q": q,
        "lines": lines[-LINES:],
        "hidden": max(0, len(lines) - LINES),
        **part,
    }


def _read(view: View, name: str, after: int | None) -> dict[str, Any]:
    """The end of a log, or what came after a position. A line that is still being written is left for later."""
    if name.endswith(".zst"):
        data, size, start = b"".join(files.chunks(view.source, name)), 0, 0
        size = len(data)
        if size > WINDOW:
            data, start = data[-WINDOW:], size - WINDOW
    else:
        with view.source.open(name) as handle:
            size = handle.seek(0, 2)
            start = max(0, size - WINDOW)
            if after is not None and after <= size:
                start = max(start, after)
            handle.seek(start)
            data = handle.read(WINDOW)
    cut = start > 0 and start != after
    if cut:
        start, data = start + data.find(b"\n") + 1, data[data.find(b"\n") + 1 :]
    whole = data.rfind(b"\n") + 1
    if after is not None:
        data = data[:whole]
    return {
        "lines": [_line(line) for line in data.decode("utf-8", "replace").split("\n") if line],
        "size": size,
        "next": start + whole,
        "skipped": start if cut else 0,
    }


def _line(text: str) -> dict[str, str]:
    if len(text) > LINE_LIMIT:
        text = f"{text[:LINE_LIMIT]}… ({len(text):,} characters)"
    return {"level": level_of(text), "text": files.printable(text.rstrip("\r"))}


def level_of(text: str) -> str:
    """The level of a line as glog, the logging module or our own log write it."""
    if glog := _GLOG.match(text):
        return _LETTERS[glog[1]]
    if word := _WORD.search(text[:200]):
        return _WORDS.get(word[1], word[1])
    return "ERROR" if _FAILED.search(text) else "INFO"


def _fits(line: dict[str, str], level: str, q: str) -> bool:
    if level and LEVELS.index(line["level"]) > LEVELS.index(level):
        return False
    return q.lower() in line["text"].lower()
