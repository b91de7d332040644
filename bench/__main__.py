"""Run measurements and show them as tables."""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

MODULES = {
    "allocation": "addresses for many values in little memory",
    "compile": "cold start, recompiling, standard step counts",
    "dashboard": "the Codegen Dashboard on large folders",
    "emulator": "speed of the emulated board",
    "operators": "steps of standard operators and of ResNet-18",
    "planning": "planners, schedulers, overlap and presets on eight models",
    "runtime": "calls, transfers and their overlap, loading",
    "schedule": "steps and DRAM traffic by scheduler",
    "store": "the artifact store and cached builds",
    "trace": "tracing and graph optimisation",
    "training": "training steps on the board, and a ResNet-18 step",
}
RESULTS = Path(__file__).with_name("results")


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in MODULES]
    if unknown:
        print(f"no measurement {unknown[0]}; there are {', '.join(MODULES)}", file=sys.stderr)
        return 2
    RESULTS.mkdir(exist_ok=True)
    console = Console()
    for name in names or MODULES:
        figures: list[dict] = []

        def note(what: str, value: float, unit: str = "", reach: str = "", bound: str = "", figures=figures) -> None:
            figures.append({"name": what, "value": value, "unit": unit, "reach": reach, "bound": bound})

        importlib.import_module(f"bench.{name}").measure(note)
        table = Table(title=f"{name}: {MODULES[name]}", title_justify="left")
        for head in ("figure", "value", "unit", "reach", "bound"):
            table.add_column(head, justify="right" if head == "value" else "left")
        for f in figures:
            table.add_row(
                f["name"],
                f"{f['value']:,.4g}" if isinstance(f["value"], float) else f"{f['value']:,}",
                f["unit"],
                f["reach"],
                f["bound"],
            )
        console.print(table)
        host = {"python": platform.python_version(), "cores": os.cpu_count(), "machine": platform.machine()}
        (RESULTS / f"{name}.json").write_text(json.dumps({"host": host, "figures": figures}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
