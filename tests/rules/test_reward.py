"""MSTDP is pair STDP whose every step counts as much as its reward."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rasters import layer, raster, show
from torch import Tensor, nn

from lightning_accum import MSTDP, STDP, Cell, get_updater

RATES = {"lr_post": 0.3, "lr_pre": -0.2, "tc_post": 8.0, "tc_pre": 12.0}


def naive(pre: Tensor, post: Tensor, reward: Tensor) -> tuple[Tensor, Tensor]:
    """Both parts, ``[B, out, in]``, of a reward ``[T, B]``."""
    parts = torch.zeros(2, pre.shape[1], post.shape[2], pre.shape[2], dtype=torch.float64)
    for b in range(pre.shape[1]):
        for i in range(pre.shape[2]):
            for o in range(post.shape[2]):
                x = y = 0.0
                for t in range(pre.shape[0]):
                    s, z, r = (float(v) for v in (pre[t, b, i], post[t, b, o], reward[t, b]))
                    x, y = x * math.exp(-1 / 12) + s, y * math.exp(-1 / 8) + z
                    up, down = 0.3 * z * x * abs(r), 0.2 * y * s * abs(r)
                    parts[0, b, o, i] += up if r > 0 else down
                    parts[1, b, o, i] += down if r > 0 else up
    return parts[0], parts[1]


def parts_of(rule: STDP, pre: Tensor, post: Tensor, cuts: int, reward: object) -> list[Tensor]:
    model = layer(pre.shape[-1], post.shape[-1])
    rule.register_cell("cell", model.cell)
    for i, (x, y) in enumerate(zip(pre.chunk(cuts), post.chunk(cuts), strict=True)):
        show(model, x, y)
        by_step = isinstance(reward, Tensor) and reward.ndim == 2
        rule(reward=reward.chunk(cuts)[i] if by_step else reward)
    weight = get_updater(model.connection).weight
    return [torch.zeros_like(model.connection.weight) if p is None else p
            for p in (weight.pos, weight.neg)]  # fmt: skip


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    steps=st.integers(1, 6),
    batch=st.integers(1, 3),
    path=st.sampled_from(["auto", "dense", "pre", "post"]),
    reduce=st.sampled_from(["mean", "sum", "amax"]),
    kind=st.sampled_from(["number", "sample", "step"]),
    whole=st.booleans(),
    seed=st.integers(0, 99),
)
def test_against_a_loop(
    steps: int, batch: int, path: str, reduce: str, kind: str, whole: bool, seed: int
) -> None:
    pre, post = raster(steps, batch, 3, seed=seed), raster(steps, batch, 2, seed=seed + 1)
    generator = torch.Generator().manual_seed(seed)
    reward = torch.randn(steps, batch, generator=generator, dtype=torch.float64)
    given = {"number": -0.7, "sample": reward[0], "step": reward}[kind]
    full = torch.as_tensor(given, dtype=torch.float64).expand(steps, batch)
    rule = MSTDP(**RATES, backend=path, batch_reduction=reduce)
    cuts = 1 if whole or reduce == "amax" else steps
    found = parts_of(rule, pre, post, cuts, given)
    for part, samples in zip(found, naive(pre, post, full), strict=True):
        assert torch.allclose(part, getattr(torch, reduce)(samples, 0), rtol=1e-10, atol=1e-12)


def test_a_reward_of_one_is_pair_stdp():
    pre, post = raster(7, 2, 4), raster(7, 2, 3, seed=1)
    ours = parts_of(MSTDP(**RATES), pre, post, 1, 1.0)

    class Deaf(STDP):
        def forward(self, *, carry: bool | None = None, **given: object) -> None:
            super().forward(carry=carry)

    for one, other in zip(ours, parts_of(Deaf(**RATES), pre, post, 1, 1.0), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("reward", "remedy"),
    [
        (None, r"call the rule as `rule\(reward=\.\.\.\)`, or"),
        (torch.ones(3), "give a number for each sample"),
        (torch.ones(2, 5), r"time is its first dimension, so call `reward.transpose\(0, 1\)`"),
        (
            torch.ones(9, 2),
            r"give only .* steps \(5\), as by `rule\(reward=reward\[t : t \+ 5\]\)` in",
        ),
        ("much", "convert it"),
    ],
)
def test_a_reward_that_does_not_fit(reward: object, remedy: str):
    model, rule = layer(4, 3), MSTDP(**RATES)
    rule.register_cell("cell", model.cell)
    show(model, raster(5, 2, 4), raster(5, 2, 3))
    with pytest.raises(
        ValueError, match=rf"`reward` should be .* shape \[2\] or \[5, 2\]\. Found .*: {remedy}"
    ):
        rule(**({} if reward is None else {"reward": reward}))
    assert get_updater(model.connection).weight.empty


@pytest.mark.parametrize("reward", [[1.0, 0.0], np.ones(2), np.float32(1.0)])
def test_a_reward_that_is_not_a_tensor_says_how_to_convert_it(reward: Any) -> None:
    fc, neuron, rule = nn.Linear(3, 2), nn.Identity(), MSTDP(0.1, -0.1)
    rule.register_cell("enc", Cell(fc, neuron))
    fc(torch.ones(2, 3))
    neuron(torch.ones(2, 2))
    with pytest.raises(ValueError, match=r"`reward` .*: convert it, `torch.as_tensor\(reward\)`"):
        rule(reward=reward)
    rule(reward=torch.as_tensor(reward))
