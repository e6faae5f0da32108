"""The error of an actor and its critic is that of the paper, and of the policy's gradient."""

from __future__ import annotations

import pytest
import torch
from eprop_reference import eprop
from torch import Tensor, nn

from lightning_accum import Cell, DeltaRule, EProp, get_updater
from lightning_accum.functional import decay_factor, trace
from lightning_accum.nn import LeakyIntegrator, SurrogateLIF
from lightning_accum.rules import ActorCriticError, SymmetricFeedback

exact = {"rtol": 0.0, "atol": 1e-10}
T, B, INPUTS, NEURONS, ACTIONS = 15, 3, 5, 8, 2
KAPPA, ALPHA = decay_factor(9.0), decay_factor(6.0)


class Agent(nn.Module):
    """A layer of neurons, and a leaky readout of the policy and the value."""

    def __init__(self, gradient: str = "none", beta: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.fc = nn.Linear(INPUTS, NEURONS, bias=False)
        self.lif = SurrogateLIF(NEURONS, 6.0, beta=beta, gradient=gradient, time_dim=0)  # type: ignore[arg-type]
        self.readout = nn.Linear(NEURONS, ACTIONS + 1, bias=False)
        self.leak = LeakyIntegrator(ACTIONS + 1, 9.0, time_dim=0)
        nn.init.normal_(self.fc.weight, 0.3, 0.6)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.leak(self.readout(self.lif(self.fc(x))))
        return out


def episode() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Spikes, actions in some steps, rewards, and the value after the last step."""
    torch.manual_seed(2)
    x = (torch.rand(T, B, INPUTS) < 0.4).double()
    actions = torch.randint(-1, ACTIONS, (T, B))
    return x, actions, torch.randn(T, B).double(), torch.randn(B).double()


def changes(agent: Agent, error_of: ActorCriticError) -> tuple[list[Tensor], Tensor]:
    """The changes of the hidden and the readout's weights, and the outputs."""
    x, actions, reward, following = episode()
    options = {"time_dim": 0, "batch_reduction": "sum", "carry": False}
    hidden = EProp(1.0, SymmetricFeedback(agent.readout), tc_readout=9.0, **options)
    output = DeltaRule(1.0, **options)
    hidden.register_cell("hidden", Cell(agent.fc, agent.lif))
    output.register_cell("output", Cell(agent.readout, agent.leak))
    with torch.no_grad():
        y = agent(x)
        error = error_of(y, actions, reward, following)
        hidden(error=error)
        output(error=error)
    found = []
    for module in (agent.fc, agent.readout):
        pending = get_updater(module).weight
        parts = [torch.zeros(()) if p is None else p for p in (pending.pos, pending.neg)]
        found.append(parts[0] - parts[1])
    return found, y


@pytest.mark.parametrize("decay", [0.0, 0.8, 1.0])
def test_the_error_equals_a_loop(decay: float) -> None:
    error_of = ActorCriticError(0.9, 0.3, decay)
    _, actions, reward, following = episode()
    outputs = torch.randn(T, B, ACTIONS + 1, dtype=torch.float64)
    found = error_of(outputs, actions, reward, following)
    for b in range(B):
        value = [*outputs[:, b, -1], following[b]]
        delta = [reward[t, b] + 0.9 * value[t + 1] - value[t] for t in range(T)]
        for t in range(T):
            later = sum((0.9 * decay) ** (s - t) * delta[s] for s in range(t, T))
            policy = outputs[t, b, :-1].exp() / outputs[t, b, :-1].exp().sum()
            action = int(actions[t, b])
            for k in range(ACTIONS):
                expected = later * (policy[k] - float(action == k)) * (action >= 0)
                torch.testing.assert_close(found[t, b, k], expected, **exact)
            torch.testing.assert_close(found[t, b, -1], -0.3 * later, **exact)


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_the_change_equals_the_papers_with_a_trace_for_each_synapse(beta: float) -> None:
    agent, gamma, value_rate = Agent(beta=beta), 0.9, 0.3
    (found, _), y = changes(agent, ActorCriticError(gamma, value_rate))
    x, actions, reward, following = episode()
    psi = agent.lif.surrogate.derivative(agent.lif.membrane - agent.lif.threshold)
    eps, weight = trace(x, ALPHA, dtype=torch.float64), agent.readout.weight.detach()
    value = torch.cat([y[..., -1], following.unsqueeze(0)])
    total, kept = torch.zeros(NEURONS, INPUTS).double(), torch.zeros(B, NEURONS, INPUTS).double()
    one = torch.ones(B, NEURONS).double()
    for t in range(T):
        e = eprop(
            one.expand(t + 1, -1, -1),
            psi[: t + 1],
            eps[: t + 1],
            KAPPA,
            beta,
            agent.lif.decay_adaptation,
        )[1]
        acts = (actions[t] >= 0).double().unsqueeze(-1)
        taken = torch.eye(ACTIONS).double()[actions[t].clamp(min=0)]
        signal = acts * (y[t, :, :-1].softmax(-1) - taken) @ weight[:-1] - value_rate * weight[-1]
        kept = gamma * kept + signal.unsqueeze(-1) * e
        delta = reward[t] + gamma * value[t + 1] - value[t]
        total += (delta[:, None, None] * kept).sum(0)
    assert total.abs().max() > 0.01
    torch.testing.assert_close(found, -total, **exact)


def test_a_window_may_be_cut_where_the_next_value_is_given() -> None:
    error_of, outputs = ActorCriticError(0.9, 0.3, decay=0.0), torch.randn(T, B, ACTIONS + 1)
    _, actions, reward, following = episode()
    whole = error_of(outputs, actions, reward, following)
    first = error_of(outputs[:6], actions[:6], reward[:6], outputs[6, :, -1])
    rest = error_of(outputs[6:], actions[6:], reward[6:], following)
    torch.testing.assert_close(torch.cat([first, rest]), whole)


def test_narrow_numbers_are_computed_in_float32_and_nothing_has_a_graph() -> None:
    outputs = torch.randn(4, 2, 3).bfloat16().requires_grad_()
    error = ActorCriticError()(outputs, torch.zeros(4, 2).int(), torch.ones(4, 2))
    assert error.dtype == torch.float32
    assert not error.requires_grad


def test_episodes_without_an_action_are_told() -> None:
    outputs, none, reward = torch.zeros(4, 2, 3), torch.full((4, 2), -1), torch.zeros(4, 2)
    with pytest.warns(UserWarning, match="Found -1, no action, in all steps of episodes that end"):
        assert not ActorCriticError()(outputs, none, reward)[..., :-1].any()
    ActorCriticError()(outputs, none, reward, torch.zeros(2))  # they go on
    none[3, 1] = 0
    assert ActorCriticError()(outputs, none, reward + 1)[..., :-1].any()
