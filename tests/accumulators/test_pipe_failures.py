"""How an iteration ends where something goes wrong, what is said of lost results, and sinks."""

import copy
import gc
import logging
import pickle
import re
import warnings

import pytest
import torch
from accumulator_cases import Logging, written
from round_trips import by_pickle
from torch.utils.tensorboard import SummaryWriter
from torchmetrics import SumMetric

from lightning_accum import accumulators as acc


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, RuntimeError])
def test_what_fails_at_an_end_fails_for_no_other_pipe_and_leaves_nothing(error, position):
    """The first failure is raised, of a result or of a sink; nothing goes on after an interrupt."""

    class Total(acc.Sum):
        def compute(self):
            fails = error is RuntimeError and self.total == 1
            return fail(super().compute()) if fails else super().compute()

    def fail(value):
        if value == 1:
            failed.append(error(len(failed)))
            raise failed[-1]
        return value

    source, failed, kept = acc.Source(), [], [[] for _ in range(4)]
    for i, each in enumerate(kept):
        pipe = source ** (Total() if i in (position, 3) else acc.Sum())
        (pipe ** (fail if i in (position, 3) else abs)) ** each.append
    source(1)
    with pytest.raises(error) as raised:
        source.end()
    assert raised.value is failed[0]
    reached = position if error is KeyboardInterrupt else 3
    assert kept == [[1] * (i < reached and i != position) for i in range(4)]
    source.run([4, 5])
    assert [each[-1] for each in kept] == [9] * 4


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("kind", ["pipe", "split", "source", "except", "iterations"])
def test_a_run_that_is_cut_off_counts_for_nothing(error, kind):
    def cut():
        yield 1.0
        yield 2.0
        raise error

    kept = []
    flow = {
        "pipe": lambda: acc.Mean() ** kept.append,
        "split": lambda: acc.Split(acc.Mean() ** kept.append) ** SumMetric() ** acc.Max(),
        "source": acc.Source,
        "except": lambda: acc.Except(acc.Mean(), begin=1, period=3) ** kept.append,
        "iterations": lambda: acc.Sum() ** acc.Max() ** kept.append,
    }[kind]()
    if kind == "source":
        flow ** acc.Mean() ** kept.append
    flow.run([4.0])
    with pytest.raises(error):
        flow.run(cut())
    flow.run([1.0, 5.0, 3.0])
    assert kept == [4.0, {"except": 2.0, "iterations": 9.0}.get(kind, 3.0)]


# ---------------------------------------------------------------------------- what is said
def beside(*last):
    source = acc.Source()
    source ** acc.Mean() ** [].append
    for each in last:
        source**each
    return source


def in_two_pipes(mean):
    return beside(mean ** [].append, mean ** [].append)


LOGS = [
    lambda: acc.Mean() ** acc.Log("loss"),
    lambda: beside(acc.Mean() ** acc.Log("loss")),
    lambda: acc.Split(acc.Mean() ** acc.Log("loss")) ** acc.Sum(),
    lambda: acc.Select(value=0) ** acc.Log("loss"),
    lambda: acc.Mean() ** acc.Split(acc.Max() ** acc.Log("loss")),
]
LOST = {
    "Mean()": acc.Mean(), "Select(value=0)": acc.Select(value=0), "SumMetric()": SumMetric(),
    "Max()": acc.Mean() ** acc.Max(),
}  # fmt: skip
SAID = [
    *((build, r"`Log('loss')` should be bound to a LightningModule. Found none") for build in LOGS),
    *((lambda last=last: beside(last), f"Found `{name}`, so that nothing is logged: put a `Log`")
      for name, last in LOST.items()),
    (lambda: in_two_pipes(acc.Mean()), "Found the same `Mean` in two pipes"),
    (acc.Source, "A source should have a pipe"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "words"), SAID)
def test_what_would_be_lost_is_told_once_with_the_first_item(build, words):
    flow = build()
    with pytest.warns(UserWarning, match=re.escape(words)) as told:
        flow([1.0])
    assert len(told) == 1
    flow([1.0])
    flow.end()
    if build in LOGS:
        build().bind(Logging())([1.0])


def test_a_fork_and_what_is_used_for_its_result_are_not_warned_of():
    assert (acc.Select(a=0) ** acc.Mean()).run([(1.0,)]) == 1.0
    assert (acc.Select(a=0) ** SumMetric())((2.0,)) == 2.0
    found, source = [], acc.Source()
    first = source ** acc.Select(a=0) ** acc.Mean()
    first**found.append
    first ** acc.Max() ** found.append  # no second pipe with the mean
    source.run([(1.0,)])
    assert found == [1.0, 1.0]


@pytest.mark.parametrize(("now", "words"), [
    ({"current_epoch": 3}, "training in epoch 2, and of training in epoch 3"),
    ({"training": False}, "training in epoch 2, and of validation in epoch 2"),
])  # fmt: skip
def test_a_source_with_items_of_two_epochs_or_stages_says_so(now, words):
    module = Logging()
    source = acc.Source(module)
    source ** acc.Mean() ** acc.Log("loss")
    for epoch in range(3):  # one after the other is fine
        module.current_epoch = epoch
        for module.training in (False, True):
            source.run([1.0, 2.0])
            with pytest.raises(ZeroDivisionError):
                source.run(1 / n for n in (1, 0))
    assert len(module.logged) == 6
    source(1.0)
    vars(module).update(now)
    with pytest.warns(UserWarning, match=rf"Found items of {words},.* call `end\(\)` in") as told:
        list(map(source, [1.0, 1.0]))
    assert len(told) == 1


def filled(kind, items=10):
    """A pipe or a source that has accumulated items."""
    flow = acc.Source() if kind == "source" else acc.Pipe(acc.Mean(), print)
    if kind == "source":
        flow ** acc.Mean() ** print
    if kind in ("split", "two means"):
        second = acc.Max() if kind == "split" else acc.Mean()
        second.update(0.0)
        flow = acc.Split(second**print, acc.Mean() ** print) ** print
    for i in range(items):
        flow(float(i))
    return flow


def unended(told):
    """The warnings of pipes, not those of other tests' objects that are collected now."""
    return [text for each in told if "and no end" in (text := str(each.message))]


@pytest.mark.parametrize(
    ("kind", "items"), [("pipe", 10), ("source", 10), ("split", 11), ("two means", 11)]
)
def test_a_pipe_that_is_never_ended_says_so_when_it_goes(kind, items):
    flow = filled(kind)
    assert flow._unended.atexit  # and at the end of the program at the latest
    copied = copy.deepcopy(flow)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del flow
        gc.collect()
        del copied
        gc.collect()
    (warning,) = unended(told)
    assert re.search(rf"Found {items} items in .*`Mean`", warning)


@pytest.mark.parametrize("kind", ["pipe", "source", "split"])
def test_a_pipe_without_anything_to_lose_goes_in_silence(kind, capsys):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ended, few, reset = filled(kind), filled(kind, 3), filled(kind)
        ended.end()
        ended(1.0)
        reset.reset()
        passing, read = acc.Pipe(SumMetric(), print), acc.Pipe(mean := acc.Mean(), print)
        for i in range(10):
            passing(float(i))
            read(float(i))
        assert mean.compute() == 4.5
        del ended, few, reset, passing, read
        gc.collect()
    assert not unended(told)


# ---------------------------------------------------------------------------- sinks
def test_log_goes_through_the_module_with_its_options_or_is_a_line_of_the_packages_logger(caplog):
    module = Logging()
    pipe = (acc.Select(loss=0) ** acc.Mean() ** acc.Log("loss", prog_bar=True)).bind(module)
    assert pipe.run([(1.0,), (2.0,)]) == 1.5
    assert (module.logged, module.options) == ([("loss", 1.5)], {"prog_bar": True})
    (acc.Sum() ** acc.Log("count")).bind(module).run([1, 2])
    assert module.logged[1][1].dtype == torch.float32  # of integers too
    with caplog.at_level(logging.INFO, logger="lightning_accum"):
        (acc.Mean() ** acc.Log("loss")).run([1.0, 2.0])
    assert [(r.name, r.getMessage()) for r in caplog.records] == [("lightning_accum", "loss: 1.5")]


@pytest.mark.parametrize("first", ["bind", "build"])
def test_every_log_of_a_source_is_bound_whenever_it_is_put_there(first):
    module = Logging()
    source = acc.Source(module) if first == "bind" else acc.Source()
    pipe = source ** acc.Mean() ** acc.Split(acc.Log("a"), acc.Pipe(acc.Log("b")))
    pipe ** acc.Log("c")
    if first == "build":
        source.bind(module)
    source.run([1.0, 2.0])
    assert [name for name, _ in module.logged] == ["a", "b", "c"]
    grown = (acc.Mean() ** acc.Log("a")).bind(module) ** acc.Log("b")  # stays bound
    (torch.as_tensor**grown).run([1.0])
    assert module.logged[3:] == [("a", 1.0), ("b", 1.0)]


def test_a_module_and_its_source_are_copied_together():
    bound = Logging()
    bound.source = acc.Source(bound)
    bound.source ** acc.Mean() ** acc.Log("loss")
    for other in (copy.deepcopy(bound), pickle.loads(pickle.dumps(bound))):
        other.source.run([3.0])
        assert other.logged == [("loss", 3.0)]
    assert bound.logged == []
    assert list(bound.state_dict())


@pytest.mark.parametrize("copied", [copy.deepcopy, by_pickle])
def test_a_copy_writes_into_the_same_folder_with_a_writer_of_its_own(tmp_path, copied):
    writer = SummaryWriter(str(tmp_path))
    pipe = acc.Mean() ** acc.Scalar(writer, "loss")
    pipe.run([1.0])
    other = copied(copied(pipe))
    assert len(list(tmp_path.iterdir())) == 1
    other.run([2.0])
    other.stages[1].writer.close()
    pipe.run([3.0])
    writer.close()
    found = written(tmp_path)["loss"]
    assert sorted(found) == [(0, 1.0), (1, 2.0), (1, 3.0)]
