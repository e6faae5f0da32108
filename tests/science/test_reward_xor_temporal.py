"""Reward decides what a network answers to pairs of spike trains that no rate tells apart."""

from __future__ import annotations

import pytest
import reward_xor_temporal as science
import torch


def test_each_bit_is_one_train_of_fifty_spikes_at_either_input():
    spikes = science.trains(torch.Generator().manual_seed(0))
    assert spikes.shape == (500, 4, 2)
    assert (spikes.sum(0) == 50).all()
    zero, one = spikes[:, 0, 0], spikes[:, 3, 0]
    assert not torch.equal(zero, one)
    for pattern, bits in enumerate(science.PATTERNS.int().tolist()):
        for side, bit in enumerate(bits):
            assert torch.equal(spikes[:, pattern, side], one if bit else zero)


@pytest.mark.filterwarnings("ignore:(No|Each) value of `reward`")
def test_rewarded_spikes_increase_and_punished_ones_decrease():
    for name, make in science.RULES.items():
        first, *_, last = science.learn(make(), 8, seed=0, rewards=torch.ones(4))
        assert last.sum() > 1.1 * first.sum(), name
        first, *_, last = science.learn(make(), 8, seed=0, rewards=-torch.ones(4))
        assert last.sum() < 0.7 * first.sum(), name
