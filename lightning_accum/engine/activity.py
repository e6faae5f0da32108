"""Recorded activity of one side of a connection, and what is computed of it once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from lightning_accum.engine.state import StateKey, trace_key
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.functional.dtypes import as_numbers
from lightning_accum.functional.traces import TraceMode, last_trace, trace
from lightning_accum.sparse.eprop import Folding
from lightning_accum.sparse.events import Events, last_trace_of_events, trace_before_events


class Activity:
    """Recorded activity, and its traces, ages and averages, which pass on once they are used."""

    def __init__(
        self,
        activity: Tensor | Folding,
        dt: float = 1.0,
        carried: Mapping[StateKey, Tensor] | None = None,
        side: str = "given",
        dtype: torch.dtype = torch.float32,
        unit_dim: int = -1,
        events: Events | None = None,
        constant: bool = False,
    ) -> None:
        self.folding = activity if isinstance(activity, Folding) else None
        if isinstance(activity, Folding):
            activity = activity.potential.membrane  # of the shape and dtype of the values
        else:
            self.activity = activity
        self.shape, self.device = activity.shape, activity.device
        self.is_raster = activity.dtype == torch.bool
        self.known_events = events
        self.unit_dim = unit_dim
        self.dtype = torch.promote_types(activity.dtype, dtype)
        self.dt = dt
        self.side = side
        self.constant = constant
        self._carried = {} if carried is None else carried
        self._used: set[tuple[float, TraceMode]] = set()
        self._traces: dict[tuple[float, TraceMode], Tensor] = {}
        self._last: dict[tuple[float, TraceMode], Tensor] = {}
        self._shares: dict[float, Tensor] = {}
        self._age: Tensor | None = None
        self._steps: Tensor | None = None
        self._averages: dict[tuple[float, int], tuple[Tensor, Tensor]] = {}
        self._derived: dict[str, Activity] = {}

    @cached_property
    def activity(self) -> Tensor:
        """The activity, ``[T, B, ...]``; a folding computes it when it is first read."""
        assert self.folding is not None
        return self.folding.values()

    def events(self) -> Events:
        """Returns the spikes' indices in ``[K, neurons]``; they are searched for only once."""
        if self.known_events is None:
            self.known_events = Events(self.activity.flatten(0, -2))
        return self.known_events

    def initial(self, decay: float, mode: TraceMode) -> Tensor | None:
        """Returns the trace before the window's first step, ``None`` for zero."""
        self._used.add((decay, mode))  # what is used passes to the next window
        return self._before(trace_key(self.side, decay, mode), self.activity.shape[1:])

    def values(self, decay: float, mode: TraceMode, out: Tensor | None = None) -> Tensor:
        """Returns the trace over the window, kept, or in memory that the caller may overwrite."""
        known = self._traces.get((decay, mode))
        if known is None:
            initial = self.initial(decay, mode)
            known = trace(self.activity, decay, mode, initial, self.dtype, out)
            if out is None:
                self._traces[decay, mode] = known
            else:
                self._last[decay, mode] = out[-1].clone()
        return known

    def numbers(self) -> Tensor:
        """Returns the activity in the dtype of the computation."""
        return as_numbers(self.activity, self.dtype)

    def before(self, decay: float, mode: TraceMode) -> Tensor:
        """Returns a trace just before each step, decayed up to it."""
        values, initial = self.values(decay, mode), self.initial(decay, mode)
        out = torch.zeros_like(values)
        out[1:] = values[:-1]
        if initial is not None:
            out[0] = initial
        return out.mul_(decay)

    def ones(self) -> Activity:
        """Returns ones of this shape."""
        ones = torch.ones((), dtype=self.dtype, device=self.device).expand(self.shape)
        return Activity(ones, self.dt, dtype=self.dtype, unit_dim=self.unit_dim)

    def constant_input(self, vjp: WeightVJP, pre: Activity) -> Activity:
        """Returns an input that is always one, for terms of this as the postsynaptic side."""
        ones = vjp.for_constant_input.constant_input(self.activity, pre.activity)
        return Activity(ones, self.dt, dtype=self.dtype, unit_dim=self.unit_dim, constant=True)

    def edges(self, decay: float, mode: TraceMode) -> tuple[Tensor | None, Tensor] | None:
        """Returns a trace before the window, and memory for its end; ``None`` if it is computed."""
        if (decay, mode) in self._traces:
            return None
        if (decay, mode) not in self._last:
            self._last[decay, mode] = torch.empty_like(self.activity[0], dtype=self.dtype)
        return self.initial(decay, mode), self._last[decay, mode]

    def shares_of_events(self, decay: float) -> Tensor:
        """Returns ``[events]``, what each spike adds to the nearest trace: one, less the rest."""
        if decay not in self._shares:
            initial, shape = self.initial(decay, "nearest"), self.activity.shape
            left = trace_before_events(self.events(), shape, decay, initial, self.dtype)
            self._shares[decay] = 1.0 - left
        return self._shares[decay]

    def derived(self, name: str, values: Tensor) -> Activity:
        """Returns values that are computed of this, whose traces pass on together with its own."""
        if name not in self._derived:
            self._derived[name] = Activity(
                values, self.dt, self._carried, name, self.dtype, self.unit_dim
            )
        return self._derived[name]

    def age(self) -> Tensor:
        """Returns the time since the latest spike, in ms; infinite before the first one."""
        if self._age is None:
            spikes = self.activity != 0
            age = torch.ones(spikes.shape, dtype=self.dtype, device=spikes.device)
            before = self.steps_before()
            for now, spike in zip(age.unbind(0), spikes.unbind(0), strict=True):
                now.add_(torch.inf if before is None else before).masked_fill_(spike, 0.0)
                before = now
            self._steps = age[-1].clone()
            self._age = age.mul_(self.dt)
        return self._age

    def steps_before(self) -> Tensor | None:
        """Returns ``[B, ...]``, the steps since the latest spike; infinite where there was none."""
        return self._before(self._age_key, self.activity.shape[1:])

    def steps_at_the_end(self) -> Tensor:
        """Returns memory for the steps since the latest spike, as counted at the last step."""
        if self._steps is None:
            self._steps = torch.empty_like(self.activity[0], dtype=self.dtype)
        return self._steps

    def average(self, decay: float, power: int) -> Tensor:
        """Returns the running average over samples and all earlier steps, of every neuron."""
        known = self._averages.get((decay, power))
        if known is None:
            values = as_numbers(self.activity, self.dtype) ** power
            rest = sorted(set(range(1, values.ndim)) - {self.unit_dim % values.ndim})
            mean = values.mean(rest, keepdim=True)
            ones = mean.new_ones(len(mean))
            keys = self._average_keys(decay, power)
            known = self._averages[decay, power] = (
                trace(mean, decay, "cumulative", self._before(keys[0], mean.shape[1:])),
                trace(ones, decay, "cumulative", self._before(keys[1], ones.shape[1:])),
            )
        total, weight = known
        return total / weight.reshape(-1, *[1] * (total.ndim - 1))

    def carry(self, of_samples: bool = True) -> dict[StateKey, Tensor]:
        """Returns what passes to the next window."""
        left: dict[StateKey, Tensor] = {}
        for each in self._derived.values():
            left.update(each.carry(of_samples))
        for (decay, power), sums in self._averages.items():
            for key, values in zip(self._average_keys(decay, power), sums, strict=True):
                left[key] = values[-1].clone()
        if not of_samples:
            return left
        for decay, mode in self._used:
            left[trace_key(self.side, decay, mode)] = self._at_the_end(decay, mode)
        if self._steps is not None:
            left[self._age_key] = self._steps
        return left

    def _at_the_end(self, decay: float, mode: TraceMode) -> Tensor:
        """Returns the trace at the last step, in memory that keeps nothing else alive."""
        known = self._traces.get((decay, mode))
        if known is not None:  # a view would keep the whole trace alive
            return known[-1].clone() if known.shape[0] > 1 else known[0]
        if (decay, mode) in self._last:
            return self._last[decay, mode]
        events, activity, initial = self.known_events, self.activity, self.initial(decay, mode)
        last, settings = None, (decay, mode, initial, self.dtype)
        if events is not None:
            last = last_trace_of_events(events, activity.shape, *settings)
        return last_trace(activity, *settings) if last is None else last

    @property
    def _age_key(self) -> StateKey:
        return StateKey("sample", f"{self.side} age")

    def _average_keys(self, decay: float, power: int) -> tuple[StateKey, StateKey]:
        kind = f"{self.side} average of power {power}"
        total, weight = (StateKey("neuron", f"{kind}, {part}", decay) for part in ("sum", "weight"))
        return total, weight

    def _before(self, key: StateKey, shape: torch.Size) -> Tensor | None:
        value = self._carried.get(key)
        if value is None or value.shape != shape:
            return None
        return value.to(self.activity.device, self.dtype)
