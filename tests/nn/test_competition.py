import pytest
import torch
from kernel_helpers import currents
from torch import nn

from lightning_accum.nn import Competition


class Leaky(nn.Module):
    """A neuron that keeps no state: the caller does, as in Norse."""

    def forward(self, current, state=None):
        v = current if state is None else 0.9 * state + current
        spikes = (v > 1.0).to(v.dtype)
        return spikes, v * (1 - spikes)


def layer(size=5, **options):
    return Competition(nn.Identity(), size, **options).double()


def naive(x, theta, decay, theta_plus, winners, training):
    """What passes, and how tired the neurons are, neuron by neuron."""
    steps, batch, size = x.shape
    out, theta = torch.zeros_like(x), theta.tolist()
    drive = [[0.0] * size for _ in range(batch)]
    for t in range(steps):
        wins = [0.0] * size
        for b in range(batch):
            for n in range(size):
                drive[b][n] = decay * drive[b][n] + (1 - decay) * float(x[t, b, n])
            excited = [d - training * theta[n] for n, d in enumerate(drive[b])]
            driven = [n for n in range(size) if drive[b][n] > 0]
            for n in sorted(driven, key=lambda n: -excited[n])[:winners]:
                out[t, b, n] = x[t, b, n]
                wins[n] += 1 / batch
        if training:
            theta = [
                h + theta_plus * (w - sum(wins) / size) for h, w in zip(theta, wins, strict=True)
            ]
    return out, torch.tensor(theta, dtype=torch.float64)


def test_as_many_winners_as_neurons_are_told():
    with pytest.warns(UserWarning, match="less than the 5 neurons.* Found `winners = 5`"):
        layer(winners=5)


@pytest.mark.parametrize("winners", [1, 2, 4])
@pytest.mark.parametrize("training", [True, False])
def test_it_is_the_formula(winners, training):
    x = currents(30, 3, 5) - 0.4
    compete = layer(winners=winners, tc_drive=4.0, theta_plus=0.3, time_dim=0).train(training)
    compete.theta.copy_(currents(5, seed=1) - 0.5)
    out, theta = naive(x, compete.theta, compete.decay, 0.3, winners, training)
    torch.testing.assert_close(compete(x), out)
    torch.testing.assert_close(compete.theta, theta)
    assert 0 < (out != 0).double().mean() < 1


def test_state_and_results_of_the_neuron_pass_through():
    compete, neuron, state, other = Competition(Leaky(), 5).double(), Leaky(), None, None
    passing = layer()
    for step in currents(12, 3, 5):
        spikes, state = compete(step, state)
        expected, other = neuron(passing(step), state=other)
        assert torch.equal(spikes, expected)
        assert torch.equal(state, other)


def test_a_batch_without_samples_tires_nobody():
    compete = layer(time_dim=0)
    assert compete(currents(7, 0, 5)).shape == (7, 0, 5)
    assert not compete.theta.any()


def test_gradients_pass_through_winners_only():
    x = currents(4, 2, 5).requires_grad_()
    out = layer(time_dim=0)(x)
    out.sum().backward()
    assert torch.equal(x.grad, (out != 0).double())
    assert int((out != 0).sum()) == 8


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_small_rises(dtype):
    compete = Competition(nn.Identity(), 5, theta_plus=1e-5).to(dtype)
    for _ in range(100):
        assert compete(torch.tensor([[9.0, 1.0, 1.0, 1.0, 1.0]], dtype=dtype)).dtype == dtype
    assert compete.theta[0] == pytest.approx(100 * 1e-5 * 0.8)
