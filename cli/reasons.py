"""What `mlsdk store why` prints: the root causes first, each with what followed from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from mlsdk.cli import texts

# Inputs of a Trace that a caller gave.
_GIVEN = {
    "exported.onnx": "the traced program is another one (exported.onnx)",
    "signature.json": "keys, dtypes or shapes of the sample are others (signature.json)",
    "sources.json": "lines of the program moved (sources.json)",
    "state.npz": "registered tensors have other values (state.npz)",
    "placements.json": "io_spec_constraints are others (placements.json)",
}


def show(answers: Sequence[Mapping[str, Any]]) -> None:
    """Print the answers of `query.why`."""
    groups: dict[str, list[str]] = {}
    for answer in answers:
        if answer["outcome"] != "cached":
            for cause in answer["causes"]:
                groups.setdefault(_because(cause), []).append(_title(answer, cause))
    for because, titles in groups.items():
        click.echo(f"because {because}")
        click.echo(f"    built again: {', '.join(titles)}")
    for answer in answers:
        if answer["outcome"] == "failed":
            click.echo(f"{_name(answer)}: failed {texts.moment(answer['at'])}")
        if answer["outcome"] == "cached":
            when = f", built {texts.moment(answer['built_at'])}" if answer["built_at"] else ""
            click.echo(f"{_name(answer)}: from the store{when}")
            if len(answers) == 1 and answer["reason"]:
                click.echo(f"    because {texts.clean(answer['reason'])}")


def _because(cause: Mapping[str, Any]) -> str:
    if cause["part"] is None:
        return f"{_name(cause)}: {texts.clean(cause['reason']) or 'it was not in the store'}"
    return f"{_name(cause)}: {_words(cause)}"


def _words(cause: Mapping[str, Any]) -> str:
    """A changed part of a key, as its user knows it."""
    from mlsdk.tasks.options import OPTIONS

    word, _space, name = str(cause["part"]).partition(" ")
    before, after = (texts.value(cause[side]) for side in ("before", "after"))
    if word == "input" and name.startswith(("source ", "file ")):
        return f"{texts.clean(name)} was {'added' if before == 'absent' else 'changed'} ({before} -> {after})"
    if word == "input" and cause["phase"] == "Trace" and name in _GIVEN:
        return f"{_GIVEN[name]}: {before} -> {after}"
    if word == "option" and name not in OPTIONS:
        word = "parameter"
    return f"{word} {texts.clean(name)}: {before} -> {after}".replace("  ", " ")


def _title(answer: Mapping[str, Any], cause: Mapping[str, Any]) -> str:
    return str(answer["phase"]) if answer["label"] == cause["label"] else _name(answer)


def _name(of: Mapping[str, Any]) -> str:
    return f"{of['phase']} of {texts.clean(of['label']) or 'a function'}"
