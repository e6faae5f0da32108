"""What two processes do together: `python test_two_processes.py RANK RENDEZVOUS FOLDER`."""

import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from accumulator_cases import CASES, MERGED, Logging, stacked, stream, written
from torch.testing import assert_close
from torch.utils.tensorboard import SummaryWriter
from torchmetrics import MetricCollection, SumMetric
from torchmetrics.classification import MulticlassAccuracy
from two_processes import Collectives, make_all, printed_by_two

from lightning_accum import accumulators as acc
from lightning_accum.distributed.world import gather_bytes
from lightning_accum.metrics import FiringStatistics, MaxRateClassifier, UpdateStatistics

RANK, FOLDER = (int(sys.argv[1]), Path(sys.argv[3])) if __name__ == "__main__" else (0, Path())
VALUES = stream(12, (2,))
OWN = VALUES[:5] if RANK == 0 else VALUES[5:]


def collectives(do):
    with Collectives() as mode:
        do()
    return dict(mode.counts)


ONE = {"allreduce_": 1}


def fed(metric, inputs):
    for each in inputs:
        metric.update(**each) if isinstance(each, dict) else metric.update(each)
    return metric


def each_kind_sees_all_values():
    for name in MERGED:
        case = CASES[name]
        accumulator = fed(case.make(), OWN)
        # After all values, what it holds is its own again.
        for result, values in ((accumulator.compute, VALUES), (accumulator.result_so_far, OWN)):
            expected = case.reference(torch.stack(values))
            assert_close(stacked(result()), expected, rtol=1e-12, atol=1e-12)
        assert_close(stacked(accumulator(OWN[0])), case.reference(torch.stack([*OWN, OWN[0]])))
    last = torch.stack([*VALUES[2:5], *VALUES[-3:]])
    assert_close(fed(acc.Window(3), OWN).compute(), last.mean(0))
    generator = acc.Except(acc.Mean(), begin=0, end=1, period=3)
    fed(generator, [10.0 * RANK + i for i in range(6)])
    assert generator.compute() == (2 + 5 + 12 + 15) / 4
    weighed = acc.Mean()
    weighed.update(1.0 + RANK, weight=1 + 2 * RANK)
    assert weighed.compute() == (1 * 1 + 3 * 2) / 4


def a_list_is_gathered_in_the_order_of_the_ranks():
    nested = {"nested": torch.ones(1)}
    items = [(RANK, "text"), None, torch.full((RANK + 1,), RANK), (nested,)]
    found = fed(acc.List(), items[: 2 + 2 * RANK]).compute()
    assert found[:4] == [(0, "text"), None, (1, "text"), None]
    assert_close(found[4:], [torch.tensor([1, 1]), (nested,)])
    # Longer than what travels at first: a second all-reduce has room for it.
    long = fed(acc.List(), range(2000 * RANK))
    assert collectives(lambda: long.compute()) == {"allreduce_": 2}
    assert long.compute() == list(range(2000))


def a_process_without_values_takes_part():
    value = torch.tensor([2.0, 3.0], dtype=torch.float64)
    for make in (acc.Sum, acc.Mean, acc.Max, acc.Min, acc.Variance, acc.EMA, acc.List):
        found = fed(make(), 2 * RANK * [value]).compute()
        found = found[1] if isinstance(found, list) else found
        assert_close(found, {acc.Sum: 2, acc.Variance: 0}.get(make, 1) * value)
    told = pytest.warns(UserWarning, match="before any value was added")
    with told if RANK == 0 else nullcontext():
        assert acc.Mean().compute().isnan()


def the_shapes_of_all_have_to_be_one():
    total = acc.Sum()
    total.update(torch.ones(2 + RANK))
    with pytest.raises(ValueError, match="one shape in all parts"):
        total.compute()
    assert_close(total(torch.ones(2 + RANK)), torch.full((2 + RANK,), 2.0))


def many_synchronise_in_one_all_reduce():
    many = {
        **{f"sum{i}": acc.Sum() for i in range(10)}, **{f"mean{i}": acc.Mean() for i in range(10)},
        "variance": acc.Variance(), "except": acc.Except(acc.Max(), begin=1),
        "window": acc.Window(2), "list": acc.List(),
        "rows": MetricCollection({"low": acc.Min(), "high": acc.Max()}), "foreign": SumMetric(),
        "apart": acc.Sum(sync_on_compute=False),
    }  # fmt: skip
    for repeat in range(1, 3):
        for i, metric in enumerate(many.values()):
            metric.update(torch.tensor([float(i + RANK), 1.0]))
        both = [many, list(many.values())][repeat % 2]
        assert collectives(lambda both=both: acc.synchronize(both)) == ONE

        def computed():
            return {name: m.compute() for name, m in many.items() if name != "foreign"}

        assert collectives(computed) == {}
        found = computed()
        for i in range(10):
            assert found[f"sum{i}"].tolist() == [repeat * (2 * i + 1), 2 * repeat]
            assert found[f"mean{i}"].tolist() == [i + 10.5, 1.0]
        assert len(found["list"]) == 2 * repeat
        assert found["rows"]["low"].tolist() == [24.0, 1.0]
        assert found["except"].tolist() == [22.0, 1.0]
        assert found["apart"].tolist() == [repeat * (26.0 + RANK), repeat]
    assert many["foreign"].compute() == 2 * (2 * 25 + 1) + 4
    large = [acc.Sum(), acc.Sum()]
    for total in large:
        total.update(torch.ones(1000))
    assert collectives(lambda: acc.synchronize(large)) == {"allreduce_": 2}
    for total in large:
        total.update(torch.ones(1000))
    assert collectives(lambda: acc.synchronize(large, capacity=2**15)) == ONE
    assert large[1].compute().tolist() == [4.0] * 1000
    # One process has nothing new, and could have answered from its cache.
    if RANK == 0:
        large[0].update(torch.ones(1000))
    acc.synchronize(large)
    assert large[0].compute()[0] == 5.0


def a_state_can_be_synchronised_by_hand():
    for total in (acc.Sum(), acc.Except(acc.Sum(), begin=5)):
        total.update(1.0 + RANK)
        total.sync()
        assert total.result_so_far() == 3.0
        total.unsync()
        assert total.result_so_far() == 1.0 + RANK
    grouped = acc.Sum(process_group=dist.new_group([0, 1]))
    grouped.update(1.0)
    assert grouped.compute() == 2.0
    with pytest.raises(ValueError, match="should have one process group"):
        acc.synchronize([acc.Sum(), grouped])


def a_source_ends_in_one_all_reduce():
    module, writer = Logging(), SummaryWriter(str(FOLDER / "events")) if RANK == 0 else None
    source = acc.Source(module)
    late = acc.Max() ** acc.Log("best"), acc.Sum() ** acc.Log("sum")
    ends = acc.Split(acc.Log("acc"), acc.Scalar(writer, "acc"), *late)
    accuracy = MulticlassAccuracy(num_classes=2, average="micro")
    source ** acc.Select(pred=1, target=2) ** accuracy ** acc.Mean() ** ends
    loss = source ** acc.Select(loss=0)
    mean = loss ** acc.Mean() ** acc.Log("loss")
    mean ** acc.Sum() ** acc.Log("losses")
    loss ** acc.Sum() ** acc.Log("total")
    for epoch in range(2):
        for step in range(2 + RANK):
            right = (RANK + step + epoch) % 2
            source((torch.tensor(float(step)), torch.eye(2), torch.tensor([0, right])))
        assert collectives(source.end) == ONE
    # Five steps of all processes in each epoch; those further on saw each epoch once.
    first = [0.5, 1.0, 1.0, 0.5, 1.0]
    first_mean = sum(first) / 5
    again = sum(1.5 - share for share in first) / 5
    mean_of_both = first_mean + again
    assert_close(module.values("acc"), [first_mean, again])
    assert_close(module.values("best"), [first_mean, max(first_mean, again)])
    assert_close(module.values("sum"), [first_mean, mean_of_both])
    assert_close(module.values("loss"), [0.8, 0.8])
    assert_close(module.values("losses"), [0.8, 1.6])
    # It counts iterations, which are the same ones in every process.
    late = [m for m in source.modules() if isinstance(m, acc.Sum) and m.update_count]
    assert [float(total.compute()) for total in late] == pytest.approx([mean_of_both, 1.6])
    assert_close(module.values("total"), [4.0, 4.0])
    if writer is not None:
        writer.close()


def updates():
    """Seven updates within limits, two of them with NaN or Inf."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for i in range(7):
        w, pos, neg = (torch.rand(3, 4, generator=generator) for _ in range(3))
        if i in (1, 5):
            pos[0, : min(i, 4)] = float("nan") if i == 1 else float("inf")
        after = (w + pos - neg).clamp(0, 1)
        parts = {"pos": pos, "neg": neg, "lower": 0.0, "upper": 1.0}
        found.append({"before": w, "after": after, **parts})
    return found


def spikes():
    generator = torch.Generator().manual_seed(1)
    sizes = 4, 4, 4, 1, 2
    return [{"spikes": torch.rand(5, b, 2, 3, generator=generator) < 0.03} for b in sizes]


def rates():
    generator = torch.Generator().manual_seed(2)
    found, labels = torch.rand(24, 6, generator=generator), torch.arange(24) % 3
    pairs = zip(found.split(4), labels.split(4), strict=True)
    return [{"rates": x, "labels": y} for x, y in pairs]


METRICS = [
    (UpdateStatistics, updates), (FiringStatistics, spikes),
    *((partial(MaxRateClassifier, 6, 3, v), rates) for v in ("assigned", "proportional", "bayes")),
]  # fmt: skip


def metrics_are_of_the_values_of_all():
    for make, values in METRICS:
        every = values()
        own = every[:2] if RANK == 0 else every[2:]
        metric, alone = fed(make(), own), fed(make(sync_on_compute=False), every)
        for _ in range(2):  # what it holds is its own again, and goes on
            assert_close(metric.compute(), alone.compute())
            if values is rates:
                assert_close(*(each.predict(every[0]["rates"]) for each in (metric, alone)))
            fed(metric, own[:1])
            fed(alone, [every[0], every[2]])


def a_process_without_updates_takes_part():
    metric = fed(UpdateStatistics(), updates() if RANK else [])
    metric._update_count = max(metric._update_count, 1)  # torchmetrics warns of none
    alone = fed(UpdateStatistics(sync_on_compute=False), updates())
    assert_close(metric.compute(), alone.compute())


CHECKS = [
    each_kind_sees_all_values, a_list_is_gathered_in_the_order_of_the_ranks,
    a_process_without_values_takes_part, the_shapes_of_all_have_to_be_one,
    many_synchronise_in_one_all_reduce, a_state_can_be_synchronised_by_hand,
    a_source_ends_in_one_all_reduce, metrics_are_of_the_values_of_all,
    a_process_without_updates_takes_part,
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    if not torch.distributed.is_available():
        pytest.skip("torch has no distributed package")
    folder = tmp_path_factory.mktemp("two_processes")
    return printed_by_two(__file__, folder), folder / "events"


@pytest.mark.parametrize("line", [*(check.__name__ for check in CHECKS), "ended with 0"])
def test_two_real_processes(run, line):
    printed, _ = run
    assert all(line in lines for lines in printed), printed


def test_one_of_them_wrote(run):
    printed, folder = run
    assert folder.is_dir(), printed
    assert len(list(folder.iterdir())) == 1
    assert [step for step, _ in written(folder)["acc"]] == [0, 1]


@pytest.mark.parametrize("capacity", [0, 1, 8, 4096])
@pytest.mark.parametrize("over", [-1, 0, 1, 300])
def test_bytes_arrive_as_they_are_with_one_all_reduce_where_there_is_room(capacity, over, group):
    data = bytes(i % 251 for i in range(max(capacity + over, 0)))
    with Collectives() as mode:
        rows = gather_bytes(data, capacity, torch.device("cpu"))
    assert rows == [data]
    assert mode.counts == {"allreduce_": 1 if len(data) <= capacity else 2}


def test_what_is_synchronised_is_not_asked_for_again(group):
    mean, total = acc.Mean(), acc.Sum()
    for value in (1.0, 3.0):
        mean.update(value)
        total.update(value)
    assert collectives(lambda: acc.synchronize([mean, total])) == ONE
    assert collectives(lambda: (mean.compute(), total.compute())) == {}
    assert (mean.compute(), total.compute()) == (2.0, 4.0)
    mean.update(5.0)
    assert mean.compute() == 3.0


if __name__ == "__main__":
    make_all(CHECKS)
