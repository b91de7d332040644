"""Functions on the board against long double: the errors in units in the last place that the rows of `kernels.py` state, over
the whole domain and at its borders."""

import mpmath
import numpy as np
import pytest
from emulated import graph_of, run

from mlsdk.pipeline.ops.emitters.kernels import KERNELS

np.seterr(all="ignore")
POINTS = 1 << 15
MORE_POINTS = 1 << 18
Wide = np.longdouble
#: (mantissa bits with the hidden one, smallest exponent, largest exponent, numpy dtype, dtype of the graph, float_dtype)
FORMATS = {
    "half": (10, -30, 31, np.float32, "float32", "half"),
    "single": (24, -126, 127, np.float32, "float32", "float"),
    "double": (53, -1022, 1023, np.float64, "float64", "float"),
}


# ---- arguments ------------------------------------------------------------------------------------------------


class Draw:
    """Arguments in one format."""

    def __init__(self, dtype, rng, count=POINTS):
        self.bits, self.low, self.high, self.numpy, _, _ = FORMATS[dtype]
        self.dtype, self.rng, self.count = dtype, rng, count

    def fit(self, x):
        """Rounded to the format (not to denormals)."""
        m, e = np.frexp(x)
        largest = np.ldexp(2 - 2.0 ** (1 - self.bits), self.high)
        x = np.ldexp(np.rint(m * 2.0**self.bits) / 2.0**self.bits, e)
        return np.clip(x, -largest, largest).astype(self.numpy)

    def even(self, a, b):
        """Evenly between a and b."""
        return self.fit(self.rng.uniform(a, b, self.count))

    def powers(self, a, b, signed=False):
        """Evenly in the logarithm, from 2^a to 2^b, which are cut to the format."""
        a, b = max(a, self.low), min(b, self.high)
        x = np.ldexp(self.rng.uniform(1, 2, self.count), self.rng.integers(a, b + 1, self.count))
        return self.fit(x * self.rng.choice([-1, 1], self.count) if signed else x)

    def around(self, a, b):
        """Half evenly between a and b, half small."""
        x = self.even(a, b)
        small = self.powers(-40, 3, signed=True)
        x[::2] = small[::2]
        return np.where((x < a) | (x > b), self.numpy(0), x)

    def of(self, single, double):
        """A border that depends on the format."""
        return double if self.dtype == "double" else min(single, 21.0) if self.dtype == "half" else single


def near_one(d):
    x = 1 + d.rng.uniform(-0.5, 0.5, d.count) * 2.0 ** d.rng.integers(-20, 1, d.count)
    return d.fit(x)


def above_minus_one(d):
    x = np.where(d.rng.random(d.count) < 0.5, near_one(d) - 1, positive(d))
    x[::4] = d.fit(d.powers(-d.bits, -1)[::4] - 1.0)
    return d.fit(x)


def everything(d):
    return d.powers(-1022, 1023, signed=True)


def positive(d):
    return d.powers(-1022, 1023)


def exponents(d):
    x = d.around(-d.of(87.3, 708.3), d.of(88.7, 709.7))
    return x if d.dtype != "half" else np.where(x < -20, np.float32(1), x)


def anywhere(d):
    """Everything, whole numbers, and numbers half way between them."""
    x = everything(d)
    x[::4] = d.rng.integers(-(2**20), 2**20, d.count)[::4]
    x[1::4] = (d.rng.integers(-(2 ** (d.bits - 3)), 2 ** (d.bits - 3), d.count) + 0.5)[1::4]
    return d.fit(x)


def angles(single, double):
    """Up to a size; a quarter are next to multiples of pi / 2."""

    def draw(d):
        limit = d.of(single, double) if d.dtype != "half" else single
        x = d.around(-limit, limit)
        x[1::4] = d.fit(np.rint(x[1::4] / (np.pi / 2)) * (np.arccos(Wide(-1)) / 2))
        return x

    return draw


def bounded(a, b):
    return lambda d: d.around(a, b)


def of_size(single, double):
    return lambda d: d.around(-d.of(single, double), d.of(single, double))


# ---- what they should give ------------------------------------------------------------------------------------


def mp_map(function, x):
    return np.array([Wide(mpmath.nstr(function(mpmath.mpf(float(v))), 25)) for v in x.ravel()]).reshape(x.shape)


def erf(x):
    return mp_map(mpmath.erf, x)


def gelu(x):
    return x * np.where(x < -100, 0, mp_map(mpmath.ncdf, np.clip(x, -100, 100)))


def gelu_tanh(x):
    return x / (1 + np.exp(-2 * np.sqrt(2 / np.arccos(Wide(-1))) * (x + Wide("0.044715") * x**3)))


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def mish(x):
    n = np.expm1(2 * softplus(np.minimum(x, 100)))
    return x * n / (n + 2)


def below(x, value):
    return np.where(x > 0, x, value)


def leaky(x):
    return below(x, x * Wide(SLOPE))


SLOPE = float(np.float32(0.3))  # attributes are singles
ALPHA, GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
#: operator -> (how its arguments are drawn, what it should give, attributes)
FUNCTIONS = {
    "Abs": (anywhere, np.abs, {}),
    "Acos": (bounded(-1, 1), np.arccos, {}),
    "Acosh": (lambda d: d.powers(0, 1023), np.arccosh, {}),
    "Asin": (bounded(-1, 1), np.arcsin, {}),
    "Asinh": (everything, np.arcsinh, {}),
    "Atan": (everything, np.arctan, {}),
    "Atanh": (bounded(-1, 1), np.arctanh, {}),
    "Ceil": (anywhere, np.ceil, {}),
    "Celu": (of_size(25, 40), lambda x: below(x, Wide(SLOPE) * np.expm1(x / Wide(SLOPE))), {"alpha": SLOPE}),
    "Cos": (angles(1e6, 1e12), np.cos, {}),
    "Cosh": (of_size(89.4, 710), np.cosh, {}),
    "Elu": (of_size(25, 40), lambda x: below(x, Wide(SLOPE) * np.expm1(x)), {"alpha": SLOPE}),
    "Erf": (of_size(5, 7), erf, {}),
    "Exp": (exponents, np.exp, {}),
    "Expm1": (exponents, np.expm1, {}),
    "Floor": (anywhere, np.floor, {}),
    "Gelu": (bounded(-14, 9), gelu, {}),
    "GeluTanh": (bounded(-14, 9), gelu_tanh, {"approximate": "tanh"}),
    "HardSigmoid": (bounded(-2.49, 9), lambda x: np.clip(x * Wide(0.2) + Wide(0.5), 0, 1), {}),
    "HardSwish": (bounded(-3, 9), lambda x: x * np.clip((x + 3) / 6, 0, 1), {}),
    "LeakyRelu": (everything, leaky, {"alpha": SLOPE}),
    "Log": (positive, np.log, {}),
    "Log1p": (above_minus_one, np.log1p, {}),
    "Mish": (of_size(80, 700), mish, {}),
    "Neg": (anywhere, np.negative, {}),
    "Reciprocal": (everything, lambda x: 1 / x, {}),
    "Relu": (anywhere, lambda x: np.maximum(x, 0), {}),
    "Round": (anywhere, np.rint, {}),
    "Rsqrt": (positive, lambda x: 1 / np.sqrt(x), {}),
    "Selu": (of_size(25, 40), lambda x: Wide(GAMMA) * below(x, Wide(ALPHA) * np.expm1(x)), {}),
    "Sigmoid": (exponents, lambda x: 1 / (1 + np.exp(-x)), {}),
    "Sign": (anywhere, np.sign, {}),
    "Silu": (of_size(90, 712), lambda x: x / (1 + np.exp(-x)), {}),
    "Sin": (angles(1e6, 1e12), np.sin, {}),
    "Sinh": (of_size(89.4, 710), np.sinh, {}),
    "Softplus": (exponents, softplus, {}),
    "Softsign": (everything, lambda x: x / (1 + np.abs(x)), {}),
    "Sqrt": (positive, np.sqrt, {}),
    "Tan": (angles(1e6, 1e12), np.tan, {}),
    "Tanh": (of_size(12, 24), np.tanh, {}),
    "ThresholdedRelu": (anywhere, lambda x: np.where(x > 0.5, x, 0), {"alpha": 0.5}),
}
SLOW = ("Erf", "Gelu")  # references of arbitrary precision: a thirtieth of the points


def power_arguments(d):
    """y log x evenly over what exp can take; x from everywhere, from 2^-20 to 2^20 and close to 1."""
    limit = {"half": 20.0, "single": 87.0, "double": 700.0}[d.dtype]
    x = np.where(d.rng.random(d.count) < 0.25, near_one(d), d.powers(-20, 20))
    x = np.where(d.rng.random(d.count) < 0.25, positive(d), x)
    size = np.log(x.astype(Wide))
    y = d.fit(d.rng.uniform(-limit, limit, d.count) / np.where(size == 0, 1, size).astype(np.float64))
    return x, np.where(np.abs(y) < 2.0**30, y, 1)


def near_or_far(d):
    """Two numbers from everywhere, or of about the same size."""
    a, b = everything(d), everything(d)
    near = d.fit(a * d.rng.uniform(-2, 2, d.count))
    return a, np.where((d.rng.random(d.count) < 0.5) & (np.abs(near) >= 2.0**d.low), near, b)


def remainder_arguments(d):
    """Quotients up to 2^60 (half: 2^20)."""
    reach = 20 if d.dtype == "half" else 60
    b = d.powers(d.low, d.high - reach, signed=True)
    return d.fit(b * np.ldexp(d.rng.uniform(-1, 1, d.count), d.rng.integers(0, reach, d.count))), b


PAIRS = {
    "Add": (near_or_far, np.add, {}),
    "Atan2": (near_or_far, np.arctan2, {}),
    "Div": (near_or_far, np.divide, {}),
    "Mod": (remainder_arguments, np.fmod, {"fmod": 1}),
    "Mul": (near_or_far, np.multiply, {}),
    "Pow": (power_arguments, np.power, {}),
    "PRelu": (near_or_far, lambda x, slope: np.where(x < 0, x * slope, x), {}),
    "Sub": (near_or_far, np.subtract, {}),
}


# ---- errors ---------------------------------------------------------------------------------------------------


def ulps(got, want, dtype):
    """The error in units in the last place of the true result. What is too small for the format may be 0; what is too large is
    infinite."""
    bits, low, high, *_ = FORMATS[dtype]
    got = got.astype(Wide)
    exponent = np.frexp(want)[1] - 1
    error = np.abs(got - want) / np.ldexp(Wide(1), np.maximum(exponent, low) - (bits - 1))
    largest = np.ldexp(Wide(1), high + 1) - np.ldexp(Wide(1), high - bits)
    fine = (got == want) | ((np.abs(want) < np.ldexp(Wide(1), low)) & (got == 0))
    fine |= (np.abs(want) >= largest) & np.isinf(got) & (np.sign(got) == np.sign(want))
    return np.where(fine, 0, error)


def on_board(op, dtype, arguments):
    """The operator's errors in ulp on the board, and the true results."""
    _, _, _, _, graph_dtype, float_dtype = FORMATS[dtype]
    reference, attrs = (FUNCTIONS[op] if op in FUNCTIONS else PAIRS[op])[1:]
    named = {f"x{i}": a for i, a in enumerate(arguments)}
    name = op.removesuffix("Tanh") if op == "GeluTanh" else op
    types = {n: (graph_dtype, a.shape) for n, a in named.items()}
    result, _ = run(graph_of(name, types, {"y": (graph_dtype, arguments[0].shape)}, attrs), named, float_dtype)
    want = reference(*(a.astype(Wide) for a in arguments))
    return ulps(result["y"], want, dtype), want


def errors(op, dtype, seed, count=POINTS):
    """Of the operator on the board, and the arguments."""
    d = Draw(dtype, np.random.default_rng(seed), count)
    arguments = (FUNCTIONS[op][0](d),) if op in FUNCTIONS else PAIRS[op][0](d)
    return on_board(op, dtype, arguments)[0], arguments


def check(op, dtype, seed, points):
    bound = KERNELS[op, "double" if dtype == "double" else "single"].ulp[dtype]
    found, arguments = errors(op, dtype, seed, points // 32 if op in SLOW else points)
    worst = int(np.argmax(found))
    assert found[worst] <= bound, (float(found[worst]), [a[worst] for a in arguments])


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("op", [*FUNCTIONS, *PAIRS])
def test_errors_are_as_the_rows_say(op, dtype):
    check(op, dtype, len(op), POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("op", [*FUNCTIONS, *PAIRS])
def test_errors_of_more_points(op, dtype):
    for seed in range(10, 13):
        check(op, dtype, seed, MORE_POINTS)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("exponent", [2, 3, 4, 7, -2, -3, 0.5, -0.5, 1.5])
def test_errors_of_constant_powers(exponent, dtype):
    d = Draw(dtype, np.random.default_rng(0))
    reach = int(d.high / abs(exponent)) + 2
    x = d.powers(-reach, reach, signed=exponent == int(exponent))
    _, _, _, _, graph_dtype, float_dtype = FORMATS[dtype]
    exponents = {"e": np.array(exponent, graph_dtype)}
    types = {"x": (graph_dtype, x.shape)}, {"y": (graph_dtype, x.shape)}
    result, _ = run(graph_of("Pow", *types, {}, exponents), {"x": x}, float_dtype)
    found = ulps(result["y"], np.power(x.astype(Wide), Wide(exponent)), dtype)
    worst = int(np.argmax(found))
    bound = KERNELS["PowConstant", "double" if dtype == "double" else "single"].ulp[dtype]
    assert found[worst] <= bound, (float(found[worst]), x[worst])


# ---- corners --------------------------------------------------------------------------------------------------

#: sums and products take an infinity for a number, as the MAU does
FINITE = ("Add", "LeakyRelu", "Mul", "PRelu", "Sub")
#: arguments that are left out: (x[, y]) -> where
OUTSIDE = {
    "Cos": lambda x: np.abs(x) > 6e6,
    "Sin": lambda x: np.abs(x) > 6e6,
    "Tan": lambda x: np.abs(x) > 6e6,
    "HardSigmoid": lambda x: np.abs(x + 2.5) < 0.1,
    "Mod": lambda x, y: (np.abs(x / y) > 2.0**68) & (np.abs(x) < np.inf),
}


def corners(d):
    """0, infinity, the ends of the format, one and its neighbours, borders of formulas."""
    largest = np.ldexp(2 - 2.0 ** (1 - d.bits), d.high)
    sizes = [
        0,
        1,
        0.5,
        1.5,
        2,
        2.5,
        3,
        1 / 3,
        1 + 2.0 ** (1 - d.bits),
        1 - 2.0**-d.bits,
        10,
        20,
        88.8,
        104,
        710,
        1e4,
        1e-3,
        1e-8,
    ]
    sizes += [largest / 2, 2.0**d.low, 2.0 ** (d.low + 1), 2.0 ** (d.low / 2), 2.0 ** (d.high / 2), 2.0**d.high]
    sizes += [2.0 ** (d.bits - 1), 2.0 ** (d.bits - 1) - 0.5, 2.0 ** (d.bits - 2) + 0.5, 1e9, np.pi]
    x = np.concatenate([d.fit(np.array(sizes)), np.array([largest, np.inf])]).astype(d.numpy)
    signs = np.concatenate([x, -x])
    return signs[~((signs == 0) & np.signbit(signs))] if d.dtype == "half" else signs  # widened halves have no -0


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("op", [*FUNCTIONS, *PAIRS])
def test_corner_values(op, dtype):
    x = corners(Draw(dtype, np.random.default_rng(0)))
    arguments = (x,) if op in FUNCTIONS else tuple(v.ravel() for v in np.meshgrid(x, x))
    if op in FINITE:
        keep = np.all([np.isfinite(a) for a in arguments], axis=0)
        arguments = tuple(a[keep] for a in arguments)
    found, want = on_board(op, dtype, arguments)
    skip = np.isnan(want) | (OUTSIDE[op](*arguments) if op in OUTSIDE else False)
    found = np.where(skip, 0, np.where(np.isnan(found), np.inf, found))
    worst = int(np.argmax(found))
    assert found[worst] <= 4, (float(found[worst]), [a[worst] for a in arguments])
