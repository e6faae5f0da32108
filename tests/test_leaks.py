"""No hook and no object stays behind."""

import copy
import gc
import weakref

import pytest
import torch
from contract_cases import Spike
from monitors import hooks
from torch import nn

import lightning_accum as la
from lightning_accum import Accumulator, RuleTrainer, Serial, Updater, attach_updater
from lightning_accum.observe import Monitor, Reducer


def serial():
    return Serial(nn.Linear(3, 2), Spike())


def learner(model, **options):
    rule = RuleTrainer(la.STDP(0.3, -0.2), **options)
    rule.register_cell("cell", model.cell)
    return rule


def alive():
    gc.collect()
    ours = (nn.Module, torch.Tensor, la.Cell, weakref.finalize)
    kinds = (type(x) for x in gc.get_objects())  # asking an object itself might wake it up
    return sum(issubclass(kind, ours) or kind.__name__ == "_Hook" for kind in kinds)


def of_kind(*kinds):
    return [x for x in gc.get_objects() if issubclass(type(x), kinds)]


def train(model, rule):
    for _ in range(3):
        model(torch.ones(2, 3))
    rule()
    rule.update()


@pytest.mark.parametrize("first", ["model", "rule"])
def test_twenty_models_made_and_dropped(first):
    def once():
        model = serial()
        attach_updater(model.connection).register_constraint(la.Clamp(0.0))
        rule = learner(model, params=("weight", "bias"))
        train(model, rule)
        copied = copy.deepcopy(model), copy.deepcopy(rule)
        copied[1].register_cell("cell", copied[0].cell)
        train(*copied)
        attach_updater(model.connection).weight = torch.ones(2, 3)
        if first == "model":
            del model
        else:
            del rule

    once()
    before, known = alive(), of_kind(Monitor, Reducer, Updater, RuleTrainer)
    gc.disable()
    try:
        for _ in range(20):
            once()
        left = of_kind(Monitor, Reducer, Updater, RuleTrainer)
    finally:
        gc.enable()
    assert set(left) == set(known)  # not even until the next collection
    assert alive() == before


def test_one_trainer_outlives_twenty_models():
    rule = RuleTrainer(la.STDP(0.3, -0.2))
    before, known = None, of_kind(Monitor, Accumulator)
    for i in range(20):
        model = serial()
        rule.register_cell(str(i), model.cell)
        train(model, rule)
        del model
        rule.update()
        assert list(rule.cells) == []
        before = alive() if i == 2 else before
    assert alive() == before
    assert set(of_kind(Monitor, Accumulator)) == set(known)


def test_one_model_outlives_twenty_trainers():
    model, counts = serial(), []
    for i in range(40):
        train(model, learner(model))
        assert hooks(model) == 0
        counts += [alive()] if i in (19, 39) else []
    assert counts[0] == counts[1]
