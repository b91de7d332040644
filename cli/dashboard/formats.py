"""How values are written for people. Each kind of a column has one row here."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any

NOTHING = "–"


def integer(value: Any) -> str:
    return f"{round(value):,}" if math.isfinite(value) else str(value)


def number(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def scaled(value: Any) -> str:
    """A count with k, M, G, T."""
    amount = float(value)
    for unit in ("", " k", " M", " G"):
        if abs(amount) < 1000:
            return f"{amount:.0f}{unit}" if not unit or abs(amount) >= 100 else f"{amount:.3g}{unit}"
        amount /= 1000
    return f"{amount:.3g} T"


def size(value: Any) -> str:
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def percent(value: Any) -> str:
    if 0 < abs(value) < 0.0005:
        return "< 0.1 %"
    return f"{100 * value:.1f} %" if abs(value) < 10 else f"{100 * value:,.0f} %"


def microseconds(value: Any) -> str:
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g} µs"


def seconds(value: Any) -> str:
    return f"{value:.3f} s" if value < 100 else f"{value:,.0f} s"


def delta(value: Any) -> str:
    return f"{value:+,.0f}" if value else "0"


def moment(value: Any) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))


def text(value: Any) -> str:
    if isinstance(value, (dict, list, tuple, bool)) or value is None:
        return json.dumps(value, ensure_ascii=False)
    return str(value)


KINDS: dict[str, Callable[[Any], str]] = {
    "int": integer,
    "number": number,
    "scaled": scaled,
    "bytes": size,
    "percent": percent,
    "us": microseconds,
    "seconds": seconds,
    "delta": delta,
    "moment": moment,
}


def shown(value: Any, kind: str = "text") -> str:
    """A value as a person reads it; what is not there is a dash."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, (int, float)) and not isinstance(value, bool) and kind in KINDS:
        return KINDS[kind](value)
    return text(value)
