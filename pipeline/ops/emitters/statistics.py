"""A normalisation by known statistics as a factor and a shift of each channel, which all PEs compute at the beginning of a node:

factor = scale / sqrt(variance + epsilon)        shift = bias - mean factor
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.elementwise import SPACE, Program, Task, lay, program_of
from mlsdk.pipeline.ops.emitters.formula import Formula, Op, Value
from mlsdk.pipeline.ops.emitters.formulas.division import rsqrt
from mlsdk.pipeline.ops.emitters.transfer import room
from mlsdk.pipeline.ops.emitters.woven import Room

#: LW of a PE for the channels, at most, and the words of GRF0 and GRF1 from which on factor and shift lie
MOST = 96
FACTOR, SHIFT = 0, 64
_FREE = {"r": 16, "s": 16}


def _factor(f: Formula, variance: Value, scale: Value, epsilon: float) -> Op:
    return f.mul(rsqrt(f, f.add(variance, epsilon)), scale)


def _shift(f: Formula, mean: Value, factor: Value, bias: Value) -> Op:
    return f.sub(bias, f.mul(mean, factor))


@dataclass(frozen=True)
class Normalisation:
    """`lb`: where in L1BM scale, bias, mean and variance of all channels lie, `count` LW of a PE each, as `dtype`; `to`: where
    factor and shift go. `constants`: the memories that may hold those."""

    lb: tuple[int, int, int, int]
    to: tuple[int, int]
    count: int
    dtype: str
    epsilon: float
    constants: tuple[str, ...]

    @property
    def programs(self) -> tuple[Program, Program]:
        dtype = self.dtype
        attrs = (("epsilon", self.epsilon),)
        first = program_of(
            Task(_factor, dtype, (dtype, dtype), dtype, attrs), Room(("m", "n"), "r", self.constants, _FREE)
        )
        last = Task(_shift, dtype, (dtype,) * 3, dtype)
        return first, program_of(last, Room(("m", "r", "n"), "s", self.constants, _FREE))

    @property
    def held(self) -> Iterable[tuple[int, tuple[str, ...]]]:
        """Constants, and the memories that have to hold them."""
        for program in self.programs:
            for woven in program.cut(-(-self.count // 4)):
                yield from woven.held.items()

    def emit(self, asm: Asm, places: dict[int, int]) -> None:
        """`places`: words of the constants, from where their memory's begin."""
        behind = 2 * room(self.count)  # words
        scale, bias, mean, variance = self.lb
        for lb, memory, word in ((variance, "m", 0), (scale, "n", 0), (mean, "m", behind), (bias, "n", behind)):
            for a in range(0, self.count, 8):
                asm.pe(f"l1bmm $llb{lb + 4 * a} $ll{memory}{word + 2 * a}v")
        first, last = self.programs
        factor, shift = self._words("r", FACTOR), self._words("s", SHIFT)
        row = first.cut(len(factor))
        lay(asm, row, [self._words("m", 0), self._words("n", 0)], factor, places)
        row = last.cut(len(shift))
        lay(asm, row, [self._words("m", behind), factor, self._words("n", behind)], shift, places)
        for memory, word, to in (("r", FACTOR, self.to[0]), ("s", SHIFT, self.to[1])):
            for a in range(0, self.count, 8):
                asm.pe(f"l1bmm@0 $ll{memory}{word + 2 * a}v $llb{to + 4 * a}")

    def _words(self, memory: str, first: int) -> Sequence[str]:
        space = SPACE[memory]
        last = self.count - 1
        return [vec(space, [first + 2 * min(at + c, last) for c in range(4)], 2) for at in range(0, self.count, 4)]
