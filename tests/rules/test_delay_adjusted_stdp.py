"""Pairs of spikes that delays shift, against a loop; and the compiled kernel, against both."""

import math

import pytest
import torch
from clamped_layers import layer, raster, show
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_helpers import needs_kernel, spikes
from torch import nn

from lightning_accum import Cell, RuleTrainer, get_updater
from lightning_accum.engine.signal import Signal
from lightning_accum.engine.term_operands import Activity
from lightning_accum.engine.vjp import PerSynapse
from lightning_accum.functional import ExponentialKernel, GaussianKernel
from lightning_accum.rules import DelayAdjustedKernelSTDP, DelayAdjustedSTDP, KernelSTDP, kernel
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
@example(torch.float32, 30, 2, 33, 35, 0.05, 1.0, "function", "no", True, kernel._LONGEST, 0)
@example(torch.float64, 30, 2, 33, 35, 0.5, 0.1, "function", "no", False, kernel._LONGEST, 1)
@given(
    dtype=st.sampled_from([torch.float32, torch.float64]), steps=st.integers(1, 40),
    batch=st.integers(0, 3), inputs=st.sampled_from([1, 16, 33, 70]),
    outputs=st.sampled_from([1, 15, 32, 35]), density=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    dt=st.sampled_from([0.1, 1.0]), name=st.sampled_from(list(KERNELS)),
    delayed=st.sampled_from(["no", "whole", "any"]), carried=st.booleans(),
    longest=st.sampled_from([0, kernel._LONGEST]), seed=st.integers(0, 99),
)  # fmt: skip
def test_the_compiled_kernel_equals_the_plain_form(
    dtype, steps, batch, inputs, outputs, density, dt, name, delayed, carried, longest, seed
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
    vjp = PerSynapse(nn.Linear(inputs, outputs), "weight", "")
    expected = plain.parts(slice(None), vjp)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "_LONGEST", longest)  # of a table
        assert fast.is_fast == (name != "function" or (delay is None and longest > 0))
        sums = fast.summed(vjp)
    tolerance = 3e-6 if dtype == torch.float32 else 1e-13
    for found, other in zip(sums, expected, strict=True):
        largest = max(1.0, float(other.max()) if other.numel() else 0.0)
        torch.testing.assert_close(found, other, rtol=0, atol=tolerance * largest)
    for one, other in ((fast.pre, plain.pre), (fast.post, plain.post)):
        left, right = one.source.carry(), other.source.carry()
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left)


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
    steps=st.integers(1, 6), batch=st.integers(1, 3),
    reduce=st.sampled_from(["mean", "sum", "amax"]), param=st.sampled_from(["weight", "delay"]),
    by_step=st.booleans(), by_kernel=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_against_a_loop(steps, batch, reduce, param, by_step, by_kernel, seed):
    pre, post = raster(steps, batch, 3, seed=seed), raster(steps, batch, 2, seed=seed + 1)
    model = layer(3, 2)
    torch.manual_seed(seed)
    model.connection.delay = nn.Parameter(4 * torch.rand(2, 3).double())
    options = {"params": [param], "batch_reduction": reduce}
    rule = DelayAdjustedSTDP(0.3, -0.2, tc_post=8.0, tc_pre=12.0)
    if by_kernel:
        rule = DelayAdjustedKernelSTDP(KERNELS["exponential"])
    rule = RuleTrainer(rule, **options)
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
    values = dict(zip(("lr_post", "lr_pre", "tc_post", "tc_pre"), rates + tcs, strict=True))
    rule = RuleTrainer(DelayAdjustedSTDP(**values), params=[param], time_dim=0)
    unit = rule.register_cell("cell", Cell(fc, nn.Identity()))
    unit.monitors["pre"](pre), unit.monitors["post"](post)
    rule()
    found = getattr(get_updater(fc), param).update(getattr(fc, param))
    torch.testing.assert_close(found, getattr(connection, param).detach() - before)
    if delays:  # shortened where the spike arrived 7 and 2 ms before the neuron's
        shifts = torch.tensor([-0.0705, -0.0905, 0.0936])
        torch.testing.assert_close(found[0, :3], shifts, atol=1e-4, rtol=0)
