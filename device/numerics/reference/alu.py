"""ALU operations on one element (SDM 3.6.12). `bits` is the element width; floats have the format of that width."""

from __future__ import annotations

from collections.abc import Callable

from ..formats import DOUBLE, HALF, SINGLE, Format

FLOAT = {64: DOUBLE, 32: SINGLE, 16: HALF}


def signed(x: int, bits: int) -> int:
    return x - (1 << bits) if x >> (bits - 1) else x


def msb(x: int, bits: int, position: int = 0) -> int:
    return x >> (bits - 1 - position) & 1


# --- integers ------------------------------------------------------------------------------------------------------------
def shift(x: int, y: int, bits: int, kind: str) -> int:
    """lsl, ulsr, lsr, bsl, bsr. s0 = y mod 2n; s0 >= n shifts everything out, or rotates by s0 - n."""
    s0 = y % (2 * bits)
    if kind in ("bsl", "bsr"):
        s = s0 % bits
        if kind == "bsr":
            s = -s % bits
        return (x << s | x >> (bits - s)) % (1 << bits)
    if kind == "lsl":
        return (x << s0) % (1 << bits)
    if kind == "ulsr":
        return x >> s0
    return (signed(x, bits) >> min(s0, bits - 1)) % (1 << bits)


# --- floats --------------------------------------------------------------------------------------------------------------
def float_less(x: int, y: int, fmt: Format) -> bool:
    """Sign-magnitude order with +0 = -0; the mantissas of infinities count."""
    (sx, ex, mx), (sy, ey, my) = fmt.fields(x), fmt.fields(y)
    if ex == 0 and ey == 0:
        return False
    if sx != sy:
        return sx == 1
    return (ey, my) < (ex, mx) if sx else (ex, mx) < (ey, my)


def relu(x: int, y: int, bits: int, position: int) -> int:
    return y if msb(x, bits, position) == 0 else 1 << (bits - 1)


def lower_exponent(y: int, fmt: Format, by: int) -> int:
    """Exponent lowered; at 0 or below the result is -0. An infinite y stays (not specified)."""
    sign, e, mantissa = fmt.fields(y)
    if e == fmt.ones:
        return y
    if e - by <= 0:
        return fmt.sign_bit
    return fmt.pack(sign, e - by, mantissa)


def raise_exponent(y: int, fmt: Format) -> int:
    sign, e, mantissa = fmt.fields(y)
    return fmt.pack(sign, min(e + 1, fmt.ones), mantissa)


def floor(x: int, fmt: Format) -> int:
    sign, e, mantissa = fmt.fields(x)
    if e == 0:
        return fmt.pack(sign, 0, 0)
    shift_left = e - fmt.bias
    if e == fmt.ones or shift_left >= fmt.mantissa_bits:
        return x
    significand = (1 << fmt.mantissa_bits) + mantissa
    whole = -significand if sign else significand
    integer = whole >> (fmt.mantissa_bits - shift_left)  # Python's shift rounds down
    if integer == 0:
        return 0
    size = abs(integer).bit_length() - 1
    m = abs(integer) << (fmt.mantissa_bits - size)
    return fmt.pack(int(integer < 0), fmt.bias + size, m - (1 << fmt.mantissa_bits))


def ftoi(x: int, fmt: Format, unsigned: bool) -> int:
    """Truncation toward zero, clipped to the range of the integer; u converts the magnitude."""
    sign, e, mantissa = fmt.fields(x)
    bits = fmt.bits
    low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    if e == 0:
        return 0
    if e == fmt.ones:
        value = high if unsigned or not sign else low
    else:
        significand = (1 << fmt.mantissa_bits) + mantissa
        s = e - fmt.bias - fmt.mantissa_bits
        magnitude = significand << s if s >= 0 else significand >> -s
        value = -magnitude if sign and not unsigned else magnitude
        value = max(low, min(high, value))
    return value % (1 << bits)


def rsqrt(x: int, fmt: Format) -> int:
    """The seed: k = min(63, floor(64 / sqrt(lo))) / 64 for the low end lo of the interval of x (inferred, see docs/isa.md)."""
    _, e, mantissa = fmt.fields(x)
    if e == 0:
        return fmt.infinity(0)
    if e == fmt.ones:
        return 0
    unbiased = e - fmt.bias
    parity = unbiased & 1
    index = mantissa >> (fmt.mantissa_bits - 4)
    # k is the largest integer with k^2 (16 + index) 2^parity <= 64^2 * 16
    k = 63
    while k * k * (16 + index) * (1 << parity) > 64 * 64 * 16:
        k -= 1
    return fmt.pack(0, -((unbiased - parity) // 2) - 1 + fmt.bias, (k - 32) << (fmt.mantissa_bits - 5))


def _choose(less: Callable[[int, int], bool], largest: bool):
    """max/min: x unless the other is strictly better, so that equal elements give x."""
    return lambda x, y: (y if less(x, y) else x) if largest else (y if less(y, x) else x)


def operate(name: str, x: int, y: int, bits: int) -> int:
    """`name` is the kernel operation: u and f forms are named umax, fmax, ulsr, uftoi."""
    fmt, every = FLOAT[bits], (1 << bits) - 1
    table: dict[str, Callable[[], int]] = {
        "inc": lambda: x + 1 & every,
        "dec": lambda: x - 1 & every,
        "not": lambda: ~x & every,
        "lnot": lambda: int(x == 0),
        "and": lambda: x & y,
        "or": lambda: x | y,
        "xor": lambda: x ^ y,
        "add": lambda: x + y & every,
        "sub": lambda: x - y & every,
        "packbit": lambda: (x << 1 | msb(y, bits)) & every,
        "umax": lambda: max(x, y),
        "umin": lambda: min(x, y),
        "max": lambda: _choose(lambda a, b: signed(a, bits) < signed(b, bits), True)(x, y),
        "min": lambda: _choose(lambda a, b: signed(a, bits) < signed(b, bits), False)(x, y),
        "fmax": lambda: _choose(lambda a, b: float_less(a, b, fmt), True)(x, y),
        "fmin": lambda: _choose(lambda a, b: float_less(a, b, fmt), False)(x, y),
        "lrelud": lambda: y if not msb(x, bits) else lower_exponent(y, fmt, 1),
        "lreluo": lambda: y if not msb(x, bits) else lower_exponent(y, fmt, 3),
        "ilrelud": lambda: y if not msb(x, bits) else raise_exponent(y, fmt),
        "floor": lambda: floor(x, fmt),
        "ftoi": lambda: ftoi(x, fmt, False),
        "uftoi": lambda: ftoi(x, fmt, True),
        "rsqrt": lambda: rsqrt(x, fmt),
    }
    if name in ("lsl", "ulsr", "lsr", "bsl", "bsr"):
        return shift(x, y, bits, name)
    if name.startswith("relu"):
        return relu(x, y, bits, int(name[4:] or 0))
    return table[name]()


def flag(kind: str, name: str, x: int, y: int, result: int, bits: int, unsigned: bool, is_float: bool = False) -> int:
    """The flag of an element by the kind of its instruction's row (table.Row.flags)."""
    if kind == "zero":
        return int(result == 0)
    if kind == "sign":
        if not unsigned:
            return 1 - msb(result, bits)
        over = {"inc": x + 1, "dec": x - 1, "add": x + y, "sub": x - y}[name]
        return int(0 <= over < 1 << bits)
    if kind == "msb_x":
        return 1 - msb(x, bits, int(name[-1]) if name[-1].isdigit() else 0)
    if kind == "msb_y":
        return 1 - msb(y, bits)
    if kind == "choice":
        if is_float:
            worse = float_less(x, y, FLOAT[bits]) if name == "max" else float_less(y, x, FLOAT[bits])
        else:
            a, b = (x, y) if unsigned else (signed(x, bits), signed(y, bits))
            worse = a < b if name == "max" else b < a
        return int(not worse)
    raise ValueError(kind)
