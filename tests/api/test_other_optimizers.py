"""Training with optimizers that are not ours: torch's, and those that a program brings; and what changes between calls."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from training_nets import agree, mlp, register, step_of

from mlsdk import MNCoreAdam, MNCoreOptimizer, MNCoreSGD
from mlsdk.errors import ContextError, MLSDKWarning, TraceWarning


class Lion(torch.optim.Optimizer):
    """As one finds it: with its state made in the first step, and numbers for `alpha`."""

    def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["step"], state["exp_avg"] = torch.zeros(()), torch.zeros_like(p)
                beta1, beta2 = group["betas"]
                state["step"] += 1
                p.mul_(1 - group["lr"] * group["weight_decay"])
                update = torch.tanh(state["exp_avg"] * beta1 + p.grad * (1 - beta1)) / state["step"].sqrt()
                p.add_(update, alpha=-group["lr"])
                state["exp_avg"].mul_(beta2).add_(p.grad, alpha=1 - beta2)


class OurLion(MNCoreOptimizer):
    __init__ = lambda self, params, **settings: MNCoreOptimizer.__init__(  # noqa: E731
        self, params, {"lr": 1e-2, "betas": (0.9, 0.99), "weight_decay": 0.1, **settings}
    )
    step = Lion.step


class Signs(MNCoreOptimizer):
    """Without a state."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p.sub_(self.param_groups[0]["lr"] * p.grad.sign() * p.grad.abs().sqrt())


KINDS = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    "Adam": (torch.optim.Adam, {"lr": 0.01, "eps": 1e-3, "amsgrad": True}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01, "eps": 1e-3, "foreach": True}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.01, "eps": 1e-3, "momentum": 0.9, "centered": True}),
    "Adagrad": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.2}),
    "Adadelta": (torch.optim.Adadelta, {"eps": 1e-3}),
    "Adamax": (torch.optim.Adamax, {"lr": 0.01, "eps": 1e-3}),
    "NAdam": (torch.optim.NAdam, {"lr": 0.01, "eps": 1e-3}),
    "RAdam": (torch.optim.RAdam, {"lr": 0.01, "eps": 1e-3}),
    "ASGD": (torch.optim.ASGD, {"lr": 0.05, "t0": 2}),
    "Rprop": (torch.optim.Rprop, {"lr": 0.01}),
    "Lion": (Lion, {"lr": 0.05}),
    "OurLion": (OurLion, {"lr": 0.05}),
    "Signs": (Signs, {"lr": 0.05}),
}


def trained(context, directory, kind, settings):
    """Three steps with a schedule: as eager torch, in double."""
    model = mlp()
    other = copy.deepcopy(model).double()
    ours, theirs = kind(model.parameters(), **settings), kind(other.parameters(), **settings)
    register(context, model, ours)
    batches = [{"x": torch.randn(4, 12), "y": torch.randint(0, 10, (4,))} for _ in range(3)]
    groups = [dict(group) for group in ours.param_groups]
    step = context.compile(step_of(model, ours), batches[0], directory / "step", quiet=True)
    assert groups == ours.param_groups and "step" not in vars(ours)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7) for optimizer in (ours, theirs)]
    eager = step_of(other, theirs)
    for batch in batches:
        expected = eager({"x": batch["x"].double(), "y": batch["y"]})["loss"].detach()
        agree(step(batch)["loss"].cpu(), expected, 5e-5)
        for schedule in schedules:
            schedule.step()
    context.synchronize()
    for mine, twin in zip(model.parameters(), other.parameters()):
        agree(mine.detach(), twin.detach(), 5e-5)
        for key, value in theirs.state[twin].items():
            agree(ours.state[mine][key], value, 5e-5)


@pytest.mark.parametrize("name", KINDS)
def test_on_the_reference(host, tmp_path, name):
    trained(host, tmp_path, *KINDS[name])


@pytest.mark.parametrize("name", ["OurLion", pytest.param("NAdam", marks=pytest.mark.slow)])
def test_on_the_board(context, tmp_path, name):
    trained(context, tmp_path, *KINDS[name])


class Counting(Signs):
    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            self.state[p]["step"] = self.state[p].get("step", 0) + 1


class FirstGradient(Signs):
    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            self.state[p].setdefault("mean", p.grad.clone())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda ps: Counting(ps, lr=1), "counts its steps in step, which is a Python number.*add_"),
        (lambda ps: FirstGradient(ps, lr=1), "makes its state mean out of the first gradient.*begin with zeros"),
        (torch.optim.LBFGS, "LBFGS makes its state in its first step, and that fails.*closure"),
        (lambda ps: MNCoreOptimizer(ps, {"lr": 1}), "MNCoreOptimizer has no step of its own"),
    ],
    ids=["counting", "first_gradient", "closure", "no_step"],
)
def test_states_that_cannot_be_known(host, make, message):
    with pytest.raises(ContextError, match=message):
        host.registry.register("optimizer", make(mlp().parameters()))


def test_groups_that_were_added_after_registering(host, tmp_path):
    model = mlp()
    other = copy.deepcopy(model)
    ours, theirs = MNCoreSGD(model[0].parameters(), 0.1, 0.9), torch.optim.SGD(other[0].parameters(), 0.1, 0.9)
    register(host, model, ours)
    ours.add_param_group({"params": model[2].parameters(), "lr": 0.02})
    theirs.add_param_group({"params": other[2].parameters(), "lr": 0.02})
    batch = {"x": torch.randn(4, 12), "y": torch.randint(0, 10, (4,))}
    step = host.compile(step_of(model, ours), batch, tmp_path / "step", quiet=True)
    for _ in range(2):
        step(batch)
        step_of(other, theirs)(batch)
        ours.param_groups[1]["lr"] = theirs.param_groups[1]["lr"] = 0.5
    host.synchronize()
    for mine, twin in zip(model.parameters(), other.parameters()):
        agree(mine.detach(), twin.detach(), 5e-5)


def test_a_rate_that_is_an_input(host, tmp_path):
    """Set in the function, it counts there, and the host's groups are as before."""
    model = mlp()
    other = copy.deepcopy(model)
    ours, theirs = MNCoreAdam(model.parameters(), eps=1e-3), torch.optim.Adam(other.parameters(), eps=1e-3)
    register(host, model, ours)
    batch = {"x": torch.randn(4, 12), "y": torch.randint(0, 10, (4,))}

    def step(inputs):
        ours.param_groups[0]["lr"] = inputs["lr"]
        return step_of(model, ours)(inputs)

    compiled = host.compile(step, {**batch, "lr": torch.tensor(0.1)}, tmp_path / "step", quiet=True)
    assert ours.param_groups[0]["lr"] == 1e-3
    for rate in (0.3, 0.05):
        compiled({**batch, "lr": torch.tensor(rate)})
        theirs.param_groups[0]["lr"] = rate
        step_of(other, theirs)(batch)
    host.synchronize()
    for mine, twin in zip(model.parameters(), other.parameters()):
        agree(mine.detach(), twin.detach(), 5e-5)


def test_what_the_program_does_not_see_is_told(host, tmp_path):
    """Changes on the host after the first call; each once, and not those that were sent."""
    model = mlp()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    register(host, model, optimizer)
    batch = {"x": torch.randn(4, 12), "y": torch.randint(0, 10, (4,))}
    step = host.compile(step_of(model, optimizer), batch, tmp_path / "step", quiet=True)
    step(batch)
    host.synchronize()
    saved = copy.deepcopy(optimizer.state_dict())
    own = [id(value) for state in optimizer.state.values() for value in state.values()]
    step(batch)
    host.synchronize()
    optimizer.load_state_dict(saved)
    assert own == [id(value) for state in optimizer.state.values() for value in state.values()]
    for state in optimizer.state.values():
        host.get_registered_value_proxy(state["square_avg"]).load_from(state["square_avg"])
        state["step"].add_(0)
    with pytest.warns(MLSDKWarning, match="step.*changed on the host after the first call") as caught:
        step(batch)
        step(batch)
    assert len(caught) == 1 and "square_avg" not in str(caught[0].message)


def test_an_optimizer_that_is_not_registered(host, tmp_path):
    model = mlp()
    register(host, model)
    batch = {"x": torch.randn(4, 12), "y": torch.randint(0, 10, (4,))}
    with pytest.warns(TraceWarning, match="MNCoreSGD is not registered, so that its rate is a constant"):
        host.compile(step_of(model, MNCoreSGD(model.parameters())), batch, tmp_path / "step", quiet=True)


def test_an_optimizer_travels():
    optimizer = pickle.loads(pickle.dumps(MNCoreAdam(mlp().parameters())))
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    assert len(optimizer.param_groups) == 2


def test_a_module_without_a_shape_yet(host):
    with pytest.raises(ContextError, match="model@weight has no shape yet; run its module once"):
        host.registry.register("model", nn.LazyLinear(3))
