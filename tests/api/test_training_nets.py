"""Three steps of each network with each optimizer against eager torch: losses, weights, optimizer state, running statistics."""

from __future__ import annotations

import pytest
import torch
from training_nets import NETS, OPTIMIZERS, agree, all_agree, pair, register, step_of

#: relative to the largest element, after three steps
TOLERANCE = {"float": 5e-5, "mixed": 2e-2, "double": 5e-5}


def three_steps(context, directory, net, kind, float_dtype="float"):
    ours, theirs = pair(net, kind)
    batches = [NETS[net][1]() for _ in range(3)]
    register(context, *ours)
    options = {"float_dtype": float_dtype}
    step = context.compile(step_of(*ours), batches[0], directory / "step", options=options, quiet=True)
    eager = step_of(*theirs)
    for batch in batches:
        agree(step(batch)["loss"].cpu(), eager(batch)["loss"].detach(), TOLERANCE[float_dtype])
    context.synchronize()
    all_agree(ours, theirs, TOLERANCE[float_dtype])


@pytest.mark.parametrize(
    ("net", "kind"),
    [*(("mlp", kind) for kind in OPTIMIZERS), ("cnn", "adam"), ("transformer", "adam")],
)
def test_on_the_reference(host, tmp_path, net, kind):
    three_steps(host, tmp_path, net, kind)


@pytest.mark.parametrize(
    ("net", "kind"),
    [("mlp", "adamw"), ("cnn", "momentum"), pytest.param("transformer", "momentum", marks=pytest.mark.slow)],
)
def test_on_the_board(context, tmp_path, net, kind):
    three_steps(context, tmp_path, net, kind)


def test_mixed_on_the_board(context, tmp_path):
    """One step: after it, other halves may win the maxima of pooling than in eager torch. Errors of gradients (the momentum) are
    relative to the largest of any, as sums over a batch cancel to nearly nothing in some."""
    ours, theirs = pair("cnn", "momentum")
    batch = NETS["cnn"][1]()
    register(context, *ours)
    step = context.compile(step_of(*ours), batch, tmp_path / "step", options={"float_dtype": "mixed"}, quiet=True)
    agree(step(batch)["loss"].cpu(), step_of(*theirs)(batch)["loss"].detach(), TOLERANCE["mixed"])
    context.synchronize()
    for mine, other in zip(
        (*ours[0].parameters(), *ours[0].buffers()), (*theirs[0].parameters(), *theirs[0].buffers())
    ):
        agree(mine.detach(), other.detach(), TOLERANCE["mixed"])
    gradients = [
        torch.cat([optimizer.state[p]["momentum_buffer"].flatten() for p in model.parameters()])
        for model, optimizer in (ours, theirs)
    ]
    agree(*gradients, TOLERANCE["mixed"])


@pytest.mark.slow
@pytest.mark.parametrize("float_dtype", ["float", "double"])
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("net", NETS)
def test_every_combination_on_the_board(context, tmp_path, net, kind, float_dtype):
    three_steps(context, tmp_path, net, kind, float_dtype)


@pytest.mark.slow
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("net", ["mlp", "transformer"])
def test_every_optimizer_in_mixed(context, tmp_path, net, kind):
    three_steps(context, tmp_path, net, kind, "mixed")


def test_training_lowers_the_loss_in_mixed(context, tmp_path):
    """What cannot be compared weight by weight still has to learn."""
    ours, _ = pair("mlp", "adam")
    batch = NETS["mlp"][1]()
    register(context, *ours)
    step = context.compile(step_of(*ours), batch, tmp_path / "step", options={"float_dtype": "mixed"}, quiet=True)
    losses = [step(batch)["loss"].item() for _ in range(12)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] * 0.7, losses
    assert torch.isfinite(torch.tensor(losses)).all()
