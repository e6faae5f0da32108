"""Answers that change: the rule learns them anew, what is kept from before does not."""

import reversal as science
import torch


def test_each_block_has_other_answers_than_the_last():
    right = science.answers(0)
    assert right.shape == (science.BLOCKS, science.CUES)
    assert (right[1:] != right[:-1]).all()
    assert set(right.flatten().tolist()) == set(range(science.ACTIONS))


def test_the_rule_learns_the_first_answers_and_the_next():
    make = science.Deciders(0.3, 0.06), science.Deciders(0.3, 0.06, frozen=True)
    runs = [science.play(each, 0, 2) for each in make]
    assert torch.equal(*(run[: science.BLOCK] for run in runs))
    rule, kept = (run.split(50) for run in runs)
    assert rule[0][:10].mean() < 45 < 60 < rule[2].mean()
    assert rule[3].mean() < 40 < 50 < rule[5].mean()
    assert kept[5].mean() < 30


def test_without_a_trace_of_what_was_done_nothing_right_is_learned():
    found = science.play(science.Deciders(0.3, 0.06, eligible=1.0), 0, 1)
    assert found[-50:].mean() < 40


def test_rewards_of_other_games_are_the_same_rewards(monkeypatch):
    seen = []
    monkeypatch.setattr(science.Deciders, "learn", lambda _, rewards, trial: seen.append(rewards))
    given = torch.arange(float(science.STREAMS))
    science.Shuffled(0.1, 0.1).learn(given, 0)
    assert torch.equal(seen[0].sort().values, given)


def test_the_table_learns_values():
    table = science.Table(0.5, 0.1)
    table.cues, table.chosen = torch.tensor([1, 1]), torch.tensor([2, 2])
    table.learn(torch.tensor([1.0, 1.0]), 0)
    assert table.values.sum() == table.values[1, 2] == 0.75
