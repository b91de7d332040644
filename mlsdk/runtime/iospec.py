"""IOSpec: how an input or output of a compiled function lies on its device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import Layout
from mlsdk.pipeline.ir.scheme import Scheme

__all__ = ["IOSpec"]

# dtypes between which no value changes when the board holds both in the same device dtype
_ALIKE = (frozenset({"int32", "int64"}), frozenset({"float32", "float64"}))


@dataclass(frozen=True, repr=False)
class IOSpec:
    """`dtype` and `shape` as the function sees them; `device_dtype` (half, single, double, int) and `layout` as the
    board has them, in PFN's notation; `clean`: places without an element hold zero. On `pfvm` there is no layout: values
    are plain arrays."""

    dtype: str
    shape: tuple[int, ...]
    device_dtype: str = ""
    layout: Layout | None = None
    scheme: Scheme | None = None
    clean: bool = True

    def is_memcopyable_to(self, other: IOSpec) -> bool:
        """Whether a plain copy of memory turns one into the other: same shape, device dtype and layout, and the padding
        zero where the other's reader relies on it."""
        if not isinstance(other, IOSpec):
            raise TypeError(f"is_memcopyable_to takes an IOSpec, not {type(other).__name__}")
        if self.shape != other.shape or self.device_dtype != other.device_dtype or self.layout != other.layout:
            return False
        if other.clean and not self.clean:
            return False
        if self.dtype == other.dtype:
            return True
        return self.layout is not None and any({self.dtype, other.dtype} <= alike for alike in _ALIKE)

    @cached_property
    def image(self) -> Image:
        """How the tensor lies in DRAM."""
        assert self.layout is not None, "values of pfvm have no layout"
        return Image(self.layout, self.device_dtype, self.shape)

    def __repr__(self) -> str:
        return f"IOSpec({self})"

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "0-d"
        if self.layout is None:
            return f"{self.dtype} {shape}"
        return f"{self.dtype} {shape} as {self.device_dtype} in {self.layout}"
