"""What training programs do besides: schedules, clipping, accumulation, frozen and tied parameters, evaluation, errors."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training_nets import NETS, agree, all_agree, mlp, pair, register, register_gradients, step_of

from mlsdk import MNCoreAdam, MNCoreLRScheduler, MNCoreSGD
from mlsdk.errors import MLSDKError, TraceWarning, UnregisteredTensorWarning

TOLERANCE = 5e-5


@pytest.fixture
def batches():
    return [NETS["mlp"][1]() for _ in range(4)]


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_schedule_needs_no_new_compile(any_context, tmp_path, batches, wrapped):
    ours, theirs = pair("mlp", "momentum")
    register(any_context, *ours)
    step = any_context.compile(step_of(*ours), batches[0], tmp_path / "step", quiet=True)
    mine = torch.optim.lr_scheduler.StepLR(ours[1], 1, 0.3)
    schedules = [
        MNCoreLRScheduler(mine, any_context) if wrapped else mine,
        torch.optim.lr_scheduler.StepLR(theirs[1], 1, 0.3),
    ]
    eager = step_of(*theirs)
    for batch in batches:
        agree(step(batch)["loss"].cpu(), eager(batch)["loss"].detach(), TOLERANCE)
        for schedule in schedules:
            schedule.step()
    any_context.synchronize()
    all_agree(ours, theirs, TOLERANCE)


CYCLES = {
    "one_cycle": ("momentum", lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.5, total_steps=6)),
    "one_cycle_adam": ("adamw", lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=6)),
    "cyclic": ("dampening", lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.1, 0.5, step_size_up=2)),
}


@pytest.mark.parametrize("name", CYCLES)
def test_a_schedule_of_the_momentum(any_context, tmp_path, batches, name):
    kind, schedule = CYCLES[name]
    ours, theirs = pair("mlp", kind)
    register(any_context, *ours)
    schedules = [schedule(ours[1]), schedule(theirs[1])]
    step = any_context.compile(step_of(*ours), batches[0], tmp_path / "step", quiet=True)
    eager = step_of(*theirs)
    for batch in batches:
        agree(step(batch)["loss"].cpu(), eager(batch)["loss"].detach(), TOLERANCE)
        for each in schedules:
            each.step()
    any_context.synchronize()
    all_agree(ours, theirs, TOLERANCE)


def test_settings_that_a_program_does_not_follow(host, tmp_path, batches):
    ours, _ = pair("mlp", "momentum")
    register(host, *ours)
    step = host.compile(step_of(*ours), batches[0], tmp_path / "step", quiet=True)
    step(batches[0])
    ours[1].param_groups[0]["weight_decay"] = 0.5
    with pytest.warns(TraceWarning, match=r"weight_decay of parameter group 0 is 0.5 now, and 0.01 in the programs"):
        step(batches[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(batches[2])


@pytest.mark.parametrize("clip", ["norm", "value"])
def test_gradients_are_clipped(any_context, tmp_path, batches, clip):
    ours, theirs = pair("mlp", "sgd")

    def clipped(model, optimizer):
        def step(inputs):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs["x"]), inputs["y"])
            loss.backward()
            if clip == "norm":
                norm = nn.utils.clip_grad_norm_(model.parameters(), 0.2)
            else:
                nn.utils.clip_grad_value_(model.parameters(), 0.02)
                norm = loss
            optimizer.step()
            return {"loss": loss, "norm": norm}

        return step

    register(any_context, *ours)
    step = any_context.compile(clipped(*ours), batches[0], tmp_path / "step", quiet=True)
    for batch in batches[:2]:
        expected = clipped(*theirs)(batch)
        result = step(batch)
        agree(result["norm"].cpu(), expected["norm"].detach(), TOLERANCE)
    any_context.synchronize()
    all_agree(ours, theirs, TOLERANCE)


def test_gradients_accumulate_over_calls_until_the_step(any_context, tmp_path, batches):
    """Two functions: one adds to the registered gradients, the other uses and clears them."""
    ours, theirs = pair("mlp", "momentum")
    model, optimizer = ours
    register(any_context, *ours)
    register_gradients(any_context, model)

    def accumulate(inputs):
        loss = F.cross_entropy(model(inputs["x"]), inputs["y"]) / 2
        loss.backward()
        return {"loss": loss}

    def update(inputs):
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return {"done": inputs["one"] * 1}

    add = any_context.compile(accumulate, batches[0], tmp_path / "add", quiet=True)
    apply = any_context.compile(update, {"one": torch.ones(1)}, tmp_path / "apply", quiet=True)
    for number, batch in enumerate(batches):
        add(batch)
        (F.cross_entropy(theirs[0](batch["x"]), batch["y"]) / 2).backward()
        if number == 2:  # in the middle of the second pair
            any_context.synchronize()
            for parameter, twin in zip(model.parameters(), theirs[0].parameters()):
                agree(parameter.grad, twin.grad, TOLERANCE)
        if number % 2:
            apply({"one": torch.ones(1)})
            theirs[1].step()
            theirs[1].zero_grad()
    any_context.synchronize()
    all_agree(ours, theirs, TOLERANCE)
    assert all(not parameter.grad.any() for parameter in model.parameters())


def test_accumulation_within_a_call(any_context, tmp_path, batches):
    ours, theirs = pair("mlp", "sgd")

    def twice(model, optimizer):
        def step(inputs):
            optimizer.zero_grad()
            for half in (slice(0, 2), slice(2, 4)):
                loss = F.cross_entropy(model(inputs["x"][half]), inputs["y"][half])
                loss.backward()
            optimizer.step()
            return {"loss": loss}

        return step

    register(any_context, *ours)
    step = any_context.compile(twice(*ours), batches[0], tmp_path / "step", quiet=True)
    agree(step(batches[1])["loss"].cpu(), twice(*theirs)(batches[1])["loss"].detach(), TOLERANCE)
    any_context.synchronize()
    all_agree(ours, theirs, TOLERANCE)


def test_frozen_parameters_stay(any_context, tmp_path, batches):
    ours, theirs = pair("mlp", "adam")
    for model in (ours[0], theirs[0]):
        model[0].weight.requires_grad_(False)
    frozen = ours[0][0].weight.detach().clone()
    register(any_context, *ours)
    step = any_context.compile(step_of(*ours), batches[0], tmp_path / "step", quiet=True)
    for batch in batches[:2]:
        step(batch)
        step_of(*theirs)(batch)
    any_context.synchronize()
    assert torch.equal(ours[0][0].weight, frozen)
    all_agree(ours, theirs, TOLERANCE)


def test_two_groups_have_rates_of_their_own(any_context, tmp_path, batches):
    model = mlp()
    other = copy.deepcopy(model)

    def groups(network):
        return [
            {"params": network[0].parameters(), "lr": 0.05, "weight_decay": 0.1},
            {"params": network[2].parameters(), "momentum": 0.8},
        ]

    ours = model, MNCoreSGD(groups(model), lr=0.2)
    theirs = other, torch.optim.SGD(groups(other), lr=0.2)
    register(any_context, *ours)
    step = any_context.compile(step_of(*ours), batches[0], tmp_path / "step", quiet=True)
    for batch in batches[:2]:
        step(batch)
        step_of(*theirs)(batch)
    any_context.synchronize()
    all_agree(ours, theirs, TOLERANCE)


def test_a_second_function_sees_the_update(any_context, tmp_path, batches):
    """Also one that was compiled before the training, and one of a model in evaluation."""
    ours, theirs = pair("mlp", "sgd")
    model = nn.Sequential(nn.BatchNorm1d(12), ours[0])
    other = nn.Sequential(nn.BatchNorm1d(12), theirs[0])
    ours = model, MNCoreSGD(model.parameters(), lr=0.1)
    theirs = other, torch.optim.SGD(other.parameters(), lr=0.1)
    register(any_context, *ours)
    sample = {"x": batches[0]["x"]}

    def logits(inputs):
        return {"logits": model(inputs["x"])}

    model.eval()
    early = any_context.compile(logits, sample, tmp_path / "early", quiet=True)
    model.train()
    step = any_context.compile(step_of(*ours), batches[0], tmp_path / "step", quiet=True)
    for batch in batches[:2]:
        step(batch)
        step_of(*theirs)(batch)
    model.eval()
    late = any_context.compile(logits, sample, tmp_path / "late", quiet=True)
    other.eval()
    for compiled in (early, late):
        agree(compiled(sample)["logits"].cpu(), other(sample["x"]).detach(), TOLERANCE)
    assert model[0].num_batches_tracked.item() == 0  # the host's copy, before synchronize
    any_context.synchronize()
    assert model[0].num_batches_tracked.item() == 2


def test_gradients_are_written_back(any_context, tmp_path, batches):
    """zero_grad, then backward: `.grad` holds the gradients of the last call."""
    ours, theirs = pair("mlp", "sgd")
    register(any_context, *ours)
    register_gradients(any_context, ours[0])
    own = [parameter.grad for parameter in ours[0].parameters()]

    def step(inputs):
        ours[1].zero_grad(set_to_none=False)
        loss = F.cross_entropy(ours[0](inputs["x"]), inputs["y"])
        loss.backward()
        ours[1].step()
        return {"loss": loss}

    compiled = any_context.compile(step, batches[0], tmp_path / "step", quiet=True)
    for batch in batches[:2]:
        compiled(batch)
        step_of(*theirs)(batch)
    any_context.synchronize()
    for parameter, gradient, twin in zip(ours[0].parameters(), own, theirs[0].parameters()):
        assert parameter.grad is gradient
        agree(gradient, twin.grad, TOLERANCE)


@pytest.mark.parametrize("where", ["forward", "backward", "step"])
def test_a_failed_compile_leaves_everything_as_it_was(any_context, tmp_path, batches, where):
    ours, _ = pair("mlp", "adam")
    model, optimizer = nn.Sequential(nn.BatchNorm1d(12), ours[0]), ours[1]
    register(any_context, model, optimizer)
    tensors = [*model.parameters(), *model.buffers(), *(t for s in optimizer.state.values() for t in s.values())]
    before = [tensor.detach().clone() for tensor in tensors]
    parameters = list(model.parameters())

    def step(inputs):
        optimizer.zero_grad()
        output = model(inputs["x"])
        if where == "forward":
            raise KeyError("mine")
        loss = F.cross_entropy(output, inputs["y"])
        loss.backward()
        if where == "backward":
            raise KeyError("mine")
        optimizer.step()
        if loss > 0:  # known only when the program runs
            return {"loss": loss}
        return {}

    expected = MLSDKError if where == "step" else KeyError
    with pytest.raises(expected):
        any_context.compile(step, batches[0], tmp_path / "step", quiet=True)
    now = [*model.parameters(), *model.buffers(), *(t for s in optimizer.state.values() for t in s.values())]
    assert all(a is b for a, b in zip(tensors, now)) and all(torch.equal(a, b) for a, b in zip(before, now))
    assert all(parameter.grad is None and parameter.requires_grad for parameter in parameters)
    assert model.training and all(g["params"] for g in optimizer.param_groups)


def test_the_older_interface(any_context, tmp_path, batches):
    model = mlp()
    other = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    twin = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    any_context.registry.register("model0", model)
    any_context.registry.register("optimizer0", optimizer)

    def loss(inputs):
        return {"loss": F.cross_entropy(model(inputs["x"]), inputs["y"])}

    step = any_context.compile(
        loss, batches[0], tmp_path / "step", options={"backprop": True}, optimizers=[optimizer], quiet=True
    )
    for number, batch in enumerate(batches[:3]):
        twin.param_groups[0]["lr"] = rate = 0.1 / (number + 1)
        extra = {
            "optimizer0@0@mncore_learning_rate": torch.tensor(rate),
            "optimizer0@0@mncore_global_step": torch.tensor(number),
            "mncore_grad_scale_factor": torch.tensor(1),
        }
        result = step({**batch, **extra})
        agree(result["loss"].cpu(), step_of(other, twin)(batch)["loss"].detach(), TOLERANCE)
    any_context.synchronize()
    all_agree((model, optimizer), (other, twin), TOLERANCE)


def test_dropout_draws_anew_in_each_call(any_context, tmp_path):
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 1))
    optimizer = MNCoreAdam(model.parameters(), lr=0.0)
    register(any_context, model, optimizer)
    batch = {"x": torch.randn(4, 8), "y": torch.zeros(4, 1)}
    step = any_context.compile(step_of(model, optimizer, F.mse_loss), batch, tmp_path / "step", quiet=True)
    assert len({step(batch)["loss"].item() for _ in range(4)}) == 4


def test_unregistered_parameters_are_named(host, tmp_path, batches):
    ours, _ = pair("mlp", "sgd")
    with pytest.warns(UnregisteredTensorWarning, match=r"0\.weight|weight"):
        host.compile(lambda i: {"y": ours[0](i["x"])}, {"x": batches[0]["x"]}, tmp_path / "f", quiet=True)
