"""Every rule on every kind of connection, however reduced and cut, against a loop in float64."""

from __future__ import annotations

import pytest
import torch
from connections import KINDS
from hypothesis import given, settings
from hypothesis import strategies as st
from rasters import Fed, raster
from references import RULES, reference

from lightning_accum import Cell, get_updater

exact = {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RULES)
@settings(max_examples=5, deadline=None, derandomize=True)
@given(
    size=st.tuples(st.integers(1, 5), st.integers(1, 3)),
    by_step=st.booleans(),
    carry=st.booleans(),
    reduce=st.sampled_from(["mean", "sum", "amax"]),
    mode=st.sampled_from(["cumulative", "nearest"]),
    backend=st.sampled_from(["auto", "plain"]),
    seed=st.integers(0, 99),
)
def test_against_a_loop(
    kind: str,
    name: str,
    size: tuple[int, int],
    by_step: bool,
    carry: bool,
    reduce: str,
    mode: str,
    backend: str,
    seed: int,
) -> None:
    (make, shape, params), case, (steps, batch) = KINDS[kind], RULES[name], size
    mode = mode if mode in case.modes else case.modes[0]
    torch.manual_seed(seed)
    module, neuron = make().double(), Fed()
    out = module(torch.zeros(batch, *shape).double()).shape[1:]
    pre, post = raster(steps, batch, *shape, seed=seed), raster(steps, batch, *out, seed=seed + 1)
    if not case.spikes:
        pre, post = (torch.randn(a.shape).double() for a in (pre, post))
    rewards = torch.randn(steps, batch).double() if case.rewarded else torch.ones(steps, batch)
    options = {"trace_mode": mode} if len(case.modes) > 1 else {}
    rule = case.make(params=params, batch_reduction=reduce, backend=backend, carry=carry, **options)
    rule.register_cell("cell", Cell(module, neuron))
    calls = steps if by_step else 1
    for x, y, r in zip(pre.chunk(calls), post.chunk(calls), rewards.chunk(calls), strict=True):
        for xs, ys in zip(x, y, strict=True):
            neuron.food.append(ys)
            neuron(module(xs))
        rule(**({"reward": r} if case.rewarded else {}))
    rule.eval()
    for param in params:
        pending = getattr(get_updater(module), param)
        naive = reference(
            case, module, param, pre, post, mode, rewards, steps if carry else steps // calls
        )
        for found, expected in zip((pending.pos, pending.neg), naive, strict=True):
            # the reduction is of each call's change of a sample; a call's contribution adds up
            total = sum(getattr(torch, reduce)(call.sum(0), 0) for call in expected.chunk(calls))
            if found is None:
                assert not total.any()
            else:
                torch.testing.assert_close(found, total, **exact)
