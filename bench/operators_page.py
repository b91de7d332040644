"""docs/operators.md, written from the tables: `python -m bench.operators_page > docs/operators.md`."""

from __future__ import annotations

from collections import defaultdict

from bench.operators import CASES, elementwise, steps_of
from mlsdk.errors import MLSDKError
from mlsdk.pipeline.layout.rules import RULES
from mlsdk.pipeline.ops import OPERATORS, REQUIRED
from mlsdk.pipeline.ops.emitters.kernels import KERNELS

HEAD = """\
# Operators

This page is written from the tables of the code by `python -m bench.operators_page > docs/operators.md`. Every operator has a
reference function, which is what `pfvm:cpu` runs; "board" says how it becomes assembly: a **kernel** is one formula for each
element, with its largest error in units in the last place (half, single, double; 0.5 is the rounding itself); a **rule** places
it and emits its own program, or makes it of other operators.

Shapes are static, of any rank; broadcasting is ONNX's. Dtypes are float32 (float16 and float64 by `float_dtype`), int32, int64
(32 bits on the board), uint8 and bool.

Steps are of one operator on 65,536 elements, DRAM to DRAM, `float_dtype` float; a step is 4 cycles at 750 MHz.
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
    for name, (graph, dtype, _reach, bound, why) in CASES.items():
        parts.append(f"| {name} | {dtype} | {steps_of(graph(), dtype):,} | {bound:,.0f} ({why}) |\n")
    return "".join(parts)


def _row(operator) -> str:
    name = operator.name
    attrs = ", ".join(f"{key}" if value is REQUIRED else f"{key}={value!r}" for key, value in operator.attrs.items())
    kernels = [KERNELS[name, dtype] for dtype in ("single", "double") if (name, dtype) in KERNELS]
    errors = {key: value for kernel in kernels for key, value in kernel.ulp.items()}
    ulp = " / ".join(f"{errors[key]:g}" for key in ("half", "single", "double") if key in errors)
    board = "kernel" if any(op == name for op, _ in KERNELS) else "rule" if name in RULES else "constant"
    cells = [name, operator.doc, attrs, board, ulp, _steps(operator)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _steps(operator) -> str:
    low, high = operator.arity
    if operator.family != "elementwise" or (operator.name, "single") not in KERNELS:
        return ""
    try:
        return f"{steps_of(elementwise(operator.name, 256, 256, inputs=low), 'float'):,}"
    except (MLSDKError, ValueError):
        return ""  # its operands are no floats


if __name__ == "__main__":
    print(text(), end="")
