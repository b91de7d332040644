"""Operands: from text to `Operand` and back.

Text that means the same parses to equal values. Formatting resolves DRAM symbols through a mapping passed in and refuses
operands that have no text form (loop strides, mask patterns other than all-or-nothing per cycle).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .. import spec
from .model import (
    ALUF,
    BAR0,
    BAR1,
    DAR,
    DRAM,
    DRAM_INDIRECT,
    GRF0,
    GRF1,
    L1BID,
    L1BM,
    L1BM_TURN,
    L2BID,
    L2BM,
    LBF,
    LM0,
    LM1,
    LW,
    LW2,
    MABID,
    MAT_X,
    MAT_Y,
    MAUF,
    MREADF,
    MSB1,
    NOWRITE,
    OMR,
    PDM,
    PEID,
    SUBPEID,
    TAG,
    Immediate,
    Mask,
    Operand,
    T,
    W,
)


class OperandError(ValueError):
    """The text is not an operand; `hint` says what was expected."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


PE_LETTERS = {"m": LM0, "n": LM1, "r": GRF0, "s": GRF1}
LETTER_OF = {space: letter for letter, space in PE_LETTERS.items()}
WIDTHS = {"": W, "l": LW, "ll": LW2}
WIDTH_PREFIX = {W: "", LW: "l", LW2: "ll"}

#: Names without an address: text -> (space, width)
NAMED: dict[str, tuple[str, int]] = {
    "$aluf": (ALUF, W), "$mauf": (MAUF, W), "$lbf": (LBF, W), "$mreadf": (MREADF, W), "$nowrite": (NOWRITE, W),
    "$l2bid": (L2BID, W), "$l1bid": (L1BID, W), "$mabid": (MABID, W), "$peid": (PEID, W), "$subpeid": (SUBPEID, W),
    "$msb1": (MSB1, W),
    "$t": (T, W), "$lt": (T, LW), "$llt": (T, LW2),
    "$mb": (BAR0, W), "$lmb": (BAR0, LW), "$nb": (BAR1, W), "$lnb": (BAR1, LW),
    "$lbi": (L1BM_TURN, LW), "$llbi": (L1BM_TURN, LW2),
    "$lx": (MAT_X, LW), "$ly": (MAT_Y, LW),
}  # fmt: skip
#: Spaces whose width is not written; the parser gives W for them, which is the default of `Operand`.
WIDTHLESS = frozenset(
    {
        ALUF,
        MAUF,
        LBF,
        MREADF,
        NOWRITE,
        L2BID,
        L1BID,
        MABID,
        PEID,
        SUBPEID,
        MSB1,
        L2BM,
        DRAM,
        DRAM_INDIRECT,
        PDM,
        DAR,
        OMR,
        TAG,
    }
)
_NAME_OF = {
    ALUF: "$aluf", MAUF: "$mauf", LBF: "$lbf", MREADF: "$mreadf", NOWRITE: "$nowrite", L2BID: "$l2bid", L1BID: "$l1bid",
    MABID: "$mabid", PEID: "$peid", SUBPEID: "$subpeid", MSB1: "$msb1",
}  # fmt: skip

_PE = re.compile(r"\$(ll|l|)([mnrs])(t?)(?:(\d+)|\[(\d+),(\d+),(\d+),(\d+)\])(?:v(-?\d+)?)?(j\d+)?([er]?)\Z")
_HAS_V = re.compile(r"[\d\]]v")
_REST = re.compile(
    r"\$(?:(ll|l)b(\d+)|(ll|l)([xy])(\d+)|omr(\d+)|imr(\d+)|dar(\d+)|lc(\d+)(?:@(\d*)\.(\d+))?|(di|d|p)(\d+)(?:@(\d+))?)\Z"
)
_MASK = re.compile(r"(?:(ll)?([01]{4})|\$(ll|l)?imr(\d+))([tp]*)\Z")


def parse_mask(text: str) -> Mask:
    """`1000`, `ll0111`, `$imr3`, `$llimr3`, each with optional `t`/`p` behind it."""
    found = _MASK.match(text)
    if not found:
        raise OperandError(f"`/{text}` is not a mask", "a mask is /1000, /ll1000, /$imr1 or /$llimr1")
    long2, pattern, imr_width, register, assertion = found.groups()
    if pattern:
        bits = tuple(15 if ch == "1" else 0 for ch in pattern)
        return Mask(pattern=bits, long2=bool(long2), assertion=assertion)  # type: ignore[arg-type]
    if int(register) > 31:
        raise OperandError(f"mask entry {register} is outside 0..31")
    return Mask(register=int(register), long2=imr_width == "ll", assertion=assertion)


def format_mask(mask: Mask) -> str:
    if mask.pattern is not None:
        if any(bits not in (0, 15) for bits in mask.pattern):
            raise OperandError(f"mask pattern {mask.pattern} has no text form: values are 0 or 15 per cycle")
        return ("/ll" if mask.long2 else "/") + "".join("1" if bits else "0" for bits in mask.pattern) + mask.assertion
    return f"/${'ll' if mask.long2 else ''}imr{mask.register}{mask.assertion}"


def parse_operand(text: str) -> Operand:
    """The operand that `text` names; raises OperandError."""
    body, negate, mask = text, False, None
    if body[0] == "-":
        negate, body = True, body[1:]
    slash = body.find("/")
    if slash >= 0:
        mask, body = parse_mask(body[slash + 1 :]), body[:slash]
    found = _PE.match(body)
    if found:
        prefix, letter, indirect, addr, a0, a1, a2, a3, inc, j, suffix = found.groups()
        width = WIDTHS[prefix]
        if indirect and letter != "m":
            raise OperandError(f"`{text}`: only LM0 can be addressed through T", "write $mt<addr>")
        if indirect and j:
            raise OperandError(f"`{text}`: t and j cannot be combined")
        if j and int(j[1:]) > 3:
            raise OperandError(
                f"`{text}`: PE {j[1:]} is outside 0..3", "j<k> moves the address on PEs 0..k of each MAB"
            )
        flat = None
        if addr is None:
            flat = (int(a0), int(a1), int(a2), int(a3))
            if _HAS_V.search(body):
                raise OperandError(f"`{text}`: flat addresses take no v")
        if inc is not None:
            step = int(inc)
        else:
            step = width if flat is None and _HAS_V.search(body) else 0
        return Operand(
            PE_LETTERS[letter], int(addr) if flat is None else 0, width, step, flat, bool(indirect),
            int(j[1:]) if j else None, negate, suffix == "e", suffix == "r", mask,
        )  # fmt: skip
    named = NAMED.get(body)
    if named:
        return Operand(named[0], 0, named[1], negate=negate, mask=mask)
    if body[-1:] in "er" and (named := NAMED.get(body[:-1])) and named[0] in (T, ALUF, MAUF, LBF):
        return Operand(named[0], 0, named[1], negate=negate, extend=body[-1] == "e", reduce=body[-1] == "r", mask=mask)
    found = _REST.match(body)
    if not found:
        raise OperandError(f"`{text}` is not an operand", _guess(body))
    lb, lb_addr, mat, side, row, omr, imr, dar, lc, lc_group, lc_block, off, off_addr, off_group = found.groups()
    if lb:
        return Operand(L1BM, int(lb_addr), WIDTHS[lb], negate=negate, mask=mask)
    if mat:
        return Operand(MAT_X if side == "x" else MAT_Y, int(row), WIDTHS[mat], negate=negate, mask=mask)
    if omr:
        if not 0 <= int(omr) <= 31:
            raise OperandError(f"`{text}`: mask entry {omr} is outside 0..31")
        return Operand(OMR, int(omr), W, negate=negate, mask=mask)
    if imr:
        raise OperandError(f"`{text}`: a mask entry is not an operand", "masks are written behind a slash: $lr0/$imr1")
    if dar:
        return Operand(DAR, int(dar), W, negate=negate, mask=mask)
    if lc:
        return Operand(
            L2BM, int(lc), W, negate=negate, mask=mask,
            group=int(lc_group) if lc_group else None, block=int(lc_block) if lc_block else None,
        )  # fmt: skip
    space = {"d": DRAM, "di": DRAM_INDIRECT, "p": PDM}[off]
    return Operand(space, int(off_addr), W, negate=negate, mask=mask, group=int(off_group) if off_group else None)


#: What was probably meant: the first pattern that fits gives the hint.
_GUESSES = tuple(
    (re.compile(pattern), hint)
    for pattern, hint in (
        (r"[^$]", "operands start with $"),
        (r".*,\$", "operands are separated by blanks"),
        (r"\$(ll|l)?[mnrs]t?(v|\Z)", "the address is missing"),
        (r"\$(ll|l)?[mnrs]t?\[", "one address for each cycle, without blanks: $lr[0,2,4,6]"),
        (r"\$(ll|l)?t", "T has no address: $t, $lt or $llt"),
        (r"\$b\d", "L1BM is written $lb<addr> or $llb<addr>"),
        (r"\$c\d", "L2BM is written $lc<addr>"),
        (r"\$(ll|l)?[mnrs]-", "addresses are not negative"),
        (r"\$(ll|l)?[mnrs]0[xX]", "addresses are decimal"),
        (r"\$(ll|l)?[mnrs]\d+v+", "$lr0v, $lr0v4 (words a cycle), $lm0vj1, or a suffix e or r"),
        (r"\$l?[mn]b\d", "base addresses have no number: $mb, $nb"),
        (r"\$[xy]\d*\Z", "matrix registers are written $lx or $ly"),
        (r"\$(lc|d|di|p)\d+@", "groups are written $d0@1, $lc0@1.0 or $lc0@.0"),
        (r"\$[A-Z]", "operands are in lower case"),
    )
)


def _guess(body: str) -> str:
    hint = next((hint for pattern, hint in _GUESSES if pattern.match(body)), "")
    return hint or "docs/isa.md lists the operands"


def format_operand(o: Operand, symbols: Mapping[str, int] | None = None, bare_matrix: bool = False) -> str:
    """The text of an operand. `bare_matrix`: the matrix operand of mfma and mmul, which has no row."""
    if o.strides and any(o.strides):
        raise OperandError("an operand with loop strides has no text form; unroll the program first")
    space, text = o.space, ""
    addr = o.addr
    if o.symbol:
        if symbols is None or o.symbol not in symbols:
            raise OperandError(f"segment `{o.symbol}` has no address; pass it in symbols")
        addr += symbols[o.symbol]
    if space in LETTER_OF:
        text = f"${WIDTH_PREFIX[o.width]}{LETTER_OF[space]}{'t' if o.indirect else ''}"
        if o.flat is not None:
            text += "[" + ",".join(map(str, o.flat)) + "]"
        else:
            text += str(addr)
            if o.inc:
                text += "v" if o.inc == o.width else f"v{o.inc}"
        if o.j is not None:
            text += f"j{o.j}"
    elif space == T:
        text = f"${WIDTH_PREFIX[o.width]}t"
    elif space in _NAME_OF:
        text = _NAME_OF[space]
    elif space == L1BM:
        text = f"${WIDTH_PREFIX[o.width]}b{addr}"
    elif space == L1BM_TURN:
        text = f"${WIDTH_PREFIX[o.width]}bi"
    elif space in (MAT_X, MAT_Y):
        text = f"${WIDTH_PREFIX[o.width]}{'x' if space == MAT_X else 'y'}{'' if bare_matrix else addr}"
    elif space == OMR:
        text = f"$omr{addr}"
    elif space in (BAR0, BAR1):
        text = f"${WIDTH_PREFIX[o.width]}{'m' if space == BAR0 else 'n'}b"
    elif space == DAR:
        text = f"$dar{addr}"
    elif space == L2BM:
        text = f"$lc{addr}"
        if o.block is not None:
            text += f"@{'' if o.group is None else o.group}.{o.block}"
    elif space in (DRAM, DRAM_INDIRECT, PDM):
        text = f"${ {DRAM: 'd', DRAM_INDIRECT: 'di', PDM: 'p'}[space] }{addr}" + (
            f"@{o.group}" if o.group is not None else ""
        )
    elif space == TAG:
        return f"i{addr:02x}"
    else:
        raise OperandError(f"space `{space}` has no text form")
    if o.extend:
        text += "e"
    if o.reduce:
        text += "r"
    if o.mask is not None:
        text += format_mask(o.mask)
    return ("-" if o.negate else "") + text


# --- immediates ------------------------------------------------------------------------------------------------------
_IMMEDIATE = re.compile(r'(f|h|i|s|ui|us)"([^"]*)"\Z')


def parse_immediate(text: str) -> Immediate:
    found = _IMMEDIATE.match(text)
    if not found:
        if '"' not in text:
            raise OperandError(
                f"`{text}`: the payload of imm stands in quotes", 'for instance f"1.0" or ui"0x3F800000"'
            )
        raise OperandError(f"`{text}` is not an immediate", 'kinds are f, h, i, s, ui and us: f"1.0", ui"0xFF"')
    return Immediate(found[1], found[2])


def bound(immediate: Immediate, symbols: Mapping[str, int]) -> Immediate:
    """An immediate with the address of its segment. Raises OperandError."""
    if not immediate.symbol:
        return immediate
    if immediate.symbol not in symbols:
        raise OperandError(f"segment `{immediate.symbol}` has no address; pass it in symbols")
    units, rest = divmod(symbols[immediate.symbol], spec.DAR_UNIT_LW)
    if rest:
        raise OperandError(f"segment `{immediate.symbol}` does not start on {spec.DAR_UNIT_LW} LW, as DAR entries do")
    return Immediate(immediate.kind, str(int(immediate.text) + units))


def immediate_word(immediate: Immediate) -> int:
    """The 32-bit word that an immediate stands for; 16-bit payloads are duplicated. Raises OperandError."""
    from ..numerics.text import half_from_text, single_from_text

    kind, text = immediate.kind, immediate.text
    if kind == "f":
        try:
            return single_from_text(text)
        except ValueError:
            raise OperandError(f'f"{text}" is not a number') from None
    if kind == "h":
        try:
            return half_from_text(text) * 0x10001
        except ValueError:
            raise OperandError(f'h"{text}" is not a number') from None
    bits = 32 if kind.endswith("i") else 16
    unsigned = kind.startswith("u")
    found = re.match(r"([+-]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)\Z", text)
    if not found or (unsigned and found[1]):
        raise OperandError(f'{kind}"{text}" is not an integer', "decimal, 0x or 0b; a sign only for i and s")
    value = int(found[2], 0) if found[2][:1] == "0" and len(found[2]) > 1 and not found[2].isdigit() else int(found[2])
    if found[1] == "-":
        value = -value
    # Signed kinds also take the bit pattern of a negative number, as accepted programs write i"0x80000000".
    low, high = (
        (0, 2**bits - 1)
        if unsigned
        else (-(2 ** (bits - 1)), 2**bits - 1 if found[2][:2].lower() in ("0x", "0b") else 2 ** (bits - 1) - 1)
    )
    if not low <= value <= high:
        raise OperandError(f'{kind}"{text}" does not fit in {bits} bits', f"the range is {low}..{high}")
    value &= 2**bits - 1
    return value if bits == 32 else value * 0x10001
