"""The ONNX node cases on the reference functions: each passes, or is refused for a listed reason; none gives wrong numbers."""

import collections

import pytest
from onnx_cases import PASS, collected, on_reference


@pytest.fixture(scope="module")
def outcomes():
    return {case.name: on_reference(case) for case in collected()}


def test_no_case_is_wrong(outcomes):
    wrong = {name: text for name, text in outcomes.items() if text.startswith("FAIL")}
    assert not wrong


def test_most_cases_of_our_operators_pass(outcomes):
    counts = collections.Counter(outcomes.values())
    assert counts[PASS] >= 1080
