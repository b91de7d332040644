"""Root causes: of what was built in one build, which part of which key changed by itself, and what only followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Cause = dict[str, Any]  # phase, label, part, before, after, reason; part is None where no part of a key changed


def attach(answers: Sequence[dict[str, Any]], givers: Mapping[str, str]) -> None:
    """Give each answer of `why` its `causes`. `answers` are all phases of a build, `givers`: digest of an artifact ->
    key of the result that gave it there."""
    by_recipe = {answer["recipe"]: answer for answer in answers}
    for answer in answers:
        answer["causes"] = _causes(answer, by_recipe, givers, {answer["recipe"]})
    for answer in answers:
        answer.pop("since")


def _causes(
    answer: Mapping[str, Any], by_recipe: Mapping[str, Mapping[str, Any]], givers: Mapping[str, str], seen: set[str]
) -> list[Cause]:
    changes = answer["since"]
    found: list[Cause] = []
    for change in changes:
        giver = givers.get(str(change["after"])) if change["part"].startswith("input ") else None
        if giver is None or giver not in by_recipe:
            found.append({"phase": answer["phase"], "label": answer["label"], **change, "reason": ""})
        elif giver not in seen:
            found += _causes(by_recipe[giver], by_recipe, givers, seen | {giver})
    if not changes and answer["outcome"] != "cached":
        nothing = {"part": None, "before": None, "after": None}
        found.append({"phase": answer["phase"], "label": answer["label"], **nothing, "reason": answer["reason"]})
    return [cause for place, cause in enumerate(found) if cause not in found[:place]]
