"""A spiking convolution by STDP: when it spikes, what its filters learn, and fixed filters."""

import _data as data
import conv_stdp as example
import pytest
import torch


@pytest.fixture(scope="module")
def times():
    return example.spots(data.load_digits_split(size=28).train_images[:100])


def test_the_strongest_spot_spikes_first_and_an_even_image_never(times):
    assert times.shape == (100, 2, 28, 28)
    assert (times.amin((1, 2, 3)) == 0).all()
    assert times.max() == example.STEPS
    dot = torch.zeros(1, 28, 28)
    dot[0, 9, 20] = 1.0
    light, dark = example.spots(dot)[0]
    assert light.argmin() == 9 * 28 + 20
    assert light.min() == 0 < dark.min()  # around the light spot it is a little darker
    again = example.spots(0.3 * dot)[0]
    assert torch.equal(again, torch.stack([light, dark]))  # whatever the contrast


def test_at_a_place_one_map_spikes_and_once(times):
    torch.manual_seed(0)
    net = example.Network()
    assert net(times[:5]).sum((0, 2)).max() > 1
    net.lif.inhibition = example.FirstAtEachPlace()
    spikes = net(times[:5])
    assert spikes.sum((0, 2)).max() == 1  # over time and maps
    assert spikes.sum() > 0


def test_filters_learn_what_comes_early_and_become_different(times):
    torch.manual_seed(0)
    net = example.Network()
    before = net.conv.weight.flatten(1).clone()
    net.learn(times)
    after = net.conv.weight.flatten(1)
    assert net.lif.inhibition is None
    assert (after >= 0).all()
    torch.testing.assert_close(after.norm(dim=1), torch.ones(example.MAPS))

    def alike(filters):
        return (filters @ filters.T).triu(1).sum()

    assert alike(after) < 0.9 * alike(before)


def test_features_are_how_early_the_network_spikes(times):
    torch.manual_seed(0)
    net = example.Network()
    early = net(times[:30]).cumsum(0).sum(0)
    found = net.features(times[:30]).view(30, example.MAPS, 4, 4)
    for row, column in ((0, 0), (1, 2), (3, 3)):
        window = early[..., 6 * row : 6 * row + 10, 6 * column : 6 * column + 10]
        assert torch.equal(found[..., row, column], window.amax((2, 3)))
    assert 0 < found.mean() < example.STEPS


@pytest.mark.parametrize("start", ["random", "patches", "centres of k-means"])
def test_filters_that_do_not_learn_have_their_length_and_a_threshold_of_their_own(start, times):
    torch.manual_seed(0)
    labels = torch.arange(100) % 10
    seen = data.Split(times, labels, times, labels)
    net = example.fixed(start, seen)
    weight = net.conv.weight.flatten(1)
    assert (weight >= 0).all()
    torch.testing.assert_close(weight.norm(dim=1), torch.ones(example.MAPS))
    assert len(weight.unique(dim=0)) == example.MAPS
    if start == "random":  # fits take seconds
        spoilt = seen._replace(test_labels=labels.flip(0))
        assert example.threshold_for(net, seen) == example.threshold_for(net, spoilt)
