"""A network that learns by e-prop remembers evidence if its neurons adapt, and not otherwise."""

import evidence_accumulation as science
import torch

BATCHES = 60


def learned(learner, neuron):
    network = science.make(learner, neuron, seed=0)
    science.learn(network, BATCHES, seed=0)
    return science.right(network)


def test_eprop_of_adaptive_neurons_solves_it():
    assert learned("symmetric", "ALIF") > 0.85


def test_eprop_of_neurons_that_do_not_adapt_does_not():
    assert learned("symmetric", "LIF") < 0.65  # by chance 0.5


def test_no_input_tells_the_side_after_the_cues():
    x, target = science.trials(400, torch.Generator().manual_seed(1))
    left, right = x[..., :5].sum((0, 2)), x[..., 5:10].sum((0, 2))
    assert (right > left).long().eq(target).float().mean() > 0.9
    assert not x[science.CUES * (science.CUE + science.PAUSE) :, :, :10].any()
    assert 0.4 < target.float().mean() < 0.6


def test_the_controls_see_what_they_should():
    split = science.learned_and_unseen(20, seed=0)
    inputs, _ = science.trials(science.BATCH, torch.Generator().manual_seed(0))
    assert torch.equal(split.train_images[: science.BATCH].transpose(0, 1), inputs)
    assert not torch.equal(split.test_images, science.learned_and_unseen(1, seed=1).test_images)
    assert 73 < science.by_last_cue(split) < 83  # 78 by the probabilities of the cues
    assert science.by_traces(split) > 95
