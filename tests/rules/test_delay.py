"""Spike-time differences, shifted: synapse by synapse."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rasters import layer, raster, show
from torch import Tensor, nn

from lightning_accum import (
    Cell,
    DelayAdjustedKernelSTDP,
    DelayAdjustedSTDP,
    get_updater,
)
from lightning_accum.functional import ExponentialKernel

RATES = {"lr_post": 0.3, "lr_pre": -0.2, "tc_post": 8.0, "tc_pre": 12.0}
exact = {"rtol": 1e-10, "atol": 1e-10}


def naive(pre: Tensor, post: Tensor, delay: Tensor) -> Tensor:
    """Both parts of each step and sample, ``[2, T, B, out, in]``."""
    steps, batch, inputs, outputs = *pre.shape, post.shape[-1]
    parts = torch.zeros(2, steps, batch, outputs, inputs, dtype=torch.float64)
    for b in range(batch):
        for o in range(outputs):
            for i in range(inputs):
                at_pre = at_post = None
                for t in range(steps):
                    at_pre = t if pre[t, b, i] else at_pre
                    at_post = t if post[t, b, o] else at_post
                    if None in (at_pre, at_post) or t not in (at_pre, at_post):
                        continue
                    d = at_post - at_pre - delay[o, i].item()
                    if d >= 0:
                        parts[0, t, b, o, i] = 0.3 * math.exp(-d / 12)
                    else:
                        parts[1, t, b, o, i] = 0.2 * math.exp(d / 8)
    return parts


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    steps=st.integers(1, 6),
    batch=st.integers(1, 3),
    reduce=st.sampled_from(["mean", "sum", "amax"]),
    param=st.sampled_from(["weight", "delay"]),
    by_step=st.booleans(),
    by_kernel=st.booleans(),
    seed=st.integers(0, 99),
)
def test_against_a_loop(
    steps: int, batch: int, reduce: str, param: str, by_step: bool, by_kernel: bool, seed: int
) -> None:
    pre, post = raster(steps, batch, 3, seed=seed), raster(steps, batch, 2, seed=seed + 1)
    model = layer(3, 2)
    torch.manual_seed(seed)
    model.connection.delay = nn.Parameter(4 * torch.rand(2, 3).double())
    options = {"params": [param], "batch_reduction": reduce}
    rule = DelayAdjustedSTDP(**RATES, **options)
    if by_kernel:
        kernel = ExponentialKernel(0.3, -0.2, tc_post=8.0, tc_pre=12.0)
        rule = DelayAdjustedKernelSTDP(kernel, **options)
    rule.register_cell("cell", model.cell)
    calls = steps if by_step else 1
    for x, y in zip(pre.chunk(calls), post.chunk(calls), strict=True):
        show(model, x, y)
        rule()
    pending = getattr(get_updater(model.connection), param)
    for found, expected in zip(
        (pending.pos, pending.neg), naive(pre, post, model.connection.delay), strict=True
    ):
        total = sum(getattr(torch, reduce)(call.sum(0), 0) for call in expected.chunk(calls))
        torch.testing.assert_close(found, total, **exact)


@pytest.mark.parametrize("param", ["delay", "weight"])
def test_against_inferno(param: str) -> None:
    """One spike of the neuron at 7 ms, and spikes that arrived 7 and 2 ms before it, 1 ms after."""
    learn, neural = (pytest.importorskip(f"inferno.{part}") for part in ("learn", "neural"))
    delay, pre = torch.tensor([[0.0, 5.0, 8.0, 0.0]]), torch.zeros(8, 1, 4)
    pre[0, 0, :3] = pre[7, 0, 3] = 1.0  # the last input makes the neuron fire
    connection = neural.LinearDense(
        4, 1, 1.0, synapse=neural.DeltaCurrent.partialconstructor(1.0), delay=10.0,
        weight_init=lambda w: torch.tensor([[1e-6, 1e-6, 1e-6, 99.0]]),
        delay_init=lambda d: delay.clone(),
    )  # fmt: skip
    neuron = neural.LIF(
        1, 1.0, rest_v=0.0, reset_v=0.0, thresh_v=1.0, refrac_t=1.0, time_constant=20.0,
        resistance=20.0,
    )  # fmt: skip
    model = neural.Serial(connection, neuron)
    connection.updater = connection.defaultupdater()
    before = getattr(connection, param).detach().clone()
    delays = param == "delay"
    theirs = learn.DelayAdjustedSTDPD if delays else learn.DelayAdjustedSTDP
    trainer = theirs(lr_neg=-0.1, lr_pos=0.1, tc_neg=20.0, tc_pos=15.0)
    trainer.register_cell("cell", model.cell)
    post = torch.stack([model(x).clone() for x in pre]).float()
    trainer()
    connection.update()

    fc = nn.Linear(4, 1, bias=False)
    fc.register_buffer("delay", delay)
    rates, tcs = ((-0.1, 0.1), (15.0, 20.0)) if delays else ((0.1, -0.1), (20.0, 15.0))
    rule = DelayAdjustedSTDP(*rates, tc_post=tcs[0], tc_pre=tcs[1], params=[param], time_dim=0)
    unit = rule.register_cell("cell", Cell(fc, nn.Identity()))
    unit.monitors["pre"](pre), unit.monitors["post"](post)
    rule()
    found = getattr(get_updater(fc), param).update(getattr(fc, param))
    torch.testing.assert_close(found, getattr(connection, param).detach() - before)
    if delays:  # shortened where the spike arrived 7 and 2 ms before the neuron's
        torch.testing.assert_close(
            found[0, :3], torch.tensor([-0.0705, -0.0905, 0.0936]), atol=1e-4, rtol=0
        )
