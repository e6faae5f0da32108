"""Recorded windows, and rules that are evaluated for them by each path in turn."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn

import lightning_accum as la
from lightning_accum.engine import window_changes as accumulate
from lightning_accum.engine.summation_forms import Form

RULES: dict[str, la.Rule] = {
    "STDP": la.STDP(1e-4, -1e-4),
    "STDP, nearest": la.STDP(1e-4, -1e-4, trace_mode="nearest"),
    "MSTDP": la.MSTDP(1e-4, -1e-4),
    "MSTDPET": la.MSTDPET(1e-4, -1e-4),
    "TripletSTDP": la.TripletSTDP(1e-4, 1e-4, -1e-4, -1e-4),
}
REWARDED = "MSTDP", "MSTDPET"
NET = ", net"  # both parts as one


class Window(NamedTuple):
    """A window of a layer; a convolution's counts are those of its channels."""

    inputs: int
    neurons: int
    batch: int
    steps: int
    density: float
    size: int = 0  # of a convolution's map
    fires: float | None = None  # density of the neurons' spikes; as the input's if None

    @property
    def connection(self) -> nn.Module:
        if self.size:
            return nn.Conv2d(self.inputs, self.neurons, 3, padding=1, bias=False)
        return nn.Linear(self.inputs, self.neurons, bias=False)

    def spikes(self, neurons: int, density: float) -> Tensor:
        maps = (self.size, self.size) if self.size else ()
        return torch.rand(self.steps, self.batch, neurons, *maps) < density

    @property
    def paths(self) -> tuple[str, ...]:
        """All evaluations; for a convolution they differ in the side that traces move to."""
        return ("pre", "post") if self.size else ("dense", "pre", "post")

    def __str__(self) -> str:
        where = f" maps of {self.size} × {self.size}" if self.size else ""
        return (
            f"{self.inputs} → {self.neurons}{where}, B {self.batch}, T {self.steps},"
            f" {self.density:.1%}{'' if self.fires is None else f' → {self.fires:.1%}'}"
        )


class Replay(nn.Module):
    """A neuron that gives out a recorded window."""

    def __init__(self, spikes: Tensor) -> None:
        super().__init__()
        self.spikes = spikes

    def forward(self, current: Tensor) -> Tensor:
        return self.spikes


def forced(path: str, convolution: bool = False) -> AbstractContextManager[object]:
    """Has terms evaluated by a path, or the traces of a convolution move away from one side."""
    if path == "auto":
        return nullcontext()
    if convolution:
        return mock.patch.object(accumulate, "unmoved_side", return_value=path)

    def form(products: Any, combine: bool) -> list[Form]:
        side = accumulate.unmoved_side(products, combine) if path == "dense" else path
        return [Form(path, side, tuple(range(len(products))))]

    return mock.patch.object(accumulate, "forms_of", form)


class Turn:
    """One rule with one path, on one window."""

    def __init__(self, rule: str, path: str, window: Window, pre: Tensor, post: Tensor) -> None:
        torch.manual_seed(0)
        name, net = rule.removesuffix(NET), rule.endswith(NET)
        self.path, self.size = path, window.size
        self.connection, self.neuron = window.connection, Replay(post)
        self.trainer = la.RuleTrainer(RULES[name], time_dim=0, carry=name != "MSTDPET")
        unit = self.trainer.register_cell("cell", la.Cell(self.connection, self.neuron))
        unit.cell.updater.weight.keep_parts = not net
        self.given = {"reward": torch.randn(window.batch)} if name in REWARDED else {}
        self.pre, self.times = pre, list[float]()

    def once(self) -> None:
        """Records the window, and times the rule and its update."""
        for (_, name), monitor in self.trainer.named_monitors:
            monitor(self.pre if name == "pre" else self.neuron.spikes)
        with forced(self.path, self.size > 0):
            start = time.process_time()
            self.trainer(**self.given)
            self.trainer.update()
            self.times.append(1e3 * (time.process_time() - start))
        self.trainer.clear()


class Found(NamedTuple):
    """Milliseconds with the choice of a path, and of every path without it."""

    window: Window
    rule: str
    choice: str | None  # of these paths; None for products of a single step, and convolutions
    chosen: float
    paths: dict[str, float]

    @property
    def fastest(self) -> str:
        return min(self.paths, key=lambda path: self.paths[path])

    @property
    def whole(self) -> float:
        """What the evaluation takes, with the choice, over the fastest path."""
        return self.chosen / self.paths[self.fastest]

    @property
    def ratio(self) -> float:
        """What the chosen path takes over the fastest path."""
        if self.choice is None:
            return self.whole
        return self.paths[self.choice] / self.paths[self.fastest]


def choice_of(turn: Turn) -> str | None:
    """Returns the path that is chosen, ``None`` if it is not asked for one."""
    choices: list[str] = []
    of = accumulate.forms_of

    def told(*given: Any) -> list[Form]:
        found = of(*given)
        choices.extend(form.choice for form in found if form.choice != "step")
        return found

    with mock.patch.object(accumulate, "forms_of", told):
        turn.once()
    return choices[0] if len(set(choices)) == 1 else None


def measure(windows: Iterable[Window], rules: Iterable[str], seconds: float) -> list[Found]:
    """Times every rule on every window, for so many seconds each.

    A path that takes more than twice as long as the fastest in its first turns takes no more.
    """
    found = []
    for window, rule in itertools.product(windows, rules):
        torch.manual_seed(1)
        random.seed(1)
        pre = window.spikes(window.inputs, window.density)
        fires = window.density if window.fires is None else window.fires
        post = window.spikes(window.neurons, fires)
        turns = {path: Turn(rule, path, window, pre, post) for path in ("auto", *window.paths)}
        choice = choice_of(turns["auto"])
        for turn in turns.values():
            turn.once()
            turn.times.clear()  # the first has fresh memory
        start, running = time.process_time(), list(turns.values())
        while len(turns["auto"].times) < 3 or time.process_time() < start + seconds:
            random.shuffle(running)  # what one leaves in the cache helps the next
            for turn in running:
                turn.once()
            least = min(min(turn.times) for turn in running)
            running = [t for t in running if t is turns["auto"] or min(t.times) < 2 * least]
        times = {path: statistics.median(turn.times) for path, turn in turns.items()}
        found.append(Found(window, rule, choice, times.pop("auto"), times))
    return found
