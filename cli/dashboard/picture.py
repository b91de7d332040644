"""The chip with a layout on it: all MABs, the PEs of one L1B, and the long words of one PE."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from markupsafe import Markup

from mlsdk.cli.dashboard.charts import element, svg, title
from mlsdk.cli.dashboard.hierarchy import ADDR, EXTENT, L1B, L2B, MAB, PE, PER_LW, TIME, Held, Spread, W

#: long words of a PE that are drawn
WORDS = 16


def draw(spread: Spread, shape: Sequence[int], index: Sequence[int], dtype: str) -> dict[str, Any]:
    """The three pictures around element `index`, and its place."""
    place = spread.position(index) if shape_ok(shape) else dict.fromkeys((TIME, L2B, L1B, MAB, PE, ADDR, W), 0)
    return {
        "place": place,
        "chip": _chip(spread, shape, place),
        "block": _block(spread, shape, place),
        "memory": _memory(spread, shape, place, dtype),
    }


def shape_ok(shape: Sequence[int]) -> bool:
    return all(size > 0 for size in shape)


def explain(spread: Spread, shape: Sequence[int]) -> list[dict[str, Any]]:
    """For each level, which part of which axis it takes."""
    found = []
    for level in (TIME, L2B, L1B, MAB, PE, ADDR, W):
        copies = [
            f"{n} copies" + (f", {stride} apart" if stride > 1 else "")
            for where, n, stride in spread.copies
            if where == level
        ]
        takes = [
            f"axis {d.axis}: {d.n} pieces of {d.weight}" + (f", {d.stride} apart" if d.stride > 1 else "")
            for d in spread.at(level)
        ]
        limit = EXTENT.get(level)
        found.append({"level": level, "takes": takes, "copies": copies, "span": spread.span(level), "limit": limit})
    return found


def _range(held: Held, shape: Sequence[int], spread: Spread, level: str) -> str:
    if held.kind == "empty":
        return "nothing"
    parts = []
    for axis, (first, count) in enumerate(zip(held.first, held.counts)):
        if count == spread.sizes[axis]:
            parts.append(":")
            continue
        inner = [d for d in spread.digits if d.axis == axis and d.level != level]
        together = all(
            d.weight * d.n <= min((x.weight for x in spread.at(level) if x.axis == axis), default=1) for d in inner
        )
        last = min(first + count, shape[axis]) - 1
        parts.append((f"{first}..{last}" if last > first else str(first)) if together else f"{first}, … ({count})")
    return ("copy of " if held.kind == "copy" else "") + f"[{', '.join(parts)}]"


def _cells(spread: Spread, shape: Sequence[int], level: str) -> list[tuple[Held, str]]:
    found = []
    for place in range(EXTENT[level]):
        held = spread.held(level, place, shape)
        found.append((held, _range(held, shape, spread, level)))
    return found


def _kind(*parts: Held) -> str:
    kinds = {held.kind for held in parts}
    return "empty" if "empty" in kinds else "copy" if "copy" in kinds else "holds"


def _inside(spread: Spread, shape: Sequence[int], *helds: Held) -> bool:
    """Several levels share an axis: together they can lie behind its end although each alone does not."""
    return all(sum(held.first[axis] for held in helds) < size for axis, size in enumerate(shape))


def _chip(spread: Spread, shape: Sequence[int], place: dict[str, int]) -> Markup:
    """8 L2Bs in 4 groups, each with 8 L1Bs, each with 16 MABs."""
    l2bs, l1bs, mabs = (_cells(spread, shape, level) for level in (L2B, L1B, MAB))
    parts = []
    for (c, (hc, tc)), (b, (hb, tb)) in product(enumerate(l2bs), enumerate(l1bs)):
        x0, y0 = 12 + c % 4 * 172 + b % 4 * 39, 26 + c // 4 * 120 + b // 4 * 42
        if b == 0:
            parts.append(element("text", f"L2B {c}", x=x0, y=y0 - 8, class_="tick"))
            parts.append(element("rect", x=x0 - 5, y=y0 - 5, width=166, height=90, rx=6, class_="frame"))
        cells = []
        for m, (hm, _tm) in enumerate(mabs):
            kind = _kind(hc, hb, hm) if _inside(spread, shape, hc, hb, hm) else "empty"
            here = (c, b, m) == (place[L2B], place[L1B], place[MAB])
            cells.append(
                element(
                    "rect", x=x0 + m % 4 * 9, y=y0 + m // 4 * 9, width=8, height=8, rx=1.5,
                    class_=f"cell {'here' if here else kind}",
                )
            )  # fmt: skip
        told = f"L2B {c}: {tc}\nL1B {b}: {tb}"
        parts.append(element("g", Markup("").join((title(told), *cells))))
    return svg(704, 262, parts, "The chip: every square is a MAB", "chart chip")


def _block(spread: Spread, shape: Sequence[int], place: dict[str, int]) -> Markup:
    """The 16 MABs of one L1B, each with its 4 PEs."""
    outer = [spread.held(level, place[level], shape) for level in (L2B, L1B)]
    mabs, pes = _cells(spread, shape, MAB), _cells(spread, shape, PE)
    parts = []
    for m, (hm, tm) in enumerate(mabs):
        x0, y0 = 8 + m % 8 * 86, 22 + m // 8 * 86
        parts.append(element("text", f"MAB {m}", x=x0, y=y0 - 6, class_="tick"))
        for p, (hp, tp) in enumerate(pes):
            kind = _kind(*outer, hm, hp) if _inside(spread, shape, *outer, hm, hp) else "empty"
            here = (m, p) == (place[MAB], place[PE])
            x, y = x0 + p % 2 * 36, y0 + p // 2 * 32
            inner = (
                title(f"MAB {m}: {tm}\nPE {p}: {tp}"),
                element("rect", x=x, y=y, width=34, height=30, rx=4, class_=f"cell {'here' if here else kind}"),
                element("text", f"PE {p}", x=x + 17, y=y + 19, class_="middle tick"),
            )
            parts.append(element("g", Markup("").join(inner)))
    return svg(700, 184, parts, "The L1B of the element: 16 MABs with 4 PEs each", "chart chip")


def _memory(spread: Spread, shape: Sequence[int], place: dict[str, int], dtype: str) -> Markup:
    """The long words of the element's PE, with the index that each part holds."""
    per = PER_LW.get(dtype, 2)
    base = _fixed(spread, place)
    count = spread.span(ADDR)
    first = max(0, min(place[ADDR] - WORDS // 2, count - WORDS))
    parts = []
    width = 440 / per
    for row, addr in enumerate(range(first, min(count, first + WORDS))):
        y = 22 * row
        parts.append(element("text", f"{addr}", x=48, y=y + 15, class_="end tick"))
        for w in range(per):
            index, kind = _element(spread, shape, base, addr, w)
            here = (addr, w) == (place[ADDR], place[W])
            text = f"[{', '.join(map(str, index))}]" if kind != "empty" else ""
            x = 56 + w * width
            parts.append(
                element("rect", x=f"{x:.1f}", y=y, width=f"{width - 3:.1f}", height=20, rx=3,
                        class_=f"cell {'here' if here else kind}")
            )  # fmt: skip
            parts.append(element("text", text, x=f"{x + width / 2:.1f}", y=y + 14, class_="middle tick"))
    rows = min(count - first, WORDS)
    return svg(504, max(22, 22 * rows), parts, "Long words of the PE")


def _fixed(spread: Spread, place: dict[str, int]) -> list[int]:
    """The part of each axis' index that the place of a PE decides."""
    base = [0] * len(spread.sizes)
    for level in (TIME, L2B, L1B, MAB, PE):
        for axis, first in enumerate(spread.held(level, place[level], spread.sizes).first):
            base[axis] += first
    return base


def _element(spread: Spread, shape: Sequence[int], base: Sequence[int], addr: int, w: int) -> tuple[list[int], str]:
    index, kind = list(base), "holds"
    for level, value in ((ADDR, addr), (W, w)):
        held = spread.held(level, value, spread.sizes)
        if held.kind == "empty":
            return index, "empty"
        kind = "copy" if held.kind == "copy" else kind
        index = [i + f for i, f in zip(index, held.first)]
    return index, kind if all(i < size for i, size in zip(index, shape)) else "empty"
