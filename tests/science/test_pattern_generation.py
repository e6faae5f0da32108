"""A recurrent network learns to follow targets: by e-prop, as by backpropagation through time."""

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


def test_readouts_are_the_best_ones():
    raster, target = science.task(0)
    assert science.best_readout(target, target) < 1e-12
    assert science.best_readout(torch.zeros(science.STEPS, 1, 2), target) == pytest.approx(1, 1e-3)
    network = science.make("symmetric", seed=0)
    of_network = network.score(network(raster).detach(), target)
    assert science.best_readout(network.filtered(raster), target) < of_network
