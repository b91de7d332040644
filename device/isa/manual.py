"""docs/isa.md, written from the tables: `python -m mlsdk.device.isa.manual > docs/isa.md`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import spec, timing
from . import table
from .checks import BAR_DISTANCE, BUNDLE_RULES, GRF_CYCLES, L1_RULES, LM_DISTANCE, T_DISTANCE
from .choices import CHOICES

INTRODUCTION = """\
# Instruction set of MN-Core 2, as this machine executes it

This page is written from the tables of the code by `python -m mlsdk.device.isa.manual`; a test keeps it current.
Facts are from Preferred
Networks' public Software Development Manual (SDM) and the output of public programs, in our own words. Open MLSDK is unofficial.

Marks: **D** documented, **V** agrees with published results, **A** used by accepted programs (in the MV table:
assumed), **I** inferred, **U**
unknown (see [Choices](#choices)). W is a word of 32 bits, LW a long word of 64, 2LW 128 bits; c is the cycle 0..3 of
a step, g a group, l an L2B of
it, b an L1B, m a MAB, p a PE.

A step is 4 cycles at 750 MHz. One line of the text form is one step of all 4096 PEs: instructions of different units
separated by `;`. `nop/n` is
n empty steps, `#` starts a comment, `quit` ends the program. A line `#@ name` is a marker, which costs nothing.
"""

OPERANDS = """\
## Operands

| form | meaning |
| --- | --- |
| `$m0` `$lm0` `$llm0` | LM0, word address 0, access of 1, 2, 4 words; `n` LM1, `r` GRF0, `s` GRF1 |
| `v` or `v<inc>` behind the address | the address grows by one access width, or by inc words, each cycle |
| `$lr[a,b,c,d]` | the address of each cycle |
| `$lmt<addr>` | LM0 at T[c] + addr (T holds an integer LW, in words) |
| `j<k>` behind the address | one access width further on PEs 0..k |
| `$t` `$lt` `$llt` | T: a 2LW for each cycle, without address |
| `$aluf` `$mauf` `$lbf` `$mreadf` | the latest result of ALU, MAU, L1BM->PE, mread |
| `$l2bid` `$l1bid` `$mabid` `$peid` `$subpeid` `$msb1` | fixed values, as first source of the ALU |
| `$lb<a>` `$llb<a>` `$lbi` `$llbi` | L1BM; the turnaround register |
| `$lc<a>`, `$lc<a>@.l`, `$lc<a>@g.l` | L2BM: of every L2B, of L2B l of every group, of one |
| `$d<a>`, `$d<a>@g`, `$di<e>`, `$p<a>`, `$p<a>@g` | DRAM, DRAM through the DAR, PDM, in LW |
| `$lx` `$ly`, `$lx<row>` | matrix register sides; `$llx` for hmwrite and hmread |
| `$omr<n>` `$mb` `$nb` `$nowrite` | mask register, base address of LM0 and LM1, no destination |
| `-` before a MAU source | sign change |
| `e` behind a source | half to single or single to double; the access is half as wide |
| `r` behind a half source | single to half; the access is twice as wide |
| `/1000` `/ll1000` `/$imr3` `/$llimr3` behind a destination | mask by cycle, or by mask register; `ll` guards words of the 2LW |
| the same behind an instruction | zero flush: what the mask forbids becomes zero |

All addresses wrap modulo the size of their memory at run time; the checks want the written address inside.
"""


def rows(header: Sequence[str], body: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in body]
    return "\n".join(lines) + "\n"


UNITS = (
    ("Control", ("nop", "noforward", "wait")),
    ("ALU", ("alu",)),
    ("MAU, matrix registers", ("mau", "mwrite", "mread")),
    ("L1BM and PEs", ("l1bm",)),
    ("L2BM and L1BM", ("l2bm", "dar")),
    ("MV", ("mv",)),
)
FLAGS = {
    "zero": "result all zero",
    "sign": "MSB of the result 0; with u: no carry or borrow",
    "choice": "x chosen, or equal",
    "msb_x": "tested bit of x 0",
    "msb_y": "MSB of y 0",
    "mau": "sign of the result 0",
    "": "",
}


def instructions() -> str:
    text = [
        "## Instructions\n",
        "In a pattern {p} is the precision, {u} an optional `u`, {ud} `u` or `d`, "
        "{r} an optional result suffix `r`, {op} a reduction: "
        + ", ".join(f"`{op}`" for op in table.REDUCTIONS)
        + ".\n",
    ]
    for title, units in UNITS:
        text.append(f"### {title}\n")
        body = [
            (
                f"`{row.pattern}`",
                f"`{row.operands}`" if row.operands else "",
                " ".join(row.precisions).replace("-", ""),
                row.meaning,
                FLAGS[row.flags],
                "yes" if row.flush else "",
                row.cost,
                row.mark,
                row.reference,
            )
            for row in table.ROWS
            if row.unit in units
        ]
        text.append(
            rows(
                ("instruction", "operands", "precisions", "meaning", "flag", "zero flush", "cost", "mark", "source"),
                body,
            )
        )
    text.append(
        "Operand classes: x first ALU source, y other source, dst destination (several "
        "allowed), reg matrix register, row its first row, lb L1BM or the "
        "turnaround register, lbm L1BM, lc L2BM, imm quoted payload (`f` `h` `i` `s` "
        "`ui` `us`), mv PDM, DRAM or L2BM, mvs PDM or DRAM, mvl L2BM.\n"
    )
    return "\n".join(text)


def moves() -> str:
    def side(s: timing.Side) -> str:
        share = "" if s.share == (1, 1) else f", {s.share[0]}/{s.share[1]} of the size"
        return f"{s.port} ({s.scope}): {s.rate} LW/cycle{share}"

    body = [(f"`{f.name}`", side(f.source), side(f.destination), f.unit, f.mark) for f in timing.FORMS.values()]
    return (
        "## Moves and their time\n\n`mv<mode>/n<size>[i<tag>][nd<N>][p<0..3>] source destination`; "
        "the size is in LW on the wide side. A move holds the ports of both sides for "
        "the longer of the two times, in issue order, and is done "
        f"{spec.MV_LATENCY_CYCLES} cycles after that (assumed). MV lines issue at "
        f"most every {spec.MV_ISSUE_CYCLES} cycles (assumed).\n\n"
        + rows(("form", "source", "destination", "unit", "mark"), body)
        + "\nAssumed numbers:\n\n"
        + rows(
            ("name", "value", "reason"), [(f"`{name}`", getattr(spec, name), why) for name, why in spec.ASSUMED.items()]
        )
    )


def rules() -> str:
    body = [
        (rule.__name__.strip("_").replace("_", " "), " ".join((rule.__doc__ or "").split())) for rule in BUNDLE_RULES
    ]
    hazards: list[tuple[str, str, str, str]] = [
        ("LM0 or LM1 written => the same LM read, any address", f"{LM_DISTANCE - 1} steps", "error", "hazard.9"),
        ("GRF word written => read", f"{GRF_CYCLES - 1} cycles between the two cycles", "error", "hazard.9"),
        ("T written => T or T-indirect read", f"{T_DISTANCE - 1} step", "error", "hazard.9"),
        ("base address written => LM accessed", f"{BAR_DISTANCE - 1} step", "error", "hazard.bar"),
    ]
    hazards += [
        (
            f"{r.producer} => {r.consumer}{' of the same address' if r.same_address else ''}",
            f"{r.distance - 1} step{'s' if r.distance > 2 else ''}",
            r.severity,
            r.name,
        )
        for r in L1_RULES
    ]
    return (
        "## Rules of one step\n\n"
        + rows(("rule", "what it wants"), body)
        + "\n## Hazards\n\nNeeded between producer and consumer. Forward registers, the "
        "turnaround register, mask registers and matrix writes are usable in the "
        "next step. `mlsdk vsm check --insert-nops` mends them.\n\n"
        + rows(("producer => consumer", "between", "severity", "rule"), hazards)
        + "\nMoves are ordered against steps by `wait` only: a step that touches what an unfinished "
        "tagged move reads or writes is an error (rule wait), and so is a tag "
        "that is used again before a wait (rule tag).\n"
    )


def choices() -> str:
    body = [(c.name, c.certainty, c.what, c.why, f"`{c.place}`") for c in CHOICES]
    return "## Choices\n\nWhere the documents are silent or leave room.\n\n" + rows(
        ("point", "certainty", "what this machine does", "why", "place"), body
    )


def memories() -> str:
    body = [
        ("DRAM", "group", f"{spec.DRAM_LW} LW"),
        ("PDM", "group", f"{spec.PDM_LW} LW"),
        ("DAR", "group", f"{spec.DAR_ENTRIES} entries of 32 bit, unit {spec.DAR_UNIT_LW} LW"),
        ("L2BM", "L2B", f"{spec.L2BM_LW} LW"),
        ("L1BM", "L1B", f"{spec.L1BM_LW} LW"),
        ("LM0, LM1", "PE", f"{spec.LM_WORDS} W each"),
        ("GRF0, GRF1", "PE", f"{spec.GRF_WORDS} W each"),
        ("T", "PE", "2LW a cycle"),
        ("mask registers", "PE", f"{spec.MASK_ENTRIES} entries of 4 bits a cycle"),
        ("matrix registers x, y", "MAB", f"{spec.MATRIX_ROWS} rows of 4 LW each"),
    ]
    return (
        f"## Machine\n\n{spec.GROUPS} groups x {spec.L2B_PER_GROUP} L2B x {spec.L1B_PER_L2B} L1B "
        f"x {spec.MAB_PER_L1B} MAB x {spec.PE_PER_MAB} PE = {spec.PES} PEs.\n\n"
        + rows(("memory", "one for each", "size"), body)
        + "\n"
        + rows(
            ("precision", "matrix register", "multiply-adds per MAU and cycle"),
            [(p, f"{n}x{n}", spec.MATRIX_MACS[p]) for p, n in spec.MATRIX_SIZE.items()],
        )
    )


DEBUG = """\
## Debug statements

| line | meaning |
| --- | --- |
| `d get[<type>] $<place><addr>[n<g>][c<l>][b<b>][m<m>][p<p>] <count>` | prints count LW of every named place; types
d, f, h and the block floats bd, bf, bg, bh |
| `d set $<place>... <count> <hex>` | writes them: 16 hex digits a LW |
| `r <group> <address> <count> <hex>` | presets DRAM of a group; address and count in hex |
| `c ...` | a command of the host side; not executed |

Places: lm ln lr ls lt omr lx ly lb lc d p. Behind a `d get`, `# expect=[1.0, 2.0] / Float @[0] atol=1e-5 rtol=1e-5`
is compared by `mlsdk vsm run`.
"""


def text() -> str:
    return "\n".join([INTRODUCTION, memories(), OPERANDS, instructions(), moves(), rules(), DEBUG, choices()])


if __name__ == "__main__":
    print(text(), end="")
