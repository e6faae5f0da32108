"""An agent that learns by reward: what its rule sums, and that it learns."""

import cartpole as example
import pytest
import torch
from torch import nn

from lightning_accum import Cell, RuleTrainer


def test_the_change_is_the_gradient_of_the_likelihood_of_the_spikes():
    torch.manual_seed(0)
    fc, neurons = nn.Linear(6, 3, bias=False).double(), example.Neurons(compete=True)
    x = (torch.rand(30, 4, 6) < 0.3).double()
    errors = torch.zeros(30, 4, dtype=torch.float64)
    errors[-1] = torch.randn(4).double()  # they come when all is done
    surprise = example.Surprise(1.0, tc_eligibility=1e9)
    rule = RuleTrainer(surprise, time_dim=0, batch_reduction="sum")
    unit = rule.register_cell("cell", Cell(fc, neurons))
    spikes = neurons(fc(x))
    rule(reward=errors)
    found = unit.cell.updater.weight.update(fc.weight)

    likely, potential = 0.0, torch.zeros(4, 3).double()
    for t in range(30):
        potential = potential * 2.718281828459045 ** (-1 / example.TC) + fc(x[t])
        likely = likely + (potential.log_softmax(-1) * spikes[t]).sum(-1)
    (expected,) = torch.autograd.grad((likely * errors[-1]).sum(), fc.weight)
    torch.testing.assert_close(1e9 * found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore::UserWarning:lightning")
def test_it_balances_the_pole_for_longer_but_not_by_errors_at_random_times():
    example.quiet()
    torch.set_num_threads(1)
    agent = example.learn("CartPole-v1", seed=1, batches=220)
    assert sum(agent.lengths[:20]) / 20 < 50
    assert example.mean_return(agent.task, example.policy_of(agent), games=20) > 150
    errors = example.shuffled(agent.errors)
    both = (torch.stack(each).flatten().sort().values for each in (errors, agent.errors))
    assert torch.equal(*both)
    other = example.learn("CartPole-v1", seed=2, batches=220, given=errors)
    assert example.mean_return(other.task, example.policy_of(other), games=20) < 50


def test_the_best_at_random_is_the_best_of_what_was_drawn(monkeypatch):
    drawn, returns = [], iter([30.0, 200.0, 90.0, 500.0])
    monkeypatch.setattr(example, "linear", drawn.append)
    monkeypatch.setattr(example, "mean_return", lambda *_: next(returns))
    best = example.best_at_random("CartPole-v1", 0, decisions=(30 + 200 + 90) * example.GAMES)
    assert len(drawn) == 3
    assert best is drawn[1]
    assert best.shape == (2, 4)
