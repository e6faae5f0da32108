"""The monitors of the source's CellTrainer, call by call."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from lightning_accum import Cell, CellTrainer, Layer
from lightning_accum.observe import (
    InputMonitor,
    Latest,
    OutputMonitor,
    StateMonitor,
    WindowRecorder,
)

OUT, IN = OutputMonitor.partialconstructor(), InputMonitor.partialconstructor()


@pytest.fixture
def layer() -> Layer:
    return Layer({"a": nn.Linear(2, 3), "b": nn.Linear(2, 3)}, {"n": nn.BatchNorm1d(3)})


@pytest.fixture
def trainer(layer) -> CellTrainer:
    trainer = CellTrainer()
    for name in ("a", "b"):
        trainer.add_cell(name, layer.cell(name, "n"))
    return trainer


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def missing(call: str, *args: object) -> None:
    with pytest.raises(AttributeError, match=r"which has \['a', 'b'\]\. Found `c`"):
        getattr(CellTrainer, call)(*args)


def test_add_monitor_get_monitor_and_del_monitor(layer, trainer):
    monitor = trainer.add_monitor("a", "post", "neuron", OUT)
    assert isinstance(monitor, OutputMonitor)
    assert monitor.module is layer.neurons["n"]
    assert trainer.get_monitor("a", "post") is monitor
    assert trainer.get_monitor("a", "pre") is None
    layer(a=torch.ones(2, 2))
    assert monitor.peek().shape == (2, 3)
    trainer.del_monitor("a", "post")
    assert trainer.get_monitor("a", "post") is None
    assert hooks(layer) == 0
    with pytest.raises(AttributeError, match=r"cell `a`, one of \[\]. Found `name = 'post'`"):
        trainer.del_monitor("a", "post")
    missing("add_monitor", trainer, "c", "post", "neuron", OUT)
    missing("get_monitor", trainer, "c", "post")
    missing("del_monitor", trainer, "c", "post")
    with pytest.raises(AttributeError, match=r"`neuron\.weigth`"):
        trainer.add_monitor("a", "post", "neuron.weigth", OUT)
    assert hooks(layer) == 0


def test_the_attribute_is_a_dotted_path_from_the_cell(layer, trainer):
    make = StateMonitor.partialconstructor()
    monitor = trainer.add_monitor("a", "mean", "neuron.running_mean", make)
    layer(a=torch.ones(2, 2))
    assert torch.equal(monitor.peek(), layer.neurons["n"].running_mean)


def test_equal_monitors_are_one(layer, trainer):
    first = trainer.add_monitor("a", "post", "neuron", OUT)
    assert trainer.add_monitor("a", "post", "neuron", OUT) is first  # again on the same cell
    assert trainer.add_monitor("b", "post", "neuron", OUT) is first  # and by the shared neuron
    assert list(trainer.monitors) == [first]
    assert hooks(layer) == 1
    trainer.del_monitor("a", "post")
    assert first.registered
    assert trainer.get_monitor("b", "post") is first
    trainer.del_cell("b")
    assert not first.registered


@pytest.mark.parametrize(
    ("name", "attr", "make", "tags"),
    [
        ("other", "neuron", OUT, {}),
        ("post", "connection", OUT, {}),
        ("post", "neuron", IN, {}),
        ("post", "neuron", OutputMonitor.partialconstructor(reducer=WindowRecorder()), {}),
        ("post", "neuron", OUT, {"dt": 2.0}),
        ("post", "neuron", OUT, {"dt": 1.0, "more": 1}),
    ],
)
def test_name_path_class_reducer_and_tags_tell_monitors_apart(trainer, name, attr, make, tags):
    first = trainer.add_monitor("a", "post", "neuron", OUT, dt=1.0)
    assert isinstance(first.reducer, Latest)
    second = trainer.add_monitor("b", name, attr, make, **tags)
    assert second is not first
    assert len(list(trainer.monitors)) == 2
    same = trainer.add_monitor("a", name, attr, make, **tags)
    assert (same is second) == (attr == "neuron")  # the cells share their neuron alone


def test_one_of_the_same_name_on_the_same_cell_is_replaced(layer, trainer):
    first = trainer.add_monitor("a", "post", "neuron", OUT)
    second = trainer.add_monitor("a", "post", "neuron", IN)
    assert trainer.get_monitor("a", "post") is second
    assert not first.registered
    assert hooks(layer) == 1


def test_unique_bypasses_every_test(layer, trainer):
    first = trainer.add_monitor("a", "post", "neuron", OUT)
    second = trainer.add_monitor("b", "post", "neuron", OUT, True)
    assert second is not first
    third = trainer.add_monitor("b", "post", "neuron", OUT, True)  # takes the place of the second
    assert third is not second
    assert trainer.get_monitor("b", "post") is third
    assert not second.registered
    assert hooks(layer) == 2
    trainer.add_cell("c", Cell(layer.connections["a"], layer.neurons["n"]))
    assert trainer.add_monitor("c", "post", "neuron", OUT) is first  # never the unique one


def test_monitors_named_monitors_and_named_monitors_of(trainer):
    post = trainer.add_monitor("a", "post", "neuron", OUT)
    trainer.add_monitor("b", "post", "neuron", OUT)
    pre = trainer.add_monitor("a", "pre", "connection", IN)
    assert isinstance(trainer.monitors, Iterator)
    assert isinstance(trainer.named_monitors, Iterator)
    assert list(trainer.monitors) == [post, pre]
    assert list(trainer.named_monitors) == [
        (("a", "post"), post),
        (("a", "pre"), pre),
        (("b", "post"), post),
    ]
    assert list(trainer.named_monitors_of("a")) == [("post", post), ("pre", pre)]
    assert list(trainer.named_monitors_of("b")) == [("post", post)]
    missing("named_monitors_of", trainer, "c")
