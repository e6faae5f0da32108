"""Filters that compete approach what they win: at each place of a convolution, and in a stack."""

import _data as data
import conv_wta as wta
import pytest
import s2_stdp as s2
import softhebb_stack as stack
import torch
from torch.nn.functional import normalize, one_hot, unfold

from lightning_accum import Cell, DeltaRule, RuleTrainer


@pytest.fixture(scope="module")
def images():
    return data.load_digits_split(size=28).train_images[:300, None]


def alike(filters, patches):
    """Mean cosine of each filter with the mean of the patches that it answers most."""
    filters = filters.flatten(1)
    won = one_hot((patches @ filters.T).argmax(1), len(filters)).float()
    return (normalize(won.T @ patches) * normalize(filters)).sum(1).mean().item()


def test_filters_approach_what_they_win(images):
    torch.manual_seed(0)
    layer = wta.Layer(images, 32, 7)
    patches = unfold(images, 7, padding=3).transpose(1, 2).flatten(0, 1)
    patches = patches - patches.mean(1, keepdim=True)
    before = alike(layer.conv.weight, patches)
    layer.learn(images)
    filters = layer.conv.weight.flatten(1)
    torch.testing.assert_close(filters.norm(dim=1), torch.ones(32))
    torch.testing.assert_close(filters.sum(1), torch.zeros(32), atol=1e-5, rtol=0)
    assert 1 - alike(layer.conv.weight, patches) < 0.2 * (1 - before)


def test_noise_has_the_mean_and_length_of_patches_but_not_their_shape(images):
    torch.manual_seed(0)
    patches, noise = (wta.Layer(images, 64, 7, s).conv.weight for s in ("patches", "noise"))
    for filters in (patches, noise):
        torch.testing.assert_close(filters.flatten(1).norm(dim=1), torch.ones(64))
        torch.testing.assert_close(filters.sum((1, 2, 3)), torch.zeros(64), atol=1e-5, rtol=0)
    smooth, rough = ((f[..., 1:] * f[..., :-1]).sum((1, 2, 3)).mean() for f in (patches, noise))
    assert smooth > 0.5 > 0.1 > abs(rough)  # neighbouring pixels of patches are alike


def test_features_are_the_largest_answers_in_windows_that_overlap(images):
    layer = wta.Layer(images, 8, 7)
    found = layer.features(images[:150]).view(150, 8, 4, 4)
    answers = layer.conv(images[:150])
    for row, column in ((0, 0), (1, 2), (3, 3)):
        window = answers[..., 6 * row : 6 * row + 10, 6 * column : 6 * column + 10]
        expected = window.amax((2, 3)).clamp(min=0)
        torch.testing.assert_close(found[..., row, column], expected)


def test_without_pooling_they_are_the_answers_in_the_middle_of_windows(images):
    layer = wta.Layer(images, 8, 7)
    found = layer.features(images[:5], pooling=False).view(5, 8, 4, 4)
    answers = layer.conv(images[:5]).clamp(min=0)
    for row, column in ((0, 0), (1, 2), (3, 3)):
        at = answers[..., 6 * row + 5, 6 * column + 5]
        torch.testing.assert_close(found[..., row, column], at)


def closest(filters, patches):
    """Mean cosine of patches with the filter that answers them most."""
    return (normalize(patches) @ normalize(filters.flatten(1)).T).amax(1).mean().item()


@pytest.mark.parametrize("example", [wta, stack])
def test_centres_of_k_means_are_closer_to_patches_than_patches_and_noise_are(images, example):
    torch.manual_seed(0)
    seen = wta.patches(images, 5, 2000)
    seen = seen - seen.mean(1, keepdim=True)
    kinds = ("centres of k-means", "patches", "noise")
    layers = [example.Layer(images, 32, 5, kind) for kind in kinds]
    weights = [(each.conv if example is wta else each.filters).weight for each in layers]
    found = [closest(weight, seen) for weight in weights]
    assert found == sorted(found, reverse=True)
    assert found[0] - found[1] > 0.01
    assert found[1] - found[2] > 0.1


# ---------------------------------------------------------------------------- a stack
def test_patches_are_of_the_images_without_their_mean_and_length(images):
    torch.manual_seed(0)
    some = images[:7]
    found = stack.patches(some, 5)
    assert found.shape == (35, 25)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(35))
    torch.testing.assert_close(found.sum(1), torch.zeros(35), atol=1e-5, rtol=0)
    for number, patch in enumerate(found):
        every = some[number // 5, 0].unfold(0, 5, 1).unfold(1, 5, 1).reshape(-1, 25)
        every = normalize(every - every.mean(1, keepdim=True))
        assert (every @ patch).max() > 1 - 1e-5


def test_filters_of_a_stack_approach_what_they_win(images):
    torch.manual_seed(0)
    layer = stack.Layer(images, 32, 5)
    patches = stack.patches(images, 5)
    before = alike(layer.filters.weight, patches)
    layer.learn(images)
    torch.testing.assert_close(layer.filters.weight.norm(dim=1), torch.ones(32), atol=0.05, rtol=0)
    assert 1 - alike(layer.filters.weight, patches) < 0.4 * (1 - before)


def test_a_layer_answers_as_its_filters_do_to_the_patches_of_an_image(images):
    torch.manual_seed(0)
    below = stack.Layer(images, 8, 5)
    for layer, seen in (
        (below, images[:250]),
        (stack.Layer(below.answer(images)[1], 6, 5), below.answer(images[:250])[1]),
    ):
        size = seen.shape[-1]
        at_each = unfold(seen, 5, padding=2).transpose(1, 2)
        answers = layer(at_each)
        excess = (answers - answers.mean(2, keepdim=True)).clamp(min=0)
        excess = excess.transpose(1, 2).reshape(250, -1, size, size)
        windows, places = layer.answer(seen)
        windows = windows.view(250, -1, 4, 4)
        assert places.shape == (250, excess.shape[1], size // 2, size // 2)
        torch.testing.assert_close(places[..., 3, 1], excess[..., 6:8, 2:4].amax((2, 3)))
        step, side = (6, 10) if size == 28 else (3, 5)
        for row, column in ((0, 0), (1, 2), (3, 3)):
            top, left = step * row, step * column
            window = excess[..., top : top + side, left : left + side]
            torch.testing.assert_close(windows[..., row, column], window.amax((2, 3)))


# ---------------------------------------------------------------------------- a decision layer
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
