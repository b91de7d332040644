"""Compile a Graph and run it on the emulated machine, for tests of the pipeline.

Every run asserts that the emitted program passes the static checks and that the counted steps equal the simulated ones."""

from __future__ import annotations

import numpy as np

from mlsdk.device.engine.machine import Machine
from mlsdk.device.isa.checks import check
from mlsdk.pipeline.ir.bits import from_bits, to_bits
from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.ir.image import BITS, Image
from mlsdk.pipeline.layout import LayoutOptions, plan
from mlsdk.pipeline.ops.clock import Clock
from mlsdk.pipeline.ops.emitters.move import emit_move
from mlsdk.pipeline.ops.emitters.places import Take
from mlsdk.pipeline.ops.emitters.transfer import Tensor
from mlsdk.pipeline.ops.link import link
from mlsdk.pipeline.schedule import schedule

#: relative to the scale of the operands; half inputs are rounded to 10 bits, outputs again
TOLERANCE = {"float": 2.0**-22, "mixed": 2.0**-22, "half": 3 * 2.0**-10, "double": 2.0**-22}

_MACHINE = Machine()


def graph_of(op, inputs, outputs, attrs=None, constants=None):
    """A graph of one node; inputs and outputs as {name: (dtype, shape)}, constants as arrays."""
    constants = constants or {}
    values = {n: Value(n, d, tuple(s)) for n, (d, s) in {**inputs, **outputs}.items()}
    values |= {n: Value(n, str(a.dtype), a.shape) for n, a in constants.items()}
    node = Node(op, op, (*inputs, *constants), tuple(outputs), attrs or {})
    return Graph("g", tuple(inputs), tuple(outputs), (node,), values, constants)


def compiled(graph, float_dtype="float", options=None, **layout):
    placed, _ = plan(graph, LayoutOptions(float_dtype, **layout))
    the_plan = schedule(placed, options)
    program, tables = link(placed, the_plan)
    return placed, the_plan, program, tables


def steps_of(graph, float_dtype="float", **options):
    """Simulated steps."""
    return Clock().run(compiled(graph, float_dtype, **options)[2].statements)


def execute(statements, addresses, images):
    """Write images (address -> uint64[4][n]), run, and compare the counted steps with the simulated ones."""
    errors = [d for d in check(statements) if d.severity == "error"]
    assert not errors, errors[:3]
    for address, image in images.items():
        for g in range(4):
            _MACHINE.state.dram[g].write(address, image[g])
    stats = _MACHINE.run(statements, addresses)
    assert Clock().run(statements) == stats.total_steps
    return stats


def fetch(address, size):
    return np.stack([_MACHINE.state.dram[g].read(address, size) for g in range(4)])


def run(graph, inputs, float_dtype="float", options=None, **layout):
    """Outputs by name, and the counted steps. `options`: of the schedule; `layout`: more of LayoutOptions."""
    return execute_plan(graph, inputs, *compiled(graph, float_dtype, options, **layout))


def execute_plan(graph, inputs, placed, the_plan, program, tables):
    """Outputs by name, and the counted steps."""
    addresses = program.addresses()
    images = {addresses[name]: data for name, data in tables.items()}
    for name, value in placed.values.items():
        if value.origin == "constant":
            image = value.image.pack(to_bits(placed.data_of(value, graph.constants), value.device_dtype))
            images[addresses[the_plan.slots[name].segment]] = image
    for name in placed.inputs:
        value = placed.values[name]
        images[addresses[the_plan.slots[name].segment]] = value.image.pack(to_bits(inputs[name], value.device_dtype))
    stats = execute(program.statements, addresses, images)
    results = {}
    for name, shown in zip(placed.outputs, graph.outputs):
        value, slot = placed.values[name], the_plan.slots[name]
        image = fetch(addresses[slot.segment] + slot.offset, value.image.group_size)
        check_copies(name, value.image, image)
        results[shown] = from_bits(value.image.unpack(image), value.device_dtype, value.dtype)
    return results, stats


def check_copies(name, form, image):
    """All copies of an element agree, for its readers take whichever is near. `image`: uint64[4][group_size]."""
    held = form.pack(np.full(form.shape, np.iinfo(BITS[form.dtype]).max, BITS[form.dtype]))
    assert not ((image ^ form.pack(form.unpack(image))) & held).any(), f"{name}: copies differ in {form.layout}"


def compare(result, want, float_dtype, scale):
    assert result.shape == np.shape(want)
    if result.size:
        error = np.abs(result.astype(np.float64) - want)
        assert (error <= TOLERANCE[float_dtype] * scale + 1e-37).all(), error.max()


def move_between(x, dtype, source, target):
    """x, brought from one layout to another on the machine."""
    a, b = Image(source, dtype, x.shape), Image(target, dtype, x.shape)
    asm, tables = emit_move([Tensor(a, "in0")], Tensor(b, "out0"), [Take.same(x.shape)])
    asm.quiesce()
    addresses = {"in0": 0, "out0": a.group_size // 64 * 64 + 64}
    at = addresses["out0"] + b.group_size // 64 * 64 + 64
    images = {0: a.pack(to_bits(x, dtype))}
    for symbol, data in tables.items():
        addresses[symbol] = at
        images[at] = data
        at += data.shape[1] // 64 * 64 + 64
    execute(tuple(asm.statements), addresses, images)
    return from_bits(b.unpack(fetch(addresses["out0"], b.group_size)), dtype, "float32")
