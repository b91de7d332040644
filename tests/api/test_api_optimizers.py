"""Optimizers in compiled training steps, held against torch's own."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch.nn.functional import mse_loss

from mlsdk import (
    Context,
    MNCoreAdam,
    MNCoreAdamW,
    MNCoreLRScheduler,
    MNCoreOptimizer,
    MNCoreSGD,
    MNDevice,
    set_buffer_name_in_optimizer,
    set_tensor_name_in_module,
)
from mlsdk.errors import ContextError, TraceWarning

SETTINGS = {
    "sgd": (MNCoreSGD, torch.optim.SGD, {"lr": 0.1}),
    "momentum": (MNCoreSGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "nesterov": (MNCoreSGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "dampening": (MNCoreSGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    "maximize": (MNCoreSGD, torch.optim.SGD, {"lr": 0.01, "maximize": True}),
    "adam": (MNCoreAdam, torch.optim.Adam, {"lr": 0.01, "betas": (0.8, 0.99), "eps": 1e-6, "weight_decay": 0.1}),
    "amsgrad": (MNCoreAdam, torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
    "adamw": (MNCoreAdamW, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
}


def network():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def trained(model, optimizer, data, steps=4, schedule=None):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = mse_loss(model(data["x"]), data["y"])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if schedule is not None:
            schedule.step()
    return losses


@pytest.fixture
def data():
    return {"x": torch.randn(5, 6), "y": torch.randn(5, 3)}


def compiled(context, model, optimizer, data, directory):
    set_tensor_name_in_module(model, "model")
    for parameter in model.parameters():
        context.register_param(parameter)
    set_buffer_name_in_optimizer(optimizer, "optimizer")
    context.register_optimizer_buffers(optimizer)

    def step(inputs):
        optimizer.zero_grad()
        loss = mse_loss(model(inputs["x"]), inputs["y"])
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    return context.compile(step, data, directory)


def parameters_equal(model, other, atol=1e-5):
    return all(torch.allclose(a, b, atol=atol) for a, b in zip(model.parameters(), other.parameters()))


@pytest.mark.parametrize("which", SETTINGS)
def test_on_the_host_it_is_torchs_optimizer(data, which):
    ours, theirs, settings = SETTINGS[which]
    model = network()
    other = copy.deepcopy(model)
    trained(model, ours(model.parameters(), **settings), data)
    trained(other, theirs(other.parameters(), **settings), data)
    assert parameters_equal(model, other, 1e-6)


@pytest.mark.parametrize("which", SETTINGS)
def test_a_compiled_step_is_torchs_step(host, tmp_path, data, which):
    ours, theirs, settings = SETTINGS[which]
    model = network()
    other = copy.deepcopy(model)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    step = compiled(host, model, ours(model.parameters(), **settings), data, tmp_path / "step")
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))  # the trace changed nothing
    losses = [step(data)["loss"] for _ in range(4)]
    expected = trained(other, theirs(other.parameters(), **settings), data)
    assert torch.allclose(torch.tensor([loss.item() for loss in losses]), torch.tensor(expected), atol=1e-5)
    host.synchronize()
    assert parameters_equal(model, other)


def test_training_on_the_board(context, tmp_path):
    """The operators of this step have emitters; what a real network needs beside them is tested on pfvm."""
    weight = torch.nn.Parameter(torch.randn(8, 4))
    model = torch.nn.ParameterList([weight])
    other = weight.detach().clone().requires_grad_()
    optimizer = MNCoreSGD(model.parameters(), 0.1, 0.9, 0.0)
    context.registry.register("model", model)
    context.registry.register("optimizer", optimizer)

    def step(inputs):
        optimizer.zero_grad()
        loss = (inputs["x"] @ weight * inputs["y"]).sum()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    data = {"x": torch.randn(5, 8), "y": torch.randn(5, 4)}
    compiled_step = context.compile(step, data, tmp_path / "step")
    theirs = torch.optim.SGD([other], 0.1, 0.9, 0.0)
    for _ in range(3):
        ours = compiled_step(data)["loss"]
        theirs.zero_grad()
        loss = (data["x"] @ other * data["y"]).sum()
        loss.backward()
        theirs.step()
        assert ours.item() == pytest.approx(loss.item(), rel=1e-4)
    context.synchronize()
    assert torch.allclose(weight, other, atol=1e-5)
    assert context.counters.conversions == 0  # new weights lie where the old ones did


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_schedule_on_the_host_reaches_the_program(host, tmp_path, data, wrapped):
    model = network()
    other = copy.deepcopy(model)
    optimizer = MNCoreSGD(model.parameters(), lr=0.5, momentum=0.9)
    step = compiled(host, model, optimizer, data, tmp_path / "step")
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)
    if wrapped:
        schedule = MNCoreLRScheduler(schedule, host)
    for _ in range(6):
        step(data)
        schedule.step()
    assert schedule.get_last_lr() == [pytest.approx(0.0005)]
    theirs = torch.optim.SGD(other.parameters(), lr=0.5, momentum=0.9)
    trained(other, theirs, data, 6, torch.optim.lr_scheduler.StepLR(theirs, 2, 0.1))
    host.synchronize()
    assert parameters_equal(model, other)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0005)


def test_what_is_no_schedule(host):
    optimizer = MNCoreSGD(network().parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for given, wrong in (
        ((optimizer, host), "MNCoreSGD is no torch scheduler"),
        ((host, schedule), "Context is no torch scheduler"),
        ((schedule, host.device), "MNDevice is no Context"),
    ):
        with pytest.raises(ContextError, match=f"takes a torch scheduler and a Context, and {wrong}"):
            MNCoreLRScheduler(*given)


OLD = [
    (MNCoreAdam, {"learning_rate": 0.1, "alpha": 0.9, "beta": 0.999, "norm_coefficient": 0, "epsilon": 1e-8}),
    (MNCoreAdamW, {"learning_rate": 0.1, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}),
]


@pytest.mark.parametrize("kind, keywords", OLD)
def test_old_keywords_fail_before_the_parameters_are_consumed(kind, keywords):
    parameters = filter(lambda p: p.requires_grad, network().parameters())
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        kind(parameters, **keywords)
    assert len(list(parameters)) == 4


def test_they_are_torch_optimizers():
    model = network()
    for kind in (MNCoreSGD, MNCoreAdam, MNCoreAdamW):
        optimizer = kind(model.parameters(), lr=0.1)
        assert isinstance(optimizer, MNCoreOptimizer) and isinstance(optimizer, torch.optim.Optimizer)
    optimizer = MNCoreAdam(model.parameters(), lr=0.1, chainer_use_torch=True)
    assert optimizer.param_groups[0]["lr"] == 0.1
    for keywords in ({"lr": -1}, {"betas": (1.0, 0.9)}, {"eps": -1}, {"weight_decay": -0.1}):
        with pytest.raises(ValueError, match="Invalid"):
            MNCoreAdam(model.parameters(), **keywords)


@pytest.mark.parametrize("which", ["momentum", "dampening", "adam", "adamw"])
def test_state_travels_to_torch_and_back(data, which):
    ours, theirs, settings = SETTINGS[which]
    model = network()
    other = copy.deepcopy(model)
    optimizer, reference = ours(model.parameters(), **settings), theirs(other.parameters(), **settings)
    trained(model, optimizer, data, 2)
    trained(other, reference, data, 2)
    own = [tensor for state in optimizer.state.values() for tensor in state.values()]
    saved = reference.state_dict()
    optimizer.load_state_dict(saved)
    now = [tensor for state in optimizer.state.values() for tensor in state.values()]
    assert {id(tensor) for tensor in own} <= {id(tensor) for tensor in now}  # the tensors that are registered
    if which != "dampening":  # torch does not count its steps
        reference.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        assert trained(model, optimizer, data, 2) == pytest.approx(trained(other, reference, data, 2), abs=1e-5)


def test_state_is_registered_under_the_parameters_name(host, tmp_path, data):
    model = network()
    optimizer = MNCoreAdam(model.parameters())
    compiled(host, model, optimizer, data, tmp_path / "step")
    names = list(host.registry.state())
    assert "optimizer@model@0_weight@exp_avg_sq" in names and "optimizer@0@learning_rate" in names


def test_synchronize_brings_the_state_back(host, tmp_path, data):
    model = network()
    optimizer = MNCoreAdam(model.parameters())
    step = compiled(host, model, optimizer, data, tmp_path / "step")
    for _ in range(3):
        step(data)
    host.synchronize()
    state = optimizer.state[model[0].weight]
    assert state["step"].item() == 3 and state["exp_avg_sq"].abs().sum() > 0
    assert optimizer.state_dict()["state"][0]["step"].item() == 3


def test_what_is_no_optimizer():
    with pytest.raises(ContextError, match="an optimizer is wanted, not list"):
        set_buffer_name_in_optimizer([], "optimizer")


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("kind", [partial(torch.optim.SGD, momentum=0.9), torch.optim.Adagrad], ids=["SGD", "Adagrad"])
def test_training_by_the_older_interface(host, tmp_path, data, given, kind):
    model = network()
    other = copy.deepcopy(model)
    host.registry.register("model0", model)
    optimizer = kind(model.parameters(), lr=0.1)
    host.registry.register("optimizer0", optimizer)

    def loss_only(inputs):
        return {"loss": mse_loss(model(inputs["x"]), inputs["y"])}

    step = host.compile(loss_only, data, tmp_path / "step", options={"backprop": True}, optimizers=[optimizer])
    losses = []
    for number in range(4):
        extra = {
            "optimizer0@0@mncore_learning_rate": torch.tensor(0.1),
            "optimizer0@0@mncore_global_step": torch.tensor(number),
            "mncore_grad_scale_factor": torch.tensor(1),
        }
        losses.append(step({**data, **(extra if given else {})})["loss"].item())
    theirs = kind(other.parameters(), lr=0.1)
    assert losses == pytest.approx(trained(other, theirs, data), abs=1e-5)
    host.synchronize()
    assert parameters_equal(model, other)
    assert optimizer.param_groups[0]["lr"] == 0.1
    with pytest.warns(TraceWarning, match="backprop is given, but loss_only changes no registered tensor"):
        host.compile(loss_only, data, tmp_path / "alone", options={"backprop": True})


def test_a_trained_model_is_evaluated_in_the_same_context(host, tmp_path, data):
    model = network()
    step = compiled(host, model, MNCoreSGD(model.parameters(), 0.1, 0.9, 0.0), data, tmp_path / "step")
    for _ in range(5):
        step(data)
    evaluate = host.compile(lambda i: {"out": model(i["x"])}, {"x": data["x"]}, tmp_path / "evaluate")
    out = evaluate(data)["out"].cpu()
    host.synchronize()
    assert torch.allclose(out, model(data["x"]), atol=1e-6)
    with Context(MNDevice("pfvm:cpu")) as elsewhere:
        assert torch.allclose(elsewhere.load_codegen_dir(tmp_path / "evaluate")(data)["out"].cpu(), out, atol=1e-6)
