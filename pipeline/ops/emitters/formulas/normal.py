"""The error function and the normal distribution."""

from __future__ import annotations

from mlsdk.pipeline.ops.emitters.formula import DOUBLE, HALF, SINGLE, Formula, Op, Value
from mlsdk.pipeline.ops.emitters.formulas import words
from mlsdk.pipeline.ops.emitters.formulas.division import clamp, near_reciprocal, plain_reciprocal, quotient
from mlsdk.pipeline.ops.emitters.formulas.exponential import Reduced, logistic, reduce, times_logistic

_ERF_EDGE = 0.9375
#: erf x = x + x p(x^2) up to the edge
_ERF_LOW = {
    SINGLE: (0.12837917, -0.3761263, 0.11283624, -0.026855595, 0.005191994, -0.00080447225, 7.974984e-05),
    DOUBLE: (
        0.12837916709551256, -0.37612638903183315, 0.112837916709345, -0.026866170641327625, 0.0052239775893262634,
        -0.0008548325009806219, 0.00012055262264406564, -1.4924028976616611e-05, 1.6437570442969567e-06,
        -1.612338613270873e-07, 1.330514281372298e-08, -6.923023077158458e-10,
    ),
}  # fmt: skip
#: erf x = 1 - exp(p(x)) from the edge on
_ERF_HIGH = {
    SINGLE: (-0.00023511217, -1.1275125, -0.63745743, -0.10368974, 0.02211017, -0.0030138902, 0.000192944),
    DOUBLE: (
        -1.0432306854326668e-07, -1.1283780746675707, -0.636625047454126, -0.10275709669635719, 0.01909770409398934,
        0.0002518782345804057, -0.0017370242800246547, 0.0006132748843411685, -2.556739590121393e-05, -8.095539449727313e-05,
        4.9686227266712365e-05, -1.813894407827573e-05, 4.775758340250723e-06, -9.470911877725715e-07, 1.4151499982819692e-07,
        -1.5529114474738246e-08, 1.1840039916999317e-09, -5.608722847467849e-11, 1.243297776792967e-12,
    ),
}  # fmt: skip
_ERF_ONE = {SINGLE: 4.0, DOUBLE: 6.0}


def _near_erf(f: Formula, x: Value) -> Op:
    """erf to 2^-13.2, |x| <= 2.9"""
    z = f.mul(x, x)
    p = f.horner(z, (1.1282998323440552, 0.19806073606014252, 0.021446598693728447, -0.0004524938703980297))
    q = f.horner(z, (1.0, 0.5077176690101624, 0.09122782200574875))
    return f.mul(f.mul(p, near_reciprocal(f, q)), x)


def erf(f: Formula, x: Value) -> Op:
    x = f.wide(x)
    if f.level == HALF:
        return _near_erf(f, clamp(f, x, -2.9, 2.9))
    size = f.abs(x)
    bound = f.min(size, _ERF_ONE[f.compute])
    rest = reduce(f, f.horner(bound, _ERF_HIGH[f.level])).value(f)
    high = f.ior(f.add(1.0, -rest), f.sign_of(x))
    low = f.fma(f.horner(f.mul(x, x), _ERF_LOW[f.level]), x, x)
    return f.where(f.min(size, _ERF_EDGE), low, high)


#: Phi(x) = 1/2 + x p(x^2) up to the edge
_PHI_EDGE = 0.75
_PHI_LOW = {
    SINGLE: (0.3989423, -0.06649029, 0.009972349, -0.0011812851, 0.00010294061),
    DOUBLE: (
        0.3989422804014327, -0.06649038006690544, 0.00997355701003523, -0.001187328215467134, 0.00011543468746252424,
        -9.444655240320757e-06, 6.659652281996595e-07, -4.12163214725317e-08, 2.257745784654643e-09, -9.953334845614342e-11,
    ),
}  # fmt: skip
#: Phi(-x) = exp(-x^2 / 2) p(t) / (x + c) with t = (x - c) / (x + c), 0 <= x <= end: (c, end, p)
_PHI = {
    HALF: (3.0, 7.0, (0.7290507, -0.5093319, 0.23123683, -0.046717376, -0.016268674)),
    SINGLE: (3.5, 15.0, (
        0.74441606, -0.5655617, 0.3154251, -0.11605317, 0.017405821, 0.0064937267, -0.00317283, -0.00049504027, 0.00041832466,
        0.00010869454,
    )),
    DOUBLE: (5.0, 39.0, (
        0.769193049750063, -0.6653825028900567, 0.4953056159699773, -0.3135331566712962, 0.1650203661703374,
        -0.06911863870656997, 0.020795066800837668, -0.0029933767667063723, -0.0007978694080101491, 0.0005448990333960883,
        -5.937567478778111e-05, -4.976265493283079e-05, 1.6681041199331525e-05, 3.980384755132611e-06, -2.7689524134964614e-06,
        -3.355372644364589e-07, 4.328839927778603e-07, 4.088053834449967e-08, -6.601142183839145e-08, -8.294823941238207e-09,
        7.942127967536558e-09, 1.4319753213385332e-09, -3.028878022020211e-10,
    )),
}  # fmt: skip


def gelu(f: Formula, x: Value) -> Op:
    """x Phi(x) = max(x, 0) - |x| Phi(-|x|)"""
    x = f.wide(x)
    center, end, p = _PHI[f.level]
    size = f.min(f.abs(x), end)
    d, lost_d = words.plus(f, (size, None), (f.number(center), None))
    y = plain_reciprocal(f, d)
    t = f.mul(f.add(size, -center), y)
    t = f.fma(y, f.fma(-t, size, f.fma(f.add(t, 1.0), -center, size)), t)
    half = f.mul(size, 0.5)
    h = f.mul(size, half)
    parts = reduce(f, h, -1.0)
    if f.level != HALF:
        parts = Reduced(f.sub(parts.r, f.fma(size, half, -h)), parts.shift)
    # 2^less larger, for Phi alone is too small where |x| Phi is not
    less = {SINGLE: 64, DOUBLE: 512}[f.compute]
    n, lost_n = words.times(f, (f.horner(t, p), None), (size, None))
    y = f.mul(quotient(f, n, d, lost_d, lost_n), parts.value(f, -less))
    value = f.fma(y, -(2.0**-less), f.max(x, 0.0))
    if f.level == HALF:
        return value
    low = f.fma(f.horner(f.mul(x, x), _PHI_LOW[f.level]), x, 0.5)
    return f.where(f.min(size, _PHI_EDGE), f.mul(x, low), value)


#: the factors of x and x^3 in twice the argument of tanh, and what doubles round off them
_SLOPE = 1.5957691216057308, -9.96930880911092e-17
_CUBE = 0.07135481627260025, -6.175149918155315e-19


def gelu_tanh(f: Formula, x: Value) -> Op:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) = x sigmoid(x (a + b x^2)), the argument in two words"""
    x = f.max(x, -40.0)
    bound: words.Pair = f.min(x, 16.0), None
    curve = words.times(f, words.times(f, bound, bound), words.constant(f, *_CUBE))
    u, low = words.times(f, words.plus(f, curve, words.constant(f, *_SLOPE)), bound)
    return times_logistic(f, x, logistic(f, u, low))
