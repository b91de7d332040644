"""`--dry-run`: what a build would do, and why, without doing or recording any of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import luigi

from mlsdk.tasks.content import ContentTask, in_order
from mlsdk.tasks.session import Session


@dataclass(frozen=True)
class Planned:
    """One phase: `cached`, `build`, or `open` when it depends on what an earlier phase gives."""

    phase: str
    label: str
    state: str
    reason: str
    key: str | None  # of the result; not known while an input is not


def preview(goals: Sequence[luigi.Task], session: Session) -> list[Planned]:
    """Every phase under the goals, in the order in which they would run."""
    with session.resumed():
        return [_planned(task, session) for task in in_order(list(goals)) if isinstance(task, ContentTask)]


def _planned(task: ContentTask, session: Session) -> Planned:
    action = session.resolve(task)
    if action is not None:
        return Planned(task.phase_name, task.label, "cached", "", action.digest)
    recipe = session.recipe(task)
    if recipe is None:
        waits = [one.phase_name for one, _name in task.upstream().values() if session.resolve(one) is None]
        reason = f"after {', '.join(dict.fromkeys(waits))}; not built if that gives the same as before"
        return Planned(task.phase_name, task.label, "open", reason, None)
    reason = "forced" if task.phase_name in session.force else session.store.reason(recipe, task.label)
    return Planned(task.phase_name, task.label, "build", reason, recipe.digest)
