"""The manual page is what the tables say, and every choice names a place that exists."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlsdk.device import spec
from mlsdk.device.isa import manual
from mlsdk.device.isa.choices import CHOICES

ROOT = Path(__file__).parents[2]


def test_the_page_is_current():
    assert (ROOT / "docs" / "isa.md").read_text() == manual.text(), (
        "docs/isa.md is old: python -m mlsdk.device.isa.manual > docs/isa.md"
    )


@pytest.mark.parametrize("choice", CHOICES, ids=lambda c: c.name)
def test_the_place_of_a_choice_exists(choice):
    path, _, names = choice.place.partition(":")
    source = (ROOT / path).read_text()
    for name in names.replace(",", " ").split():
        for part in name.split("."):
            assert part in source


def test_assumed_numbers_exist():
    assert all(isinstance(getattr(spec, name), int) for name in spec.ASSUMED)


def test_the_device_starts_without_heavy_modules():
    heavy = ("torch", "sqlalchemy", "rich", "onnx")
    code = f"import sys, mlsdk.device.engine.machine, mlsdk.device.board.board; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"
