"""The collector's thresholds while something compiles, and afterwards."""

from __future__ import annotations

import gc

import pytest

from mlsdk.pipeline.ops.garbage import RARELY, rarely_collected


@pytest.mark.parametrize(
    "before,inside", [((700, 10, 10), RARELY), ((700, 30, 5), (50_000, 30, 20)), ((0, 10, 10), (0, 10, 10)),
                      ((10**6, 5, 5), (10**6, 5, 5))]
)  # fmt: skip
def test_thresholds_are_given_back(before, inside):
    kept = gc.get_threshold()
    gc.set_threshold(*before)
    try:
        with pytest.raises(KeyError), rarely_collected():
            with rarely_collected():
                assert gc.get_threshold() == inside
            assert gc.get_threshold() == inside
            raise KeyError
        assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*kept)
