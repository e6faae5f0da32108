"""A connection that runs with other weights than its rule changes is told in the first batch."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from callback_helpers import Net, callback, loader, trainer
from torch import nn

FOUND = "The connection of cell `enc` should run with the `weight` that its rule changes."


class Functional(Net):
    """Calls its connection with weights of its own."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.own = own

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = {name: p.detach().clone() for name, p in self.fc.named_parameters()}
        params = given if self.own else dict(self.fc.named_parameters())
        fc = self.fc
        self.lif.reset()
        return self.lif(torch.func.functional_call(fc, params, (x.transpose(0, 1).to(fc.weight),)))


class Replaced(Net):
    """Has a new parameter from its second batch on."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 1:
            self.fc.weight = nn.Parameter(self.fc.weight.detach().clone())
        return super().training_step(batch, batch_idx)


def said(net: Net, path: Path) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer(path, callback(log=False), max_epochs=1).fit(net, loader(4))
    return [str(w.message) for w in found if "should run with" in str(w.message)]


def test_weights_of_a_functional_call_are_told_once(tmp_path: Path) -> None:
    (text,) = said(Functional(own=True), tmp_path)
    assert text.startswith(FOUND)
    assert "call the module itself" in text


@pytest.mark.parametrize("net", [Net, lambda: Functional(own=False), Replaced])
def test_its_own_parameter_says_nothing(net: Any, tmp_path: Path) -> None:
    assert said(net(), tmp_path) == []
