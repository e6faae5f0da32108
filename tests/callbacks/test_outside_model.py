"""Cells whose modules the model does not hold, calls in evaluation mode, or resets in part."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import OUTPUTS, RULE, Net, callback, loader, trainer
from lightning.pytorch.callbacks import ModelPruning
from torch import nn

from lightning_accum import STDP, Cell
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import LIF, Competition


class Deep(Net):
    """Keeps a second layer in a container of some kind."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        fc2 = nn.Linear(OUTPUTS, OUTPUTS, bias=False, dtype=torch.float64)
        nn.init.eye_(fc2.weight)
        layers = [fc2, LIF(OUTPUTS, tc_mem=10.0, time_dim=0)]
        self.extra = kind(layers)
        self.cell = Cell(*layers)

    def forward(self, x: Any) -> Any:
        self.extra[1].reset()
        return self.extra[1](self.extra[0](super().forward(x).double()))


def fit(net: Deep, tmp_path: Any) -> None:
    rule = STDP(**RULE, time_dim=0)
    rule.register_cell("a", Cell(net.fc, net.lif))
    rule.register_cell("b", net.cell)
    trainer(tmp_path, CellTrainerCallback(rule), max_epochs=2).fit(net, loader(4))


def told(run: Callable[[], None]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(w.message) for w in caught if w.category is RuntimeWarning]


@pytest.mark.parametrize("kind", [list, tuple])
def test_that_learn_in_a_plain_container(kind: Any, tmp_path: Any) -> None:
    net = Deep(kind)
    text = (
        "The modules of cell `b` should be part of the model, .* its connection, a `Linear`, so"
        " that no checkpoint .*`nn.ModuleList`"
    )
    found = told(lambda: fit(net, tmp_path))
    assert len(found) == 1
    assert re.search(text, found[0])
    assert not torch.equal(net.cell.connection.weight, torch.eye(OUTPUTS).double())


@pytest.mark.parametrize("kind", [nn.ModuleList, lambda layers: nn.Sequential(*layers)])
def test_that_the_model_holds(kind: Any, tmp_path: Any) -> None:
    fit(Deep(kind), tmp_path)  # without a warning


def test_called_in_evaluation_mode(tmp_path: Any) -> None:
    class Evaluated(Net):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            self.eval()
            self(batch[0])
            self.train()

    found = told(lambda: trainer(tmp_path, callback()).fit(Evaluated(), loader(4)))
    assert len(found) == 1
    assert "in evaluation mode, after an `eval()` that should be left out:" in found[0]


@pytest.mark.parametrize("inner", [False, True])
def test_a_competition_that_is_reset_without_its_neuron(inner: bool, tmp_path: Any) -> None:
    class Competing(Net):
        def __init__(self) -> None:
            super().__init__()
            self.lif = Competition(self.lif, OUTPUTS, time_dim=0)

        def forward(self, x: Any) -> Any:
            self.lif.reset()
            if inner:
                self.lif.neuron.reset()
            return self.lif(self.fc(x.transpose(0, 1)))

    found = told(lambda: trainer(tmp_path, callback()).fit(Competing(), loader(8)))
    assert len(found) == (not inner)
    assert inner or "call its `reset()`, as in `competition.neuron.reset()`, in" in found[0]


@pytest.mark.skipif(
    not hasattr(pl.callbacks, "EMAWeightAveraging"),
    reason="the pruning of Lightning 2.5 does not set these weights back",
)
def test_pruning_that_sets_weights_back(tmp_path: Any) -> None:
    def fit(**options: Any) -> list[str]:
        net = Net()
        pruning = ModelPruning("l1_unstructured", [(net.fc, "weight")], amount=0.3, **options)
        learner = trainer(tmp_path, callback(), pruning, max_epochs=2)
        return told(lambda: learner.fit(net, loader(8)))

    assert any("unless `use_lottery_ticket_hypothesis=False`" in text for text in fit())
    assert not fit(use_lottery_ticket_hypothesis=False)
