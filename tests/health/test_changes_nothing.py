"""Whoever watches changes nothing: weights, losses, states and random numbers are the same."""

import copy
import dataclasses
import importlib
import logging
import sys
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from correct import CORRECT
from programs import BATCH, CALLBACK, FABRIC, HAND, Lit, Program, fit, learner, run, whole
from torch.nn.utils.parametrizations import weight_norm
from values import differences

import lightning_accum as la
from lightning_accum import STDP, Cell, RuleTrainer, Serial
from lightning_accum._observer import SILENT
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import LIF, Linear

FITS = [p for p in CORRECT if p.alone is None and CALLBACK in p.hosts]
EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES.parent / "scripts")]
ZOO = sorted({network.example for network in importlib.import_module("zoo").ZOO.values()})


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
            "callback": {**program.callback, "health": health}, "epochs": min(program.epochs, 2),
            "data": lambda: program.data()[:5],  # it looks at windows and updates 1, 2, 4 and 8
            "learners": lambda notes=notes: [*program.learners(), notes],
        }  # fmt: skip
        run(dataclasses.replace(program, **changes), CALLBACK)
        found.append(notes.found)
    assert found[0]
    assert not differences(*found)


class Enough(Exception):
    """Holds what a few batches have left."""


@pytest.mark.parametrize("name", ZOO)
def test_a_network_of_the_zoo_is_the_same_with_and_without(name, tmp_path):
    """Runs its first fit, or the first updates of its loop, and leaves out the rest."""
    on, off = (few_batches(name, health, tmp_path) for health in (True, False))
    assert not differences(on, off)


def few_batches(name, health, folder):
    """Returns what an example's first batches leave, with or without health."""
    example = importlib.import_module(name)
    fit, make, update = pl.Trainer.fit, CellTrainerCallback.__init__, RuleTrainer.update
    calls = [0]

    def short_fit(trainer, model, *args, **kwargs):
        notes = Notes()
        trainer.callbacks.append(notes)
        trainer.fit_loop.max_epochs, trainer.limit_train_batches = 1, 4
        fit(trainer, model, *args, **kwargs)
        raise Enough(notes.found)

    def made(self, *args, **kwargs):
        make(self, *args, **{**kwargs, "health": health})

    def updated(rule, *args, **kwargs):
        update(rule, *args, **kwargs)
        calls[0] += 1
        if calls[0] == 8:
            cells = [cell.connection.state_dict() for cell, _ in rule.cells]
            raise Enough([cells, rule.state_dict(), torch.get_rng_state()])

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", [name, "--short"])
        for owner, muted in ((logging.Logger, "setLevel"), (torch, "set_num_threads")):
            patch.setattr(owner, muted, lambda *_: None)  # for the tests that follow
        patch.setattr(pl.Trainer, "fit", short_fit)
        patch.setattr(CellTrainerCallback, "__init__", made)
        patch.setattr(RuleTrainer, "update", updated)
        if not health:
            patch.setattr(RuleTrainer, "default_events", staticmethod(lambda *_: SILENT))
        if hasattr(example, "load_mnist5k"):
            digits = partial(importlib.import_module("_data").load_digits_split, size=28)
            patch.setattr(example, "load_mnist5k", digits)
        begin = getattr(example, "main", None) or partial(
            example.learn, "e-prop, random feedback", example.load_digits_split(), 1
        )
        torch.manual_seed(0)
        with pytest.raises(Enough) as ended:
            begin()
    (found,) = ended.value.args
    return found


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
