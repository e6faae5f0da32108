"""Watchers can be switched off, or fail, and those of copies are silent."""

import copy
import dataclasses

import lightning.pytorch as pl
import pytest
import torch
from harness import BATCH, CALLBACK, FABRIC, HAND, Lit, Program, fit, learner, run, whole
from torch.nn.utils.parametrizations import weight_norm

import lightning_accum as la
from lightning_accum import STDP, Cell, RuleTrainer, Serial
from lightning_accum._training_events import SILENT
from lightning_accum.nn import LIF, Linear


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
    assert "`weight` should stay a parameter of `Linear (cell enc)`" in str(said.error)
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
