"""Equality with torch.optim in float64, over 100 steps."""

import pytest
import torch
from optimizer_cases import close, parameters, run
from turns import turns

from lightning_accum.optim import Adam, AMSGrad, RAdam, WeightDecay

DECAYS = {
    "none": (WeightDecay(), False, 0.0),
    "coupled": (WeightDecay(0.1, weight_decouple=False), False, 0.1),
    "decoupled": (WeightDecay(0.1), True, 0.1),
}
PAIRS = {
    "adam": (Adam, torch.optim.Adam, {}),
    "amsgrad": (AMSGrad, torch.optim.Adam, {"amsgrad": True}),
    "radam": (RAdam, torch.optim.RAdam, {}),
}


def torchs(kind, params, decoupled, **options):
    if kind is torch.optim.Adam and decoupled:
        return torch.optim.AdamW(params, **options)
    if kind is torch.optim.RAdam:
        options["decoupled_weight_decay"] = decoupled
    return kind(params, **options)


@turns("foreach", [None, True, False])
@turns("maximize", [False, True])
@turns("decay", DECAYS)
@pytest.mark.parametrize("pair", PAIRS)
def test_100_steps_in_two_groups(pair, decay, maximize, foreach):
    ours, theirs, extra = PAIRS[pair]
    own_decay, decoupled, amount = DECAYS[decay]
    left, right = parameters(), parameters()
    common = {"lr": 0.01, "maximize": maximize}
    second = {"lr": 0.003, "betas": (0.8, 0.99), "eps": 1e-6}
    one = ours(
        [{"params": left[:2]}, {"params": left[2:], **second}],
        weight_decay=own_decay,
        foreach=foreach,
        **common,
    )
    two = torchs(
        theirs,
        [{"params": right[:2]}, {"params": right[2:], **second}],
        decoupled,
        weight_decay=amount,
        foreach=False,
        **common,
        **extra,
    )
    start = [p.detach().clone() for p in right]
    after = run(two, right, steps=100)
    close(run(one, left, steps=100), after)
    assert all((a - s).abs().max() > 0.01 for a, s in zip(after, start, strict=True))


@pytest.mark.parametrize("ours", [Adam, RAdam])
def test_a_scheduler_reaches_the_rate(ours):
    theirs = getattr(torch.optim, ours.__name__)
    left, right = parameters(), parameters()
    pairs = [(ours(left, lr=0.1), left), (theirs(right, lr=0.1), right)]
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(o, 0.8) for o, _ in pairs]
    for step in range(20):
        for (optimizer, params), scheduler in zip(pairs, schedulers, strict=True):
            run(optimizer, params, 1, step)
            scheduler.step()
    close(left, right)


@pytest.mark.parametrize("theirs", [torch.optim.Adam, torch.optim.AdamW])
def test_a_checkpoint_of_torchs_goes_on(theirs):
    left, right = parameters(), parameters()
    optimizer = theirs(right, lr=0.01, weight_decay=0.1)
    run(optimizer, right, 10)
    for own, other in zip(left, right, strict=True):
        own.data.copy_(other.data)
    # Before torch 2.7 a checkpoint does not say which of the two it is of.
    told = "decoupled_weight_decay" in optimizer.param_groups[0]
    decay = WeightDecay(weight_decouple=told or theirs is torch.optim.AdamW)
    ours = Adam(left, lr=1.0, weight_decay=decay)
    ours.load_state_dict(optimizer.state_dict())
    close(run(ours, left, 10, 10), run(optimizer, right, 10, 10))
