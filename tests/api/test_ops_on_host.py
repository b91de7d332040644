"""CODEGEN_OPS_ON_HOST: operators that the host computes, between stretches of the program."""

from __future__ import annotations

import json

import pytest
import torch

from mlsdk import Context, MNCoreSGD, MNDevice, set_buffer_name_in_optimizer, set_tensor_name
from mlsdk.errors import OptionError
from mlsdk.pipeline.ir import archive
from mlsdk.pipeline.ir.application import Application


def block(inputs):
    """Softmax in the middle and at the end, a chain around it that would be fused, and an output of two readers."""
    x = torch.relu(inputs["x"] @ inputs["w"]) + 0.5
    p = torch.softmax(x, -1)
    q = torch.softmax(torch.tanh(p * 2) @ inputs["w"].mT, -1)
    return {"p": p, "q": q, "sum": p.sum(0)}


@pytest.fixture
def sample():
    return {"x": torch.randn(5, 7), "w": torch.randn(7, 11)}


def on_host(names: str, **more: str) -> dict:
    return {"options": {"envs": {"CODEGEN_OPS_ON_HOST": names, **more}}}


@pytest.mark.parametrize("merge", ["0", "1"])  # 1: moves overlap, but not past the host
@pytest.mark.parametrize("names", ["Softmax", "Relu,Add", "MatMul, Tanh", "ReduceSum"])
def test_results_are_right(context, tmp_path, sample, names, merge):
    function = context.compile(block, sample, tmp_path / "app", **on_host(names, CODEGEN_USE_MERGE=merge))
    for _ in range(2):
        sample = {"x": torch.randn(5, 7), "w": torch.randn(7, 11)}
        got, want = function(sample), block({k: v.double() for k, v in sample.items()})
        for key in want:
            torch.testing.assert_close(got[key].cpu(), want[key].float(), rtol=2e-5, atol=2e-6)


def test_the_program_holds_no_instruction_of_them(context, tmp_path, sample):
    context.compile(block, sample, tmp_path / "board")
    context.compile(block, sample, tmp_path / "host", **on_host("Softmax"))
    rows = json.loads((tmp_path / "host" / "simulation_result.json").read_text())["rows"]
    assert [row["end"] - row["start"] for row in rows if row["op"] == "Softmax"] == [0, 0]
    application = Application.from_bytes(archive.decompress((tmp_path / "host" / "model.app.zst").read_bytes()))
    assert [call.node.op for call in application.host.values()] == ["Softmax", "Softmax"]
    assert Application.from_bytes(application.to_bytes()).host == application.host


def test_it_is_loaded_again(context, tmp_path, sample):
    want = context.compile(block, sample, tmp_path / "app", **on_host("Softmax"))(sample)
    with Context(MNDevice("emu2")) as other:
        got = other.load_codegen_dir(tmp_path / "app")(sample)
        assert all(torch.equal(got[key].cpu(), want[key].cpu()) for key in want)


def test_proxies_go_in_at_their_place(context, tmp_path, sample):
    first = context.compile(block, sample, tmp_path / "app", **on_host("Softmax"))
    second = context.compile(lambda d: {"y": torch.softmax(d["p"], 0)}, {"p": torch.randn(5, 11)},
                             tmp_path / "next", **on_host("Softmax"))  # fmt: skip
    result = first(sample)
    torch.testing.assert_close(second({"p": result["p"]})["y"].cpu(), torch.softmax(result["p"].cpu(), 0))


def test_counted_steps_are_the_simulated(context, tmp_path, sample):
    function = context.compile(block, sample, tmp_path / "app", **on_host("Softmax,Tanh"))
    steps = json.loads((tmp_path / "app" / "simulation_result.json").read_text())["steps"]
    assert function._program.run(function._program.buffers) == steps


def test_training_state_stays(context, tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = MNCoreSGD(model.parameters(), lr=0.1)
    reference = torch.nn.Linear(3, 2)
    reference.load_state_dict(model.state_dict())
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)

    def step(net, optimizer, x):
        optimizer.zero_grad()
        loss = torch.tanh(net(x)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for name, parameter in model.named_parameters():
        set_tensor_name(parameter, name)
        context.register_param(parameter)
    set_buffer_name_in_optimizer(optimizer, "sgd")
    context.register_optimizer_buffers(optimizer)
    x = torch.randn(4, 3)
    function = context.compile(
        lambda inputs: {"loss": step(model, optimizer, inputs["x"])}, {"x": x}, tmp_path / "step", **on_host("Tanh")
    )
    for _ in range(3):
        x = torch.randn(4, 3)
        torch.testing.assert_close(function({"x": x})["loss"].cpu(), step(reference, plain, x).detach())
    context.synchronize()
    torch.testing.assert_close(model.weight, reference.weight)


def test_a_wrong_name_is_told(context, tmp_path, sample):
    with pytest.raises(OptionError, match="there is no operator 'Softmaxx'; did you mean 'Softmax'"):
        context.compile(block, sample, tmp_path / "app", **on_host("Softmaxx"))
