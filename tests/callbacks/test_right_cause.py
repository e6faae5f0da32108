"""What is said of a fit without effect names the mistake that was made."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import RULE, Net, callback, loader, trainer
from lightning.pytorch.callbacks import ModelPruning
from torch import Tensor, nn

import lightning_accum as la
from lightning_accum import STDP, CellSpec, Clamp, KernelSTDP, Normalize, attach_updater
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import LIF
from lightning_accum.optim import UpdateOptimizer


def told(tmp_path: Path, net: Net, learner: CellTrainerCallback, *others: Any) -> str:
    """Returns the warnings of a fit."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer(tmp_path, *others, learner, max_epochs=2).fit(net, loader(3))
    return "\n".join(str(w.message) for w in caught if "Cell" in str(w.message))


@pytest.mark.parametrize("hook", ["on_train_start", "on_train_epoch_start"])
def test_a_rule_in_evaluation_mode(hook: str, tmp_path: Path) -> None:
    rule, net = STDP(**RULE, time_dim=0), Net()
    setattr(net, hook, rule.eval)
    found = told(tmp_path, net, callback(rule))
    assert "Found none in 3 training batches. The rule is in evaluation mode" in found
    assert "call `rule.train()`" in found


@pytest.mark.skipif(
    not hasattr(pl.callbacks, "EMAWeightAveraging"),
    reason="the pruning of Lightning 2.5 does not set these weights back",
)
def test_a_callback_that_resets_the_weights(tmp_path: Path) -> None:
    net = Net()
    prune = ModelPruning("l1_unstructured", [(net.fc, "weight")], amount=0.3)
    found = told(tmp_path, net, callback(), prune)
    assert "something set it back to its first values" in found
    assert "(`ModelPruning` resets them unless `use_lottery_ticket_hypothesis=False`)" in found


def test_a_constraint_that_copies_the_first_weights(tmp_path: Path) -> None:
    net = Net()
    first = net.fc.weight.detach().clone()

    def keep(weight: Tensor) -> None:
        weight.copy_(first)

    updater = attach_updater(net.fc, "weight")
    updater.register_constraint(Clamp(0.0, 1.0))
    updater.register_constraint(keep)
    assert "A constraint, `keep`, sets it to these values" in told(tmp_path, net, callback())


@pytest.mark.parametrize("kernel", [torch.zeros_like, lambda x: 1e-3 * torch.exp(-x.abs() / 0.02)])
def test_a_kernel_of_nothing(kernel: Any, tmp_path: Path) -> None:
    def nothing_at_once(delta: Tensor) -> Tensor:
        return kernel(delta) * delta.sign()

    rule: Any = KernelSTDP(nothing_at_once, time_dim=0)
    found = told(tmp_path, Net(), callback(rule))
    assert "Its kernel is at most" in found
    assert "differences in ms" in found


@pytest.mark.parametrize("clamp_last", [False, True])
def test_a_constraint_that_overrules_another(clamp_last: bool, tmp_path: Path) -> None:
    net = Net()
    both = [Clamp(0.0, 0.3), Normalize(4.0)]
    for each in both[:: -1 if clamp_last else 1]:
        attach_updater(net.fc, "weight").register_constraint(each)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer(tmp_path, callback()).fit(net, loader(3))
    found = [str(w.message) for w in caught]
    message = "`Clamp(min=0.0, max=0.3)` keeps, and `Normalize` runs after it"
    assert any(message in text for text in found) != clamp_last


def test_modules_in_a_plain_list(tmp_path: Path) -> None:
    class Listed(Net):
        def __init__(self, kind: Any = list) -> None:
            super().__init__()
            self.layers = kind([nn.Linear(2, 2), LIF(2)])

    spec = {"enc": CellSpec("layers.0", "layers.1")}
    with pytest.raises(AttributeError, match=r"`layers` is a list.* make it an `nn.ModuleList`"):
        trainer(tmp_path, callback(cells=spec)).fit(Listed(), loader(1))
    spec = {"enc": CellSpec("layers.7", "layers.1")}
    with pytest.raises(AttributeError, match=r"Found `connection = 'layers.7'`\.$"):
        trainer(tmp_path, callback(cells=spec)).fit(Listed(nn.ModuleList), loader(1))


def test_an_optimizer_of_another_layer(tmp_path: Path) -> None:
    class Headed(Net):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(2, 2)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            super().training_step(batch, batch_idx)
            self.optimizers().step()

        def configure_optimizers(self) -> Any:
            return UpdateOptimizer(self.head.parameters())

    with pytest.raises(RuntimeError, match="give it the parameters that cells train"):
        trainer(tmp_path, callback()).fit(Headed(), loader(1))


@pytest.mark.parametrize("error", [torch.ones(3, 1), torch.ones(7, 3, 1)])
def test_an_error_that_is_not_of_each_output(error: Tensor) -> None:
    layer = la.Serial(nn.Linear(4, 5), nn.Identity())
    rule = la.DeltaRule(0.1, graded_input=True, time_dim=0)
    rule.register_cell("readout", layer.cell)
    layer(torch.ones(7, 3, 4))
    with pytest.raises(ValueError, match=r"\[T, B, 5\] or \[B, 5\].* Found .* each output its own"):
        rule(error=error)


@pytest.mark.parametrize("time_dim", [0, None])
def test_windows_of_a_single_step(time_dim: int | None) -> None:
    layer = la.Serial(nn.Linear(4, 2), LIF(2, time_dim=time_dim))
    nn.init.ones_(layer.connection.weight)
    rule = STDP(**RULE, time_dim=time_dim)
    rule.register_cell("enc", layer.cell)
    shape = (1, 5, 4) if time_dim == 0 else (5, 4)
    for _ in range(12):
        layer.neuron.reset()
        layer(torch.ones(shape))
        rule()
        rule.update()
        rule.clear()
    remedy = r"pass `time_dim=0`.* `x.transpose\(0, 1\)`"
    with pytest.warns(RuntimeWarning, match=f"each of one step.*{remedy}"):
        rule.eval()
