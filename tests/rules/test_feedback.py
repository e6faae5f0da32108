"""Feedback and errors: what each brings to the neurons; that of an actor and its critic."""

import copy

import pytest
import torch
from torch import nn

from lightning_accum import rules
from lightning_accum.rules import ActorCriticError, RandomFeedback, SymmetricFeedback

exact = {"rtol": 0.0, "atol": 1e-10}
T, B, ACTIONS = 15, 3, 2
ERROR = torch.tensor([[1.0, -2.0], [0.5, 0.0]])


def test_symmetric_feedback_follows_the_readout():
    readout = nn.Linear(3, 2)
    feedback = SymmetricFeedback(readout)
    torch.testing.assert_close(feedback(ERROR), ERROR @ readout.weight.detach())
    nn.init.ones_(readout.weight)
    torch.testing.assert_close(feedback(ERROR)[0], torch.full((3,), -1.0))
    assert not feedback(ERROR).requires_grad
    assert not list(feedback.parameters())
    assert not feedback.state_dict()


def test_random_feedback_is_fixed_by_its_seed():
    before = torch.get_rng_state()
    one, same, other = RandomFeedback(2, 3), RandomFeedback(2, (3,)), RandomFeedback(2, 3, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one(ERROR), same(ERROR))
    assert not torch.equal(one(ERROR), other(ERROR))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(ERROR), other(ERROR))
    large = RandomFeedback(50, 400)
    assert abs(large.weight.std().item() * 20 - 1) < 0.05
    assert RandomFeedback(50, 400, scale=2.0).weight.std().item() == pytest.approx(2.0, rel=0.05)


def test_the_difference_to_a_readout_shrinks_by_the_decay():
    readout = nn.Linear(3, 2)
    feedback = rules.LearnedFeedback(readout, 2, 3, decay=0.5)
    drawn = feedback.weight.clone()
    feedback.follow()
    torch.testing.assert_close(feedback.weight, drawn / 2)  # there was no update yet
    before = feedback.weight - readout.weight.detach()
    feedback.follow()
    torch.testing.assert_close(feedback.weight - readout.weight.detach(), before / 2)


def test_a_copy_says_that_it_has_no_readout():
    readout = nn.Linear(3, 2)
    feedback = copy.deepcopy(SymmetricFeedback(readout))
    with pytest.raises(RuntimeError, match=r"feedback\.bind\(model\.readout\)"):
        feedback(ERROR)
    feedback.bind(readout)
    assert feedback(ERROR).shape == (2, 3)


# ------------------------------------------------------------------- an actor and its critic
def episode():
    """Actions in some steps, rewards, and the value after the last step."""
    torch.manual_seed(2)
    actions = torch.randint(-1, ACTIONS, (T, B))
    return actions, torch.randn(T, B).double(), torch.randn(B).double()


@pytest.mark.parametrize("decay", [0.0, 0.8, None])
def test_the_error_equals_a_loop(decay):
    error_of = ActorCriticError(0.9, 0.3, **({} if decay is None else {"decay": decay}))
    decay = 1.0 if decay is None else decay
    actions, reward, following = episode()
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


def test_narrow_numbers_are_computed_in_float32_and_nothing_has_a_graph():
    outputs = torch.randn(4, 2, 3).bfloat16().requires_grad_()
    error = ActorCriticError()(outputs, torch.zeros(4, 2).int(), torch.ones(4, 2))
    assert error.dtype == torch.float32
    assert not error.requires_grad


def test_episodes_without_an_action_are_told():
    outputs, none, reward = torch.zeros(4, 2, 3), torch.full((4, 2), -1), torch.zeros(4, 2)
    with pytest.warns(UserWarning, match="Found -1, no action, in all steps of episodes that end"):
        assert not ActorCriticError()(outputs, none, reward)[..., :-1].any()
    ActorCriticError()(outputs, none, reward, torch.zeros(2))  # they go on
    none[3, 1] = 0
    assert ActorCriticError()(outputs, none, reward + 1)[..., :-1].any()
