"""A layer that decides by its first spike, and learns from reward."""

import _data as data
import pytest
import reward_decision as decision
import torch
from torch.nn.functional import cosine_similarity

STEPS = decision.STEPS


@pytest.fixture(scope="module")
def seen():
    """Spikes of features of 150 digits, and their labels."""
    torch.manual_seed(0)
    split = data.load_digits_split(size=28)
    times = decision.spots(split.train_images[:150])
    return decision.first_spikes(decision.Network(), times), split.train_labels[:150]


@pytest.fixture
def layer(seen):
    torch.manual_seed(0)
    return decision.Decision(seen[0], shuffled=False).eval()


def test_a_window_spikes_when_its_first_neuron_does():
    torch.manual_seed(0)
    times = decision.spots(data.load_digits_split(size=28).train_images[:3])
    net = decision.Network()
    spikes = net(times).view(STEPS, 3, decision.MAPS, 7, 4, 7, 4).amax((4, 6)).flatten(2)
    found = decision.first_spikes(net, times)
    for step in range(STEPS):
        assert torch.equal(found == step, spikes[step].bool() & ~spikes[:step].any(0))
    assert found.max() == STEPS


def spikes_of(layer, times):
    """Spikes ``[T, B, neurons]`` of the layer, and the digits that it decides for."""
    found = []
    hook = layer.lif.register_forward_hook(lambda module, args, out: found.append(out))
    digits = layer(times)
    hook.remove()
    return found[0], digits


def test_one_neuron_decides_for_each_image_even_for_an_empty_one(seen, layer):
    times = torch.cat([seen[0], torch.full_like(seen[0][:1], STEPS)])
    spikes, digits = spikes_of(layer, times)
    assert torch.equal(spikes.sum((0, 2)), torch.ones(151))
    assert spikes[-1, -1].any()  # the last step drives all neurons
    assert torch.equal(digits, spikes.sum(0).argmax(1) // decision.EACH)


@pytest.mark.parametrize("right", [True, False])
def test_reward_makes_the_decision_likelier_and_punishment_less(seen, layer, right, monkeypatch):
    monkeypatch.setattr(decision, "EPOCHS", 1)
    image = seen[0][:1]
    before = layer.fc.weight.clone()
    digit = layer(image)
    layer.train().learn(image, digit if right else (digit + 1) % 10)
    changed = (layer.fc.weight - before).norm(dim=1) > 1e-5
    (winner,) = changed.nonzero().flatten()  # the others keep their weights
    assert winner // decision.EACH == digit
    features = (image < STEPS).float()
    was, now = (cosine_similarity(w[winner], features[0], 0) for w in (before, layer.fc.weight))
    assert (now > was) == right
    assert not layer.lif.theta.any()


def test_in_the_control_the_reward_of_an_image_goes_to_another(seen):
    times = seen[0][:10]
    control = decision.Decision(times, shuffled=True).eval()
    digits = control(times)
    for only in range(10):
        labels = (digits + 1) % 10
        labels[only] = digits[only]
        reward = control.training_step((times, labels), 0)["reward"]
        assert (reward > 0).sum() == 1
        assert reward[only] < 0


def test_it_learns_from_rewards_and_not_from_shuffled_ones(seen):
    times, labels = seen
    right = {}
    for shuffled in (False, True):
        torch.manual_seed(0)
        layer = decision.Decision(times, shuffled)
        layer.learn(times, labels)
        right[shuffled] = (layer(times) == labels).float().mean()
        torch.testing.assert_close(layer.fc.weight.norm(dim=1), torch.ones(10 * decision.EACH))
    assert right[False] > 0.45  # by chance 0.1
    assert right[True] < 0.3


def test_centres_find_their_digits_by_reward():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(400) % 10  # ten groups, each of one digit
    images = torch.eye(10)[labels] + 0.1 * torch.rand(400, 10, generator=generator)
    split = data.Split(images, labels, images, labels)
    assert decision.by_reward(split, 0, spherical=True) > 95
    shuffled = split._replace(train_labels=labels[torch.randperm(400, generator=generator)])
    assert decision.by_reward(shuffled, 0, spherical=True) < 50
