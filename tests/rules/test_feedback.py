"""Feedback: what each brings to the neurons, and what does not fit."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from lightning_accum.rules import (
    LearnedFeedback,
    RandomFeedback,
    SymmetricFeedback,
)

ERROR = torch.tensor([[1.0, -2.0], [0.5, 0.0]])


def test_symmetric_feedback_follows_the_readout() -> None:
    readout = nn.Linear(3, 2)
    feedback = SymmetricFeedback(readout)
    torch.testing.assert_close(feedback(ERROR), ERROR @ readout.weight.detach())
    nn.init.ones_(readout.weight)
    torch.testing.assert_close(feedback(ERROR)[0], torch.full((3,), -1.0))
    assert not feedback(ERROR).requires_grad
    assert not list(feedback.parameters())
    assert not feedback.state_dict()


def test_random_feedback_is_fixed_by_its_seed() -> None:
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


def test_learned_feedback_becomes_the_readout() -> None:
    torch.manual_seed(0)
    readout = nn.Linear(3, 2)
    feedback = LearnedFeedback(readout, 2, 3, decay=0.05)

    def angle() -> float:
        pair = (feedback.weight.flatten(), readout.weight.detach().flatten())
        return torch.cosine_similarity(*pair, dim=0).item()

    feedback.follow()
    first = angle()
    for _ in range(200):
        with torch.no_grad():  # any rule or optimizer, with the same decay
            readout.weight.mul_(0.95).add_(0.1 * torch.randn(2, 3))
        feedback.follow()
    assert first < 0.9
    assert angle() > 0.999
    fresh = LearnedFeedback(readout, 2, 3, decay=0.05)
    fresh.load_state_dict(feedback.state_dict())
    for each in (feedback, fresh):
        each.follow()
    assert torch.equal(fresh.weight, feedback.weight)


def test_the_difference_to_a_readout_shrinks_by_the_decay() -> None:
    readout = nn.Linear(3, 2)
    feedback = LearnedFeedback(readout, 2, 3, decay=0.5)
    feedback.follow()
    before = feedback.weight - readout.weight.detach()
    feedback.follow()
    torch.testing.assert_close(feedback.weight - readout.weight.detach(), before / 2)


def test_a_copy_says_that_it_has_no_readout() -> None:
    readout = nn.Linear(3, 2)
    feedback = copy.deepcopy(SymmetricFeedback(readout))
    with pytest.raises(RuntimeError, match=r"feedback\.bind\(model\.readout\)"):
        feedback(ERROR)
    feedback.bind(readout)
    assert feedback(ERROR).shape == (2, 3)
