"""docs/operators.md, written from the tables: `python -m bench.operators_page > docs/operators.md`."""

from __future__ import annotations

from collections import defaultdict

from bench.operators import CASES, steps_of
from bench.standard import CONSTANT, draw
from mlsdk.pipeline.layout.rules import RULES
from mlsdk.pipeline.ops import OPERATORS, REQUIRED
from mlsdk.pipeline.ops.bounds import bound
from mlsdk.pipeline.ops.emitters.kernels import KERNELS
from mlsdk.pipeline.ops.table import Operator

HEAD = """\
# Operators

This page is written from the tables of the code by `python -m bench.operators_page > docs/operators.md`. Every operator has a
reference function, which is what `pfvm:cpu` runs; "board" says how it becomes assembly: a **kernel** is one formula for each
element; a **rule** places it and emits its own program, or makes it of other operators.

Errors are the largest ones, in units in the last place: of a kernel, for each result that is a half / a single / a double, where
0.5 is the rounding itself; of a rule, for float_dtype half / mixed / float / double, in units of the largest result (sums of n
terms in another order differ by about the root of n; the cases here have up to 256). What chooses or moves elements has none.

Shapes are static, of any rank; broadcasting is ONNX's. Dtypes are float32 (float16 and float64 by `float_dtype`), int32, int64
(32 bits on the board), uint8 and bool.

Steps are of one operator on about 65,536 elements (`bench/standard.py`), DRAM to DRAM, `float_dtype` float; a step is 4 cycles at
750 MHz. Operators whose result is known when the program is made take no steps.
"""

COLUMNS = "| operator | meaning | attributes | board | ulp | steps |\n|---|---|---|---|---|---|"


def text() -> str:
    families: dict[str, list[str]] = defaultdict(list)
    for operator in OPERATORS.values():
        families[operator.family].append(_row(operator))
    parts = [HEAD]
    for family, rows in families.items():
        parts.append(f"\n## {family.capitalize()}\n\n{COLUMNS}\n")
        parts.append("\n".join(rows) + "\n")
    parts.append("\n## Standard cases\n\n| case | float_dtype | steps | bound |\n|---|---|---|---|\n")
    for name, (graph, dtype, _reach, least, why) in CASES.items():
        parts.append(f"| {name} | {dtype} | {steps_of(graph(), dtype):,} | {least:,.0f} ({why}) |\n")
    return "".join(parts)


def _row(operator: Operator) -> str:
    name = operator.name
    attrs = ", ".join(f"{key}" if value is REQUIRED else f"{key}={value!r}" for key, value in operator.attrs.items())
    is_kernel = any(op == name for op, _ in KERNELS)
    board = "kernel" if is_kernel else "rule" if name in RULES else "constant"
    errors = _of_kernels(name) if is_kernel else [] if name in CONSTANT else [*bound(name)]
    ulp = " / ".join(f"{error:g}" for error in errors) if any(errors) else "0" if errors else ""
    steps = "" if name in CONSTANT else f"{steps_of(draw(name)[0], 'float'):,}"
    cells = [name, operator.doc, attrs, board, ulp, steps]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _of_kernels(name: str) -> list[float]:
    kernels = [KERNELS[name, dtype] for dtype in ("single", "double") if (name, dtype) in KERNELS]
    errors = {key: value for kernel in kernels for key, value in kernel.ulp.items()}
    return [errors[key] for key in ("half", "single", "double") if key in errors]


if __name__ == "__main__":
    print(text(), end="")
