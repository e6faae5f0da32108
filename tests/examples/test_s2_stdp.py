"""A layer that decides by its first spike, and learns from labels by the delta rule."""

import _data as data
import pytest
import s2_stdp as s2
import torch

from lightning_accum import Cell, DeltaRule, RuleTrainer

STEPS, EACH = s2.STEPS, s2.EACH


@pytest.fixture(scope="module")
def seen():
    """When features of 300 digits spike, and their labels."""
    torch.manual_seed(0)
    split = data.load_digits_split(size=28)
    layer = s2.Layer(split.train_images[:, None], 32, 7)
    features = layer.features(split.train_images[:300, None])
    return s2.first_spikes(features), split.train_labels[:300]


@pytest.fixture
def layer(seen):
    torch.manual_seed(0)
    weight = torch.rand(10 * EACH, seen[0].shape[1])
    return s2.Decision(seen[0], weight)


def test_the_strongest_feature_spikes_first_and_the_weakest_never():
    times = s2.first_spikes(torch.tensor([[2.0, 1.0, 0.1, 0.0]]))
    assert times[0, 0] == 0 < times[0, 1] < STEPS
    assert times[0, 2:].tolist() == [STEPS, STEPS]


def test_one_neuron_of_each_digit_spikes_even_for_an_empty_image(seen, layer):
    times = torch.cat([seen[0], torch.full_like(seen[0][:1], STEPS)])
    assert torch.equal(layer(times).sum((0, 2)), torch.ones(len(times)))  # the first of all decides
    layer.lif.inhibition = s2.FirstOfEachDigit()
    spikes = layer(times)
    assert torch.equal(spikes.sum(0).view(-1, EACH).sum(1), torch.ones(10 * len(times)))
    assert spikes[-1, -1].sum() == 10  # the last step drives all neurons


def naive_change(layer, times, digit):
    """The change of one image by the equations of the paper, at a rate of one."""
    weight = layer.fc.weight.double()
    potentials = torch.stack([weight @ (times <= t).double() for t in range(STEPS)])
    when, winners = [], []
    for group in potentials.view(STEPS, 10, EACH).unbind(1):
        reached = (group >= layer.lif.v_threshold).any(1).nonzero()
        when.append(int(reached[0]) if len(reached) else STEPS - 1)
        winners.append(int(group[when[-1]].argmax()))
    mean = sum(when) / 10
    change = torch.zeros_like(weight)
    for k, (t, winner) in enumerate(zip(when, winners, strict=True)):
        desired = mean - 0.9 * s2.GAP if k == digit else mean + 0.1 * s2.GAP
        window = (times <= t).double() - ((times > t) & (times < STEPS)).double()
        change[k * EACH + winner] = (t - desired) / STEPS * window
    return change


def test_the_rule_changes_weights_as_in_the_paper(seen, layer):
    layer.lif.inhibition = s2.FirstOfEachDigit()
    rule = RuleTrainer(DeltaRule(1.0), batch_reduction="sum", time_dim=0)
    unit = rule.register_cell("cell", Cell(layer.fc, layer.lif))
    times, labels = seen[0][:4], seen[1][:4]
    rule(**layer.training_step((times, labels), 0))
    change = unit.cell.updater.weight.update(layer.fc.weight)
    expected = sum(naive_change(layer, *each) for each in zip(times, labels, strict=True))
    assert (expected > 0).any()
    assert (expected < 0).any()
    torch.testing.assert_close(change.double(), expected, atol=1e-5, rtol=1e-5)


def test_thresholds_rise_where_a_neuron_wins_for_its_digit_and_hold_it_back(seen, layer):
    layer.lif.inhibition = s2.FirstOfEachDigit()
    times, labels = seen[0][:1], seen[1][:1]
    winner = layer(times).sum(0).view(10, EACH)[labels[0]].argmax()
    layer.training_step((times, labels), 0)
    assert layer.rise.nonzero().tolist() == [[labels[0], winner]]
    layer.rise *= 1e6
    error = layer.training_step((times, labels), 0)["error"].abs().sum((0, 1)).view(10, EACH)
    assert error[labels[0], winner] == 0  # another of its digit spikes first
    layer.on_train_epoch_start()
    assert not layer.rise.any()


def test_it_learns(seen, monkeypatch):
    monkeypatch.setattr(s2, "EPOCHS", 3)
    torch.manual_seed(0)
    times, labels = seen
    weight = 0.5 + 0.01 * torch.randn(10 * EACH, times.shape[1])
    layer = s2.Decision(times[:200], weight)
    assert layer.accuracy(times[200:], labels[200:]) < 40
    layer.learn(times[:200], labels[:200])
    assert layer.accuracy(times[200:], labels[200:]) > 60
    weight = layer.fc.weight
    assert (weight >= 0).all()
    torch.testing.assert_close(weight.mean(1), torch.full((10 * EACH,), 0.5))


def test_the_threshold_of_fixed_weights_is_chosen_without_the_test_images(seen, monkeypatch):
    early = data.split_at_random(*seen).map(lambda times: (STEPS - times).float())
    looked = []
    accuracy = s2.Decision.accuracy
    monkeypatch.setattr(
        s2.Decision, "accuracy", lambda self, *x: looked.append(x[1]) or accuracy(self, *x)
    )
    assert s2.as_weights(early, 0, spherical=True) > 60
    assert all(torch.equal(labels, early.inner().test_labels) for labels in looked[:-1])
    assert torch.equal(looked[-1], early.test_labels)
