from __future__ import annotations

import re
from pathlib import Path

from mlsdk.pipeline.ir.layout import EXTENT, Layout

PAGE = (Path(__file__).parents[2] / "docs" / "layouts.md").read_text()


def test_the_worked_examples_are_right():
    layouts = re.findall(r"^    half\[(\d+), (\d+)\]/(.+)$", PAGE, re.MULTILINE)
    elements = re.findall(r"lement \[(\d+), (\d+)\]", PAGE)
    results = re.findall(r"L2B=(\d+) L1B=(\d+) PE=(\d+) Addr=(\d+) W=(\d+)", PAGE)
    assert len(layouts) == len(elements) == len(results) == 2
    for (*shape, text), element, result in zip(layouts, elements, results):
        size = tuple(map(int, shape))
        layout = Layout.parse(text).check(size, "half")
        at = tuple(map(int, element))
        found = [int(layout.positions(size, level)[at]) for level in ("L2B", "L1B", "PE", "Addr", "W")]
        assert found == list(map(int, result))
    assert "256 long words" in PAGE and Layout.parse(layouts[1][2]).addresses == 256


def test_the_levels_have_their_extents():
    for level, extent in EXTENT.items():
        assert f"| `{level}` | {extent} |" in PAGE
