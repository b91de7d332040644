"""Every listing of docs/assembly.md passes the checks and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlsdk.device.engine.machine import Machine
from mlsdk.device.isa.checks import check
from mlsdk.device.isa.parser import parse

PAGE = (Path(__file__).parents[2] / "docs" / "assembly.md").read_text()
LISTINGS = re.findall(r"```vsm\n(.*?)```\n```text\n(.*?)```", PAGE, re.DOTALL)


def test_every_listing_has_its_output():
    assert len(LISTINGS) == PAGE.count("```vsm") >= 8


@pytest.mark.parametrize("number", range(len(LISTINGS)))
def test_listing(number):
    text, output = LISTINGS[number]
    statements = parse(text)
    assert [str(d) for d in check(statements)] == []
    assert "".join(line + "\n" for line in Machine().run(statements).dumps) == output


def test_the_times_of_the_last_section():
    stats = Machine().run(parse(LISTINGS[-1][0]))
    assert (stats.pe_steps, stats.moves, stats.total_steps) == (5, 1, 33)
