"""The interface of the source's CellTrainer, call by call."""

from collections.abc import Iterator

import pytest
import torch
from monitors import IN, OUT, hooks
from torch import nn

from lightning_accum import Cell, CellTrainer, Clamp, Layer, attach_updater
from lightning_accum.observe import OutputMonitor, StateMonitor, WindowRecorder
from lightning_accum.observe.reducer import Latest


class State(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("trace", torch.zeros(2))


@pytest.fixture
def layer():
    return Layer(
        {"a": nn.Linear(2, 3), "b": nn.Linear(2, 3)}, {"n": nn.BatchNorm1d(3), "m": nn.ReLU()}
    )


@pytest.fixture
def trainer(layer):
    trainer = CellTrainer()
    for name in ("a", "b"):
        trainer.add_cell(name, layer.cell(name, "n"), params=["weight"])
    return trainer


def missing(call, *args):
    with pytest.raises(AttributeError, match=r"which has \['a', 'b'\]\. Found `c`"):
        getattr(CellTrainer, call)(*args)


# -------------------------------------------------------------------------------- cells
def test_add_cell_returns_the_cell_and_its_state_and_sees_to_the_parameters(layer):
    trainer, state = CellTrainer(), State()
    assert isinstance(trainer, nn.Module)
    assert trainer.add_cell("a", layer.cell("a", "n")) == (layer.cell("a", "n"), None)
    assert layer.cell("a", "n").updater is None
    attach_updater(layer.connections["b"], "bias")
    cell, found = trainer.add_cell("b", layer.cell("b", "n"), state, ["weight"])
    assert found is state
    assert cell.updater.names == ("bias", "weight")


def test_add_cell_refuses(layer, trainer):
    with pytest.raises(ValueError, match=r"\['a', 'b'\].*`name = 'a'`.*del_cell"):
        trainer.add_cell("a", layer.cell("a", "m"))
    for name in ("", "x.y", "keys", 3):
        with pytest.raises(ValueError, match="Argument `name`"):
            trainer.add_cell(name, layer.cell("a", "m"))
    with pytest.raises(TypeError, match=r"should be a Cell. Found `Linear`"):
        trainer.add_cell("c", layer.connections["a"])
    with pytest.raises(AttributeError, match="Found `gain`"):
        trainer.add_cell("c", layer.cell("a", "m"), params=["gain"])
    assert [name for name, _ in trainer.named_cells] == ["a", "b"]
    assert "c" not in dict(trainer.named_cells)


def test_get_cell_cells_and_named_cells(layer, trainer):
    assert trainer.get_cell("a") == (layer.cell("a", "n"), None)
    missing("get_cell", trainer, "c")
    assert isinstance(trainer.cells, Iterator)
    assert isinstance(trainer.named_cells, Iterator)
    assert list(trainer.cells) == [(layer.cell(n, "n"), None) for n in ("a", "b")]
    assert list(trainer.named_cells) == [(n, (layer.cell(n, "n"), None)) for n in ("a", "b")]


def test_del_cell_removes_state_and_monitors_and_not_the_cell(layer, trainer):
    trainer.add_cell("c", layer.cell("a", "m"), State())
    trainer.add_monitor("c", "post", "neuron", OUT)
    assert hooks(layer) == 1
    trainer.del_cell("c")
    assert hooks(layer) == 0
    assert "c" not in dict(trainer.named_cells)
    assert len(list(trainer.monitors)) == 0
    assert trainer.state_dict() == {}
    missing("del_cell", trainer, "c")
    _, state = trainer.add_cell("c", layer.cell("a", "m"))
    assert state is None
    assert trainer.get_monitor("c", "post") is None


def test_to_moves_monitors_and_state_and_not_cells(layer, trainer):
    state = State()
    trainer.add_cell("c", layer.cell("a", "m"), state)
    monitor = trainer.add_monitor("a", "post", "neuron", OUT)
    layer(a=torch.ones(2, 2))
    trainer.to(torch.float64)
    assert state.trace.dtype == monitor.peek().dtype == torch.float64
    assert layer.connections["a"].weight.dtype == torch.float32
    layer.to(torch.bfloat16)
    assert state.trace.dtype == monitor.peek().dtype == torch.float64


# -------------------------------------------------------------------------------- running
def test_train_registers_and_deregisters_and_clears_nothing(layer, trainer):
    monitor = trainer.add_monitor("a", "post", "neuron", OUT)
    layer(a=torch.ones(2, 2))
    layer.eval()
    for mode in (False, False, True, True):
        assert trainer.train(mode) is trainer
        assert monitor.registered is mode
        seen = monitor.peek()
        assert seen is not None
        layer.train()(a=torch.zeros(2, 2))
        assert (monitor.peek() is not seen) is mode
        layer.eval()
        assert not layer.training  # cells keep their mode
    assert trainer.eval() is trainer
    late = trainer.add_monitor("a", "pre", "connection", IN)
    assert not late.registered
    trainer.del_cell("a")
    assert hooks(layer) == 0


def test_clear_passes_its_keywords_on_and_spares_the_updaters(layer, trainer):
    class Noting(Latest):
        given = None

        def clear(self, **kwargs):
            super().clear(**kwargs)
            self.given = kwargs

    make = OutputMonitor.partialconstructor(reducer=Noting())
    monitor = trainer.add_monitor("a", "post", "neuron", make)
    layer(a=torch.ones(2, 2))
    trainer.get_cell("a")[0].updater.weight = torch.ones(3, 2)
    trainer.clear(keepshape=True)
    assert monitor.peek() is None
    assert monitor.reducer.given == {"keepshape": True}
    assert trainer.get_cell("a")[0].updater.weight.pos is not None


def test_update_calls_each_updater_once_with_its_hooks(layer, trainer):
    trainer.add_cell("again", layer.cell("a", "m"), params=["weight"])
    a, b = layer.connections["a"], layer.connections["b"]
    calls = []
    updater = trainer.get_cell("a")[0].updater
    updater.register_forward_hook(lambda module, args, output: calls.append(module))
    updater.register_constraint(Clamp(max=0.5))
    with torch.no_grad():
        a.weight.zero_(), b.weight.zero_()
    for connection in (a, b):  # by whomever it was accumulated
        attach_updater(connection).weight = torch.ones(3, 2)
    trainer.update()
    assert calls == [updater]
    assert a.weight.tolist() == [[0.5, 0.5]] * 3
    assert b.weight.tolist() == [[1.0, 1.0]] * 3
    trainer.update()
    assert b.weight.tolist() == [[1.0, 1.0]] * 3
    attach_updater(b).weight = torch.ones(3, 2)
    trainer.update(clear=False)
    trainer.update(scale=2.0)
    assert b.weight.tolist() == [[4.0, 4.0]] * 3


def test_forward_is_for_the_subclass_and_keywords_that_mean_nothing_are_refused(trainer):
    with pytest.raises(NotImplementedError, match=r"`CellTrainer.forward`"):
        trainer(torch.ones(1), reward=1.0)
    with pytest.raises(TypeError, match="'tc'"):
        CellTrainer(tc=20.0)


# -------------------------------------------------------------------------------- monitors
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
    mean = StateMonitor.partialconstructor()
    monitor = trainer.add_monitor("a", "mean", "neuron.running_mean", mean)
    layer(a=torch.rand(2, 2))
    assert torch.equal(monitor.peek(), layer.neurons["n"].running_mean)
    other = trainer.add_monitor("a", "mean", "neuron", IN)  # takes the place of that one
    assert trainer.get_monitor("a", "mean") is other
    assert not monitor.registered
    assert hooks(layer) == 1
    trainer.del_monitor("a", "mean")
    missing("add_monitor", trainer, "c", "post", "neuron", OUT)
    missing("get_monitor", trainer, "c", "post")
    missing("del_monitor", trainer, "c", "post")
    for name in ("a.b", "", "keys", 1):
        with pytest.raises(ValueError, match="Argument `name` should be a name without dots"):
            trainer.add_monitor("a", name, "neuron", OUT)
    with pytest.raises(AttributeError, match=r"`neuron\.weigth`"):
        trainer.add_monitor("a", "post", "neuron.weigth", OUT)
    assert hooks(layer) == 0


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


@pytest.mark.parametrize(("name", "attr", "make", "tags"), [
    ("other", "neuron", OUT, {"dt": 1.0}), ("post", "connection", OUT, {"dt": 1.0}),
    ("post", "neuron", IN, {"dt": 1.0}),
    ("post", "neuron", OutputMonitor.partialconstructor(reducer=WindowRecorder()), {"dt": 1.0}),
    ("post", "neuron", OUT, {"dt": 2.0}), ("post", "neuron", OUT, {"dt": 1.0, "more": 1}),
])  # fmt: skip
def test_name_path_class_reducer_and_tags_tell_monitors_apart(trainer, name, attr, make, tags):
    first = trainer.add_monitor("a", "post", "neuron", OUT, dt=1.0)
    assert isinstance(first.reducer, Latest)
    second = trainer.add_monitor("b", name, attr, make, **tags)
    assert second is not first
    assert len(list(trainer.monitors)) == 2
    same = trainer.add_monitor("a", name, attr, make, **tags)
    assert (same is second) == (attr == "neuron")  # the cells share their neuron alone


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
