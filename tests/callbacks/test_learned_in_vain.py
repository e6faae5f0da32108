"""Learning that something else undoes or leaves out is told by name, and its reason is right."""

from __future__ import annotations

import copy
import itertools
import logging
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import RULE, Net, callback, loader, trainer
from torch import nn

from lightning_accum import MSTDP, STDP, Cell, CellSpec, Clamp, Hebb, Term, attach_updater
from lightning_accum.callbacks import CellTrainerCallback, FabricCellTrainer
from lightning_accum.functional import bound_lower_sharp
from lightning_accum.nn import LIF
from lightning_accum.optim import UpdateOptimizer


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> Any:
    """The warnings of a fit, and the lines of its summary."""
    caplog.set_level(logging.INFO, "lightning_accum.callbacks")

    def fit(net: Net, *callbacks: pl.Callback, batches: int = 4, **options: Any) -> list[str]:
        caplog.clear()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            trainer(tmp_path, *callbacks, **options).fit(net, loader(batches))
        mine = [
            str(w.message) for w in found if "`enc" in str(w.message) or "STDP" in str(w.message)
        ]
        return mine + [line for text in caplog.messages for line in text.splitlines()]

    return fit


def told(lines: list[str], text: str) -> int:
    return sum(text in line for line in lines)


# ---------------------------------------------------------------------- what sets weights back
class Afresh(Net):
    """Begins with the same weights in each training step."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        nn.init.constant_(self.fc.weight, 0.3)
        super().training_step(batch, batch_idx)


class Restores(pl.Callback):
    """Sets weights back at a hook, in a way that no version counter sees."""

    def __init__(self, hook: str) -> None:
        setattr(self, hook, self._restore)
        self.weight: torch.Tensor | None = None

    def _restore(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        if self.weight is None:
            self.weight = pl_module.fc.weight.detach().clone()
        pl_module.fc.weight.data.copy_(self.weight)


@pytest.mark.parametrize("log", [True, False])
def test_weights_that_the_model_sets_back(log: bool, said: Any) -> None:
    lines = said(Afresh(), callback(log=log))
    assert (
        told(lines, "Cell `enc` should keep what it learns. Found that something set `weight`") == 1
    )


@pytest.mark.parametrize(
    ("hook", "epochs"),
    [
        ("on_train_batch_start", 1),
        ("on_train_batch_end", 1),
        ("on_train_epoch_start", 3),
        ("on_train_epoch_start", 2),
        ("on_train_epoch_end", 1),
        ("on_train_epoch_end", 2),
        ("on_train_end", 2),
        ("on_fit_end", 2),
    ],
)
def test_weights_that_a_callback_sets_back(hook: str, epochs: int, said: Any) -> None:
    restores = Restores(hook)
    net = Net()
    restores.weight = net.fc.weight.detach().clone()
    lines = said(net, callback(), restores, max_epochs=epochs)
    assert told(lines, "should keep what it learns") == 1
    assert told(lines, "every update was smaller") == 0  # which is not the reason


def test_other_weights_than_the_first_may_be_restored_after_training(said: Any) -> None:
    class Best(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
            if trainer.current_epoch == 0:
                self.best = copy.deepcopy(pl_module.state_dict())

        def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
            pl_module.load_state_dict(self.best)

    assert told(said(Net(), callback(), Best(), max_epochs=2), "should keep what it learns") == 0


def test_weights_that_never_moved_are_not_set_back(said: Any) -> None:
    lines = said(Net(), callback(STDP(1e-30, -1e-30, time_dim=0)), Restores("on_train_end"))
    assert told(lines, "should keep what it learns") == 0
    assert told(lines, "every update was smaller, or 0 due to the rule's `terms`, the reward") == 1


def test_weights_that_a_constraint_rounds_up_and_down_are_not_set_back(said: Any) -> None:
    """As `Normalize` does with some weights that nothing else changes."""
    net = Net()
    net.lif.v_threshold = 1e3
    ends = itertools.cycle([0.0, 1.0])
    updater = attach_updater(net.fc, "weight")
    updater.register_constraint(
        lambda w: w.copy_(torch.full_like(w, 0.5).nextafter(torch.tensor(next(ends)).double()))
    )
    lines = said(net, callback(), max_epochs=4)
    assert told(lines, "should keep what it learns") == 0
    assert told(lines, "Found it unchanged since its first updates") == 1
    assert told(lines, "Its neurons never fired") == 1


def test_weights_that_go_in_a_cycle_are_not_set_back(said: Any) -> None:
    """As a rule that has learned does, with batches in a fixed order."""
    net, values = Net(), itertools.cycle([0.2, 0.7, 0.4])
    attach_updater(net.fc, "weight").register_constraint(lambda w: w.fill_(next(values)))
    assert told(said(net, callback(), max_epochs=6), "should keep what it learns") == 0


def test_weights_that_go_from_limit_to_limit_are_not_set_back(said: Any) -> None:
    net = Net()
    attach_updater(net.fc, "weight").register_constraint(lambda w: w.copy_(1.0 - w.round()))
    attach_updater(net.fc, "weight").register_constraint(Clamp(0.0, 1.0))
    assert told(said(net, callback(), max_epochs=2), "should keep what it learns") == 0


def test_weights_that_are_only_learned_are_not_set_back(said: Any) -> None:
    assert told(said(Net(), callback(), max_epochs=3), "should") == 0


class Draws(pl.Callback):
    """Draws new weights at a hook."""

    def __init__(self, hook: str) -> None:
        setattr(self, hook, lambda trainer, net, *_: nn.init.uniform_(net.fc.weight, 0.0, 0.45))


@pytest.mark.parametrize(
    ("hook", "epochs"),
    [("on_train_batch_start", 1), ("on_train_batch_end", 1), ("on_train_epoch_start", 3)],
)
def test_weights_that_a_callback_draws_anew(hook: str, epochs: int, said: Any) -> None:
    torch.manual_seed(0)  # few weights, which may resemble the first by chance
    lines = said(Net(), callback(), Draws(hook), max_epochs=epochs)
    text = "Found that something set `weight` to values that have little in common with those that"
    assert told(lines, text) == 1


class Drifts(pl.Callback):
    """Normalizes, limits and disturbs weights after each batch."""

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        weight = pl_module.fc.weight.data
        weight.mul_(2.0 / weight.sum(1, keepdim=True)).clamp_(0.0, 0.8)
        weight.add_(torch.linspace(-0.02, 0.02, weight.numel()).view_as(weight))


def test_weights_that_are_also_normalized_by_hand_are_kept(said: Any) -> None:
    assert told(said(Net(), callback(), Drifts(), max_epochs=3), "should keep") == 0


def test_weights_that_are_practically_equal_have_nothing_to_keep(said: Any) -> None:
    class Rounds(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
            pl_module.fc.weight.data.copy_(0.3 + 1e-9 * torch.rand_like(pl_module.fc.weight))

    def level(weight: torch.Tensor) -> None:
        weight.copy_(0.3 + 1e-9 * torch.rand_like(weight))

    net = Net()
    attach_updater(net.fc, "weight").register_constraint(level)
    assert told(said(net, callback(), Rounds()), "little in common") == 0


def test_weights_that_another_callback_trains_too_are_kept(said: Any) -> None:
    count = itertools.count()

    class Swings(Hebb):
        """Adds values that have little in common with those of other updates."""

        def terms(self, window: Any, h: Any) -> Any:
            shape, generator = window.post.values().shape, torch.Generator()
            generator.manual_seed(next(count))
            noise = torch.randn(shape, generator=generator, dtype=torch.float64)
            return [Term(3.0 ** next(count), noise, window.pre)]

    swings = CellTrainerCallback(Swings(1.0, time_dim=0), {"swings": CellSpec("fc", "lif")})
    lines = said(Net(), callback(), swings, max_epochs=3)
    assert told(lines, "should keep what it learns") == 0


class Loads(pl.Callback):
    """Loads a running average of the weights, at a hook or around a validation only."""

    def __init__(self, hook: str, decay: float = 0.99) -> None:
        self.decay, self.slow = decay, torch.empty(0)
        setattr(self, hook, self._load)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.slow = pl_module.fc.weight.detach().clone()

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        self.slow.lerp_(pl_module.fc.weight.detach(), 1 - self.decay)

    def _load(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        pl_module.fc.weight.data.copy_(self.slow)


@pytest.mark.parametrize(
    ("hook", "decay", "times"),
    [("on_train_batch_start", 0.99, 1), ("on_train_batch_start", 0.5, 0), ("on_fit_end", 0.99, 0)],
)
def test_an_average_that_is_loaded_back(hook: str, decay: float, times: int, said: Any) -> None:
    lines = said(Net(), callback(), Loads(hook, decay), max_epochs=3)
    assert told(lines, "`weight` back by at least 99% of what each update") == times
    assert told(lines, "should keep what it learns") == times


class Averages(pl.Callback):
    """Sets weights to an average after each epoch."""

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        net: Any = pl_module
        self.began = net.fc.weight.detach().clone()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        net: Any = pl_module
        net.fc.weight.data.lerp_(self.began, 0.5)


def test_weights_that_are_averaged_after_each_epoch_are_not_set_back(said: Any) -> None:
    lines = said(Net(), callback(), Averages(), max_epochs=2)
    assert told(lines, "should keep what it learns") == 0


def test_weights_that_a_loop_sets_back() -> None:
    net = Net()
    learner = FabricCellTrainer(STDP(**RULE, time_dim=0), {"enc": CellSpec("fc", "lif")})
    learner.setup(net)
    for x, _ in loader(6):
        nn.init.constant_(net.fc.weight, 0.3)
        with learner.batch():
            net(x)
        learner.step()
    with pytest.warns(RuntimeWarning, match="should keep what it learns"):
        learner.release()


# ---------------------------------------------------------------------- what is applied twice
@pytest.mark.parametrize("cells", [["enc"], ["enc", "enc again"]])
@pytest.mark.parametrize("update", [True, False])
def test_a_rule_that_the_training_step_applies_too(
    update: bool, cells: list[str], said: Any
) -> None:
    rule = STDP(**RULE, time_dim=0)

    class ByHand(Net):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            super().training_step(batch, batch_idx)
            if update:
                rule()
                rule.update()

    learner = CellTrainerCallback(rule, {name: CellSpec("fc", "lif") for name in cells})
    lines = said(ByHand(), learner, max_epochs=2)
    assert told(lines, "`STDP` should be called and applied by the CellTrainerCallback") == update


# ---------------------------------------------------------------------- what is not trained
class TwoLayers(Net):
    """Has a second layer, which learns only if it has a cell."""

    def __init__(self) -> None:
        super().__init__()
        self.top = nn.Linear(4, 3, dtype=torch.float64)
        self.top_lif = LIF(3, time_dim=0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.top_lif.reset()
        return self.top_lif(self.top(super().forward(x)))


def test_a_layer_that_nothing_trains_has_a_line(said: Any) -> None:
    text = "Neither a rule nor an optimizer trained `top`"
    assert told(said(TwoLayers(), callback()), text) == 1
    frozen = TwoLayers()
    frozen.top.requires_grad_(False)
    both = {"enc": CellSpec("fc", "lif"), "top": CellSpec("top", "top_lif")}
    optimized = TwoLayers()
    optimized.optimizers_given = torch.optim.SGD(optimized.top.parameters(), lr=0.1)
    for net, cells in ((frozen, {}), (TwoLayers(), {"cells": both}), (optimized, {})):
        assert told(said(net, callback(**cells)), "Neither a rule nor") == 0


class Prepared(TwoLayers):
    """Has constraints on its second layer, which changes by hand or not at all."""

    def __init__(self, by_hand: bool = False, optimizer: bool = False) -> None:
        super().__init__()
        self.by_hand = by_hand
        attach_updater(self.top, "weight").register_constraint(Clamp(-1.0, 1.0))
        if optimizer:
            self.automatic_optimization = True
            self.optimizers_given = UpdateOptimizer(self.parameters())

    def training_step(self, batch: Any, batch_idx: int) -> None:
        super().training_step(batch, batch_idx)
        if self.by_hand:
            updater = attach_updater(self.top, "weight")
            updater.weight = torch.full((3, 4), 1e-3, dtype=torch.float64)
            updater()


@pytest.mark.parametrize("optimizer", [False, True])
def test_constraints_do_not_train_a_layer(optimizer: bool, said: Any) -> None:
    text = "Neither a rule nor an optimizer trained `top`"
    assert told(said(Prepared(optimizer=optimizer), callback()), text) == 1


def test_changes_that_are_applied_by_hand_train_a_layer(said: Any) -> None:
    assert told(said(Prepared(by_hand=True), callback()), "Neither a rule nor") == 0


class ByLoss(TwoLayers):
    """Trains the second layer by a loss, unless it forgets the backward pass or returns none."""

    def __init__(self, automatic: bool, learns: bool, lr: float = 0.1) -> None:
        super().__init__()
        self.automatic_optimization = automatic
        self.learns = learns
        self.optimizers_given = torch.optim.Adam(self.top.parameters(), lr=lr)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self(batch[0])
        loss = self.top(torch.rand(4, dtype=torch.float64)).square().sum()
        if self.automatic_optimization:
            return loss if self.learns else None
        if self.learns:
            self.manual_backward(loss)
        optimizer: Any = self.optimizers()
        optimizer.step()
        return None


@pytest.mark.parametrize("automatic", [False, True])
def test_parameters_that_an_optimizer_never_changes_have_a_line(automatic: bool, said: Any) -> None:
    text = "`Adam` has not changed `top.weight`, `top.bias` since the fit began"
    assert told(said(ByLoss(automatic, learns=False), callback()), text) == 1
    for net in (ByLoss(automatic, learns=True), ByLoss(automatic, learns=True, lr=0.0)):
        assert told(said(net, callback()), "has not changed") == 0


def test_the_cells_of_two_callbacks_count(said: Any) -> None:
    rules = (STDP(**RULE, time_dim=0) for _ in range(2))
    places = CellSpec("fc", "lif"), CellSpec("top", "top_lif")
    each = [CellTrainerCallback(r, {p.connection: p}) for r, p in zip(rules, places, strict=True)]
    assert told(said(TwoLayers(), *each), "Neither a rule nor") == 0


def test_cells_of_another_instance_of_the_model(said: Any) -> None:
    net, rule = Net(), STDP(**RULE, time_dim=0)
    rule.register_cell("enc", Cell(net.fc, net.lif))
    lines = said(copy.deepcopy(net), CellTrainerCallback(rule))
    assert told(lines, "Its connection, a `Linear`, is not a module of the model") == 1


# ---------------------------------------------------------------------- updates as gradients
class HandsOver(Net):
    """Hands updates over to SGD, before or after the forward pass."""

    def __init__(self, early: bool) -> None:
        super().__init__()
        self.early = early
        self.optimizers_given = torch.optim.SGD(self.parameters(), lr=0.5)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        own: Any = self.trainer.callbacks[0]
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        steps = [lambda: self(batch[0]), own.updates_as_gradients]
        for step in steps[::-1] if self.early else steps:
            step()
        optimizer.step()


@pytest.mark.parametrize("early", [False, True])
def test_updates_that_are_handed_over_before_there_are_any(early: bool, said: Any) -> None:
    lines = said(HandsOver(early), callback())
    assert told(lines, "should be called after the modules of its cells") == early


# ---------------------------------------------------------------------- other reasons than rounding
def test_an_optimizer_with_a_rate_of_zero_loses_nothing_in_rounding(said: Any) -> None:
    lines = said(Net(), callback(lr=0.0), log_every_n_steps=1)
    assert told(lines, "updates are applied to it with `lr = 0`") == 1
    assert told(lines, "was lost") == 0


def test_what_a_sharp_bound_holds_back_beyond_it_is_not_lost(said: Any) -> None:
    net = Net()
    with torch.no_grad():
        net.fc.weight[0] += 1.0  # above the limit
    attach_updater(net.fc, "weight").weight.lowerbound(bound_lower_sharp, 0.9)
    rule = STDP(lr_post=-0.02, lr_pre=-0.02, time_dim=0)
    lines = said(net, callback(rule), log_every_n_steps=1)
    assert net.fc.weight.min() < 0.5
    assert told(lines, "was lost") == 0


class Clears(Net):
    """Clears the rule within each training step."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        super().training_step(batch, batch_idx)
        own: Any = self.trainer.callbacks[0]
        own.cell_trainer.clear()


def test_activity_that_the_model_clears(said: Any) -> None:
    lines = said(Clears(), callback(log=False))
    assert told(lines, "`clear()` dropped") == 1
    assert told(lines, "were not called") == 0


@pytest.mark.parametrize("by_hand", [0.0, 1.0])
def test_a_reward_that_comes_after_the_rule_was_called_by_hand(by_hand: float, said: Any) -> None:
    rule = MSTDP(0.01, 0.01, time_dim=0)

    class Calls(Net):
        def training_step(self, batch: Any, batch_idx: int) -> dict[str, float]:
            self(batch[0])
            rule(reward=by_hand)
            return {"reward": (-1.0) ** batch_idx}

    learner = CellTrainerCallback(rule, {"enc": CellSpec("fc", "lif")}, input_keys=("reward",))
    lines = said(Calls(), learner, batches=12)
    missed = told(lines, "`reward` was 0 in each call of the rule that found steps: give it to the")
    assert missed == (by_hand == 0)
