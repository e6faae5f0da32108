import copy
import math
from functools import partial

import pytest
import torch
from subtests import turns
from torch.utils._pytree import tree_leaves, tree_map_only

from lightning_accum.functional.update_statistics import AVERAGED, update_statistics
from lightning_accum.metrics import FiringStatistics, MaxRateClassifier, UpdateStatistics


def update_batches():
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        w, pos, neg = torch.rand(3, 3, 4, generator=generator)
        after = (w + pos - neg).clamp(0, 1)
        yield {"before": w, "after": after, "pos": pos, "neg": neg, "lower": 0.0, "upper": 1.0}


def spike_batches():
    generator = torch.Generator().manual_seed(1)
    for batch in (4, 4, 4, 1):
        yield {"spikes": torch.rand(5, batch, 2, 3, generator=generator) < 0.05}


def rate_batches():
    generator = torch.Generator().manual_seed(2)
    for batch in (4, 4, 4, 1):
        labels = torch.randint(0, 3, (batch,), generator=generator)
        yield {"rates": torch.rand(batch, 4, generator=generator), "labels": labels}


BATCHES = {
    UpdateStatistics: update_batches,
    FiringStatistics: spike_batches,
    partial(MaxRateClassifier, 4, 3): rate_batches,
}
METRICS = list(BATCHES)[:2]
every = pytest.mark.parametrize("cls", BATCHES)


def fed(cls, batches=None, times=1):
    metric = cls()
    for batch in list(BATCHES[cls]() if batches is None else batches) * times:
        metric.update(**batch)
    return metric


def assert_same(found, expected):
    torch.testing.assert_close(found.compute(), expected.compute())


@every
def test_two_processes_merge_to_one(cls):
    both = list(BATCHES[cls]())
    whole, first, second, empty = fed(cls), fed(cls, both[:1]), fed(cls, both[1:]), cls()
    first.compute()  # A cached result must not outlive the merge.
    first.merge_state(second)
    empty.merge_state(whole)
    assert_same(first, whole)
    assert_same(empty, whole)


@every
def test_forward_returns_the_batch_and_accumulates_without_a_graph(cls):
    metric = cls()
    for batch in BATCHES[cls]():
        for value in batch.values():
            if torch.is_tensor(value) and value.is_floating_point():
                value.requires_grad_()
        found = metric(**batch)
        torch.testing.assert_close(found, fed(cls, [batch]).compute())
    assert_same(metric, fed(cls))
    held = tree_leaves([found, metric.compute(), metric.metric_state])
    assert not any(each.requires_grad for each in held if torch.is_tensor(each))


@every
def test_a_model_cast_to_low_precision_does_not_round_the_sums(cls):
    assert_same(fed(lambda: cls().to(torch.bfloat16), BATCHES[cls](), 100), fed(cls, times=100))


@every
def test_update_reads_nothing_on_the_host(cls):
    there = tree_map_only(torch.Tensor, lambda value: value.to("meta"), list(BATCHES[cls]()))
    fed(lambda: cls().to("meta"), there).compute()


def bars_of(ax):
    return zip(ax.get_xticklabels(), ax.patches, strict=True)


@pytest.mark.parametrize("cls", METRICS)
def test_plot(cls):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    metric = cls()
    values = [metric(**batch) for batch in BATCHES[cls]()]
    figure, axes = metric.plot()
    bars = {tick.get_text(): bar.get_height() for ax in axes for tick, bar in bars_of(ax)}
    assert bars == {name: pytest.approx(float(v)) for name, v in metric.compute().items()}
    _, axes = metric.plot(values)
    curves = [line for ax in axes for line in ax.lines]
    assert sorted(list(line.get_ydata()) for line in curves) == sorted(
        [float(value[name]) for value in values] for name in values[0]
    )
    _, again = metric.plot(values, ax=pyplot.figure().add_subplot())
    assert [len(line.get_ydata()) for line in again.lines] == [len(values)] * len(values[0])
    pyplot.close("all")
    assert figure is not None


def test_update_statistics_average_and_count():
    updates = [*update_batches()]
    updates[1]["pos"][0, 0], updates[2]["neg"][1, 1] = math.nan, math.inf
    found, each = (
        fed(UpdateStatistics, updates).compute(),
        [update_statistics(**u) for u in updates],
    )
    assert {(value.shape, value.dtype) for value in found.values()} == {((), torch.float32)}
    for name, value in found.items():
        expected = sum(float(one[name]) for one in each) / len(each)
        assert float(value) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert found["nonfinite"] == 0.5
    bare, weight = UpdateStatistics(), torch.ones(1)
    with pytest.raises(ValueError, match=r"`before = param.detach\(\).clone\(\)`"):
        bare.update(weight.detach(), weight.add_(1.0))
    assert bare.updates == 0
    bare.update(torch.ones(1), torch.ones(1))
    assert list(bare.compute()) == list(found) == [*AVERAGED, "nonfinite"]


def test_firing_statistics_by_hand():
    metric = FiringStatistics()
    spikes = torch.zeros(2, 3, 4, dtype=torch.bool)
    spikes[0, 0, 0] = spikes[1, 2, 0] = spikes[1, 1, 3] = True
    metric.update(spikes)
    assert {(each.shape, each.dtype) for each in metric.compute().values()} == {((), torch.float32)}
    assert metric.compute()["firing_rate"] == 3 / 24
    assert metric.compute()["silent_share"] == 0.5
    # One more batch, of another size: a neuron that fired once is never silent again.
    metric.update(torch.tensor([[[0.0, 1.0, 0.0, 0.0]]]))
    assert float(metric.compute()["firing_rate"]) == pytest.approx(4 / 28)
    assert metric.compute()["silent_share"] == 0.25


@pytest.mark.parametrize("value", [0.5, -1.0, 2.0, float("nan")])
def test_firing_statistics_reject_graded_activity_and_another_layer(value):
    metric = FiringStatistics()
    metric.update(torch.eye(4)[None])
    graded = torch.eye(4)[None].clone()
    graded[0, 1, 2] = value
    with pytest.raises(ValueError, match=r"`spikes` should be 0 or 1.*Found values from"):
        metric.update(graded)
    with pytest.raises(ValueError, match=r"should have 4 neurons, as before\. Found `spikes"):
        metric.update(torch.ones(1, 1, 5))
    assert metric.compute()["firing_rate"] == 0.25
    metric.update(torch.eye(4, dtype=torch.int64)[None])
    metric.reset()
    metric.update(torch.ones(1, 1, 5))
    assert metric.compute()["firing_rate"] == 1.0


# ---------------------------------------------------------------------------- classes by rates
RATES = torch.tensor([*2 * [[4, 1, 0, 0], [6, 0, 0, 2]], [1, 3, 0, 2], [0, 5, 0, 2]])
LABELS = torch.tensor([0, 0, 0, 0, 2, 2])
# Means: class 0 [5, .5, 0, 1], class 1 unseen, class 2 [.5, 4, 0, 2].
ASSIGNED = [0, 2, -1, 2]
VOTES = ["assigned", "proportional", "bayes"]


def fitted(vote="assigned", rates=RATES, labels=LABELS):
    readout = MaxRateClassifier(4, 3, vote=vote)
    readout.update(rates, labels)
    return readout


# What votes are is tested with their functions; on each sample but the last they differ.
SAMPLES = torch.tensor([[1, 0, 0, 3], [1, 1, 0, 1], [1, 2, 0, 0], [2, 0, 0, 5], [0, 0, 0, 0]])
PREDICTED = [[2, 0, 0, 2, 0], [0, 0, 2, 0, 0], [2, 2, 2, 0, 0]]


@turns("vote, expected", zip(VOTES, PREDICTED, strict=True))
def test_each_vote_predicts_by_itself(vote, expected):
    assert fitted(vote).predict(SAMPLES).tolist() == expected


@pytest.mark.parametrize("vote", VOTES)
def test_classes_that_no_neuron_stands_for_never_win(vote):
    readout = fitted(vote)
    predicted = readout.predict(torch.rand(50, 4, generator=torch.Generator().manual_seed(0)))
    assert set(predicted.tolist()) == {0, 2}
    there = MaxRateClassifier(4, 3, vote=vote).to("meta")  # nothing is read on the host
    there.update(RATES.to("meta"), LABELS.to("meta"))
    assert there.predict(RATES.to("meta")).shape == (6,)
    silent = fitted(vote, rates=torch.zeros(6, 4))
    assert silent.assignments.tolist() == [-1] * 4
    assert silent.predict(torch.ones(2, 4)).tolist() == [-1, -1]


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
           "`labels` should be a tensor of integers") for wrong in ([0.0, 1.0], [True, False])),
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
