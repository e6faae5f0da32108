"""Neurons with a surrogate gradient: one step, the fast loop and autograd say the same."""

import pytest
import torch
from kernel_helpers import currents

from lightning_accum.functional import ArcTan, Triangular
from lightning_accum.nn import RecurrentLinear, SurrogateLIF
from lightning_accum.observe import InputMonitor

CASES = {
    "LIF": {}, "ALIF": {"beta": 0.3, "tc_adaptation": 30.0}, "recurrent": {"recurrent": True},
    "recurrent ALIF": {"recurrent": True, "beta": 0.3, "tc_adaptation": 30.0},
}  # fmt: skip


def current(steps=40, seed=0):
    return currents(steps, 3, 5, seed=seed)


def neurons(**options):
    torch.manual_seed(0)
    lif = SurrogateLIF(5, **{"time_dim": 0, **options}).double()
    if lif.recurrent is not None:
        torch.nn.init.normal_(lif.recurrent.weight, std=0.5)
    return lif


@pytest.mark.parametrize(
    ("options", "surrogate"),
    [*zip(CASES.values(), 2 * [Triangular(0.7, 2.0), ArcTan()], strict=True)],
    ids=CASES,
)
def test_the_gradient_passes_through_time(options, surrogate):
    lif = neurons(**options, gradient="time", surrogate=surrogate)
    x = current(12).requires_grad_()
    weights = torch.randn(12, 3, 5, dtype=torch.float64)
    (lif(x) * weights).sum().backward()
    # by hand, from the last step: what a potential adds to all that comes after it
    psi = surrogate.derivative(lif.membrane - lif.threshold)
    beta, rho = options.get("beta", 0.0), lif.decay_adaptation
    by_v = by_a = torch.zeros(3, 5, dtype=torch.float64)
    by_z = torch.zeros_like(by_v)
    for t in reversed(range(12)):
        z = weights[t] + by_z + by_a  # its weight, the next step's current, and the adaptation
        by_v = lif.decay * by_v + psi[t] * z
        by_a = rho * by_a - beta * psi[t] * z
        if lif.recurrent is not None:
            by_z = by_v @ lif.recurrent.weight.detach()
        torch.testing.assert_close(x.grad[t], by_v, rtol=1e-9, atol=1e-9)


def test_a_gradient_within_a_step_is_the_surrogate():
    lif, x = neurons(gradient="step", beta=0.3), current().requires_grad_()
    weights = torch.randn_like(x)
    spikes = lif(x)
    (spikes * weights).sum().backward()
    psi = lif.surrogate.derivative(lif.membrane - lif.threshold)
    torch.testing.assert_close(x.grad, weights * psi, rtol=1e-10, atol=1e-10)
    assert torch.equal(spikes.detach(), neurons(beta=0.3)(x.detach()))
    lif.reset()
    assert lif.membrane is None


@pytest.mark.parametrize("dtype", [None, torch.bool])
def test_a_monitor_sees_the_spikes_of_the_step_before(dtype):
    lif = neurons(recurrent=True, spike_dtype=dtype)
    monitor = InputMonitor(lif, "recurrent")
    first, second = lif(current()), lif(current(seed=1))
    seen = monitor.peek()
    assert seen.dtype == first.dtype
    assert torch.equal(seen, torch.cat([first[-1:], second[:-1]]))


def test_half_precision_is_computed_in_single():
    lif = SurrogateLIF(5, time_dim=0)
    assert lif(current().half()).dtype == torch.float16
    assert lif.membrane is not None
    assert lif.membrane.dtype == torch.float32


def test_recurrent_weights_are_a_linear_layer_by_themselves():
    layer, x = RecurrentLinear(4), torch.rand(2, 4)
    torch.testing.assert_close(layer(x), x @ layer.weight.T)
