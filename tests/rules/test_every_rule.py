"""Every rule on every kind of connection, however reduced and cut, against a loop in float64."""

import pytest
import torch
from connections import KINDS
from hypothesis import given, settings
from hypothesis import strategies as st
from rasters import Fed, raster
from references import RULES, reference
from torch import nn

from lightning_accum import Cell, get_updater

exact = {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=8, derandomize=True)
@given(
    calls=st.integers(1, 3),
    length=st.integers(1, 3),
    batch=st.integers(1, 3),
    carry=st.booleans(),
    reduce=st.sampled_from(["mean", "sum", "amax"]),
    mode=st.sampled_from(["cumulative", "nearest"]),
    backend=st.sampled_from(["auto", "plain"]),
    rewarded=st.sampled_from(["number", "sample", "step"]),
    seed=st.integers(0, 99),
)
def test_against_a_loop(name, calls, length, batch, carry, reduce, mode, backend, rewarded, seed):
    case, steps = RULES[name], calls * length
    mode = mode if mode in case.modes else case.modes[0]
    for kind in [*KINDS][seed % 2 :: 2]:
        make, shape, params = KINDS[kind]
        torch.manual_seed(seed)
        module, neuron = make().double(), Fed()
        out = module(torch.zeros(batch, *shape).double()).shape[1:]
        pre = raster(steps, batch, *shape, seed=seed)
        post = raster(steps, batch, *out, seed=seed + 1)
        if not case.spikes:
            pre, post = (torch.randn(a.shape).double() for a in (pre, post))
        rewards = torch.randn(steps, batch).double() if case.rewarded else torch.ones(steps, batch)
        if rewarded != "step":
            rewards = (rewards[0, :1] if rewarded == "number" else rewards[0]).expand(steps, batch)
        options = {"trace_mode": mode} if len(case.modes) > 1 else {}
        rule = case.make(
            params=params, batch_reduction=reduce, backend=backend, carry=carry, **options
        )
        rule.register_cell("cell", Cell(module, neuron))
        for x, y, r in zip(pre.chunk(calls), post.chunk(calls), rewards.chunk(calls), strict=True):
            for xs, ys in zip(x, y, strict=True):
                neuron.food.append(ys)
                neuron(module(xs))
            reward = {"number": float(r[0, 0]), "sample": r[0], "step": r}[rewarded]
            rule(**({"reward": reward} if case.rewarded else {}))
        rule.eval()
        for param in params:
            pending = getattr(get_updater(module), param)
            rests = steps if carry else length
            naive = reference(case, module, param, pre, post, mode, rewards, rests)
            for found, expected in zip((pending.pos, pending.neg), naive, strict=True):
                # the reduction is of a call's change of a sample; a call's contribution adds up
                each = [getattr(torch, reduce)(call.sum(0), 0) for call in expected.chunk(calls)]
                total = torch.stack(each).sum(0)
                if found is None:
                    assert not total.any(), kind
                else:
                    torch.testing.assert_close(
                        found, total, **exact, msg=lambda text, kind=kind: f"{kind}: {text}"
                    )


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("name", RULES)
def test_layers_without_inputs_or_neurons(name):
    case, sizes = RULES[name], [(0, 3), (4, 0), (0, 0)]
    ways = [
        ("mean", None, "weight"), (torch.amax, None, "bias"),
        ("mean", 0, "bias"), (torch.amax, 0, "weight"),
    ]  # fmt: skip
    for inputs, outputs in sizes[:1] if name == "WTAHebb" else sizes:  # or nobody could win
        for reduction, time_dim, param in ways:
            fc, neuron = nn.Linear(inputs, outputs), nn.Identity()
            rule = case.make(time_dim=time_dim, params=param, batch_reduction=reduction)
            rule.register_cell("enc", Cell(fc, neuron))
            time = () if time_dim is None else (5,)
            for _ in range(3):
                fc(torch.ones(*time, 2, inputs)), neuron(torch.ones(*time, 2, outputs))
            rule(**({"reward": torch.ones(2)} if case.rewarded else {}))
            rule.update()
            assert getattr(fc, param).isfinite().all()
