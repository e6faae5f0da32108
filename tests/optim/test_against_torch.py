"""Schedulers and checkpoints of torch's optimizers serve as well."""

import pytest
import torch
from optimizer_cases import close, parameters, run

from lightning_accum.optim import Adam, RAdam, WeightDecay


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
