"""How numbers and tables are printed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

import click


def echo_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1, sort_keys=True, allow_nan=False))


def size(count: int | None) -> str:
    """Bytes for people."""
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def short(digest: str) -> str:
    return digest[:12]


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Columns as wide as their content; those in `right` are aligned to the right."""
    lines = [tuple(head), *(tuple(clean(cell) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        cells = [
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths))
        ]
        click.echo("  ".join(cells).rstrip())


def clean(text: str) -> str:
    """Text without control characters: a name from a store must not steer the terminal."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in str(text))


def value(given: Any) -> str:
    """A part of a key, or an artifact: a digest by its start."""
    from mlsdk.store.digest import is_digest

    if given is None:
        return "absent"
    return short(given) if is_digest(given) else clean(given)


def parse_age(text: str) -> float:
    """`90s`, `15m`, `3h`, `7d`, `2w` as seconds."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    try:
        return float(text[:-1]) * units[text[-1:]]
    except (KeyError, ValueError):
        raise click.BadParameter(f"{text!r} is no age; write a number and s, m, h, d or w, for example 7d") from None


def parse_size(text: str) -> int:
    """`500`, `64KiB`, `1MiB`, `2GiB` as bytes."""
    number = text.rstrip("KMGTiB")
    try:
        return int(float(number) * {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[text[len(number) :]])
    except (KeyError, ValueError):
        raise click.BadParameter(f"{text!r} is no size; write a number, or one with KiB, MiB, GiB") from None
