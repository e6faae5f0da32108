"""Pairs of spikes that delays shift, against a loop; and the compiled kernel, against both."""

import math

import pytest
import torch
from compiled import needs_kernel, spikes
from hypothesis import given, settings
from hypothesis import strategies as st
from rasters import layer, raster, show
from torch import nn
from trainers import trainer_of

from lightning_accum import (
    Cell,
    DelayAdjustedKernelSTDP,
    DelayAdjustedSTDP,
    KernelSTDP,
    RuleTrainer,
    get_updater,
)
from lightning_accum.engine.products import Activity
from lightning_accum.engine.signal import Signal
from lightning_accum.engine.vjp import Synapses
from lightning_accum.functional import ExponentialKernel, GaussianKernel
from lightning_accum.rules import kernel
from lightning_accum.rules.kernel import SpikePairs
from lightning_accum.sparse.spike_pairs import pair_events

KERNELS = {
    "exponential": ExponentialKernel(0.3, -0.2, tc_post=8.0, tc_pre=12.0),
    "narrow": ExponentialKernel(0.3, 0.2, tc_post=0.01, tc_pre=1e6),
    "gaussian": GaussianKernel(0.3, width=5.0, offset=0.1),
    "function": lambda delta: torch.sin(delta) * torch.exp(-delta.abs() / 9),
}


@needs_kernel
@settings(max_examples=60, derandomize=True)
@given(
    dtype=st.sampled_from([torch.float32, torch.float64]),
    steps=st.integers(1, 40),
    batch=st.integers(0, 3),
    inputs=st.sampled_from([1, 16, 33, 70]),
    outputs=st.sampled_from([1, 15, 32, 35]),
    density=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    dt=st.sampled_from([0.1, 1.0]),
    name=st.sampled_from(list(KERNELS)),
    delayed=st.sampled_from(["no", "whole", "any"]),
    carried=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_compiled_kernel_equals_the_plain_form(
    dtype, steps, batch, inputs, outputs, density, dt, name, delayed, carried, seed
):
    delay = 8 * torch.rand(outputs, inputs, generator=torch.Generator().manual_seed(seed))
    delay = {"no": None, "whole": dt * delay.round().to(dtype), "any": delay.to(dtype)}[delayed]
    before = {}
    if carried:  # from windows of another density, in which some neurons are silent
        for side, size in (("post", outputs), ("pre", inputs)):
            source = Activity(
                spikes(9, batch, size, density=0.1, seed=seed + 2), dt, None, side, dtype
            )
            source.age()
            before.update(source.carry())

    def pairs():
        post, pre = (
            Activity(
                spikes(steps, batch, n, density=density, seed=seed + i), dt, before, side, dtype
            )
            for i, (side, n) in enumerate((("post", outputs), ("pre", inputs)))
        )
        return SpikePairs(KERNELS[name], Signal(post), Signal(pre), delay)

    fast, plain = pairs(), pairs()
    assert fast.is_fast == (name != "function" or delay is None)
    vjp = Synapses(nn.Linear(inputs, outputs), "weight", "")
    expected = plain.parts(slice(None), vjp)
    tolerance = 3e-6 if dtype == torch.float32 else 1e-13
    for found, other in zip(fast.summed(vjp), expected, strict=True):
        largest = max(1.0, float(other.max()) if other.numel() else 0.0)
        torch.testing.assert_close(found, other, rtol=0, atol=tolerance * largest)
    for one, other in ((fast.pre, plain.pre), (fast.post, plain.post)):
        left, right = one.source.carry(), other.source.carry()
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left)


@pytest.mark.filterwarnings("ignore:.*should be at least a step:UserWarning")  # of "narrow"
@pytest.mark.parametrize("name", KERNELS)
def test_a_rule_learns_the_same_by_terms_over_windows(name, monkeypatch):
    def learned(backend):
        model, rule = layer(20, 40), RuleTrainer(KernelSTDP(KERNELS[name]), backend=backend)
        rule.register_cell("cell", model.cell)
        for i in range(3):
            show(model, spikes(30, 2, 20, density=0.05, seed=i).double(),
                 spikes(30, 2, 40, density=0.05, seed=9 + i).double())  # fmt: skip
            rule()
        weight = get_updater(model.connection).weight
        return [weight.pos, weight.neg]

    found = learned("auto")
    torch.testing.assert_close(found, learned("plain"), rtol=1e-10, atol=1e-10)
    monkeypatch.setattr(kernel, "_LONGEST", 8)  # a table would be too long
    torch.testing.assert_close(found, learned("auto"), rtol=1e-10, atol=1e-10)
    monkeypatch.setattr(kernel, "has_kernel", lambda *_: False)
    torch.testing.assert_close(found, learned("auto"), rtol=1e-10, atol=1e-10)


@needs_kernel
def test_the_kernel_is_what_sums_pairs(monkeypatch):
    visits = []
    monkeypatch.setattr(
        kernel, "pair_events", lambda *given: visits.append(1) or pair_events(*given)
    )
    for make in (KernelSTDP, DelayAdjustedKernelSTDP):
        model, rule = layer(4, 3), RuleTrainer(make(KERNELS["exponential"]))
        model.connection.register_buffer("delay", torch.ones(3, 4))
        rule.register_cell("cell", model.cell)
        show(model, torch.ones(2, 2, 4), torch.ones(2, 2, 3))
        rule()
    assert len(visits) == 4


# ------------------------------------------------------------------------ shifted by delays
def naive(pre, post, delay):
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


@settings(max_examples=25, derandomize=True)
@given(
    steps=st.integers(1, 6),
    batch=st.integers(1, 3),
    reduce=st.sampled_from(["mean", "sum", "amax"]),
    param=st.sampled_from(["weight", "delay"]),
    by_step=st.booleans(),
    by_kernel=st.booleans(),
    seed=st.integers(0, 99),
)
def test_against_a_loop(steps, batch, reduce, param, by_step, by_kernel, seed):
    pre, post = raster(steps, batch, 3, seed=seed), raster(steps, batch, 2, seed=seed + 1)
    model = layer(3, 2)
    torch.manual_seed(seed)
    model.connection.delay = nn.Parameter(4 * torch.rand(2, 3).double())
    options = {"params": [param], "batch_reduction": reduce}
    rule = trainer_of(DelayAdjustedSTDP, 0.3, -0.2, tc_post=8.0, tc_pre=12.0, **options)
    if by_kernel:
        kernel = ExponentialKernel(0.3, -0.2, tc_post=8.0, tc_pre=12.0)
        rule = trainer_of(DelayAdjustedKernelSTDP, kernel, **options)
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
        torch.testing.assert_close(found, total, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("param", ["delay", "weight"])
def test_against_inferno(param):
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
    rule = RuleTrainer(
        DelayAdjustedSTDP(*rates, tc_post=tcs[0], tc_pre=tcs[1]), params=[param], time_dim=0
    )
    unit = rule.register_cell("cell", Cell(fc, nn.Identity()))
    unit.monitors["pre"](pre), unit.monitors["post"](post)
    rule()
    found = getattr(get_updater(fc), param).update(getattr(fc, param))
    torch.testing.assert_close(found, getattr(connection, param).detach() - before)
    if delays:  # shortened where the spike arrived 7 and 2 ms before the neuron's
        torch.testing.assert_close(
            found[0, :3], torch.tensor([-0.0705, -0.0905, 0.0936]), atol=1e-4, rtol=0
        )
