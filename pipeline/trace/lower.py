"""A tape without writes -> nodes of a Graph, by the table of aten operators.

An operator without a row is taken apart into smaller ones where torch knows how. What remains is reported all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from mlsdk.errors import GraphError, Misuse, MLSDKError, TraceError
from mlsdk.pipeline.ir.graph import Value
from mlsdk.pipeline.trace.aten import ATEN, Unsupported
from mlsdk.pipeline.trace.builder import Builder
from mlsdk.pipeline.trace.dtypes import ALLOWED, DTYPE_OF_TORCH, dense_array
from mlsdk.pipeline.trace.functionalize import functionalize
from mlsdk.pipeline.trace.instead import COMPLEX, OPERATORS
from mlsdk.pipeline.trace.pairs import PAIRS, REAL_OF, Pair
from mlsdk.pipeline.trace.recorder import (
    KNOWN_ELEMENTS,
    LITERAL,
    Record,
    Recorder,
    find_decomposition,
    map_tensors,
    tensors,
)
from mlsdk.pipeline.trace.shadow import META, Shadow, shadow_like

# Operators that only bring elements into another dtype.
CASTS = {torch.ops.aten._to_copy.default, torch.ops.aten.copy.default}

# Decompositions nest; torch's own are never this deep.
DEEPEST = 12


class Lowering:
    """Turns records into nodes of `builder`.

    `free(shadow)` gives the Value of a Shadow that no record computes: an input, a state, a captured constant; None for
    all others.
    """

    def __init__(self, builder: Builder, free: Callable[[Shadow], Value | None]):
        self.builder = builder
        self.free = free
        self.misuses: list[Misuse] = []
        self._values: dict[int, Value] = {}
        self._pairs: dict[int, Pair] = {}  # of a complex Shadow those of its parts
        self._keep: list[Any] = []  # ids are only unique among tensors that live

    def run(self, recorder: Recorder, wanted: Sequence[Shadow]) -> list[Value]:
        """Values of the wanted Shadows, of a complex one those of its parts; with `misuses`, some of them are stand-ins.
        Raises TraceError."""
        self._lower(recorder, wanted, 0)
        parts = [part for shadow in wanted for part in self._pairs.get(id(shadow), (shadow,))]
        return [self._value(recorder, part) for part in parts if not part.is_complex()]

    # --- values ---

    def _constant(self, recorder: Recorder, shadow: Shadow) -> torch.Tensor | None:
        """The content of a Shadow that becomes a constant of the graph."""
        content = recorder.known(shadow)
        return content if content is not None and content.numel() <= KNOWN_ELEMENTS else None

    def _value(self, recorder: Recorder, shadow: Shadow) -> Value:
        found = self._values.get(id(shadow))
        if found is None:
            found = self.free(shadow)
        if found is None:
            content = self._constant(recorder, shadow)
            if content is None:
                return self._lost(recorder, shadow)
            if content.dtype in DTYPE_OF_TORCH:
                found = self.builder.constant(dense_array(content))
            else:
                found = self._missing(shadow)
        self._bind(shadow, found)
        return found

    def _lost(self, recorder: Recorder, shadow: Shadow) -> Value:
        """A result that the row of its operator does not give."""
        for record in recorder.tape.records:
            for place, result in enumerate(record.results()):
                if result is shadow:
                    self._misuse(record, f"result {place} of {record.func.name()} in this form")
                    return self._missing(shadow)
        raise TraceError(f"the origin of {shadow!r} is lost; please report the function that led here")

    def _bind(self, shadow: Shadow, value: Value) -> None:
        self._values[id(shadow)] = value
        self._keep.append(shadow)

    def _bind_pair(self, shadow: Shadow, pair: Pair) -> None:
        self._pairs[id(shadow)] = pair
        self._keep.append(shadow)

    # --- records ---

    def _live(self, recorder: Recorder, wanted: Sequence[Shadow]) -> list[Record]:
        """The records that the wanted Shadows need, in order; none for what is constant."""
        needed = {id(shadow) for shadow in wanted if self._constant(recorder, shadow) is None}
        live = []
        for record in reversed(recorder.tape.records):
            if record.func == LITERAL or not any(id(shadow) in needed for shadow in record.results()):
                continue
            live.append(record)
            for operand in tensors((record.args, tuple(record.kwargs.values()))):
                if self._constant(recorder, operand) is None:
                    needed.add(id(operand))
        return live[::-1]

    def _lower(self, recorder: Recorder, wanted: Sequence[Shadow], depth: int) -> None:
        builder = self.builder
        self._keep.append(recorder)
        for record in self._live(recorder, wanted):
            builder.source, builder.scope = record.source, record.scope
            builder.draw_for(record.draw)
            if any(tensor.is_complex() for tensor in _of(record)):
                self._in_pairs(recorder, record, depth)
                continue
            if not self._known_dtypes(record):
                continue
            build = ATEN.get(record.func)
            if build is None:
                self._take_apart(recorder, record, depth)
                continue
            out = [None if slot is None else (DTYPE_OF_TORCH[slot.dtype], tuple(slot.shape)) for slot in record.slots()]
            args = map_tensors(lambda shadow: self._value(recorder, shadow), record.args)
            kwargs = {
                key: map_tensors(lambda shadow: self._value(recorder, shadow), value)
                for key, value in record.kwargs.items()
            }
            try:
                built = build(builder, out, *args, **kwargs)
            except (Unsupported, GraphError) as form:
                self._misuse(record, f"{record.func.name()} ({form})")
                continue
            self._finish(record, out, self._shortened(record, built))

    def _shortened(self, record: Record, built: Any) -> Any:
        """A cast to bfloat16 rounds; the Graph goes on with what is left as float32."""
        if record.func not in CASTS or record.result.dtype != torch.bfloat16:
            return built
        source = record.args[record.func == torch.ops.aten.copy.default]
        exact = source.dtype in (torch.bfloat16, torch.bool, torch.uint8)
        return built if exact else self.builder.op("RoundToBfloat16", built)

    def _finish(self, record: Record, out: Sequence[Any], built: Any) -> None:
        """Bind the results, after a check of their dtypes and shapes against torch's."""
        values = [built] if isinstance(built, Value) else list(built)
        for shadow, value, wanted in zip(record.slots(), values, out, strict=True):
            if shadow is None or value is None:  # nobody asked for it, or the row cannot give it
                continue
            if (value.dtype, value.shape) != wanted:
                raise TraceError(
                    f"{record.func.name()} at {record.source} became {value}, torch has {wanted}; please report it"
                )
            self._bind(shadow, value)

    def _known_dtypes(self, record: Record) -> bool:
        for tensor in _of(record):
            if tensor.dtype not in DTYPE_OF_TORCH:
                kind = str(tensor.dtype).removeprefix("torch.")
                self._misuse(record, f"{record.func.name()} on {kind}", f"use one of {ALLOWED}")
                return False
        return True

    def _misuse(self, record: Record, what: str, hint: str = "") -> None:
        """Note what cannot be lowered, and put something in its place so that the rest is looked at, too."""
        hint = hint or OPERATORS.get(record.func._schema.name, "")
        if not hint and any(tensor.is_complex() for tensor in _of(record)):
            hint = COMPLEX
        self.misuses.append(Misuse(what, record.source, record.scope, hint))
        for shadow in record.results():
            if shadow.is_complex():
                parts = [shadow_like(torch.empty(shadow.shape, dtype=REAL_OF[shadow.dtype], device=META)) for _ in "ri"]
                self._bind_pair(shadow, Pair(*parts))
                for part in parts:
                    self._bind(part, self._missing(part))
            else:
                self._bind(shadow, self._missing(shadow))

    def _missing(self, shadow: Shadow) -> Value:
        shape, dtype = tuple(shadow.shape), DTYPE_OF_TORCH.get(shadow.dtype, "float32")
        if shadow.dtype.is_floating_point:
            return self.builder.input("unsupported", dtype, shape)
        return self.builder.full(shape, 0, dtype)  # what is often needed as a constant

    # --- complex numbers ---

    def _pair(self, recorder: Recorder, inner: Recorder, shadow: Shadow) -> Pair:
        """The parts of a complex Shadow, for what `inner` records."""
        found = self._pairs.get(id(shadow))
        if found is None:
            content = self._constant(recorder, shadow)
            if content is None:
                raise Unsupported("of a complex tensor that nothing here computes")
            content = content.resolve_conj()
            found = Pair(*(inner.literal(part.contiguous()) for part in (content.real, content.imag)))
        return found

    def _in_pairs(self, recorder: Recorder, record: Record, depth: int) -> None:
        """Lower an operator on complex numbers as one on their parts."""
        row = PAIRS.get(record.func)
        if row is None:
            self._take_apart(recorder, record, depth)
            return
        inner = self._inside(recorder, record)
        sources: list[Shadow] = []

        def operand(tensor: Shadow) -> Any:
            given = self._pair(recorder, inner, tensor) if tensor.is_complex() else tensor
            sources.extend(part for part in tensors(given) if id(tensor) in self._pairs or part is tensor)
            return given

        try:
            with torch.no_grad(), inner:
                args, kwargs = (
                    map_tensors(operand, record.args),
                    {k: map_tensors(operand, v) for k, v in record.kwargs.items()},
                )
                made = row(*args, **kwargs)
                if made is not NotImplemented:
                    made = [made] if isinstance(made, (Pair, torch.Tensor)) else list(made)
                    made = [_like(shadow, one) for shadow, one in zip(record.results(), made, strict=True)]
        except Unsupported as form:
            self._misuse(record, f"{record.func.name()} ({form})")
            return
        self._replace(recorder, record, inner, sources, made, depth)

    # --- decomposition ---

    def _take_apart(self, recorder: Recorder, record: Record, depth: int) -> None:
        """Lower the smaller operations that an operator without a row consists of."""
        decomposition = find_decomposition(record.func) if depth < DEEPEST else None
        if decomposition is None:
            self._misuse(record, _named(record))
            return
        inner = self._inside(recorder, record)
        outer, Shadow.read = Shadow.read, inner.content
        try:
            with torch.no_grad(), inner:
                result = decomposition(*record.args, **record.kwargs)
        except MLSDKError:
            self._misuse(record, _named(record))
            return
        finally:
            Shadow.read = outer
        made = result if result is NotImplemented else list(tensors(result))
        sources = list(tensors((record.args, tuple(record.kwargs.values()))))
        self._replace(recorder, record, inner, sources, made, depth)

    def _inside(self, recorder: Recorder, record: Record) -> Recorder:
        """A recorder of the smaller operations that a record consists of."""
        inner = Recorder()
        inner.stand_for(record)
        inner.adopt(recorder)
        return inner

    def _replace(
        self, recorder: Recorder, record: Record, inner: Recorder, sources: list[Shadow], made: Any, depth: int
    ) -> None:
        """Lower what `inner` recorded from `sources` as the results `made` of a record."""
        if made is NotImplemented:
            self._misuse(record, _named(record))
            return
        parts = [part for one in made for part in (one if isinstance(one, Pair) else (one,))]
        values = {id(source): self._value(recorder, source) for source in sources if not source.is_complex()}
        if inner.tape.mutates:
            sources = list({id(source): source for source in sources}.values())
            inner, fresh, parts, _ = functionalize(inner.tape, sources, parts)
            for source, shadow in zip(sources, fresh):
                if source.is_complex():
                    self._bind_pair(shadow, self._pairs[id(source)])
                else:
                    self._bind(shadow, values[id(source)])
        before = len(self.misuses)
        self._lower(inner, parts, depth + 1)
        if len(self.misuses) > before:  # name the operator that the user knows, not its parts
            del self.misuses[before:]
            self._misuse(record, _named(record))
            return
        left = iter(parts)
        for shadow, one in zip(record.results(), made):
            if isinstance(one, Pair):
                pair = Pair(next(left), next(left))
                for part in pair:
                    self._value(inner, part)
                self._bind_pair(shadow, pair)
            elif shadow.is_complex():
                self._bind_pair(shadow, self._pairs[id(next(left))])
            else:
                self._bind(shadow, self._value(inner, next(left)))


def _named(record: Record) -> str:
    """An operator, for errors; with the dtype where that is one of complex numbers."""
    kind = next((str(tensor.dtype).removeprefix("torch.") for tensor in _of(record) if tensor.is_complex()), "")
    return f"{record.func.name()} on {kind}" if kind else record.func.name()


def _of(record: Record) -> list[Shadow]:
    """All tensors of a record."""
    return [*record.results(), *tensors((record.args, tuple(record.kwargs.values())))]


def _like(shadow: Shadow, result: Any) -> Any:
    """A result of a row for complex numbers in the shape and precision that torch has."""
    if not isinstance(result, Pair):
        return result.to(shadow.dtype).expand(shadow.shape)
    dtype = REAL_OF[shadow.dtype]
    re = result.re.to(dtype).expand(shadow.shape)
    if not isinstance(result.im, torch.Tensor):
        return Pair(re, torch.full_like(re, result.im or 0))
    return Pair(re, result.im.to(dtype).expand(shadow.shape))
