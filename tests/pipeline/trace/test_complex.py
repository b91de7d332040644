"""Complex numbers: the traced graph, which has pairs of real tensors, gives what eager torch gives."""

from __future__ import annotations

import pytest
import torch
from agreement import agree

from mlsdk.errors import InputMismatch, TraceError, UnsupportedOperator
from mlsdk.pipeline.trace.trace import trace


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


a, b, line = numbers(2, 6, 8), numbers(2, 6, 8, seed=1), numbers(2, 160, seed=2)
fft, real = torch.fft, torch.view_as_real
window = torch.hann_window(32)


def both(a, b):
    return torch.complex(a, b), torch.complex(b, a) + 2


def rotary(a):
    """Positions as rotations, as in Llama."""
    angles = torch.outer(torch.arange(6.0), 1 / 10000 ** (torch.arange(4.0) / 4))
    turned = torch.view_as_complex(a.reshape(2, 6, 4, 2)) * torch.polar(torch.ones_like(angles), angles)
    return real(turned).flatten(2)


def arithmetic(a, b):
    z, w = both(a, b)
    sums = (z * w + 1 - 2j) / (w + 3), 2 - z, 1j * z, z / 2, a * z, z - b, 1 / z
    return *map(real, sums), z.conj().imag, z.abs(), z.angle(), (z.conj() * w).real


def functions(a, b):
    z, w = both(a, b)
    return tuple(map(real, (z**3, z.exp(), z.sqrt(), w.log(), torch.sgn(z), torch.where(a > 0, z, w), w**0.5)))


def products(a, b):
    z, w = both(a, b)
    return tuple(map(real, (torch.einsum("bik,bjk->bij", z, w), z[0] @ w[1].T, torch.addmm(w[0, :, :6], z[0], w[1].T))))


def moves(a, b):
    z, w = both(a, b)
    parts = z.transpose(1, 2).reshape(2, -1), z.sum(1), w.mean(-1), z[:, 0], z.permute(2, 0, 1)[3], w.flip(1)[:, 1]
    return real(torch.cat(parts, 1)), real(torch.stack(z.split(4, -1))), real(z.roll(1, 2)), real(a + 0j)


def written(a, b):
    low = torch.zeros(2, 6, 5, dtype=torch.complex64)
    low[..., :3] = fft.rfft(a)[..., :3] * both(a, b)[1][..., :3]
    return fft.irfft(low, n=8)


def gradient(a, b):
    a = a.detach().requires_grad_()
    y = fft.irfft(fft.rfft(a) * torch.complex(b, b)[..., :5]).pow(2).sum() + torch.complex(a, b).abs().sum()
    return torch.autograd.grad(y, a)[0]


FUNCTIONS = {
    "rotary": (rotary, a),
    "arithmetic": (arithmetic, a, b),
    "functions": (functions, a, b),
    "products": (products, a, b),
    "moves": (moves, a, b),
    "written": (written, a, b),
    "gradient": (gradient, a, b),
    "fft": (lambda a: real(fft.fft(a)), a),
    "vector": (lambda x: real(fft.fft(x)), line[0]),
    "taken apart": (lambda a, b: real(torch.addcmul(both(a, b)[0], *both(b, a), value=2)), a, b),
    "fft2": (lambda a: (fft.fft2(a, norm="ortho").real, fft.fftn(a, dim=(0, 2), norm="forward").imag), a),
    "ifft": (lambda a, b: real(fft.ifft(torch.complex(a, b), dim=1)), a, b),
    "rfft": (lambda a: (real(fft.rfft(a, dim=1)), real(fft.rfft2(a))), a),
    "irfft": (lambda a: (fft.irfft(fft.rfft(a)), fft.irfft(fft.rfft(a, n=7), n=7), fft.irfft2(fft.rfft2(a) * 2j)), a),
    "phase": (lambda a: (fft.rfft(a, n=8).angle(), fft.rfft(-a.abs()).angle()), a),
    "shift": (lambda a: real(fft.fftshift(fft.fft(a))), a),
    "long": (lambda x: (real(fft.rfft(x)), real(fft.fft(x[:, :131]))), line),
    "stft": (lambda x: torch.stft(x, 32, 8, window=window, return_complex=True).abs(), line),
    "istft": (
        lambda x: torch.istft(torch.stft(x, 32, 8, window=window, return_complex=True), 32, 8, window=window),
        line,
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name):
    agree(*FUNCTIONS[name])


def test_a_complex_constant_of_the_closure():
    table = torch.polar(torch.ones(4), torch.arange(4.0))
    with pytest.warns(Warning, match="not registered"):
        agree(lambda a: real(torch.view_as_complex(a.reshape(2, 6, 4, 2)) * table), a)


def test_what_is_refused():
    with pytest.raises(TraceError, match=r"result y is complex64; return its parts: torch.view_as_real"):
        trace(lambda inputs: {"y": fft.fft(inputs["x"])}, {"x": a})
    with pytest.raises(InputMismatch, match=r"input x has dtype complex64; .*give torch.view_as_real"):
        trace(lambda inputs: {"y": inputs["x"].real}, {"x": torch.complex(a, b)})
    with pytest.raises(UnsupportedOperator) as caught:  # what depends on it is not listed
        trace(lambda inputs: {"y": (fft.fft(inputs["x"]).tan() * 2).real}, {"x": a})
    assert [misuse.what for misuse in caught.value.misuses] == ["aten::tan on complex64"]
