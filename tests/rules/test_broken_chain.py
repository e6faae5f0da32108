"""A loop by hand in which nothing is learned says why: recorded, evaluated, applied, moved."""

from __future__ import annotations

import copy
import gc
import itertools
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from rasters import raster
from torch import nn

import lightning_accum as la
from lightning_accum.callbacks import FabricCellTrainer
from lightning_accum.nn import LIF
from lightning_accum.optim import UpdateOptimizer
from lightning_accum.rules import learn_online


class Loop:
    """A layer that learns in a loop of the user's own."""

    def __init__(self, rule: la.STDP | None = None, threshold: float = 2.0, **updater: Any) -> None:
        self.fc, self.lif = nn.Linear(20, 5, bias=False), LIF(5, v_threshold=threshold)
        nn.init.constant_(self.fc.weight, 0.3)
        self.updater = la.attach_updater(self.fc, "weight", **updater)
        self.rule = rule or la.STDP(0.01, -0.004)
        self.rule.register_cell("enc", la.Cell(self.fc, self.lif))

    def window(self, seed: int, active: bool = True) -> None:
        self.lif.reset()
        self.rule.clear()
        for spikes in raster(10, 2, 20, seed=seed).float():
            self.lif(self.fc(spikes * active))

    def run(
        self,
        windows: int = 20,
        before: Callable[[], object] = lambda: None,
        update: Callable[[], object] | None = None,
        active: bool = True,
        **given: Any,
    ) -> None:
        for i in range(windows):
            self.window(i, active)
            self.rule(**given)
            before()
            (update or self.rule.update)()


def said(end: Callable[[], object]) -> list[str]:
    """Returns the warnings of a call."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        end()
        gc.collect()
    return [str(each.message) for each in found]


# ---------------------------------------------------------------------- recorded
def test_a_rule_that_is_left_in_evaluation_mode() -> None:
    loop = Loop()
    loop.run(3)
    model = nn.ModuleList([loop.fc, loop.lif, loop.rule])
    model.eval()
    loop.fc.train(), loop.lif.train()
    told = said(lambda: loop.run(60))[0]
    assert told.startswith("Cell `enc` should record activity for `STDP`")
    assert "none in the latest 8 calls. The rule is in evaluation mode" in told


def test_a_test_in_evaluation_mode() -> None:
    loop = Loop()
    loop.run(3)
    nn.ModuleList([loop.fc, loop.lif, loop.rule]).eval()
    loop.run(60)


# ---------------------------------------------------------------------- applied
@pytest.mark.parametrize("how", ["clear", "del"])
def test_changes_that_are_cleared_before_an_update(how: str) -> None:
    loop = Loop()
    clear = loop.updater.clear if how == "clear" else lambda: delattr(loop.updater, "weight")
    (told,) = said(lambda: loop.run(100, before=clear))
    assert " changes of `weight` cleared, and none applied: call `rule.update()` before" in told


def test_changes_that_are_rejected_now_and_then() -> None:
    loop = Loop()
    loop.run(4)
    for i in range(20):
        loop.run(1, before=loop.updater.clear if i % 4 else lambda: None)
    loop.rule.eval()


def test_changes_that_someone_applies_by_hand() -> None:
    loop = Loop()

    def apply() -> None:
        with torch.no_grad():
            loop.fc.weight.copy_(loop.updater.weight(loop.fc.weight))
        loop.updater.clear()

    loop.run(20, update=apply)
    assert not said(loop.rule.eval)


@pytest.mark.parametrize("use", ["update", "read", "gradient", "copy"])
def test_changes_that_are_used_otherwise(use: str) -> None:
    fc = nn.Linear(2, 1)
    updater = la.Updater(fc, "weight") if use == "copy" else la.attach_updater(fc, "weight")
    for _ in range(40):
        updater.weight = torch.ones(1, 2)
        if use == "gradient":
            la.optim.updates_as_gradients(updater)
    if use == "update":
        updater()
    if use == "read":
        assert updater.weight.pos is not None
    if use == "copy":
        copied = copy.deepcopy(updater)
        updater()
        del copied
    del updater, fc
    gc.collect()


# ---------------------------------------------------------------------- moved
@pytest.mark.parametrize("since", [0, 3])
def test_updates_that_are_dropped_for_nan(since: int) -> None:
    loop = Loop(la.MSTDP(0.01, -0.004), nonfinite="skip")
    loop.run(since, reward=1.0)
    loop.run(20, reward=torch.nan)
    (told,) = said(loop.rule.eval)
    assert "NaN or Inf in 20 updates of `weight` of cell `enc`, which were dropped" in told


def test_updates_that_an_earlier_run_has_dropped() -> None:
    loop, later = (Loop(la.MSTDP(0.01, -0.004), nonfinite="skip") for _ in range(2))
    loop.run(20, reward=torch.nan)
    assert len(said(loop.rule.eval)) == 1
    later.updater.load_state_dict(loop.updater.state_dict())
    later.run(10, reward=1.0)
    later.run(10, reward=-1.0)
    assert later.updater.skipped == {"weight": 20}
    later.rule.eval()


def scaled(loop: Loop) -> None:
    loop.run(update=lambda: loop.rule.update(scale=0.0))


def stepped(loop: Loop) -> None:
    optimizer = UpdateOptimizer(loop.fc.parameters(), lr=0.0, updaters=[loop.updater])
    loop.run(update=optimizer.step)


ZEROED = "Each change was multiplied by 0 when it was applied: look at `scale`, or at the `lr`"


@pytest.mark.parametrize(
    ("train", "why"),
    [
        (scaled, ZEROED),
        (stepped, ZEROED),
        (lambda loop: loop.run(active=False), "Its input was always 0: look at the data"),
        (lambda loop: loop.run(), "Its neurons never fired: lower their threshold"),
    ],
)
def test_a_known_cause(train: Callable[[Loop], None], why: str) -> None:
    loop = Loop(threshold=1e6 if "fired" in why else 2.0)
    train(loop)
    (told,) = said(loop.rule.eval)
    assert f"unchanged, after 20 calls and 20 applied updates. {why}" in told
    assert "raise the rates" not in told


@pytest.mark.parametrize("end", ["eval", "module first"])
@pytest.mark.parametrize("reward", [0, 0.0, False, torch.zeros(2)], ids=str)
def test_a_reward_of_zero(reward: Any, end: str) -> None:
    loop = Loop(la.MSTDP(0.01, -0.004))
    loop.run(reward=reward)
    (told,) = said(loop.rule.eval if end == "eval" else lambda: vars(loop).clear())
    assert re.search("[20] applied updates. `reward` of the rule was always 0: look at how", told)


@pytest.mark.parametrize("online", [False, True])
def test_neurons_that_fall_silent(online: bool) -> None:
    loop = Loop(la.STDP(0.001, -0.05))
    loop.updater.register_constraint(la.Clamp(0, 1))
    if online:
        layer = la.Serial(loop.fc, loop.lif)
        for i in range(20):
            loop.lif.reset()
            loop.rule.clear()
            learn_online(loop.rule, layer, raster(10, 2, 20, seed=i))
    else:
        loop.run(60)
    told = said(loop.rule.eval)
    assert len(told) == 1
    assert "The neurons of `enc` fired at first, and in none of the last" in told[0]


def test_an_input_that_ends_is_no_silence_of_neurons() -> None:
    loop = Loop()
    loop.run(5)
    loop.run(60, active=False)
    assert not said(loop.rule.eval)


def test_what_learns() -> None:
    loop = Loop()
    loop.run(40)
    assert not said(loop.rule.eval)
    assert not said(vars(loop).clear)


# ---------------------------------------------------------------------- undone by a constraint
CONSTRAINTS: dict[str, Callable[[torch.Tensor], object]] = {
    "round": lambda p: p.mul_(4).round_().div_(4),
    "sign": lambda p: p.copy_(p.sign()),
    "limits": la.Clamp(0.0, 1.0),
    "norm": la.Normalize(1.0),
}


@pytest.mark.parametrize("name", list(CONSTRAINTS))
@pytest.mark.parametrize("way", ["hand", "fabric"])
def test_a_constraint_that_undoes_all_but_the_first_update(name: str, way: str) -> None:
    loop = Loop(la.STDP(1e-5, -4e-6))
    loop.updater.register_constraint(CONSTRAINTS[name])
    if way == "hand":
        loop.run(40)
        told = said(loop.rule.eval)
    else:
        rule, model = la.STDP(1e-5, -4e-6), nn.Sequential(loop.fc, loop.lif)
        loop.rule.del_cell("enc")
        trainer = FabricCellTrainer(rule, {"enc": la.CellSpec("0", "1")})
        trainer.setup(model)
        for i in range(40):
            with trainer.batch():
                loop.window(i)
            trainer.step()
        told = said(trainer.release)
    if name in ("round", "sign"):
        (text,) = told
        assert "should go on to" in text
        assert "Its constraint `<lambda>` undoes small changes" in text
        assert "40 applied updates" in text
    else:
        assert not told


# ---------------------------------------------------------------------- moved by constraints alone
def constrained(constraint: Callable[[torch.Tensor], object], **loop: Any) -> Loop:
    made = Loop(**loop)
    nn.init.uniform_(made.fc.weight, -0.3, 0.4, generator=torch.Generator().manual_seed(0))
    made.updater.register_constraint(constraint)
    return made


MOVING = [la.Normalize(1.0), la.Normalize(1.0, order=2), la.Clamp(0.0, 0.3)]
ZERO: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "spikes": ({"threshold": 1e3}, {}, "Its neurons never fired"),
    "input": ({}, {"active": False}, "Its input was always 0"),
    "reward": (
        {"rule": la.MSTDP(0.01, -0.004), "threshold": 0.1},
        {"reward": torch.zeros(2)},
        "`reward` of the rule was always 0",
    ),
}


@pytest.mark.parametrize("constraint", MOVING, ids=repr)
@pytest.mark.parametrize("name", list(ZERO))
@pytest.mark.parametrize(("windows", "way"), [(14, "rule"), (40, "optimizer")])
def test_a_constraint_that_alone_moves_weights(
    constraint: Any, name: str, windows: int, way: str
) -> None:
    settings, given, why = copy.deepcopy(ZERO[name])
    loop = constrained(constraint, **settings)
    optimizer = UpdateOptimizer(loop.fc.parameters(), updaters=[loop.updater])
    loop.run(windows, update=None if way == "rule" else optimizer.step, **given)
    (text,) = said(loop.rule.eval)
    assert f"unchanged in at least the second half of {windows} calls and {windows} applied" in text
    assert why in text


@pytest.mark.parametrize("constraint", MOVING, ids=repr)
def test_a_constraint_that_alone_moves_weights_under_fabric(constraint: Any) -> None:
    loop = constrained(constraint, threshold=1e3)
    loop.rule.del_cell("enc")
    trainer = FabricCellTrainer(la.STDP(0.01, -0.004), {"enc": la.CellSpec("0", "1")})
    trainer.setup(nn.Sequential(loop.fc, loop.lif))
    for i in range(40):
        with trainer.batch():
            loop.window(i)
        trainer.step()
    told = [text for text in said(trainer.release) if "should go on to change `weight`" in text]
    assert len(told) == 1
    assert "Its neurons never fired" in told[0]


@pytest.mark.parametrize("constraint", MOVING, ids=repr)
def test_a_reward_that_is_rare(constraint: Any) -> None:
    """It is 0 in each window whose activity is looked at."""
    loop = constrained(constraint, rule=la.MSTDP(0.01, -0.004), threshold=0.1)
    for window in range(1, 17):
        loop.run(1, reward=torch.tensor([-1.0, 1.0]) * (window == 5))
    assert not said(loop.rule.eval)


@pytest.mark.parametrize("constraint", MOVING, ids=repr)
@pytest.mark.parametrize("every", [1, 10, 100])
def test_a_rule_that_learns_without_spikes_of_its_neurons(constraint: Any, every: int) -> None:
    rule = la.InhibitorySTDP(1e-4, target_rate=5.0)
    loop = constrained(constraint, rule=rule, threshold=1e3)
    calls = itertools.count(1)
    loop.run(270, update=lambda: None if next(calls) % every else rule.update())
    assert not said(rule.eval)


# ---------------------------------------------------------------------- by next to nothing
def standardize(weight: torch.Tensor) -> None:
    """Keeps the sum and the norm, whatever else is learned."""
    weight.sub_(weight.mean()).div_(weight.norm())


@pytest.mark.parametrize("constraint", [None, standardize, *MOVING])
@pytest.mark.parametrize("rate", [1e-9, 1e-11, 1e-2])
def test_rates_that_move_weights_by_next_to_nothing(constraint: Any, rate: float) -> None:
    loop = constrained(constraint or (lambda weight: None), rule=la.STDP(rate, -rate / 2))
    loop.run(40)
    told = said(loop.rule.eval)
    assert len(told) == (rate < 1e-5)
    found = "should go on", "should have moved", "by more than a share of"
    assert all(any(part in text for part in found) for text in told)
    assert all("raise the rates" in text or "raise `lr_post` and `lr_pre`" in text for text in told)


def test_weights_that_are_at_their_limits_from_the_first_update() -> None:
    loop = constrained(la.Clamp(0.0, 1.0), rule=la.STDP(100.0, 100.0))
    loop.run(40)
    assert set(loop.fc.weight.flatten().tolist()) <= {0.0, 1.0}
    assert not said(loop.rule.eval)


@pytest.mark.parametrize("constraint", [la.Normalize(1.0), lambda weight: None])
@pytest.mark.parametrize(("steps", "told"), [(60, 0), (1000, 1)])
def test_steps_that_move_weights_by_next_to_nothing(constraint: Any, steps: int, told: int) -> None:
    """A few steps need not have learned anything."""
    loop = constrained(constraint, rule=la.STDP(1e-9, -5e-10, carry=True))
    for spikes in raster(steps, 2, 20, seed=0).float():
        loop.lif(loop.fc(spikes))
        loop.rule()
        loop.rule.update()
    texts = said(loop.rule.eval)
    assert len(texts) == told
    assert all("should go on" in text or "by more than a share" in text for text in texts)
