"""What watching costs: a monitor's hook call, and the callback's part of a batch.

A hook is called once a step for each side of a cell. The callback's part is what a batch takes off
the logging steps, beyond what a loop by hand calls too.

    python benchmarks/hook_cost.py [--smoke]
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
from _measure import goal, middle, setting, table
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_accum import STDP, CellSpec
from lightning_accum import nn as layers
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.observe import InputMonitor, OutputMonitor, WindowRecorder

STEPS = 250
HOOK_BAR, CALLBACK_BAR = 2, 50  # µs


class Same(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


class Ring:
    """A hook that keeps the latest steps, and nothing else."""

    def __init__(self, steps: Tensor) -> None:
        self.rows = list(torch.empty(STEPS, *steps.shape, dtype=torch.bool).unbind(0))
        self.at = 0

    def __call__(self, module: nn.Module, args: Any, out: Tensor) -> None:
        self.rows[self.at].copy_(out)
        self.at = (self.at + 1) % STEPS


def nothing(module: nn.Module, args: Any, out: Tensor) -> None: ...


def hooks(turns: int) -> dict[str, list[float]]:
    """µs of a call beyond that of the module without a hook, by kind of hook."""
    spikes = (torch.rand(32, 400) < 0.02).float()
    named = ("bare", "a hook that does nothing", "a ring by hand", "OutputMonitor", "InputMonitor")
    modules = {name: Same() for name in named}
    modules[named[1]].register_forward_hook(nothing)
    modules[named[2]].register_forward_hook(Ring(spikes))
    monitors = {
        kind.__name__: kind(modules[kind.__name__], "", WindowRecorder(spikes=True))
        for kind in (OutputMonitor, InputMonitor)
    }
    found: dict[str, list[float]] = {name: [] for name in named}
    for turn in range(turns + 1):
        for name, module in modules.items():
            start = time.perf_counter()
            for _ in range(STEPS):
                module(spikes)
            if turn:
                found[name].append(1e6 * (time.perf_counter() - start) / STEPS)
            if name in monitors:
                monitors[name].clear()
    bare = statistics.median(found.pop("bare"))
    return {name: [each - bare for each in times] for name, times in found.items()}


class Network(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.fc = layers.Linear(64, 100, bias=False)
        self.lif = layers.LIF(100, time_dim=0, spike_dtype=torch.bool)

    def training_step(self, batch: Tensor, batch_idx: int) -> None:
        self.lif.reset()
        self.lif(self.fc(batch))

    def configure_optimizers(self) -> None:
        return None


class Watch:
    """Adds up the seconds of the calls of a function."""

    def __init__(self, call: Callable[..., object]) -> None:
        self.call = call
        self.spent = 0.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        found = self.call(*args, **kwargs)
        self.spent += time.perf_counter() - start
        return found


class Watched(CellTrainerCallback):
    """Knows how long it takes, and how much of that are calls that a loop by hand has too."""

    def __init__(self) -> None:
        rule, cells = STDP(lr_post=0.01, lr_pre=-0.01), {"cell": CellSpec("fc", "lif")}
        super().__init__(rule, cells, time_dim=0)
        self.parts: list[float] = []
        self.clears: list[float] = []
        self.beyond: list[float] = []

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_fit_start(trainer, pl_module)
        rule, (updater,) = self.cell_trainer, self.host.updaters.values()
        apply = Watch(lambda prepared: prepared())
        prepare = Watch(updater.prepare)
        self.inner = [Watch(rule.finish_batch), Watch(rule.clear), prepare, apply]
        rule.finish_batch, rule.clear = self.inner[:2]  # type: ignore[method-assign]
        updater.prepare = lambda *names, **how: partial(  # type: ignore[method-assign]
            apply, prepare(*names, **how)
        )

    def on_train_batch_start(self, *args: Any) -> None:
        whole = Watch(super().on_train_batch_start)
        whole(*args)
        self.begun = whole.spent

    def on_train_batch_end(self, *args: Any) -> None:
        whole, before = Watch(super().on_train_batch_end), [each.spent for each in self.inner]
        whole(*args)
        inner = [each.spent - then for each, then in zip(self.inner, before, strict=True)]
        self.clears.append(1e6 * inner[1])
        self.parts.append(1e6 * (sum(inner) - inner[1]))
        self.beyond.append(1e6 * (self.begun + whole.spent - sum(inner)))


def callback(batches: int) -> Watched:
    watched = Watched()
    trainer = pl.Trainer(
        max_epochs=1, callbacks=[watched], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
        log_every_n_steps=batches + 1,
    )  # fmt: skip
    spikes = torch.rand(batches, 10, 32, 64) < 0.1
    trainer.fit(Network(), DataLoader(list(spikes), batch_size=None))
    return watched


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="few calls, just to see it run")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in ("lightning.pytorch", "lightning_accum.callbacks"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    print(f"{setting('lightning')}\n")
    found = hooks(2 if args.smoke else 200)
    table(["µs a call at (32, 400), beyond the module's", "median (quartiles)"],
          [[name, middle(times, 2)] for name, times in found.items()])  # fmt: skip
    dearest = max(statistics.median(found[kind]) for kind in ("OutputMonitor", "InputMonitor"))
    print()
    goal(f"A monitor's hook call: {dearest:.1f} µs of {HOOK_BAR} at most")
    callback(5)
    watched = callback(5 if args.smoke else 400)
    table(["µs a batch, a layer of 64 → 100, 10 steps", "median (quartiles)"],
          [["the rule and the applied update", middle(watched.parts, 0)],
           ["the rule's `clear`", middle(watched.clears, 0)],
           ["the callback beyond these", middle(watched.beyond, 0)]])  # fmt: skip
    reached = statistics.median(watched.beyond)
    goal(f"The callback beyond its rule: {reached:.0f} µs of {CALLBACK_BAR} at most")


if __name__ == "__main__":
    main()
