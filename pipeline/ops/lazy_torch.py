"""torch inside reference functions: imported when it is first needed, never at import time."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

_torch: Any = None


def torch() -> Any:
    """The torch module."""
    global _torch
    if _torch is None:
        import torch as module

        # Constants are read-only arrays; torch warns once in a process about the first of them.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array = np.zeros(1)
            array.flags.writeable = False
            module.from_numpy(array)
        _torch = module
    return _torch


def to_torch(array: np.ndarray) -> Any:
    """A tensor that shares the array's memory and must not be written."""
    return torch().from_numpy(np.ascontiguousarray(array).reshape(array.shape))


def torch_map(name: str, x: np.ndarray) -> np.ndarray:
    """`torch.<name>(x)`: an elementwise function that numpy lacks."""
    return getattr(torch(), name)(to_torch(x)).numpy()
