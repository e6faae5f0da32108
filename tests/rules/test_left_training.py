"""A rule that leaves training mode says, once, if it was never called or nothing was applied."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from rasters import raster
from torch import nn

import lightning_accum as la
from lightning_accum.observe import unobserved

pytestmark = pytest.mark.filterwarnings("error:.*should have changed cell:RuntimeWarning")


class TestLeftTraining:
    """Twelve short batches, as in a first try."""

    def setup_method(self) -> None:
        self.fc, self.neuron = nn.Linear(4, 3), nn.Identity()
        self.rule = la.STDP(0.1, -0.1)
        self.rule.register_cell("enc", la.Cell(self.fc, self.neuron))

    def run(self, call: bool, update: bool, batches: int = 12) -> None:
        for i in range(batches):
            self.fc(raster(2, 4, seed=i).float())
            self.neuron(raster(2, 3, seed=i + 1).float())
            if call:
                self.rule()
            if update:
                self.rule.update()

    def test_never_called(self) -> None:
        self.run(call=False, update=False)
        with pytest.warns(
            RuntimeWarning, match=r"`enc`.*12 steps recorded, and no call.*`rule\(\)`"
        ):
            self.rule.eval()

    def test_updated_and_never_called(self) -> None:
        with pytest.warns(RuntimeWarning, match="8 steps recorded, and no call") as said:
            self.run(call=False, update=True)
        assert len(said) == 1
        self.rule.eval()  # says it no more

    def test_another_mistake_after_the_first(self) -> None:
        with pytest.warns(RuntimeWarning, match="8 steps recorded, and no call"):
            self.run(call=False, update=True)
        self.run(call=True, update=False)
        with pytest.warns(RuntimeWarning, match="calls, and none applied") as said:
            self.rule.eval()
        self.rule.train().eval()  # says it no more
        assert len(said) == 1

    def test_never_called_and_cleared(self) -> None:
        for _ in range(3):
            self.run(call=False, update=False, batches=4)
            self.rule.clear()
        with pytest.warns(RuntimeWarning, match="12 steps recorded, and no call"):
            self.rule.eval()

    def test_never_updated(self) -> None:
        self.run(call=True, update=False)
        with pytest.warns(RuntimeWarning, match=r"`enc`.*12 calls, and none applied.*update\(\)"):
            self.rule.eval()

    @pytest.mark.parametrize(("call", "update", "batches"), [(True, True, 12), (True, False, 3)])
    def test_nothing_to_say(self, call: bool, update: bool, batches: int) -> None:
        self.run(call, update, batches)
        self.rule.eval()

    def test_once(self) -> None:
        self.run(call=True, update=False)
        with pytest.warns(RuntimeWarning):
            self.rule.eval()
        self.rule.train()
        self.run(call=True, update=False)
        self.rule.eval()


SCRIPT = """
import sys, torch
from torch import nn
import lightning_accum as la
def train(call, update, pre=-0.05):
    fc, neuron = nn.Linear(4, 3), nn.Identity()
    rule = la.STDP(0.125, pre, trace_mode="nearest")  # traces are 1, and sums exact
    nn.init.constant_(fc.weight, 0.5)
    rule.register_cell(f"{call}{update}{pre}".replace(".", ""), la.Cell(fc, neuron))
    for _ in range(12):
        fc(torch.ones(2, 4)), neuron(torch.ones(2, 3))
        if call: rule()
        if update: rule.update()
    return fc, neuron, rule
kept = train(0, 0), train(1, 0), train(1, 1), train(1, 1, -0.125)  # cancels
if len(sys.argv) > 1: raise KeyboardInterrupt
"""


class ByHand(pl.LightningModule):
    """A rule as a submodule, in manual optimization, that nobody updates."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.fc, self.neuron = nn.Linear(4, 3), nn.Identity()
        self.rule = la.STDP(0.1, -0.1)
        self.rule.register_cell("enc", la.Cell(self.fc, self.neuron))

    def training_step(self, batch: Any, index: int) -> None:
        self.fc(batch)
        self.neuron((self.fc(batch) > 0).float())
        self.rule.drop_window()
        self.fc(batch)
        self.neuron((batch[:, :3] > 0).float())
        self.rule()

    def validation_step(self, batch: Any, index: int) -> None:
        self.fc(batch)

    def configure_optimizers(self) -> None:
        return None


@pytest.mark.parametrize("args", [[], ["stop"]])
def test_at_the_end_of_a_script(args: list[str]) -> None:
    command = [sys.executable, "-c", SCRIPT, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    said = [line for line in done.stderr.splitlines() if "RuntimeWarning" in line]
    if args:  # an exception says more
        assert "KeyboardInterrupt" in done.stderr
        assert not said
        return
    assert done.returncode == 0
    assert len(said) == 3
    assert any("`00-005` by now. Found 12 steps recorded, and no call" in line for line in said)
    assert any("`10-005` by now. Found 12 calls, and none applied" in line for line in said)
    assert any("moved `weight` of cell `11-0125` by now. Found it" in line for line in said)


def forget(this: TestLeftTraining, first: str) -> None:
    delattr(this, first)
    vars(this).clear()
    gc.collect()


@pytest.mark.parametrize("first", ["fc", "rule", "both"])
@pytest.mark.parametrize("call", [True, False])
def test_when_the_model_or_the_rule_is_deleted(first: str, call: bool) -> None:
    this = TestLeftTraining()
    this.setup_method()
    this.run(call=call, update=False)
    if first == "both":
        vars(this.fc)["cycle"] = [this.fc, this.rule]
    with pytest.warns(RuntimeWarning, match="12 (calls, and none|steps recorded)") as said:
        forget(this, "fc" if first == "fc" else "rule")
    assert len(said) == 1


def test_pending_changes_that_someone_has_looked_at() -> None:
    this = TestLeftTraining()
    this.setup_method()
    this.run(call=True, update=False)
    assert this.rule.updater_of("enc").weight.pos is not None
    del this.rule, this.fc
    gc.collect()


READ = {
    "pos": lambda updater, fc: updater.weight.pos,
    "update": lambda updater, fc: updater.weight.update(fc.weight),
    "new value": lambda updater, fc: updater.weight(fc.weight),
}


@pytest.mark.parametrize("read", list(READ))
@pytest.mark.parametrize("times", ["first", "now and then", "each"])
def test_a_look_at_pending_changes_does_not_apply_them(read: str, times: str) -> None:
    this = TestLeftTraining()
    this.setup_method()
    this.rule.updater_of("enc").weight.keep_parts = True
    for i in range(12):
        this.run(call=True, update=False, batches=1)
        if i == 0 or times == "each" or (times == "now and then" and i % 3 == 0):
            assert READ[read](this.rule.updater_of("enc"), this.fc) is not None
    with pytest.warns(RuntimeWarning, match="12 calls, and none applied") as said:
        this.rule.eval()
    del this.rule, this.fc
    gc.collect()
    assert len(said) == 1


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("way", ["clear", "del"])
def test_a_loop_that_applies_what_it_reads_and_drops_it_is_right(batches: int, way: str) -> None:
    this = TestLeftTraining()
    this.setup_method()
    for _ in range(12):
        this.run(call=True, update=False, batches=batches)
        weight = this.rule.updater_of("enc").weight
        this.fc.weight.data += weight.pos - weight.neg
        if way == "clear":
            weight.clear()
        else:
            del weight.pos, weight.neg
    this.rule.eval()
    del this.rule, this.fc, weight
    gc.collect()


def test_copies_say_nothing_of_their_own() -> None:
    first = TestLeftTraining()
    first.setup_method()
    first.run(call=True, update=False)
    copies = copy.deepcopy((first.fc, first.rule))
    del copies
    gc.collect()
    first.rule.update()


def test_under_a_trainer_it_is_said_when_validation_begins(tmp_path: Path) -> None:
    data = torch.utils.data.DataLoader(raster(24, 4).float(), batch_size=2)
    options: dict[str, Any] = {
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "accelerator": "cpu",
        "default_root_dir": tmp_path,
    }
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        pl.Trainer(**options).fit(ByHand(), data, data)
    assert sum("12 calls, and none applied" in str(w.message) for w in seen) == 1


class Updated(ByHand):
    """The same, updated."""

    def training_step(self, batch: Any, index: int) -> None:
        super().training_step(batch, index)
        self.rule.update()


def test_a_rule_by_hand_learns_after_a_validation(tmp_path: Path) -> None:
    """Lightning gives submodules back their mode without a call of ``train``."""
    data = torch.utils.data.DataLoader(raster(24, 4).float(), batch_size=2)
    weights = []
    for sanity in (0, 2):
        torch.manual_seed(0)
        net = Updated()
        trainer = pl.Trainer(
            max_epochs=2,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=sanity,
            accelerator="cpu",
            default_root_dir=tmp_path,
        )
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", ".*(num_workers|many workers|logging interval|None).*"
            )
            trainer.fit(net, data, data)
        weights.append(net.fc.weight.detach())
        assert net.rule.tally("enc").windows == 24
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=0)


class TestUnmoved:
    """Changes that are applied, and zero."""

    def run(self, rule: la.STDP, calls: int = 12, **updater: Any) -> None:
        fc, neuron = nn.Linear(4, 3), nn.Identity()
        la.attach_updater(fc, "weight", **updater)
        rule.register_cell("enc", la.Cell(fc, neuron))
        for i in range(calls):
            fc(raster(2, 4, seed=i).float())
            neuron(raster(2, 3, seed=i + 1).float())
            rule()
            rule.update()
        rule.eval()
        rule.train()
        rule.eval()  # says it once

    @pytest.mark.parametrize("where", ["batch", "updater", "rounding"])
    def test_is_told(self, where: str) -> None:
        nothing = (lambda values, dim: values.sum(dim) * 0) if where != "rounding" else "sum"
        batch = {"batch_reduction": nothing} if where == "batch" else {}
        updater = {"reduction": nothing} if where == "updater" else {}
        rule = la.STDP(1e-12, 1e-12, **batch)
        with pytest.warns(RuntimeWarning, match="12 calls and 12 applied updates.*reduc") as said:
            self.run(rule, **updater)
        assert len(said) == 1

    @pytest.mark.parametrize(("rate", "calls"), [(0.1, 12), (0.0, 12), (1e-12, 3)])
    def test_nothing_to_say(self, rate: float, calls: int) -> None:
        self.run(la.STDP(rate, rate), calls)


def test_a_call_without_cells() -> None:
    rule = la.STDP(0.1, -0.1)
    with pytest.warns(RuntimeWarning, match=r"`STDP` should have a cell to train.*register"):
        rule()
    rule()  # says it once


@pytest.mark.parametrize("way", ["rule", "unobserved"])
def test_modules_that_run_while_nothing_is_recorded(way: str) -> None:
    this = TestLeftTraining()
    this.setup_method()

    def batches() -> None:
        for _ in range(12):
            this.rule.train(way != "rule")
            with unobserved() if way == "unobserved" else nullcontext():
                this.run(call=False, update=False, batches=1)
            this.rule.train()
            this.rule()

    with pytest.warns(RuntimeWarning, match=r"unobserved.*rule were in evaluation") as said:
        batches()
    assert len(said) == 1


class TestSingleSteps:
    """Spike rules whose every window is one step."""

    def left(self, rule: la.STDP, clears: bool, steps: int = 1, batches: int = 12) -> list[str]:
        fc, neuron = nn.Linear(4, 3), nn.Identity()
        rule.register_cell("enc", la.Cell(fc, neuron))
        for i in range(batches):
            inputs = {"reward": (-1.0) ** i} if isinstance(rule, la.MSTDPET) else {}
            for j in range(steps):
                fc(raster(2, 4, seed=i + j).float())
                neuron(raster(2, 3, seed=i + j + 1).float())
            rule(**inputs)
            rule.update()
            if clears:
                rule.clear()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            rule.eval()
            rule.train().eval()  # says it no more
        return [str(w.message) for w in found]

    @pytest.mark.parametrize("kind", [la.STDP, la.MSTDPET])
    @pytest.mark.parametrize("clears", [False, True])
    def test_without_carrying_traces(self, kind: type[la.STDP], clears: bool) -> None:
        (said,) = self.left(kind(0.1, -0.1, carry=clears), clears)
        assert said.startswith(f"`{kind.__name__}` should pair spikes of different steps.")
        assert "Found 12 windows of cell `enc`, each of one step" in said
        assert "with `carry=True`" in said

    @pytest.mark.parametrize("kind", [la.STDP, la.MSTDPET])
    def test_where_traces_pass_or_windows_are_long(self, kind: type[la.STDP]) -> None:
        assert not self.left(kind(0.1, -0.1), clears=False)
        assert not self.left(kind(0.1, -0.1), clears=True, steps=2)
        assert not self.left(kind(0.1, -0.1, carry=False), clears=False, steps=2)
        assert not self.left(kind(0.1, -0.1, carry=False), clears=False, batches=7)

    def test_rates_have_no_steps_to_pair(self) -> None:
        fc, neuron = nn.Linear(4, 3), nn.Identity()
        rule = la.Hebb(0.1, carry=False)
        rule.register_cell("enc", la.Cell(fc, neuron))
        for _ in range(12):
            neuron(fc(torch.rand(2, 4)))
            rule()
            rule.update()
        rule.eval()
