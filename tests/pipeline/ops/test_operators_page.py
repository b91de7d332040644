"""docs/operators.md has a row for every operator of the table."""

import re
from pathlib import Path

from mlsdk.pipeline.ops import OPERATORS

PAGE = Path(__file__).parents[3] / "docs" / "operators.md"


def test_every_operator_has_its_row():
    rows = re.findall(r"^\| (\w+) \| [^|]", PAGE.read_text(), re.MULTILINE)
    assert set(OPERATORS) <= set(rows), "docs/operators.md is old: make docs"
