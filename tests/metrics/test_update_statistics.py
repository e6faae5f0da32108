import math
from functools import partial

import pytest
import torch
from torch.utils._pytree import tree_leaves

from lightning_accum.functional.update_statistics import AVERAGED
from lightning_accum.metrics import FiringStatistics, MaxRateClassifier, UpdateStatistics


def update_batches():
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        w, pos, neg = (torch.rand(3, 4, generator=generator) for _ in range(3))
        yield {
            "before": w,
            "after": (w + pos - neg).clamp(0, 1),
            "pos": pos,
            "neg": neg,
            "lower": 0.0,
            "upper": 1.0,
        }


def spike_batches():
    generator = torch.Generator().manual_seed(1)
    for batch in (4, 4, 4, 1):
        yield {"spikes": torch.rand(5, batch, 2, 3, generator=generator) < 0.05}


def rate_batches():
    generator = torch.Generator().manual_seed(2)
    for batch in (4, 4, 4, 1):
        labels = torch.randint(0, 3, (batch,), generator=generator)
        yield {"rates": torch.rand(batch, 4, generator=generator), "labels": labels}


METRICS = [(UpdateStatistics, update_batches), (FiringStatistics, spike_batches)]
every = pytest.mark.parametrize(
    ("cls", "batches"), [*METRICS, (partial(MaxRateClassifier, 4, 3), rate_batches)]
)


def fed(cls, batches):
    metric = cls()
    for batch in batches:
        metric.update(**batch)
    return metric


def assert_same(found, expected):
    torch.testing.assert_close(found.compute(), expected.compute())


@every
def test_two_processes_merge_to_one(cls, batches):
    both = list(batches())
    whole = fed(cls, both)
    first, second = fed(cls, both[:1]), fed(cls, both[1:])
    first.compute()  # A cached result must not outlive the merge.
    first.merge_state(second)
    assert_same(first, whole)
    empty = cls()
    empty.merge_state(whole)
    assert_same(empty, whole)


@every
def test_forward_returns_the_batch_and_accumulates_without_a_graph(cls, batches):
    metric = cls()
    for batch in batches():
        for value in batch.values():
            if torch.is_tensor(value) and value.is_floating_point():
                value.requires_grad_()
        found = metric(**batch)
        torch.testing.assert_close(found, fed(cls, [batch]).compute())
    assert_same(metric, fed(cls, batches()))
    held = tree_leaves([found, metric.compute(), metric.metric_state])
    assert not any(each.requires_grad for each in held if torch.is_tensor(each))


@every
def test_a_model_cast_to_low_precision_does_not_round_the_sums(cls, batches):
    metric = cls().to(torch.bfloat16)
    for batch in list(batches()) * 100:
        metric.update(**batch)
    assert_same(metric, fed(cls, list(batches()) * 100))


@every
def test_update_reads_nothing_on_the_host(cls, batches):
    metric = cls().to("meta")
    for batch in batches():
        there = {k: v.to("meta") if isinstance(v, torch.Tensor) else v for k, v in batch.items()}
        metric.update(**there)
    metric.compute()


def bars_of(ax):
    return zip(ax.get_xticklabels(), ax.patches, strict=True)


@pytest.mark.parametrize(("cls", "batches"), METRICS)
def test_plot(cls, batches):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    metric = cls()
    values = [metric(**batch) for batch in batches()]
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
    metric = UpdateStatistics()
    w = torch.tensor([3.0, 4.0])
    metric.update(w, w + torch.tensor([0.0, 1.0]), pos=torch.tensor([0.0, math.nan]))
    metric.update(w, w + torch.tensor([3.0, 4.0]), neg=torch.tensor([math.inf, 2.0]), upper=6.0)
    assert {(each.shape, each.dtype) for each in metric.compute().values()} == {((), torch.float32)}
    found = {name: float(value) for name, value in metric.compute().items()}
    assert found == pytest.approx(
        {
            "update_norm": 3.0,
            "weight_norm": (math.hypot(3, 5) + 10) / 2,
            "ratio": 0.6,
            "pos_norm": 0.0,
            "neg_norm": 1.0,
            "balance": -0.5,
            "at_lower": 0.0,
            "at_upper": 0.5,
            "at_bound": 0.5,
            "zero_share": 0.25,
            "nonfinite": 1.0,
        }
    )
    bare = UpdateStatistics()
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
def test_firing_statistics_reject_graded_activity(value):
    metric = FiringStatistics()
    metric.update(torch.eye(4)[None])
    graded = torch.eye(4)[None].clone()
    graded[0, 1, 2] = value
    with pytest.raises(ValueError, match=r"`spikes` should be 0 or 1.*Found values from"):
        metric.update(graded)
    assert metric.compute()["firing_rate"] == 0.25
    metric.update(torch.eye(4, dtype=torch.int64)[None])


def test_firing_statistics_refuse_another_layer():
    metric = FiringStatistics()
    metric.update(torch.ones(1, 1, 4))
    with pytest.raises(ValueError, match=r"should have 4 neurons, as before\. Found 5"):
        metric.update(torch.ones(1, 1, 5))
    metric.reset()
    metric.update(torch.ones(1, 1, 5))
    assert metric.compute()["firing_rate"] == 1.0


def test_before_that_is_no_copy():
    stats, weight = UpdateStatistics(), torch.ones(3)
    before = weight.detach()
    weight.add_(1.0)
    with pytest.raises(ValueError, match=r"`before = param.detach\(\).clone\(\)`"):
        stats.update(before, weight)
    assert stats.updates == 0
