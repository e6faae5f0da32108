"""What is known of a cell and of its parameters: counts, and a few looks at values."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from lightning_accum._training_events import By
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.distributed.shards import local
from lightning_accum.engine.rule import rates_in
from lightning_accum.functional.dtypes import widened
from lightning_accum.updates import Updater
from lightning_accum.updates.pending import Pending

ENOUGH = 8  # windows, calls or steps of a loop by hand, before anything is said of it
_ALL = 64  # windows, in each of which the inputs of the rule are looked at
_BACK = 0.1  # of an update: what may be left of it if it was set back
_FEW = 16  # fewer weights may correlate by chance
_LATER = 4  # looks after the first
_RESETS = 3  # windows in a row with a mistake in their reset
_SAMPLE = 1 << 16  # the largest number of weights in a sample
_UNLIKE = 0.5  # correlation of weights that have little in common


class Weights(NamedTuple):
    """A parameter at some time: an evenly spaced sample, and the norm and the sum of all values."""

    sample: Tensor
    norm: Tensor  # which or the sum changes with any value
    sum: Tensor

    @classmethod
    def of(cls, param: Tensor) -> Weights:
        """Returns what is kept of a parameter; does not wait for the device."""
        value = local(param.detach())
        wide = value.to(torch.float32 if value.device.type == "mps" else torch.float64)
        return cls(sample_of(value).clone(), torch.linalg.vector_norm(wide), wide.sum())

    def same(self, other: Weights) -> bool:
        """Returns whether nothing has changed, NaN included; waits for the device."""
        pairs = ((a, b.to(a.device)) for a, b in zip(self, other, strict=True))
        return self.sample.shape == other.sample.shape and all(
            torch.allclose(a, b, 0.0, 0.0, equal_nan=True) for a, b in pairs
        )

    def apart(self, other: Weights) -> Tensor:
        """Returns the distance from others as a share of their norm; not finite if it is 0."""
        mine, its = widened(self.sample), widened(other.sample.to(self.sample.device))
        distance: Tensor = torch.linalg.vector_norm(mine - its) / torch.linalg.vector_norm(its)
        return distance

    @property
    def rounding(self) -> float:
        """The largest relative distance that is taken for rounding."""
        # 0 below 32 bits: there, a few updates do not change weights by more than they round
        dtype = self.sample.dtype
        return 2 * torch.finfo(dtype).eps if dtype in (torch.float32, torch.float64) else 0.0

    @property
    def finite(self) -> bool:
        """Whether no value is NaN or infinite; waits for the device."""
        return bool(self.norm.isfinite())


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
    seen: int = 0  # updates of the host at the latest one of it
    now: Weights | None = None  # when findings are asked for
    before: Weights | None = None  # the update that is being looked at
    left: Weights | None = None  # after it, until the next one

    def update_begins(self, param: Tensor, looks: bool) -> None:
        """Compares with what the update before has left, and notes the value before this one."""
        needed = looks or self.left is not None or self.first is None
        now = Weights.of(param) if needed else None
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
            norm = was.norm != now.norm
            self.changed.append((was.sample != now.sample).any() | norm.to(now.sample.device))
            self.ratios.append(now.apart(was))

    def epoch_ended(self, param: Tensor, beside: bool) -> None:
        """Compares with what the last update has left, and notes what the epoch leaves."""
        now = Weights.of(param)
        self.norms = [*self.norms[-1:], now.norm]
        self.last, self.until = 2 * self.applied - self.until, self.applied
        if self.exported or beside:
            return
        if self.left is not None and self.first is not None:
            self._compare(self.first, self.left, now, param)
        self.before, self.left = self.first, now

    def look(self) -> None:
        """Notes what it is now, for findings."""
        param = self.param if (value := self.value) is None else value
        self.now = None if param is None or param.is_meta else Weights.of(param)

    @property
    def unmoved(self) -> bool:
        """Whether it is as it was before the first update; waits for the device."""
        return self.first is None or self.now is None or self.now.same(self.first)

    @property
    def rests(self) -> bool:
        """Whether only the first update has moved it, perhaps by a constraint; waits."""
        then, now, later = self.second, self.now, self.ratios[1:]
        if then is None or now is None or not self.updater.changes.constraints.of(self.name):
            return False
        few = len(later) < _LATER or then.sample.shape != now.sample.shape
        if few or any(float(by) > now.rounding for by in later):
            return False
        return bool(then.apart(now) <= now.rounding) or now.same(then)

    @property
    def stays(self) -> bool:
        """Whether updates leave it where it is; waits for the device."""
        return self.unmoved or self.rests

    @property
    def nulled(self) -> bool:
        """Whether each change was multiplied by 0."""
        return self.zeroed >= self.applied > 0

    @property
    def is_back(self) -> bool:
        """Whether updates changed it, and it has its first value again; waits for the device."""
        return self.unmoved and not self.at_limits() and any(bool(each) for each in self.changed)

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
        was, then, value = (widened(each.sample) for each in (before, left, now))
        if param.grad is not None:
            self.shared.append((then != value).any())
            return
        moved = (then - was).norm()
        most = now.rounding * was.norm()  # updates that cancel leave no more
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
    split: bool = False  # whether processes have shares of the connection
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

    def thirds(self) -> list[tuple[int, int]]:
        """Returns the spikes, of how many values, in each third of the looks; waits."""
        n = len(self.looks) // 3
        parts = self.looks[:n], self.looks[n:-n], self.looks[-n:]
        return [(sum(int(e.post) for e in p), sum(e.post_of for e in p)) for p in parts]

    def note_reset(self, passed: bool, since: float, steps: int) -> bool:
        """Compares the resets of a native neuron and of traces; returns whether to tell of it."""
        self.joined = self.joined or passed
        # at rates of 0, no trace is read, and none passes
        reads = any(k.startswith("tc_") and v is not None for k, v in self.h.items())
        if not (self.may_move and reads) or self.windows == 1:
            return False
        apart = passed and since == steps, not passed and 1 < steps < since < inf
        pairs = [*zip(apart, self.resets, strict=True)]
        self.resets = [n + 1 if now else 0 if n < _RESETS else n for now, n in pairs]
        return any(now and n + 1 == _RESETS for now, n in pairs)

    @property
    def resets_apart(self) -> tuple[bool, bool]:
        """Whether in several windows in a row only the neuron was reset, and only the traces."""
        return self.resets[0] >= _RESETS, self.resets[1] >= _RESETS

    def note_potential(self, neuron: Any) -> None:
        """Notes whether the potential of a native neuron holds NaN."""
        for potential in (getattr(neuron, each, None) for each in ("voltage", "membrane")):
            if isinstance(potential, Tensor) and potential.is_floating_point():
                self.undefined = potential.detach().isnan().any()

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

    def least(self, of_host: int) -> int:
        """Returns how many windows or updates are enough to judge, of a loop by hand or a host."""
        return ENOUGH if self.by == "hand" else of_host

    @property
    def records(self) -> bool:
        """Whether the rule is not in evaluation mode."""
        return self.trainer is None or self.trainer.training

    @property
    def asleep(self) -> bool:
        """Whether modules of the cell are in evaluation mode."""
        return self.modules is not None and not all(m.training for m in self.modules)


def sample_of(value: Tensor) -> Tensor:
    """Returns all values of a tensor, or an evenly spaced sample of many, as a view if possible."""
    return value.reshape(-1)[:: -(-value.numel() // _SAMPLE) or 1]


def number(count: int, what: str) -> str:
    """Returns a count with its noun in the singular or plural."""
    plural = what + ("es" if what.endswith("tch") else "s")
    return f"{count} {what if count == 1 else plural}"


def first(*rows: tuple[object, str]) -> str | None:
    """Returns the text of the first row whose condition holds."""
    return next((text for holds, text in rows if holds), None)
