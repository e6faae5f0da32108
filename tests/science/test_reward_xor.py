"""Reward alone teaches a spiking network XOR; its sign decides, and dealt at random it does not."""

import _xor_evaluation as xor
import pytest
import reward_xor as science
import reward_xor_temporal as temporal
import torch

EPOCHS = 30


def test_learns_as_the_sign_of_the_reward_decides():
    rates = science.learn(science.RULES["MSTDPET"], EPOCHS, seed=0)
    zero, right, left, both = xor.final(rates).tolist()
    assert zero == 0  # no input, no spikes
    assert min(right, left) > 2 * both
    assert xor.learned(rates)
    _, right, left, both = rates[:3].mean(0).tolist()
    assert max(right, left) < both  # two inputs drive more than one
    other = science.learn(science.RULES["MSTDPET"], EPOCHS, seed=0, rewards=-science.XOR)
    _, right, left, both = xor.final(other).tolist()
    assert both > 1.5 * max(right, left)
    assert both > 4 * xor.final(rates)[3]


def test_shuffled_rewards_teach_nothing():
    rates = science.learn(science.RULES["MSTDPET"], EPOCHS, seed=0, shuffled=True)
    assert not xor.learned(rates)


def test_the_wrong_order_is_worth_nothing_and_no_less():
    right, wrong = torch.tensor([[0.0, 9, 8, 3]]), torch.tensor([[0.0, 3, 2, 90]])
    assert xor.margin(right) == 5
    assert xor.margin(wrong) == 0
    assert xor.learned(torch.stack([right, wrong])).tolist() == [True, False]


def test_the_count_of_seeds_stands_beside_its_interval(capsys):
    rates = torch.tensor([[[0.0, 9, 8, 3]]] * 4 + [[[0.0, 3, 2, 90]]])
    xor.row("four of five", rates)
    assert capsys.readouterr().out.endswith("4 of 5 seeds, 28 to 99 %\n")  # by Clopper and Pearson


def test_a_rate_of_0_changes_nothing():
    first, *_, last = temporal.learn(temporal.MSTDP(0.0, 0.0), 3, seed=0)
    assert first.sum() > 0
    assert torch.equal(first, last)


@pytest.mark.filterwarnings("ignore:(No|Each) value of `reward`")
@pytest.mark.parametrize("name", science.RULES)
@pytest.mark.parametrize(
    ("example", "epochs", "seed", "more", "less"),
    [(science, 12, 1, 1.5, 0.2), (temporal, 8, 0, 1.1, 0.7)],
)
def test_rewarded_spikes_increase_and_punished_ones_decrease(
    example, epochs, seed, more, less, name
):
    rule = example.RULES[name]
    first, *_, last = example.learn(rule, epochs, seed=seed, rewards=torch.ones(4))
    assert last.sum() > more * first.sum()
    first, *_, last = example.learn(rule, epochs, seed=seed, rewards=-torch.ones(4))
    assert last.sum() < less * first.sum()
