"""docs/conformance.md: `python tests/pipeline/emit/conformance_page.py > docs/conformance.md`."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import onnx
from onnx_cases import ABSENT, collected, on_reference
from onnx_cases_on_board import PASS, on_board

PAGE = Path(__file__).parents[3] / "docs" / "conformance.md"
HEAD = """\
# ONNX node cases

The node cases of `onnx.backend.test` (onnx {version}) whose operators are in the [table](operators.md), on the reference
functions (`pfvm:cpu`) and, where those take them, on the emulated board with `float_dtype` float. A case passes, or it is refused
with an error for a reason below; none may give wrong numbers. The page is written by `make docs`; `make test-slow` compares it
with a new run.
"""


def text() -> str:
    cases = collected()
    reference = {case.name: on_reference(case) for case in cases}
    ours = [case for case in cases if reference[case.name] != ABSENT]
    board = {case.name: on_board(case) for case in ours if reference[case.name] == PASS}
    parts = [HEAD.format(version=onnx.__version__)]
    for title, found in (
        ("On the reference functions", {c.name: reference[c.name] for c in ours}),
        ("On the board", board),
    ):
        parts.append(f"\n## {title}\n\n| cases | outcome |\n|---|---|\n")
        parts += [f"| {count:,} | {reason} |\n" for reason, count in Counter(found.values()).most_common()]
    parts.append("\n## By operator\n\n| operator | cases | reference | board | refused |\n|---|---|---|---|---|\n")
    groups = defaultdict(list)
    for case in ours:
        groups[case.model.graph.node[0].op_type].append(case.name)
    for op, names in sorted(groups.items()):
        outcomes = Counter(found.get(n, PASS) for n in names for found in (reference, board))
        refused = [f"{reason} ({count})" for reason, count in sorted(outcomes.items()) if reason != PASS]
        passed = [sum(found.get(n) == PASS for n in names) for found in (reference, board)]
        parts.append(f"| {op} | {len(names)} | {passed[0]} | {passed[1]} | {'; '.join(refused)} |\n")
    return "".join(parts)


if __name__ == "__main__":
    print(text(), end="")
