"""What is known of a cell and of its parameters: counts, and a few looks at values."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.distributed.shards import local
from lightning_accum.engine.rule import rates_in
from lightning_accum.functional import dtypes
from lightning_accum.updates import Updater
from lightning_accum.updates.pending import Pending

By = Literal["hand", "callback", "module", "loop"]
"""Who applies updates: a loop by hand, a callback, the module's own optimizer, or Fabric's loop."""

_ALL = 64  # windows, in each of which the inputs of the rule are looked at
_BACK = 0.1  # of an update: what may be left of it if it was set back
_FEW = 16  # fewer weights may correlate by chance
_LATER = 4  # looks after the first
_UNLIKE = 0.5  # correlation of weights that have little in common


class Weights(NamedTuple):
    """A parameter at some time: an evenly spaced sample, and the norm and the sum of all."""

    sample: Tensor
    all: dtypes.Fingerprint

    @classmethod
    def of(cls, param: Tensor) -> Weights:
        """Returns what is kept of a parameter; does not wait for the device."""
        value = local(param.detach())
        return cls(dtypes.sample_of(value).clone(), dtypes.fingerprint(value))

    def same(self, other: Weights) -> bool:
        """Returns whether nothing has changed, NaN included; waits for the device."""
        mine, its = self.sample, other.sample.to(self.sample.device)
        equal = mine.shape == its.shape and torch.allclose(mine, its, 0.0, 0.0, equal_nan=True)
        return equal and dtypes.same_fingerprints(self.all, other.all, equal_nan=True)

    @property
    def finite(self) -> bool:
        """Whether no value is NaN or infinite; waits for the device."""
        return bool(self.all[0].isfinite())


@dataclass
class ParamFacts:
    """What has become of the changes of a parameter."""

    name: str
    updater: Updater
    pending: Pending
    param: Tensor | None = None  # when it was looked at last
    first: Weights | None = None  # before the first update
    second: Weights | None = None  # after it
    # Of the updates that were looked at, 1, 2, 4, 8, ...: whether each has changed it, and by what
    # share of the weights; whether something had set it back, or an optimizer had changed it by a
    # gradient, before the next one.
    changed: list[Tensor] = field(default_factory=list)
    ratios: list[Tensor] = field(default_factory=list)
    back: list[Tensor] = field(default_factory=list)
    shared: list[Tensor] = field(default_factory=list)
    norms: list[Tensor] = field(default_factory=list)  # at the ends of the latest two epochs
    until: int = 0  # updates until the end of the latest epoch
    last: int = 0  # the last update of the next one, if it has as many
    skipped: int = 0  # updates that were dropped for NaN or Inf before
    stale: int = 0  # exports in a row to a gradient that was stepped already, and not emptied
    applied: int = 0
    exported: int = 0
    zeroed: int = 0  # multiplied by 0
    now: Weights | None = None  # when findings are asked for
    before: Weights | None = None  # the update that is being looked at
    left: Weights | None = None  # after it, until the next one

    def update_begins(self, param: Tensor, looks: bool) -> None:
        """Compares with what the update before has left, and notes the value before this one."""
        now = None
        if self.left is not None or looks or self.first is None:
            now = Weights.of(param)
        if self.left is not None and now is not None and self.before is not None:
            self._compare(self.before, self.left, now, param)
        self.left, self.before, self.param = None, now if looks else None, param
        self.first = self.first or now

    def update_ended(self, param: Tensor) -> None:
        """Notes the value after an update that is looked at."""
        if self.before is None:
            return
        was, now = self.before, Weights.of(param)
        self.left, self.second, self.param = now, self.second or now, param
        if was.sample.shape == now.sample.shape:
            norm = was.all[0] != now.all[0]
            self.changed.append((was.sample != now.sample).any() | norm.to(now.sample.device))
            self.ratios.append(dtypes.relative_distance(now.sample, was.sample))

    def epoch_ended(self, param: Tensor, beside: bool) -> None:
        """Compares with what the last update has left, and notes what the epoch leaves."""
        now = Weights.of(param)
        self.norms = [*self.norms[-1:], now.all[0]]
        self.last, self.until = 2 * self.applied - self.until, self.applied
        if self.exported or beside:
            return
        if self.left is not None and self.first is not None:
            self._compare(self.first, self.left, now, param)
        self.before, self.left = self.first, now

    @property
    def unmoved(self) -> bool:
        """Whether it is as it was before the first update; waits for the device."""
        return self.first is None or self.now is None or self.now.same(self.first)

    @property
    def rests(self) -> bool:
        """Whether only the first update has moved it, perhaps by a constraint; waits."""
        if (
            self.second is None
            or self.now is None
            or not self.updater.changes.constraints.of(self.name)
        ):
            return False
        then, now, later = self.second.sample, self.now.sample, self.ratios[1:]
        most = dtypes.rounding(now.dtype)
        few = len(later) < _LATER or then.shape != now.shape
        if few or any(float(by) > most for by in later):
            return False
        near = dtypes.relative_distance(then.to(now.device), now) <= most
        return bool(near) or self.now.same(self.second)

    def at_limits(self) -> bool:
        """Returns whether all weights are at a limit; waits for the device."""
        low, high = self.updater.limits(self.name)
        if self.now is None or (low is None and high is None):
            return False
        value = self.now.sample
        at_low = value <= (-inf if low is None else low)
        return bool((at_low | (value >= (inf if high is None else high))).all())

    @property
    def value(self) -> Tensor | None:
        """The parameter, if its module exists and has it as it was; otherwise an update tells."""
        with suppress(RuntimeError, ValueError):
            changes = self.updater.changes
            return None if changes.module() is None else changes.target(self.name)
        return None

    def _compare(self, before: Weights, left: Weights, now: Weights, param: Tensor) -> None:
        """Notes what has happened to a parameter since the update before."""
        if not before.sample.shape == left.sample.shape == now.sample.shape:
            return
        was, then, value = (dtypes.widened(each.sample) for each in (before, left, now))
        if param.grad is not None:
            self.shared.append((then != value).any())
            return
        moved = (then - was).norm()
        most = dtypes.rounding(now.sample.dtype) * was.norm()  # updates that cancel leave no more
        found = (moved > most) & ((value - was).norm() <= _BACK * moved)
        if len(then) >= _FEW:
            both = torch.stack([then - then.mean(), value - value.mean()])
            size = both.norm(dim=1).prod()
            found = found | ((both.prod(0).sum() < _UNLIKE * size) & (size > 0))
        self.back.append(found)


class Look(NamedTuple):
    """The non-zero values of both sides in one window; tensors until they are read."""

    window: int
    pre: Tensor
    pre_of: int
    post: Tensor
    post_of: int
    below: Tensor | int


@dataclass
class CellFacts:
    """What is known of a cell."""

    name: str
    h: Mapping[str, Any] = field(default_factory=dict)
    windows: int = 0
    calls: int = 0
    empty: int = 0  # the latest calls in a row that found nothing of it
    others: bool = False  # whether the latest of these found activity of other cells
    dropped: int = 0  # recorded steps that were cleared before a call
    longest: int = 0  # steps of the longest window
    steps: int = 0  # of all windows
    fired: Tensor | int = 0  # values that were not zero, of as many at first, until it was asked
    values: int = 0
    asked: bool = False
    joined: bool = False  # whether traces have passed from a window to the next
    asleep: bool = False  # whether a module was in evaluation mode when a call found nothing
    undefined: Tensor | bool = False  # whether the potential of native neurons held NaN at a look
    spikes: tuple[bool, bool] = (False, False)  # whether both sides are recorded as spikes
    looks: list[Look] = field(default_factory=list)  # at windows 1, 2, 3, 4, 6, 8, 12, ...
    # How often each input of the rule was looked at, and its extremes.
    inputs: dict[str, tuple[int, Tensor, Tensor]] = field(default_factory=dict)
    # Windows in a row in which only the neuron was reset, and only the traces.
    resets: list[int] = field(default_factory=lambda: [0, 0])
    max_delay: float | None = None  # of a connection with delays
    params: dict[str, ParamFacts] = field(default_factory=dict)
    recorder: Any = None  # of the neuron's output
    total: int = 0  # windows of all cells when this one was found empty
    due: int = 1  # the next window to look at

    def look(self, pre: Tensor, post: Tensor) -> bool:
        """Looks at a window if it is time, and returns whether it did; it does not wait."""
        if self.windows < self.due or post.is_meta:
            return False
        power = 1 << (self.windows.bit_length() - 1)
        half = power + power // 2
        self.due = half if self.windows < half else 2 * power
        self.spikes = pre.dtype == torch.bool, post.dtype == torch.bool
        below = 0 if self.spikes[1] or post.is_complex() else (post < 0).count_nonzero()
        counts = pre.count_nonzero(), pre.numel(), post.count_nonzero(), post.numel()
        self.looks.append(Look(self.windows, *counts, below))
        return True

    def note_inputs(self, inputs: Mapping[str, Any], looked: bool) -> None:
        """Takes in the inputs of the rule: of each of the first windows, then of a few."""
        if not looked and self.windows > _ALL:
            return
        for name, given in inputs.items():
            if callable(given) and not looked:
                continue
            value = given() if callable(given) else given
            if not isinstance(value, (Tensor, float, int)):
                continue
            tensor = torch.as_tensor(value).detach()
            if tensor.is_complex() or tensor.is_meta or not tensor.numel():
                continue
            low, high = (tensor if tensor.is_floating_point() else tensor.float()).aminmax()
            count, least, most = self.inputs.get(name, (0, low, high))
            low, high = torch.minimum(least.to(low), low), torch.maximum(most.to(high), high)
            self.inputs[name] = count + 1, low, high

    def extremes(self, name: str) -> tuple[int, float, float]:
        """Returns how often an input was looked at, and its extremes; waits for the device."""
        count, low, high = self.inputs[name]
        return count, float(low) + 0.0, float(high) + 0.0  # 0 instead of -0

    def share(self, side: Literal["pre", "post", "below"]) -> float | None:
        """Returns the share of non-zero values on a side, or of negative outputs; waits."""
        size = sum(each.pre_of if side == "pre" else each.post_of for each in self.looks)
        return sum(int(getattr(each, side)) for each in self.looks) / size if size else None

    def silent_since(self) -> int | None:
        """Returns the window since which neurons that fired are silent; waits for the device."""
        fired = [bool(each.post) for each in self.looks]
        if not any(fired):
            return None
        last = len(fired) - fired[::-1].index(True)
        quiet = self.looks[last:]
        driven = all(bool(each.pre) for each in quiet)
        return quiet[0].window if len(quiet) >= 3 and driven else None

    @property
    def recorded(self) -> int:
        """The steps that the recorder of the neuron's output holds."""
        return int(getattr(self.recorder, "length", 0))

    @property
    def rates(self) -> dict[str, object]:
        """The hyperparameters that are learning rates."""
        return rates_in(self.h)

    @property
    def may_move(self) -> bool:
        """Whether a rate is not 0, or there are none."""
        return not self.rates or any(self.rates.values())


@dataclass(frozen=True)
class Context:
    """What the host of a cell knows when it asks for findings."""

    by: By
    title: str  # of the rule, or of another trainer
    trainer: CellTrainer | None  # unless it does not exist any more
    modules: tuple[nn.Module, nn.Module] | None  # likewise
    model: nn.Module | None  # if it is known
    updates: int = 0  # how often the host has applied changes
    ended: bool = False  # whether nothing more will come
    failed: bool = False  # whether an exception has ended it
    learns: bool = False  # whether any cell of the rule has had a window
    carry: bool | None = None  # whether batches are a stream; None in a loop by hand

    def calls(self, count: int) -> str:
        """Returns a number of calls of the rule, as the host calls them."""
        what = "call" if self.by == "hand" else "batch" if self.by == "loop" else "training batch"
        return number(count, what)

    @property
    def records(self) -> bool:
        """Whether the rule is not in evaluation mode."""
        return self.trainer is None or self.trainer.training

    @property
    def asleep(self) -> bool:
        """Whether modules of the cell are in evaluation mode."""
        return self.modules is not None and not all(m.training for m in self.modules)


def number(count: int, what: str) -> str:
    """Returns a count with its noun in the singular or plural."""
    plural = what + ("es" if what.endswith("tch") else "s")
    return f"{count} {what if count == 1 else plural}"
