"""`mlsdk options`: the compile options, with the values that a compile would take, and where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mlsdk.cli import examples, texts

if TYPE_CHECKING:
    from mlsdk.tasks.options import Resolved


@click.command(epilog=examples.of("options"))
@click.option("--option", "given", multiple=True, metavar="NAME=VALUE", help="A compile option.")
@click.option("--preset", default="", metavar="NAME", help="A preset: O0 to O4, debug, or a file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def options(given: tuple[str, ...], preset: str, as_json: bool) -> None:
    """List the compile options and variables: value, origin, what can be given, and what each does."""
    from mlsdk.cli.build import pairs
    from mlsdk.store.codec import plain
    from mlsdk.tasks import option_page
    from mlsdk.tasks import options as table

    wanted = {name: table.from_text(value) for name, value in pairs("--option", given).items()}
    resolved = table.resolve({**({"option_json": preset} if preset else {}), **wanted})
    variables = _variables(resolved)
    if as_json:
        texts.echo_json(
            {
                name: {
                    "value": plain(resolved.values[name]),
                    "origin": resolved.origins[name],
                    "default": plain(option.default),
                    "type": option.check.text,
                    "choices": list(option.check.choices),
                    "effect": option_page.effect(option),
                    "phases": list(option.phases),
                }
                for name, option in table.OPTIONS.items()
            }
            | {f"envs.{name}": row for name, row in variables.items()}
        )
        return
    rows = [
        (
            name,
            option_page.shown(plain(resolved.values[name])),
            resolved.origins[name],
            "|".join(option.check.choices) or option.check.text,
            option_page.effect(option),
        )
        for name, option in table.OPTIONS.items()
    ]
    rows += [
        (name, "-" if row["value"] is None else str(row["value"]), str(row["origin"]), "variable", str(row["effect"]))
        for name, row in variables.items()
    ]
    texts.table(("option", "value", "origin", "allowed", "effect"), rows)


def _variables(resolved: Resolved) -> dict[str, dict[str, Any]]:
    """The environment variables of a compile."""
    from mlsdk.tasks.options import ALL_BELOW_TRACE
    from mlsdk.tasks.variables import VARIABLES

    given = resolved.values["envs"]
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys([*VARIABLES, *given]):
        row = VARIABLES.get(name)
        found[name] = {
            "value": given.get(name),
            "origin": resolved.origins.get(f"envs.{name}", "not set"),
            "effect": row.effect or f"none: {row.why}" if row else "set while the phases run",
            "phases": list(row.phases) if row else list(ALL_BELOW_TRACE),
        }
    return found
