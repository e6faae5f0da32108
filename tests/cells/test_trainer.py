"""Cells and layers, and the trainers that watch them."""

from __future__ import annotations

import copy
import gc
from dataclasses import replace

import pytest
import torch
from clamped_layers import layer, learned, raster, show
from monitors import COPIES, OUT, hooks
from subtests import turns
from torch import nn

import lightning_accum as la
from lightning_accum.callbacks import FabricCellTrainer
from lightning_accum.callbacks._cell_host import CellHost
from lightning_accum.nn import LIF

PRE, POST = raster(6, 3, 4, seed=1), raster(6, 3, 2, seed=2)


def serial():
    return la.Serial(nn.Linear(2, 2), nn.ReLU())


# -------------------------------------------------------------------------------- gone and copied


@turns("kind", [la.CellTrainer, la.RuleTrainer])
def test_the_name_of_a_cell_that_is_gone_is_free(kind):
    trainer = kind() if kind is la.CellTrainer else kind(la.STDP(0.3, -0.2))
    add = trainer.add_cell if kind is la.CellTrainer else trainer.register_cell
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
    model, trainer = serial(), la.CellTrainer()
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
    rule, reference = (la.RuleTrainer(la.STDP(0.3, -0.2, trace_mode="nearest")) for _ in range(2))
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


# -------------------------------------------------------------------------------- registering
def test_hyperparameters_per_cell_are_checked_when_registered():
    rule, model = la.RuleTrainer(la.STDP(0.3, -0.2)), layer(4, 2)
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
        rule.register_cell("cell", la.Cell(model.connection, neuron))
    assert hooks(neuron) == 0
    unit = rule.register_cell("cell", model.cell, tc_pre=5.0)
    assert unit.state.rule == replace(rule.rule, tc_pre=5.0)
    assert hooks(model) == 2
    with pytest.raises(ValueError, match="`name = 'cell'`"):
        rule.register_cell("cell", model.cell, tc_pre=7.0)
    assert rule.get_unit("cell").state.rule.tc_pre == 5.0


def test_units():
    trainer, models = la.RuleTrainer(la.Hebb(1.0)), [serial(), serial()]
    units = [trainer.register_cell(str(i), m.cell, lr=i) for i, m in enumerate(models)]
    trainer.add_monitor("0", "more", "neuron", OUT)
    assert [unit.cell for unit in trainer] == [m.cell for m in models]
    assert [unit.state.rule.lr for unit in units] == [0, 1]
    assert list(trainer.get_unit("0").monitors) == ["pre", "post", "more"]
    assert list(trainer.get_unit("1").monitors) == ["pre", "post"]


# -------------------------------------------------------------------------------- running
def test_the_recording_gate():
    model, rule = layer(4, 2), la.RuleTrainer(la.STDP(0.3, -0.2))
    unit = rule.register_cell("cell", model.cell)
    assert rule.recording
    rule.recording = False
    show(model, PRE, POST)
    assert unit.monitors["pre"].reducer.length == 0
    other = la.Cell(model.connection, nn.ReLU())
    assert not rule.register_cell("late", other).monitors["post"].switch.on
    rule.recording = True
    show(model, PRE[:1], POST[:1])
    assert unit.monitors["pre"].reducer.length == 1


def test_traces_never_narrow():
    model, rule = layer(4, 2), la.RuleTrainer(la.STDP(0.3, -0.2))
    unit = rule.register_cell("cell", model.cell)
    show(model, PRE, POST)
    rule()
    before = {k: v.clone() for k, v in unit.state.carried.items()}
    rule.to(torch.bfloat16)
    for name, value in unit.state.carried.items():
        assert value.dtype == torch.float32
        assert torch.equal(value, before[name].float())


def test_one_process_alone_may_reduce_its_batch_in_any_way():
    rule = la.RuleTrainer(la.Hebb(0.1), batch_reduction="amax")
    host = CellHost(rule, {"c": la.CellSpec("0", "1")})
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    host.bind(net)
    host.release()


def test_another_updater_gets_the_parameters_that_a_rule_trains():
    layer = la.Serial(nn.Linear(3, 2), nn.Identity())
    rule = la.RuleTrainer(la.STDP(0.1, -0.1), params=("weight", "bias"))
    rule.register_cell("enc", layer.cell)
    own = la.Updater(layer.connection, "weight")
    rule.registry["enc"].replacement = own
    layer.connection(torch.ones(1, 3)), layer.neuron(torch.ones(1, 2))
    rule()
    assert set(own.names) == {"weight", "bias"}
    assert own.bias.pos is not None


# -------------------------------------------------------------------------------- cells, layers
def test_a_cell_is_equal_to_another_of_the_same_modules():
    fc, one, two = nn.Linear(2, 2), nn.ReLU(), nn.ReLU()
    assert la.Cell(fc, one) == la.Cell(fc, one)
    assert la.Cell(fc, one) != la.Cell(fc, two)
    assert la.Cell(fc, one) != fc
    assert len({la.Cell(fc, one), la.Cell(fc, one), la.Cell(fc, two)}) == 2
    assert "Linear" in repr(la.Cell(fc, one))
    with pytest.raises(TypeError, match=r"Argument `neuron`.*Found `str`"):
        la.Cell(fc, "relu")
    with pytest.raises(TypeError, match="Argument `connection`"):
        la.Cell(None, one)


def test_a_cell_shows_the_updater_of_its_connection():
    cell = la.Cell(nn.Linear(2, 2), nn.ReLU())
    assert cell.updater is None
    updater = la.attach_updater(cell.connection, "weight")
    assert cell.updater is updater
    cell.updater = None
    assert cell.updater is None
    cell.updater = updater
    assert la.Cell(cell.connection, nn.ReLU()).updater is updater


def test_a_layer_adds_up_connections_and_makes_every_cell():
    a, b, n, m = nn.Linear(2, 3), nn.Linear(4, 3), nn.ReLU(), nn.Identity()
    layer = la.Layer({"a": a, "b": b}, {"n": n, "m": m})
    x, y = torch.ones(1, 2), torch.ones(1, 4)
    found = layer(a=x, b=y)
    assert torch.equal(found["m"], a(x) + b(y))
    assert torch.equal(found["n"], (a(x) + b(y)).relu())
    assert torch.equal(layer(b=y)["m"], b(y))
    assert layer.cell("b", "m") == la.Cell(b, m)
    assert set(layer.cells) == {("a", "n"), ("a", "m"), ("b", "n"), ("b", "m")}
    assert layer.cells["a", "m"] == la.Cell(a, m)
    with pytest.raises(ValueError, match=r"\['a', 'b'\]\. Found none"):
        layer()
    with pytest.raises(AttributeError, match=r"`connection`.*\['a', 'b'\].*'c'"):
        layer.cell("c", "n")
    with pytest.raises(AttributeError, match=r"`neuron`.*\['n', 'm'\].*'a'"):
        layer.cell("a", "a")
    with pytest.raises(ValueError, match=r"Argument `neurons`.*at least one. Found `neurons = {}`"):
        la.Layer({"a": a}, {})


def test_cells_of_another_form_are_told_by_an_example():
    with pytest.raises(TypeError, match=r'such as `\{"encoder": CellSpec\(.*Found `list`'):
        FabricCellTrainer(la.STDP(0.1, -0.1), [("enc", la.CellSpec("fc", "lif"))])
    with pytest.raises(TypeError, match=r"the dotted path of a submodule.*Found `Linear`"):
        la.CellSpec(nn.Linear(2, 1), "lif")


# -------------------------------------------------------------------------------- sides that differ
ON = torch.ones(3, 2, 4)  # steps, samples, inputs


class Relay(nn.Module):
    """Gives a spike for whatever is positive."""

    def forward(self, x):
        return (x > 0).to(x)


def linear():
    return nn.Linear(4, 2, bias=False)


def unseen(fc, neuron):
    neuron(nn.functional.linear(ON, fc.weight))


def asleep(side):
    return lambda *both: (both[side].eval(), both[1](both[0](ON)))


def each(steps):
    return lambda fc, neuron: [neuron(fc(step)) for step in steps]


def folded(x):
    return lambda fc, neuron: neuron(fc(x.flatten(0, 1)).unflatten(0, x.shape[:2]))


@turns(
    "connection, time_dim, show, words",
    [
        (linear, 0, unseen, "none of the connection: the connection, a Linear in"),
        (linear, 0, asleep(0), "none of the connection: .* is in evaluation mode"),
        (linear, 0, asleep(1), "none of the neuron: .* is in evaluation mode"),
        (linear, 0, each(ON), r"`\[B, \.\.\.\]`, give the trainer `time_dim=None`"),
        (linear, 0, folded(ON), "takes time and batch as one dimension"),
        (lambda: nn.Conv1d(1, 2, 3), 0, folded(ON.unsqueeze(2)), "time and batch as one dim"),
        (lambda: nn.Conv2d(1, 3, 3), 0, each(torch.ones(4, 2, 1, 5, 5)),
         r"as often as each other.* Found 8 steps of the connection \(1, 5, 5\) and 8 of the neuron"
         r" \(3, 3, 3\): .* give the trainer `time_dim=None`\.$"),
        (linear, None, lambda fc, neuron: (neuron(fc(ON[0])), fc(ON[0])),
         r"2 steps .* and 1 of .* as often as the other"),
        (linear, None, lambda fc, neuron: neuron(fc(ON[0])[:1]), "let both see the same samples"),
        (lambda: nn.Linear(4, 1), None, lambda fc, neuron: neuron(fc(ON[0]).squeeze(-1)),
         r"connection \(2, 4\) .* neuron \(1, 2\): .* return all dimensions"),
    ],
)  # fmt: skip
def test_sides_that_differ(connection, time_dim, show, words):
    pair = la.Cell(connection(), Relay())
    rule = la.RuleTrainer(la.STDP(0.1, -0.1), time_dim=time_dim)
    rule.register_cell("enc", pair)
    show(pair.connection, pair.neuron)
    with pytest.raises(ValueError, match=words):
        rule()
    if isinstance(pair.connection, nn.Linear):
        pair.connection.train(), pair.neuron.train()
        x = ON[0] if time_dim is None else ON
        pair.neuron(pair.connection(x))  # what was refused is dropped
        rule()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch.compile
@turns("story", [
    "register eval call train call eval call train call",
    "call eval register train call eval call train call delete call register call",
])  # fmt: skip
def test_compiled_modules_are_recorded_as_others_are(story):
    lengths = []
    for compiles in (False, True):
        torch.compiler.reset()
        net, rule = nn.Sequential(nn.Linear(2, 1), nn.ReLU()), la.RuleTrainer(la.Hebb(0.1))
        run = torch.compile(net, backend="eager") if compiles else net
        do = {
            "call": lambda run=run: run(torch.ones(1, 2)), "eval": rule.eval, "train": rule.train,
            "delete": lambda rule=rule: rule.del_cell("a"),
            "register": lambda rule=rule, net=net: rule.register_cell("a", la.Cell(*net)),
        }  # fmt: skip
        lengths.append([])
        for word in story.split():
            do[word]()
            lengths[-1].append([monitor.reducer.length for monitor in rule.monitors])
    torch.compiler.reset()
    assert lengths[0] == lengths[1]
