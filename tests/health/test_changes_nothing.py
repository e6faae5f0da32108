"""Whoever watches changes nothing: weights, losses, states and random numbers are the same."""

import copy
import dataclasses

import lightning.pytorch as pl
import pytest
import torch
from correct import CORRECT
from programs import BATCH, CALLBACK, FABRIC, HAND, Lit, Program, fit, learner, run, whole
from round_trips import differences
from torch.nn.utils.parametrizations import weight_norm

import lightning_accum as la
from lightning_accum import STDP, Cell, RuleTrainer, Serial
from lightning_accum._training_events import SILENT
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import LIF, Linear

FITS, LOOPS = (
    [p for p in CORRECT if p.alone is None and host in p.hosts] for host in (CALLBACK, HAND)
)


def shorter(program):
    """As many batches as are looked at: windows and updates 1, 2, 4 and 8."""
    return {"epochs": min(program.epochs, 2), "data": lambda: program.data()[:5]}


class Notes(pl.Callback):
    """Notes all that a fit leaves."""

    def __init__(self):
        self.losses = []
        self.found = []

    def on_train_batch_end(self, trainer, module, outputs, *_):
        self.losses.append(copy.deepcopy(outputs))

    def on_train_end(self, trainer, module):
        learners = [c for c in trainer.callbacks if isinstance(c, CellTrainerCallback)]
        states = [each.state_dict() for each in learners]
        optimizers = [each.state_dict() for each in trainer.optimizers]
        found = trainer.global_step, module.state_dict(), states, optimizers, torch.get_rng_state()
        self.found = copy.deepcopy([*found, self.losses])


@pytest.mark.parametrize("program", FITS, ids=lambda p: p.name)
def test_a_fit_is_the_same_with_and_without(program):
    found = []
    for health in (True, False):
        notes = Notes()
        changes = {
            **shorter(program), "callback": {**program.callback, "health": health},
            "learners": lambda notes=notes: [*program.learners(), notes],
        }  # fmt: skip
        run(dataclasses.replace(program, **changes), CALLBACK)
        found.append(notes.found)
    assert found[0]
    assert not differences(*found)


@pytest.mark.parametrize("program", LOOPS, ids=lambda p: p.name)
def test_a_loop_is_the_same_with_and_without(program, monkeypatch):
    def note(net, rule, i):
        program.at("end", net, rule, i)
        found.append(copy.deepcopy([net.state_dict(), rule.state_dict(), torch.get_rng_state()]))

    found, changes = [], {**shorter(program), "on": {**program.on, "end": note}}
    for default in (RuleTrainer.default_events, lambda *_: SILENT):
        monkeypatch.setattr(RuleTrainer, "default_events", staticmethod(default))
        run(dataclasses.replace(program, **changes), HAND)
    assert not differences(*found)


def forward(net, x, i):
    net.lif.forward(net.fc.forward(x.transpose(0, 1)))


@pytest.mark.parametrize("health", [False, {"recorded": False, "applied": True}])
def test_checks_are_switched_off(health):
    p = Program(name="methods", step=forward, callback={"health": health})
    assert run(p, CALLBACK).texts == []
    assert run(dataclasses.replace(p, callback={}), CALLBACK).texts


@pytest.mark.parametrize("health", ["moved", {"movd": False}, {"moved": 0}, None])
def test_unknown_checks_are_refused(health):
    with pytest.raises((TypeError, ValueError), match="`health`"):
        learner(health=health)


@pytest.mark.parametrize("host", [HAND, CALLBACK, FABRIC])
def test_a_check_that_raises_is_logged_once_and_left_out(host, monkeypatch, caplog):
    def breaks(*_):
        raise RuntimeError("of a check")

    monkeypatch.setattr("lightning_accum.health.facts.CellFacts.look", breaks)
    assert run(Program(name="methods", step=whole), host).texts == []
    assert sum("left out" in each.message for each in caplog.records) == 1


@pytest.mark.parametrize("host", [HAND, CALLBACK])
@pytest.mark.parametrize("at", ["ran", "updated"])
def test_a_late_parametrization_is_told_by_one_error(host, at, caplog):
    late = {at: lambda net, rule, i: i == 7 and weight_norm(net.fc)}
    said = run(Program(name="late", on=late, error=RuntimeError, epochs=2), host)
    assert "`weight` should stay a parameter of `Linear" in str(said.error)
    assert not any("left out" in each.message for each in caplog.records)


def by_hand():
    layer = Serial(Linear(2, 1, bias=False), LIF(1, time_dim=0))
    rule = RuleTrainer(STDP(0.1, -0.1), time_dim=0)
    rule.register_cell("enc", layer.cell)
    return layer, rule


def test_copies_are_silent():
    layer, rule = by_hand()
    assert rule.events is not SILENT
    assert layer.cell.updater.changes.events is not SILENT
    twin = copy.deepcopy((layer, rule))
    assert twin[1].events is SILENT
    assert twin[0].cell.updater.changes.events is SILENT


def test_updates_that_are_never_applied_end_the_count_of_spikes(monkeypatch):
    monkeypatch.setattr("lightning_accum.health.watch._LONG", 4)
    layer, rule = by_hand()
    for _ in range(8):
        layer(torch.ones(1, BATCH, 2))
        rule()
    assert rule.events.cells["enc"].values == 4 * BATCH
    rule.update()  # it would be told otherwise


def test_a_rule_in_a_callback_is_not_watched_by_hand():
    class Asks(pl.Callback):
        def on_train_batch_end(self, trainer, *_):
            events.add(trainer.callbacks[0].cell_trainer.events)

    events = set()
    use = learner(health=False)
    fit(Lit(), use, Asks())
    assert events == {SILENT}
    assert use.cell_trainer.events is SILENT


def test_two_rules_of_a_connection_are_both_told():
    def program():
        layer, rule = by_hand()
        other = RuleTrainer(la.Homeostasis(1e-12, target_rate=50.0), time_dim=0)
        other.register_cell("rate", Cell(layer.connection, layer.neuron))
        for _ in range(16):
            layer.neuron.reset()
            layer(torch.zeros(5, BATCH, 2))
            rule(carry=False)
            other(carry=False)
            rule.update()

    said = run(Program(name="two", alone=program), HAND)
    assert {text.split("`")[1] for text in said.texts} == {"enc", "rate"}
