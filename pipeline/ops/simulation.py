"""Node simulation: what a node costs, exactly, with its operands in DRAM, LM0 or LM1. It is emitted for real and counted.

Equal nodes (equal instructions) are counted once in a process, and once in all where they are `known` from another compile. Of
many that are asked for together some may be counted elsewhere at the same time. A candidate that its emitter refuses has no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from mlsdk.device import spec
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.placed import PlacedNode, PlacedValue
from mlsdk.pipeline.ops.clock import Measure
from mlsdk.pipeline.ops.emitters import emit, emit_anew, fragment_key
from mlsdk.pipeline.ops.emitters.home import GRAIN, IN_DRAM, LM, Lives

GRAINS = spec.LM_WORDS // 2 // GRAIN  # of an LM
#: LW that all DRAMs together move in a step
DRAM_LW = spec.GROUPS * spec.DRAM_LW_PER_CYCLE * spec.CYCLES_PER_STEP


@dataclass(frozen=True)
class Cost:
    """Of a node: steps, DRAM traffic in LW, and the grains of LM0 and LM1 that it writes for itself, a bit each."""

    steps: int
    dram_lw: int
    scratch: tuple[int, int] = (0, 0)

    @property
    def total(self) -> float:
        """Steps, and those for which its traffic keeps the DRAMs busy."""
        return self.steps + self.dram_lw / DRAM_LW


#: a node, and where its operands are
Question = tuple[PlacedNode, Lives]
#: None: its emitter refuses
Answer = Cost | None
Values = Mapping[str, PlacedValue]
Count = Callable[[Question, Values], Answer]


class Known(Protocol):
    """Costs that were counted before, perhaps by another compile: JSON data under JSON data."""

    def recall_many(self, keys: Sequence[Any]) -> list[Any | None]: ...

    def remember(self, key: Any, value: Any) -> None: ...


class Helpers(Protocol):
    """Who counts beside this process, where there is enough to count; `most` processes in all."""

    most: int

    def counted(self, questions: Sequence[Question], values: Values, here: Count) -> list[Answer]: ...


class Simulation:
    """Costs by emission; `measure` counts the steps and the DRAM traffic of instructions."""

    _answers: ClassVar[dict[tuple[Measure, str], Answer]] = {}

    def __init__(self, measure: Measure, known: Known | None = None, helpers: Helpers | None = None):
        self.measure, self.known, self.helpers = measure, known, helpers

    def of(self, questions: Sequence[Question], values: Values) -> list[Answer]:
        """The cost of each."""
        keys = [fragment_key(p, values, lives) for p, lives in questions]
        new = {key: q for key, q in zip(keys, questions) if (self.measure, key) not in self._answers}
        if new and self.known is not None:
            self._recall(new, values)
        if new:
            asked = list(new.values())
            found = (
                self.helpers.counted(asked, values, self.count)
                if self.helpers is not None
                else [self.count(q, values) for q in asked]
            )
            self._keep(new, found, values)
        return [self._answers[self.measure, key] for key in keys]

    def in_dram(self, nodes: Sequence[PlacedNode], values: Values) -> list[Cost]:
        """Of nodes with all operands in DRAM. EmitError where one cannot be emitted at all."""
        questions = [(p, IN_DRAM) for p in nodes]
        return [
            insist(q, values, self.measure) if answer is None else answer
            for q, answer in zip(questions, self.of(questions, values))
        ]

    def count(self, question: Question, values: Values) -> Answer:
        """One, counted here and now."""
        return count(question, values, self.measure)

    def _recall(self, new: dict[str, Question], values: Values) -> None:
        """Take what is known out of `new`."""
        assert self.known is not None
        answers = self.known.recall_many([facts(key, q, values) for key, q in new.items()])
        for key, data in zip(list(new), answers):
            if data is not None:
                self._answers[self.measure, key] = from_data(data)
                del new[key]

    def _keep(self, asked: Mapping[str, Question], found: Sequence[Answer], values: Values) -> None:
        for (key, question), answer in zip(asked.items(), found):
            self._answers[self.measure, key] = answer
            if self.known is not None:
                self.known.remember(facts(key, question, values), to_data(answer))


def count(question: Question, values: Values, measure: Measure) -> Answer:
    """The cost of a node by emission, or None."""
    try:
        return insist(question, values, measure)
    except EmitError:
        return None


def insist(question: Question, values: Values, measure: Measure) -> Cost:
    """The cost of a node by emission. EmitError says why its emitter refuses. The fragment is kept where all is in DRAM; those of
    other candidates are many, and few are used."""
    node, lives = question
    fragment = emit(node, values) if lives == IN_DRAM else emit_anew(node, values, lives)
    steps, dram_lw = measure(fragment.statements)
    scratch = tuple(_grains(fragment.written.get((space, 0), 0)) for space in LM)
    return Cost(steps, dram_lw, scratch)  # type: ignore[arg-type]


def _grains(lw: int) -> int:
    """Bits of LW -> bits of grains."""
    found = 0
    for grain in range(GRAINS):
        if lw >> grain * GRAIN & (1 << GRAIN) - 1:
            found |= 1 << grain
    return found


# ---- as data ------------------------------------------------------------------------------------------------------


def to_data(answer: Answer) -> dict[str, Any]:
    """An answer as JSON data."""
    if answer is None:
        return {"refused": True}
    scratch = {f"scratch {space}": f"{bits:x}" for space, bits in zip(LM, answer.scratch) if bits}
    return {"steps": answer.steps, "dram_lw": answer.dram_lw, **scratch}


def from_data(data: Mapping[str, Any]) -> Answer:
    """The answer that `to_data` wrote."""
    if "refused" in data:
        return None
    scratch = tuple(int(data.get(f"scratch {space}", "0"), 16) for space in LM)
    return Cost(data["steps"], data["dram_lw"], scratch)  # type: ignore[arg-type]


def facts(key: str, question: Question, values: Values) -> dict[str, Any]:
    """What `known` keeps a node under: what its instructions depend on, as a digest, and what a reader wants to know."""
    p, lives = question

    def of(names: Sequence[str], spaces: Sequence[str]) -> list[str]:
        found = []
        for at, name in enumerate(names):
            if name:
                v, space = values[name], spaces[at] if spaces else ""
                place = f" in {space}" if space else ""
                found.append(f"{v.device_dtype}[{','.join(map(str, v.shape))}] {v.layout}{place}")
        return found

    results = [name for name in p.node.outputs if name]
    operands = {"inputs": of(p.node.inputs, lives.reads), "outputs": of(results, lives.keeps)}
    return {"fragment": key, "op": p.node.op, "emitter": p.emitter, **operands}
