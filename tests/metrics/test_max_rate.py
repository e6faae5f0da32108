import copy

import pytest
import torch
from turns import turns

from lightning_accum.metrics import MaxRateClassifier

RATES = torch.tensor([[4, 1, 0, 0], [6, 0, 0, 2], [1, 3, 0, 2], [0, 5, 0, 2]])
LABELS = torch.tensor([0, 0, 2, 2])
# Means: class 0 [5, .5, 0, 1], class 1 unseen, class 2 [.5, 4, 0, 2].
ASSIGNED = [0, 2, -1, 2]
VOTES = ["assigned", "proportional", "bayes"]


def fitted(vote="assigned", rates=RATES, labels=LABELS):
    readout = MaxRateClassifier(4, 3, vote=vote)
    readout.update(rates, labels)
    return readout


def test_assignments_by_hand():
    readout = fitted()
    assert readout.assignments.tolist() == ASSIGNED
    assert readout.compute().tolist() == ASSIGNED


def test_a_rare_class_counts_by_its_mean():
    # Class 0 answers more in sum, class 2 on average.
    readout = MaxRateClassifier(1, 3)
    readout.update(torch.tensor([[2.0], [2.0], [3.0]]), torch.tensor([0, 0, 2]))
    assert readout.assignments.tolist() == [2]


def test_predictions_by_hand():
    rates = torch.tensor([[3, 2, 9, 2], [2, 5, 9, 0], [0, 0, 0, 0]])
    # Assigned means: 3 to (2+2)/2, 2 to (5+0)/2; a silent sample is a tie of classes 0 and 2.
    assert fitted().predict(rates).tolist() == [0, 2, 0]
    # Shares of class 0 are 10/11, 1/9, 0, 1/3, of class 2 1/11, 8/9, 0, 2/3.
    share = torch.tensor([[10 / 11, 1 / 9, 0, 1 / 3], [0, 0, 0, 0], [1 / 11, 8 / 9, 0, 2 / 3]])
    scores = (rates.float() @ share.T) / share.sum(1)
    expected = scores.nan_to_num(-torch.inf).argmax(1)
    assert fitted("proportional").predict(rates).tolist() == expected.tolist()
    assert (expected != 1).all()
    # With one sample more, means are [4.25, 13/12, 0, 7/6] in class 0, [1.25, 41/12, 0, 11/6] in 2.
    rate = torch.tensor([[4.25, 13 / 12, 7 / 6], [1.25, 41 / 12, 11 / 6]]).double()
    scores = rates[:2, [0, 1, 3]].double() @ rate.log().T - rate.sum(1)
    assert fitted("bayes").predict(rates[:2]).tolist() == (2 * scores.argmax(1)).tolist() == [0, 2]


@pytest.mark.parametrize("vote", VOTES)
def test_classes_that_no_neuron_stands_for_never_win(vote):
    readout = fitted(vote)
    predicted = readout.predict(torch.rand(50, 4, generator=torch.Generator().manual_seed(0)))
    assert set(predicted.tolist()) == {0, 2}
    silent = fitted(vote, rates=torch.zeros(4, 4))
    assert silent.assignments.tolist() == [-1] * 4
    assert silent.predict(torch.ones(2, 4)).tolist() == [-1, -1]


@pytest.mark.parametrize("vote", VOTES)
def test_separable_data_are_classified(vote):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 5, (400,), generator=generator)
    preferred = torch.arange(40) % 5
    mean = torch.where(labels[:, None] == preferred, 12.0, 4.0)
    rates = torch.poisson(mean, generator=generator)
    readout = MaxRateClassifier(40, 5, vote=vote)
    for start in range(0, 200, 64):  # The last batch is smaller.
        batch = slice(start, min(start + 64, 200))
        readout.update(rates[batch], labels[batch])
    assert readout.assignments.tolist() == preferred.tolist()
    accuracy = (readout.predict(rates[200:]) == labels[200:]).float().mean()
    assert accuracy > 0.98


def test_predictions_follow_updates_merges_loads_and_resets():
    readout = fitted()
    sample = torch.tensor([[1, 0, 0, 0]])
    assert readout.predict(sample).tolist() == [0]
    flip = fitted(labels=2 - LABELS, rates=10 * RATES)
    updated, merged, loaded = (copy.deepcopy(readout) for _ in range(3))
    updated.update(10 * RATES, 2 - LABELS)
    merged.merge_state(flip)
    loaded.load_state_dict(flip.state_dict())
    for other in (updated, merged, loaded):
        assert other.predict(sample).tolist() == [2]
    readout.reset()
    readout.update(10 * RATES, 2 - LABELS)
    assert readout.predict(sample).tolist() == [2]


def test_a_state_of_another_size_is_refused():
    with pytest.raises(RuntimeError, match=r"of shape \(3, 5\).* as `rate_sums`.*\(3, 4\)"):
        MaxRateClassifier(5, 3).load_state_dict(fitted().state_dict())


@pytest.mark.parametrize("vote", VOTES)
def test_predictions_read_nothing_on_the_host(vote):
    readout = MaxRateClassifier(4, 3, vote=vote).to("meta")
    readout.update(RATES.to("meta"), LABELS.to("meta"))
    assert readout.predict(RATES.to("meta")).shape == (4,)


def test_an_empty_batch_changes_nothing():
    readout = fitted()
    readout.update(RATES[:0], LABELS[:0])
    assert readout.assignments.tolist() == ASSIGNED


TWO, NO_RATES = torch.ones(2, 4), r"`rates` should be finite and not negative.*Found"


def with_one(value):
    rates = RATES.float()
    rates[1, 2] = value
    return rates


@turns(
    "call, error, match",
    [
        (lambda readout: readout.update(torch.ones(2, 3), LABELS[:2]), ValueError,
         r"`rates` should have shape \[B, 4\]"),
        (lambda readout: readout.update(torch.ones(5, 2, 4), LABELS[:2]), ValueError,
         "sum or average spikes over time"),
        (lambda readout: readout.update(TWO, LABELS), ValueError,
         r"`labels` should have shape \[2\]"),
        *((lambda readout, wrong=wrong: readout.update(TWO, torch.tensor(wrong)), TypeError,
           "`labels` should be integers") for wrong in ([0.0, 1.0], [True, False])),
        *((lambda readout, wrong=wrong: readout.update(TWO, torch.tensor(wrong)), ValueError,
           f"between 0 and 2. Found .* {wrong[0]} to {wrong[1]}") for wrong in ([0, 3], [-1, 0])),
        *((lambda readout, wrong=wrong: readout.update(with_one(wrong), LABELS), ValueError,
           NO_RATES) for wrong in (float("nan"), float("inf"), -0.5)),
        *((lambda readout, wrong=wrong: readout.predict(with_one(wrong)), ValueError,
           NO_RATES) for wrong in (float("nan"), float("inf"), -0.5)),
        (lambda _: MaxRateClassifier(0, 3), ValueError, "`num_neurons = 0`"),
        (lambda _: MaxRateClassifier(4, -1), ValueError, "`num_classes = -1`"),
        (lambda _: MaxRateClassifier(4, 3, vote="loudest"), ValueError, "`vote = 'loudest'`"),
        (lambda readout: readout.predict(torch.ones(4)), ValueError, "`rates` should have shape"),
    ],
)  # fmt: skip
def test_what_is_refused_changes_nothing(call, error, match):
    readout = fitted()
    with pytest.raises(error, match=match):
        call(readout)
    assert readout.assignments.tolist() == ASSIGNED


def test_plot_draws_the_neurons_of_each_class():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    figure, axes = fitted().plot()
    assert [bar.get_height() for bar in axes.patches] == [1, 0, 2, 1]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2", "none"]
    assert axes.figure is figure
    given = pyplot.figure().add_subplot()
    assert fitted().plot(torch.tensor([1, 1, 1, 1]), ax=given) == (given.figure, given)
    assert [bar.get_height() for bar in given.patches] == [0, 4, 0, 0]
    pyplot.close("all")
