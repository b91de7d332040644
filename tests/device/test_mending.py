"""`--insert-nops` and `fmt` on random programs.

The machine executes one step after the other. `Late` below is an independent model of one PE whose writes arrive as late
as the manual says: what comes too early reads the old value. A mended program must give the same on both, and the same
as the program before it was mended gives when nothing is late.
"""

from __future__ import annotations

import random
import re

import pytest

from mlsdk.device.isa import model as m
from mlsdk.device.isa.checks import check, insert_nops
from mlsdk.device.isa.parser import parse
from mlsdk.device.isa.printer import format_program

#: letter -> the cycles, or the steps times 4, from a write to the first read that sees it
DELAYS = {"r": 7, "s": 7, "m": 12, "n": 12, "t": 8, "b": 12}
BY_CYCLE = "rs"  # the others count from step to step
SPACES = {"m": m.LM0, "n": m.LM1, "r": m.GRF0, "s": m.GRF1}
WORDS = 32
ONES = 0xFFFFFFFF
OPERATIONS = {
    "iadd": lambda a, b: a + b, "isub": lambda a, b: a - b, "ixor": lambda a, b: a ^ b, "iand": lambda a, b: a & b,
    "ior": lambda a, b: a | b,
}  # fmt: skip
_OPERAND = re.compile(r"\$l([mnrst])(\d*)(v?)(?:/([01]{4}))?\Z")


class Late:
    """One PE of a board on which all PEs hold the same. `late=False`: every write arrives at once."""

    def __init__(self, late: bool = True) -> None:
        self.late, self.step = late, 0
        self.written: dict[tuple[str, int], list[tuple[int, int]]] = {}  # place -> (seen from, word), in order
        self.aluf = [(0, 0)] * 4

    def run(self, text: str) -> Late:
        for line in text.splitlines():
            nop = re.match(r"nop(?:/(\d+))?\Z", line)
            if nop:
                self.step += int(nop[1] or 1)
            else:
                self._line(line.split())
                self.step += 1
        return self

    def _line(self, words: list[str]) -> None:
        name = words[0]
        results = []
        for cycle in range(4):
            if name == "imm":
                results.append((int(words[1][3:-1]),) * 2)
            elif name == "l1bmm":
                results.append(self._read("b", 2 * int(words[1][3:]) + 8 * cycle, cycle))
            elif name in ("ipassa", "l1bmm@0"):
                results.append(self._operand(words[1], cycle))
            else:
                x, y = (self._operand(word, cycle) for word in words[1:3])
                results.append(tuple(OPERATIONS[name](a, b) & ONES for a, b in zip(x, y)))
        for cycle, pair in enumerate(results):
            if name == "l1bmm@0":
                self._write("b", 2 * int(words[2][3:]) + 8 * cycle, pair, cycle)
            elif words[-1] != "$nowrite":
                letter, addr, advances, mask = _OPERAND.match(words[-1]).groups()
                if not mask or mask[cycle] == "1":
                    self._write(letter, *place(letter, addr, advances, cycle), pair, cycle)
        if not name.startswith("l1bmm"):
            self.aluf = results

    def _operand(self, text: str, cycle: int) -> tuple[int, int]:
        if text == "$aluf":
            return self.aluf[cycle]
        letter, addr, advances, _ = _OPERAND.match(text).groups()
        return self._read(letter, *place(letter, addr, advances, cycle), cycle)

    def _read(self, letter: str, addr: int, cycle: int) -> tuple[int, int]:
        now = 4 * self.step + (cycle if letter in BY_CYCLE else 0)
        found = []
        for word in (addr, addr + 1):
            seen = [value for since, value in self.written.get((letter, word), []) if since <= now or not self.late]
            found.append(seen[-1] if seen else 0)
        return found[0], found[1]

    def _write(self, letter: str, addr: int, pair: tuple[int, int], cycle: int) -> None:
        since = 4 * self.step + DELAYS[letter] + (cycle if letter in BY_CYCLE else 0)
        for word, value in zip((addr, addr + 1), pair):
            self.written.setdefault((letter, word), []).append((since, value))

    def memory(self) -> dict[str, list[int]]:
        """What lies in the words of each PE memory in the end."""
        last = {place: values[-1][1] for place, values in self.written.items()}
        return {letter: [last.get((letter, word), 0) for word in range(WORDS)] for letter in SPACES}


def place(letter: str, addr: str, advances: str, cycle: int) -> tuple[int]:
    """The first word that a cycle accesses; T has one LW for each cycle."""
    return (2 * cycle if letter == "t" else int(addr) + (2 * cycle if advances else 0),)


def random_program(rng: random.Random, lines: int = 14) -> str:
    """Steps that are right by themselves, with nothing between them."""

    def operand(letter: str, mask: bool = False) -> str:
        text = "$lt" if letter == "t" else f"$l{letter}{2 * rng.randrange(12)}{rng.choice(['', 'v'])}"
        return text + (f"/{rng.choice(['1000', '0110', '0001', '1011'])}" if mask and rng.random() < 0.3 else "")

    found: list[str] = []
    while len(found) < lines:
        kind = rng.randrange(8)
        x, y, target = rng.choice("mnrst"), rng.choice("mnrst"), operand(rng.choice("mnrst"), mask=True)
        left = "$aluf" if found and rng.random() < 0.2 else operand(x)
        if kind == 0:
            line = f'imm ui"{rng.getrandbits(32)}" {target}'
        elif kind == 1:
            line = f"l1bmm@0 {operand(rng.choice('mnrs'))} $lb{16 * rng.randrange(2)}"
        elif kind == 2:
            line = f"l1bmm $lb{16 * rng.randrange(2)} {operand(rng.choice('mnrs'))}"
        elif kind == 3:
            line = f"ipassa {left} {target}"
        else:
            line = f"{rng.choice(list(OPERATIONS))} {left} {operand(y)} {rng.choice([target, target, '$nowrite'])}"
        if rng.random() < 0.15:
            found.append("nop")
        if not check(parse(line)):
            found.append(line)
    first = [f'imm ui"{rng.getrandbits(32)}" $l{letter}{2 * k}v\nnop/4' for letter in "nrs" for k in (0, 4, 8)]
    return "\n".join([*first, "ipassa $lr0v $lm0v", *found])


def on_machine(machine, text: str) -> dict[str, list[int]]:
    """Its memories afterwards, which are the same in every PE."""
    for space in SPACES.values():
        machine.write(space, 0, [0] * WORDS)
    machine.run(parse(text))
    return {letter: machine.read(space, 0, WORDS)[:, 4095].tolist() for letter, space in SPACES.items()}


def test_mended_programs_give_what_one_step_after_the_other_gives(machine):
    rng, differing = random.Random(20240801), 0
    for _ in range(200):
        text = random_program(rng)
        mended = format_program(insert_nops(parse(text)))
        assert [str(d) for d in check(parse(mended))] == []
        expected = Late(late=False).run(text).memory()
        assert Late().run(mended).memory() == expected, text
        machine.state.pe[m.T][:] = 0
        machine.state.l1bm[:] = 0
        assert on_machine(machine, mended) == expected, text
        differing += Late().run(text).memory() != expected
    assert differing > 50  # so many of these programs go wrong if they are not mended


def test_one_step_less_is_seen():
    """Where a program was mended, fewer empty steps are a finding."""
    rng = random.Random(7)
    for _ in range(30):
        mended = insert_nops(parse(random_program(rng)))
        before = list(mended)
        for position, statement in enumerate(before):
            if isinstance(statement, m.Nop) and statement.line == 0:  # an inserted one has no line
                less = [m.Nop(statement.count - 1)] if statement.count > 1 else []
                assert check((*before[:position], *less, *before[position + 1 :])) != []


def noisy(line: str, rng: random.Random) -> str:
    """The same line as somebody else would write it."""

    def blank() -> str:
        return rng.choice([" ", "  ", "\t", " \t "])

    code = "".join(blank() if char == " " else char for char in line)
    return (
        rng.choice(["", blank()]) + code.replace(";", rng.choice([";", " ; ", ";\t"])) + rng.choice(["", blank(), "\r"])
    )


@pytest.mark.parametrize("seed", range(20))
def test_fmt_keeps_the_meaning_and_is_done_once(seed):
    rng = random.Random(seed)
    text = random_program(rng, 40)
    text += "\nnop; wait i01\nmvp/i02n64 $d0@1 $lc0@0.1\nmaskts 1\n\n# a note\n#@ part"
    text += "\nd get $lm0n0 2 # expect=[1, 2, 3, 4] / UInt\nquit"
    program = parse(text)
    neat = format_program(program)
    assert parse(neat) == program and format_program(parse(neat)) == neat
    loose = "\n".join(noisy(line, rng) if "#" not in line and "quit" not in line else line for line in text.split("\n"))
    assert loose != text and format_program(parse("\ufeff" + loose + "\n\n")) == neat
