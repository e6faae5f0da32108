"""A connection with delays, compared with a loop over synapses."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lightning_accum import DelayAdjustedSTDP, RuleTrainer, Serial
from lightning_accum.nn import LIF, DelayedLinear

exact = {"rtol": 1e-12, "atol": 1e-12}


def naive(x, weight, steps_late):
    """The sum over inputs, each as late as its synapse."""
    out = x.new_zeros(*x.shape[:2], len(weight))
    for o, late in enumerate(steps_late.int().tolist()):
        for i, d in enumerate(late):
            for t in range(d, len(x)):
                out[t, :, o] += weight[o, i] * x[t - d, :, i]
    return out


def connection(*sizes, time_dim=0, **options):
    torch.manual_seed(0)
    return DelayedLinear(*sizes, time_dim=time_dim, **options).double()


@settings(max_examples=60, derandomize=True)
@given(
    shape=st.tuples(*[st.integers(0, 6)] + 3 * [st.integers(1, 4)]),
    max_delay=st.sampled_from([0.0, 0.8, 2.0, 3.7]), dt=st.sampled_from([0.5, 1.0, 1.5]),
    cut=st.integers(0, 6), seed=st.integers(0, 99),
)  # fmt: skip
def test_equals_a_loop_however_a_sequence_is_cut(shape, max_delay, dt, cut, seed):
    steps, batch, inputs, outputs = shape
    torch.manual_seed(seed)
    whole = DelayedLinear(inputs, outputs, max_delay, dt=dt, time_dim=0).double()
    single = DelayedLinear(inputs, outputs, max_delay, dt=dt).double()
    single.load_state_dict(whole.state_dict())
    x = torch.randn(steps, batch, inputs, dtype=torch.float64)
    late = (whole.delay / dt).round().clamp(0, round(max_delay / dt))
    expected = naive(x, whole.weight.detach(), late)
    torch.testing.assert_close(whole(x), expected, **exact)
    whole.reset()
    torch.testing.assert_close(torch.cat([whole(x[:cut]), whole(x[cut:])]), expected, **exact)
    for step, answer in zip(x, expected, strict=True):
        torch.testing.assert_close(single(step), answer, **exact)


def test_gradients_reach_weights_and_input():
    layer = connection(3, 2, 4.0)
    x = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)

    def run(x, weight):
        layer.reset()
        return torch.func.functional_call(layer, {"weight": weight}, (x,))

    assert torch.autograd.gradcheck(run, (x, layer.weight))
    assert not layer.delay.requires_grad


def test_delays_that_leave_the_range_count_as_its_ends():
    layer = connection(3, 1, 2.0, delay=1.0)
    nn.init.ones_(layer.weight)
    with torch.no_grad():
        layer.delay.copy_(torch.tensor([[-5.0, 7.0, torch.inf]]))
    x = torch.zeros(4, 1, 3).double()
    x[0] = 1.0
    assert layer(x).flatten().tolist() == [1.0, 0.0, 2.0, 0.0]


def test_a_spike_is_shifted_once():
    """The neuron answers as the spike arrives: no time lies between, and the change is the rate."""
    layer = Serial(connection(1, 1, 5.0, delay=3.0, time_dim=None), LIF(1, v_threshold=0.5))
    nn.init.ones_(layer.connection.weight)
    rule = RuleTrainer(DelayAdjustedSTDP(0.25, -0.5, tc_post=5.0, tc_pre=5.0))
    unit = rule.register_cell("cell", layer.cell)
    answers = [layer(torch.tensor([[x]]).double()).item() for x in (1, 0, 0, 0, 0)]
    assert answers == [0, 0, 0, 1, 0]
    rule()
    assert unit.cell.updater.weight.pos.item() == 0.25
    assert unit.cell.updater.weight.neg is None or unit.cell.updater.weight.neg.item() == 0.0
