"""Settings of the whole suite."""

import os
import signal

import pytest
from hypothesis import HealthCheck, Phase, settings

# A suite that was started in the background ignores Ctrl-C, and so would the programs that the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "board",
    deadline=None,
    max_examples=int(os.environ.get("MLSDK_EXAMPLES", "20")),
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    # Not Phase.explain: it traces every line, and a compile has millions.
    phases=[Phase.explicit, Phase.generate, Phase.target, Phase.shrink],
)
settings.load_profile("board")


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="record what the replay test finds")


@pytest.fixture
def update_golden(request):
    return request.config.getoption("--update-golden")
