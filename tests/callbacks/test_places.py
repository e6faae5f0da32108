"""A fit whose cells are not what the callback takes them for is refused, or warned of."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from callback_helpers import INPUTS, OUTPUTS, RULE, Net, callback, clean, loader, trainer
from torch import nn

from lightning_accum import STDP, CellSpec
from lightning_accum.callbacks._host import CellHost
from lightning_accum.nn import LIF, LeakyIntegrator, PoissonEncoder


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


@pytest.mark.parametrize(("lr", "told"), [(RULE["lr_post"], 1), (0.5, 0)])
def test_a_callback_that_was_pasted_twice(lr: float, told: int, tmp_path: Path) -> None:
    other = STDP(**{**RULE, "lr_post": lr}, time_dim=0)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer(tmp_path, callback(), callback(other, name="two")).fit(Net(), loader(2))
    texts = [str(w.message) for w in found if "learn twice as fast" in str(w.message)]
    assert len(texts) == told
    assert all("in the callbacks `STDP,enc` and `two`" in text for text in texts)


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that a module is gone
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


# ---------------------------------------------------------------------- another step
@pytest.mark.parametrize(("dt", "told"), [(1.0, 0), (0.1, 1)])
@pytest.mark.parametrize("kind", ["encoder", "readout"])
def test_the_step_of_an_encoder_or_a_readout(kind: str, dt: float, told: int) -> None:
    net = Net()
    net.part = PoissonEncoder(10, 100.0, dt=dt) if kind == "encoder" else LeakyIntegrator(2, dt=dt)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        host = CellHost(STDP(**RULE, time_dim=0), {"enc": CellSpec("fc", "lif")})
        host.bind(net)
        host.release()
    assert len(found) == told
    assert all("`part` should be the step of the cells, 1 ms" in str(w.message) for w in found)


# ---------------------------------------------------------------------- the neuron before
class Chain(Net):
    """A neuron, a connection as wide as that, and another neuron."""

    def __init__(self, steps: bool = False) -> None:
        super().__init__()
        self.steps = steps
        self.lif = LIF(OUTPUTS, tc_mem=10.0, time_dim=None if steps else 0)
        self.inner = nn.Linear(OUTPUTS, OUTPUTS, bias=False, dtype=torch.float64)
        self.end = LIF(OUTPUTS, v_threshold=0.1, time_dim=None if steps else 0)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.lif.reset()
        self.end.reset()
        x = batch[0].transpose(0, 1)
        for each in x if self.steps else [x]:
            self.end(self.inner(self.lif(self.fc(each))))


def said(net: Chain, neuron: str, tmp_path: Path) -> list[str]:
    rule = STDP(**RULE, time_dim=None if net.steps else 0)
    cells = {"enc": CellSpec("fc", "lif"), "inner": CellSpec("inner", neuron)}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer(tmp_path, callback(rule, cells=cells), max_epochs=2).fit(net, loader(2))
    return [str(w.message) for w in found if "should come after" in str(w.message)]


def test_the_neuron_before_the_connection(tmp_path: Path) -> None:
    (text,) = said(Chain(), "lif", tmp_path)
    assert text.startswith("The neuron of cell `inner` should come after its connection.")
    assert said(Chain(), "end", tmp_path) == []


def test_the_neuron_before_the_connection_step_by_step(tmp_path: Path) -> None:
    (text,) = said(Chain(steps=True), "lif", tmp_path)
    assert "call the connection first in each step" in text
    assert said(Chain(steps=True), "end", tmp_path) == []
