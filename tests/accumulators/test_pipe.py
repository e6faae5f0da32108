import math
import operator

import pytest
import torch
from subtests import turns
from torch import nn
from torch.testing import assert_close
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from lightning_accum.accumulators import Except, List, Max, Mean, Pipe, Select, Source, Split, Sum
from lightning_accum.accumulators.pipe_stage import Selection


class Kept:
    """A stage that keeps what it gets, as a sink does, and passes it on."""

    def __init__(self):
        self.values = []

    def __call__(self, value):
        self.values.append(float(value) if isinstance(value, torch.Tensor) else value)
        return value


def accuracy():
    return MulticlassAccuracy(num_classes=3, average="micro")


def steps(sizes=(4, 4, 2), seed=0):
    """What a step returns: a loss, predictions and labels; the last batch is smaller."""
    generator = torch.Generator().manual_seed(seed)
    for i, size in enumerate(sizes):
        labels = torch.randint(0, 3, (size,), generator=generator)
        yield torch.tensor(float(i)), torch.rand(size, 3, generator=generator), labels


def accuracies(items):
    return [float((pred.argmax(1) == target).float().mean()) for _, pred, target in items]


def attached(source, *stages):
    """A source, behind which stages are put one after the other."""
    pipe = source
    for stage in stages:
        pipe = pipe**stage
    return source


SELECTED = Select(pred=1, target=2)
MEANS = {  # of the accuracies of an iteration
    "right": lambda kept: SELECTED ** accuracy() ** Mean() ** kept,
    "left": lambda kept: ((SELECTED ** accuracy()) ** Mean()) ** kept,
    "middle": lambda kept: (SELECTED ** accuracy()) ** (Mean() ** kept),
    "pipe": lambda kept: Pipe(SELECTED, accuracy(), Mean(), kept),
    "by name": lambda kept: Select(target=2, pred=1) ** accuracy() ** Mean() ** kept,
    "source, right": lambda kept: attached(Source(), SELECTED ** accuracy() ** Mean() ** kept),
    "source, left": lambda kept: attached(Source(), SELECTED, accuracy(), Mean(), kept),
    "metrics": lambda kept: SELECTED ** accuracy() ** MeanMetric() ** Mean() ** kept,
    "collection": lambda kept: (
        SELECTED
        ** MetricCollection({"acc": accuracy(), "f1": MulticlassF1Score(num_classes=3)})
        ** Select(value="acc")
        ** Mean()
        ** kept
    ),
}


@pytest.mark.parametrize("name", MEANS)
def test_every_iteration_begins_anew_however_its_stages_are_put_together(name):
    kept, expected = Kept(), []
    pipe = MEANS[name](kept)
    for seed in range(3):
        for item in steps(seed=seed):
            assert pipe(item) is None
            assert len(kept.values) == seed
        pipe.end()
        expected.append(sum(accuracies(steps(seed=seed))) / 3)
        assert_close(kept.values, expected)
    if name in ("right", "left", "middle", "pipe"):
        names = [str(SELECTED), "MulticlassAccuracy()", "Mean()", f"Function({kept})"]
        assert list(map(str, pipe.stages)) == names


def test_without_an_accumulator_every_item_runs_through():
    kept = Kept()
    # Of two functions Python would make a power before any stage is asked.
    pipe = (Select(loss=0) ** kept) ** torch.exp
    assert_close([float(pipe(item)) for item in steps()], [1.0, math.e, math.e**2])
    assert kept.values == [0.0, 1.0, 2.0]
    assert pipe.end() is None
    squared = Select(pred=1, target=2) ** accuracy() ** 2**1  # a power with a number stays one
    found = [float(squared(item)) for item in steps()]
    assert_close(found, [value**2 for value in accuracies(steps())])


def test_a_source_feeds_every_pipe_and_every_fork():
    source, mean, largest, batches, best = Source(), Kept(), Kept(), Kept(), Kept()
    loss = source ** Select(loss=0)
    after = loss ** Mean() ** mean
    after ** Max() ** best
    loss ** Max() ** largest
    source ** (lambda item: len(item[2])) ** Sum() ** batches
    source.run(steps())
    source.run(list(steps())[:2])
    assert mean.values == [1.0, 0.5]
    assert best.values == [1.0, 1.0]
    assert largest.values == [2.0, 1.0]
    assert batches.values == [10, 8]


def test_split_before_an_accumulator_has_accumulators_of_its_own():
    acc, f1, losses = Kept(), Kept(), Kept()
    pipe = (
        Split(
            Select(pred=1, target=2)
            ** Split(accuracy() ** Mean() ** acc, MulticlassF1Score(num_classes=3) ** Mean() ** f1),
            Select(loss=0) ** losses,
        )
        ** Select(loss=0)
        ** List()
    )
    assert pipe.run(steps()) == [0.0, 1.0, 2.0]
    assert losses.values == [0.0, 1.0, 2.0]
    assert_close(acc.values, [sum(accuracies(steps())) / 3])
    score = MulticlassF1Score(num_classes=3)
    assert_close(f1.values, [sum(float(score(pred, target)) for _, pred, target in steps()) / 3])


def test_split_after_an_accumulator_gives_each_the_result():
    first, second, best = Kept(), Kept(), Kept()
    pipe = Select(loss=0) ** Mean() ** Split(first, second, Max() ** best) ** (lambda x: x + 1)
    assert pipe.run(steps((1, 1))) == 1.5
    assert pipe.run(steps((1, 1, 1))) == 2.0
    assert pipe.run(steps((1,))) == 1.0
    assert first.values == second.values == [0.5, 1.0, 0.0]
    assert best.values == [0.5, 1.0, 1.0]
    found = []  # also of several selected items
    pipe = Mean() ** (lambda value: (value, 2)) ** Select(a=0, b=1)
    (pipe ** Split(lambda a, b: found.append((float(a), b)))).run([1.0, 3.0])
    assert found == [(2.0, 2)]


def test_a_second_accumulator_counts_iterations():
    kept = Kept()
    pipe = Select(loss=0) ** Mean() ** Sum() ** kept
    for _ in range(3):
        pipe.run(steps())
    assert kept.values == [1.0, 2.0, 3.0]
    pipe.reset()
    pipe.run(steps())
    assert kept.values[-1] == 1.0


@turns("selected, stage, expected", [
    ({"a": 0, "b": 1}, operator.sub, 6),
    ({"b": 1, "a": 0}, operator.sub, -6),
    ({"b": 1, "a": 0}, lambda a, b: a - b, 6),
    ({"x": 0, "b": 1}, lambda a, b: a - b, 6),
    ({"b": 1, "x": 0}, lambda a, b: a - b, 6),
    ({"a": 0, "x": 1}, lambda a, b: a - b, 6),
    ({"x": 1, "y": 0}, lambda a, b: a - b, -6),
    ({"b": 0, "a": 1}, lambda *args: args[0] - args[1], 6),
    ({"b": 0, "a": 1}, lambda **both: both["b"] - both["a"], 6),
    ({"a": 0}, lambda whatever: whatever, 8),
    ({"a": 0, "c": 1}, lambda a, b=1, c=2: a - b - c, 5),
    ({"a": 0, "b": 1}, lambda a, *, b: a - b, 6),
    ({"a": 0, "b": 1}, lambda a, /, b: a - b, 6),
])  # fmt: skip
def test_selected_items_become_the_arguments_of_their_names(selected, stage, expected):
    assert (Select(**selected) ** Pipe(stage))((8, 2)) == expected


def test_names_count_for_metrics_and_accumulators_too():
    skipping = Select(weight=2, value=0) ** Except(Mean(), begin=1)
    for item in ((1.0, None, 3), (9.0, None, 9), (5.0, None, 1)):
        skipping(item)
    assert skipping.end() == 2.0


def test_too_many_items_are_refused():
    words = r"`List\(\)` should take .*\['a', 'b'\].*\['value'\]"
    for make in (List, lambda: Split(List()), lambda: Split(print, List() ** print)):
        with pytest.raises(TypeError, match=words):  # before any item
            Select(a=0, b=1) ** make()
    with pytest.raises(TypeError, match=words):
        (Select(a=0, b=1) ** (lambda **both: Selection(both)) ** List())((1, 2))
    with pytest.raises(ValueError, match="`items` should be at least one name"):
        Select()


@pytest.mark.parametrize("wrong", [1.0, True, None, [0], {}, torch.tensor(0)])
def test_a_place_that_is_neither_an_index_nor_a_key(wrong):
    with pytest.raises(TypeError, match=r"`loss` should be an index.* as in `loss=0`\."):
        Select(value=0, loss=wrong)


def test_places_of_all_kinds():
    pairs = {"a": 1, ("b", 0): 2}
    assert [Select(x=key)(pairs) for key in pairs] == [1, 2]
    assert Select(x=-1)((1, 2)) == 2
    assert Select(x=slice(1, None))((1, 2, 3)) == (2, 3)


def test_a_step_without_a_selected_item():
    with pytest.raises(ValueError, match=r"Found `tuple` of length 2, which lacks `loss=5`: sel"):
        Select(value=0, loss=5)((1, 2))
    with pytest.raises(ValueError, match=r"with the keys \['a'\], which lacks `x='b'`"):
        Select(x="b")({"a": 1})
    with pytest.raises(ValueError, match="Found `float`, which lacks `x=0`"):
        Select(x=0)(1.0)


@pytest.mark.parametrize("wrong", [3, [1, 2], None, torch.ones(2), "stage", Source()])
def test_what_is_no_stage_is_refused(wrong):
    with pytest.raises(TypeError, match="A stage should be a callable or a metric"):
        Pipe(Select(a=0), wrong)
    if not isinstance(wrong, Source):
        with pytest.raises(TypeError, match=r"A stage should be a callable"):
            wrong ** Select(a=0)


def test_the_parts_of_a_pipe_move_with_it_and_an_empty_iteration_ends_in_nan():
    mean, largest = Mean(), Max()
    pipe = Select(value=0) ** nn.Linear(2, 2) ** mean**largest
    with pytest.warns(UserWarning, match=r"`Mean.compute` was called before any value"):
        assert pipe.run([]).isnan()
    pipe((torch.ones(2),))
    pipe.to("meta")
    assert mean.total.is_meta
    assert largest.extreme.is_meta
