"""An operator that a package outside brings: traced, planned, emitted and run on the board."""

import os
import subprocess
import sys
import textwrap

PLUGIN = """
import numpy as np

def cube(f, x):
    return f.mul(f.mul(x, x), x)

def setup(registry):
    from mlsdk.pipeline.ops.table import Operator

    same = lambda node, inputs: [(inputs[0].dtype, inputs[0].shape)]
    registry.operator(Operator("DemoCube", same, lambda node, inputs: [inputs[0] ** 3], "x * x * x.", family="elementwise"))
    registry.kernel("DemoCube", cube)
    registry.lowering("demo::cube", lambda b, out, x: b.op("DemoCube", x))
    registry.operator(Operator("DemoSquare", same, lambda node, inputs: [inputs[0] ** 2], "x * x.", family="elementwise"))
    registry.rule("DemoSquare", lambda planner, node: planner.apply(
        node, "Mul", (node.inputs[0], node.inputs[0]), planner.shape(node.inputs[0]), out=node.outputs[0]) and None)
    registry.lowering("demo::square", lambda b, out, x: b.op("DemoSquare", x))

import sys
if "torch" in sys.modules:
    import torch
    torch.library.define("demo::cube", "(Tensor x) -> Tensor")
    torch.library.impl("demo::cube", "CompositeExplicitAutograd", lambda x: x * x * x)
    torch.library.register_fake("demo::cube", lambda x: torch.empty_like(x))
    torch.library.define("demo::square", "(Tensor x) -> Tensor")
    torch.library.impl("demo::square", "CompositeExplicitAutograd", lambda x: x * x)
    torch.library.register_fake("demo::square", lambda x: torch.empty_like(x))
"""
PROGRAM = """
import sys
import torch
from mlsdk import Context, MNDevice

def function(inputs):
    return {"y": torch.ops.demo.cube(inputs["x"]) + torch.ops.demo.square(inputs["x"])}

x = torch.randn(5, 7)
for device in ("pfvm:cpu", "emu2"):
    with Context(MNDevice(device)) as context:
        y = context.compile(function, {"x": x}, sys.argv[1] + device[:4])({"x": x})["y"].cpu()
    assert torch.allclose(y, x ** 3 + x * x, atol=1e-5), device
print("right")
"""
BROKEN = "def setup(registry):\n    raise ValueError('no licence')\n"


def installed(folder, source):
    """A package demo 1.0 with the entry point, without pip."""
    (folder / "demo_operators.py").write_text(textwrap.dedent(source))
    info = folder / "demo-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mlsdk.operators]\ndemo = demo_operators:setup\n")


def run(folder, program, *arguments):
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MLSDK_STORE": str(folder / "store")}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_an_operator_from_outside(tmp_path):
    installed(tmp_path, PLUGIN)
    done = run(tmp_path, PROGRAM, str(tmp_path / "out"))
    assert done.stdout.strip().endswith("right"), done.stderr[-2000:]
    keys = run(tmp_path, "from mlsdk.pipeline.ir import plugins; print(plugins.versions())")
    assert "{'plug-in demo': '1.0'}" in keys.stdout


def test_a_plug_in_that_fails_is_named(tmp_path):
    installed(tmp_path, BROKEN)
    done = run(tmp_path, "import mlsdk.pipeline.ops")
    assert "plug-in demo (demo_operators:setup): ValueError: no licence; correct it" in done.stderr
