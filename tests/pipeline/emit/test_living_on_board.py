"""Operands that live in LM: every node of some networks, with each operand and each result in either LM, on the machine.

What a node leaves in LM has to be what a download of its result in DRAM brings, in every PE; and what it computes from an
operand in LM the same bits as from DRAM. LM holds rubbish before."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from emulated import _MACHINE, compiled, execute, fetch
from test_networks_on_board import Encoder, MobileNet
from torch import nn

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.bits import to_bits
from mlsdk.pipeline.ir.image import BITS
from mlsdk.pipeline.ir.placed import VIEW, ZERO
from mlsdk.pipeline.ir.plan import INPUT, Home, Plan, Segment, Slot, Step
from mlsdk.pipeline.ir.program import renamed
from mlsdk.pipeline.ops.emitters import emit_anew, fragment_key
from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.home import LM, Lives, settled, written
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, bulk_download
from mlsdk.pipeline.ops.link import link
from mlsdk.pipeline.optimize import optimize
from mlsdk.pipeline.trace import trace


class Pooled(nn.Module):
    """A convolution that shares rows out, a pool, and sums of what they give."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, 1, 1), nn.Conv2d(16, 16, 3, 1, 1)

    def forward(self, x):
        y = torch.relu(self.first(x))
        return torch.nn.functional.max_pool2d(y + torch.sigmoid(self.second(y)), 2).amax((2, 3))


NETS = {
    "encoder": (lambda: Encoder(32, 2), (1, 16, 32), "float"),
    "wide encoder": (lambda: Encoder(128, 4), (1, 64, 128), "mixed"),
    "mobile net": (lambda: MobileNet(8), (1, 3, 16, 16), "mixed"),
    "pooled": (Pooled, (1, 3, 24, 24), "float"),
}
RUBBISH = np.random.default_rng(1).integers(0, 2**32, (4096, 4096), np.uint32)


@pytest.fixture(scope="module", params=[pytest.param(n, marks=pytest.mark.slow) if "wide" in n else n for n in NETS])
def board(request):
    """All values of a network in DRAM, each at a place of its own."""
    make, shape, dtype = NETS[request.param]
    torch.manual_seed(0)
    net = make().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = optimize(trace(lambda batch: {"y": net(batch["x"])}, {"x": torch.randn(shape)}).graph)
    placed, plan, _, _ = compiled(graph, dtype)
    base = {p.node.outputs[0]: p.node.inputs[0] for p in placed.nodes if p.emitter == VIEW}

    def of(value):
        while value in base:
            value = base[value]
        return value

    slots = {value: Slot(f"v:{of(value)}") for value in placed.values}
    sizes = {of(v): -(-placed.values[of(v)].image.group_size // 64) * 64 for v in placed.values}
    segments = {f"v:{v}": Segment(f"v:{v}", INPUT, size) for v, size in sizes.items()}
    program, tables = link(placed, Plan("apart", plan.steps, slots, segments))
    addresses = program.addresses()
    images = {addresses[segment]: data for segment, data in tables.items()}
    rng = np.random.default_rng(0)
    for value, v in placed.values.items():
        if v.origin == "constant":
            bits = to_bits(placed.data_of(v, graph.constants), v.device_dtype)
        elif value in placed.inputs:
            bits = to_bits(rng.standard_normal(v.shape), v.device_dtype)
        else:
            continue
        images[addresses[slots[value].segment]] = v.image.pack(bits)
    execute(program.statements, addresses, images)
    return placed, addresses


def candidates(node):
    """Each operand and each result alone in each LM, results with and without a copy in DRAM, and all of them in one LM."""
    inputs, outputs = node.inputs, [o for o in node.outputs if o]
    none, dram = ("",) * len(inputs), (True,) * len(outputs)
    for space in LM:
        for i, name in enumerate(inputs):
            if name:
                yield Lives((*none[:i], space, *none[i + 1 :]), ("",) * len(outputs), dram)
        for stored in (True, False):
            yield Lives(none, (space,) * len(outputs), (stored,) * len(outputs))
        yield Lives(tuple(space if name else "" for name in inputs), (space,) * len(outputs), dram)


def test_every_operand_that_a_node_takes_in_lm(board):
    placed, addresses = board
    taken, kept, seen = 0, 0, {""}
    for p in placed.nodes:
        key = fragment_key(p, placed.values) if p.emitter != VIEW else ""
        if key in seen:
            continue
        seen.add(key)
        for lives in candidates(p.node):
            try:
                fragment = emit_anew(p, placed.values, lives)
            except EmitError:
                continue
            homes = places(placed, p.node, lives, fragment)
            if homes is None:
                continue
            check(placed, addresses, p.node, lives, fragment, homes)
            taken += any(lives.reads)
            kept += any(lives.keeps)
    assert (
        taken > 1 and kept > 1
    )  # what stands behind a convolution is a part of it, which leaves few nodes of some networks


def places(placed, node, lives, fragment):
    """A place for each operand that lives in LM, beside what the node writes: operand -> Home; None where there is no room."""
    names = [*node.inputs, *(o for o in node.outputs if o)]
    free = {space: ~fragment.written.get((space, 0), 0) & (1 << 2048) - 1 for space in LM}
    homes = {}
    for index, (name, space) in enumerate(zip(names, (*lives.reads, *lives.keeps))):
        if not space:
            continue
        size = -(-placed.values[name].image.addresses // 16) * 16 + 16
        at = next((a for a in range(0, 2048 - size, 8) if free[space] >> a & (1 << size) - 1 == (1 << size) - 1), None)
        if at is None:
            return None
        free[space] &= ~((1 << size) - 1 << at)
        homes[index] = Home(space, 2 * at)
    return homes


def check(placed, addresses, node, lives, fragment, homes):
    names = [*node.inputs, *(o for o in node.outputs if o)]
    pe = _MACHINE.state.pe
    for space in LM:
        pe[space][: len(RUBBISH)] = RUBBISH
    for index, home in homes.items():
        if index < len(node.inputs):
            bring(placed, addresses, names[index], home)
    outputs = names[len(node.inputs) :]
    before = {name: dram(placed, addresses, name) for name in outputs}
    symbols = {f"in{i}": Slot(f"v:{source(placed, name)}") for i, name in enumerate(node.inputs) if name}
    symbols |= {f"out{i}": Slot(f"v:{source(placed, name)}") for i, name in enumerate(outputs)}
    at = {**addresses, **{symbol: 1 << 24 for symbol in fragment.constants}}
    images = {}
    for number, (symbol, data) in enumerate(fragment.constants.items()):
        at[symbol] = (1 << 24) + (number << 18)
        images[at[symbol]] = data
        symbols[symbol] = Slot(symbol)
    code = tuple(settled(renamed(fragment.statements, symbols), {i: home.word for i, home in homes.items()}))
    assert all(place == 0 for _, place in written(code)), "a place was left open"
    execute(code, at, images)
    told = f"{node.name} {lives}"
    for name, there in before.items():
        v = placed.values[name]
        assert np.array_equal(v.image.unpack(dram(placed, addresses, name)), v.image.unpack(there)), told
    for index, home in homes.items():
        if index >= len(node.inputs):
            image = placed.values[names[index]].image
            left = pe[home.space][home.word : home.word + 2 * image.addresses].copy()
            other = LM[1 - LM.index(home.space)]
            bring(placed, addresses, names[index], Home(other, 0))
            want = pe[other][: 2 * image.addresses].copy()
            data = held(placed.values[names[index]])
            zeros = (want == 0) & data.any(axis=0) & (placed.values[names[index]].pad == ZERO)
            assert (left == want)[data | zeros].all(), f"{told}: {image.layout}"


def held(value):
    """Which words of LM hold elements of a value: [word, PE]."""
    image = value.image
    ones = image.pack(np.full(value.shape, ~BITS[value.device_dtype](0)))
    _MACHINE.state.l2bm[:] = 0  # L2Bs that take no part keep what they have
    execute((), {}, {1 << 26: ones})
    download(Tensor(image, "held"), {"held": 1 << 26}, Home(m.LM0, 0))
    return _MACHINE.state.pe[m.LM0][: 2 * image.addresses] != 0


def bring(placed, addresses, name, home):
    download(Tensor(placed.values[name].image, f"v:{source(placed, name)}"), addresses, home)


def download(tensor, addresses, home):
    asm, image, symbol = Asm(), tensor.image, tensor.symbol
    bulk_download(asm, Range.of(Tensor(image, symbol), 0, image.addresses), home.space, home.word, 0, 16384, 0, 4096)
    asm.quiesce()
    execute(tuple(asm.statements), addresses, {})


def dram(placed, addresses, name):
    return fetch(addresses[f"v:{source(placed, name)}"], placed.values[name].image.group_size)


def source(placed, name):
    base = {p.node.outputs[0]: p.node.inputs[0] for p in placed.nodes if p.emitter == VIEW}
    while name in base:
        name = base[name]
    return name


def test_a_step_is_written_and_read_as_json():
    step = Step("n", "why", ((0, Home(m.LM0, 64)),), ((0, Home(m.LM1, 0)), (1, Home(m.LM0, 16))), (1,))
    plan = Plan("x", (step, Step("o")), {}, {})
    assert Plan.from_json(plan.to_json()) == plan
    assert Lives.of(step, 2, 2) == Lives((m.LM0, ""), (m.LM1, m.LM0), (True, False))
    assert Lives.of(replace(step, reads=(), keeps=(), only=()), 2, 2) == Lives()
