"""The ONNX node cases on the board: each passes, or is refused for a listed reason; none gives wrong numbers."""

import collections

import conformance_page
import pytest
from onnx_cases import collected, on_reference
from onnx_cases_on_board import PASS, on_board

EVERY = 9  # of the cases, in the short suite


def test_some_cases():
    found = {case.name: on_board(case) for case in collected()[::EVERY] if on_reference(case) == PASS}
    assert not {name: text for name, text in found.items() if text.startswith("FAIL")}
    assert collections.Counter(found.values())[PASS] >= 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_page_holds_what_all_cases_give():
    page = conformance_page.text()
    assert "FAIL" not in page
    assert page == conformance_page.PAGE.read_text(), "docs/conformance.md is old: make docs"
