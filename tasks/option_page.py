"""docs/options.md, written from the table of options: `python -m mlsdk.tasks.option_page > docs/options.md`."""

from __future__ import annotations

import json

from mlsdk.tasks import kinds, presets, variables
from mlsdk.tasks.options import OLDER, OPTIONS, Option

INTRODUCTION = """\
# Compile options

This page is written from the table of options by `python -m mlsdk.tasks.option_page`; a test keeps it current.

Options are given as `options={...}` to `Context.compile`, as `--option NAME=VALUE` to `mlsdk build`, in a preset, or in a
file of `option_json`; how these go together is told in [workflows](workflows.md#presets-and-sweeps).
`mlsdk options` lists them with the values that a compile would take, and where each comes from.

An option enters the keys of the phases that are named, and no others: with another value those phases run again.

Searches end when they have found enough (`simulation_mode`, `sa_expected_run_iters`, the beam), when `CODEGEN_ALARM` seconds are
over, or when Ctrl-C is pressed: the best so far is taken, and the compile goes on. What Ctrl-C cut short is not kept for later
compiles; pressed again, it ends the compile.
"""

VARIABLES_TOLD = """\
Set in the shell, or given as `options={"envs": {...}}` or by a preset. A name that begins with `CODEGEN_` and is spelt almost
like one of these is refused; any other has no effect, and a notice says so."""


def page() -> str:
    """The whole page."""
    lines = [INTRODUCTION, "| name | type | default | choices | effect | phases |", "|---|---|---|---|---|---|"]
    for option in OPTIONS.values():
        cells = (
            f"`{option.name}`",
            option.check.text,
            f"`{shown(option.default)}`",
            choices(option),
            effect(option),
            ", ".join(option.phases) or "none",
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Environment variables", "", VARIABLES_TOLD, "", "| name | effect | phases |", "|---|---|---|"]
    for name, row in variables.VARIABLES.items():
        if row.effect:
            lines.append(f"| `{name}` | {row.effect} | {', '.join(row.phases) or 'none'} |")
    lines += [
        "",
        "Names of the official MLSDK that have no effect here. They are accepted, with a notice that says why.",
        "",
    ]
    lines += ["| name | why |", "|---|---|"]
    idle = {name: row.why for name, row in variables.VARIABLES.items() if row.why}
    lines += [f"| `{name}` | {why} |" for name, why in [*idle.items(), *OLDER.items()]]
    lines += ["", "## Presets", "", "| name | options | envs |", "|---|---|---|"]
    for name, preset in presets.BUILT_IN.items():
        envs = " ".join(f"`{key}={value}`" for key, value in preset.get("envs", {}).items())
        lines.append(f"| `{name}` | {' '.join(f'`{arg}`' for arg in preset['args'])} | {envs or '-'} |")
    return "\n".join(lines) + "\n"


def shown(value: object) -> str:
    """A value as text."""
    return value if isinstance(value, str) else json.dumps(value)


def effect(option: Option) -> str:
    """What an option does, and whether it does."""
    return f"{option.help}; {option.note}" if option.note else option.help


def choices(option: Option) -> str:
    """What it can be, and which names are known and not there."""
    kind = option.check
    here = ", ".join(f"`{name}`" for name in kind.choices)
    later = ", ".join(f"`{name}`" for name in kind.later) if isinstance(kind, kinds.Choice) else ""
    return f"{here}; not in this version: {later}" if later else here or "-"


if __name__ == "__main__":
    print(page(), end="")
