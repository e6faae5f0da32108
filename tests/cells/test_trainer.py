from __future__ import annotations

import copy
import gc

import pytest
import torch
from rasters import layer, learned, raster, show
from torch import nn
from turns import turns
from watching import COPIES, OUT, hooks

import lightning_accum as la
from lightning_accum import STDP, Cell, CellTrainer, IndependentCellTrainer, Serial, get_updater
from lightning_accum.callbacks._cell_trainer_host import CellHost
from lightning_accum.nn import LIF

PRE, POST = raster(6, 3, 4, seed=1), raster(6, 3, 2, seed=2)


def serial():
    return Serial(nn.Linear(2, 2), nn.ReLU())


# -------------------------------------------------------------------------------- gone and copied
def test_a_cell_that_is_gone_is_dropped():
    trainer, kept, gone = CellTrainer(), serial(), serial()
    for name, model in (("kept", kept), ("gone", gone)):
        trainer.add_cell(name, model.cell, params=["weight"])
        trainer.add_monitor(name, "post", "neuron", OUT)
    get_updater(kept.connection).weight = torch.ones(2, 2)
    del gone, model
    gc.collect()
    trainer.update()
    assert [name for name, _ in trainer.named_cells] == ["kept"]
    assert len(list(trainer.monitors)) == 1
    assert get_updater(kept.connection).weight.empty


@turns("kind", [CellTrainer, STDP])
def test_the_name_of_a_cell_that_is_gone_is_free(kind):
    trainer = kind() if kind is CellTrainer else kind(0.3, -0.2)
    add = trainer.add_cell if kind is CellTrainer else trainer.register_cell
    model, other = serial(), serial()
    add("cell", model.cell)
    trainer.eval()
    del model
    gc.collect()
    trainer.train()  # there is nothing to watch
    with pytest.raises(RuntimeError, match=r"no longer exist.*again under its name"):
        trainer.get_cell("cell")
    add("cell", other.cell)
    assert trainer.get_cell("cell")[0] == other.cell


def test_monitors_of_modules_that_are_gone_or_elsewhere_are_not_shared():
    model, trainer = serial(), CellTrainer()
    trainer.add_cell("one", model.cell)
    trainer.add_monitor("one", "post", "neuron", OUT)
    twin = copy.deepcopy(trainer)
    twin.add_cell("two", model.cell)  # while "one" of the copy is bound to nothing
    monitor = twin.add_monitor("two", "post", "neuron", OUT)
    model(torch.ones(1, 2))
    assert monitor.peek() is not None
    twin.add_cell("one", serial().cell)
    assert twin.get_monitor("one", "post") is not monitor


def test_a_copy_is_bound_anew_and_goes_on():
    model = layer(4, 2)
    rule, reference = (STDP(0.3, -0.2, trace_mode="nearest") for _ in range(2))
    rule.register_cell("cell", model.cell)
    show(model, PRE[:2], POST[:2])
    rule()
    show(model, PRE[2:3], POST[2:3])
    for through in COPIES:
        twin, twin_model = through(rule), through(model)
        assert list(twin.cells) == []
        with pytest.raises(RuntimeError, match=r"this trainer is a copy"):
            twin.get_cell("cell")
        for call in (twin, twin.update):  # which would train nothing, in silence
            with pytest.raises(RuntimeError, match=r"is a copy, and its cells \['cell'\]"):
                call()
        unit = twin.register_cell("cell", twin_model.cell)
        assert unit.monitors["pre"].reducer.length == 1
        show(twin_model, PRE[3:], POST[3:])
        twin()
        found = unit.cell.updater.weight.update(twin_model.connection.weight)
        torch.testing.assert_close(found, learned(reference, PRE, POST), rtol=1e-10, atol=1e-10)
    assert rule.get_unit("cell").monitors["pre"].reducer.length == 1


def test_a_copy_is_bound_anew_with_other_hyperparameters():
    model = layer(4, 2)
    rule = STDP(0.3, -0.2)
    rule.register_cell("cell", model.cell)
    twin, other = copy.deepcopy(rule), layer(4, 2)
    twin.register_cell("cell", other.cell, time_dim=0, lr_post=0.6)
    show(other, PRE, POST, time_dim=0)
    twin()
    found = other.cell.updater.weight.update(other.connection.weight)
    expected = learned(STDP(0.6, -0.2), PRE, POST)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


# -------------------------------------------------------------------------------- registering
def test_hyperparameters_per_cell_are_checked_when_registered():
    rule, model = STDP(0.3, -0.2), layer(4, 2)
    for overrides, error, message in (
        ({"tc_pre": 0.0}, ValueError, "`tc_pre = 0.0`"),
        ({"trace_mode": "last"}, ValueError, "`trace_mode = 'last'`"),
        ({"batch_reduction": "median"}, ValueError, "'median'"),
        ({"params": ("weight", "gain")}, AttributeError, "Found `gain`"),
        ({"time_dim": 1}, ValueError, "Argument `time_dim`"),
    ):
        with pytest.raises(error, match=message):
            rule.register_cell("cell", model.cell, **overrides)
    with pytest.raises(TypeError, match="should be a Cell"):
        rule.register_cell("cell", model)
    neuron = LIF(2, time_dim=0)
    with pytest.raises(ValueError, match=r"neuron of cell `cell`, 0\. Found `time_dim = None`"):
        rule.register_cell("cell", Cell(model.connection, neuron))
    assert hooks(neuron) == 0
    unit = rule.register_cell("cell", model.cell, tc_pre=5.0)
    assert unit.state.hyperparameters.tc_pre == 5.0
    assert unit.state.hyperparameters.tc_post == rule.defaults.tc_post
    assert hooks(model) == 2
    with pytest.raises(ValueError, match="`name = 'cell'`"):
        rule.register_cell("cell", model.cell, tc_pre=7.0)
    assert rule.get_unit("cell").state.hyperparameters.tc_pre == 5.0


def test_units():
    class Plain(IndependentCellTrainer):
        rate: float = 1.0

    trainer, models = Plain(), [serial(), serial()]
    units = [trainer.register_cell(str(i), m.cell, rate=i) for i, m in enumerate(models)]
    trainer.add_monitor("0", "post", "neuron", OUT)
    assert [unit.cell for unit in trainer] == [m.cell for m in models]
    assert [unit.state.hyperparameters.rate for unit in units] == [0, 1]
    assert list(trainer.get_unit("0").monitors) == ["post"]
    assert trainer.get_unit("1").monitors == {}


# -------------------------------------------------------------------------------- running
def test_the_recording_gate():
    model, rule = layer(4, 2), STDP(0.3, -0.2)
    unit = rule.register_cell("cell", model.cell)
    assert rule.recording
    rule.recording = False
    show(model, PRE, POST)
    assert unit.monitors["pre"].reducer.length == 0
    other = Cell(model.connection, nn.ReLU())
    assert not rule.register_cell("late", other).monitors["post"].recording
    rule.recording = True
    show(model, PRE[:1], POST[:1])
    assert unit.monitors["pre"].reducer.length == 1


def test_traces_never_narrow():
    model, rule = layer(4, 2), STDP(0.3, -0.2)
    unit = rule.register_cell("cell", model.cell)
    show(model, PRE, POST)
    rule()
    before = {k: v.clone() for k, v in unit.state.carried.items()}
    rule.to(torch.bfloat16)
    for name, value in unit.state.carried.items():
        assert value.dtype == torch.float32
        assert torch.equal(value, before[name].float())


def test_one_process_alone_may_reduce_its_batch_in_any_way():
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    host = CellHost(la.Hebb(0.1, batch_reduction="amax"), {"c": la.CellSpec("0", "1")})
    host.bind(net)
    host.release()


def test_another_updater_gets_the_parameters_that_a_rule_trains():
    layer = la.Serial(nn.Linear(3, 2), nn.Identity())
    rule = la.STDP(0.1, -0.1, params=("weight", "bias"))
    rule.register_cell("enc", layer.cell)
    own = la.Updater(layer.connection, "weight")
    rule.use_updater("enc", own)
    layer.connection(torch.ones(1, 3)), layer.neuron(torch.ones(1, 2))
    rule()
    assert set(own.names) == {"weight", "bias"}
    assert own.bias.pos is not None
