"""Weaving: a formula for several groups of accesses at once, laid out over steps, units, ports and registers.

Operations are placed one by one, those on the longest path first, each in the first step in which

    its unit is free, and no forward register that a later step reads is lost;
    each operand can be read: from a forward register, or from a memory whose read port is free in that step (GRF0, GRF1 and T
    two steps after the write), where the value is stored now, in the step that made it, if it was not stored before;
    its mask is the only mask of the step.

Groups come one after the other and fill the holes that earlier ones left, so that the latency of one hides behind the work of
the next.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from mlsdk.errors import EmitError
from mlsdk.pipeline.ops.emitters.formula import ALU, MAU, Constant, Input, Op, Value
from mlsdk.pipeline.ops.emitters.woven import Line, Room, Token, Woven, behind

FORWARD = {MAU: "$mauf", ALU: "$aluf"}
GRF = ("r", "s")
T = "t"
DISTANCE = 2  # steps from a write of GRF or T to its read
PATIENCE = 24  # free steps of its unit after which operands are copied to where they can be read
IDLE = 4  # steps for which a unit may be kept from working so that its result stays in the forward register
EARLY = 8  # steps that a result may be made before the longest path asks for it
ENTRIES = 15
FOREVER = 1 << 30
ATTEMPTS = 8  # at laying out a kernel
ENOUGH = 200


def most_groups(one: Woven) -> int:
    """How many groups to weave together: until their common latency is 3 % of their work, at most 8 and no more than take
    `ENOUGH` steps (long kernels gain little)."""
    groups = 1
    while groups < 8 and len(one.steps) - one.interval > 0.03 * groups * one.interval:
        if 2 * groups * one.interval > ENOUGH:
            break
        groups *= 2
    return groups


def weave(result: Op, room: Room, groups: int) -> Woven:
    """The shortest of some attempts that differ in ties and in the order in which memories are tried."""
    result = _separated(result)
    best: Woven | None = None
    successes, enough = 0, 4 if groups * len(order(result)) < 300 else 2
    for attempt in range(ATTEMPTS):
        weaver = _Weaver(result, room, groups, random.Random(attempt) if attempt else None)
        try:
            found = weaver.run()
        except _Stuck:
            continue
        successes += 1
        if best is None or len(found.steps) < len(best.steps):
            best = found
        if successes == enough or len(best.steps) <= 1.03 * (weaver.interval * (groups - 1) + weaver.longest):
            break
    if best is None and groups > 1:
        half = weave(result, room, groups // 2)
        return behind(half, half)
    if best is None:
        raise EmitError(f"a kernel of {len(order(result))} operations cannot be laid out; split it")
    return best


def order(result: Op) -> list[Op]:
    """The operations that the result needs, each behind those that it needs itself."""
    found: dict[Op, None] = {}
    stack: list[tuple[Op, bool]] = [(result, False)]
    while stack:
        op, done = stack.pop()
        if op in found:
            continue
        if done:
            found[op] = None
            continue
        stack.append((op, True))
        stack += [(need, False) for need in reversed(op.needs) if need not in found]
    return list(found)


def _separated(result: Op) -> Op:
    """The same formula, with a copy under each guarded write whose base is wanted for something else too."""
    ops = order(result)
    wanted = {value for op in ops for value in op.sources}
    new: dict[Value, Op] = {}
    for op in ops:
        base = None
        if op.base is not None:
            base = new[op.base]
            if op.base in wanted:
                base = Op(_copying(op, op.base), (base,), (False,))
            wanted.add(op.base)
        new[op] = Op(
            op.mnemonic,
            tuple(new.get(value, value) for value in op.sources),
            op.negate,
            new[op.guard] if op.guard is not None else None,
            base,
            new[op.flush] if op.flush is not None else None,
        )
    return new[result]


def _copying(op: Op, value: Value) -> str:
    """The mnemonic that copies an operand of an operation."""
    letter = op.mnemonic.removeprefix("u")[0]
    if isinstance(value, Input) and value.narrow:
        return {"d": "dvpassa", "l": "dvpassa"}.get(letter, "fvpassa")
    return {"d": "lpassa", "l": "lpassa", "h": "spassa", "s": "spassa"}.get(letter, "ipassa")


_FIRST_HALVES = ("dvfmau", "dvmulu")  # of a product of doubles; the second half is best placed right behind
Instance = tuple[int, Op]  # group, operation


class _Stuck(Exception):
    pass


@dataclass
class _Store:
    """A value in a slot of GRF0, GRF1 or T (slot 0) from the step of its write to its last read; `owner` may have users that
    are not placed yet, for which its slot in a GRF is kept."""

    slot: int
    start: int
    end: int
    owner: Instance


@dataclass
class _Placed:
    step: int
    targets: list[Token] = field(default_factory=list)
    sources: tuple[Token, ...] = ()
    flag: int = 0
    stores: dict[str, _Store] = field(default_factory=dict)


class _Weaver:
    def __init__(self, result: Op, room: Room, groups: int, rng: random.Random | None):
        self.result, self.room, self.groups, self.rng = result, room, groups, rng
        self.ops = order(result)
        self.flags = {o.guard for o in self.ops if o.guard} | {o.flush for o in self.ops if o.flush}
        self.users: dict[Op, list[Op]] = {o: [] for o in self.ops}
        for o in self.ops:
            for need in set(o.needs):
                self.users[need].append(o)
        #: whether the result is an operand (and not only a flag or a base)
        self.read = {o for user in self.ops for o in user.sources if isinstance(o, Op)}
        #: the operation that is written over a base
        self.over = {o.base: o for o in self.ops if o.base is not None}
        self.height: dict[Op, int] = {}
        for o in reversed(self.ops):
            self.height[o] = 1 + max((self.height[u] for u in self.users[o]), default=0)
        self.longest = max(self.height.values())
        #: steps from one group to the next, at best
        self.interval = max(sum(o.unit == u for o in self.ops) for u in (MAU, ALU))
        self.limit = 100 + 3 * self.interval  # steps that an operation may be put off: far enough to find all idle
        self.placed: dict[Instance, _Placed] = {}
        self.unit: dict[str, dict[int, Instance]] = {MAU: {}, ALU: {}}
        self.taken: dict[str, list[int]] = {MAU: [], ALU: []}  # the steps of each, in order
        self.pinned: dict[str, dict[int, int]] = {
            MAU: {},
            ALU: {},
        }  # step of a result -> last step that reads it forwarded
        self.reads: dict[str, dict[int, tuple]] = {mem: {} for mem in "mnrst"}
        self.writes: dict[str, dict[int, tuple]] = {mem: {} for mem in "mnrst"}
        self.slots: dict[str, list[list[_Store]]] = {
            mem: [[] for _ in range(n)] for mem, n in {**{g: room.slots.get(g, 0) for g in GRF}, T: 1}.items()
        }
        self.entry_of: dict[int, int] = {}  # step -> mask entry that its writes use
        self.flushes: set[int] = set()
        self.entries: list[list[tuple[int, int]]] = [[] for _ in range(ENTRIES + 1)]
        self.pending: dict[Instance, int] = {}  # users that are not placed yet
        self.open: dict[Instance, int] = {}  # flags whose users are not all placed -> users left
        self.flag_end: dict[Instance, int] = {}
        self.kept: dict[Instance, tuple[str, _Store]] = {}  # last operation of a chain of guarded writes -> its place
        self.held: dict[int, list[str]] = {}
        self.copies: dict[tuple[int, Op, int], Op] = {}
        self.forced: dict[Op, str] = {}
        self.latest: Op | None = None
        self.memories = [*GRF, T]
        if rng is not None:
            rng.shuffle(self.memories)

    # ---- the walk ---------------------------------------------------------------------------------------------

    def run(self) -> Woven:
        for group in range(self.groups):
            self._forget((group - 1) * self.interval)
            self.pending.update({(group, o): len(self.users[o]) for o in self.ops})
            left = {o: len(set(o.needs)) for o in self.ops}
            ready = [o for o in self.ops if not left[o]]
            while ready:
                op = max(ready, key=self._priority)
                ready.remove(op)
                self._place(group, op)
                self.latest = op
                for need in set(op.needs):
                    self.pending[group, need] -= 1
                for user in self.users[op]:
                    left[user] -= 1
                    if not left[user]:
                        ready.append(user)
        return self._woven()

    def _forget(self, step: int) -> None:
        """Nothing is placed before this step any more."""
        for slots in self.slots.values():
            for spans in slots:
                spans[:] = [span for span in spans if span.end > step or self.pending.get(span.owner)]

    def _priority(self, op: Op) -> tuple[float, ...]:
        jitter = self.rng.random() if self.rng is not None else 0.0
        second = any(s is self.latest and s.mnemonic in _FIRST_HALVES for s in op.needs)
        return (second, self.height[op] + 1.5 * jitter)

    def _place(self, group: int, op: Op) -> None:
        if self._within(group, op, PATIENCE):
            return
        self._rescue(group, op)
        for position in range(len(op.sources)):
            if (group, op, position) in self.copies:
                self.pending[group, self.copies[group, op, position]] = 0

    def _rescue(self, group: int, op: Op) -> None:
        # Its operands are copied to where they can be read together: GRF0, GRF1, and a forward register right before it.
        for position, memory in enumerate(GRF[: len(op.sources)]):
            copy = self._copy(group, op, position)
            self.forced[copy] = memory
            if not self._within(group, copy, self.limit):
                raise _Stuck
            self.copies[group, op, position] = copy
            if self._within(group, op, self.limit if position == len(op.sources) - 1 else PATIENCE):
                return
        if len(op.sources) < 3:
            raise _Stuck
        first = self._first(group, op)
        for step in range(first, first + self.limit):
            if step + 1 in self.unit[op.unit] or step in self.unit[ALU]:
                continue
            if any(step + 1 in self.reads[mem] for mem in GRF):
                continue
            copy = self._copy(group, op, 2)
            if self._try(group, copy, step):
                self.copies[group, op, 2] = copy
                if self._try(group, op, step + 1):
                    return
        raise _Stuck

    def _copy(self, group: int, op: Op, position: int) -> Op:
        """An operation that copies an operand for this one alone."""
        value = op.sources[position]
        copy = Op(_copying(op, value), (value,), (False,))
        self.users[copy] = [op]
        self.read.add(copy)
        self.pending[group, copy] = 1
        return copy

    def _first(self, group: int, op: Op) -> int:
        """The first step in which all that the operation needs may be there."""
        first = max(0, (group - 1) * self.interval)
        first += max(0, self.longest - self.height.get(op, self.longest) - EARLY)
        needs = [
            *op.needs,
            *(self.copies[group, op, p] for p in range(len(op.sources)) if (group, op, p) in self.copies),
        ]
        return max([first, *(self.placed[group, need].step + 1 for need in needs)])

    def _within(self, group: int, op: Op, steps: int) -> bool:
        """Place the operation in one of so many steps in which its unit is free."""
        first = self._first(group, op)
        taken, step = self.unit[op.unit], first
        while steps and step < first + self.limit:
            if step not in taken:
                if self._try(group, op, step):
                    return True
                steps -= 1
            step += 1
        return False

    # ---- one operation in one step ----------------------------------------------------------------------------

    def _try(self, group: int, op: Op, step: int) -> bool:
        unit = op.unit
        if op in self.read and all(step in self.writes[mem] for mem in GRF):
            return False  # its result could not be stored
        before = self._latest(unit, step)
        if before is not None and self.pinned[unit].get(before, 0) > step:
            return False
        entry = 0
        for flag in (op.guard, op.flush):
            if flag is not None:
                entry = self.placed[group, flag].flag
                if self.entry_of.get(step, entry) != entry:
                    return False
        if op.flush is not None and step in self.flushes:
            return False
        new_flag = 0
        if op in self.flags:
            new_flag = self._free_entry(step)
            if not new_flag:
                return False
        target = self._target(group, op, step)
        if target is None:
            return False
        own = _Placed(step)
        self.placed[group, op] = own
        chosen = self._operands(group, op, step)
        if chosen is None:
            del self.placed[group, op]
            return False
        self.unit[unit][step] = (group, op)
        insort(self.taken[unit], step)
        if entry:
            self.entry_of[step] = entry
        if op.flush is not None:
            self.flushes.add(step)
        if new_flag:
            own.flag = new_flag
            own.targets.append(Token("flag", index=new_flag, group=group))
            self.open[group, op] = sum((u.guard is op) or (u.flush is op) for u in self.users[op])
            self.entries[new_flag].append((step, FOREVER))
        for flag in {f for f in (op.guard, op.flush) if f is not None}:
            self._used_flag(group, flag, step)
        own.sources = tuple(take() for take in chosen)
        for take_target in target:
            take_target(own)
        return True

    def _latest(self, unit: str, step: int) -> int | None:
        """The last step before one in which a unit works, if it is not too far back."""
        taken = self.taken[unit]
        at = bisect_left(taken, step) - 1
        return taken[at] if at >= 0 and taken[at] > step - self.limit else None

    def _free_entry(self, step: int) -> int:
        for entry in range(1, ENTRIES + 1):
            if all(end <= step for _, end in self.entries[entry]):
                return entry
        return 0

    def _used_flag(self, group: int, flag: Op, step: int) -> None:
        entry = self.placed[group, flag].flag
        start, _ = self.entries[entry][-1]
        self.open[group, flag] -= 1
        last = self.flag_end[group, flag] = max(step, self.flag_end.get((group, flag), 0))
        if not self.open[group, flag]:
            self.entries[entry][-1] = (start, last)

    def _last(self, op: Op) -> Op:
        """The operation that is written last over this one."""
        while op in self.over:
            op = self.over[op]
        return op

    def _target(self, group: int, op: Op, step: int):
        """For the writes that a result must make at once (to the tensor, or as part of a chain of guarded writes) functions
        that make them; None if they cannot be made in this step."""
        if op in self.forced:
            return self._forced(group, op, step, self.forced[op])
        if op.base is None and op not in self.over and op is not self.result:
            return ()
        mask = self.placed[group, op.guard].flag if op.guard is not None else 0
        last = self._last(op)
        if last is self.result:
            mem = self.room.out
            if step in self.writes[mem] or (mem in "mn" and step in self.reads[mem]):
                return None

            def take_out(own: _Placed) -> None:
                self.writes[mem][step] = ("out", group)
                own.targets.append(Token("out", mem, group=group, mask=mask))

            return (take_out,)
        if op.base is not None:
            mem, store = self.kept[group, last]
            if step in self.writes[mem]:
                return None
        else:
            mem, other = [g for g in self.memories if g != T]
            if not self._takes(op, step, mem):
                mem = other
                if not self._takes(op, step, mem):
                    return None
            store = _Store(-1, step, step, (group, last))  # its slot is chosen behind those of the operands

        def take(own: _Placed) -> None:
            if op.base is None:
                store.slot = self._new_slot(mem, step)
            self.writes[mem][step] = ("slot", store.slot, group, last)
            own.targets.append(Token("slot", mem, store.slot, group, mask=mask))
            if op.base is None:
                self.kept[group, last] = (mem, store)
                self.slots[mem][store.slot].append(store)
            store.end = step
            if op is last:
                own.stores[mem] = store

        return (take,)

    def _takes(self, op: Op, step: int, mem: str) -> bool:
        """Whether a GRF can take the result now and keep it for any time."""
        if step in self.writes[mem] or self._robs(op.unit, step, mem):
            return False
        free = (spans for spans in self.slots[mem] if self._is_free(mem, spans, step, FOREVER))
        return next(free, None) is not None and next(free, None) is not None

    def _forced(self, group: int, op: Op, step: int, mem: str):
        """The write of a copy to a memory that is given."""
        if not self._takes(op, step, mem):
            return None

        def take(own: _Placed) -> None:
            slot = self._new_slot(mem, step)
            own.stores[mem] = store = _Store(slot, step, step, (group, op))
            self.slots[mem][slot].append(store)
            self.writes[mem][step] = ("slot", slot, group, op)
            own.targets.append(Token("slot", mem, slot, group))

        return (take,)

    # ---- operands ---------------------------------------------------------------------------------------------

    def _operands(self, group: int, op: Op, step: int):
        """For each operand a function that reserves what it needs and gives its token, or None."""
        ports: dict[str, tuple] = {}

        def choose(position: int):
            if position == len(op.sources):
                return []
            value = self.copies.get((group, op, position), op.sources[position])
            for mem, key, take in self._candidates(group, value, step, op.negate[position]):
                if mem:
                    taken = ports.get(mem, self.reads[mem].get(step))
                    if taken is not None and taken != key:
                        continue
                    had = mem in ports
                    ports[mem] = key
                rest = choose(position + 1)
                if rest is not None:
                    return [take, *rest]
                if mem and not had:
                    del ports[mem]
            return None

        return choose(0)

    def _candidates(self, group: int, value: Value, step: int, negate: bool):
        key: tuple
        if isinstance(value, Input):
            mem = self.room.inputs[value.index]
            key = ("input", group, value.index)
            token = Token("input", mem, value.index, group, negate)
            if mem != self.room.out or step not in self.writes[mem]:
                yield mem, key, self._reader(mem, step, key, token)
            return
        if isinstance(value, Constant):
            held = self.held.get(value.word, [])
            for mem in sorted(self.room.constants, key=lambda x: x not in held):
                if mem == self.room.out and mem in "mn" and step in self.writes[mem]:
                    continue
                key = ("constant", value.word)
                token = Token("constant", mem, value.word, group, negate)
                yield mem, key, self._reader(mem, step, key, token, value.word)
            return
        assert isinstance(value, Op)
        made = self.placed[group, value]
        forwarded = value.guard is None and value.flush is None and self._latest(value.unit, step) == made.step
        if forwarded and step == made.step + 1:
            yield "", (), self._forwarder(value.unit, made.step, step, negate)
        if step < made.step + DISTANCE:
            return
        for mem, store in list(made.stores.items()):
            if step <= store.end or self._reaches(mem, store, step):
                key = ("slot", store.slot, group, value)
                token = Token("t" if mem == T else "slot", mem, store.slot, group, negate)
                yield mem, key, self._extender(mem, store, step, key, token)
        for mem in self.memories if value.guard is None else ():
            if mem in made.stores or made.step in self.writes[mem] or self._robs(value.unit, made.step, mem):
                continue
            slot = self._slot(mem, made.step, step)
            if slot is None:
                continue
            key = ("slot", slot, group, value)
            token = Token("t" if mem == T else "slot", mem, slot, group, negate)
            yield mem, key, self._storer(group, value, mem, slot, step, key, token)
        if forwarded and step <= made.step + IDLE:
            yield "", (), self._forwarder(value.unit, made.step, step, negate)

    def _robs(self, unit: str, step: int, mem: str) -> bool:
        """Whether a write to this memory takes the last port from the other operation of the same step."""
        if mem == T:
            return False
        other = self.unit[ALU if unit == MAU else MAU].get(step)
        if other is None or other[1] not in self.read:
            return False
        spare = [g for g in GRF if g != mem and step not in self.writes[g]]
        stored = any(g in self.placed[other].stores for g in GRF)
        return not spare and not stored

    def _slot(self, mem: str, start: int, end: int) -> int | None:
        """The free slot that stays free the longest."""
        best, reach = None, -1
        for slot, spans in enumerate(self.slots[mem]):
            if self._is_free(mem, spans, start, end):
                after = FOREVER
                for span in spans:
                    if end <= span.start < after:
                        after = span.start
                if after > reach:
                    best, reach = slot, after
                if reach == FOREVER:
                    break
        return best

    def _new_slot(self, mem: str, start: int) -> int:
        """A slot that is free from this step on."""
        slot = self._slot(mem, start, FOREVER)
        if slot is None:
            raise _Stuck
        return slot

    def _is_free(self, mem: str, spans: Sequence[_Store], start: int, end: int) -> bool:
        """Whether a value may lie in a slot from one step to another without driving out one that is still wanted."""
        for span in spans:  # noqa: SIM110 - asked millions of times
            if span.start < end and (span.end > start or self._wanted(mem, span)):
                return False
        return True

    def _wanted(self, mem: str, span: _Store) -> bool:
        """Whether somebody who is not placed yet may read the value here."""
        if not self.pending.get(span.owner):
            return False
        return mem != T or not any(g in self.placed[span.owner].stores for g in GRF)

    def _reaches(self, mem: str, store: _Store, step: int) -> bool:
        """Whether the value can stay where it is until this step."""
        return all(not store.start < span.start < step for span in self.slots[mem][store.slot])

    def _reader(self, mem: str, step: int, key: tuple, token: Token, word: int | None = None):
        def take() -> Token:
            self.reads[mem][step] = key
            if word is not None and mem not in self.held.setdefault(word, []):
                self.held[word].append(mem)
            return token

        return take

    def _forwarder(self, unit: str, made: int, step: int, negate: bool):
        def take() -> Token:
            self.pinned[unit][made] = max(step, self.pinned[unit].get(made, 0))
            return Token("forward", FORWARD[unit], negate=negate)

        return take

    def _extender(self, mem: str, store: _Store, step: int, key: tuple, token: Token):
        def take() -> Token:
            self.reads[mem][step] = key
            store.end = max(step, store.end)
            return token

        return take

    def _storer(self, group: int, value: Op, mem: str, slot: int, step: int, key: tuple, token: Token):
        def take() -> Token:
            made = self.placed[group, value]
            if mem not in made.stores:
                made.stores[mem] = store = _Store(slot, made.step, step, (group, value))
                self.slots[mem][slot].append(store)
                self.writes[mem][made.step] = key
                made.targets.append(Token("t" if mem == T else "slot", mem, slot, group))
            self.reads[mem][step] = key
            return token

        return take

    # ---- the result -------------------------------------------------------------------------------------------

    def _woven(self) -> Woven:
        last = max(p.step for p in self.placed.values())
        steps: list[list[Line]] = [[] for _ in range(last + 1)]
        for unit in (MAU, ALU):
            for step, (group, op) in self.unit[unit].items():
                made = self.placed[group, op]
                targets = tuple(made.targets) or (Token("nowrite"),)
                flush = self.placed[group, op.flush].flag if op.flush is not None else 0
                steps[step].append(Line(op.mnemonic, made.sources, targets, flush))
        held = {word: tuple(memories) for word, memories in self.held.items()}
        return Woven(tuple(tuple(s) for s in steps), held, self.groups, self.interval)
