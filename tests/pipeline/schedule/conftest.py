"""The helpers of the tests of emission run programs on the machine; these tests run plans on it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "emit"))
