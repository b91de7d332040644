"""Planes: the schemes in which windows (convolution, pooling) work.

A tensor (N, C, H, W) or (N, C, W) has its channels on the lanes and everything else inside LM, in the order image, row, channel
block, column; L2Bs share images, channels or rows, and all L1Bs and MABs hold copies. So a row of all channel blocks is one
piece of DRAM, and a tap of a window is a constant distance in LM. Columns are padded so that a row is a whole number of moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlsdk.device.spec import L2B_PER_GROUP
from mlsdk.pipeline.ir.layout import EXTENT, L2B
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL, Digit, Scheme


@dataclass(frozen=True)
class Split:
    """Over how many L2Bs images, channels and rows are shared out."""

    images: int = 1
    channels: int = 1
    rows: int = 1

    @property
    def l2bs(self) -> int:
        return self.images * self.channels * self.rows


def splits() -> list[Split]:
    """Every way to use up to all L2Bs, powers of two for channels."""
    found = []
    for channels in (1, 2, 4, 8):
        for images in range(1, EXTENT[L2B] // channels + 1):
            for rows in range(1, EXTENT[L2B] // channels // images + 1):
                found.append(Split(images, channels, rows))
    return found


def row_columns(width: int, blocks: int) -> int:
    """Columns that a row of `blocks` channel blocks is stored with: whole moves of 64 LW, whole groups of 4."""
    columns = -(-width // 4) * 4
    while columns * blocks % 16:
        columns += 4
    return columns


def plane_scheme(shape: Sequence[int], split: Split) -> Scheme:
    """The scheme of a tensor (N, C, H, W) or (N, C, W)."""
    flat = len(shape) == 3
    n, c, h, w = (*shape[:2], 1, shape[2]) if flat else shape
    blocks = -(-c // BLOCK)
    local_blocks = -(-blocks // split.channels)
    scale = EXTENT[L2B] // (1 << (split.l2bs - 1).bit_length()) if split.l2bs <= EXTENT[L2B] // 2 else 1
    # The two L2Bs of a group read the same rows in one move where they have the two halves of the channels.
    paired = split.channels == L2B_PER_GROUP
    strides = {
        "rows": scale * (split.channels if paired else 1),
        "channels": scale * (1 if paired else split.rows),
        "images": scale * split.rows * split.channels,
    }

    def digits(parts: int, stride: int, local: int, rank: int) -> tuple[Digit, ...]:
        found = []
        if parts > 1:
            found.append(Digit(parts, L2B, stride))
        if local > 1:
            found.append(Digit(local, LOCAL, rank))
        return tuple(found)

    axes = [
        digits(split.images, strides["images"], -(-n // split.images), 4),
        digits(split.channels, strides["channels"], local_blocks, 2),
        digits(split.rows, strides["rows"], -(-h // split.rows), 3),
        digits(1, 0, row_columns(w, local_blocks), 1),
    ]
    return Scheme(tuple(axes[:2] + axes[3:] if flat else axes), 1)


@dataclass(frozen=True)
class Plane:
    """A tensor in a plane scheme, as numbers. `rows` and `columns` are local (stored) extents, `blocks` local blocks."""

    shape: tuple[int, int, int, int]
    split: Split
    images: int
    rows: int
    blocks: int
    columns: int
    strides: tuple[int, int, int]  # of L2B: images, channels, rows

    @classmethod
    def of(cls, shape: Sequence[int], scheme: Scheme) -> Plane | None:
        """The plane that a scheme is, or None when it is none."""
        if scheme.lane != 1 or scheme.copies or len(shape) not in (3, 4):
            return None
        flat = len(shape) == 3
        axes = list(scheme.axes)
        if flat:
            axes.insert(2, ())
        full = (*shape[:2], 1, shape[2]) if flat else tuple(shape)
        parts, locals_, strides = [], [], []
        for axis in axes:
            digits = [d for d in axis if d.n > 1]
            if [d.level for d in digits] not in ([], [L2B], [LOCAL], [L2B, LOCAL]):
                return None
            spatial = next((d for d in digits if d.level == L2B), None)
            local = next((d for d in digits if d.level == LOCAL), None)
            parts.append(spatial.n if spatial else 1)
            strides.append(spatial.stride if spatial else 0)
            locals_.append(local.n if local else 1)
        if parts[3] > 1:
            return None
        order = [(axis + (flat and axis == 2)) for axis, _ in scheme.local]
        if order != [a for a in (0, 2, 1, 3) if locals_[a] > 1]:
            return None
        if locals_[3] * locals_[1] % 16 or locals_[3] % 4:
            return None
        split = Split(parts[0], parts[1], parts[2])
        return cls(full, split, locals_[0], locals_[2], locals_[1], locals_[3], (strides[0], strides[1], strides[2]))  # type: ignore[arg-type]

    def l2b(self, image_part: int, channel_part: int, row_part: int) -> int:
        a, b, c = self.strides
        return image_part * a + channel_part * b + row_part * c

    def row_address(self, image: int, row: int) -> int:
        """LM address, in units, of a local row of a local image."""
        return (image * self.rows + row) * self.blocks * self.columns
