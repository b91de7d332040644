"""The machine against the independent model of oracle.py, operation by operation, on corner and on random patterns."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import oracle as o
import pytest

from mlsdk.device.isa import model as m
from mlsdk.device.isa.parser import parse

PES, CYCLES = 32, range(4)
Grid = list[list[list[int]]]  # [cycle][PE][LW]


def grid(make: Callable[[int, int], list[int]], pes: int = PES) -> Grid:
    return [[make(c, pe) for pe in range(pes)] for c in CYCLES]


def random_grid(p: str, rng: random.Random, lws: int = 1) -> Grid:
    return grid(lambda c, pe: [o.long_word(p, rng) for _ in range(lws)])


def put(machine, space: str, data: Grid, addr: int = 0) -> None:
    """Cycle c of an access with `v` reads data[c]."""
    words = np.zeros((4 * 2 * len(data[0][0]), 4096), np.uint32)
    for c in CYCLES:
        for pe, lws in enumerate(data[c]):
            for k, lw in enumerate(lws):
                row = 2 * (c * len(lws) + k)
                words[row, pe], words[row + 1, pe] = lw >> 32, lw & 0xFFFFFFFF
    machine.write(space, addr, words)


def get(machine, space: str, lws: int = 1, addr: int = 0, pes: int = PES) -> Grid:
    words = machine.read(space, addr, 8 * lws).astype(object)
    lw = (words[0::2] << 32) | words[1::2]
    return grid(lambda c, pe: [int(lw[c * lws + k, pe]) for k in range(lws)], pes)


def run(machine, *lines: str) -> None:
    machine.run(parse("\n".join(lines)))


def parts(lws: list[int], p: str) -> list[int]:
    return [part for lw in lws for part in o.split(lw, o.BITS[p])]


def packed(values: list[int], p: str) -> list[int]:
    """LWs of elements, the last one filled up with zeros at its low end."""
    n = 64 // o.BITS[p]
    values = values + [0] * (-len(values) % n)
    return [o.join(values[i : i + n], o.BITS[p]) for i in range(0, len(values), n)]


def nibble(flags: list[bool], bits: int) -> int:
    copies = {64: 4, 32: 2, 16: 1}[bits]
    return int("".join(str(int(f)) * copies for f in flags), 2)


def masks(machine, entry: int) -> list[list[int]]:
    return [[int(v) for v in machine.state.masks[4 * entry + c][:PES]] for c in CYCLES]


# --- ALU -----------------------------------------------------------------------------------------------------------------
ONE, TWO = ("inc", "dec", "not", "lnot"), ("and", "or", "xor", "add", "sub", "lsl", "lsr", "bsl", "bsr")
ALU = (
    [(op, p, "", 1) for p in "lis" for op in ONE] + [(op, p, "", 2) for p in "lis" for op in TWO]
    + [(op, p, "u", 1) for p in "lis" for op in ("inc", "dec")]
    + [(op, p, "u", 2) for p in "lis" for op in ("add", "sub", "lsr", "max", "min")]
    + [("passa", p, "", 1) for p in "dlfish"] + [(op, p, "", 2) for p in "dlfish" for op in ("packbit", "max", "min")]
    + [(f"relu{k}", p, "", 2) for p in "dfh" for k in ("", 0, 1, 2, 3)]
    + [(op, p, "", 2) for p in "dfh" for op in ("lrelud", "lreluo", "ilrelud")]
    + [(op, p, "", 1) for p in "dfh" for op in ("floor", "ftoi", "rsqrt")] + [("ftoi", p, "u", 1) for p in "dfh"]
)  # fmt: skip


@pytest.mark.parametrize("op,p,unsigned,sources", ALU, ids=lambda v: str(v))
def test_alu(machine, op, p, unsigned, sources):
    rng = random.Random(f"{op}{p}{unsigned}")
    x, y = random_grid(p, rng, 2), random_grid(p, rng, 2)
    for c in CYCLES:
        y[c][::7] = x[c][::7]
    put(machine, m.GRF0, x)
    put(machine, m.GRF1, y)
    flagged = op not in ("floor", "ftoi")
    second = "$lls0v" if sources == 2 else ""
    run(machine, f"{unsigned}{p}{op} $llr0v {second} $llm0v {'$omr1' if flagged else ''}")
    got, flags = get(machine, m.LM0, 2), masks(machine, 1)
    for c in CYCLES:
        for pe in range(PES):
            pairs = zip(parts(x[c][pe][:1], p), parts(y[c][pe][:1], p))
            want = [o.alu(op, p, bool(unsigned), a, b) for a, b in pairs]
            for (result, _), found in zip(want, parts(got[c][pe][:1], p)):
                assert result is None or result == found, (hex(x[c][pe][0]), hex(y[c][pe][0]))
            assert got[c][pe][1] == x[c][pe][1]
            if flagged:
                assert flags[c][pe] == nibble([bool(f) for _, f in want], o.BITS[p])


# --- MAU, vectors --------------------------------------------------------------------------------------------------------
VECTOR = {
    "fma": (3, lambda p, z: lambda a: o.product(a[0], a[1], p) + o.value(a[2], z)),
    "mul": (2, lambda p, z: lambda a: o.product(a[0], a[1], p)),
    "add": (2, lambda p, z: lambda a: o.value(a[0], p) + o.value(a[1], z)),
    "passa": (1, lambda p, z: lambda a: o.value(a[0], p)),
}
SHORT = {"f": "h", "h": "h", "d": "f"}


VECTORS = [
    (p, op, half)
    for p in "fhd"
    for op in VECTOR
    for half in (("u", "d") if p == "d" and op in ("fma", "mul") else ("",))
]


@pytest.mark.parametrize("short", ["", "r"])
@pytest.mark.parametrize("p,op,half", VECTORS)
def test_vectors(machine, p, op, half, short):
    rng = random.Random(f"{p}{op}{short}")
    count, make = VECTOR[op]
    z = "f" if p == "h" else p
    calculate = make(p, z)
    wide = 2 if p == "h" else 1
    data = [random_grid(p, rng), random_grid(p, rng), random_grid(z, rng, wide)]
    if op == "fma":  # every third PE: z nearly cancels the product
        for c in CYCLES:
            for pe in range(0, PES, 3):
                xy = zip(parts(data[0][c][pe], p), parts(data[1][c][pe], p))
                data[2][c][pe] = packed([o.encode(-o.product(a, b, p), z) for a, b in xy], z)
    if op == "add":
        data[1] = data[2]
    for space, values in zip((m.GRF0, m.GRF1, m.LM0), data):
        put(machine, space, values)
    operands = ["$lr0v", "$lls0v" if op == "add" and wide == 2 else "$ls0v", "$llm0v" if wide == 2 else "$lm0v"][:count]
    q = SHORT[p] if short else z
    words = 2 if p == "h" and not short else 1
    target = "$lln0v" if words == 2 else "$ln0v"
    for sign in ("", "-"):
        run(machine, f"{p}v{op}{half}{short} {sign}{' '.join(operands)} {target} $omr1")
        got, flags = get(machine, m.LM1, words), masks(machine, 1)
        for c in CYCLES:
            for pe in range(PES):
                sources = [
                    parts(d[c][pe], z if i == count - 1 and op in ("fma", "add") else p) for i, d in enumerate(data)
                ]
                flip = 1 << (o.BITS[p] - 1) if sign else 0
                wanted = []
                for a in zip(*sources[:count]):
                    a = (a[0] ^ flip, *a[1:])
                    if half and (pe % 4 < 2) != (half == "u"):
                        wanted.append(o.encode(o.value(a[2], z) if op == "fma" else Fraction(0), q))
                    else:
                        wanted.append(o.encode(calculate(a), q))
                assert packed_left(wanted, q, words) == got[c][pe]
                if not (short and p != "h"):
                    signs = [not w >> (o.BITS[q] - 1) for w in wanted]
                    assert flags[c][pe] == nibble(signs, 64 // len(signs))


def packed_left(values: list[int], p: str, words: int) -> list[int]:
    found = packed(values, p)
    return found + [0] * (words - len(found))


@pytest.mark.parametrize(
    "text,extended", [("$r0ve $ls0v $lm0v", 0), ("$lr0v $s0ve $lm0v", 1), ("$lr0v $ls0v $m0ve", 2)]
)
@pytest.mark.parametrize("p", "fd")
def test_extended_inputs(machine, p, text, extended):
    """Suffix e reads a word a cycle: two halves or one single."""
    rng, narrow = random.Random(text + p), {"f": "h", "d": "f"}[p]
    data = [random_grid(narrow if i == extended else p, rng) for i in range(3)]
    for space, values in zip((m.GRF0, m.GRF1, m.LM0), data):
        put(machine, space, values)
    run(machine, f"{p}vfma{'u' if p == 'd' else ''} {text} $ln0v")
    got = get(machine, m.LM1)
    for c in CYCLES:
        for pe in range(PES):
            sources = []
            for i, d in enumerate(data):
                if i == extended:
                    word = d[c // 2][pe][0] >> (32 if c % 2 == 0 else 0) & 0xFFFFFFFF
                    elements = [word >> 16, word & 0xFFFF] if p == "f" else [word]
                    sources.append([o.converted(e, narrow, p) for e in elements])
                else:
                    sources.append(parts(d[c][pe], p))
            active = p == "f" or pe % 4 < 2
            want = [o.encode((o.product(x, y, p) if active else 0) + o.value(z, p), p) for x, y, z in zip(*sources)]
            assert packed(want, p) == got[c][pe]


def test_reduced_inputs(machine):
    rng = random.Random(5)
    x, y = random_grid("f", rng, 2), random_grid("h", rng)
    put(machine, m.GRF0, x)
    put(machine, m.GRF1, y)
    run(machine, "hvmul $llr0vr $ls0v $lln0v")
    got = get(machine, m.LM1, 2)
    for c in CYCLES:
        for pe in range(PES):
            halves = [o.converted(v, "f", "h") for v in parts(x[c][pe], "f")]
            want = [o.encode(o.product(a, b, "h"), "f") for a, b in zip(halves, parts(y[c][pe], "h"))]
            assert packed(want, "f") == got[c][pe]


# --- block floats and matrices -------------------------------------------------------------------------------------------
def blocks_of(lws: list[list[int]], p: str) -> list[list[tuple[int, int, int]]]:
    """The blocks of the 4 PEs of a MAB: lists of (PE, LW, element)."""
    n = 64 // o.BITS[p]
    if p == "f":
        return [[(pe, 0, k) for pe in range(4)] for k in range(2)]
    return [[(pe, w, k) for pe in range(4) for k in range(n)] for w in range(2 if p == "h" else 1)]


def converted_blocks(lws: list[list[int]], p: str, keep: int) -> list[list[int]]:
    out = [list(pe) for pe in lws]
    bits = o.BITS[p]
    for where in blocks_of(lws, p):
        values = [o.split(lws[pe][w], bits)[k] for pe, w, k in where]
        for (pe, w, k), v in zip(where, o.block(values, p, keep)):
            elements = o.split(out[pe][w], bits)
            elements[k] = v
            out[pe][w] = o.join(elements, bits)
    return out


@pytest.mark.parametrize("name", ["dbfn", "fbfn", "gbfn", "hbfn/6", "hbfn/7", "hbfn/8", "hbfn/9", "hbfn"])
def test_block_conversion(machine, name):
    p, keep = name[0], int(name[5:] or 9)
    rng = random.Random(name)
    x: Grid = [[[] for _ in range(PES)] for _ in CYCLES]
    for c in CYCLES:
        for mab in range(PES // 4):
            around, spread = rng.randint(1, o.ones(p) - (mab > 1)), rng.choice([3, o.FORMATS[p][1] + 4])
            for pe in range(4 * mab, 4 * mab + 4):
                x[c][pe] = [o.neighbours(p, rng, around, spread) for _ in range(2)]
    put(machine, m.GRF0, x)
    run(machine, f"{name} $llr0v $lln0v")
    got = get(machine, m.LM1, 2)
    for c in CYCLES:
        for mab in range(0, PES, 4):
            assert converted_blocks(x[c][mab : mab + 4], p, keep) == got[c][mab : mab + 4]


SIZE = {"h": 16, "g": 8, "f": 8, "d": 4}
LOAD = {
    "d": ["dbfn $lm0v $ln0v", "nop/2", "dmwrite $ln0v $ly0"],
    "h": ["hbfn/9 $llm0v $lln0v", "hbfn/9 $llm64v $lln64v", "nop/2", "hmwrite $lln0v $lly0", "hmwrite $lln64v $lly8"],
}
for _p in "gf":
    LOAD[_p] = [
        f"{_p}bfn $lm0v $ln0v",
        f"{_p}bfn $lm64v $ln64v",
        "nop/2",
        f"{_p}mwrite $ln0v $ly0",
        f"{_p}mwrite $ln64v $ly4",
    ]


def matrix_rows(data: list[Grid], p: str, mab: int) -> list[list[int]]:
    """The rows of the matrix of a MAB that LOAD wrote."""
    pes = range(4 * mab, 4 * mab + 4)
    lws = 2 if p == "h" else 1
    return [[e for pe in pes for e in parts([half[c][pe][k]], p)] for half in data for c in CYCLES for k in range(lws)][
        : SIZE[p]
    ]


@pytest.mark.parametrize("short", ["", "r"])
@pytest.mark.parametrize("p,half", [("h", ""), ("g", ""), ("f", ""), ("d", "u"), ("d", "d")])
def test_matrices(machine, p, half, short):
    rng = random.Random(p)
    z, lws = ("d" if p == "d" else "f"), (2 if p == "h" else 1)

    def ordinary(q: str, count: int) -> Grid:
        return grid(lambda c, pe: [o.neighbours(q, rng, o.FORMATS[q][2] + 8, 16) for _ in range(count)])

    a = [ordinary(p, lws), ordinary(p, lws)]
    x, add = ordinary(p, 1), ordinary(z, lws)
    for space, data, addr in ((m.LM0, a[0], 0), (m.LM0, a[1], 64), (m.GRF0, x, 0), (m.GRF1, add, 0)):
        put(machine, space, data, addr)
    wide = "ll" if p == "h" else "l"
    bfn = "hbfn/9" if p == "h" else f"{p}bfn"
    run(machine, *LOAD[p], f"{bfn} $lr0v $lr16v")
    matrix, factor = [get(machine, m.LM1, lws, 0), get(machine, m.LM1, lws, 64)], get(machine, m.GRF0, 1, 16)
    q = {"f": "h", "d": "f"}[z] if short else z
    out = 2 if p == "h" and not short else 1
    n, each = SIZE[p], SIZE[p] // 4
    for text in (f"mfma{half}{short} $ly $lr16v -${wide}s0v", f"mmul{half}{short} $ly -$lr16v"):
        run(machine, f"{p}{text} ${'ll' if out == 2 else 'l'}m128v")
        got = get(machine, m.LM0, out, 128)
        for mab in range(PES // 4):
            rows, pes = matrix_rows(matrix, p, mab), range(4 * mab, 4 * mab + 4)
            for c in CYCLES:
                vector = [e for pe in pes for e in parts(factor[c][pe], p)]
                sums = [e for pe in pes for e in parts(add[c][pe], z)][:n]
                columns = range(0, 8, 2) if p == "f" else range(n)
                want = []
                for i in range(n):
                    s = sum((o.block_product(rows[i][j], vector[j], p) for j in columns), Fraction(0))
                    if half and (i < 2) != (half == "u"):
                        s = Fraction(0)
                    want.append(o.encode(s - o.value(sums[i], z) if "fma" in text else -s, q))
                for k, pe in enumerate(pes):
                    assert packed_left(want[each * k : each * k + each], q, out) == got[c][pe]


@pytest.mark.parametrize("p", "hgfd")
def test_transposed_reads(machine, p):
    rng = random.Random(p)
    lws = 2 if p == "h" else 1
    data = [random_grid(p, rng, lws) for _ in range(2)]
    put(machine, m.LM1, data[0], 0)
    put(machine, m.LM1, data[1], 64)
    wide, step = ("ll", 8) if p == "h" else ("l", 4)
    run(machine, *LOAD[p][-2 if p != "d" else -1 :])
    run(machine, f"{p}mread ${wide}y0 ${wide}m0v", *([f"{p}mread ${wide}y{step} ${wide}m64v"] if p != "d" else []))
    got = [get(machine, m.LM0, lws, 0), get(machine, m.LM0, lws, 64)]
    for mab in range(PES // 4):
        rows, columns = matrix_rows(data, p, mab), matrix_rows(got, p, mab)
        assert [list(column) for column in zip(*rows)] == columns


# --- reductions ----------------------------------------------------------------------------------------------------------
REDUCTIONS = [p + op for p in "dfh" for op in ("fadd", "max", "min")] + [
    p + op for p in "lis" for op in ("iadd", "band", "and", "bor", "or")
]


def summand(p: str, op: str, rng: random.Random, around: int) -> int:
    return o.neighbours(p, rng, around, 9) if op == "fadd" and rng.random() < 0.9 else o.long_word(p, rng)


def elementwise(p: str, lws: list[int], function: Callable[[list[int]], int]) -> int:
    return o.join([function(list(v)) for v in zip(*[o.split(lw, o.BITS[p]) for lw in lws])], o.BITS[p])


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_over_mabs(machine, name):
    p, op = name[0], name[1:]
    rng = random.Random(name)
    around = rng.randint(3, o.ones(p) - 2) if p in o.FORMATS else 0
    x = grid(lambda c, pe: [summand(p, op, rng, around)], 64)
    put(machine, m.GRF0, x)
    run(machine, f"l1bmr{name} $lr0v $lb16", f"l1bmr4{name} $lr0v $lb512")

    def whole(values: list[int]) -> int:
        if name == "hfadd":  # on the single circuit, one rounding to half at the end
            return o.two_stages([o.converted(v, "h", "f") for v in values], "f", "h")
        return o.two_stages(values, p) if op == "fadd" else o.reduction(op, p, values)

    for c in CYCLES:
        for pe in range(4):
            want = elementwise(p, [x[c][4 * mab + pe][0] for mab in range(16)], whole)
            assert int(machine.state.l1bm[0, 16 + 4 * c + pe]) == want
            if name == "hfadd":
                continue
            for quarter in range(4):
                lws = [x[c][4 * (4 * quarter + i) + pe][0] for i in range(4)]
                want = elementwise(p, lws, lambda v: o.reduction(op, p, v))
                assert int(machine.state.l1bm[0, 512 + 16 * c + 4 * quarter + pe]) == want


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_over_l1bs_and_l2bs(machine, name):
    p, op = name[0], name[1:]
    rng = random.Random(name)
    around = rng.randint(3, o.ones(p) - 2) if p in o.FORMATS else 0
    a = [[summand(p, op, rng, around) for _ in range(64)] for _ in range(8)]
    for b in range(8):
        machine.state.l1bm[b, 64:128] = np.array(a[b], np.uint64)
        machine.state.l2bm[b, :256] = np.array(a[b] * 4, np.uint64)
    state = machine.state

    def over(i: int, sources: list[int], function=lambda v: o.reduction(op, p, v)) -> int:
        return elementwise(p, [a[b][i % 64] for b in sources], function)

    for text, chosen in (
        ("", range(8)),
        ("@0/6", (0, 2, 4, 6)),
        ("@1,3,5,7", (1, 3, 5, 7)),
        ("@5", (5,)),
        ("@4/3", (4, 5, 6, 7)),
    ):
        run(machine, f"l2bmr{name}{text} $lb64 $lc1024")
        idle = [o.unit(op, p)] * (8 - len(chosen))
        want = [over(i, list(chosen), lambda v, idle=idle: o.reduction(op, p, v + idle)) for i in range(64)]
        assert state.l2bm[0, 1024:1088].tolist() == want
    run(machine, f"l2bmr2{name} $lb64 $lc2048")
    pairs = [over(16 * c + i, [2 * b, 2 * b + 1]) for c in CYCLES for b in range(4) for i in range(16)]
    assert state.l2bm[0, 2048:2304].tolist() == pairs

    run(machine, f"mvr{name}/n256 $lc0 $p64@0", f"mvr{name}/n256 $lc0 $d128", f"mvr2{name}/n256 $lc0 $d1024",
        f"mvr4{name}/n256 $lc0 $d4096")  # fmt: skip

    def two_levels(v: list[int]) -> int:
        pairs = [o.reduction(op, p, v[2 * g : 2 * g + 2]) for g in range(4)]
        return o.reduction(op, p, pairs)

    total = [over(i, list(range(8)), two_levels) for i in range(64)]
    assert state.pdm[0].read(64, 256).tolist() == total * 4
    for g in range(4):
        assert state.dram[g].read(128, 64).tolist() == [total[16 * g + i % 16] for i in range(64)]
        pair = [over(i, [2 * g, 2 * g + 1]) for i in range(64)]
        assert state.dram[g].read(1024, 256).tolist() == pair * 4
        rows = [over(16 * g + k, [2 * h + l for h in range(4)]) for l in range(2) for k in range(16)]
        assert state.dram[g].read(4096, 128).tolist() == rows * 4
