"""Charts as inline SVG. Colours and fonts stand in the style sheet; every text goes through escaping."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup, escape

from mlsdk.cli.dashboard import formats
from mlsdk.device import spec

DRAM_RATE = spec.GROUPS * spec.DRAM_LW_PER_CYCLE * 8 * spec.CLOCK_HZ  # bytes a second


@dataclass(frozen=True)
class Chart:
    """A picture and the numbers that it shows; `.json` gives the numbers."""

    svg: Markup
    data: Any
    note: str = ""

    def __html__(self) -> str:
        return self.svg


def peak(precision: str) -> float:
    """Operations a second in matrix form; a multiply-add counts as two."""
    return 2 * spec.MATRIX_MACS[precision] * spec.MABS * spec.CLOCK_HZ


def rate_text(precision: str) -> str:
    return f"{formats.scaled(peak(precision))}op/s"


def element(name: str, text: Any = None, **attributes: Any) -> Markup:
    """One SVG element; `class_` is class, an underscore a hyphen."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_safe(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{'' if text is None else _safe(text)}</{name}>")


def _safe(value: Any) -> str:
    return str(value) if isinstance(value, (int, float)) else str(escape(value))


def svg(width: float, height: float, parts: Sequence[Markup], label: str, class_: str = "chart") -> Markup:
    return element(
        "svg", Markup("").join(parts), viewBox=f"0 0 {width:g} {height:g}", class_=class_, role="img", aria_label=label
    )


def title(text: str) -> Markup:
    return element("title", text)


def node_link(base: str, name: str, inner: Markup) -> Markup:
    return element("a", inner, href=f"{base}/node/view?{urlencode({'name': name})}")


def short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def bars(rows: Sequence[Mapping[str, Any]], base: str) -> Chart:
    """The layers that take most steps."""
    top = rows[0]["steps"] or 1
    parts = []
    for at, row in enumerate(rows):
        y = 24 * at
        width = max(1.0, 250 * row["steps"] / top)
        share = formats.shown(row["share"], "percent")
        told = f"{row['name']} ({row['op']}): {row['steps']:,.0f} steps, {share}, bound by {row['bound']}"
        inner = Markup("").join(
            (
                title(told),
                element("rect", x=0, y=y, width=540, height=24, class_="hit"),
                element("text", short(row["name"], 24), x=152, y=y + 16, class_="end label"),
                element("rect", x=160, y=y + 4, width=f"{width:.1f}", height=16, rx=3, class_=f"bar b-{row['bound']}"),
                element("text", f"{row['steps']:,.0f}  {share}", x=f"{166 + width:.1f}", y=y + 16, class_="value"),
            )
        )
        parts.append(node_link(base, row["name"], inner))
    return Chart(svg(540, 24 * len(rows), parts, "Layers that take most steps"), [dict(row) for row in rows])


_ROOFS = (("h", "half"), ("f", "single"), ("d", "double"))
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 540, 330, 58, 42


def roofline(rows: Sequence[Mapping[str, Any]], base: str) -> Chart:
    """Operations a second over operations per byte of DRAM, both logarithmic, under the board's limits."""
    dots = [
        {
            "name": row["name"],
            "op": row["op"],
            "bound": row["bound"],
            "intensity": row["flops"] / row["dram_bytes"],
            "rate": row["flops"] / row["us"] * 1e6,
        }
        for row in rows
    ]
    ridge = peak("h") / DRAM_RATE
    low_x = math.floor(math.log10(min(d["intensity"] for d in dots)))
    high_x = math.ceil(math.log10(max(ridge * 4, *(d["intensity"] for d in dots))))
    low_y = math.floor(math.log10(min(d["rate"] for d in dots)))
    high_y = math.ceil(math.log10(peak("h")))
    x_scale = (_WIDTH - _LEFT - 16) / (high_x - low_x)
    y_scale = (_HEIGHT - _BOTTOM - 12) / (high_y - low_y)

    def x_of(value: float) -> float:
        return round(_LEFT + (math.log10(value) - low_x) * x_scale, 1)

    def y_of(value: float) -> float:
        return round(_HEIGHT - _BOTTOM - (math.log10(value) - low_y) * y_scale, 1)

    parts = []
    for power in range(low_x, high_x + 1):
        x = x_of(10.0**power)
        parts.append(element("line", x1=x, x2=x, y1=12, y2=_HEIGHT - _BOTTOM, class_="grid"))
        parts.append(element("text", _power(power), x=x, y=_HEIGHT - _BOTTOM + 16, class_="middle tick"))
    for power in range(low_y, high_y + 1):
        y = y_of(10.0**power)
        parts.append(element("line", x1=_LEFT, x2=_WIDTH - 16, y1=y, y2=y, class_="grid"))
        parts.append(element("text", _power(power), x=_LEFT - 6, y=y + 4, class_="end tick"))
    parts.append(element("text", "operations per byte of DRAM", x=_WIDTH / 2, y=_HEIGHT - 8, class_="middle label"))
    parts.append(
        element(
            "text", "operations a second", x=-_HEIGHT / 2 + 16, y=14, class_="middle label", transform="rotate(-90)"
        )
    )
    for precision, name in _ROOFS:
        top, corner = peak(precision), peak(precision) / DRAM_RATE
        y = y_of(top)
        points = f"{x_of(10.0**low_x)},{y_of(max(10.0**low_y, 10.0**low_x * DRAM_RATE))} {x_of(corner)},{y} {_WIDTH - 16},{y}"
        if precision != "h":
            points = f"{x_of(corner)},{y} {_WIDTH - 16},{y}"
        parts.append(element("polyline", points=points, class_="roof"))
        parts.append(element("text", f"{name} {rate_text(precision)}", x=_WIDTH - 20, y=y - 5, class_="end roof-label"))
    for d in dots:
        told = (
            f"{d['name']} ({d['op']}): {formats.scaled(d['rate'])}op/s at {d['intensity']:.3g} operations per byte, "
            f"bound by {d['bound']}"
        )
        dot = element(
            "circle", title(told), cx=x_of(d["intensity"]), cy=y_of(d["rate"]), r=5, class_=f"dot b-{d['bound']}"
        )
        parts.append(node_link(base, d["name"], dot))
    return Chart(svg(_WIDTH, _HEIGHT, parts, "Roofline"), {"dots": dots, "dram_bytes_per_second": DRAM_RATE})


def _power(power: int) -> str:
    names = {0: "1", 3: "1 k", 6: "1 M", 9: "1 G", 12: "1 T", 15: "1 P", 1: "10", 2: "100", -1: "0.1", -2: "0.01"}
    if power in names:
        return names[power]
    base = power - power % 3
    return f"{10 ** (power - base)}{names[base][1:]}" if base in names and base > 0 else f"1e{power}"
