"""Searches that may not go on: CODEGEN_ALARM and Ctrl-C."""

from __future__ import annotations

import os
import signal
import time

import pytest

from mlsdk.errors import OptionError
from mlsdk.tasks.patience import Patience, patience
from mlsdk.tasks.session import Services


@pytest.fixture
def services(store):
    cut = []
    return Services(store.memory, lambda words: None, cut_short=lambda: cut.append(True)), cut


def test_the_alarm():
    with patience({}, None) as going:
        assert going("a") and going.end is None
    with patience({"CODEGEN_ALARM": "0.05"}, None) as going:
        assert going("a")
        time.sleep(0.06)
        assert not going("b")
    with patience({"CODEGEN_ALARM": "7200"}, None) as going:
        assert going("a")


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_what_is_no_time(text):
    with (
        pytest.raises(OptionError, match="CODEGEN_ALARM is .* give a number of seconds"),
        patience({"CODEGEN_ALARM": text}, None),
    ):
        pass


def test_ctrl_c_ends_the_search_and_then_everything(services):
    mine, cut = services
    with patience({}, mine) as going:
        assert going("a")
        os.kill(os.getpid(), signal.SIGINT)
        assert not going("b")
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
    assert cut == [True]
    with patience({}, mine):
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert cut == [True]


def test_a_handler_of_the_program_stays(services):
    mine, cut = services
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(True))
    try:
        with patience({}, mine) as going:
            os.kill(os.getpid(), signal.SIGINT)
            assert going("a")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (heard, cut) == ([True], [])


def test_how_it_goes_is_told_now_and_then(monkeypatch):
    clock, told = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    going = Patience(None, told.append)
    for _ in range(100):
        clock[0] += 0.01
        going(f"at {clock[0]:.2f}")
    assert 4 <= len(told) <= 5
