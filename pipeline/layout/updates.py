"""Weights that a training step reads and writes: they lie as their gradient comes out of its product.

y = x W^T + b with W (n, k) multiplies blocks of 16 outputs and 16 lanes of k. Stored with the 16 outputs of a block in the 16
MABs, W is read like any weights (mode hm, h), and is at the same time a scheme that a product can write: the gradient
dy^T x (n, k), whose rows are shared out over the MABs. Then gradient, state of the optimizer and new weights lie like W, every
element is at one place where there are enough of them, and nothing is laid out anew:

    n    over the L2Bs if that fills them, the rest in LM, 16 over the MABs
    k    over the L1Bs if that fills them, the rest in LM: each L1B sums a part of k, and the network adds the parts

The other way round, n over the L1Bs and k over the L2Bs, if x comes with its lanes over the L2Bs as the layer before leaves
them, and y has no more elements than x: then the parts are added between the L2Bs, and nothing is brought from one to another
but sums. So every other layer of a row of them lies.

Rows of x and y lie like those of W, 16 over the MABs. What lies so can be the second factor of a product along its rows, too
(the crossed modes transpose its blocks): x in dy^T x, and W in dy W as long as its rows are inside an L1B.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from mlsdk.pipeline.ir.layout import EXTENT, L1B, L2B, MAB
from mlsdk.pipeline.ir.placed import ZERO
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL, Digit, Scheme, spread
from mlsdk.pipeline.ops.emitters.gemm_modes import MODES, Mode
from mlsdk.pipeline.ops.emitters.kernels import kernels_of

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner


@dataclass(frozen=True)
class Weights:
    """How weights lie that a product reads where they are: their scheme, and the digits of n (without the MABs) and k, as
    those of the lanes of y and x."""

    scheme: Scheme
    n: tuple[Digit, ...]
    k: tuple[Digit, ...]

    @property
    def parts(self) -> int:
        """How many L1Bs or L2Bs sum a part of k each."""
        return prod(d.n for d in self.k if d.level != LOCAL)

    def rows(self, shape: tuple[int, ...]) -> tuple[tuple[Digit, ...], ...]:
        """Axes of a product's rows: over the levels that the weights leave."""
        return rows_beside(shape, (*self.n, *self.k))

    def schemes(self, rows: tuple[int, ...]) -> tuple[Scheme, Scheme]:
        """Of the other factor (rows.., k) and of the result (rows.., n)."""
        axes = self.rows(rows)
        return Scheme((*axes, self.k), len(rows)), Scheme((*axes, self.n), len(rows))


#: blocks of 16 rows that a MAB multiplies while the weights of a block come (mode hm)
_ENOUGH = 32


def rows_beside(shape: tuple[int, ...], others: Iterable[Digit]) -> tuple[tuple[Digit, ...], ...]:
    """Axes of so many rows over the MABs, and, where a MAB would have many, over levels that no other digit uses."""
    if len(shape) != 1:
        taken = {d.level for d in others}
        return spread(shape, None, levels=[level for level in (L2B, L1B, MAB) if level not in taken]).axes
    rest, digits, taken = -(-shape[0] // BLOCK), [], {d.level for d in others}
    for level in (L1B, L2B):
        if level not in taken and rest > _ENOUGH:
            digits.append(Digit(EXTENT[level], level, 1))
            rest = -(-rest // EXTENT[level])
    if rest > 1:
        digits.append(Digit(rest, LOCAL, 1))
    return ((*digits, Digit(min(shape[0], BLOCK), MAB, 1)),)


def mode_for(mode: Mode) -> Mode | None:
    """The mode that reads weights which lie in MABs instead of `mode`."""
    return {"h": MODES["h"], "hs": MODES["hm"]}.get(mode.name)


def crossed_mode_for(mode: Mode) -> Mode | None:
    """The mode that reads weights whose lanes are outputs instead of `mode`."""
    return {"h": MODES["ht"], "hs": MODES["hst"]}.get(mode.name)


def crossed(planner: Planner, name: str) -> Iterator[tuple[str, tuple[Digit, ...]]]:
    """Places of a matrix (c, n), itself or a copy, where a product along c may read it as its second factor; and the digits
    of its lanes there."""
    for copy in (name, *(copy for (source, _, _), copy in planner.switched.items() if source == name)):
        found = planner.placed(copy)
        own = of_scheme(found.scheme) if found is not None else None
        if found is None or own is None or any(d.level != LOCAL for d in own.n):
            continue
        if found.pad == ZERO or found.shape[0] % BLOCK == 0:
            yield copy, own.k


def weights(planner: Planner, name: str, x: str, rows: int) -> Weights | None:
    """Of W (n, k), a factor of a product with so many rows of x: as it lies, or may lie if the program updates it."""
    if not planner.free(name):
        return of_scheme(planner.scheme_of(name))
    if not _is_updated(planner, name):
        return None
    n, k = planner.shape(name)
    return of_scheme(_new((n, k), rows, (L1B, L2B) if n <= k and _over_l2bs(planner.scheme_of(x)) else (L2B, L1B)))


def _over_l2bs(x: Scheme | None) -> bool:
    """Whether all L2Bs share the lanes of x, and all its rows are in each of them."""
    if x is None or x.lane is None or x.lane != x.rank - 1 or x.copies:
        return False
    lanes = [d for d in x.axes[x.lane] if d.level != LOCAL]
    return lanes == [Digit(EXTENT[L2B], L2B, 1)] and not any(d.level == L2B for axis in x.axes[:-1] for d in axis)


def of_scheme(scheme: Scheme | None) -> Weights | None:
    if scheme is None or scheme.rank != 2 or scheme.lane != 1 or scheme.copies or not scheme.axes[0]:
        return None
    (*n, last), k = scheme.axes
    lanes = [d.level for d in k]
    if (last.level, last.stride) != (MAB, 1) or (last.n != BLOCK and n):
        return None
    if [d.level for d in n] not in ([], [L2B], [L1B], [LOCAL], [L2B, LOCAL], [L1B, LOCAL]):
        return None
    if lanes not in ([], [L2B], [L1B], [LOCAL], [L2B, LOCAL], [L1B, LOCAL]):
        return None
    if any(d.level != LOCAL and d != Digit(EXTENT[d.level], d.level, 1) for d in k):
        return None
    if {d.level for d in n if d.level != LOCAL} & {d.level for d in k}:
        return None
    if [axis for axis, _ in scheme.local] not in ([], [0], [1], [0, 1]):
        return None
    return Weights(scheme, _last(n), _last(k))


def _last(digits: Iterable[Digit]) -> tuple[Digit, ...]:
    """Digits of lanes: in LM they are the least significant ones."""
    return tuple(replace(d, stride=-1) if d.level == LOCAL else d for d in digits)


def _new(shape: tuple[int, ...], rows: int, levels: tuple[str, str]) -> Scheme | None:
    """The scheme of weights (n, k) for a product with so many rows, n and k over these levels. None where y has more elements
    than they: then it is rather y and its gradient that should not be laid out anew between the layers."""
    if len(shape) != 2 or shape[1] % BLOCK or shape[1] < rows:
        return None
    n, k = shape
    blocks = (-(-n // BLOCK), k // BLOCK)
    axes: list[list[Digit]] = []
    for axis, (count, level) in enumerate(zip(blocks, levels)):
        whole = count % EXTENT[level] == 0
        rest = count // EXTENT[level] if whole else count
        digits = [Digit(EXTENT[level], level, 1)] if whole else []
        axes.append(digits + ([Digit(rest, LOCAL, 2 - axis)] if rest > 1 else []))
    return Scheme(((*axes[0], Digit(min(n, BLOCK), MAB, 1)), tuple(axes[1])), 1)


def _is_updated(planner: Planner, name: str) -> bool:
    return name in planner.options.fixed.values()


def goal(planner: Planner, name: str) -> Weights | None:
    """Where the weights lie that are updated by a value of their shape, through elementwise operators only."""
    waiting, seen = [name], {name}
    while waiting:
        value = waiting.pop(0)
        state = planner.options.fixed.get(value)
        found = of_scheme(planner.scheme_of(state)) if isinstance(state, str) else None
        if found is not None and planner.shape(state) == planner.shape(name):  # type: ignore[arg-type]
            return found
        for node in planner.readers.get(value, ()):
            out = node.outputs[0]
            if out not in seen and kernels_of(node.op) and planner.shape(out) == planner.shape(name):
                seen.add(out)
                waiting.append(out)
    return None
