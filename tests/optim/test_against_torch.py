"""Equality with torch.optim in float64, over 100 steps."""

from __future__ import annotations

import pytest
import torch
from optimizer_cases import close, parameters, run
from turns import turns

from lightning_accum.optim import Adam, AdamWarmup, AMSGrad, Noam, RAdam, WeightDecay

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


WARMUP = {"lr": 0.01, "warmup": 30, "weight_decay": 0.1}
ADAMW = {"lr": 0.01, "weight_decay": 0.1}


@turns(
    "ours, theirs, factor",
    [
        *(
            (
                lambda p, a=a: AdamWarmup(p, amsgrad=a, **WARMUP),
                lambda p, a=a: torch.optim.AdamW(p, amsgrad=a, **ADAMW),
                lambda done: min(1.0, (done + 1) / 30),
            )
            for a in (False, True)
        ),
        (
            lambda p: Noam(p, lr=0.7, warmup=9, d_model=64),
            lambda p: torch.optim.Adam(p, lr=0.7, betas=(0.9, 0.98), eps=1e-9),
            lambda done: 64**-0.5 * min((done + 1) ** -0.5, (done + 1) * 9**-1.5),
        ),
    ],
)
def test_a_schedule_is_torchs_with_a_scheduler(ours, theirs, factor):
    left, right = parameters(), parameters()
    one, two = ours(left), theirs(right)
    scheduler = torch.optim.lr_scheduler.LambdaLR(two, factor)
    for step in range(50):
        run(one, left, 1, step)
        run(two, right, 1, step)
        scheduler.step()
    close(left, right)


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


def test_a_decay_of_torchs_adam_keeps_its_meaning():
    left, right = parameters(), parameters()
    ours, theirs = Adam(left), torch.optim.Adam(right, lr=0.1, weight_decay=0.5)
    run(theirs, right, 2)
    saved = theirs.state_dict()
    saved["param_groups"][0]["decoupled_weight_decay"] = False  # as of torch 2.7
    ours.load_state_dict(saved)
    for own, other in zip(left, right, strict=True):
        own.data.copy_(other.data)
    close(run(ours, left, 2, 2), run(theirs, right, 2, 2))
