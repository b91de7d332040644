"""Schemes: layouts of one family, independent of dtype, that operators can reason about.

A scheme gives each axis digits at L2B, L1B, MAB or in LM (`LOCAL`), and one axis, the lane axis, ends in a block of 16
elements: 4 PEs x 4 elements. The 4 elements of a PE (a *quad*) are one LW of halves, two of singles, four of doubles:

    half    (blocks.., 4_PE:1, 4_W:1)
    single  (blocks.., 4_PE:1, 2:1, 2_W:1)          also int
    double  (blocks.., 4_PE:1, 4:1)

so that a conversion between dtypes never leaves its PE, and the matrix unit's natural output (PE p gets rows 4p..4p+3) is
such a layout. Without a lane axis an element has an LW of its own, with copies in all PEs and words.

Layouts in general (`Layout`) are richer; a scheme is how the planner and the emitters name the ones that they work in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from mlsdk.errors import LayoutError
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, EXTENT, L1B, L2B, MAB, PE, Layout, Sub, W

LOCAL = "Local"
BLOCK = 16  # elements of a lane block
QUAD_LW = {"half": 1, "single": 2, "int": 2, "double": 4}  # LW of a PE's four elements
_QUAD = {
    "half": (Sub(4, PE, 1), Sub(4, W, 1)),
    "single": (Sub(4, PE, 1), Sub(2, ADDR, 1), Sub(2, W, 1)),
    "int": (Sub(4, PE, 1), Sub(2, ADDR, 1), Sub(2, W, 1)),
    "double": (Sub(4, PE, 1), Sub(4, ADDR, 1)),
}


@dataclass(frozen=True, slots=True)
class Digit:
    """`n` values at a level. `stride`: of the level's index when spatial; when LOCAL, the rank of the digit in the address
    order (larger rank = more significant)."""

    n: int
    level: str
    stride: int


@dataclass(frozen=True)
class Scheme:
    """`axes[a]`: digits of axis a, most significant first, for a lane axis without its block of 16. `copies`: spatial
    digits over which the tensor is repeated although other axes use the same level."""

    axes: tuple[tuple[Digit, ...], ...]
    lane: int | None = None
    copies: tuple[Digit, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.axes)

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """Padded sizes."""
        return tuple(prod(d.n for d in axis) * (BLOCK if a == self.lane else 1) for a, axis in enumerate(self.axes))

    # ---- addresses --------------------------------------------------------------------------------------------

    @cached_property
    def local(self) -> tuple[tuple[int, Digit], ...]:
        """(axis, digit) of the LOCAL digits, most significant address first."""
        found = [(a, d) for a, axis in enumerate(self.axes) for d in axis if d.level == LOCAL and d.n > 1]
        return tuple(sorted(found, key=lambda item: -item[1].stride))

    @cached_property
    def units(self) -> int:
        """LM places of a PE: quads with a lane axis, single LWs without."""
        return prod(d.n for _, d in self.local)

    def unit_lw(self, dtype: str) -> int:
        return QUAD_LW[dtype] if self.lane is not None else 1

    def inside_mab(self, axes: Sequence[int]) -> bool:
        """Whether each MAB holds these axes whole."""
        return all(d.level == LOCAL or d.n == 1 for a in axes for d in self.axes[a])

    def addresses(self, dtype: str) -> int:
        return self.units * self.unit_lw(dtype)

    def unit_strides(self) -> dict[tuple[int, int], int]:
        """(axis, rank) of each LOCAL digit -> stride in units."""
        strides, step = {}, 1
        for axis, digit in reversed(self.local):
            strides[axis, digit.stride] = step
            step *= digit.n
        return strides

    # ---- layouts ----------------------------------------------------------------------------------------------

    def layout(self, dtype: str) -> Layout:
        """The layout of this scheme for a device dtype."""
        if dtype not in self._layouts:
            self._layouts[dtype] = self._layout(dtype)
        return self._layouts[dtype]

    @cached_property
    def _layouts(self) -> dict[str, Layout]:
        return {}

    def _layout(self, dtype: str) -> Layout:
        strides, unit = self.unit_strides(), self.unit_lw(dtype)
        axes = []
        for a, axis in enumerate(self.axes):
            subs = []
            for d in axis:
                if d.n == 1:
                    continue
                if d.level == LOCAL:
                    subs.append(Sub(d.n, ADDR, strides[a, d.stride] * unit))
                else:
                    subs.append(Sub(d.n, d.level, d.stride))
            if a == self.lane:
                subs += _QUAD[dtype]
            axes.append(tuple(subs))
        used = {d.level for axis in self.axes for d in axis if d.n > 1}
        broadcast = [Sub(0, level) for level in (L2B, L1B, MAB) if level not in used]
        broadcast += [Sub(d.n, d.level, d.stride) for d in self.copies if d.level in used and d.n > 1]
        if self.lane is None:
            broadcast += [Sub(0, PE), Sub(0, W)]
        return Layout(tuple(axes), tuple(broadcast))

    @property
    def plain(self) -> Scheme:
        """Without copies over levels that no axis uses: these hold copies anyway."""
        used = {d.level for axis in self.axes for d in axis if d.n > 1}
        return replace(self, copies=tuple(d for d in self.copies if d.level in used))

    def only_lanes_padded(self, shape: Sequence[int], dtype: str) -> bool:
        """Whether every place that holds no element of a tensor of `shape` is a lane beyond its lane axis."""
        exact = all(size == held for a, (size, held) in enumerate(zip(shape, self.extents)) if a != self.lane)
        blocks = self.lane is None or self.extents[self.lane] - shape[self.lane] < BLOCK
        return exact and blocks and Image(self.layout(dtype), dtype, self.extents).full

    @classmethod
    def of(cls, layout: Layout, dtype: str) -> Scheme:
        """The scheme whose layout this is. LayoutError when there is none."""
        quad = _QUAD[dtype]
        axes = [[s for s in axis if s.n > 1] for axis in layout.axes]
        ends = [a for a, axis in enumerate(axes) if tuple(axis[-len(quad) :]) == quad]
        lane = ends[-1] if ends else None
        if lane is not None:
            del axes[lane][-len(quad) :]
        ranks = {n: i for i, n in enumerate(sorted(s.stride for axis in axes for s in axis if s.level == ADDR))}

        def digit(s: Sub) -> Digit:
            return Digit(s.n, LOCAL, ranks[s.stride]) if s.level == ADDR else Digit(s.n, s.level, s.stride)

        copies = tuple(Digit(s.n, s.level, s.stride) for s in layout.broadcast if s.n > 1)
        found = cls(tuple(tuple(map(digit, axis)) for axis in axes), lane, copies)
        apart = any(s.level in (PE, W) for axis in axes for s in axis)  # lanes that are no whole blocks
        if apart or found.layout(dtype).axes != tuple(tuple(s for s in axis if s.n > 1) for axis in layout.axes):
            raise LayoutError(
                f"{layout} is none of the layouts that the planner works in: at most one axis ends in the four PEs and "
                f"words, {','.join(map(str, quad))} for {dtype}, and addresses have no gaps"
            )
        return found

    # ---- relations --------------------------------------------------------------------------------------------

    def restrict(self, shape: Sequence[int], full: Sequence[int] | None = None) -> Scheme:
        """The scheme of an operand of `shape` that is broadcast against a tensor of this scheme and of shape `full` (ONNX
        rules): axes of size 1 where the tensor has more lose their digits and become copies; leading axes may be missing."""
        full = self.extents if full is None else full
        skip = self.rank - len(shape)
        axes: list[tuple[Digit, ...]] = []
        copies = list(self.copies)
        lane = None
        for a, axis in enumerate(self.axes):
            if a >= skip and (shape[a - skip] != 1 or full[a] == 1):
                axes.append(axis)
                if a == self.lane:
                    lane = a - skip
                continue
            if a >= skip:
                axes.append(())
            copies += [d for d in axis if d.level != LOCAL and d.n > 1]
        return Scheme(tuple(axes), lane, tuple(copies))

    def drop(self, axis: int) -> Scheme:
        """Without an axis that has no digits."""
        lane = self.lane if self.lane is None or self.lane < axis else self.lane - 1
        return replace(self, axes=self.axes[:axis] + self.axes[axis + 1 :], lane=lane)

    def permute(self, perm: Sequence[int]) -> Scheme:
        """Of the transposed tensor, in the same place."""
        lane = None if self.lane is None else list(perm).index(self.lane)
        return replace(self, axes=tuple(self.axes[p] for p in perm), lane=lane)

    def reshape(self, shape: Sequence[int], new: Sequence[int]) -> Scheme | None:
        """Of the tensor of `shape` seen as `new`, in the same place; None when the digits cannot be cut that way."""
        groups = _groups(shape, new)
        if groups is None:
            return None
        axes: list[tuple[Digit, ...]] = []
        lane: int | None = None
        ranks = _Ranks(self)
        for old_axes, new_axes in groups:
            alone = self._alone(shape, old_axes), [b for b in new_axes if new[b] != 1]
            if alone[0] is not None and len(alone[1]) == 1:  # one axis, whatever its padding, beside axes of size 1
                for b in new_axes:
                    if b == alone[1][0] and alone[0] == self.lane:
                        lane = len(axes)
                    axes.append(tuple(ranks.axes[alone[0]]) if b == alone[1][0] else ())
                continue
            merged: list[Digit] = []
            has_lane = False
            for a in old_axes:
                if merged and self.extents[a] != shape[a]:
                    return None  # padding inside a merged axis
                if has_lane and self.extents[a] > 1:
                    return None  # a lane block must stay innermost
                merged += ranks.axes[a]
                has_lane |= a == self.lane
            cut = _cut(merged, [new[b] for b in new_axes], has_lane, ranks)
            if cut is None:
                return None
            for b, (digits, is_lane) in zip(new_axes, cut):
                if is_lane:
                    lane = len(axes)
                axes.append(tuple(digits))
                assert b == len(axes) - 1
        if self.lane is not None and lane is None:  # a lane axis of size 1: another one takes the block
            ones = [b for b, n in enumerate(new) if n == 1 and not axes[b]]
            if not ones:
                return None
            lane = ones[-1]
        return ranks.finish(Scheme(tuple(axes), lane, self.copies))

    def _alone(self, shape: Sequence[int], axes: Sequence[int]) -> int | None:
        """The one of the axes that is not of size 1, if the others have no digits."""
        found = [a for a in axes if shape[a] != 1]
        return found[0] if len(found) == 1 and all(a in found or not self.axes[a] for a in axes) else None


def _groups(shape: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]] | None:
    """Axes of both shapes in runs of equal products; None for tensors of no elements."""
    if prod(shape) == 0 or prod(shape) != prod(new):
        return None
    groups, i, j = [], 0, 0
    while i < len(shape) or j < len(new):
        olds: list[int] = []
        news: list[int] = []
        a = b = 1
        while True:
            if a == b and olds and news:
                break
            if a <= b and i < len(shape):
                a *= shape[i]
                olds.append(i)
                i += 1
            elif j < len(new):
                b *= new[j]
                news.append(j)
                j += 1
            else:
                break
        groups.append((olds, news))
    while len(groups) > 1 and (not groups[-1][0] or not groups[-1][1]):
        olds, news = groups.pop()
        groups[-1] = (groups[-1][0] + olds, groups[-1][1] + news)
    return groups


class _Ranks:
    """Digits that are cut in two need ranks between the old ones: while a scheme is reshaped, each LOCAL digit has a range of
    ranks of its own, of which the halves of a cut digit get a half each."""

    RANGE = 1 << 40

    def __init__(self, scheme: Scheme):
        digits = [d for axis in scheme.axes for d in axis if d.level == LOCAL]
        place = {rank: i for i, rank in enumerate(sorted({d.stride for d in digits}))}
        self.width = {i * self.RANGE: self.RANGE for i in place.values()}
        self.axes = tuple(
            tuple(replace(d, stride=place[d.stride] * self.RANGE) if d.level == LOCAL else d for d in axis)
            for axis in scheme.axes
        )

    def split(self, digit: Digit, inner: int) -> tuple[Digit, Digit]:
        outer = digit.n // inner
        if digit.level == LOCAL:
            half = self.width[digit.stride] // 2
            self.width[digit.stride] = self.width[digit.stride + half] = half
            return Digit(outer, LOCAL, digit.stride + half), Digit(inner, LOCAL, digit.stride)
        return Digit(outer, digit.level, digit.stride * inner), Digit(inner, digit.level, digit.stride)

    def finish(self, scheme: Scheme) -> Scheme:
        """With ranks from 0 on, digits that count on as one."""
        scheme = replace(scheme, axes=tuple(_merged(axis, scheme) for axis in scheme.axes))
        ranks = sorted({d.stride for axis in scheme.axes for d in axis if d.level == LOCAL})
        number = {rank: i for i, rank in enumerate(ranks)}
        axes = tuple(
            tuple(replace(d, stride=number[d.stride]) if d.level == LOCAL else d for d in axis) for axis in scheme.axes
        )
        return replace(scheme, axes=axes)


def _merged(axis: tuple[Digit, ...], scheme: Scheme) -> tuple[Digit, ...]:
    """The digits of an axis, those that follow each other in LM as one."""
    order = [d.stride for _, d in scheme.local]
    after = dict(zip(order, order[1:]))
    found: list[Digit] = []
    for d in axis:
        last = found[-1] if found else None
        if last is not None and last.level == d.level == LOCAL and after.get(last.stride, -1) == d.stride and d.n > 1:
            found[-1] = replace(d, n=last.n * d.n)
        else:
            found.append(d)
    return tuple(found)


def _cut(digits: list[Digit], sizes: list[int], has_lane: bool, ranks: _Ranks) -> list[tuple[list[Digit], bool]] | None:
    """`digits` shared out over axes of `sizes`, least significant first; the first axis takes what is left."""
    result: list[tuple[list[Digit], bool]] = []
    rest = list(digits)
    for position in range(len(sizes) - 1, -1, -1):
        size, mine, lane = sizes[position], [], False
        got = 1
        if has_lane and not any(flag for _, flag in result) and size > 1:
            if position and size % BLOCK:
                return None
            lane, got = True, BLOCK
        if position == 0:
            mine = rest
            result.append((mine, lane))
            break
        while got < size:
            if not rest:
                return None
            digit = rest.pop()
            if size % got:
                return None
            need = size // got
            if digit.n <= need and need % digit.n == 0:
                mine.insert(0, digit)
                got *= digit.n
            elif digit.n % need == 0:
                outer, inner = ranks.split(digit, need)
                rest.append(outer)
                mine.insert(0, inner)
                got *= need
            else:
                return None
        if got != size:
            return None
        result.append((mine, lane))
    return result[::-1]


def spread(
    shape: Sequence[int],
    lane: int | None,
    *,
    lanes_too: bool = True,
    levels: Sequence[str] = (L2B, L1B, MAB),
    rows_first: bool = True,
) -> Scheme:
    """The default scheme of a tensor: rows over L2B, L1B and MAB as far as they go, the rest in LM; when rows leave a
    level unused, the blocks of the lane axis take it (`lanes_too`)."""
    free = {level: EXTENT[level] if level in levels else 1 for level in (L2B, L1B, MAB)}
    rank = len(shape)
    axes: list[list[Digit]] = [[] for _ in shape]
    order = [a for a in range(rank) if a != lane] + ([lane] if lane is not None else [])
    sizes = {a: -(-shape[a] // BLOCK) if a == lane else shape[a] for a in order}
    for a in order:
        rest = sizes[a]
        if a != lane or lanes_too:
            for level in (L2B, L1B, MAB):
                take = _share(level, free[level], rest)
                if take > 1:
                    axes[a].append(Digit(take, level, 0))
                    free[level] //= take
                    rest = -(-rest // take)
        if rest > 1:
            axes[a].append(Digit(rest, LOCAL, rank - order.index(a)))
    return _place(axes, lane)


#: A level is used only when at least this many of its units get a share: fewer would waste bandwidth on empty places.
_LEAST = {L2B: 2, L1B: 4, MAB: 8}


def _share(level: str, free: int, rest: int) -> int:
    if free < 2 or rest < 2:
        return 1
    each = -(-rest // free)
    take = -(-rest // each)
    return take if take >= min(_LEAST[level], free) else 1


def _place(axes: list[list[Digit]], lane: int | None) -> Scheme:
    """Strides of the spatial digits: the later an axis, the smaller its strides."""
    step = {L2B: 1, L1B: 1, MAB: 1}
    used = prod(d.n for axis in axes for d in axis if d.level == L2B)
    if used <= EXTENT[L2B] // 2:
        step[L2B] = EXTENT[L2B] // (1 << (used - 1).bit_length()) if used > 1 else 1
    placed: list[tuple[Digit, ...]] = []
    for axis in reversed(axes):
        digits = []
        for d in reversed(axis):
            if d.level == LOCAL:
                digits.append(d)
            else:
                digits.append(Digit(d.n, d.level, step[d.level]))
                step[d.level] *= d.n
        placed.append(tuple(reversed(digits)))
    return Scheme(tuple(reversed(placed)), lane)


def choose_lane(shape: Sequence[int]) -> int | None:
    """The axis whose blocks of 16 fill the lanes: the last one if it is wide enough, else the widest."""
    wide = [a for a, n in enumerate(shape) if n > 1]
    if not wide:
        return None
    if shape[wide[-1]] >= BLOCK // 2:
        return wide[-1]
    return max(wide, key=lambda a: (shape[a], a))


def local_rows(shape: Sequence[int], lane: int | None) -> Scheme:
    """`spread` with the lane axis kept inside each MAB."""
    return spread(shape, lane, lanes_too=False)
