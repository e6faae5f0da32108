"""A recurrent network learns to follow targets: by e-prop, as by backpropagation through time."""

from __future__ import annotations

import pattern_generation as science
import pytest
import torch


@pytest.mark.parametrize("learner", ["symmetric", "random"])
def test_generates_the_patterns(learner):
    network = science.make(learner, seed=0)
    errors = network.learn([science.task(0)] * 60)
    assert errors[0] > 0.9
    assert science.untrained(0) == pytest.approx(0.26, abs=0.02)  # the best that a readout could do
    assert science.final(errors) < 0.2


def test_all_begin_alike():
    firsts = [science.make(name, seed=3).learn([science.task(3)]) for name in science.LEARNERS]
    assert firsts[0] == firsts[1]
    assert firsts[2] == pytest.approx(firsts[0], rel=1e-4)


def test_without_recurrent_weights_both_ways_have_one_gradient():
    gradients = []
    for learner in ("symmetric", "bptt"):
        network = science.make(learner, seed=0)
        torch.nn.init.zeros_(network.lif.recurrent.weight)
        network.double()
        network.learn([tuple(part.double() for part in science.task(0))])
        gradients.append((network.fc.weight.grad, network.readout.weight.grad))
    for local, exact in zip(*gradients, strict=True):
        assert exact.abs().max() > 1e-3
        torch.testing.assert_close(local, exact, rtol=1e-8, atol=1e-10)
