"""docs/porting.md is a program that runs: its indented blocks, one after the other, in a folder of its own."""

from __future__ import annotations

import re
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "porting.md"


def program() -> str:
    """The page with everything that is not code taken out, so that lines keep their numbers."""
    return "\n".join(line[4:] if line.startswith("    ") else "" for line in PAGE.read_text().splitlines())


def test_the_page_runs(run_program, tmp_path):
    done = run_program(
        f"import os\nos.chdir({str(tmp_path)!r})\n" + program(), PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin"
    )
    assert re.fullmatch(r"\d+ steps\n", done.stdout)
    assert (tmp_path / "port" / "checkpoint.pt").exists() and (tmp_path / "port" / "board" / "accuracy.json").exists()


def test_its_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)#]+)", PAGE.read_text()):
        assert (PAGE.parent / link).exists(), link
