"""A fit whose cells are not what the callback takes them for is refused, or warned of."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from callback_helpers import INPUTS, OUTPUTS, RULE, Net, callback, clean, loader, trainer
from torch import nn

from lightning_accum import STDP
from lightning_accum.nn import LIF


# ---------------------------------------------------------------------- one rule, one callback
def test_a_rule_of_two_callbacks(tmp_path: Path) -> None:
    rule, net = STDP(**RULE, time_dim=0), Net()
    before = copy.deepcopy(net.state_dict())
    one, two = callback(rule), callback(rule, name="two")
    with pytest.raises(ValueError, match=r"Found the same STDP in `STDP,enc` and `two`"):
        trainer(tmp_path, one, two).fit(net, loader(2))
    assert clean(net)
    assert torch.equal(net.fc.weight, before["fc.weight"])
    trainer(tmp_path, one).fit(net, loader(2))  # one after the other is fine
    trainer(tmp_path, two).fit(net, loader(2))
    assert not torch.equal(net.fc.weight, before["fc.weight"])


# ---------------------------------------------------------------------- modules that are replaced
def other(name: str) -> nn.Module:
    if name == "lif":
        return LIF(OUTPUTS, time_dim=0)
    return nn.Linear(INPUTS, OUTPUTS, bias=False, dtype=torch.float64)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("name", ["fc", "lif"])
@pytest.mark.parametrize("hook", ["on_fit_start", "on_train_start", "on_train_epoch_start"])
def test_a_module_that_is_replaced(hook: str, name: str, keep: bool, tmp_path: Path) -> None:
    net = Net()
    kept = []

    def replace(*_: Any) -> None:
        if keep:
            kept.append(getattr(net, name))
        setattr(net, name, other(name))

    setattr(net, hook, replace)
    with pytest.raises(RuntimeError, match=rf"Found another .*`{name}` (than|or) "):
        trainer(tmp_path, callback()).fit(net, loader(2))
    assert clean(net)


@pytest.mark.parametrize("hook", ["setup", "configure_model"])
def test_a_module_that_is_replaced_in_time(hook: str, tmp_path: Path) -> None:
    net = Net()
    setattr(net, hook, lambda *_, **__: setattr(net, "lif", other("lif")))
    trainer(tmp_path, callback()).fit(net, loader(2))


def test_a_cell_that_is_deleted_in_a_fit(tmp_path: Path) -> None:
    net, use = Net(), callback()

    def delete() -> None:
        if net.current_epoch == 1:
            use.cell_trainer.del_cell("enc")

    net.on_train_epoch_start = delete  # type: ignore[method-assign]
    trainer(tmp_path, use, max_epochs=2).fit(net, loader(2))
